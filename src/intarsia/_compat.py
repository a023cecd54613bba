"""Every private name of other packages that intarsia touches, each with the reason.

Nothing else in the package imports or asks for one; `tests/test_compat.py` checks it and pins them, so that a
release that moves one fails in a single, obvious place. Methods that a codec of zarr's is *made of* are no
private names here, although they look like it: whoever writes a codec writes them (`CODEC_METHODS`).
"""

# What is imported here is for the other modules.
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
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
from zarr.registry import _codec_registries as codec_registries

if TYPE_CHECKING:
    import icechunk
    import pandas


# ArrayConfig: our subclass of it carries a decision to every codec of one array, as `chunk_spec.config`.
# ArraySpec: what every codec method takes; the read engine and rewriting chunks call codecs directly.
# ArrayV2Metadata, V2Codec: how arrays of format 2 are stored, and how zarr undoes their filters.
# ArrayV3Metadata: tells format 3 arrays from format 2 ones, which have none of our codecs.
# BatchedCodecPipeline, FusedCodecPipeline: zarr's two pipelines, which we extend by the chunk index.
# ChunkGrid: where each chunk starts, for regular and rectilinear grids alike.
# ChunkTransform, resolve_aa_specs: how zarr runs a chain of codecs without an event loop.
# DefaultChunkKeyEncoding, V2ChunkKeyEncoding: the usual keys of chunks, which the engine makes by columns.
# DTypeJSON: the type that `ZDType` methods are annotated with; zarr exports no public alias.
# HasItemSize: a data type that has it gets chunk shapes by bytes rather than by elements.
# JSON: the type that `Metadata.to_dict` and `from_dict` are annotated with; zarr exports no public alias.
# RectilinearChunksDisabledError: what zarr answers of such grids while it is not told to read them.
# RegularChunkGridMetadata: the read engine plans regular grids and leaves others to zarr.
# Resolver: how zarr tells a data type that contains another one where to look that one up.
# ShardingByteGetter: how a pipeline inside a shard learns which inner chunk it works on.
# SyncByteSetter, store_supports_sync_io: how zarr's fused pipeline decides whether it may work synchronously.
# as_numpy_array_wrapper: how zarr's own codecs call numcodecs on a Buffer without a copy.
# chunk_is_empty: zarr's rule for chunks that are not stored because they hold only the fill value.
# codec_registries: names of all codecs that are there, to say which one a misspelt name is nearest to.
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

HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether threads of this Python hand one lock to one another; CPython can be built without since 3.13."""

CODEC_METHODS = frozenset({"_decode_single", "_decode_sync", "_encode_single", "_encode_sync"})
"""What zarr calls of a codec: without an event loop, and in one. Chains of our own call them as zarr does."""

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
    """The codecs of a chain by what they do, each in the order of encoding."""

    array_array: tuple[Any, ...]
    array_bytes: Any
    bytes_bytes: tuple[Any, ...]


def stages(transform: ChunkTransform) -> Stages:
    """The codecs of a chain that zarr has split and checked; it keeps them to itself."""
    return Stages(tuple(transform._aa_codecs), transform._ab_codec, tuple(transform._bb_codecs))


def inner_projections(codec: ShardingCodec, selection: Any, shard_spec: ArraySpec, value: Any) -> Any:
    """Which inner chunks of a shard get which part of `value`, and `value` as these parts count in it.

    Coordinate selections make the difference: zarr flattens the value for them.
    """
    return codec._get_shard_indexer_and_value(selection, shard_spec, value)


def numcodec(codec: Any) -> Any:
    """The codec of numcodecs behind one of `zarr.codecs.numcodecs`; zarr shows its settings as JSON only."""
    return codec._codec


async def open_store(store: Store) -> None:
    """Open a store that is not open yet; the public `open` makes a new one."""
    await store._ensure_open()


class DeferredNDBuffer(NDBuffer):
    """Memory that is what `as_ndarray_like` makes it when somebody looks.

    A buffer of zarr's that takes the values of another one looks for them in its `_data`. Only zarr's own
    constructor sets it, which classes derived from this one do not call.
    """

    @property
    def _data(self) -> Any:  # type: ignore[override]  # zarr has an attribute there, and never sets it on ours
        return self.as_ndarray_like()


# icechunk


def _storage_fields(storage: icechunk.Storage) -> dict[str, str]:
    """What icechunk prints about a storage: the only way to learn where an open repository is."""
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
    """The object in Rust behind a store of Icechunk's: a store of ours wraps it, and it knows its session."""
    return store._store


