"""Where Icechunk keeps the chunks of an array, by columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, chunk_table
from intarsia.array.pool import run
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk import IcechunkStore

    from intarsia._icechunk import ChunkTable
    from intarsia.array.source import Source
    from intarsia.array.table import Ints

__all__ = ["INLINE", "NATIVE", "VIRTUAL", "References", "load"]


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
        found[number] = _table(chunk_table(store, source.path, len(source.blob_grid)), source)

    run(lambda: next(left, None), ask, threads=min(at_a_time, len(sources)))
    return [found[number] for number in range(len(sources))]


def _table(chunks: ChunkTable, source: Source) -> References:
    """Ordered by position; what lies outside the array's grid is left out."""
    inside = np.flatnonzero((chunks.index < np.array(source.blob_grid, dtype=np.int64)).all(axis=1))
    blob = np.zeros(inside.size, dtype=np.int64)  # where it stays if there are no axes
    if source.blob_grid:
        blob = np.ravel_multi_index(tuple(chunks.index[inside].T), source.blob_grid).astype(np.int64)
    order = np.argsort(blob, kind="stable")
    rows = inside[order]
    kind = chunks.kind[rows]
    names = [
        chunks.location[row] if k == NATIVE else ""
        for row, k in zip(rows.tolist(), kind.tolist(), strict=True)
    ]
    row_of = np.full(chunks.kind.size, -1, dtype=np.int64)
    row_of[rows] = np.arange(rows.size)
    return References(
        blob[order],
        kind,
        np.array(names, dtype="S"),
        chunks.offset[rows],
        chunks.nbytes[rows],
        {int(row_of[row]): content for row, content in chunks.inlined.items() if row_of[row] >= 0},
    )
