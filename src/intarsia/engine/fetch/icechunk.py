"""Fetching from Icechunk: where the chunks of a member are, and many chunks per call wherever they are.

`References` is what Icechunk knows about the chunks of a member, by column. `LocalIcechunk` reads the chunk
files of a repository on this machine, and inlined chunks, if the session is read-only. `IcechunkBatch` leaves
everything else to Icechunk, also a file that cannot be opened: Icechunk says what is wrong. Virtual chunks go
through `virtual.py` where that saves requests.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import get_many
from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, chunk_table, session_bytes
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.byte_ranges import REMOTE, coalesce_ranges, coalesce_spans
from intarsia.engine.fetch.icechunk_checksums import FormatError, Snapshot, read_checksums
from intarsia.engine.fetch.local_files import Disk, FilesInTurn
from intarsia.engine.fetch.store import (
    CAN_READ_FILES,
    Cost,
    KeyRange,
    Spans,
    Started,
    cost_of,
    requests_of,
    start,
)
from intarsia.engine.fetch.symlinks import Folders, may_follow, open_file, refuse_links_out
from intarsia.engine.fetch.virtual import (
    Container,
    Grants,
    LocalOrigins,
    Origin,
    RemoteOrigins,
    grants_of,
    local_grants,
)
from intarsia.engine.pool import run
from intarsia.extras import is_there
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from icechunk import IcechunkStore

    from intarsia._icechunk import ChunkTable
    from intarsia.engine.fetch.icechunk_checksums import Checksum
    from intarsia.engine.fetch.store import Encoded, Fetcher, Pending
    from intarsia.engine.member_source import EngineSource
    from intarsia.manifest.region_table import Ints


KEYS_PER_CALL = 50
KEYS_AT_A_TIME = 10
"""Of the keys in one call, Icechunk works on this many at a time (`get_partial_values_concurrency`)."""

REQUESTS_PER_CHUNK = 4
"""zarr's `async.concurrency` counts the chunks that are fetched and decoded at a time. Requests mostly wait,
so this many are made for each of those chunks."""

MOST_CHUNKS_LISTED = 50_000
"""The references of a member with more chunks than this are listed only if a good part of them is needed."""

WORTH_LISTING = 8

MEMBERS_LISTED_AT_A_TIME = 32
"""Listing the chunks of a member means reading its part of the snapshot from a remote store."""

MOST_ENTRIES = 1_000_000
"""Directories with more entries than this are not searched for links; all references are, instead."""

WORTH_CHECKSUMS = 8
"""How many requests must be saved to make up for reading the checksums of a member from a remote store."""


_snapshots = BoundedCache[tuple[str, str], Snapshot](16 << 20, lambda snapshot: snapshot.nbytes)
"""The arrays of a dataset look into the same snapshot, one after another."""


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
    """Number in `origins` once checksums are known; -1 before, and for chunks that only Icechunk may read."""

    origins: list[Origin] = field(repr=False)
    """The same files, as they were when the chunks were referred to."""

    has_checksums: bool = False
    """Whether checksums were requested."""

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
        return int(
            own.size - coalesce_ranges(self.url[own], self.offset[own], self.nbytes[own], REMOTE).owner.size
        )

    def with_checksums(self, checksums: dict[int, Checksum]) -> References:
        """The same, with the checksums of chunks by position; those without one are left to Icechunk."""
        origin = np.full(self.blob.shape, -1, dtype=np.int64)
        numbers: dict[tuple[int, Checksum], int] = {}
        origins: list[Origin] = []
        own = np.flatnonzero(self.url >= 0)
        each = zip(own.tolist(), self.blob[own].tolist(), self.url[own].tolist(), strict=True)
        for row, position, url in each:
            if position not in checksums:
                continue
            checksum = checksums[position]
            number = numbers.setdefault((url, checksum), len(origins))
            if number == len(origins):
                name, container = self.urls[url]
                origins.append(Origin(name, checksum, container))
            origin[row] = number
        return replace(self, origin=origin, origins=origins, has_checksums=True)

    def places(self, rows: Ints, spans: Spans) -> tuple[Ints, Ints]:
        """The first byte and the length, within their files, of what the spans need of these rows."""
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


def load_checksums(
    store: IcechunkStore,
    tables: Sequence[tuple[EngineSource, References]],
    grants: Grants,
    at_a_time: int = 1,
) -> list[References]:
    """The same references with checksums of virtual chunks; this reads a file of the repository for each."""

    def with_checksums(item: tuple[EngineSource, References]) -> References:
        source, table = item
        return table.with_checksums(_checksums_of_chunks(store, source, grants))

    return _for_all(with_checksums, tables, at_a_time)


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


def _checksums_of_chunks(store: IcechunkStore, source: EngineSource, grants: Grants) -> dict[int, Checksum]:
    """The checksums of chunks by position. Unknown ones are left out: Icechunk will check those chunks."""
    try:
        snapshot = _snapshot(store, grants)
        chunk, checksum = read_checksums(grants.read_file, snapshot, source.path, len(source.blob_grid))
    except _failures():
        return {}
    inside, blob = _positions(chunk, source)
    return dict(zip(blob.tolist(), (checksum[row] for row in inside.tolist()), strict=True))


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


type ReferenceKey = tuple[str, tuple[int, ...]]
"""What tells the chunks of members apart; two handles may see one array with different shapes."""


class IcechunkBatch:
    """A session of Icechunk; what a read-only one says about its chunks is requested once and kept."""

    in_threads, looks_into_shards, supports_ranges = False, False, True

    def __init__(
        self, store: IcechunkStore, *, read_only: bool, listed_at_a_time: int = MEMBERS_LISTED_AT_A_TIME
    ) -> None:
        self.store = store
        self.immutable = read_only
        self._listed_at_a_time = listed_at_a_time
        requests = REQUESTS_PER_CHUNK * zarr.config.get("async.concurrency")
        self._calls = max(1, requests // KEYS_AT_A_TIME)
        self._gate = asyncio.Semaphore(self._calls)
        self._references: dict[ReferenceKey, References] = {}
        self._knowing = threading.Lock()
        self._remote_origins = RemoteOrigins(self)
        self._local_origins = LocalOrigins(self)
        self._is_checked: set[str] = set()
        self.name = "Icechunk, in batches"

    @cached_property
    def grants(self) -> Grants:
        """Where the repository and its sources lie, and which of them may be read directly."""
        return grants_of(session_bytes(self.store))

    def references(self, source: EngineSource) -> References | None:
        """Where the chunks of a member are, if that is known already; a read-only session keeps it."""
        return self._references.get((source.path, source.blob_grid))

    def listed(self, source: EngineSource) -> References:
        """The same for a member whose sizes are known."""
        return self._references[source.path, source.blob_grid]

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        if not self.immutable:
            return [None] * len(sources)
        tables = [self.references(source) for source, _ in sources]
        if not all(table is not None and (table.has_checksums or not table.urls) for table in tables):
            self._list_chunks(sources)
            self._add_checksums(sources)
            tables = [self.references(source) for source, _ in sources]
        each = zip(tables, sources, strict=True)
        return [None if table is None else table.sizes(blob) for table, (_, blob) in each]

    def _list_chunks(self, sources: Sequence[tuple[EngineSource, Ints]]) -> None:
        """Load the references of members, if enough of their chunks are needed."""
        unknown = {
            (source.path, source.blob_grid): source
            for source, blob in sources
            if self.references(source) is None
            and (source.blobs <= MOST_CHUNKS_LISTED or blob.size * WORTH_LISTING >= source.blobs)
        }
        if unknown:
            tables = load(self.store, list(unknown.values()), self.grants, self._listed_at_a_time)
            self._know(unknown, tables)

    def _add_checksums(self, sources: Sequence[tuple[EngineSource, Ints]]) -> None:
        """Load the checksums of virtual chunks for those members where that will save requests.

        Reading checksums takes a few requests itself if the repository is remote.
        """
        repository = self.grants.repository
        least = 1 if repository is not None and repository.is_local else WORTH_CHECKSUMS
        incomplete = {
            (source.path, source.blob_grid): (source, table)
            for source, blob in sources
            if (table := self.references(source)) is not None and table.urls and not table.has_checksums
            if least == 1 or table.saves(blob) >= least
        }
        if incomplete:
            tables = load_checksums(
                self.store, list(incomplete.values()), self.grants, self._listed_at_a_time
            )
            self._know(incomplete, tables)

    def _know(self, keys: Iterable[ReferenceKey], tables: Iterable[References]) -> None:
        """Keep tables, but replace none that says as much: another thread may have begun to use it, and a
        later one may lack its checksums."""
        with self._knowing:
            for key, table in zip(keys, tables, strict=True):
                known = self._references.get(key)
                if known is None or (table.has_checksums and not known.has_checksums):
                    self._references[key] = table

    def for_member(self, source: EngineSource) -> Fetcher:
        table = self.references(source)
        if table is not None and table.is_here:
            return self
        if table is not None and table.is_in_local_files and CAN_READ_FILES:
            return self._local_origins
        self.check_links(source.path, len(source.blob_grid), many=source.blobs > MOST_CHUNKS_LISTED)
        if table is None:
            return self
        return self._remote_origins if table.is_partly_remote else self

    def check_links(self, path: str, ndim: int = 0, *, many: bool = False) -> None:
        """Raise `ReadError` if an array refers to a file behind a link that leads out of its prefix.

        Called before Icechunk opens files, as it follows all links. One look at an array is enough for a
        session. If it has many chunks, a look at the directories is faster than one at all references.
        """
        if path in self._is_checked or may_follow():
            return
        local = [each for each in self._sources.containers.values() if each.is_local]
        if local and not (many and all(each.folders.is_free(MOST_ENTRIES) for each in local)):
            for url in dict.fromkeys(chunk_table(self.store, path, ndim).location):
                container = self._sources.local_container_of(url)
                if container is not None:
                    container.folders.check_file(container.key(url))
        self._is_checked.add(path)

    @cached_property
    def _sources(self) -> Grants:
        """The containers whose files may be read; those of a session that is written to, authorised or not:
        only its form for travelling would tell, which holds all that it has written."""
        if self.immutable:
            return self.grants
        return local_grants(self.store.session.config.virtual_chunk_containers or ())

    def request_numbers(self, spans: Sequence[Spans]) -> None:
        return None

    def cost(self, spans: Sequence[Spans]) -> Cost:
        """Inlined chunks come with the references, and cost nothing."""
        fetched = []
        for item in spans:
            table = self.references(item.source)
            if table is not None:
                rows = table.rows(item.blob)
                stored = np.flatnonzero((rows >= 0) & (table.kind[rows] != INLINE))
                item = item.select(stored)
                if item.nbytes is None:
                    item = item._replace(nbytes=table.nbytes[rows[stored]])
            fetched.append(item)
        return cost_of(coalesce_spans(fetched)[0])

    def begin(self, spans: Sequence[Spans]) -> Pending:
        check_store(self.store)
        ranges, parts = coalesce_spans(spans)
        return Started(self._get(list(requests_of(ranges)), parts))

    async def _get(self, requests: list[KeyRange], parts: Callable[[list[Any]], list[Any]]) -> list[Any]:
        return parts(await self.get_all(requests))

    async def get_all(self, requests: list[KeyRange]) -> list[Any]:
        """Values in the requested order, exceptions among them; None for what is not stored."""
        each = min(KEYS_PER_CALL, max(KEYS_AT_A_TIME, -(-len(requests) // self._calls)))
        calls = [requests[i : i + each] for i in range(0, len(requests), each)]
        return [item for items in await asyncio.gather(*map(self._call, calls)) for item in items]

    async def _call(self, requests: list[KeyRange]) -> list[Any]:
        """One batch. Whatever comes back as None, or fails, is requested again on its own: only then does
        Icechunk tell a chunk that is not stored from one that cannot be read."""
        async with self._gate:
            try:
                items: list[Any] = await get_many(self.store, [(key, _range(r)) for key, r in requests])
            except Exception:
                items = [None] * len(requests)
        doubtful = [i for i, item in enumerate(items) if item is None]
        if doubtful:
            alone = [self.get_one(*requests[i]) for i in doubtful]
            for i, item in zip(doubtful, await asyncio.gather(*alone, return_exceptions=True), strict=True):
                items[i] = item
        return items

    async def get_one(self, key: str, byte_range: ByteRequest | None) -> Any:
        """One value, None if it is not stored; raises if it cannot be read."""
        content = await self.store.get(key, default_buffer_prototype(), byte_range)
        return None if content is None else content.as_numpy_array()

    def get_now(self, spans: Spans, i: int) -> bytes:
        """Ask Icechunk for what could not be read from a file: it returns the bytes, or says why not."""
        check_store(self.store)
        ((key, byte_range),) = requests_of([spans.select(slice(i, i + 1))])
        content = start(self.get_one(key, byte_range)).result()
        if content is None:
            raise FileNotFoundError(f"{key} is referred to, but is missing")
        return bytes(content)


def _range(byte_range: Any) -> tuple[int | None, int | None]:
    if byte_range is None:
        return None, None
    suffix = getattr(byte_range, "suffix", None)
    return (None, suffix) if suffix is not None else (byte_range.start, byte_range.end)


class _RepositoryFiles:
    """Opens and reads chunk files during iteration."""

    arrival = None

    def __init__(self, folder: bytes, disk: Disk, batch: IcechunkBatch, spans: Sequence[Spans]) -> None:
        self._folder, self._disk, self._batch, self._spans = folder, disk, batch, spans
        if disk.is_cold:
            for item in spans:
                self._files(item).begin()

    def __iter__(self) -> Generator[Encoded | None]:
        for item in self._spans:
            yield from self._files(item)

    def _files(self, spans: Spans) -> FilesInTurn:
        table, folder = self._batch.listed(spans.source), self._folder
        rows = table.rows(spans.blob)
        starts, lengths = (column.tolist() for column in table.places(rows, spans))
        names, native = table.file[rows].tolist(), (table.kind[rows] == NATIVE).tolist()

        def opened(i: int) -> int:
            if not native[i]:
                raise FileNotFoundError(errno.ENOENT, "it is inlined")
            return open_file(folder + names[i], folder)

        def otherwise(i: int, _: OSError) -> Encoded | None:
            if native[i]:
                return self._batch.get_now(spans, i)
            return memoryview(table.inlined[int(rows[i])])[starts[i] : starts[i] + lengths[i]]

        return FilesInTurn(opened, starts, lengths, spans.source.decoder, self._disk, otherwise)

    def cancel(self) -> None:
        """Nothing is running."""


class LocalIcechunk:
    """A read-only session of a repository on the local file system."""

    in_threads, immutable, looks_into_shards, supports_ranges = True, True, False, True

    def __init__(self, batch: IcechunkBatch, repository: Path) -> None:
        self._batch = batch
        Folders(os.fspath(repository)).check("chunks")
        self._folder = os.fsencode(repository / "chunks") + b"/"
        self._disk = Disk()
        self._is_checked = False
        self.name = "Icechunk, chunk files"

    @classmethod
    def of(cls, store: IcechunkStore) -> LocalIcechunk | None:
        """The fetcher for a store whose repository lies on this machine; None if it does not."""
        if not CAN_READ_FILES:
            return None
        batch = IcechunkBatch(store, read_only=True, listed_at_a_time=1)  # threads would cost more
        repository = batch.grants.folder
        if repository is None or not repository.is_dir():
            return None
        return cls(batch, repository)

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        return self._batch.sizes(sources)

    def for_member(self, source: EngineSource) -> Fetcher:
        table = self._batch.references(source)
        if table is not None and table.is_here:
            return self
        self._check_own_links()
        return self._batch.for_member(source)

    def _check_own_links(self) -> None:
        """Called before Icechunk opens files, as it follows all links. One look is enough for a session."""
        if not self._is_checked:
            if os.path.isdir(self._folder):  # small chunks are inlined, so there may be no chunk files
                refuse_links_out(os.fsdecode(self._folder))
            self._is_checked = True

    def check_links(self, path: str) -> None:
        """Raise `ReadError` if a link leads out of the repository, or out of the prefix of a source."""
        self._check_own_links()
        self._batch.check_links(path)

    def request_numbers(self, spans: Sequence[Spans]) -> None:
        return None

    def cost(self, spans: Sequence[Spans]) -> Cost:
        return self._batch.cost(spans)

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _RepositoryFiles(self._folder, self._disk, self._batch, spans)