async def get_many(
    store: icechunk.IcechunkStore, wanted: list[tuple[str, tuple[int | None, int | None]]]
) -> list[bytes | None]:
    """Many values in one call. The public method fails on a missing key; this says None.

    None also stands for a value that exists and could not be read: ask for it by itself to find out.
    """
    values: list[Any] = await store._store.get_partial_values(wanted)
    return values


# VirtualiZarr, pandas, dask, NumPy


def parsed_group(store: Any) -> Any:
    """The arrays and attributes in a `ManifestStore`; VirtualiZarr shows them only through xarray."""
    return store._group


def _copy_of(name: str) -> Any:
    """A module once more, so that names in it can be others without changing it for anybody else."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def tiff_parser() -> Any:
    """The parser of virtual_tiff, with interleaved samples in the words that Zarr specifies.

    It has a codec of its own for them, which does not work with zarr 3.4: an array in Fortran's order. Seen
    with the axes reversed, that is C's.
    """
    module = _copy_of("virtual_tiff.parser")
    module.TransposeCodec = lambda order: TransposeCodec(order=order[::-1])
    module.ChunkyCodec = BytesCodec
    return module.VirtualTIFF(ifd=0)


def virtual_parser(module: str, name: str) -> Any:
    """A parser of VirtualiZarr's, from a module of it as `virtual_module` has it."""
    return getattr(virtual_module(module), name)


@cache
def virtual_module(module: str) -> Any:
    """Parsers of VirtualiZarr's that do not stumble over attributes: `_FillValue` of integers may be NaN.

    What it makes of them is not used: we read attributes ourselves, with the types that they have.
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
    """VirtualiZarr's way from a dataset of h5py to a manifest array. It looks at no attribute or dimension.

    What it makes of them is not used, and some it cannot read.
    """
    copied = virtual_module("hdf.hdf")
    copied._extract_attrs = lambda *_: {}
    copied._dataset_dims = lambda dataset, group: [None] * len(dataset.shape)
    return copied._construct_manifest_array


class ManifestTable(NamedTuple):
    """Where the chunks of a manifest array are, over its chunk grid."""

    paths: np.ndarray[Any, Any]
    """The file of each chunk; empty for those that are not stored."""

    offsets: np.ndarray[Any, np.dtype[np.uint64]]
    lengths: np.ndarray[Any, np.dtype[np.uint64]]

    inlined: dict[tuple[int, ...], bytes]
    """The chunks that the parser had to decode."""


def manifest_table(manifest: Any) -> ManifestTable:
    """A manifest of VirtualiZarr's as arrays; its public form is a dict of every chunk."""
    return ManifestTable(manifest._paths, manifest._offsets, manifest._lengths, dict(manifest._inlined))


def pandas_memory(
    array: pandas.arrays.BooleanArray | pandas.arrays.IntegerArray | pandas.arrays.FloatingArray,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.bool_]]]:
    """The values of a nullable array of pandas, and where it is null; its public accessors copy both."""
    return array._data, array._mask


def dask_meta(array: Any) -> Any:
    """An empty array of the kind that the blocks of a dask array have; anything else as it is."""
    return getattr(array, "_meta", array)


def numpys_own(function: Any) -> Any:
    """What a function of NumPy does for arrays that do not override it, or makes without `like=`."""
    return getattr(function, "_implementation", function)
