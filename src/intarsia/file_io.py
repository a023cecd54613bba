"""Reading and writing parts of an open file to the end, however little the system takes at a time.

It takes no more than 2 GiB in one call, and may take less at any time.
"""

import os
from collections import deque
from collections.abc import Buffer, Iterable
from itertools import islice

from intarsia.errors import ChunkDecodeError

WINDOW = 2 << 20
"""Bytes that are copied at a time: enough to make system calls cheap, and still in the processor's caches."""

MAX_BUFFERS = 512
"""The most buffers for one call; every system allows that many."""


def read_exactly(file: int, offset: int, nbytes: int) -> bytes | bytearray:
    """`nbytes` bytes of an open file from `offset` on; raises `ChunkDecodeError` if it ends before that.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = write_all(file.fileno(), [b"abc", b"def"], 2)
    ...     read_exactly(file.fileno(), 3, 4)
    b'bcde'
    """
    content = os.pread(file, nbytes, offset)
    if len(content) == nbytes:
        return content
    whole = bytearray(nbytes)
    whole[: len(content)] = content
    read_rest(file, offset, memoryview(whole), len(content))
    return whole


def read_rest(file: int, offset: int, destination: memoryview, count: int) -> None:
    """Fill memory with the bytes from `offset` on, of which it already has the first `count`."""
    nbytes = len(destination)
    while count < nbytes:
        more = os.preadv(file, [destination[count:]], offset + count)
        if not more:
            raise ChunkDecodeError(
                f"its file is cut off: {name_of(file)} has {count} of {nbytes} bytes from {offset} on"
            )
        count += more


def write_all(file: int, buffers: Iterable[Buffer], offset: int = 0) -> int:
    """Write the buffers one after another from `offset`, and return where they end.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     write_all(file.fileno(), [b"abc", b"def"], 10)
    16
    """
    left = deque(memoryview(buffer).cast("B") for buffer in buffers)
    while left:
        written = os.pwritev(file, list(islice(left, MAX_BUFFERS)), offset)
        offset += written
        while left and written >= left[0].nbytes:
            written -= left.popleft().nbytes
        if written:
            left[0] = left[0][written:]
    return offset


def copy_range(source: int, start: int, target: int, place: int, nbytes: int) -> None:
    """Copy bytes of one open file to a place in another.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as old, tempfile.TemporaryFile() as new:
    ...     _ = old.write(b"abc-def"), old.flush()
    ...     copy_range(old.fileno(), 4, new.fileno(), 1, 3)
    ...     new.read()
    b'\\x00def'
    """
    for at in range(0, nbytes, WINDOW):
        write_all(target, [read_exactly(source, start + at, min(WINDOW, nbytes - at))], place + at)


def name_of(file: int) -> str:
    """The path of an open file, if the system tells it."""
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return "the file"
