"""Which chunk am I? The chunk being encoded or decoded, and where it is in its array.

It is a context variable, because concurrent chunks must never see each other's. Where a chunk is follows from
its key in the store and its position in a shard. Everything is computed on demand; for most chunks there is
none.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Self

import zarr
from zarr.abc.codec import ArrayArrayCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.chunk_key_encodings import ChunkKeyEncoding

from intarsia._compat import ArraySpec, ArrayV3Metadata, ChunkGrid
from intarsia.errors import ChunkIndexUnknownError

type Index = tuple[int, ...]

SMALLEST_PROBE = 1009
"""The sizes of a probe's axes start here: no codec names such a size, which could pass for moved axes."""


class ChunkPlace(ABC):
    """A chunk being worked on.

    >>> GivenPlace((3, 1)).index()
    (3, 1)
    """

    @abstractmethod
    def index(self) -> Index | None:
        """Its index in the chunk grid, in the order of the array's axes; None if it cannot be known."""

    def origin(self) -> Index | None:
        """Its first element in the array; None if it cannot be known."""
        return None

    def axes(self) -> Index | None:
        """The axis of the array that each axis inside this chunk is, after its array -> array codecs."""
        return None


@dataclass(frozen=True, slots=True)
class GivenPlace(ChunkPlace):
    """A chunk whose index was given.

    >>> GivenPlace(None).index() is None
    True
    """

    given: Index | None
    """The given index."""

    def index(self) -> Index | None:
        return self.given


UNKNOWN = GivenPlace(None)


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

    def origin_of(self, index: Index) -> Index | None:
        """The first element of the chunk at `index`."""
        try:
            return tuple(axis.chunk_offset(i) for axis, i in zip(self.chunks.dimensions, index, strict=True))
        except IndexError:  # beyond the edges that a rectilinear grid knows
            return None


@dataclass(frozen=True, slots=True)
class StoredPlace(ChunkPlace):
    """A chunk or shard with its own key in the store."""

    grid: Grid
    path: str
    """Where the store keeps it."""
    spec: ArraySpec
    codecs: tuple[ArrayArrayCodec, ...]
    """The array -> array codecs between the chunk and what may be inside it."""

    def index(self) -> Index | None:
        return self.grid.index_of(self.path)

    def origin(self) -> Index | None:
        index = self.index()
        return None if index is None else self.grid.origin_of(index)

    def axes(self) -> Index | None:
        return axes_after(self.codecs, self.spec, tuple(range(len(self.spec.shape))))


