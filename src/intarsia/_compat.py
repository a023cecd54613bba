"""Every private name of other packages that intarsia touches, each with the reason.

Nothing else in the package imports or uses one. `tests/test_compat.py` checks that and pins them. The methods
that *make up* a zarr codec do not count as private here, although they look like it: everybody who writes a
codec writes them.

A newer zarr may lack any of these names. Without the first few there are no arrays: importing intarsia fails,
and the error says which zarr to install. The others have a fallback that uses zarr's public API, or refuses
slotted shards by name; one line in the log says what this zarr lacks (`LACKING`). The names of other packages
have a public fallback, or an error that names the package and its version (`_private`).
"""

# These imports are for the other modules.
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeGuard

import numcodecs
import numpy as np
import zarr
from zarr.abc.buffer import Buffer
from zarr.abc.buffer import NDBuffer as AnyNDBuffer
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec, SupportsSyncCodec
from zarr.abc.store import Store, SupportsSyncStore
from zarr.buffer.cpu import NDBuffer, as_numpy_array_wrapper
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.dtype import data_type_registry
from zarr.registry import get_chunk_key_encoding_class
from zarr.storage import WrapperStore
from zarr.types import JSON, DTypeJSON

from intarsia.errors import SlotsUnsupportedError, no_thread

try:
    from zarr.codecs._v2 import V2Codec
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.codec_pipeline import BatchedCodecPipeline
    from zarr.core.metadata.v2 import ArrayV2Metadata
    from zarr.core.metadata.v3 import ArrayV3Metadata
    from zarr.core.sync import sync
    from zarr.experimental import ChunkGrid
except ImportError as error:
    raise ImportError(
        f"this version of intarsia does not work with zarr {zarr.__version__}: {error}.\n"
        f"  Install a newer intarsia, or an older zarr: pip install 'zarr<{zarr.__version__}'"
    ) from error

if TYPE_CHECKING:
    import icechunk
    import pandas
    from zarr.core.codec_pipeline import FusedCodecPipeline
    from zarr.core.context import Resolver
    from zarr.core.dtype.common import HasItemSize
    from zarr.core.metadata.v3 import RegularChunkGridMetadata

# ArrayConfig: our subclass of it carries a decision to every codec of one array, as `chunk_spec.config`.
# ArraySpec: what every codec method takes; the read engine and rewriting chunks call codecs directly.
# ArrayV2Metadata, ArrayV3Metadata: tell the formats apart; arrays of format 2 have none of our codecs.
# BatchedCodecPipeline, FusedCodecPipeline: zarr's two pipelines, to which we add the chunk index.
# ChunkGrid: where each chunk starts, for regular and rectilinear grids alike.
# HasItemSize: a data type that has it gets chunk shapes by bytes rather than by elements.
# codec_registries: the names of all available codecs, to suggest the nearest to a misspelt name.
# V2Codec: the filters and the compressor of an array of format 2, as one codec.
# event_loop: the loop that stores live on; starting a fetch before waiting for it needs the loop itself.
# get_indexer: which inner chunks of a shard a selection touches, as zarr's sharding sees it.
# is_pure_fancy_indexing: whether `array[selection]` reads point by point, which drops nulls at the end.
# morton_order_coords: the chunks of a shard in the order in which zarr writes them.
# sync: runs a coroutine of a store on zarr's event loop.

LACKING: list[str] = []
"""The private names that this zarr does not have."""


def _from_zarr(module: str, name: str, fallback: Any) -> Any:
    """A private name of zarr, or `fallback` if it is not there."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        LACKING.append(f"{module}.{name}")
        return fallback


def _lacks(package: str, error: Exception) -> ImportError:
    """The error for a package that no longer has a private name."""
    return ImportError(
        f"this version of intarsia does not work with {package} {version(package)}: {error}.\n"
        f"  Install a newer intarsia, or an older {package}: pip install '{package}<{version(package)}'"
    )


def _private(thing: Any, name: str, package: str) -> Any:
    """A private attribute of another package; if it is not there, an error names the package."""
    try:
        return getattr(thing, name)
    except AttributeError as error:
        raise _lacks(package, error) from error


def _loop_of_sync() -> asyncio.AbstractEventLoop:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    return sync(running())


class _NotFused(BatchedCodecPipeline):
    """What stands for the fused pipeline if there is none: it writes chunk by chunk."""

    sync_transform: ClassVar[None] = None


DefaultChunkKeyEncoding: Any = get_chunk_key_encoding_class("default")
codec_registries = _from_zarr("zarr.registry", "_codec_registries", {})
event_loop = _from_zarr("zarr.core.sync", "_get_loop", _loop_of_sync)
get_indexer = _from_zarr("zarr.core.indexing", "get_indexer", None)
is_pure_fancy_indexing = _from_zarr("zarr.core.indexing", "is_pure_fancy_indexing", lambda *_: False)
morton_order_coords = _from_zarr(
    "zarr.core.indexing", "morton_order_coords", lambda grid: [*np.ndindex(grid)]
)
if not TYPE_CHECKING:
    Resolver = object  # only in signatures
    FusedCodecPipeline = _from_zarr("zarr.core.codec_pipeline", "FusedCodecPipeline", _NotFused)
    HasItemSize = _from_zarr("zarr.core.dtype.common", "HasItemSize", object)

if LACKING:
    logging.getLogger("intarsia").warning(
        "zarr %s is newer than this intarsia, and lacks %s: arrays are read and written through its public "
        "API, which may be slower, and slotted shards are refused",
        zarr.__version__,
        ", ".join(LACKING),
    )


def start_event_loop() -> None:
    """Start zarr's event loop before zarr does.

    If its thread cannot start, this raises an error and leaves no loop behind: zarr would wait for it for
    ever.
    """
    try:
        event_loop()
    except RuntimeError as error:
        zarr_sync: Any = import_module("zarr.core.sync")
        if hasattr(zarr_sync, "loop") and hasattr(zarr_sync, "iothread"):
            failed, zarr_sync.loop[0], zarr_sync.iothread[0] = zarr_sync.loop[0], None, None
            if failed is not None:
                failed.close()
        raise no_thread(error) from error


def add_data_types(*kinds: type[Any]) -> None:
    """Add data types to zarr's registry, in a new dictionary.

    zarr loads those of other packages when it first looks one up, which may be in the middle of somebody's
    loop over the present dictionary. That must not grow.
    """
    added = {kind._zarr_v3_name: kind for kind in kinds}
    object.__setattr__(data_type_registry, "contents", {**data_type_registry.contents, **added})


HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether the threads of this Python share one lock; since 3.13, CPython can be built without it."""

