"""Which version of its source a virtual chunk refers to: the marks that Icechunk's own files keep.

Icechunk compares the mark of a reference, an ETag or a time, with the source whenever it reads one chunk. A
reader of several chunks in one request must compare the same, and no call of Icechunk returns a mark. Its
files do: a snapshot names the manifests of an array, and a manifest holds the references. Both are documented
FlatBuffers after a header of 39 bytes (https://icechunk.io/en/stable/reference/spec/), in versions 1 and 2 of
the format. Anything that looks different is a `FormatError`, and its chunks are left to Icechunk.

Where the stored chunks of a member are: Icechunk's references, by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia._icechunk import INLINE, NATIVE, VIRTUAL, ChunkTable, chunk_table
from intarsia.codecs.compressors import Bytes, unzstd
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.byte_ranges import REMOTE, joined
from intarsia.engine.fetch.session_access import Container, Grants
from intarsia.engine.pool import run
from intarsia.extras import is_there
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from icechunk import IcechunkStore

    from intarsia.engine.fetch.store import Spans
    from intarsia.engine.member_source import EngineSource
    from intarsia.manifest.region_table import Ints


type Mark = str | int | None
"""An ETag, a time in seconds since 1970 after which the source must not have changed, or nothing."""

type FileReader = Callable[[str], bytes]
"""Takes a name below the repository, and returns the content of that file."""

MAGIC = "ICE🧊CHUNK".encode()
HEADER = 39
VERSIONS = (1, 2)
SNAPSHOT, MANIFEST = 1, 2
PLAIN, ZSTD = 0, 1

MOST_INFLATION, MOST_BYTES = 400, 1 << 30
"""An Icechunk file that would be longer than this, or grow by this factor, is left to Icechunk."""

# The numbers of fields, as in the schemas.
SNAPSHOT_NODES = 2
NODE_ID, NODE_PATH, NODE_KIND, NODE_DATA = 0, 1, 3, 4
NODE_IS_ARRAY = 1
ARRAY_MANIFESTS = 2
MANIFEST_REF_ID = 0
MANIFEST_ARRAYS = 1
ARRAY_ID, ARRAY_REFS = 0, 1
REF_INDEX, REF_ETAG, REF_MODIFIED = 0, 6, 7

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class FormatError(Exception):
    """A file does not follow the format, or has a version that is not known here."""


def object_name(identity: bytes) -> str:
    """The file name of an Icechunk object: its number in Crockford's alphabet.

    >>> object_name(bytes(12))
    '00000000000000000000'
    """
    digits = -(-len(identity) * 8 // 5)
    number = int.from_bytes(identity, "big") << digits * 5 - len(identity) * 8
    return "".join(CROCKFORD[number >> 5 * k & 31] for k in reversed(range(digits)))


def body_of(content: bytes, kind: int) -> bytes:
    """The part after the header of one of Icechunk's files, which must be of this kind."""
    if len(content) < HEADER or not content.startswith(MAGIC):
        raise FormatError("it does not begin like an Icechunk file")
    version, found, compression = content[36:HEADER]
    if version not in VERSIONS or found != kind or compression not in (PLAIN, ZSTD):
        raise FormatError(f"version {version}, kind {found}, compression {compression} are not known")
    body = content[HEADER:]
    if compression == PLAIN:
        return body
    try:
        return bytes(unzstd(body, min(MOST_BYTES, MOST_INFLATION * len(body) + (1 << 20))))
    except (ValueError, RuntimeError) as error:
        raise FormatError(str(error)) from error


