"""Which chunk am I? The index of the chunk being encoded or decoded, for codecs and their functions.

zarr calls a codec without telling it which chunk it works on. Whoever does know says so for the time
of the call: the two pipelines here, which are zarr's own and otherwise behave like them, or anybody
with `working_on`. Codecs read it with `current_chunk_index`. A context variable carries it, so
concurrent chunks never see each other's index.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import zarr
from zarr.codecs import ShardingCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.registry import get_pipeline_class, register_pipeline
from zarr.storage import StorePath

from intarsia._compat import (
    ArrayConfig,
    ArraySpec,
    ArrayV3Metadata,
    BatchedCodecPipeline,
    FusedCodecPipeline,
    ShardingByteGetter,
    SyncByteSetter,
    concurrent_map,
    get_codec_pool,
    resolve_max_workers,
    store_supports_sync_io,
)
from intarsia.codecs.place import UNKNOWN, GivenPlace, Grid, InnerPlace, Place, StoredPlace
from intarsia.errors import ChunkDecodeError, ChunkIndexUnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, Codec, GetResult
    from zarr.abc.store import ByteGetter, Store
    from zarr.core.buffer import NDBuffer
    from zarr.core.indexing import SelectorTuple
    from zarr.core.metadata import ArrayMetadata

    type Item = tuple[Any, ArraySpec, SelectorTuple, SelectorTuple, bool]

__all__ = [
    "BatchedPipeline",
    "FusedPipeline",
    "asks_for",
    "at_place",
    "current_chunk_index",
    "named_chunk",
    "switch_pipeline",
    "working_on",
]

_place: ContextVar[Place] = ContextVar("intarsia_place", default=UNKNOWN)


@contextmanager
def working_on(chunk_index: tuple[int, ...] | None) -> Iterator[None]:
    """Say which chunk is being worked on, for the time of the `with` block.

    >>> with working_on((3, 1)):
    ...     current_chunk_index()
    (3, 1)
    """
    with at_place(GivenPlace(chunk_index)):
        yield


@contextmanager
def at_place(place: Place) -> Iterator[None]:
    """As `working_on`, for somebody who knows where a chunk lies, but need not know its index.

    >>> from intarsia.codecs.place import UNKNOWN
    >>> with at_place(UNKNOWN):
    ...     named_chunk()
    ''
    """
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def current_chunk_index() -> tuple[int, ...]:
    """The index in the chunk grid of the chunk being worked on.

    Inside shards it counts the inner chunks, over the whole array.

    >>> with working_on((0,)):
    ...     current_chunk_index()
    (0,)
    """
    index = _place.get().index()
    if index is None:
        raise ChunkIndexUnknownError(
            "a function asks for chunk_index, or a plan needs it, but the codec pipeline in use "
            f"({zarr.config.get('codec_pipeline.path')!r}) does not tell it, or not for this array.\n"
            "  Use one that does, and open the array after: zarr.config.set({'codec_pipeline.path': "
            "'intarsia.codecs.context.BatchedPipeline'})"
        )
    return index


def named_chunk() -> str:
    """How an error message names the chunk being worked on: " of chunk (3, 1)", or nothing.

    >>> with working_on((3, 1)):
    ...     named_chunk()
    ' of chunk (3, 1)'
    >>> named_chunk()
    ''
    """
    index = _place.get().index()
    return "" if index is None else f" of chunk {index}"


def asks_for(function: Callable[..., object], keyword: str) -> bool:
    """Whether `function` takes an argument called `keyword`.

    >>> asks_for(lambda encoded, *, chunk_index: b"", "chunk_index")
    True
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some built-ins have no signature
        return False
    return keyword in parameters


def wants_chunk_index(codec: Codec) -> bool:
    """Whether `codec`, or one inside it, has a use for the chunk index.

    >>> from intarsia.codecs import ShuffleCodec
    >>> from zarr.codecs import ZstdCodec
    >>> wants_chunk_index(ShuffleCodec(element_size=2)), wants_chunk_index(ZstdCodec())
    (True, False)
    """
    inside: Iterable[Codec] = getattr(codec, "codecs", ())
    return bool(getattr(codec, "wants_chunk_index", False)) or any(map(wants_chunk_index, inside))