SHARDING_METHODS = (
    "_decode_partial_single",
    "_decode_partial_sync",
    "_encode_partial_single",
    "_encode_partial_sync",
)
"""The methods of zarr's sharding codec that ours replace."""


def check_sharding() -> None:
    """Refuse slotted shards if zarr no longer calls the methods that ours replace, or lacks what they need.

    It would write whole shards, without locks, and lose what others write at the same time.
    """
    needed = (*SHARDING_METHODS, "_get_shard_indexer_and_value")
    lost = [f"zarr.codecs.ShardingCodec.{name}" for name in needed if not hasattr(ShardingCodec, name)]
    if lost or LACKING:
        raise SlotsUnsupportedError(
            f"slotted shards do not work with zarr {zarr.__version__}, which lacks "
            f"{', '.join([*LACKING, *lost])}.\n"
            f"  Install a newer intarsia, or an older zarr: pip install 'zarr<{zarr.__version__}'"
        )


# zarr: chains of codecs


def codec_supports_sync(codec: object) -> bool:
    """Whether a codec may be called without an event loop; codecs around others may depend on these."""
    return isinstance(codec, SupportsSyncCodec) and bool(getattr(codec, "_sync_capable", True))


def sync_decoder(codec: Any) -> Callable[[Any, ArraySpec], Any]:
    """How a codec decodes in this thread; one that only works on an event loop does so meanwhile."""

    def decode_on_event_loop(data: Any, spec: ArraySpec) -> Any:
        (decoded,) = sync(codec.decode([(data, spec)]))
        return decoded

    return codec._decode_sync if codec_supports_sync(codec) else decode_on_event_loop


def evolve_codecs(codecs: Iterable[Codec], spec: ArraySpec) -> tuple[Codec, ...]:
    """The chain, completed for data of `spec`, each codec for what the one before it returns."""
    chain: list[Codec] = []
    for codec in codecs:
        chain.append(codec.evolve_from_array_spec(spec))
        spec = chain[-1].resolve_metadata(spec)
    return tuple(chain)


def codec_specs(codecs: Iterable[Codec], spec: ArraySpec) -> list[ArraySpec]:
    """What each codec of a chain is told about its input: after the array -> array codecs, all the same."""
    specs = []
    for codec in codecs:
        specs.append(spec)
        if isinstance(codec, ArrayArrayCodec):
            spec = codec.resolve_metadata(spec)
    return specs


def stages(codecs: Iterable[Codec]) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    """The codecs of a chain by stage: array -> array, array -> bytes, and bytes -> bytes.

    Raises ValueError if they are not in this order.
    """
    chain = tuple(codecs)
    kinds = ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
    before, middle, after = [[each for each in chain if isinstance(each, kind)] for kind in kinds]
    if len(middle) != 1 or (*before, *middle, *after) != chain:
        raise ValueError(f"the codecs {[type(codec).__name__ for codec in chain]} are no chain")
    return tuple(before), middle[0], tuple(after)


