from . import codecs, errors, nullable, shards, types
from .archives import authorize, ingest, lint, relocate, sources, to_kerchunk
from .archives.source_access import containers
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
from .inspect.region_map import region_map
from .inspect.server import serve, serving
from .inspect.write_report import write_report
from .interop.adopt import adopt
from .interop.convert import convert, export
from .interop.dask.store_dask import store_dask
from .interop.fuse import fuse, split
from .interop.fused_view import fused_view
from .interop.tensorstore import tensorstore_spec
from .interop.xarray.from_xarray import from_xarray
from .logical import LogicalArray, Region, create
from .logical.advice import advise
from .logical.explain import explain
from .manifest.packing import Packing
from .manifest.view import View
from .progress import progress_bar
from .shards import compact, slot_stats, slotted
from .versions.collect import expire_and_collect, vacuum, verify
from .versions.history import diff, history, restore
from .versions.locking import commit_lock
from .versions.replicate import add_replica, maintain
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
