from . import archives, codecs, errors, nullable, shards, types, versions
from .archives import ingest
from .errors import IntarsiaError
from .inspect.region_map import region_map
from .inspect.server import serve
from .inspect.write_report import write_report
from .interop.adopt import adopt
from .interop.convert import convert, export
from .interop.dask.store_dask import store_dask
from .interop.fuse import fuse, split
from .interop.fused_view import fused_view
from .interop.tensorstore import tensorstore_spec
from .interop.xarray.from_xarray import from_xarray
from .logical.advice import advise
from .logical.explain import explain
from .logical.logical_array import LogicalArray
from .logical.opening import create
from .logical.region import Region
from .manifest.packing import Packing
from .manifest.view import View
from .progress import progress_bar
from .versions.append_recode import append, recode
from .versions.diff import diff
from .versions.history import history, restore
from .versions.maintain import add_replica, maintain
from .versions.repository import open_repository
from .versions.transaction import retry, transaction, write
from .versions.verify_vacuum import vacuum, verify
from .versions.version import open, reader

__version__: str

__all__ = [
    "IntarsiaError",
    "LogicalArray",
    "Packing",
    "Region",
    "View",
    "add_replica",
    "adopt",
    "advise",
    "append",
    "archives",
    "codecs",
    "convert",
    "create",
    "diff",
    "errors",
    "explain",
    "export",
    "from_xarray",
    "fuse",
    "fused_view",
    "history",
    "ingest",
    "maintain",
    "nullable",
    "open",
    "open_repository",
    "progress_bar",
    "reader",
    "recode",
    "region_map",
    "restore",
    "retry",
    "serve",
    "shards",
    "split",
    "store_dask",
    "tensorstore_spec",
    "transaction",
    "types",
    "vacuum",
    "verify",
    "versions",
    "write",
    "write_report",
]