class _TellsTheIndex:
    """What our two pipelines share: for each item of a batch, the place it works on."""

    grid: Grid | None
    array_array_codecs: tuple[ArrayArrayCodec, ...]
    array_bytes_codec: ArrayBytesCodec

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        if not isinstance(array_metadata, ArrayV3Metadata) or not any(
            map(wants_chunk_index, array_metadata.codecs)
        ):
            raise NotImplementedError  # zarr then builds the pipeline from the codecs alone
        # As zarr does it: codecs are shape-agnostic, so a grid without one shape gets a stand-in.
        shape = getattr(array_metadata.chunk_grid, "chunk_shape", (1,) * len(array_metadata.shape))
        spec = ArraySpec(
            shape=shape,
            dtype=array_metadata.data_type,
            fill_value=array_metadata.fill_value,
            config=ArrayConfig.from_dict({}),
            prototype=default_buffer_prototype(),
        )
        pipeline: Self = cls.from_codecs(array_metadata.codecs).evolve_from_array_spec(spec)  # type: ignore[attr-defined]
        object.__setattr__(pipeline, "grid", Grid.of(array_metadata))
        return pipeline

    @cached_property
    def wants_chunk_index(self) -> bool:
        return any(map(wants_chunk_index, self))  # type: ignore[call-overload]

    def places(self, batch: list[Item]) -> list[Place]:
        """The place of every item; must be asked for before leaving the caller's context."""
        outer = _place.get()
        if isinstance(self.array_bytes_codec, ShardingCodec) and not issubclass(
            get_pipeline_class(), _TellsTheIndex
        ):
            # The chunks inside would run in a pipeline that does not know better than this one.
            return [UNKNOWN] * len(batch)
        return [self._place_of(getter, spec, outer) for getter, spec, *_ in batch]

    def _place_of(self, getter: ByteGetter, spec: ArraySpec, outer: Place) -> Place:
        if isinstance(getter, ShardingByteGetter):
            return InnerPlace(outer, getter.chunk_coords, spec, self.array_array_codecs)
        if self.grid is not None and isinstance(getter, StorePath):
            return StoredPlace(self.grid, getter.path, spec, self.array_array_codecs)
        return UNKNOWN


@dataclass(frozen=True)
class BatchedPipeline(_TellsTheIndex, BatchedCodecPipeline):
    """zarr's batched pipeline, which also tells codecs the index of the chunk they work on.

    >>> import intarsia, zarr
    >>> number = intarsia.PadCodec(location="end", nbytes=1,
    ...                            padding_func=lambda encoded, chunk_index: bytes(chunk_index))
    >>> z = zarr.create(store={}, shape=4, chunks=2, dtype="u1", codecs=[{"name": "bytes"}, number])
    >>> z[:] = 7
    >>> z.store_path.store._store_dict["c/1"].to_bytes()
    b'\\x07\\x07\\x01'
    """

    grid: Grid | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The chunk grid; None inside shards, where the position in the shard is all there is."""

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        if not self.wants_chunk_index:
            return await super().read(batch_info, out, drop_axes)
        batch = list(batch_info)

        async def read_one(place: Place, item: Item) -> GetResult:
            _place.set(place)  # of this task alone
            (result,) = await self.read_batch([item], out, drop_axes)
            return result

        return tuple(
            await concurrent_map(list(zip(self.places(batch), batch, strict=True)), read_one, self.limit)
        )

    async def write(
        self, batch_info: Iterable[Item], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        if not self.wants_chunk_index:
            return await super().write(batch_info, value, drop_axes)
        batch = list(batch_info)

        async def write_one(place: Place, item: Item) -> None:
            _place.set(place)  # of this task alone
            await self.write_batch([item], value, drop_axes)

        await concurrent_map(list(zip(self.places(batch), batch, strict=True)), write_one, self.limit)
        return None

    @property
    def limit(self) -> int:
        """How many chunks are under way at once: as many as in zarr's batches."""
        return int(zarr.config.get("async.concurrency")) * self.batch_size


