"""Where the stored chunks of a member are: Icechunk's references, by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, ChunkTable, chunk_table
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.byte_ranges import REMOTE, joined
from intarsia.engine.fetch.marks import FormatError, Mark, Snapshot, read_marks
from intarsia.engine.fetch.session_access import Container, Grants
from intarsia.engine.pool import run
from intarsia.extras import is_there
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from icechunk import IcechunkStore

    from intarsia.engine.fetch.store import Spans
    from intarsia.engine.member_source import EngineSource
    from intarsia.manifest.region_table import Ints


_snapshots = BoundedCache[tuple[str, str], Snapshot](16 << 20, lambda snapshot: snapshot.nbytes)
"""The arrays of a dataset look into the same snapshot, one after another."""


class Origin(NamedTuple):
    """A file outside the repository that holds chunks, as it was when they were referred to."""

    url: str
    mark: Mark
    container: Container
    """How to read it."""


@dataclass(frozen=True)
class References:
    """One row for every stored chunk of an array, ordered by position."""

    blob: Ints
    """The chunk's position in the grid of stored chunks, in C order."""

    kind: np.ndarray[Any, np.dtype[np.uint8]]
    """Whether the chunk is in a file of the repository, elsewhere, or inlined."""

    file: np.ndarray[Any, np.dtype[np.bytes_]]
    """The name of the chunk file, if it is in one."""

    offset: Ints
    """The first byte in the file."""

    nbytes: Ints
    """The stored size."""

    inlined: dict[int, bytes]
    """The bytes of inlined chunks, by row."""

    url: Ints
    """Number of the file in `urls`; -1 for chunks that are not virtual, or that only Icechunk may read."""

    urls: list[tuple[str, Container]] = field(repr=False)
    """Files elsewhere that may be read without Icechunk, and how."""

    origin: Ints
    """Number in `origins`, once marks are known; -1 before, and for chunks that only Icechunk may read."""

    origins: list[Origin] = field(repr=False)
    """The same files, as they were when the chunks were referred to."""

    is_marked: bool = False
    """Whether marks were requested."""

    @cached_property
    def is_here(self) -> bool:
        """Whether all chunks are in files of the repository, or inlined."""
        return bool(((self.kind == NATIVE) | (self.kind == INLINE)).all())

    @cached_property
    def is_in_local_files(self) -> bool:
        """Whether all chunks are in files elsewhere on this machine, or inlined."""
        known = (self.origin >= 0) | (self.kind == INLINE)
        return bool(known.all()) and all(origin.container.is_local for origin in self.origins)

    @cached_property
    def is_partly_remote(self) -> bool:
        """Whether some chunks are in object stores that may be read directly."""
        return any(not origin.container.is_local for origin in self.origins)

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

    def saves(self, blob: Ints) -> int:
        """How many requests are saved by fetching neighbours among these chunks together."""
        rows = self.rows(blob)
        own = rows[(rows >= 0) & (self.url[rows] >= 0)] if self.urls else rows[:0]
        if own.size < 2:
            return 0
        return int(own.size - joined(self.url[own], self.offset[own], self.nbytes[own], REMOTE).owner.size)

    def with_marks(self, marks: dict[int, Mark]) -> References:
        """The same, with the marks of chunks by position; those without one are left to Icechunk."""
        origin = np.full(self.blob.shape, -1, dtype=np.int64)
        numbers: dict[tuple[int, Mark], int] = {}
        origins: list[Origin] = []
        own = np.flatnonzero(self.url >= 0)
        each = zip(own.tolist(), self.blob[own].tolist(), self.url[own].tolist(), strict=True)
        for row, position, url in each:
            if position not in marks:
                continue
            mark = marks[position]
            number = numbers.setdefault((url, mark), len(origins))
            if number == len(origins):
                name, container = self.urls[url]
                origins.append(Origin(name, mark, container))
            origin[row] = number
        return replace(self, origin=origin, origins=origins, is_marked=True)

    def places(self, rows: Ints, spans: Spans) -> tuple[Ints, Ints]:
        """The first byte and the length, within their files, of what is wanted of these rows."""
        offset, nbytes = self.offset[rows], self.nbytes[rows]
        if spans.start is None or spans.nbytes is None:
            return offset, nbytes
        return offset + np.where(spans.start < 0, nbytes + spans.start, spans.start), spans.nbytes


def load(
    store: IcechunkStore, sources: Sequence[EngineSource], grants: Grants, at_a_time: int = 1
) -> list[References]:
    """The references of several arrays, with a limited number requested at a time."""
    check_store(store)

    def table(source: EngineSource) -> References:
        return _table(chunk_table(store, source.path, len(source.blob_grid)), source, grants)

    return _for_all(table, sources, at_a_time)


