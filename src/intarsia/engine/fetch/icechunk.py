"""Fetching from Icechunk: where the chunks of a member are, and many chunks per call wherever they are.

`References` is what Icechunk knows about the chunks of a member, by column; `IcechunkSession` keeps them.
`SessionFiles` reads chunks that are in memory or in files on this machine. `SessionRequests` leaves the rest
to Icechunk, in batches. Objects elsewhere it requests itself if the repository may read them: Icechunk makes
one request for each virtual chunk; here neighbours come together, even those of several members. What cannot
be read in such a way is left to Icechunk, which reads it or says why it cannot.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import get_many
from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, IcechunkStore, chunk_table, repository_folder
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.byte_ranges import (
    REMOTE,
    RangeRequests,
    coalesce_ranges,
    coalesce_spans,
)
from intarsia.engine.fetch.icechunk_checksums import FormatError, Snapshot, read_checksums
from intarsia.engine.fetch.local_files import files_in_turn
from intarsia.engine.fetch.store import (
    CAN_READ_FILES,
    ByteRanges,
    Cost,
    DeferredBytes,
    KeyRange,
    LoopFetch,
    cost_of,
    requests_of,
    run_on_event_loop,
)
from intarsia.engine.fetch.symlinks import may_follow, open_file, refuse_link_out, refuse_links_out
from intarsia.engine.fetch.virtual import (
    ChangedError,
    Container,
    OpenSource,
    ReferencedFile,
    ReferencedFiles,
    RefusedError,
    SourceAccess,
    request_bytes,
)
from intarsia.engine.thread_pool import run_in_threads
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia._icechunk import ChunkTable
    from intarsia.engine.fetch.icechunk_checksums import Checksum, Checksums
    from intarsia.engine.fetch.store import Encoded, Fetcher, PendingBytes
    from intarsia.engine.prepared_member import EngineMember
    from intarsia.manifest.region_table import Ints


REQUESTS_PER_CHUNK = 4
"""zarr's `async.concurrency` counts the chunks that are fetched and decoded at a time. Requests mostly wait,
so this many are made for each of those chunks."""

KEYS_PER_CALL = 50
KEYS_AT_A_TIME = 10
"""Of the keys in one call, Icechunk works on this many at a time (`get_partial_values_concurrency`)."""

MAX_CHUNKS_LISTED = 50_000
"""The references of a member with more chunks than this are listed only if a good part of them is needed."""

WORTH_LISTING = 8

MEMBERS_LISTED_AT_A_TIME = 32
"""Listing the chunks of a member means reading its part of the snapshot from a remote store; threads would
cost more than they save if the store is on this machine."""

WORTH_CHECKSUMS = 8
"""How many requests must be saved to make up for reading the checksums of a member from a remote store."""


_snapshots = BoundedCache[tuple[str, str], Snapshot](16 << 20, attrgetter("nbytes"))
"""The arrays of a dataset look into the same snapshot, one after another."""


@dataclass(frozen=True)
class References:
    """One row for every stored chunk of an array, ordered by position."""

    object_index: Ints
    """The chunk's position in the grid of stored chunks, in C order."""

    kind: np.ndarray[Any, np.dtype[np.uint8]]
    """Whether the chunk is in a file of the repository, elsewhere, or inlined."""

    name: np.ndarray[Any, np.dtype[np.bytes_]]
    """The name of the chunk file, if it is in one of the repository."""

    offset: Ints
    """The first byte in the file."""

    nbytes: Ints
    """The stored size; then -1, for chunks that are not stored."""

    inlined: dict[int, bytes]
    """The bytes of inlined chunks, by position."""

    file: Ints
    """Number of the file in the session's `sources`; -1 for chunks that are not virtual. Then -1, for chunks
    that are not stored."""

    checksums_are_known: bool | None
    """Whether the files are known with their checksums; without them, only Icechunk reads these files. None
    if it was not tried yet to find them out."""

    @cached_property
    def kinds(self) -> frozenset[int]:
        """Where chunks are: in files of the repository, elsewhere, or inlined."""
        return frozenset(np.unique(self.kind).tolist())

    def files(self, object_index: Ints) -> Ints:
        """The number of the file of each of these chunks; -1 for those that are not virtual or not stored."""
        return self.file[self.rows(object_index)]

    def rows(self, object_index: Ints) -> Ints:
        """The row of each position in the grid, -1 for chunks that are not stored."""
        if not self.object_index.size:
            return np.full(object_index.shape, -1, dtype=np.int64)
        row = self.object_index.searchsorted(object_index, side="right") - 1
        return np.where(self.object_index[row] == object_index, row, -1)

    def sizes(self, object_index: Ints) -> Ints:
        """The stored size of each position, -1 for chunks that are not stored."""
        return self.nbytes[self.rows(object_index)]

    def saves(self, object_index: Ints) -> int:
        """How many requests are saved by fetching neighbours among these chunks together."""
        rows = self.rows(object_index)
        own = rows[self.file[rows] >= 0]
        columns = self.file[own], self.offset[own], self.nbytes[own]
        return int(own.size - coalesce_ranges(*columns, REMOTE).owner.size)

    def places(self, rows: Ints, spans: ByteRanges) -> tuple[Ints, Ints]:
        """The first byte and the length, within their files, of what the spans need of these rows."""
        offset, nbytes = self.offset[rows], self.nbytes[rows]
        if spans.start is None or spans.nbytes is None:
            return offset, nbytes
        return offset + np.where(spans.start < 0, nbytes + spans.start, spans.start), spans.nbytes


