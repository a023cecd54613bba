"""Global heaps of HDF5 files, looked at before HDF5 does: of one damage, its library never returns."""

import io
from struct import Struct
from typing import Any

SIGNATURE = b"GCOL\x01\0\0\0"
HEAD, OBJECT = Struct("<8sQ"), Struct("<H6xQ")
"""A collection begins with its signature and size; an object with its number, and its size at the end."""

MOST_BYTES = 1 << 24


class HeapReader(io.RawIOBase):
    """Reads for HDF5, and refuses a global heap in which free space has no length."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        at: int = self._reader.seek(offset, whence)
        return at

    def tell(self) -> int:
        at: int = self._reader.tell()
        return at

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
        heap = head + self._reader.read(max(0, min(size, MOST_BYTES) - HEAD.size))
        if is_endless(heap):
            raise OSError(f"the global heap at byte {start} is damaged: free space in it has no length")


def is_endless(heap: bytes) -> bool:
    """Whether going from object to object in a collection never comes to an end.

    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(8) + OBJECT.pack(0, 24) + bytes(8))
    False
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(32))
    True
    """
    at = HEAD.size
    while at + OBJECT.size <= len(heap):
        number, size = OBJECT.unpack_from(heap, at)
        step = OBJECT.size + (size + 7) // 8 * 8 if number else size
        if not step:
            return True
        at += step
    return False
