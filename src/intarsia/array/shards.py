"""Where inner chunks lie in their shards, so that a read takes those it needs and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import shard_index, shard_index_nbytes
from intarsia.array.fetch import Fetcher, FileSpan, Spans
from intarsia.errors import ChunkDecodeError

if TYPE_CHECKING:
    from intarsia.array.source import Source
    from intarsia.array.table import Ints

__all__ = ["Located", "ShardIndexError", "locate"]

MOST_ENTRIES_KEPT = 1 << 20
"""Index entries that one member keeps; 16 bytes each."""

NOT_STORED = (1 << 64) - 1
LONGEST = 1 << 62


class Located(NamedTuple):
    """Where the bytes of inner chunks are."""

    blob: Ints
    """The shard, as a position in the grid of shards."""

    start: Ints
    """First byte in the shard."""

    nbytes: Ints
    """Length; -1 for chunks that are not stored."""


class ShardIndexError(Exception):
    """The index of a shard could not be read; `position` is the first chunk that needs it."""

    def __init__(self, position: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.position, self.cause = position, cause


def locate(fetcher: Fetcher, source: Source, chunks: Ints) -> Located:
    """The place of inner chunks, given as positions in the member's chunk grid."""
    shards = source.shards
    assert shards is not None
    if source.grid:
        index = np.unravel_index(chunks, source.grid)
        outer = tuple(i // n for i, n in zip(index, shards.per_shard, strict=True))
        inner = tuple(i % n for i, n in zip(index, shards.per_shard, strict=True))
        blob = np.ravel_multi_index(outer, source.blob_grid).astype(np.int64)
        within = np.ravel_multi_index(inner, shards.per_shard)
    else:
        blob = within = np.zeros_like(chunks)
    touched, first, where = np.unique(blob, return_index=True, return_inverse=True)
    table = np.empty((touched.size, int(np.prod(shards.per_shard)), 2), dtype=np.uint64)
    indexes = _indexes(fetcher, source, touched, first)
    for i, entries in enumerate(indexes):
        table[i] = NOT_STORED if entries is None else entries
    entry = table[where.reshape(-1), within]
    stored = entry[:, 0] != NOT_STORED
    bad = stored & ((entry[:, 0] > LONGEST) | (entry[:, 1] > LONGEST))
    if bad.any():
        raise ShardIndexError(
            int(np.argmax(bad)), ChunkDecodeError("the index of its shard points outside it")
        )
    start, nbytes = (np.where(stored, column, 0).astype(np.int64) for column in entry.T)
    return Located(blob, start, np.where(stored, nbytes, -1))


def _indexes(fetcher: Fetcher, source: Source, touched: Ints, first: Ints) -> list[Any]:
    """The index of each shard as an array of offsets and lengths; None for shards that are not stored."""
    shards = source.shards
    assert shards is not None
    found: list[Any] = [shards.indexes.get(blob) for blob in touched.tolist()]
    (sizes,) = fetcher.sizes([(source, touched)])
    unknown = [i for i, entries in enumerate(found) if entries is None and (sizes is None or sizes[i] >= 0)]
    if not unknown:
        return found
    length = shard_index_nbytes(shards.codec, shards.per_shard)
    start = 0 if shards.codec.index_location == "start" else -length
    wanted = touched[unknown]
    spans = Spans(source, wanted, np.full(wanted.shape, start), np.full(wanted.shape, length))
    received = iter(fetcher.for_member(source).begin([spans]))
    buffer = default_buffer_prototype().buffer
    for i in unknown:
        try:
            encoded = next(received)
            if encoded is None:
                continue
            data = encoded.read() if type(encoded) is FileSpan else encoded
            entries = shard_index(shards.codec, buffer.from_bytes(data), shards.per_shard).reshape(-1, 2)
        except Exception as error:
            raise ShardIndexError(int(first[i]), error) from error
        found[i] = entries
        if fetcher.lasting:
            if len(shards.indexes) * len(entries) > MOST_ENTRIES_KEPT:
                shards.indexes.clear()
            shards.indexes[int(touched[i])] = entries
    return found