def _positions(index: Ints, source: EngineMember) -> Ints:
    """The positions of chunks in the array's grid; -1 for those outside it."""
    inside = (index < np.array(source.object_grid, dtype=np.int64)).all(axis=1)
    position = np.where(inside, 0, -1)  # it stays zero if there are no axes
    if source.object_grid:
        position[inside] = np.ravel_multi_index(tuple(index[inside].T), source.object_grid)
    return position


def _table(chunks: ChunkTable, source: EngineMember, sources: ReferencedFiles) -> References:
    """The references, ordered by position; those outside the array's grid are left out."""
    position = _positions(chunks.index, source)
    rows = np.argsort(position, kind="stable")
    rows = rows[position[rows] >= 0]
    kind = chunks.kind[rows]
    names = [
        chunks.location[row] if k == NATIVE else ""
        for row, k in zip(rows.tolist(), kind.tolist(), strict=True)
    ]
    inlined = {int(position[row]): content for row, content in chunks.inlined.items()}
    nbytes, file = np.append(chunks.nbytes[rows], -1), np.full(rows.size + 1, -1, dtype=np.int64)
    virtual = np.flatnonzero(kind == VIRTUAL)
    named: list[tuple[str, Checksum]] = [(chunks.location[row], None) for row in rows[virtual].tolist()]
    numbers = sources.numbers(named)
    file[virtual] = [numbers[each] for each in named]
    known = None if virtual.size else False
    columns = position[rows], kind, np.array(names, dtype="S"), chunks.offset[rows], nbytes
    return References(*columns, inlined, file, known)


type ReferenceKey = tuple[str, tuple[int, ...]]
"""What tells the chunks of members apart; two handles may see one array with different shapes."""