@dataclass(frozen=True, slots=True)
class InnerPlace(ChunkPlace):
    """A chunk inside a shard."""

    shard: ChunkPlace
    """The shard, which may be in another shard."""
    coordinates: Index
    """Its position among the chunks of the shard."""
    spec: ArraySpec
    codecs: tuple[ArrayArrayCodec, ...]
    """The array -> array codecs between the chunk and what may be inside it."""

    def index(self) -> Index | None:
        origin, axes = self.origin(), self.shard.axes()
        if origin is None or axes is None:
            return None
        shape = to_array_axes(self.spec.shape, axes)
        return tuple(start // size for start, size in zip(origin, shape, strict=True))

    def origin(self) -> Index | None:
        start, axes = self.shard.origin(), self.shard.axes()
        if start is None or axes is None or len(axes) != len(self.coordinates):
            return None
        shape = to_array_axes(self.spec.shape, axes)
        coordinates = to_array_axes(self.coordinates, axes)
        return tuple(s + c * size for s, c, size in zip(start, coordinates, shape, strict=True))

    def axes(self) -> Index | None:
        return axes_after(self.codecs, self.spec, self.shard.axes())


def to_array_axes(values: Sequence[int], axes: Index) -> Index:
    """`values`, one for each axis inside a chunk, in the order of the array's axes.

    >>> to_array_axes((10, 20, 30), axes=(2, 0, 1))
    (20, 30, 10)
    """
    ordered = [0] * len(axes)
    for value, axis in zip(values, axes, strict=True):
        ordered[axis] = value
    return tuple(ordered)


def axes_after(codecs: tuple[ArrayArrayCodec, ...], spec: ArraySpec, axes: Index | None) -> Index | None:
    """Where `axes` go after array -> array codecs; None if a codec does more than reorder them.

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
    if axes is None or not codecs:
        return axes
    sizes = tuple(range(SMALLEST_PROBE, SMALLEST_PROBE + len(axes)))
    probe = replace(spec, shape=sizes)
    try:
        for codec in codecs:
            probe = codec.resolve_metadata(probe)
    except Exception:  # whatever a foreign codec raises for the probe, we learned nothing
        return None
    if sorted(probe.shape) != list(sizes):
        return None
    return tuple(axes[size - SMALLEST_PROBE] for size in probe.shape)


current_place: ContextVar[ChunkPlace] = ContextVar("intarsia_place", default=UNKNOWN)
"""Where the chunk being worked on is."""


@contextmanager
def working_on(chunk_index: tuple[int, ...] | None) -> Iterator[None]:
    """Say which chunk is being worked on, during a `with` block.

    >>> with working_on((3, 1)):
    ...     current_chunk_index()
    (3, 1)
    """
    with at_place(GivenPlace(chunk_index)):
        yield


@contextmanager
def at_place(place: ChunkPlace) -> Iterator[None]:
    """Like `working_on`, for callers that know where a chunk is, but need not know its index.

    >>> from intarsia.codecs.current_chunk import UNKNOWN
    >>> with at_place(UNKNOWN):
    ...     named_chunk()
    ''
    """
    token = current_place.set(place)
    try:
        yield
    finally:
        current_place.reset(token)


def current_chunk_index() -> tuple[int, ...]:
    """The index in the chunk grid of the chunk being worked on.

    Inside shards it counts the inner chunks, over the whole array.

    >>> with working_on((0,)):
    ...     current_chunk_index()
    (0,)
    """
    index = current_place.get().index()
    if index is None:
        raise ChunkIndexUnknownError(
            "a function asks for chunk_index, or a plan needs it, but the codec pipeline in use "
            f"({zarr.config.get('codec_pipeline.path')!r}) does not provide it, or not for this array.\n"
            "  Use one that does, and open the array afterwards: zarr.config.set({'codec_pipeline.path': "
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
    index = current_place.get().index()
    return "" if index is None else f" of chunk {index}"


def needs_chunk_index(codec: Codec, chunk_spec: ArraySpec) -> bool:
    """Whether `codec`, or one inside it, must be told which chunk it encodes, or may wait for zarr.

    A codec says so with a method of this name. Our pipelines then encode chunk by chunk, in threads that zarr
    does not need.

    >>> from intarsia.codecs import ShuffleCodec
    >>> needs_chunk_index(ShuffleCodec(element_size=2), None)
    False
    """
    if isinstance(codec, ShardingCodec):
        return any(needs_chunk_index(inner, chunk_spec) for inner in codec.codecs)
    asked: Callable[[ArraySpec], bool] | None = getattr(codec, "needs_chunk_index", None)
    return asked is not None and asked(chunk_spec)


def names_chunks(codec: Codec) -> bool:
    """Whether errors of `codec`, or of one inside it, name the chunk if they can.

    >>> from intarsia.codecs import ShuffleCodec
    >>> from zarr.codecs import ZstdCodec
    >>> names_chunks(ShuffleCodec(element_size=2)), names_chunks(ZstdCodec())
    (True, False)
    """
    inside: Iterable[Codec] = getattr(codec, "codecs", ())
    return bool(getattr(codec, "names_chunks", False)) or any(map(names_chunks, inside))


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


NOTE = "while encoding with"
"""How the note that says which nested codec failed begins."""


def failed_to_encode(error: BaseException) -> bool:
    """Whether a nested codec raised this while it encoded a chunk.

    >>> failed_to_encode(RuntimeError())
    False
    """
    return any(note.startswith(NOTE) for note in getattr(error, "__notes__", ()))
