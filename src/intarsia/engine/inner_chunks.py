"""Less than a stored object: the inner chunks of a shard, or the piece of a chunk, that hold what is wanted.

A piece of a chunk is one stretch of its bytes: single indices along the first axes, a range along the next
one, and everything along the rest. Of chunks without a compressor, only this stretch is read; of blosc
chunks, only the blocks that hold the piece are decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from zarr.codecs import ShardingCodec

from intarsia.codecs.shard_index import ABSENT, LONGEST, ShardIndex, points_outside
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.store import ByteRanges, Encoded, Fetcher, FileSpan, StoreFetcher
from intarsia.engine.request import moved

if TYPE_CHECKING:
    from intarsia.engine.chunk_plan import ChunkPlan
    from intarsia.engine.prepared_member import EngineMember
    from intarsia.manifest.region_table import Ints

MAX_ENTRIES_KEPT = 1 << 20
"""Index entries that one member keeps, 16 bytes each."""


class Shards:
    """How inner chunks are arranged in the shards of a member."""

    def __init__(self, codec: ShardingCodec, shard_shape: tuple[int, ...]) -> None:
        self.codec = codec
        self.form = ShardIndex.of(codec, shard_shape)
        """How the index of a shard is stored."""
        self.per_shard = self.form.grid
        """The number of inner chunks in a shard along each axis."""
        self.indexes = BoundedCache[int, Any](MAX_ENTRIES_KEPT, len)
        """The offset and length of every inner chunk of a shard, for shards that never change."""


class ChunkLocations(NamedTuple):
    """Where the bytes of inner chunks are."""

    object_index: Ints
    """The shard, as a position in the grid of shards."""

    start: Ints
    """The first byte in the shard."""

    nbytes: Ints
    """The length; -1 for chunks that are not stored."""


type ErrorAt = Callable[[ChunkPlan, int, Exception], Exception]
"""The error for a chunk of a part, by its position, that names the chunk."""


class _PartShards(NamedTuple):
    """The shards that one part of a read touches."""

    work: ChunkPlan
    shards: Shards
    object_index: Ints
    """The shard of each chunk."""
    within: Ints
    """The position of each chunk in its shard, in C order."""
    touched: Ints
    """Every shard, once."""
    first: Ints
    """The first chunk in each of these shards."""
    where: Ints
    """The position of each chunk's shard in `touched`."""

    @classmethod
    def by(cls, work: ChunkPlan, shards: Shards) -> _PartShards:
        object_index, within = shard_positions(work.source, shards, work.chunks)
        touched, first, where = np.unique(object_index, return_index=True, return_inverse=True)
        return cls(work, shards, object_index, within, touched, first, where.reshape(-1))


