"""HDF5 files byte by byte: what h5py does not say, and what HDF5's library never returns from.

Object headers say whether partial chunks skip all filters. Global heaps are checked before HDF5 reads them:
some damage sends it into an endless loop.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any

from intarsia.archives.locations import ReaderAround
from intarsia.extras import extra

LAYOUT, CONTINUATION = 8, 16
"""Types of messages in an object header."""


def leaves_edges_bare(dataset: Any, reader: Any) -> bool:
    """Whether the layout of a dataset, given by its identifier, has H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS."""
    h5py = extra("h5py", "virtual")
    address = h5py.h5o.get_info(dataset).addr
    user_block = h5py.h5i.get_file_id(dataset).get_create_plist().get_userblock()
    for kind, content in _messages(reader, user_block, address):
        if kind == LAYOUT:  # version, class of the layout, flags; older versions have no flags
            return content[0] >= 4 and content[1] == 2 and bool(content[2] & 1)
    return False


def _messages(reader: Any, base: int, address: int) -> Iterator[tuple[int, bytes]]:
    """Type and content of every message in an object header, in either version that HDF5 specifies."""

    def read(at: int, count: int) -> bytes:
        reader.seek(base + at)
        data: bytes = reader.read(count)
        return data

    head = read(address, 64)
    is_new = head[:4] == b"OHDR"
    if is_new:
        flags = head[5]
        start = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)  # times, limits of attributes
        width = 1 << (flags & 3)
        blocks = [(address + start + width, int.from_bytes(head[start : start + width], "little"))]
        entry, skipped = Struct("<BHB"), 2 if flags & 4 else 0  # numbered in order of creation
    else:
        blocks = [(address + 16, int.from_bytes(head[8:12], "little"))]
        entry, skipped = Struct("<HHB3x"), 0
    while blocks:
        data, at = read(*blocks.pop(0)), 0
        while at + entry.size <= len(data):
            kind, length, _ = entry.unpack_from(data, at)
            at += entry.size + skipped
            content = data[at : at + length]
            if kind == CONTINUATION:
                place, size = Struct("<QQ").unpack_from(content)
                blocks.append((place + 4, size - 8) if is_new else (place, size))  # signature, checksum
            yield kind, content
            at += length


SIGNATURE = b"GCOL\x01\0\0\0"
HEAD, OBJECT = Struct("<8sQ"), Struct("<H6xQ")
"""The heads of a collection (signature and size) and of an object (number first, size last)."""

MOST_HEAP_BYTES = 1 << 24

FURTHEST = 1 << 63
"""HDF5 counts modulo twice this: so long a step leads backwards, or nowhere."""


class HeapReader(ReaderAround):
    """Reads for HDF5, and refuses a global heap with a step that does not lead forwards."""

    def readinto(self, buffer: Any, /) -> int:
        start = self.tell()
        count: int = self._reader.readinto(buffer)
        heap = bytes(memoryview(buffer)[:count]).find(SIGNATURE)
        if heap >= 0:
            self._check(start + heap)
            self.seek(start + count)
        return count

    def _check(self, start: int) -> None:
        self.seek(start)
        head = self._reader.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        _, size = HEAD.unpack(head)
        heap = head + self._reader.read(max(0, min(size, MOST_HEAP_BYTES) - HEAD.size))
        if is_endless(heap):
            raise OSError(
                f"the global heap at byte {start} is damaged: "
                "free space in it has no length, or an object in it is larger than any file"
            )


def has_endless_heap(content: bytes) -> bool:
    """Whether anything in a file that looks like a global heap has no end.

    >>> has_endless_heap(b"data" + HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(32))
    True
    """
    start = content.find(SIGNATURE)
    while start >= 0:
        size = HEAD.unpack_from(content, start)[1] if start + HEAD.size <= len(content) else 0
        if is_endless(content[start : start + min(size, MOST_HEAP_BYTES)]):
            return True
        start = content.find(SIGNATURE, start + 1)
    return False


def is_endless(heap: bytes) -> bool:
    """Whether going from object to object in a collection never ends.

    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(8) + OBJECT.pack(0, 24) + bytes(8))
    False
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(32))
    True
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 2**64 - 1) + bytes(32))
    True
    """
    at = HEAD.size
    while at + OBJECT.size <= len(heap):
        number, size = OBJECT.unpack_from(heap, at)
        step = OBJECT.size + (size + 7) // 8 * 8 if number else size
        if not 0 < step < FURTHEST:
            return True
        at += step
    return False