class _Table:
    """A FlatBuffers table: fields are found by number, and absent ones are None."""

    def __init__(self, buffer: bytes, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._fields = at - int.from_bytes(self._cut(at, 4), "little", signed=True)
        self._end = self._fields + self._number(self._fields, 2)

    def _cut(self, at: int, length: int) -> bytes:
        if at < 0 or at + length > len(self._buffer):
            raise FormatError("an offset points outside the file")
        return self._buffer[at : at + length]

    def _number(self, at: int, length: int) -> int:
        return int.from_bytes(self._cut(at, length), "little")

    def place(self, field: int) -> int | None:
        """Where a field lies."""
        entry = self._fields + 4 + 2 * field
        offset = self._number(entry, 2) if entry < self._end else 0
        return self._at + offset if offset else None

    def content(self, field: int, length: int) -> bytes:
        """A field of fixed size, which must be there."""
        at = self.place(field)
        if at is None:
            raise FormatError(f"field {field} is missing")
        return self._cut(at, length)

    def behind(self, field: int) -> int:
        """Where the target of a field lies."""
        return self._follow(self.place(field))

    def _follow(self, at: int | None) -> int:
        if at is None:
            raise FormatError("a field is missing")
        return at + self._number(at, 4)

    def table(self, field: int) -> _Table:
        """The table that a field points to."""
        return _Table(self._buffer, self.behind(field))

    def vector(self, field: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        at = self.behind(field)
        return at + 4, self._number(at, 4)

    def text(self, field: int) -> bytes:
        """A string."""
        at, length = self.vector(field)
        return self._cut(at, length)

    def tables(self, field: int) -> Iterator[_Table]:
        """The tables of a vector."""
        at, count = self.vector(field)
        self._cut(at, 4 * count)
        return (_Table(self._buffer, self._follow(at + 4 * k)) for k in range(count))

    def table_in(self, field: int, k: int) -> _Table:
        """One table of a vector."""
        return _Table(self._buffer, self._follow(self.vector(field)[0] + 4 * k))


class ArrayNode(NamedTuple):
    """An array, as described in a snapshot."""

    identity: bytes
    manifests: list[str]
    """Names of the files that hold its references."""


class Snapshot:
    """A snapshot of Icechunk, in which arrays can be found."""

    def __init__(self, content: bytes) -> None:
        self._body = body_of(content, SNAPSHOT)
        self.nbytes = len(self._body)
        self._root = _Table(self._body, int.from_bytes(self._body[:4], "little"))

    def node(self, path: str) -> ArrayNode:
        """The array at a path; nodes are sorted by path."""
        wanted = f"/{path.strip('/')}".encode()
        low, high = 0, self._root.vector(SNAPSHOT_NODES)[1]
        while low < high:
            middle = (low + high) // 2
            node = self._root.table_in(SNAPSHOT_NODES, middle)
            found = node.text(NODE_PATH)
            if found == wanted:
                return self._array(node)
            low, high = (middle + 1, high) if found < wanted else (low, middle)
        raise FormatError(f"there is no {path}")

    @staticmethod
    def _array(node: _Table) -> ArrayNode:
        if node.content(NODE_KIND, 1)[0] != NODE_IS_ARRAY:
            raise FormatError("it is not an array")
        refs = node.table(NODE_DATA).tables(ARRAY_MANIFESTS)
        names = [object_name(ref.content(MANIFEST_REF_ID, 12)) for ref in refs]
        return ArrayNode(node.content(NODE_ID, 8), names)


class Marks(NamedTuple):
    """The marks of an array's chunks."""

    chunk: Ints
    """Position in the grid of stored chunks; shape (chunks, dimensions)."""

    mark: list[Mark]


def read_marks(read: FileReader, snapshot: Snapshot, path: str, ndim: int) -> Marks:
    """The marks of an array, from its manifests."""
    node = snapshot.node(path)
    parts = [_marks(read(f"manifests/{name}"), node.identity, ndim) for name in node.manifests]
    index = np.concatenate([np.empty((0, ndim), dtype=np.int64), *(part.chunk for part in parts)])
    return Marks(index, [mark for part in parts for mark in part.mark])


def _marks(content: bytes, identity: bytes, ndim: int) -> Marks:
    body = body_of(content, MANIFEST)
    root = _Table(body, int.from_bytes(body[:4], "little"))
    for array in root.tables(MANIFEST_ARRAYS):
        if array.content(ARRAY_ID, 8) == identity:
            at, count = array.vector(ARRAY_REFS)
            return _Columns(body, at, count).marks(ndim)
    return Marks(np.empty((0, ndim), dtype=np.int64), [])


class _Columns:
    """The references of an array. There are thousands of these tables, so NumPy reads them by column."""

    def __init__(self, body: bytes, at: int, count: int) -> None:
        self._bytes: Bytes = np.frombuffer(body, dtype=np.uint8)
        if at + 4 * count > len(body):
            raise FormatError("an offset points outside the file")
        places = at + 4 * np.arange(count, dtype=np.int64)
        self._table = places + self._numbers(places, 4)
        signed = self._numbers(self._table, 4).astype(np.uint32).view(np.int32)
        self._fields = self._table - signed
        self._end = self._fields + self._numbers(self._fields, 2)

    def _numbers(self, at: Ints, length: int) -> Ints:
        """Little-endian numbers at these places."""
        if at.size and (at.min() < 0 or at.max() + length > self._bytes.size):
            raise FormatError("an offset points outside the file")
        number = np.zeros(at.shape, dtype=np.int64)
        for k in range(length):
            number |= self._bytes[at + k].astype(np.int64) << 8 * k
        return number

    def _places(self, field: int) -> Ints:
        """Where this field of each table lies, 0 for tables without it."""
        entry = self._fields + 4 + 2 * field
        has = np.flatnonzero(entry < self._end)
        found = np.zeros(entry.shape, dtype=np.int64)
        offset = self._numbers(entry[has], 2)
        found[has] = np.where(offset > 0, self._table[has] + offset, 0)
        return found

    def marks(self, ndim: int) -> Marks:
        vector = self._places(REF_INDEX)
        vector = vector + self._numbers(vector, 4)
        if (self._numbers(vector, 4) != ndim).any():
            raise FormatError("chunks have a different number of dimensions from their array")
        axes = [self._numbers(vector + 4 + 4 * k, 4) for k in range(ndim)]
        index = np.stack(axes, axis=1) if axes else np.empty((vector.size, 0), dtype=np.int64)
        mark: list[Mark] = [None] * vector.size
        modified = self._places(REF_MODIFIED)
        timed = np.flatnonzero(modified)
        for row, seconds in zip(timed.tolist(), self._numbers(modified[timed], 4).tolist(), strict=True):
            mark[row] = seconds or None
        self._put_etags(mark)
        return Marks(index, mark)

    def _put_etags(self, mark: list[Mark]) -> None:
        etag = self._places(REF_ETAG)
        rows = np.flatnonzero(etag)
        if not rows.size:
            return
        # Chunks of a file share its mark: few of the texts differ, so each distinct one is decoded once.
        text = etag[rows] + self._numbers(etag[rows], 4)
        length = self._numbers(text, 4)
        for size in np.unique(length).tolist():
            those = np.flatnonzero(length == size)
            at = text[those] + 4
            if at.max() + size > self._bytes.size:
                raise FormatError("an offset points outside the file")
            raw = np.ascontiguousarray(self._bytes[at[:, None] + np.arange(size)]).tobytes()
            known: dict[bytes, str] = {}
            for k, row in enumerate(rows[those].tolist()):
                cut = raw[k * size : (k + 1) * size]
                if cut not in known:
                    known[cut] = cut.decode("utf-8", "surrogateescape")
                mark[row] = known[cut]


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
        return table.with_marks(_marks_of_chunks(store, source, grants))

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


def _marks_of_chunks(store: IcechunkStore, source: EngineSource, grants: Grants) -> dict[int, Mark]:
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
