"""Where Icechunk keeps the chunks of an array, by columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia._icechunk import chunk_batches
from intarsia.array.pool import run
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk import IcechunkStore

    from intarsia.array.source import Source
    from intarsia.array.table import Ints

__all__ = ["INLINE", "NATIVE", "VIRTUAL", "References", "load"]

NATIVE, VIRTUAL, INLINE = 1, 2, 3  # the values of icechunk.ChunkType that `array_chunk_iterator` speaks of


@dataclass(frozen=True)
class References:
    """One row for every stored chunk of an array, ordered by position."""

    blob: Ints
    """Position in the grid of stored chunks, in C order."""

    kind: np.ndarray[Any, np.dtype[np.uint8]]
    """In a file of the repository, somewhere else, or inlined."""

    file: np.ndarray[Any, np.dtype[np.bytes_]]
    """Name of the chunk file, where it is in one."""

    offset: Ints
    """First byte in the file."""

    nbytes: Ints
    """Stored size."""

    inlined: dict[int, bytes]
    """The bytes of inlined chunks, by row."""

    @cached_property
    def is_here(self) -> bool:
        """Whether all of it lies in files of the repository, or is inlined."""
        return bool(((self.kind == NATIVE) | (self.kind == INLINE)).all())

    def rows(self, blob: Ints) -> Ints:
        """The row of each position, -1 for chunks that are not stored."""
        if not self.blob.size:
            return np.full(blob.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.blob, blob), self.blob.size - 1)
        return np.where(self.blob[at] == blob, at, -1)

    def sizes(self, blob: Ints) -> Ints:
        """The stored size of each position, -1 for chunks that are not stored."""
        rows = self.rows(blob)
        if not self.blob.size:
            return rows
        return np.where(rows >= 0, self.nbytes[rows], -1)


def load(store: IcechunkStore, sources: Sequence[Source], at_a_time: int = 1) -> list[References]:
    """The references of several arrays, so many asked for at a time."""
    check_store(store)
    found: dict[int, References] = {}
    left = iter(enumerate(sources))  # `next` on it is atomic

    def ask(numbered: tuple[int, Source]) -> None:
        number, source = numbered
        found[number] = _table(chunk_batches(store, source.path), source)

    run(lambda: next(left, None), ask, threads=min(at_a_time, len(sources)))
    return [found[number] for number in range(len(sources))]


def _table(batches: list[Any], source: Source) -> References:
    """Batches of the iterator as one table; what lies outside the array's grid is left out."""
    columns: list[tuple[Any, ...]] = []
    inlined_at: dict[int, bytes] = {}
    for coords, kind, paths, offsets, lengths, inlined in batches:
        grid = np.array(source.blob_grid, dtype=np.int64)
        place = coords.astype(np.int64).reshape(len(kind), grid.size)
        inside = (place < grid).all(axis=1)
        blob = (
            np.ravel_multi_index(tuple(place[inside].T), source.blob_grid)
            if grid.size
            else np.zeros(inside.sum())
        )
        names = np.array(
            [p if k == NATIVE else "" for p, k in zip(paths, kind.tolist(), strict=True)], dtype="S"
        )
        columns.append((blob.astype(np.int64), kind[inside], names[inside], offsets[inside], lengths[inside]))
        positions = np.cumsum(inside) - 1 + sum(len(c[0]) for c in columns[:-1])
        inlined_at |= {int(positions[row]): data for row, data in inlined.items() if inside[row]}
    if not columns:
        nothing = np.empty(0, dtype=np.int64)
        return References(nothing, nothing.astype(np.uint8), nothing.astype("S1"), nothing, nothing, {})
    blob, kind, file, offset, nbytes = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(blob, kind="stable")
    row_of = np.empty_like(order)
    row_of[order] = np.arange(order.size)
    return References(
        blob[order],
        kind[order],
        file[order],
        offset[order].astype(np.int64),
        nbytes[order].astype(np.int64),
        {int(row_of[at]): data for at, data in inlined_at.items()},
    )
