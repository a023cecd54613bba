"""Where the stored chunks of a member are: the references of Icechunk's, by columns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, ChunkTable, chunk_table
from intarsia.array.fetch.grants import Container, Grants
from intarsia.array.fetch.marks import FormatError, Mark, Snapshot, read_marks
from intarsia.array.pool import run
from intarsia.extras import is_there
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from icechunk import IcechunkStore

    from intarsia.array.fetch.store import Spans
    from intarsia.array.source import EngineSource
    from intarsia.array.table import Ints


SNAPSHOTS_KEPT = 4
"""The arrays of a dataset look into the same snapshot, one after the other."""

_snapshots: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()


class Origin(NamedTuple):
    """A file of somebody else's that chunks lie in, as it was when they were referred to."""

    url: str
    mark: Mark
    container: Container
    """How it is read."""


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

    origin: Ints
    """Number of the file in `origins`; -1 for what is not virtual, or what only Icechunk may read."""

    origins: list[Origin] = field(repr=False)
    """Files of others that may be read without Icechunk."""

    @cached_property
    def is_here(self) -> bool:
        """Whether all of it lies in files of the repository, or is inlined."""
        return bool(((self.kind == NATIVE) | (self.kind == INLINE)).all())

    @cached_property
    def is_in_local_files(self) -> bool:
        """Whether all of it lies in files of others on this machine, or is inlined."""
        known = (self.origin >= 0) | (self.kind == INLINE)
        return bool(known.all()) and all(origin.container.is_local for origin in self.origins)

    @cached_property
    def is_partly_remote(self) -> bool:
        """Whether object stores hold some of it that may be asked directly."""
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

    def places(self, rows: Ints, spans: Spans) -> tuple[Ints, Ints]:
        """First byte and length in their files of what is wanted of these rows."""
        offset, nbytes = self.offset[rows], self.nbytes[rows]
        if spans.start is None or spans.nbytes is None:
            return offset, nbytes
        return offset + np.where(spans.start < 0, nbytes + spans.start, spans.start), spans.nbytes


def load(
    store: IcechunkStore, sources: Sequence[EngineSource], grants: Grants | None = None, at_a_time: int = 1
) -> list[References]:
    """The references of several arrays, so many asked for at a time; without grants only Icechunk reads what
    is virtual."""
    check_store(store)
    tables: dict[int, References] = {}
    left = iter(enumerate(sources))  # `next` on it is atomic

    def ask(numbered: tuple[int, EngineSource]) -> None:
        number, source = numbered
        table = chunk_table(store, source.path, len(source.blob_grid))
        tables[number] = _table(table, source, _marks(store, source, table, grants), grants)

    run(lambda: next(left, None), ask, threads=min(at_a_time, len(sources)))
    return [tables[number] for number in range(len(sources))]


def _positions(index: Ints, source: EngineSource) -> tuple[Ints, Ints]:
    """Which of these chunks lie inside the array's grid, and at which positions of it."""
    inside = np.flatnonzero((index < np.array(source.blob_grid, dtype=np.int64)).all(axis=1))
    blob = np.zeros(inside.size, dtype=np.int64)  # where it stays if there are no axes
    if source.blob_grid:
        blob = np.ravel_multi_index(tuple(index[inside].T), source.blob_grid).astype(np.int64)
    return inside, blob


def _table(
    chunks: ChunkTable, source: EngineSource, marks: dict[int, Mark], grants: Grants | None
) -> References:
    """Ordered by position; what lies outside the array's grid is left out."""
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
    origin, origins = _origins(chunks.location, rows, blob, marks, grants)
    return References(
        blob,
        kind,
        np.array(names, dtype="S"),
        chunks.offset[rows],
        chunks.nbytes[rows],
        {int(row_of[row]): content for row, content in chunks.inlined.items() if row_of[row] >= 0},
        origin,
        origins,
    )


def _origins(
    locations: list[str], rows: Ints, blob: Ints, marks: dict[int, Mark], grants: Grants | None
) -> tuple[Ints, list[Origin]]:
    """The file of every chunk of which the mark is known, where it may be read without Icechunk."""
    origin = np.full(rows.shape, -1, dtype=np.int64)
    if not marks or grants is None:
        return origin, []
    containers: dict[str, Container | None] = {}
    numbers: dict[tuple[str, Mark], int] = {}
    origins: list[Origin] = []
    for k, (row, position) in enumerate(zip(rows.tolist(), blob.tolist(), strict=True)):
        if position not in marks:
            continue
        url, mark = locations[row], marks[position]
        if url not in containers:
            containers[url] = grants.container_of(url)
        container = containers[url]
        if container is None:
            continue
        number = numbers.setdefault((url, mark), len(origins))
        if number == len(origins):
            origins.append(Origin(url, mark, container))
        origin[k] = number
    return origin, origins


def _marks(
    store: IcechunkStore, source: EngineSource, table: ChunkTable, grants: Grants | None
) -> dict[int, Mark]:
    """The marks of virtual chunks by position. What cannot be told is left out: Icechunk will check it."""
    virtual = table.kind == VIRTUAL
    if grants is None or grants.repository is None or not grants.containers or not virtual.any():
        return {}
    try:
        snapshot = _snapshot(store, grants)
        index, mark = read_marks(grants.read_file, snapshot, source.path, len(source.blob_grid))
    except _failures():
        return {}
    inside, blob = _positions(index, source)
    known = dict(zip(blob.tolist(), (mark[row] for row in inside.tolist()), strict=True))
    there, positions = _positions(table.index, source)
    return {p: known[p] for p in positions[virtual[there]].tolist() if p in known}


def _snapshot(store: IcechunkStore, grants: Grants) -> Snapshot:
    """The snapshot of a session; threads that ask at once may read it twice."""
    assert grants.repository is not None
    name = store.session.snapshot_id
    key = grants.repository.prefix, name
    found = _snapshots.get(key)
    if found is None:
        found = _snapshots[key] = Snapshot(grants.read_file(f"snapshots/{name}"))
        while len(_snapshots) > SNAPSHOTS_KEPT:
            _snapshots.popitem(last=False)
    return found


def _failures() -> tuple[type[Exception], ...]:
    """What reading a file of the repository may raise."""
    if not is_there("obstore"):
        return FormatError, OSError
    from obstore.exceptions import BaseError

    return FormatError, OSError, BaseError
