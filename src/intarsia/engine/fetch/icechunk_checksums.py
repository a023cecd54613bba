"""The checksums of virtual chunks, read from Icechunk's own files; `virtual` compares source files with them.

Icechunk compares the checksum of a reference, an ETag or a time, with the file whenever it reads one chunk. A
reader of several chunks in one request must compare the same, and no call of Icechunk returns a checksum. Its
files do: a snapshot names the manifests of an array, and a manifest holds the references. Both are documented
FlatBuffers after a header of 39 bytes (https://icechunk.io/en/stable/reference/spec/), in versions 1 and 2 of
the format. Anything that looks different is a `FormatError`; if an offset points outside, NumPy raises
IndexError. Such chunks are left to Icechunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.codecs.compressors import decompress_zstd_frames

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
NODE_ID, NODE_PATH, NODE_DATA = 0, 1, 4
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
    return "".join([CROCKFORD[number >> 5 * k & 31] for k in reversed(range(digits))])


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


class _FlatBuffer:
    """The tables of a FlatBuffers file, as places in it. A field is found for many tables at once, because a
    manifest has thousands of references."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        # The numbers at all places, as nothing is aligned.
        self.short, self.signed, self.number = [
            np.ndarray(max(0, len(body) - size + 1), dtype, body, strides=(1,))
            for size, dtype in ((2, "<u2"), (4, "<i4"), (4, "<u4"))
        ]

    def places(self, tables: Ints, field: int, *, optional: bool = False) -> Ints:
        """Where this field of each table lies; 0 for tables without an optional one."""
        fields = tables - self.signed[tables]
        if (fields < 0).any():  # NumPy would count these from the end
            raise IndexError(f"field {field}")
        has = np.flatnonzero(self.short[fields] > 4 + 2 * field)
        offset = np.zeros_like(tables)
        offset[has] = self.short[fields[has] + 4 + 2 * field]
        if not optional and not offset.all():
            raise FormatError(f"field {field} is missing")
        places: Ints = np.where(offset > 0, tables + offset, 0)
        return places

    def tables(self, table: Ints, field: int) -> Ints:
        """The tables in the vector that is a field of the only table."""
        at = self.places(table, field)
        at += self.number[at]
        count = min(int(self.number[at[0]]), len(self.body))  # more than that are outside
        places = at + 4 + 4 * np.arange(count)
        tables: Ints = places + self.number[places]
        return tables

    def contents(self, first: Ints, length: int | Ints) -> list[bytes]:
        """The bytes from these places on, as far as the file goes."""
        return [self.body[a:b] for a, b in zip(first.tolist(), (first + length).tolist(), strict=True)]

    def texts(self, places: Ints) -> list[bytes]:
        """The texts that fields point to."""
        at = places + self.number[places]
        return self.contents(at + 4, self.number[at])


ROOT = np.zeros(1, dtype=np.int64)
"""Where a file says where its first table is."""


class Snapshot:
    """A snapshot of Icechunk, in which arrays can be found."""

    def __init__(self, content: bytes) -> None:
        body = body_of(content, SNAPSHOT)
        self.nbytes = len(body)
        self._file = file = _FlatBuffer(body)
        nodes = file.tables(ROOT + file.number[ROOT], SNAPSHOT_NODES)
        paths = file.texts(file.places(nodes, NODE_PATH))
        self._nodes = dict(zip(paths, nodes.tolist(), strict=True))

    def node(self, path: str) -> tuple[bytes, list[str]]:
        """The identity of the array at a path, and the names of the files that hold its references."""
        file, place = self._file, self._nodes.get(f"/{path.strip('/')}".encode())
        if place is None:
            raise FormatError(f"there is no {path}")
        node = ROOT + place
        data = file.places(node, NODE_DATA)
        manifests = file.tables(data + file.number[data], ARRAY_MANIFESTS)
        names = file.contents(file.places(manifests, MANIFEST_REF_ID), 12)
        (identity,) = file.contents(file.places(node, NODE_ID), 8)
        return identity, [object_name(each) for each in names]


class Checksums(NamedTuple):
    """The checksums of an array's chunks."""

    chunk: Ints
    """Position in the grid of stored chunks; shape (chunks, dimensions)."""

    checksum: list[Checksum]


def read_checksums(read: FileReader, snapshot: Snapshot, path: str, ndim: int) -> Checksums:
    """The checksums of an array, from its manifests."""
    own, manifests = snapshot.node(path)
    index, checksums = [np.empty((0, ndim), dtype=np.int64)], list[Checksum]()
    for name in manifests:
        file = _FlatBuffer(body_of(read(f"manifests/{name}"), MANIFEST))
        arrays = file.tables(ROOT + file.number[ROOT], MANIFEST_ARRAYS)
        for array, identity in zip(arrays, file.contents(file.places(arrays, ARRAY_ID), 8), strict=True):
            if identity == own:
                references = file.tables(ROOT + array, ARRAY_REFS)
                index.append(_chunks(file, references, ndim))
                checksums += _checksums(file, references)
    return Checksums(np.concatenate(index), checksums)


def _chunks(file: _FlatBuffer, references: Ints, ndim: int) -> Ints:
    at = file.places(references, REF_INDEX)
    at += file.number[at]
    if (file.number[at] != ndim).any():
        raise FormatError("chunks have a different number of dimensions from their array")
    index: Ints = file.number[at[:, None] + 4 + 4 * np.arange(ndim)].astype(np.int64)
    return index


def _checksums(file: _FlatBuffer, references: Ints) -> list[Checksum]:
    modified, etag = (file.places(references, field, optional=True) for field in (REF_MODIFIED, REF_ETAG))
    seconds = np.where(modified > 0, file.number[modified], 0).tolist()
    checksums: list[Checksum] = [each or None for each in seconds]
    known: dict[bytes, str] = {}  # chunks of a file share its checksum
    has = np.flatnonzero(etag)
    for row, text in zip(has.tolist(), file.texts(etag[has]), strict=True):
        if text not in known:
            known[text] = text.decode("utf-8", "surrogateescape")
        checksums[row] = known[text]
    return checksums