class IcechunkSession:
    """A session of Icechunk; what a read-only one says about its chunks is requested once and kept."""

    looks_into_shards, supports_ranges = False, True

    def __init__(self, store: IcechunkStore) -> None:
        self.store = store
        self.immutable = store.is_immutable
        folder = repository_folder(store) if self.immutable and CAN_READ_FILES else None
        self.folder = folder if folder is not None and folder.is_dir() else None
        """The directory of a repository on this machine, if its files can be read."""
        self.is_near = self.folder is not None
        access: SourceAccess | None = store.shared.access
        declared = store.session.config.virtual_chunk_containers or ()
        self.sources = ReferencedFiles(declared, access)
        """The files elsewhere that the repository may refer to."""
        self._repository = None if access is None else access.repository
        if self.folder is not None:
            self._repository = Container(self.folder.as_uri() + "/")
            refuse_link_out(os.fspath(self.folder / "chunks"), os.fspath(self.folder))
        requests = max(1, REQUESTS_PER_CHUNK * zarr.config.get("async.concurrency"))
        self._calls = max(1, requests // KEYS_AT_A_TIME)
        self._gate = asyncio.Semaphore(self._calls)
        self._references: dict[ReferenceKey, References] = {}
        self._knowing = threading.Lock()
        self._inlined = SessionFiles(self, "Icechunk, inlined chunks")
        self._chunk_files = SessionFiles(self, "Icechunk, chunk files")
        self._source_files = SessionFiles(self, "source files")
        self._batches = SessionRequests(self, "Icechunk, in batches")
        self._source_objects = SessionRequests(self, "source objects, neighbours joined")
        self.object_gate = asyncio.Semaphore(requests)
        self._is_checked: set[str] = set()
        self._is_own_checked = False

    @property
    def is_current(self) -> bool:
        return self.immutable or not self.store.is_immutable

    def references(self, source: EngineMember) -> References | None:
        """Where the chunks of a member are, if that is known already; a read-only session keeps it."""
        return self._references.get((source.path, source.object_grid))

    def locate(self, sources: Sequence[tuple[EngineMember, Ints]]) -> list[tuple[Fetcher, Ints | None]]:
        tables = [self.references(source) for source, _ in sources]
        incomplete = {
            (source.path, source.object_grid): (source, object_index)
            for table, (source, object_index) in zip(tables, sources, strict=True)
            if self._lacks(table, source, object_index)
        }
        if incomplete:
            check_store(self.store)
            left = iter(incomplete.values())
            threads = 1 if self.is_near else min(MEMBERS_LISTED_AT_A_TIME, len(incomplete))
            run_in_threads(partial(next, left, None), self._look_up, threads)
            tables = [self.references(source) for source, _ in sources]
        located: list[tuple[Fetcher, Ints | None]] = []
        for table, (source, object_index) in zip(tables, sources, strict=True):
            if table is None:
                self.check_links(source.path)
                located.append((self._batches, None))
            else:
                located.append((self._fetcher_for(table, object_index), table.sizes(object_index)))
        return located

    def _lacks(self, table: References | None, source: EngineMember, object_index: Ints) -> bool:
        """Whether there is something to find out before these chunks are read: their references, if enough
        of the member's chunks are needed; or the checksums of virtual chunks, if that will save requests, or
        if nobody else looks at them: many web servers ignore the conditions that Icechunk sends.

        Reading checksums takes a few requests itself if the repository is remote.
        """
        if table is None:
            is_small = source.object_count <= MAX_CHUNKS_LISTED
            return self.immutable and (is_small or object_index.size * WORTH_LISTING >= source.object_count)
        if table.checksums_are_known is not None or self._repository is None:
            return False
        direct = [file.url for file in self._files(table, object_index) if file.container is not None]
        return bool(direct) and (
            self.is_near
            or table.saves(object_index) >= WORTH_CHECKSUMS
            or any(url.startswith("http") for url in direct)
        )

    def _look_up(self, needed: tuple[EngineMember, Ints]) -> None:
        """Find out what is lacking about chunks of a member."""
        source, object_index = needed
        table = self.references(source)
        if table is None:
            chunks = chunk_table(self.store, source.path, len(source.object_grid))
            table = _table(chunks, source, self.sources)
        if self._lacks(table, source, object_index):
            table = self._with_checksums(source, table)
        with self._knowing:
            known = self.references(source)
            if known is None or known.checksums_are_known is None:  # one that says all is never replaced
                self._references[source.path, source.object_grid] = table

    def _with_checksums(self, source: EngineMember, table: References) -> References:
        """The references with the checksums of virtual chunks, read from a file of the repository for each
        array. If one is unknown, so are all: Icechunk will check those chunks."""
        known = self.checksums(source.path, len(source.object_grid))
        if known is None:
            return replace(table, checksums_are_known=False)
        checksum_of = dict(zip(_positions(known.chunk, source).tolist(), known.checksum, strict=True))
        file, own = table.file.copy(), np.flatnonzero(table.file >= 0)
        chunks, named = table.object_index[own].tolist(), self.sources.named
        if not checksum_of.keys() >= set(chunks):
            return replace(table, checksums_are_known=False)
        each = [
            (named[number][0], checksum_of[k]) for k, number in zip(chunks, file[own].tolist(), strict=True)
        ]
        numbers = self.sources.numbers(each)
        file[own] = [numbers[one] for one in each]
        return replace(table, file=file, checksums_are_known=True)

    def checksums(self, path: str, ndim: int) -> Checksums | None:
        """The checksums of an array's virtual chunks; None if the files of the repository do not show them:
        those of some object stores are not read here, and a session that can write may have other chunks."""
        if self._repository is None or not self.immutable:
            return None
        try:
            name, read = self.store.session.snapshot_id, self._repository.read
            place = self._repository.prefix, name
            snapshot = _snapshots.get_or_make(place, lambda: Snapshot(read(f"snapshots/{name}")))
            return read_checksums(read, snapshot, path, ndim)
        except (FormatError, IndexError, OSError):
            return None

    def _files(self, table: References, object_index: Ints) -> list[ReferencedFile]:
        """The files elsewhere that hold some of these chunks."""
        return [self.sources.file(n) for n in np.unique(table.files(object_index)).tolist() if n >= 0]

    def _fetcher_for(self, table: References, object_index: Ints) -> Fetcher:
        """The way to get these chunks: files and memory before requests."""
        can_read = self.folder is not None or NATIVE not in table.kinds
        if VIRTUAL not in table.kinds:
            own = self._chunk_files if NATIVE in table.kinds else self._inlined
            return own if can_read else self._batches
        files = self._files(table, object_index)
        kinds = {file.is_local for file in files} if table.checksums_are_known else {None}
        if can_read and CAN_READ_FILES and kinds <= {True}:
            return self._source_files
        self._check_links_of(file.url for file in files)
        return self._source_objects if False in kinds else self._batches

    def check_links(self, path: str) -> None:
        """Raise `ReadError` if a link leads out of the repository, or if an array refers to a file behind a
        link that leads out of its prefix.

        Called before Icechunk opens files, as it follows all links. One look at an array is enough for a
        session.
        """
        if path in self._is_checked or may_follow():
            return
        self._check_links_of(chunk_table(self.store, path).location if self.sources.are_local else ())
        self._is_checked.add(path)

    def _check_links_of(self, urls: Iterable[str]) -> None:
        """The same for some of the files that an array refers to."""
        if may_follow():
            return
        chunks = None if self.folder is None else self.folder / "chunks"
        if chunks is not None and not self._is_own_checked and chunks.is_dir():
            refuse_links_out(chunks)  # small chunks are inlined, so there may be no chunk files
        self._is_own_checked = True
        self.sources.check_links(urls)

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

    def get_now(self, spans: ByteRanges) -> bytes:
        """Ask Icechunk for the one thing that could not be read from a file: it returns the bytes, or says
        why not."""
        check_store(self.store)
        ((key, byte_range),) = requests_of([spans])
        content = run_on_event_loop(self.get_one(key, byte_range)).result()
        if content is None:
            raise FileNotFoundError(f"{key} is referred to, but is missing")
        return bytes(content)


def _range(byte_range: Any) -> tuple[int | None, int | None]:
    if byte_range is None:
        return None, None
    suffix = getattr(byte_range, "suffix", None)
    return (None, suffix) if suffix is not None else (byte_range.start, byte_range.end)


class ObjectRanges(NamedTuple):
    """Ranges of objects elsewhere, for everything requested, in order."""

    owner: Ints
    """Number of the object in the session's `sources`; -1 for what is not requested from such an object."""

    start: Ints
    """The first byte of each range in its object."""

    nbytes: Ints

    @classmethod
    def of(
        cls, tables: Sequence[References | None], spans: Sequence[ByteRanges], sources: ReferencedFiles
    ) -> ObjectRanges:
        """What is requested from objects elsewhere."""
        columns: list[tuple[Ints, Ints, Ints]] = [(np.empty(0, dtype=np.int64),) * 3]
        for table, item in zip(tables, spans, strict=True):
            if table is None or not table.checksums_are_known:
                columns.append((np.full(item.object_index.shape, -1), item.object_index, item.object_index))
                continue
            used, where = np.unique(table.files(item.object_index), return_inverse=True)
            is_read = [n >= 0 and sources.file(n).is_local is False for n in used.tolist()]
            owner = np.where(is_read, used, -1)[where]
            columns.append((owner, *table.places(table.rows(item.object_index), item)))
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    def coalesce(self) -> tuple[Ints, RangeRequests]:
        """The positions of what is requested, and the requests for it."""
        own = np.flatnonzero(self.owner >= 0)
        return own, coalesce_ranges(self.owner[own], self.start[own], self.nbytes[own], REMOTE)


def _split(column: Ints, spans: Sequence[ByteRanges]) -> list[Ints]:
    """A column of all that is requested, divided by member."""
    return np.split(column, np.cumsum([item.object_index.size for item in spans])[:-1])


def _others(ranges: ObjectRanges, spans: Sequence[ByteRanges]) -> list[ByteRanges]:
    """What is not requested from objects elsewhere."""
    owners = _split(ranges.owner, spans)
    return [item.select(np.flatnonzero(owner < 0)) for item, owner in zip(spans, owners, strict=True)]


@dataclass(eq=False)
class SessionFiles:
    """Files on this machine: those of the repository and of sources; inlined chunks are in memory already."""

    _session: IcechunkSession
    name: str

    in_threads = True

    def request_numbers(self, spans: Sequence[ByteRanges]) -> list[Ints] | None:
        """The files that hold the ranges, so that each is opened once."""
        tables = [self._session.references(item.source) for item in spans]
        if not any(table is not None and VIRTUAL in table.kinds for table in tables):
            return None
        each = zip(tables, spans, strict=True)
        return [item.object_index if t is None else t.files(item.object_index) for t, item in each]

    def cost(self, spans: Sequence[ByteRanges]) -> Cost:
        """What is not inlined: such chunks come with the references, and cost nothing."""
        fetched = []
        for item in spans:
            table = self._session.references(item.source)
            if table is not None:
                rows = table.rows(item.object_index)
                stored = np.flatnonzero((rows >= 0) & (table.kind[rows] != INLINE))
                item = item.select(stored)
                if item.nbytes is None:
                    item = item._replace(nbytes=table.nbytes[rows[stored]])
            fetched.append(item)
        return cost_of(coalesce_spans(fetched)[0])

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        return DeferredBytes(partial(self._read, spans))

    def _read(self, spans: Sequence[ByteRanges]) -> Generator[Encoded | None]:
        for item in spans:
            table = self._session.references(item.source)
            assert table is not None
            if VIRTUAL not in table.kinds:
                yield from self._of_member(item, table, None)
                continue
            with closing(OpenSource(self._session.sources)) as sources:
                yield from self._of_member(item, table, sources)

    def _of_member(
        self, spans: ByteRanges, table: References, sources: OpenSource | None
    ) -> Iterable[Encoded | None]:
        positions, rows = spans.object_index, table.rows(spans.object_index)
        starts, lengths = [column.tolist() for column in table.places(rows, spans)]

        def inlined(i: int) -> memoryview:
            return memoryview(table.inlined[int(positions[i])])[starts[i] : starts[i] + lengths[i]]

        if table.kinds == {INLINE}:
            return map(inlined, range(rows.size))
        names, files, kinds = (column[rows].tolist() for column in (table.name, table.file, table.kind))
        folder = os.fsencode(self._session.folder or "") + b"/chunks/"

        def opened(i: int) -> int:
            if kinds[i] == NATIVE:
                return open_file(folder + names[i], folder)
            if kinds[i] == INLINE or sources is None:
                raise FileNotFoundError(errno.ENOENT, "it is inlined")
            return sources.open(files[i])

        def otherwise(i: int, _: OSError) -> Encoded | None:
            return inlined(i) if kinds[i] == INLINE else self._session.get_now(spans.select(slice(i, i + 1)))

        keeps_open = None if sources is None else sources.is_open_as
        return files_in_turn(opened, starts, lengths, spans.source.decoder, otherwise, keeps_open)


class SessionRequests(SessionFiles):
    """Objects elsewhere, and all that is left to Icechunk, on the event loop, many requests at a time."""

    in_threads = False

    def _ranges(self, spans: Sequence[ByteRanges]) -> ObjectRanges:
        """What is requested from objects elsewhere."""
        tables = [self._session.references(item.source) for item in spans]
        return ObjectRanges.of(tables, spans, self._session.sources)

    def request_numbers(self, spans: Sequence[ByteRanges]) -> list[Ints]:
        ranges = self._ranges(spans)
        own, requests = ranges.coalesce()
        number = requests.owner.size + np.arange(ranges.owner.size)
        number[own] = requests.request
        return _split(number, spans)

    def cost(self, spans: Sequence[ByteRanges]) -> Cost:
        ranges = self._ranges(spans)
        _, requests = ranges.coalesce()
        others = super().cost(_others(ranges, spans))
        nbytes = None if others.nbytes is None else requests.nbytes + others.nbytes
        return Cost(requests.owner.size + others.requests, nbytes)

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        check_store(self._session.store)
        return LoopFetch(self._get(spans, self._ranges(spans)))

    async def _get(self, spans: Sequence[ByteRanges], ranges: ObjectRanges) -> list[Any]:
        own, requests = ranges.coalesce()
        joined, cut_out = coalesce_spans(_others(ranges, spans))
        items: list[Any] = [None] * ranges.owner.size
        columns = (column.tolist() for column in (requests.owner, requests.first, requests.last))
        transfers = [
            self._request(self._session.sources.file(owner), *place)
            for owner, *place in zip(*columns, strict=True)
        ]
        others, *contents = await asyncio.gather(self._session.get_all([*requests_of(joined)]), *transfers)
        for k, item in zip(np.flatnonzero(ranges.owner < 0).tolist(), cut_out(others), strict=True):
            items[k] = item
        refused: list[tuple[int, RefusedError]] = []
        first, start, nbytes = requests.first.tolist(), ranges.start.tolist(), ranges.nbytes.tolist()
        for k, number in zip(own.tolist(), requests.request.tolist(), strict=True):
            content = contents[number]
            if isinstance(content, RefusedError):
                refused.append((k, content))
            elif isinstance(content, Exception):
                items[k] = content
            else:
                begin = start[k] - first[number]
                items[k] = memoryview(content)[begin : begin + nbytes[k]]
        keys = list(requests_of(spans)) if refused else []
        again = await self._session.get_all([keys[k] for k, _ in refused])
        for (k, why), item in zip(refused, again, strict=True):
            # Icechunk ignores what a web server says about a file, so one that has changed stays refused.
            is_changed = isinstance(why, ChangedError) and not isinstance(item, Exception)
            items[k] = OSError(str(why)) if is_changed else item
        return items

    async def _request(self, file: ReferencedFile, first: int, last: int) -> Any:
        async with self._session.object_gate:
            return await request_bytes(file, first, last)
