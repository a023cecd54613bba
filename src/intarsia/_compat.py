"""Every private name of other packages that intarsia touches, each with the reason.

Nothing else in the package imports or uses one. `tests/test_compat.py` checks that and pins them. A release
that moves one fails in a single, obvious place. The methods that *make up* a zarr codec do not count as
private here, although they look like it: everybody who writes a codec writes them (`CODEC_METHODS`).
"""

# These imports are for the other modules.
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr.core.sync as zarr_sync
from zarr.abc.codec import _codec_supports_sync as codec_supports_sync
from zarr.abc.store import Store, SyncByteSetter
from zarr.abc.store import _store_supports_sync_io as store_supports_sync_io
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec
from zarr.codecs._v2 import V2Codec
from zarr.codecs.sharding import _ShardingByteGetter as ShardingByteGetter
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer.cpu import as_numpy_array_wrapper
from zarr.core.chunk_grids import ChunkGrid
from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding, V2ChunkKeyEncoding
from zarr.core.chunk_utils import (
    ChunkTransform,
    chunk_is_empty,
    decode_and_scatter_chunk,
    evolve_codecs,
    merge_and_encode_chunk,
)
from zarr.core.codec_pipeline import (
    BatchedCodecPipeline,
    FusedCodecPipeline,
    codecs_from_list_unchecked,
    resolve_aa_specs,
)
from zarr.core.codec_pipeline import _resolve_max_workers as resolve_max_workers
from zarr.core.common import JSON, concurrent_map
from zarr.core.context import Resolver
from zarr.core.dtype.common import DTypeJSON, HasItemSize
from zarr.core.indexing import get_indexer, is_pure_fancy_indexing, morton_order_coords
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import (
    ArrayV3Metadata,
    RectilinearChunksDisabledError,
    RegularChunkGridMetadata,
)
from zarr.core.sync import _get_loop as event_loop
from zarr.core.sync import sync
from zarr.dtype import data_type_registry
from zarr.registry import _codec_registries as codec_registries

if TYPE_CHECKING:
    import icechunk
    import pandas


# ArrayConfig: our subclass of it carries a decision to every codec of one array, as `chunk_spec.config`.
# ArraySpec: what every codec method takes; the read engine and rewriting chunks call codecs directly.
# ArrayV2Metadata, V2Codec: how arrays of format 2 are stored, and how zarr undoes their filters.
# ArrayV3Metadata: tells format 3 arrays from format 2 ones, which have none of our codecs.
# BatchedCodecPipeline, FusedCodecPipeline: zarr's two pipelines, to which we add the chunk index.
# ChunkGrid: where each chunk starts, for regular and rectilinear grids alike.
# ChunkTransform, resolve_aa_specs: how zarr runs a chain of codecs without an event loop.
# DefaultChunkKeyEncoding, V2ChunkKeyEncoding: the usual keys of chunks, which the engine makes by columns.
# DTypeJSON: the type that `ZDType` methods are annotated with; zarr exports no public alias.
# HasItemSize: a data type that has it gets chunk shapes by bytes rather than by elements.
# JSON: the type that `Metadata.to_dict` and `from_dict` are annotated with; zarr exports no public alias.
# RectilinearChunksDisabledError: what zarr raises for such grids unless it is told to read them.
# RegularChunkGridMetadata: the read engine plans regular grids and leaves others to zarr.
# Resolver: how zarr tells a data type that contains another one where to look that one up.
# ShardingByteGetter: how a pipeline inside a shard learns which inner chunk it works on.
# SyncByteSetter, store_supports_sync_io: how zarr's fused pipeline decides whether it may work synchronously.
# as_numpy_array_wrapper: how zarr's own codecs call numcodecs on a Buffer without a copy.
# chunk_is_empty: zarr's rule for chunks that are not stored because they hold only the fill value.
# codec_registries: the names of all available codecs, to suggest the nearest to a misspelt name.
# codec_supports_sync: whether a nested codec may be called without an event loop.
# codecs_from_list_unchecked: splits a chain into its three stages, with zarr's own error messages.
# concurrent_map: zarr's bounded concurrency, so that our pipelines schedule as its own do.
# decode_and_scatter_chunk, merge_and_encode_chunk: one chunk as zarr reads or writes it, with our own I/O.
# event_loop: the loop that stores live on; starting a fetch before waiting for it needs the loop itself.
# evolve_codecs: fills in a chain from the data it will see, each codec after the one before it.
# get_indexer: which inner chunks of a shard a selection touches, as zarr's sharding sees it.
# is_pure_fancy_indexing: which selections `array[…]` of zarr reads point by point, as `vindex`.
# morton_order_coords: the order in which zarr writes the inner chunks of a shard.
# resolve_max_workers: how many threads the fused pipeline takes.
# sync: runs a coroutine of a store on zarr's event loop.