def shard_positions(source: EngineMember, shards: Shards, chunks: Ints) -> tuple[Ints, Ints]:
    """The shard of each chunk, and the chunk's position in it in C order."""
    if not source.grid:
        return np.zeros_like(chunks), np.zeros_like(chunks)
    index = np.unravel_index(chunks, source.grid)
    outer = tuple(i // n for i, n in zip(index, shards.per_shard, strict=True))
    inner = tuple(i % n for i, n in zip(index, shards.per_shard, strict=True))
    object_index = np.ravel_multi_index(outer, source.object_grid).astype(np.int64)
    return object_index, np.ravel_multi_index(inner, shards.per_shard).astype(np.int64)


def locate_inner_chunks(
    fetcher: StoreFetcher, parts: Sequence[tuple[ChunkPlan, Shards]], error_at: ErrorAt
) -> None:
    """Tell each part where its inner chunks are, and how to fetch them.

    The indexes of all shards are fetched together.
    """
    touched = [_PartShards.by(*part) for part in parts]
    located = fetcher.locate([(part.work.source, part.touched) for part in touched])
    indexes: list[Any] = []
    wanted: dict[int, tuple[Fetcher, list[tuple[int, Ints]]]] = {}
    for i, (part, (via, sizes)) in enumerate(zip(touched, located, strict=True)):
        indexes.append(np.full((part.touched.size, prod(part.shards.per_shard), 2), ABSENT))
        unknown = []
        for k, shard in enumerate(part.touched.tolist()):
            entries = part.shards.indexes.get(shard)
            if entries is not None:
                indexes[i][k] = entries
            elif sizes is None or sizes[k] >= 0:
                unknown.append(k)
        if unknown:
            wanted.setdefault(id(via), (via, []))[1].append((i, np.array(unknown)))
    for via, members in wanted.values():
        received = iter(via.begin([_index_spans(touched[i], positions) for i, positions in members]))
        try:
            for i, positions in members:
                for k in positions.tolist():
                    entries = _index(touched[i], k, received, error_at)
                    if entries is None:
                        continue
                    indexes[i][k] = entries
                    if fetcher.immutable:
                        touched[i].shards.indexes.put(int(touched[i].touched[k]), entries)
        finally:
            received.close()
    for part, table, (via, _) in zip(touched, indexes, located, strict=True):
        work, work.fetcher = part.work, via
        work.locations = _locations(part, table, error_at)
        work.set_sizes(work.locations.nbytes)


def _locations(part: _PartShards, indexes: Any, error_at: ErrorAt) -> ChunkLocations:
    entry = indexes[part.where, part.within]
    stored = entry[:, 0] != ABSENT
    bad = stored & ((entry[:, 0] > LONGEST) | (entry[:, 1] > LONGEST))
    if bad.any():
        raise error_at(part.work, int(np.argmax(bad)), points_outside())
    start, nbytes = (np.where(stored, column, 0).astype(np.int64) for column in entry.T)
    return ChunkLocations(part.object_index, start, np.where(stored, nbytes, -1))


def _index_spans(part: _PartShards, positions: Ints) -> ByteRanges:
    shards, nbytes = part.touched[positions], part.shards.form.nbytes
    start = part.shards.form.start(0)  # negative: counted from the end of the shard
    return ByteRanges(part.work.source, shards, np.full(shards.shape, start), np.full(shards.shape, nbytes))


def _index(part: _PartShards, k: int, received: Generator[Encoded | None], error_at: ErrorAt) -> Any:
    try:
        encoded = next(received)
        if encoded is None:
            return None
        data = encoded.read() if type(encoded) is FileSpan else encoded
        return part.shards.form.decode(data)
    except Exception as error:
        raise error_at(part.work, int(part.first[k]), error) from error


WORTH_A_PIECE = 64 << 10
"""Smaller chunks are read and decompressed as fast as parts of them."""

LARGEST_PART = 2
"""A piece is at most its chunk divided by this; for more, the whole chunk is read."""


class ChunkPiece(NamedTuple):
    """A stretch of a chunk, and what is wanted of it."""

    first: int
    """The first element, counted in C order."""

    shape: tuple[int, ...]
    """The elements of the stretch, as an array."""

    inside: tuple[Any, ...]
    """What is wanted from the stretch."""

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


def chunk_piece(inside: tuple[Any, ...], shape: tuple[int, ...]) -> ChunkPiece | None:
    """The piece that holds a selection in a chunk, with selectors for NumPy; None if it is too large.

    >>> chunk_piece((slice(3, 4), slice(2, 5, 2), slice(0, 7)), (8, 8, 7))
    ChunkPiece(first=182, shape=(1, 3, 7), inside=(slice(0, 1, None), slice(0, 3, 2), slice(0, 7, None)))
    >>> chunk_piece((slice(0, 6), slice(0, 1)), (8, 8)) is None
    True
    """
    first, from_start = 0, list(inside)
    for axis, selector in enumerate(inside):
        start, stop = selector_bounds(selector)
        stride = prod(shape[axis + 1 :])
        first += start * stride
        from_start[axis] = moved(selector, -start)
        if stop - start > 1 or axis == len(inside) - 1:
            piece_shape = (1,) * axis + (stop - start, *shape[axis + 1 :])
            is_small = prod(piece_shape) * LARGEST_PART <= prod(shape)
            return ChunkPiece(first, piece_shape, tuple(from_start)) if is_small else None
    return None


def selector_bounds(selector: Any) -> tuple[int, int]:
    """The first index that a selector takes from a chunk, and the one after the last.

    >>> selector_bounds(np.array([5, 2])), selector_bounds(slice(1, 8, 3))
    ((2, 6), (1, 8))
    """
    if isinstance(selector, slice):
        return selector.start, selector.stop
    return int(selector.min()), int(selector.max()) + 1
