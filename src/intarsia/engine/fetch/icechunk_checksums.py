"""The checksums of virtual chunks, read from Icechunk's own files: which version of its file each refers to.

Icechunk compares the checksum of a reference, an ETag or a time, with the file whenever it reads one chunk. A
reader of several chunks in one request must compare the same, and no call of Icechunk returns a checksum. Its
files do: a snapshot names the manifests of an array, and a manifest holds the references. Both are documented
FlatBuffers after a header of 39 bytes (https://icechunk.io/en/stable/reference/spec/), in versions 1 and 2 of
the format. Anything that looks different is a `FormatError`, and its chunks are left to Icechunk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.codecs.compressors import Bytes, decompress_zstd_frames

if TYPE_CHECKING:
    from intarsia.manifest.region_table import Ints


type Checksum = str | int | None
"""An ETag, a time in seconds since 1970 after which the source must not have changed, or nothing."""

type FileReader = Callable[[str], bytes]
"""Takes a name below the repository, and returns the content of that file."""

MAGIC = "ICE🧊CHUNK".encode()
HEADER = 39
VERSIONS = (1, 2)
SNAPSHOT, MANIFEST = 1, 2
PLAIN, ZSTD = 0, 1

MAX_INFLATION, MAX_BYTES = 400, 1 << 30
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
        return bytes(decompress_zstd_frames(body, min(MAX_BYTES, MAX_INFLATION * len(body) + (1 << 20))))
    except (ValueError, RuntimeError) as error:
        raise FormatError(str(error)) from error


class _Table:
    """A FlatBuffers table: fields are found by number."""

    def __init__(self, buffer: bytes, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._fields = at - _number("<i", buffer, at)
        self._end = self._fields + _number("<H", buffer, self._fields)

    def _place(self, field: int) -> int:
        """Where a field lies, which must be there."""
        entry = self._fields + 4 + 2 * field
        offset = _number("<H", self._buffer, entry) if entry < self._end else 0
        if not offset:
            raise FormatError(f"field {field} is missing")
        return self._at + offset

    def content(self, field: int, length: int) -> bytes:
        """A field of fixed size."""
        return self._cut(self._place(field), length)

    def _cut(self, at: int, length: int) -> bytes:
        if at + length > len(self._buffer):
            raise FormatError("an offset points outside the file")
        return self._buffer[at : at + length]

    def _follow(self, at: int) -> int:
        return at + _number("<I", self._buffer, at)

    def table(self, field: int) -> _Table:
        """The table that a field points to."""
        return _Table(self._buffer, self._follow(self._place(field)))

    def vector(self, field: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        at = self._follow(self._place(field))
        return at + 4, _number("<I", self._buffer, at)

    def text(self, field: int) -> bytes:
        """A string."""
        return self._cut(*self.vector(field))

    def tables(self, field: int) -> Iterator[_Table]:
        """The tables of a vector."""
        at, count = self.vector(field)
        self._cut(at, 4 * count)
        return (_Table(self._buffer, self._follow(at + 4 * k)) for k in range(count))

    def table_in(self, field: int, k: int) -> _Table:
        """One table of a vector."""
        return _Table(self._buffer, self._follow(self.vector(field)[0] + 4 * k))


def _number(form: str, buffer: bytes, at: int) -> int:
    """A little-endian number at a place of the file."""
    if at < 0:
        raise FormatError("an offset points outside the file")
    try:
        number: int = struct.unpack_from(form, buffer, at)[0]
    except struct.error as error:
        raise FormatError("an offset points outside the file") from error
    return number


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


class Checksums(NamedTuple):
    """The checksums of an array's chunks."""

    chunk: Ints
    """Position in the grid of stored chunks; shape (chunks, dimensions)."""

    checksum: list[Checksum]


def read_checksums(read: FileReader, snapshot: Snapshot, path: str, ndim: int) -> Checksums:
    """The checksums of an array, from its manifests."""
    node = snapshot.node(path)
    parts = [_checksums(read(f"manifests/{name}"), node.identity, ndim) for name in node.manifests]
    index = np.concatenate([np.empty((0, ndim), dtype=np.int64), *(part.chunk for part in parts)])
    return Checksums(index, [checksum for part in parts for checksum in part.checksum])


def _checksums(content: bytes, identity: bytes, ndim: int) -> Checksums:
    body = body_of(content, MANIFEST)
    root = _Table(body, int.from_bytes(body[:4], "little"))
    for array in root.tables(MANIFEST_ARRAYS):
        if array.content(ARRAY_ID, 8) == identity:
            at, count = array.vector(ARRAY_REFS)
            return _Columns(body, at, count).checksums(ndim)
    return Checksums(np.empty((0, ndim), dtype=np.int64), [])


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

    def checksums(self, ndim: int) -> Checksums:
        vector = self._places(REF_INDEX)
        vector = vector + self._numbers(vector, 4)
        if (self._numbers(vector, 4) != ndim).any():
            raise FormatError("chunks have a different number of dimensions from their array")
        axes = [self._numbers(vector + 4 + 4 * k, 4) for k in range(ndim)]
        index = np.stack(axes, axis=1) if axes else np.empty((vector.size, 0), dtype=np.int64)
        checksum: list[Checksum] = [None] * vector.size
        modified = self._places(REF_MODIFIED)
        timed = np.flatnonzero(modified)
        for row, seconds in zip(timed.tolist(), self._numbers(modified[timed], 4).tolist(), strict=True):
            checksum[row] = seconds or None
        self._put_etags(checksum)
        return Checksums(index, checksum)

    def _put_etags(self, checksum: list[Checksum]) -> None:
        etag = self._places(REF_ETAG)
        rows = np.flatnonzero(etag)
        if not rows.size:
            return
        # Chunks of a file share its checksum: few of the texts differ, so each distinct one is decoded once.
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
                checksum[row] = known[cut]
