from . import codecs, errors, nullable, shards, types
from .archives import authorize, ingest, lint, relocate, sources, to_kerchunk
from .archives.containers import containers
from .array import LogicalArray, Region, create
from .array.explain import explain
from .array.orientation import View
from .codecs import (
    ConditionalCodec,
    OffsetCodec,
    PackBitsCodec,
    PadCodec,
    extend_codecs,
    masks,
    rewrite,
    with_decision,
    with_padding,
)
from .errors import IntarsiaError
from .exchange.adoption import adopt
from .exchange.conversion import convert, export
from .interop.dask.store_dask import store_dask
from .interop.views.fuse import fuse, split
from .interop.views.fused_view import fused_view
from .interop.views.tensorstore import tensorstore_spec
from .interop.xarray.from_xarray import from_xarray
from .packing import Packing
from .progress import progress_bar
from .report.region_map import region_map
from .report.write_report import write_report
from .server.http import serve, serving
from .shards import compact, slot_stats, slotted
from .tune import advise
from .versions.history import diff, history, restore
from .versions.housekeeping import expire_and_collect, vacuum, verify
from .versions.locking import commit_lock
from .versions.maintenance import add_replica, maintain
from .versions.repository import open_repository
from .versions.transaction import retry, transaction, write
from .versions.uploads import append, recode
from .versions.version import open, reader

__version__: str

__all__ = [
    "ConditionalCodec",
    "IntarsiaError",
    "LogicalArray",
    "OffsetCodec",
    "PackBitsCodec",
    "Packing",
    "PadCodec",
    "Region",
    "View",
    "add_replica",
    "adopt",
    "advise",
    "append",
    "authorize",
    "codecs",
    "commit_lock",
    "compact",
    "containers",
    "convert",
    "create",
    "diff",
    "errors",
    "expire_and_collect",
    "explain",
    "export",
    "extend_codecs",
    "from_xarray",
    "fuse",
    "fused_view",
    "history",
    "ingest",
    "lint",
    "maintain",
    "masks",
    "nullable",
    "open",
    "open_repository",
    "progress_bar",
    "reader",
    "recode",
    "region_map",
    "relocate",
    "restore",
    "retry",
    "rewrite",
    "serve",
    "serving",
    "shards",
    "slot_stats",
    "slotted",
    "sources",
    "split",
    "store_dask",
    "tensorstore_spec",
    "to_kerchunk",
    "transaction",
    "types",
    "vacuum",
    "verify",
    "with_decision",
    "with_padding",
    "write",
    "write_report",
]
