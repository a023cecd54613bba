"""Which chunk a codec works on, and the two pipelines that say so.

zarr calls a codec without telling it which chunk it works on. The pipelines here extend zarr's own and put
the chunk's position into a context variable, because concurrent chunks must never see each other's; anybody
else can do the same with `working_on`. The position of a chunk follows from its key in the store and its
index in a shard, and is computed only if a codec asks for it. The names of the two pipelines are in
`zarr.config`, and in users' configurations.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec, CodecPipeline, GetResult
from zarr.abc.store import ByteGetter, Store
from zarr.codecs import ShardingCodec
from zarr.core.buffer import NDBuffer, default_buffer_prototype
from zarr.core.chunk_key_encodings import ChunkKeyEncoding
from zarr.core.indexing import SelectorTuple
from zarr.core.metadata import ArrayMetadata
from zarr.errors import BaseZarrError
from zarr.registry import get_pipeline_class, register_pipeline
from zarr.storage import StorePath

from intarsia import _compat, errors
from intarsia._compat import ArraySpec, ArrayV3Metadata, ChunkGrid
from intarsia.codecs.base import all_codecs, needs_chunk_index, switch_pipeline, without_copies
from intarsia.errors import ChunkIndexUnknownError

type Index = tuple[int, ...]

SMALLEST_PROBE = 1009
"""The sizes of a probe's axes start here: no codec names such a size, which could pass for moved axes."""


@dataclass(frozen=True, slots=True)
class ChunkPosition:
    """Where a chunk is in its array.

    >>> ChunkPosition(index=(3, 1)).index
    (3, 1)
    """

    index: Index | None = None
    """Its index in the chunk grid, in the order of the array's axes; None if it cannot be known."""

    origin: Index | None = None
    """Its first element in the array; None if it cannot be known."""

    axes: Index | None = None
    """The axis of the array that each axis inside this chunk is, after its array -> array codecs."""


type Locate = Callable[[], ChunkPosition]
"""Says where a chunk is. It is called only if somebody asks."""

UNKNOWN: Locate = ChunkPosition


@dataclass(frozen=True)
class Grid:
    """The chunk grid of one array, and how the store names its chunks.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=(6, 6), chunks=(2, 3), dtype="u1")
    >>> Grid.of(z.metadata).index_of("group/array/c/2/1")
    (2, 1)
    """

    key_encoding: ChunkKeyEncoding
    """How an index becomes a key."""

    chunks: ChunkGrid
    """Where each chunk starts."""

    @classmethod
    def of(cls, metadata: ArrayV3Metadata) -> Self:
        """The grid of the array with this metadata."""
        return cls(metadata.chunk_key_encoding, ChunkGrid.from_metadata(metadata))

    def index_of(self, path: str) -> Index | None:
        """The index of the chunk stored under `path`, which ends in the chunk's key."""
        ndim = self.chunks.ndim
        segments = self.key_encoding.encode_chunk_key((0,) * ndim).count("/") + 1
        key = "/".join(path.split("/")[-segments:])
        if ndim == 0:
            return () if key == self.key_encoding.encode_chunk_key(()) else None
        try:
            index = self.key_encoding.decode_chunk_key(key)
        except (ValueError, NotImplementedError):  # an encoding that cannot be decoded
            return None
        # Decoding a key may succeed by accident; only encoding the index to the same key is proof.
        return index if len(index) == ndim and self.key_encoding.encode_chunk_key(index) == key else None

    def origin_of(self, index: Index) -> Index:
        """The first element of the chunk at `index`."""
        return tuple(axis.chunk_offset(i) for axis, i in zip(self.chunks.dimensions, index, strict=True))

    def position_of(self, key: str | Index, spec: ArraySpec, codecs: Iterable[Codec]) -> ChunkPosition:
        """The position of the chunk or shard at an index or under a path, which these codecs encode."""
        index = self.index_of(key) if isinstance(key, str) else key
        origin = None if index is None else self.origin_of(index)
        return ChunkPosition(index, origin, axes_after(codecs, spec, tuple(range(len(spec.shape)))))


def first_spec(metadata: ArrayMetadata, shape: Index, config: _compat.ArrayConfig) -> ArraySpec:
    """What zarr tells the first codec about a chunk of this shape."""
    return ArraySpec(shape, metadata.dtype, metadata.fill_value, config, default_buffer_prototype())