def load_marks(
    store: IcechunkStore,
    tables: Sequence[tuple[EngineSource, References]],
    grants: Grants,
    at_a_time: int = 1,
) -> list[References]:
    """The same references with the marks of virtual chunks; this reads a file of the repository for each."""

    def marked(item: tuple[EngineSource, References]) -> References:
        source, table = item
        return table.with_marks(_marks(store, source, grants))

    return _for_all(marked, tables, at_a_time)


def _for_all[T, R](function: Callable[[T], R], items: Sequence[T], at_a_time: int) -> list[R]:
    """What a function returns for each item, in a few threads."""
    results: dict[int, R] = {}
    left = iter(enumerate(items))  # `next` on it is atomic

    def one(numbered: tuple[int, T]) -> None:
        results[numbered[0]] = function(numbered[1])

    run(lambda: next(left, None), one, threads=min(at_a_time, len(items)))
    return [results[number] for number in range(len(items))]


def _positions(index: Ints, source: EngineSource) -> tuple[Ints, Ints]:
    """Which of these chunks lie inside the array's grid, and their positions in it."""
    inside = np.flatnonzero((index < np.array(source.blob_grid, dtype=np.int64)).all(axis=1))
    blob = np.zeros(inside.size, dtype=np.int64)  # it stays zero if there are no axes
    if source.blob_grid:
        blob = np.ravel_multi_index(tuple(index[inside].T), source.blob_grid).astype(np.int64)
    return inside, blob


def _table(chunks: ChunkTable, source: EngineSource, grants: Grants) -> References:
    """The references, ordered by position; those outside the array's grid are left out."""
    inside, blob = _positions(chunks.index, source)
    order = np.argsort(blob, kind="stable")
    rows, blob = inside[order], blob[order]
    kind = chunks.kind[rows]
    names = [
        chunks.location[row] if k == NATIVE else ""
        for row, k in zip(rows.tolist(), kind.tolist(), strict=True)
    ]
    row_of = np.full(chunks.kind.size, -1, dtype=np.int64)
    row_of[rows] = np.arange(rows.size)
    url, urls = _urls(chunks.location, rows, kind, grants)
    return References(
        blob,
        kind,
        np.array(names, dtype="S"),
        chunks.offset[rows],
        chunks.nbytes[rows],
        {int(row_of[row]): content for row, content in chunks.inlined.items() if row_of[row] >= 0},
        url,
        urls,
        np.full(rows.shape, -1, dtype=np.int64),
        [],
    )


def _urls(
    locations: list[str], rows: Ints, kind: np.ndarray[Any, np.dtype[np.uint8]], grants: Grants
) -> tuple[Ints, list[tuple[str, Container]]]:
    """The file of every virtual chunk, if it may be read without Icechunk."""
    url = np.full(rows.shape, -1, dtype=np.int64)
    urls: list[tuple[str, Container]] = []
    if not grants.containers or grants.repository is None:
        return url, urls
    numbers: dict[str, int] = {}
    for k in np.flatnonzero(kind == VIRTUAL).tolist():
        location = locations[rows[k]]
        if location not in numbers:
            container = grants.container_of(location)
            numbers[location] = -1 if container is None else len(urls)
            if container is not None:
                urls.append((location, container))
        url[k] = numbers[location]
    return url, urls


def _marks(store: IcechunkStore, source: EngineSource, grants: Grants) -> dict[int, Mark]:
    """The marks of chunks by position. Unknown marks are left out: Icechunk will check those chunks."""
    try:
        snapshot = _snapshot(store, grants)
        chunk, mark = read_marks(grants.read_file, snapshot, source.path, len(source.blob_grid))
    except _failures():
        return {}
    inside, blob = _positions(chunk, source)
    return dict(zip(blob.tolist(), (mark[row] for row in inside.tolist()), strict=True))


def _snapshot(store: IcechunkStore, grants: Grants) -> Snapshot:
    """The snapshot of a session; threads that ask at the same time may read it twice."""
    assert grants.repository is not None
    name = store.session.snapshot_id
    key = grants.repository.prefix, name
    found = _snapshots.get(key)
    if found is None:
        found = Snapshot(grants.read_file(f"snapshots/{name}"))
        _snapshots.put(key, found)
    return found


def _failures() -> tuple[type[Exception], ...]:
    """What reading a file of the repository may raise."""
    if not is_there("obstore"):
        return FormatError, OSError
    from obstore.exceptions import BaseError

    return FormatError, OSError, BaseError