def start_event_loop() -> None:
    """Start zarr's event loop before zarr does.

    If its thread cannot start, this raises RuntimeError and leaves no loop behind: zarr would wait for it for
    ever.
    """
    try:
        event_loop()
    except RuntimeError:
        failed, zarr_sync.loop[0], zarr_sync.iothread[0] = zarr_sync.loop[0], None, None
        if failed is not None:
            failed.close()
        raise


def add_data_types(*kinds: type[Any]) -> None:
    """Add data types to zarr's registry, in a new dictionary.

    zarr loads those of other packages when it first looks one up, which may be in the middle of somebody's
    loop over the present dictionary. That must not grow.
    """
    added = {kind._zarr_v3_name: kind for kind in kinds}
    object.__setattr__(data_type_registry, "contents", {**data_type_registry.contents, **added})


HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether the threads of this Python share one lock; since 3.13, CPython can be built without it."""

CODEC_METHODS = frozenset({"_decode_single", "_decode_sync", "_encode_single", "_encode_sync"})
"""The codec methods that zarr calls, with and without an event loop. Our own chains call them too."""

OVERRIDDEN = frozenset(
    {
        "_check_native_dtype",  # of data types, as are the next four
        "_check_scalar",
        "_from_json_resolved",
        "_from_json_v2",
        "_from_json_v3",
        "_check_writable",  # of stores, as is the next one
        "_open",
        "_decode_partial_single",  # of the sharding codec, as are the rest
        "_decode_partial_sync",
        "_encode_partial_single",
        "_encode_partial_sync",
        "_get_inner_chunk_transform",
    }
)
"""Methods of zarr's classes that ours replace, so that zarr calls them."""


# zarr


class Stages(NamedTuple):
    """The codecs of a chain by stage, each in the order of encoding."""

    array_array: tuple[Any, ...]
    array_bytes: Any
    bytes_bytes: tuple[Any, ...]


def stages(transform: ChunkTransform) -> Stages:
    """The codecs of a chain that zarr has split and checked; it keeps them to itself."""
    return Stages(tuple(transform._aa_codecs), transform._ab_codec, tuple(transform._bb_codecs))


def inner_projections(codec: ShardingCodec, selection: Any, shard_spec: ArraySpec, value: Any) -> Any:
    """Which inner chunks of a shard get which part of `value`, and `value` as indexed by these parts.

    The two differ for coordinate selections, for which zarr flattens the value.
    """
    return codec._get_shard_indexer_and_value(selection, shard_spec, value)


def numcodec(codec: Any) -> Any:
    """The numcodecs codec behind one of `zarr.codecs.numcodecs`; zarr only shows its settings as JSON."""
    return codec._codec


async def open_store(store: Store) -> None:
    """Open a store that is not open yet; the public `open` makes a new one."""
    await store._ensure_open()


class DeferredNDBuffer(NDBuffer):
    """Memory that `as_ndarray_like` makes when it is first needed.

    A zarr buffer that takes the values of another one reads them from its `_data`. Only zarr's own
    constructor sets that, which classes derived from this one do not call.
    """

    @property
    def _data(self) -> Any:  # type: ignore[override]  # zarr has an attribute there, and never sets it on ours
        return self.as_ndarray_like()


# icechunk


def _storage_fields(storage: icechunk.Storage) -> dict[str, str]:
    """What icechunk prints about a storage, which is the only way to learn where an open repository is."""
    lines = str(storage).splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def storage_path(storage: icechunk.Storage) -> str | None:
    """The directory of a local storage, as it was given to icechunk; None for others."""
    fields = _storage_fields(storage)
    return fields["path"] if fields.get("type") == "local filesystem" else None