@dataclass(frozen=True)
class FusedPipeline(_TellsTheIndex, FusedCodecPipeline):
    """zarr's fused pipeline, which also tells codecs the index of the chunk they work on.

    Reads are zarr's own; only if one fails are its chunks read again, so that the error can name one.
    Writes into shards, and to stores without synchronous methods, take the way of `BatchedPipeline`:
    there zarr's fused pipeline calls codecs in threads that know nothing of the chunk.

    >>> import zarr
    >>> with zarr.config.set({"codec_pipeline.path": "intarsia.codecs.context.FusedPipeline"}):
    ...     z = zarr.create(store={}, shape=4, chunks=2, dtype="u1")
    >>> type(z.async_array.codec_pipeline).__name__
    'FusedPipeline'
    """

    grid: Grid | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The chunk grid; None inside shards, where the position in the shard is all there is."""

    @cached_property
    def _batched(self) -> BatchedPipeline:
        return BatchedPipeline(
            array_array_codecs=self.array_array_codecs,
            array_bytes_codec=self.array_bytes_codec,
            bytes_bytes_codecs=self.bytes_bytes_codecs,
            batch_size=self.batch_size,
            grid=self.grid,
        )

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        if not self.wants_chunk_index:
            return await super().read(batch_info, out, drop_axes)
        batch = list(batch_info)
        token = _place.set(UNKNOWN)
        try:
            return await super().read(batch, out, drop_axes)
        except (ChunkDecodeError, ChunkIndexUnknownError):
            pass
        finally:
            _place.reset(token)
        return await self._batched.read(batch, out, drop_axes)

    async def write(
        self, batch_info: Iterable[Item], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        batch = list(batch_info)
        if not batch or not self.wants_chunk_index:
            return await super().write(batch, value, drop_axes)
        setter = batch[0][0]
        synchronous = (
            store_supports_sync_io(setter.store)
            if isinstance(setter, StorePath)
            else isinstance(setter, SyncByteSetter)
        )
        if (
            self.sync_transform is None
            or not synchronous
            or isinstance(self.array_bytes_codec, ShardingCodec)
        ):
            return await self._batched.write(batch, value, drop_axes)
        return await asyncio.to_thread(self.write_sync, batch, value, drop_axes, resolve_max_workers())

    def write_sync(
        self,
        batch_info: Iterable[Item],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
        max_workers: int = 1,
    ) -> None:
        if not self.wants_chunk_index:
            return super().write_sync(batch_info, value, drop_axes, max_workers)
        batch = list(batch_info)
        write = super().write_sync

        def write_one(place: Place, item: Item) -> None:
            token = _place.set(place)
            try:
                write([item], value, drop_axes)
            finally:
                _place.reset(token)

        if max_workers > 1 and len(batch) > 1:
            list(get_codec_pool(max_workers).map(write_one, self.places(batch), batch))
        else:
            for place, item in zip(self.places(batch), batch, strict=True):
                write_one(place, item)
        return None


register_pipeline(BatchedPipeline)
register_pipeline(FusedPipeline)

COUNTERPARTS = {
    "zarr.core.codec_pipeline.BatchedCodecPipeline": "intarsia.codecs.context.BatchedPipeline",
    "zarr.core.codec_pipeline.FusedCodecPipeline": "intarsia.codecs.context.FusedPipeline",
}


def switch_pipeline() -> None:
    """Put our counterpart in the place of a pipeline of zarr's in `zarr.config`; leave others alone.

    >>> import zarr
    >>> with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}):
    ...     switch_pipeline()
    ...     zarr.config.get("codec_pipeline.path")
    'intarsia.codecs.context.FusedPipeline'
    """
    path = zarr.config.get("codec_pipeline.path")
    if path in COUNTERPARTS:
        zarr.config.set({"codec_pipeline.path": COUNTERPARTS[path]})
