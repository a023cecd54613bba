"""Pipelines that tell codecs, and their functions, the index of the chunk they work on.

zarr calls a codec without telling it which chunk it works on. The two pipelines here, which extend zarr's own
and otherwise behave like them, do tell it; so can anybody with `working_on` in `current_chunk.py`, where
codecs read it. The names of the two are in `zarr.config`, and in users' configurations.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec, CodecPipeline, GetResult
from zarr.abc.store import ByteGetter, Store
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.core.buffer import NDBuffer, default_buffer_prototype
from zarr.core.indexing import SelectorTuple
from zarr.core.metadata import ArrayMetadata
from zarr.errors import BaseZarrError
from zarr.registry import get_pipeline_class, register_pipeline
from zarr.storage import StorePath

from intarsia import _compat, errors
from intarsia.codecs import current_chunk
from intarsia.codecs.base import in_own_thread, without_copies

if TYPE_CHECKING:
    from intarsia.codecs.decisions import Decision

    type Item = tuple[Any, _compat.ArraySpec, SelectorTuple, SelectorTuple, bool]


def _taken_together(codecs: tuple[Codec, ...]) -> tuple[Codec, ...]:
    """The chain, with codecs merged into a later one that can do their work; it says so with `behind`.

    zarr's pipelines read and write parts of a stored object only through a codec that is alone in its chain.
    """
    *before, last = codecs
    behind = getattr(last, "behind", None) if all(isinstance(c, TransposeCodec) for c in before) else None
    return codecs if behind is None else (behind(tuple(before)),)


def _is_about_a_chunk(error: BaseException) -> bool:
    """Whether reading failed in a way that can be reported with the chunk's name."""
    return isinstance(error, ValueError | errors.ChunkIndexUnknownError) or errors.has_panicked(error)


def _concerns_a_chunk(error: Exception) -> bool:
    """Whether the error would name the chunk, had it been known."""
    return isinstance(
        error, errors.ChunkDecodeError | errors.ChunkEncodeError
    ) or current_chunk.failed_to_encode(error)


