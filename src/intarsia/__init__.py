"""intarsia: one Zarr array, many encodings.

open and create    create       a logical array, at first without data
                   open         a logical array in a store or a repository; returns a LogicalArray
                   reader       read any Zarr array with the same engine
                   open_repository             an Icechunk repository

write              write, append               values into an array in a repository, as one commit
                   transaction, retry          several changes as one commit
                   store_dask, from_xarray     dask arrays and xarray datasets
                   Region, View, Packing       a part of an array, and how it sees what is stored

archives           ingest       files (HDF5, NetCDF, GRIB, TIFF, Zarr, N5, kerchunk) as one array, in place
                   archives     what else there is for archives of files

versions           history, diff, restore      what changed, and back to an earlier version
                   verify, vacuum              find what is wrong; remove what nothing refers to
                   add_replica, maintain       store data in other layouts too, and keep them up to date
                   versions     what else there is for repositories

encodings          recode       the same values in other codecs
                   advise       try encodings on samples, and rank them
                   codecs, nullable, shards    codecs; missing values; shards with slots

other programs     adopt, convert, export      from plain Zarr, with or without a copy, and back
                   fuse, split                 one Zarr array with a conditional codec, and back
                   fused_view, serve           every logical array as an ordinary Zarr array; over HTTP
                   tensorstore_spec            for TensorStore

look               explain      what reading a selection would do
                   region_map, write_report    a picture; a page
                   progress_bar                for everything that takes long
                   errors, IntarsiaError       what is raised
                   types        for annotations

`help(intarsia.open)` says more about a name, with an example.
"""
# Every name is imported when it is first used: `__init__.pyi` says where it lives.

import lazy_loader

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    if name == "__version__":
        from importlib.metadata import version

        return version("intarsia")
    return _import(name)
