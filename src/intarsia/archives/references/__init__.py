"""Datasets as plain references to their source files, for programs without intarsia.

`uniform_parts` finds the parts of a dataset in which every variable has one encoding, and describes their
arrays and chunks; `to_kerchunk` and `to_virtual_zarr` write them.
"""