@dataclass(frozen=True)
class _TellsTheIndex:
    """What our two pipelines share: for each item of a batch, the place it works on."""

    grid: current_chunk.Grid | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The chunk grid; None inside shards, where only the position in the shard is known."""

    default: Decision | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The decision that the array remembers, which applies if there is no other."""

    array_array_codecs: tuple[ArrayArrayCodec, ...]
    array_bytes_codec: ArrayBytesCodec
    bytes_bytes_codecs: tuple[BytesBytesCodec, ...]

    zarrs_own: ClassVar[type[CodecPipeline]]
    """The zarr pipeline that this one extends."""

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec], **options: Any) -> Any:
        """A pipeline for `codecs`: zarr's own if none of them needs to know its chunk.

        So arrays without our codecs never notice that the pipeline was switched.
        """
        chain = _taken_together(tuple(codecs))
        if any(map(current_chunk.names_chunks, chain)):
            return super().from_codecs(without_copies(chain), **options)  # type: ignore[misc]  # of zarr's pipeline
        return cls.zarrs_own.from_codecs(chain, **options)

    @property
    def waits_for_locks(self) -> bool:
        """Whether even reading may wait for encoding elsewhere; then it must not run in zarr's threads."""
        return bool(getattr(self.array_bytes_codec, "waits_for_locks", False))

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        if not isinstance(array_metadata, _compat.ArrayV3Metadata) or not any(
            map(current_chunk.names_chunks, _taken_together(array_metadata.codecs))
        ):
            raise NotImplementedError  # zarr then calls `from_codecs`
        # zarr imports this module for everybody: the rest waits for an array that has our codecs.
        from intarsia.codecs.runtime_options import remembered_decision

        # As in zarr: codecs are shape-agnostic, so a grid without one shape gets a stand-in.
        shape = getattr(array_metadata.chunk_grid, "chunk_shape", (1,) * len(array_metadata.shape))
        spec = _compat.ArraySpec(
            shape=shape,
            dtype=array_metadata.data_type,
            fill_value=array_metadata.fill_value,
            config=_compat.ArrayConfig.from_dict({}),
            prototype=default_buffer_prototype(),
        )
        pipeline: Self = cls.from_codecs(array_metadata.codecs).evolve_from_array_spec(spec)
        object.__setattr__(pipeline, "grid", current_chunk.Grid.of(array_metadata))
        object.__setattr__(pipeline, "default", remembered_decision(array_metadata.attributes))
        return pipeline

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        """Like zarr's own, but chunk by chunk if a function is called or an error must name the chunk."""
        batch = list(batch_info)
        if not self.verifies(batch):  # no other codec needs the index for decoding
            try:
                with current_chunk.at_place(current_chunk.UNKNOWN):
                    result: tuple[GetResult, ...] = await super().read(batch, out, drop_axes)  # type: ignore[misc]
                    return result
            except BaseException as error:
                if not _is_about_a_chunk(error):
                    raise
        return await self._chunkwise.read_one_by_one(batch, out, drop_axes)

    async def write(
        self, batch_info: Iterable[Item], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        """Like zarr's own if no codec asks for the index; if one fails, again, to name the chunk."""
        batch = self.to_write(batch_info)
        if batch and any(current_chunk.needs_chunk_index(codec, batch[0][1]) for codec in self._codecs):
            return await self._write_knowing(batch, value, drop_axes)
        try:
            with current_chunk.at_place(current_chunk.UNKNOWN):
                return await super().write(batch, value, drop_axes)  # type: ignore[misc, no-any-return]
        except Exception as error:
            if not _concerns_a_chunk(error):
                raise
            return await self._chunkwise.write_one_by_one(batch, value, drop_axes)

    @property
    @abstractmethod
    def _chunkwise(self) -> BatchedPipeline:
        """A pipeline that goes chunk by chunk."""

    @abstractmethod
    async def _write_knowing(self, batch: list[Item], value: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        """Write with codecs that know which chunk they work on."""

    @property
    def _codecs(self) -> list[Codec]:
        return [*self.array_array_codecs, self.array_bytes_codec, *self.bytes_bytes_codecs]

    def verifies(self, batch: list[Item]) -> bool:
        """Whether a function is called for each chunk that is read: it may ask for the index, or wait."""
        from intarsia.codecs.runtime_options import all_codecs, options_in

        if not batch:
            return False
        spec = batch[0][1]
        asked = options_in(spec.config).verify_header or any(
            getattr(codec, "verify_header", False) for codec in all_codecs(self._codecs)
        )
        return asked and any(current_chunk.needs_chunk_index(codec, spec) for codec in self._codecs)

    def to_write(self, batch_info: Iterable[Item]) -> list[Item]:
        """The items, with codecs that are told what the array remembers."""
        if self.default is None:
            return list(batch_info)
        from intarsia.codecs.runtime_options import Options, options_in, with_options

        options = Options(default=self.default)
        return [
            (
                setter,
                replace(spec, config=with_options(spec.config, options_in(spec.config).over(options))),
                *selections,
            )
            for setter, spec, *selections in batch_info
        ]

    def places(self, batch: list[Item]) -> list[current_chunk.ChunkPlace]:
        """The place of every item; must be called before leaving the caller's context."""
        outer = current_chunk.current_place.get()
        if isinstance(self.array_bytes_codec, ShardingCodec) and not issubclass(
            get_pipeline_class(), _TellsTheIndex
        ):
            # The chunks inside would run in a pipeline that knows no more than this one.
            return [current_chunk.UNKNOWN] * len(batch)
        return [self._place_of(getter, spec, outer) for getter, spec, *_ in batch]

    def _place_of(
        self, getter: ByteGetter, spec: _compat.ArraySpec, outer: current_chunk.ChunkPlace
    ) -> current_chunk.ChunkPlace:
        if isinstance(getter, _compat.ShardingByteGetter):
            return current_chunk.InnerPlace(outer, getter.chunk_coords, spec, self.array_array_codecs)
        if self.grid is not None and isinstance(getter, StorePath):
            return current_chunk.StoredPlace(self.grid, getter.path, spec, self.array_array_codecs)
        return current_chunk.UNKNOWN


@dataclass(frozen=True)
class BatchedPipeline(_TellsTheIndex, _compat.BatchedCodecPipeline):
    """zarr's batched pipeline, but it also tells codecs the index of the chunk they work on.

    >>> import intarsia, zarr
    >>> number = intarsia.PadCodec(location="end", nbytes=1,
    ...                            padding_func=lambda encoded, chunk_index: bytes(chunk_index))
    >>> store = {}
    >>> z = zarr.create(store=store, shape=4, chunks=2, dtype="u1", codecs=[{"name": "bytes"}, number])
    >>> z[:] = 7
    >>> store["c/1"].to_bytes()
    b'\\x07\\x07\\x01'
    """

    zarrs_own = _compat.BatchedCodecPipeline

    @property
    def _chunkwise(self) -> Self:
        return self

    async def read_one_by_one(
        self, batch: list[Item], out: NDBuffer, drop_axes: tuple[int, ...]
    ) -> tuple[GetResult, ...]:
        """Like `read`, but slower, and with errors that name the chunk."""

        async def read_one(place: current_chunk.ChunkPlace, item: Item) -> GetResult:
            current_chunk.current_place.set(place)  # of this task alone
            try:
                (result,) = await self.read_batch([item], out, drop_axes)
            except BaseException as error:
                named = isinstance(error, errors.IntarsiaError | BaseZarrError)
                if named or not (isinstance(error, ValueError) or errors.has_panicked(error)):
                    raise
                # From a codec that is not ours, such as `crc32c` after `conditional`, or one that panicked.
                raise errors.ChunkDecodeError(
                    f"the data{current_chunk.named_chunk()} cannot be decoded: {error}"
                ) from error
            return result

        return tuple(
            await _compat.concurrent_map(
                list(zip(self.places(batch), batch, strict=True)), read_one, self.limit
            )
        )

    async def write_one_by_one(self, batch: list[Item], value: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        """Like `write`, with codecs that know which chunk they work on."""

        async def write_one(place: current_chunk.ChunkPlace, item: Item) -> None:
            current_chunk.current_place.set(place)  # of this task alone
            await self.write_batch([item], value, drop_axes)

        await _compat.concurrent_map(list(zip(self.places(batch), batch, strict=True)), write_one, self.limit)

    _write_knowing = write_one_by_one

    @property
    def limit(self) -> int:
        """The number of chunks under way at once: as many as in zarr's batches."""
        return int(zarr.config.get("async.concurrency")) * self.batch_size


@dataclass(frozen=True)
class FusedPipeline(_TellsTheIndex, _compat.FusedCodecPipeline):
    """zarr's fused pipeline, but it also tells codecs the index of the chunk they work on.

    Reads, and writes for which no codec has to know the index, are zarr's own; only if one fails is it
    retried chunk by chunk, so that the error can name the chunk. Other writes into shards, or to stores
    without synchronous methods, work as in `BatchedPipeline`: there zarr's fused pipeline calls codecs in
    threads that know nothing of the chunk.

    >>> import intarsia, zarr
    >>> codecs = [{"name": "bytes"}, intarsia.PadCodec(location="end", nbytes=1)]
    >>> with zarr.config.set({"codec_pipeline.path": "intarsia.codecs.context.FusedPipeline"}):
    ...     ours = zarr.create(store={}, shape=4, chunks=2, dtype="u1", codecs=codecs)
    ...     plain = zarr.create(store={}, shape=4, chunks=2, dtype="u1")
    >>> type(ours.async_array.codec_pipeline).__name__, type(plain.async_array.codec_pipeline).__name__
    ('FusedPipeline', 'FusedCodecPipeline')
    """

    zarrs_own = _compat.FusedCodecPipeline

    @cached_property
    def _chunkwise(self) -> BatchedPipeline:
        return BatchedPipeline(
            array_array_codecs=self.array_array_codecs,
            array_bytes_codec=self.array_bytes_codec,
            bytes_bytes_codecs=self.bytes_bytes_codecs,
            batch_size=self.batch_size,
            grid=self.grid,
            default=self.default,
        )

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        if self.waits_for_locks:
            return await self._chunkwise.read(batch_info, out, drop_axes)
        return await super().read(batch_info, out, drop_axes)

    async def write(
        self, batch_info: Iterable[Item], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        if self.waits_for_locks:
            return await self._chunkwise.write(batch_info, value, drop_axes)
        return await super().write(batch_info, value, drop_axes)

    async def _write_knowing(self, batch: list[Item], value: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        setter = batch[0][0]
        synchronous = (
            _compat.store_supports_sync_io(setter.store)
            if isinstance(setter, StorePath)
            else isinstance(setter, _compat.SyncByteSetter)
        )
        if (
            self.sync_transform is None
            or not synchronous
            or isinstance(self.array_bytes_codec, ShardingCodec)
        ):
            return await self._chunkwise.write_one_by_one(batch, value, drop_axes)
        left = deque(zip(self.places(batch), batch, strict=True))
        write_sync = super().write_sync

        def write_what_is_left() -> None:
            while left:
                try:
                    place, item = left.popleft()
                except IndexError:  # another thread was faster
                    return
                with current_chunk.at_place(place):
                    write_sync([item], value, drop_axes)

        workers = min(_compat.resolve_max_workers(), len(batch))
        await asyncio.gather(*(in_own_thread(write_what_is_left) for _ in range(workers)))
        return None


register_pipeline(BatchedPipeline)
register_pipeline(FusedPipeline)

COUNTERPARTS = {
    "zarr.core.codec_pipeline.BatchedCodecPipeline": "intarsia.codecs.context.BatchedPipeline",
    "zarr.core.codec_pipeline.FusedCodecPipeline": "intarsia.codecs.context.FusedPipeline",
}


def switch_pipeline() -> None:
    """Replace zarr's pipeline in `zarr.config` by our counterpart; leave others alone.

    >>> import zarr
    >>> with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}):
    ...     switch_pipeline()
    ...     zarr.config.get("codec_pipeline.path")
    'intarsia.codecs.context.FusedPipeline'
    """
    path = zarr.config.get("codec_pipeline.path")
    if path in COUNTERPARTS:
        zarr.config.set({"codec_pipeline.path": COUNTERPARTS[path]})
