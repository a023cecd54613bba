"""Every private name of zarr or icechunk that intarsia touches, each with the reason.

Nothing else in the package imports a private name; `tests/test_compat.py` pins them, so that
a release of zarr or icechunk that moves one fails in a single, obvious place.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from zarr.abc.codec import _codec_supports_sync as codec_supports_sync
from zarr.abc.store import SyncByteSetter
from zarr.abc.store import _store_supports_sync_io as store_supports_sync_io
from zarr.codecs.sharding import _ShardingByteGetter as ShardingByteGetter
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer.cpu import as_numpy_array_wrapper
from zarr.core.chunk_grids import ChunkGrid
from zarr.core.chunk_utils import ChunkTransform, evolve_codecs
from zarr.core.codec_pipeline import BatchedCodecPipeline, FusedCodecPipeline
from zarr.core.codec_pipeline import _get_pool as get_codec_pool
from zarr.core.codec_pipeline import _resolve_max_workers as resolve_max_workers
from zarr.core.common import JSON, concurrent_map
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.core.sync import sync

__all__ = [
    "JSON",
    "ArrayConfig",
    "ArraySpec",
    "ArrayV3Metadata",
    "BatchedCodecPipeline",
    "ChunkGrid",
    "ChunkTransform",
    "FusedCodecPipeline",
    "ShardingByteGetter",
    "SyncByteSetter",
    "as_numpy_array_wrapper",
    "codec_supports_sync",
    "concurrent_map",
    "evolve_codecs",
    "get_codec_pool",
    "resolve_max_workers",
    "storage_path",
    "storage_text",
    "store_supports_sync_io",
    "sync",
]

if TYPE_CHECKING:
    import icechunk

# ArrayConfig: our subclass of it carries a decision to every codec of one array, as `chunk_spec.config`.
# ArraySpec: what every codec method takes; rewriting chunks calls codecs directly, so it has to make some.
# ArrayV3Metadata: tells format 3 arrays from format 2 ones, which have none of our codecs.
# BatchedCodecPipeline, FusedCodecPipeline: zarr's two pipelines, which we extend by the chunk index.
# ChunkGrid: where each chunk starts, for regular and rectilinear grids alike.
# ChunkTransform, evolve_codecs: how zarr runs the codecs of a shard's index without an event loop.
# JSON: the type that `Metadata.to_dict` and `from_dict` are annotated with; zarr exports no public alias.
# ShardingByteGetter: how a pipeline inside a shard learns which inner chunk it works on.
# SyncByteSetter, store_supports_sync_io: how zarr's fused pipeline decides whether it may work synchronously.
# as_numpy_array_wrapper: how zarr's own codecs call numcodecs on a Buffer without a copy.
# codec_supports_sync: whether a nested codec may be called without an event loop.
# concurrent_map: zarr's bounded concurrency, so that our pipelines schedule as its own do.
# get_codec_pool, resolve_max_workers: the thread pool of the fused pipeline and its size.
# sync: runs a coroutine of a store on zarr's event loop.


def _storage_fields(storage: icechunk.Storage) -> dict[str, str]:
    """What icechunk prints about a storage: the only way to learn where an open repository is."""
    lines = str(storage).splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def storage_path(storage: icechunk.Storage) -> str | None:
    """The directory of a local storage, absolute; None for others."""
    fields = _storage_fields(storage)
    if fields.get("type") != "local filesystem":
        return None
    return os.path.realpath(fields["path"])


def storage_text(storage: icechunk.Storage) -> str:
    """Where a storage is, for messages."""
    fields = _storage_fields(storage)
    kind = fields.get("type", "")
    if kind == "in-memory":
        return "the repository in memory"
    if "bucket" in fields:
        scheme = "gs" if kind == "GCS" else "s3"
        return f"{scheme}://{fields['bucket']}/{fields.get('prefix', '')}"
    return fields.get("url") or f"the {kind} repository"
