"""What the store has of an array: which chunks, and their bytes, of which only the requested ones are read.

A grid of millions of places may hold a single chunk. Code that goes over the chunks of an array starts here.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import Any, Self

import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import ByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.codecs import Crc32cCodec
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, StorePath

from intarsia._compat import store_supports_sync_io, sync
from intarsia.codecs.context import Grid, Index
from intarsia.codecs.pad import OffsetCodec, PadCodec


def iter_chunk_slices(array: Any) -> Iterator[tuple[slice, ...]]:
    """The slices of each chunk of `array`, in order; of each shard, if it has shards.

    The array may be plain or nullable. To store chunks again by another decision, `rewrite` does less work
    than `z[s] = z[s]`.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=5, chunks=2, dtype="u1")
    >>> list(iter_chunk_slices(z))
    [(slice(0, 2, None),), (slice(2, 4, None),), (slice(4, 5, None),)]
    """
    axes = []
    for sizes in getattr(array, "zarr_array", array).write_chunk_sizes:
        stops = list(accumulate(sizes))
        axes.append([slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)])
    return product(*axes)


def stored_indices(array: zarr.Array[Any]) -> Sequence[Index]:
    """The places in the grid of `array` where the store has an object (a chunk, or a shard), in order.

    For a store that cannot list its keys, and for keys that cannot be decoded, all places are given: then an
    object may be missing. Anything outside the grid is left out.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=(10**9, 4), chunks=(1, 2), dtype="u1")
    >>> z[7] = 1
    >>> stored_indices(z)
    [(7, 0), (7, 1)]
    """
    metadata: Any = array.metadata
    grid, store = Grid.of(metadata), array.store
    shape = grid.chunks.grid_shape
    first = (0,) * len(shape)
    indices: list[Index]
    if hasattr(store, "array_chunk_iterator"):  # Icechunk's own table: no request per key
        from intarsia._icechunk import chunk_table

        icechunk_store: Any = store
        indices = [tuple(index) for index in chunk_table(icechunk_store, array.path).index.tolist()]
    elif store.supports_listing and grid.index_of(metadata.encode_chunk_key(first)) == first:
        indices = sync(_listed(store, array.path, grid))
    else:
        return list(product(*map(range, shape)))
    return sorted(index for index in indices if all(i < n for i, n in zip(index, shape, strict=True)))


async def _listed(store: Any, path: str, grid: Grid) -> list[Index]:
    prefix = f"{path}/" if path else ""
    encode = grid.key_encoding.encode_chunk_key
    indices = []
    async for key in store.list_prefix(prefix):
        index = grid.index_of(key)
        if index is not None and key == prefix + encode(index):  # and not a chunk of an array further below
            indices.append(index)
    return indices


CRC32C_BYTES = 4


class Bytes(ABC):
    """Something that can be read in parts."""

    @abstractmethod
    def read(self, parts: Sequence[ByteRequest | None]) -> list[Buffer | None]:
        """Some parts, or None for each if the thing does not exist."""


@dataclass(frozen=True, slots=True)
class StoredObject(Bytes):
    """One object of a store, used from a thread that is not zarr's event loop.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=4, dtype="u1", codecs=[{"name": "bytes"}])
    >>> z[:] = [1, 2, 3, 4]
    >>> StoredObject(z.store_path / "c/0").read([RangeByteRequest(1, 3)])[0].to_bytes()
    b'\\x02\\x03'
    """

    path: StorePath
    """Where it is."""

    def read(self, parts: Sequence[ByteRequest | None]) -> list[Buffer | None]:
        prototype = default_buffer_prototype()
        if store_supports_sync_io(self.path.store):
            return [self.path.get_sync(prototype=prototype, byte_range=part) for part in parts]

        async def read_all() -> list[Buffer | None]:
            try:
                return await asyncio.gather(*(self.path.get(prototype, part) for part in parts))
            except Exception:
                # Some stores refuse to read past the end of an object: then cut the whole instead.
                whole = await self.path.get(prototype)
                return [None] * len(parts) if whole is None else MemoryObject(whole).read(parts)

        return sync(read_all())

    def write(self, value: Buffer) -> None:
        """Replace it."""
        if store_supports_sync_io(self.path.store):
            self.path.set_sync(value)
        else:
            sync(self.path.set(value))

    def size(self) -> int:
        """Its length in bytes, without reading it if the store can tell."""
        store = self.path.store
        if isinstance(store, LocalStore):
            return (store.root / self.path.path).stat().st_size
        if isinstance(store, MemoryStore):
            return len(self.read([None])[0] or b"")
        return sync(store.getsize(self.path.path))


@dataclass(frozen=True, slots=True)
class MemoryObject(Bytes):
    """Bytes that have already been read."""

    content: Buffer
    """All the bytes."""

    def read(self, parts: Sequence[ByteRequest | None]) -> list[Buffer | None]:
        return [self._part(part) for part in parts]

    def _part(self, part: ByteRequest | None) -> Buffer:
        if isinstance(part, RangeByteRequest):
            return self.content[part.start : part.end]
        if isinstance(part, SuffixByteRequest):
            return self.content[max(0, len(self.content) - part.suffix) :]
        return self.content


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes `start` to `stop` of an object; if `stop` is None, to `trail` bytes before its end."""

    source: Bytes
    """The object."""

    start: int = 0
    """Where it begins in the object."""

    stop: int | None = None
    """Where it ends in the object, if that is known."""

    trail: int = 0
    """How many bytes at the end of the object do not belong to it."""

    def first(self, size: int) -> Buffer | None:
        """Its first bytes; fewer if there are no more, None if there is no such object."""
        return firsts([self], size)[0]

    def last(self, size: int) -> Buffer | None:
        """Its last bytes; fewer if there are no more, None if there is no such object."""
        if self.stop is not None:
            return self.source.read([RangeByteRequest(max(self.start, self.stop - size), self.stop)])[0]
        tail = self.source.read([SuffixByteRequest(size + self.trail)])[0]
        return None if tail is None else tail[: max(0, len(tail) - self.trail)]

    def all(self) -> Buffer | None:
        """All of it."""
        if self.stop is not None:
            return self.source.read([RangeByteRequest(self.start, self.stop)])[0]
        whole = self.source.read([None])[0]
        return None if whole is None else whole[self.start : max(self.start, len(whole) - self.trail)]

    @property
    def nbytes(self) -> int | None:
        """Its length, if that is known without a request."""
        if self.stop is not None:
            return self.stop - self.start
        if isinstance(self.source, MemoryObject):
            return len(self.source.content) - self.trail - self.start
        return None

    def part(self, start: int, stop: int) -> Self:
        """Bytes `start` to `stop` of it."""
        return replace(self, start=self.start + start, stop=self.start + stop, trail=0)

    def without(self, before: int, after: int) -> Self:
        """What remains without some bytes at the start and at the end."""
        if self.stop is None:
            return replace(self, start=self.start + before, trail=self.trail + after)
        return replace(self, start=self.start + before, stop=self.stop - after)

    def _first(self, size: int) -> RangeByteRequest:
        stop = self.start + size if self.stop is None else min(self.start + size, max(self.start, self.stop))
        return RangeByteRequest(self.start, stop)


def firsts(extents: Sequence[Extent], size: int) -> list[Buffer | None]:
    """The first bytes of extents of one object, requested together."""
    if not extents:
        return []
    return extents[0].source.read([extent._first(size) for extent in extents])


def margins(codecs: Sequence[BytesBytesCodec]) -> tuple[int, int] | None:
    """How many bytes `codecs` add before and after their input, if that is all they do to it.

    >>> from intarsia.codecs import OffsetCodec
    >>> from zarr.codecs import Crc32cCodec, ZstdCodec
    >>> margins([OffsetCodec(offset=16), Crc32cCodec()]), margins([ZstdCodec()])
    ((16, 4), None)
    """
    before = after = 0
    for codec in codecs:
        if isinstance(codec, Crc32cCodec):
            after += CRC32C_BYTES
        elif isinstance(codec, OffsetCodec):
            before += codec.offset
        elif isinstance(codec, PadCodec) and codec.location == "start":
            before += codec.nbytes
        elif isinstance(codec, PadCodec):
            after += codec.nbytes
        else:
            return None
    return before, after