def inner_position(
    shard: Locate, coordinates: Index, spec: ArraySpec, codecs: Iterable[Codec]
) -> ChunkPosition:
    """The position of the chunk at these coordinates in a shard, which these codecs encode."""
    outer = shard()
    start, axes = outer.origin, outer.axes
    if start is None or axes is None or len(axes) != len(coordinates):
        return ChunkPosition()
    shape, steps = to_array_axes(spec.shape, axes), to_array_axes(coordinates, axes)
    origin = tuple(s + step * size for s, step, size in zip(start, steps, shape, strict=True))
    index = tuple(s // size for s, size in zip(origin, shape, strict=True))
    return ChunkPosition(index, origin, axes_after(codecs, spec, axes))


def to_array_axes(values: Sequence[int], axes: Index) -> Index:
    """`values`, one for each axis inside a chunk, in the order of the array's axes.

    >>> to_array_axes((10, 20, 30), axes=(2, 0, 1))
    (20, 30, 10)
    """
    ordered = [0] * len(axes)
    for value, axis in zip(values, axes, strict=True):
        ordered[axis] = value
    return tuple(ordered)


def axes_after(codecs: Iterable[Codec], spec: ArraySpec, axes: Index | None) -> Index | None:
    """Where `axes` go after the array -> array codecs; None if one of them does more than reorder them.

    The codecs are tried on a chunk whose axes all differ in size.

    >>> import zarr
    >>> from zarr.codecs import TransposeCodec
    >>> from intarsia._compat import ArrayConfig, ArraySpec
    >>> from zarr.core.buffer import default_buffer_prototype
    >>> config, prototype = ArrayConfig.from_dict({}), default_buffer_prototype()
    >>> spec = ArraySpec((4, 4, 4), zarr.dtype.UInt8(), 0, config, prototype)
    >>> axes_after((TransposeCodec(order=(2, 0, 1)),), spec, (0, 1, 2))
    (2, 0, 1)
    """
    arrays = [codec for codec in codecs if isinstance(codec, ArrayArrayCodec)]
    if axes is None or not arrays:
        return axes
    sizes = tuple(range(SMALLEST_PROBE, SMALLEST_PROBE + len(axes)))
    probe = replace(spec, shape=sizes)
    try:
        for codec in arrays:
            probe = codec.resolve_metadata(probe)
    except Exception:  # whatever a foreign codec raises for the probe, we learned nothing
        return None
    if sorted(probe.shape) != list(sizes):
        return None
    return tuple(axes[size - SMALLEST_PROBE] for size in probe.shape)


current_position: ContextVar[Locate] = ContextVar("intarsia_place", default=UNKNOWN)
"""Says where the chunk being worked on is."""


def working_on(chunk_index: tuple[int, ...] | None) -> AbstractContextManager[None]:
    """Say which chunk is being worked on, during a `with` block.

    >>> with working_on((3, 1)):
    ...     current_chunk_index()
    (3, 1)
    """
    return at_position(lambda: ChunkPosition(chunk_index))


@contextmanager
def at_position(locate: Locate) -> Iterator[None]:
    """Like `working_on`, for callers that know where a chunk is, but need not know its index.

    >>> from intarsia.codecs.context import UNKNOWN
    >>> with at_position(UNKNOWN):
    ...     named_chunk()
    ''
    """
    token = current_position.set(locate)
    try:
        yield
    finally:
        current_position.reset(token)


def current_chunk_index() -> tuple[int, ...]:
    """The index in the chunk grid of the chunk being worked on.

    Inside shards it counts the inner chunks, over the whole array.

    >>> with working_on((0,)):
    ...     current_chunk_index()
    (0,)
    """
    index = current_position.get()().index
    if index is None:
        raise ChunkIndexUnknownError(
            "a function or a plan needs chunk_index, but the codec pipeline that this array was opened with, "
            f"or the one in use ({zarr.config.get('codec_pipeline.path')!r}), does not provide it.\n"
            "  Use one that does, and open the array again: zarr.config.set({'codec_pipeline.path': "
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
    index = current_position.get()().index
    return "" if index is None else f" of chunk {index}"


def names_chunks(*codecs: Codec) -> bool:
    """Whether errors of one of these codecs, or of one inside it, name the chunk if they can.

    >>> from intarsia.codecs import ShuffleCodec
    >>> from zarr.codecs import ZstdCodec
    >>> names_chunks(ShuffleCodec(element_size=2)), names_chunks(ZstdCodec())
    (True, False)
    """
    return any(getattr(each, "names_chunks", False) for each in all_codecs(codecs))


def takes_keyword(function: Callable[..., object], keyword: str) -> bool:
    """Whether `function` takes an argument called `keyword`.

    >>> takes_keyword(lambda encoded, *, chunk_index: b"", "chunk_index")
    True
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some built-ins have no signature
        return False
    return keyword in parameters


if TYPE_CHECKING:
    from intarsia.codecs.decisions import Decision

    type Item = tuple[Any, ArraySpec, SelectorTuple, SelectorTuple, bool]


@dataclass(frozen=True)
class ChunkIndexMixin:
    """What our two pipelines share: for each item of a batch, the position of its chunk."""

    grid: Grid | None = field(default=None, kw_only=True, compare=False, repr=False)
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
        chain = tuple(codecs)
        if not names_chunks(*chain):
            return cls.zarrs_own.from_codecs(chain, **options)
        if any(getattr(codec, "waits_for_locks", False) for codec in chain) and cls is not BatchedPipeline:
            # Even reading may wait for encoding elsewhere, so it must not run in the threads that encode.
            return BatchedPipeline.from_codecs(chain, **options)
        return super().from_codecs(without_copies(chain), **options)  # type: ignore[misc]  # of zarr's pipeline

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        if not (isinstance(array_metadata, _compat.ArrayV3Metadata) and names_chunks(*array_metadata.codecs)):
            raise NotImplementedError  # zarr then calls `from_codecs`
        # zarr imports this module for everybody: the rest waits for an array that has our codecs.
        from intarsia.codecs.runtime_options import remembered_decision

        # As in zarr: codecs are shape-agnostic, so a grid without one shape gets a stand-in.
        shape = getattr(array_metadata.chunk_grid, "chunk_shape", (1,) * len(array_metadata.shape))
        spec = first_spec(array_metadata, shape, _compat.ArrayConfig.from_dict({}))
        pipeline: Self = cls.from_codecs(array_metadata.codecs).evolve_from_array_spec(spec)
        object.__setattr__(pipeline, "grid", Grid.of(array_metadata))
        object.__setattr__(pipeline, "default", remembered_decision(array_metadata.attributes))
        return pipeline

    @property
    def _codecs(self) -> list[Codec]:
        return [*self.array_array_codecs, self.array_bytes_codec, *self.bytes_bytes_codecs]

    def verifies(self, batch: list[Item]) -> bool:
        """Whether a function is called for each chunk that is read: it may ask for the index, or wait."""
        asking: list[Any] = [each for each in all_codecs(self._codecs) if hasattr(each, "asks_to_verify")]
        return any(each.asks_to_verify(spec) for _, spec, *_ in batch[:1] for each in asking)

    def to_write(self, batch_info: Iterable[Item]) -> list[Item]:
        """The items, with codecs that are told what the array remembers."""
        if self.default is None:
            return list(batch_info)
        from intarsia.codecs.runtime_options import with_default

        return [
            (setter, replace(spec, config=with_default(spec.config, self.default)), *selections)
            for setter, spec, *selections in batch_info
        ]

    def locators(self, batch: list[Item]) -> list[Locate]:
        """Says where every item is; must be called before leaving the caller's context."""
        if isinstance(self.array_bytes_codec, ShardingCodec) and not issubclass(
            get_pipeline_class(), ChunkIndexMixin
        ):
            # The chunks inside would run in a pipeline that knows no more than this one.
            return [UNKNOWN] * len(batch)
        shard = current_position.get()
        return [self._locator_of(getter, spec, shard) for getter, spec, *_ in batch]

    def _locator_of(self, getter: ByteGetter, spec: ArraySpec, shard: Locate) -> Locate:
        coordinates = getattr(getter, "chunk_coords", None)  # of an inner chunk of a shard
        if coordinates is not None:
            return partial(inner_position, shard, coordinates, spec, self.array_array_codecs)
        if self.grid is not None and isinstance(getter, StorePath):
            return partial(self.grid.position_of, getter.path, spec, self.array_array_codecs)
        return UNKNOWN


@dataclass(frozen=True)
class BatchedPipeline(ChunkIndexMixin, _compat.BatchedCodecPipeline):
    """zarr's batched pipeline, but it also tells codecs the index of the chunk they work on.

    >>> import intarsia, zarr
    >>> number = intarsia.codecs.PadCodec(location="end", nbytes=1,
    ...                            padding_func=lambda encoded, chunk_index: bytes(chunk_index))
    >>> store = {}
    >>> z = zarr.create(store=store, shape=4, chunks=2, dtype="u1", codecs=[{"name": "bytes"}, number])
    >>> z[:] = 7
    >>> store["c/1"].to_bytes()
    b'\\x07\\x07\\x01'
    """

    zarrs_own = _compat.BatchedCodecPipeline

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        async def read_one(item: Item) -> GetResult:
            try:
                (result,) = await self.read_batch([item], out, drop_axes)
            except BaseException as error:
                named = isinstance(error, errors.IntarsiaError | BaseZarrError)
                if named or not (isinstance(error, ValueError) or errors.has_panicked(error)):
                    raise
                # From a codec that is not ours, such as `crc32c` after `conditional`, or one that panicked.
                raise errors.ChunkDecodeError(
                    f"the data{named_chunk()} cannot be decoded: {error}"
                ) from error
            return result

        switch_pipeline()  # zarr looks it up again for the chunks inside a shard
        return tuple(await self._one_by_one(list(batch_info), read_one))

    async def write(
        self, batch_info: Iterable[Item], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        switch_pipeline()
        batch = self.to_write(batch_info)
        await self._one_by_one(batch, lambda item: self.write_batch([item], value, drop_axes))

    async def _one_by_one[T](self, batch: list[Item], work: Callable[[Item], Awaitable[T]]) -> list[T]:
        """The results of the work on each item, as many at once as in zarr's batches."""

        async def work_at(locate: Locate, item: Item) -> T:
            current_position.set(locate)  # of this task alone
            return await work(item)

        items = list(zip(self.locators(batch), batch, strict=True))
        limit = int(zarr.config.get("async.concurrency")) * self.batch_size
        return await _compat.concurrent_map(items, work_at, limit)


@dataclass(frozen=True)
class FusedPipeline(ChunkIndexMixin, _compat.FusedCodecPipeline):
    """zarr's fused pipeline, but it also tells codecs the index of the chunk they work on.

    Reads, and writes for which no codec has to know the index, are zarr's own; only if one fails is it
    retried chunk by chunk, so that the error can name the chunk. Other writes work as in `BatchedPipeline`:
    zarr's fused pipeline calls codecs in threads that know nothing of the chunk.

    >>> import intarsia, zarr
    >>> codecs = [{"name": "bytes"}, intarsia.codecs.PadCodec(location="end", nbytes=1)]
    >>> with zarr.config.set({"codec_pipeline.path": "intarsia.codecs.context.FusedPipeline"}):
    ...     ours = zarr.create(store={}, shape=4, chunks=2, dtype="u1", codecs=codecs)
    ...     plain = zarr.create(store={}, shape=4, chunks=2, dtype="u1")
    >>> type(ours.async_array.codec_pipeline).__name__, type(plain.async_array.codec_pipeline).__name__
    ('FusedPipeline', 'FusedCodecPipeline')
    """

    zarrs_own = _compat.FusedCodecPipeline

    async def read(
        self, batch_info: Iterable[Item], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        switch_pipeline()
        batch = list(batch_info)
        again = partial(self._chunkwise.read, batch, out, drop_axes)
        if self.verifies(batch):  # no other codec needs the index for decoding
            return await again()
        return await self._or_chunkwise(super().read(batch, out, drop_axes), again)

    async def write(
        self, batch_info: Iterable[Item], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        switch_pipeline()
        batch = self.to_write(batch_info)
        again = partial(self._chunkwise.write, batch, value, drop_axes)
        if any(needs_chunk_index(codec, spec) for _, spec, *_ in batch[:1] for codec in self._codecs):
            return await again()
        return await self._or_chunkwise(super().write(batch, value, drop_axes), again)

    @staticmethod
    async def _or_chunkwise[T](whole: Awaitable[T], again: Callable[[], Awaitable[T]]) -> T:
        """The result for all chunks together; chunk by chunk, if a codec raises an error."""
        try:
            with at_position(UNKNOWN):
                return await whole
        except BaseException as error:
            if not isinstance(error, ValueError | RuntimeError) and not errors.has_panicked(error):
                raise
        return await again()

    @cached_property
    def _chunkwise(self) -> BatchedPipeline:
        return BatchedPipeline(**{each.name: getattr(self, each.name) for each in fields(BatchedPipeline)})


register_pipeline(BatchedPipeline)
register_pipeline(FusedPipeline)


def switch_pipeline_for(array: zarr.Array[Any]) -> None:
    """Do so if one of our codecs is in `array`, before another handle of it is made.

    >>> import zarr
    >>> with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}):
    ...     switch_pipeline_for(zarr.create_array({}, shape=2, dtype="u1"))
    ...     zarr.config.get("codec_pipeline.path")
    'zarr.core.codec_pipeline.FusedCodecPipeline'
    """
    if names_chunks(*getattr(array.metadata, "codecs", ())):
        switch_pipeline()
