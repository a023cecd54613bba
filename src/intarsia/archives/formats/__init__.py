"""One file a format: `recognise` says from the beginning of a source whether it has the format.

A format is a `Format` of `archives/parse.py`: HDF5 is parsed here; the others are parsers in the form of
VirtualiZarr's, wrapped in `VirtualFormat`. To add one, add a file, and its module to `parse.FORMATS`.
"""
