"""Fetching from Icechunk: many chunks a call wherever its repository lies, virtual ones as well; chunk files
read directly where it lies here.

Files are read for read-only sessions alone, and only chunks that are files of the repository or inlined in
its references; whatever else there is goes through Icechunk. So does a file that cannot be opened: Icechunk
says what is wrong.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import get_many
from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, ChunkTable, chunk_table, session_bytes
from intarsia.array.fetch.store import (
    CAN_READ_FILES,
    FileSpan,
    KeyRange,
    Spans,
    Started,
    coalesced,
    requests_of,
    start,
)
from intarsia.array.pool import run
from intarsia.parallel import check_store
from intarsia.words import storage_hint

if TYPE_CHECKING:
    from icechunk import IcechunkStore

    from intarsia.array.fetch.store import Encoded, Fetcher, Pending
    from intarsia.array.source import EngineSource
    from intarsia.array.table import Ints


KEYS_PER_CALL = 50
KEYS_AT_A_TIME = 10
"""Icechunk works on so many keys of a call at a time (`get_partial_values_concurrency`)."""

REQUESTS_PER_CHUNK = 4
"""zarr's `async.concurrency` counts chunks that are fetched and decoded at a time. Requests mostly wait, so
there are this many times as many of them."""

MOST_CHUNKS_LISTED = 50_000
"""The references of a member with more chunks than this are listed only if a good part of them is wanted."""

WORTH_LISTING = 8

MEMBERS_LISTED_AT_A_TIME = 32
"""Listing the chunks of a member means reading its part of the snapshot, from afar."""

NOT_AUTHORISED = re.compile(r"resolves to the url prefix (\S+), to be able to fetch")

PROVIDER = b"local_file_system_object_store_provider"
PATH_FIELD = b"\xa4path"  # the key "path" in MessagePack, which sessions are pickled as


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


def load(store: IcechunkStore, sources: Sequence[EngineSource], at_a_time: int = 1) -> list[References]:
    """The references of several arrays, so many asked for at a time."""
    check_store(store)
    tables: dict[int, References] = {}
    left = iter(enumerate(sources))  # `next` on it is atomic

    def ask(numbered: tuple[int, EngineSource]) -> None:
        number, source = numbered
        tables[number] = _table(chunk_table(store, source.path, len(source.blob_grid)), source)

    run(lambda: next(left, None), ask, threads=min(at_a_time, len(sources)))
    return [tables[number] for number in range(len(sources))]


def _table(chunks: ChunkTable, source: EngineSource) -> References:
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


class IcechunkBatch:
    """A session of Icechunk; what a read-only one says about its chunks is asked for once and kept."""

    in_threads = False

    def __init__(
        self, store: IcechunkStore, *, read_only: bool, listed_at_a_time: int = MEMBERS_LISTED_AT_A_TIME
    ) -> None:
        self.store = store
        self.lasting = read_only
        self._listed_at_a_time = listed_at_a_time
        requests = REQUESTS_PER_CHUNK * zarr.config.get("async.concurrency")
        self._gate = asyncio.Semaphore(max(1, requests // KEYS_AT_A_TIME))  # of calls
        self._references: dict[str, References] = {}
        self.name = "Icechunk, in batches"

    def references(self, source: EngineSource) -> References | None:
        """Where the chunks of a member are, if that was asked for; a read-only session does not change it."""
        return self._references.get(source.path)

    def listed(self, source: EngineSource) -> References:
        """The same of a member whose sizes are known."""
        return self._references[source.path]

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        if not self.lasting:
            return [None] * len(sources)
        unknown = {
            source.path: source
            for source, blob in sources
            if source.path not in self._references
            and (source.blobs <= MOST_CHUNKS_LISTED or blob.size * WORTH_LISTING >= source.blobs)
        }
        if unknown:
            listed = load(self.store, list(unknown.values()), self._listed_at_a_time)
            self._references.update(zip(unknown, listed, strict=True))
        tables = [(self.references(source), blob) for source, blob in sources]
        return [None if table is None else table.sizes(blob) for table, blob in tables]

    def for_member(self, source: EngineSource) -> Fetcher:
        return self

    def begin(self, spans: Sequence[Spans]) -> Pending:
        check_store(self.store)
        joined, parts = coalesced(spans)
        return Started(self._get(list(requests_of(joined)), parts))

    async def _get(self, wanted: list[KeyRange], parts: Callable[[list[Any]], list[Any]]) -> list[Any]:
        calls = [wanted[i : i + KEYS_PER_CALL] for i in range(0, len(wanted), KEYS_PER_CALL)]
        return parts([item for items in await asyncio.gather(*map(self._call, calls)) for item in items])

    async def _call(self, wanted: list[KeyRange]) -> list[Any]:
        """One batch. What comes back as None, or fails, is asked for again alone: only then Icechunk tells
        a chunk that is not stored from one that cannot be read."""
        async with self._gate:
            try:
                items: list[Any] = await get_many(self.store, [(key, _range(r)) for key, r in wanted])
            except Exception:
                items = [None] * len(wanted)
        doubtful = [i for i, item in enumerate(items) if item is None]
        if doubtful:
            alone = [self.get_one(*wanted[i]) for i in doubtful]
            for i, item in zip(doubtful, await asyncio.gather(*alone, return_exceptions=True), strict=True):
                items[i] = item
        return items

    async def get_one(self, key: str, byte_range: ByteRequest | None) -> Any:
        """One value, None if it is not stored; raises if it cannot be read."""
        content = await self.store.get(key, default_buffer_prototype(), byte_range)
        return None if content is None else content.as_numpy_array()


def _range(byte_range: Any) -> tuple[int | None, int | None]:
    if byte_range is None:
        return None, None
    suffix = getattr(byte_range, "suffix", None)
    return (None, suffix) if suffix is not None else (byte_range.start, byte_range.end)


def repository_path(pickled: bytes) -> Path | None:
    """Where a pickled session's repository lies on this machine; None if it does not, or it is not clear.

    >>> repository_path(b"...s3_object_store_provider...") is None
    True
    """
    paths = set()
    position = pickled.find(PROVIDER)
    while position >= 0:
        after = position + len(PROVIDER)
        text = _text(pickled, after + len(PATH_FIELD)) if pickled.startswith(PATH_FIELD, after) else None
        paths.add(text)
        position = pickled.find(PROVIDER, after)
    if len(paths) != 1:
        return None
    path = paths.pop()
    return None if path is None else Path(path)


def _text(packed: bytes, at: int) -> str | None:
    """The MessagePack string at a position."""
    for mark, size in ((0xD9, 1), (0xDA, 2), (0xDB, 4)):
        if packed[at : at + 1] == bytes([mark]):
            length = int.from_bytes(packed[at + 1 : at + 1 + size], "big")
            begin = at + 1 + size
            break
    else:
        if at >= len(packed) or packed[at] & 0xE0 != 0xA0:
            return None
        length, begin = packed[at] & 0x1F, at + 1
    raw = packed[begin : begin + length]
    try:
        return raw.decode() if len(raw) == length else None
    except UnicodeDecodeError:
        return None


class _Files:
    """Opens and reads chunk files when it is iterated over."""

    arrival = None

    def __init__(self, folder: bytes, batch: IcechunkBatch, spans: Sequence[Spans]) -> None:
        self._folder, self._batch, self._spans = folder, batch, spans

    def __iter__(self) -> Generator[Encoded | None]:
        folder = self._folder
        for spans in self._spans:
            table = self._batch.listed(spans.source)
            rows = table.rows(spans.blob)
            offset, nbytes = table.offset[rows], table.nbytes[rows]
            if spans.start is not None and spans.nbytes is not None:
                offset = offset + np.where(spans.start < 0, nbytes + spans.start, spans.start)
                nbytes = spans.nbytes
            columns = [column.tolist() for column in (table.file[rows], offset, nbytes)]
            native = (table.kind[rows] == NATIVE).tolist()
            for i, (file, first, length) in enumerate(zip(*columns, strict=True)):
                if not native[i]:
                    yield memoryview(table.inlined[int(rows[i])])[first : first + length]
                    continue
                try:
                    opened = os.open(folder + file, os.O_RDONLY)
                except OSError:
                    yield _by_icechunk(self._batch, spans, i)
                    continue
                try:
                    yield FileSpan(opened, first, length)
                finally:
                    os.close(opened)

    def cancel(self) -> None:
        """Nothing runs."""


def _by_icechunk(batch: IcechunkBatch, spans: Spans, i: int) -> bytes:
    """Ask Icechunk for what could not be read from a file: it answers with the bytes, or says why not."""
    check_store(batch.store)
    source, blob, first, nbytes = spans
    one = slice(i, i + 1)
    if first is None or nbytes is None:
        wanted = Spans(source, blob[one])
    else:
        wanted = Spans(source, blob[one], first[one], nbytes[one])
    ((key, byte_range),) = requests_of([wanted])
    content = start(batch.get_one(key, byte_range)).result()
    if content is None:
        raise FileNotFoundError(f"{key} is referred to, but not there")
    return bytes(content)


class LocalIcechunk:
    """A read-only session of a repository on the local file system."""

    in_threads, lasting = True, True

    def __init__(self, store: IcechunkStore, repository: Path) -> None:
        self._batch = IcechunkBatch(store, read_only=True, listed_at_a_time=1)  # threads would cost more
        self._folder = os.fsencode(repository / "chunks") + b"/"
        self.name = "Icechunk, chunk files"

    @classmethod
    def of(cls, store: IcechunkStore) -> LocalIcechunk | None:
        """The fetcher for a store whose repository lies here; None where it does not."""
        if not CAN_READ_FILES:
            return None
        repository = repository_path(session_bytes(store))
        if repository is None or not (repository / "chunks").is_dir():
            return None
        return cls(store, repository)

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        return self._batch.sizes(sources)

    def for_member(self, source: EngineSource) -> Fetcher:
        table = self._batch.references(source)
        return self if table is not None and table.is_here else self._batch

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _Files(self._folder, self._batch, spans)


def origin(store: Any, path: str, index: tuple[int, ...] | None) -> str | None:
    """The URL of the file that holds a virtual chunk; None if the chunk is not virtual, or nobody knows.

    >>> origin({}, "t/m-1", (0, 0)) is None
    True
    """
    if index is None or not isinstance(store, icechunk.IcechunkStore):
        return None
    try:
        table = chunk_table(store, path, len(index))
        virtual = ((table.index == index).all(axis=1) & (table.kind == VIRTUAL)).nonzero()[0]
        return table.location[virtual[0]] if virtual.size else None
    except Exception:  # the message is about another error, and must not be lost for this one
        return None


def reason(error: Exception, store: Any, path: str, index: tuple[int, ...] | None) -> str:
    """What is wrong with a chunk, in words that help.

    >>> reason(ValueError("bad bytes"), {}, "t/m-1", (0,))
    'bad bytes'
    """
    text = str(error).split("\n\ncontext:")[0].strip()  # the call chain inside Icechunk
    place = origin(store, path, index)
    if place is not None and place not in text:
        text = f"{text} ({place})"
    if not isinstance(error, icechunk.IcechunkError):
        return text
    refused = NOT_AUTHORISED.search(text)
    if refused:
        return (
            f"{place or 'its source'} may not be read: nobody authorised the repository to read below "
            f"{refused[1]}.\n  If you trust it: repo = intarsia.authorize(repo, [{refused[1]!r}])"
        )
    return text + storage_hint(text)
