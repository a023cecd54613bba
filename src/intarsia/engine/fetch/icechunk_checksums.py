"""The checksums of virtual chunks, read from Icechunk's own files; `virtual` compares source files with them.

Icechunk compares the checksum of a reference, an ETag or a time, with the file whenever it reads one chunk. A
reader of several chunks in one request must compare the same, and no call of Icechunk returns a checksum. Its
files do: a snapshot names the manifests of an array, and a manifest holds the references. Both are documented
FlatBuffers after a header of 39 bytes (https://icechunk.io/en/stable/reference/spec/), in versions 1 and 2 of
the format. Anything that looks different is a `FormatError`, and its chunks are left to Icechunk.
"""

from __future__ import annotations

from collections.abc import Callable
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
NODE_IS_ARRAY = b"\1"
ARRAY_MANIFESTS = 2
MANIFEST_REF_ID = 0
MANIFEST_ARRAYS = 1
ARRAY_ID, ARRAY_REFS = 0, 1
REF_INDEX, REF_ETAG, REF_MODIFIED = 0, 6, 7

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


OUTSIDE = "an offset points outside the file"


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


class _Tables:
    """FlatBuffers tables of one kind: fields are found by number, and read by column, because a manifest has
    thousands of references. All that an offset points to must be inside the file."""

    def __init__(self, body: bytes, at: Ints) -> None:
        self._body, self._at = body, at
        self._bytes: Bytes = np.frombuffer(body, dtype=np.uint8)
        self._fields = at - self._numbers(at, 4).astype(np.uint32).view(np.int32)
        self._end = self._fields + self._numbers(self._fields, 2)

    @classmethod
    def root(cls, body: bytes) -> _Tables:
        """The one table that a file begins with."""
        return cls(body, np.array([int.from_bytes(body[:4], "little")]))

    def _numbers(self, at: Ints, length: int) -> Ints:
        """Little-endian numbers at these places."""
        if at.size and (at.min() < 0 or at.max() + length > self._bytes.size):
            raise FormatError(OUTSIDE)
        number = np.zeros(at.shape, dtype=np.int64)
        for k in range(length):
            number |= self._bytes[at + k].astype(np.int64) << 8 * k
        return number

    def _places(self, field: int) -> Ints:
        """Where this field of each table lies, 0 for tables without it."""
        entry = self._fields + 4 + 2 * field
        has = np.flatnonzero(entry < self._end)
        places = np.zeros(entry.shape, dtype=np.int64)
        offset = self._numbers(entry[has], 2)
        places[has] = np.where(offset > 0, self._at[has] + offset, 0)
        return places

    def numbers(self, field: int, length: int) -> Ints:
        """A field of each table, 0 for tables without it."""
        places = self._places(field)
        return np.where(places > 0, self._numbers(places, length), 0)

    def _required(self, field: int) -> Ints:
        places = self._places(field)
        if not places.all():
            raise FormatError(f"field {field} is missing")
        return places

    def contents(self, field: int, length: int) -> list[bytes]:
        """A field of fixed size, which every table must have."""
        return self._cut(self._required(field), np.array(length))

    def _vectors(self, places: Ints) -> tuple[Ints, Ints]:
        """Where the elements begin of the vectors that fields point to, and how many there are."""
        at = places + self._numbers(places, 4)
        return at + 4, self._numbers(at, 4)

    def _cut(self, first: Ints, length: Ints) -> list[bytes]:
        last = first + length
        if last.size and last.max() > self._bytes.size:
            raise FormatError(OUTSIDE)
        return [self._body[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]

    def texts(self, field: int) -> dict[int, bytes]:
        """A text of each table that has it, by position."""
        places = self._places(field)
        has = np.flatnonzero(places)
        return dict(zip(has.tolist(), self._cut(*self._vectors(places[has])), strict=True))

    def tuples(self, field: int, length: int) -> Ints:
        """A vector of this many numbers, which every table must have; one row for each."""
        at, count = self._vectors(self._required(field))
        if (count != length).any():
            raise FormatError("chunks have a different number of dimensions from their array")
        return self._numbers(at[:, None] + 4 * np.arange(length), 4)

    def table(self, field: int) -> _Tables:
        """The tables that a field points to."""
        places = self._required(field)
        return _Tables(self._body, places + self._numbers(places, 4))

    def tables(self, field: int) -> _Tables:
        """The tables in the vector of the only table."""
        ((at,), (count,)) = self._vectors(self._required(field))
        places = at + 4 * np.arange(min(count, self._bytes.size))  # more than that are outside
        return _Tables(self._body, places + self._numbers(places, 4))

    def select(self, k: int) -> _Tables:
        """One of the tables."""
        return _Tables(self._body, self._at[k : k + 1])


class ArrayNode(NamedTuple):
    """An array, as described in a snapshot."""

    identity: bytes
    manifests: list[str]
    """Names of the files that hold its references."""


class Snapshot:
    """A snapshot of Icechunk, in which arrays can be found."""

    def __init__(self, content: bytes) -> None:
        body = body_of(content, SNAPSHOT)
        self.nbytes = len(body)
        self._nodes = _Tables.root(body).tables(SNAPSHOT_NODES)
        self._rows = {path: row for row, path in self._nodes.texts(NODE_PATH).items()}

    def node(self, path: str) -> ArrayNode:
        """The array at a path."""
        row = self._rows.get(f"/{path.strip('/')}".encode())
        if row is None:
            raise FormatError(f"there is no {path}")
        node = self._nodes.select(row)
        if node.contents(NODE_KIND, 1) != [NODE_IS_ARRAY]:
            raise FormatError("it is not an array")
        manifests = node.table(NODE_DATA).tables(ARRAY_MANIFESTS)
        (identity,) = node.contents(NODE_ID, 8)
        return ArrayNode(identity, [object_name(each) for each in manifests.contents(MANIFEST_REF_ID, 12)])


class Checksums(NamedTuple):
    """The checksums of an array's chunks."""

    chunk: Ints
    """Position in the grid of stored chunks; shape (chunks, dimensions)."""

    checksum: list[Checksum]


def read_checksums(read: FileReader, snapshot: Snapshot, path: str, ndim: int) -> Checksums:
    """The checksums of an array, from its manifests."""
    node = snapshot.node(path)
    index, checksums = [np.empty((0, ndim), dtype=np.int64)], list[Checksum]()
    for name in node.manifests:
        arrays = _Tables.root(body_of(read(f"manifests/{name}"), MANIFEST)).tables(MANIFEST_ARRAYS)
        for k, identity in enumerate(arrays.contents(ARRAY_ID, 8)):
            if identity == node.identity:
                references = arrays.select(k).tables(ARRAY_REFS)
                index.append(references.tuples(REF_INDEX, ndim))
                checksums += _checksums(references)
    return Checksums(np.concatenate(index), checksums)


def _checksums(references: _Tables) -> list[Checksum]:
    checksums: list[Checksum] = [seconds or None for seconds in references.numbers(REF_MODIFIED, 4).tolist()]
    known: dict[bytes, str] = {}  # chunks of a file share its checksum
    for row, etag in references.texts(REF_ETAG).items():
        if etag not in known:
            known[etag] = etag.decode("utf-8", "surrogateescape")
        checksums[row] = known[etag]
    return checksums