def storage_in_memory(storage: icechunk.Storage) -> bool:
    """Whether a storage is memory of this process, which pickled sessions lose."""
    return _storage_fields(storage).get("type") == "in-memory"


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


def native_store(store: icechunk.IcechunkStore) -> Any:
    """The Rust object behind an Icechunk store: our own store wraps it, and it knows its session."""
    return store._store


async def get_many(
    store: icechunk.IcechunkStore, wanted: list[tuple[str, tuple[int | None, int | None]]]
) -> list[bytes | None]:
    """Many values in one call. The public method fails on a missing key; this returns None for it.

    None also stands for a value that exists but could not be read: request it by itself to find out.
    """
    values: list[Any] = await store._store.get_partial_values(wanted)
    return values


# VirtualiZarr, pandas, dask, NumPy


def parsed_group(store: Any) -> Any:
    """The arrays and attributes in a `ManifestStore`; VirtualiZarr only shows them through xarray."""
    return store._group


def _copy_of(name: str) -> Any:
    """A second copy of a module, in which names can be replaced without changing it for anybody else."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def tiff_parser() -> Any:
    """The parser of virtual_tiff, with interleaved samples as Zarr specifies them.

    It has its own codec for them, an array in Fortran order, which does not work with zarr 3.4. With the axes
    reversed, that is C order.
    """
    module = _copy_of("virtual_tiff.parser")
    module.TransposeCodec = lambda order: TransposeCodec(order=order[::-1])
    module.ChunkyCodec = BytesCodec
    return module.VirtualTIFF(ifd=0)


def virtual_parser(module: str, name: str) -> Any:
    """A parser of VirtualiZarr, from one of its modules as `virtual_module` gives it."""
    return getattr(virtual_module(module), name)


@cache
def virtual_module(module: str) -> Any:
    """VirtualiZarr parsers that do not stumble over attributes: the `_FillValue` of integers may be NaN.

    Their own attributes are not used: we read attributes ourselves, with the types that they have.
    """
    copied = _copy_of(f"virtualizarr.parsers.{module}")
    made = copied.create_v3_array_metadata

    def create(*, data_type: Any, fill_value: Any, **rest: Any) -> Any:
        if data_type.kind in "iu" and isinstance(fill_value, float) and not fill_value.is_integer():
            fill_value = None
        return made(data_type=data_type, fill_value=fill_value, **rest)

    copied.encode_cf_fill_value = lambda value, dtype: None
    copied.create_v3_array_metadata = create
    return copied


@cache
def hdf5_manifest_array() -> Any:
    """VirtualiZarr's function from an h5py dataset to a manifest array, without attributes and dimensions.

    Its versions of them are not used, and it cannot read some.
    """
    copied = virtual_module("hdf.hdf")
    copied._extract_attrs = lambda *_: {}
    copied._dataset_dims = lambda dataset, group: [None] * len(dataset.shape)
    return copied._construct_manifest_array


class ManifestTable(NamedTuple):
    """Where the chunks of a manifest array are, over its chunk grid."""

    paths: np.ndarray[Any, Any]
    """The file of each chunk; empty for chunks that are not stored."""

    offsets: np.ndarray[Any, np.dtype[np.uint64]]
    lengths: np.ndarray[Any, np.dtype[np.uint64]]

    inlined: dict[tuple[int, ...], bytes]
    """The chunks that the parser had to decode."""


def manifest_table(manifest: Any) -> ManifestTable:
    """A VirtualiZarr manifest as arrays; its public form is a dict of every chunk."""
    return ManifestTable(manifest._paths, manifest._offsets, manifest._lengths, dict(manifest._inlined))


def pandas_memory(
    array: pandas.arrays.BooleanArray | pandas.arrays.IntegerArray | pandas.arrays.FloatingArray,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.bool_]]]:
    """The values of a nullable pandas array, and where it is null; its public accessors copy both."""
    return array._data, array._mask


def dask_meta(array: Any) -> Any:
    """An empty array of the type of a dask array's blocks; anything else as it is."""
    return getattr(array, "_meta", array)


def numpys_own(function: Any) -> Any:
    """The NumPy function as it works for arrays that do not override it, or without `like=`."""
    return getattr(function, "_implementation", function)