class ChunkTransform:
    """A chain of codecs that encodes and decodes chunks without an event loop.

    Raises TypeError if a codec needs one.
    """

    def __init__(self, *, codecs: Iterable[Codec]) -> None:
        self.codecs: tuple[Any, ...] = tuple(codecs)
        waiting = [type(codec).__name__ for codec in self.codecs if not codec_supports_sync(codec)]
        if waiting:
            raise TypeError(f"these codecs work only inside an event loop: {', '.join(waiting)}")
        self.stages = stages(self.codecs)

    def decode_chunk(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> AnyNDBuffer:
        """The values of a chunk."""
        data: Any = chunk_bytes
        specs = codec_specs(self.codecs, chunk_spec)
        for codec, spec in zip(reversed(self.codecs), reversed(specs), strict=True):
            data = codec._decode_sync(data, spec)
        values: AnyNDBuffer = data
        return values

    def encode_chunk(self, chunk_array: AnyNDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        """The bytes of a chunk; None if a codec says that it need not be stored."""
        data: Any = chunk_array
        for codec, spec in zip(self.codecs, codec_specs(self.codecs, chunk_spec), strict=True):
            if data is not None:
                data = codec._encode_sync(data, spec)
        encoded: Buffer | None = data
        return encoded

    def compute_encoded_size(self, nbytes: int, spec: ArraySpec) -> int:
        """How many bytes chunks of `nbytes` take when encoded, if all codecs have a fixed size."""
        for codec in self.codecs:
            nbytes = codec.compute_encoded_size(nbytes, spec)
            spec = codec.resolve_metadata(spec)
        return nbytes


# zarr: chunks


def chunk_is_empty(chunk: AnyNDBuffer, spec: ArraySpec) -> bool:
    """Whether a chunk is not stored because it holds only the fill value."""
    # Format 2 may leave the fill value open.
    fill = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
    return not spec.config.write_empty_chunks and chunk.all_equal(fill)


def is_regular(grid: Any) -> TypeGuard[RegularChunkGridMetadata]:
    """Whether all chunks of a grid have one shape."""
    return hasattr(grid, "chunk_shape")


# zarr: the rest


async def concurrent_map[T](
    items: Iterable[tuple[Any, ...]], work: Callable[..., Awaitable[T]], limit: int
) -> list[T]:
    """`work(*item)` for each item, at most `limit` at a time."""
    turn = asyncio.Semaphore(limit)

    async def one(item: tuple[Any, ...]) -> T:
        async with turn:
            return await work(*item)

    return await asyncio.gather(*map(one, items))


def inner_projections(codec: ShardingCodec, selection: Any, shard_spec: ArraySpec, value: Any) -> Any:
    """Which inner chunks of a shard get which part of `value`, and `value` as indexed by these parts.

    The two differ for coordinate selections, for which zarr flattens the value.
    """
    return codec._get_shard_indexer_and_value(selection, shard_spec, value)


def numcodec(codec: Any) -> Any:
    """The numcodecs codec behind one of `zarr.codecs.numcodecs`."""
    return numcodecs.get_codec(codec.codec_config)


def store_supports_sync_io(store: object) -> bool:
    """Whether a store has methods that need no event loop; a wrapper has them and may not be able to."""
    is_able = getattr(store, "_supports_sync_io", not isinstance(store, WrapperStore))
    return isinstance(store, SupportsSyncStore) and bool(is_able)


# icechunk


def _storage_fields(storage: icechunk.Storage) -> dict[str, str]:
    """What icechunk prints about a storage, which is the only way to learn where an open repository is."""
    lines = str(storage).splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def storage_path(storage: icechunk.Storage) -> str | None:
    """The directory of a local storage, as it was given to icechunk; None for others."""
    fields = _storage_fields(storage)
    try:
        return fields["path"] if fields["type"] == "local filesystem" else None
    except KeyError as error:  # it may be local; without the lock, commits could be lost
        raise _lacks("icechunk", error) from error


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
    return _private(store, "_store", "icechunk")


async def get_many(
    store: icechunk.IcechunkStore, wanted: list[tuple[str, tuple[int | None, int | None]]]
) -> list[bytes | None]:
    """Many values in one call. The public method fails on a missing key; this returns None for it.

    None also stands for a value that exists but could not be read: request it by itself to find out.
    """
    values: list[Any] = await native_store(store).get_partial_values(wanted)
    return values


# VirtualiZarr, pandas, dask, NumPy


def parsed_group(store: Any) -> Any:
    """The arrays and attributes in a `ManifestStore`; VirtualiZarr only shows them through xarray."""
    return _private(store, "_group", "virtualizarr")


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
    names = "_paths", "_offsets", "_lengths", "_inlined"
    paths, offsets, lengths, inlined = (_private(manifest, name, "virtualizarr") for name in names)
    return ManifestTable(paths, offsets, lengths, dict(inlined))


def pandas_memory(
    array: pandas.arrays.BooleanArray | pandas.arrays.IntegerArray | pandas.arrays.FloatingArray,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.bool_]]]:
    """The values of a nullable pandas array, and where it is null; its public accessors copy both."""
    if hasattr(array, "_data") and hasattr(array, "_mask"):
        return array._data, array._mask
    return array.to_numpy(dtype=array.dtype.numpy_dtype, na_value=array.dtype.type()), array.isna()


def dask_meta(array: Any) -> Any:
    """An empty array of the type of a dask array's blocks; anything else as it is."""
    return getattr(array, "_meta", array)


def numpys_own(function: Any) -> Any:
    """The NumPy function as it works for arrays that do not override it, or without `like=`."""
    return getattr(function, "_implementation", function)
