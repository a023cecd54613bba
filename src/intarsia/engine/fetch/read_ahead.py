"""Telling the system which files come next, if they are not in memory yet.

Reading many small files from a disk means waiting for one after the other, unless the system is told about
them beforehand: it then reads many at a time. Asking whether a file is in memory takes less than a
microsecond, and nothing else is done for files that are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from intarsia.engine.fetch.store import Encoded, one_span
from intarsia.errors import IntarsiaError, signal_failure

if TYPE_CHECKING:
    from intarsia.engine.chunk_codecs import Decoder

MOST_FILES = 64
"""This many files are on their way at a time: with 32, reads took a third longer."""

MOST_BYTES = 16 << 20
"""This many bytes are on their way at a time, and no more than that of a single file."""

LOOK_EVERY = 16
"""After a file that is in memory, this many are passed over before the next check."""

_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
_CAN_TELL = _NO_WAIT != 0 and hasattr(os, "posix_fadvise")


def is_in_memory(file: int, offset: int = 0) -> bool:
    """Whether the byte at this place of an open file can be read without waiting for a disk.

    If the system does not say, the byte counts as being in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     is_in_memory(file.fileno())
    True
    """
    if not _CAN_TELL:
        return True
    try:
        os.preadv(file, [bytearray(1)], offset, _NO_WAIT)
    except BlockingIOError:
        return False
    except OSError:  # this file system cannot say
        return True
    return True


class Disk:
    """What was last seen of files that lie together."""

    def __init__(self) -> None:
        self.is_cold = False
        """Whether the system had to be told about the files that came next."""


class FilesInTurn:
    """Bytes of files that are read one after the other, while the system is told which come next.

    `open_file` opens the file at a position; if it raises OSError, `otherwise` says what replaces the file's
    bytes, or raises. The bytes of each file are wanted from `starts` on, all of them if the length is None.
    """

    def __init__(
        self,
        open_file: Callable[[int], int],
        starts: Sequence[int],
        lengths: Sequence[int | None],
        decoder: Decoder,
        disk: Disk,
        otherwise: Callable[[int, OSError], Encoded | None],
    ) -> None:
        self._open, self._starts, self._lengths = open_file, starts, lengths
        self._disk, self._otherwise, self._is_compressed = disk, otherwise, not decoder.is_raw
        self._each = min(max(decoder.nbytes, 1), MOST_BYTES)
        self._step = min(MOST_FILES, MOST_BYTES // self._each)
        self._told = 0
        """The system has been told about the files before this one."""

    def begin(self) -> None:
        """Announce that the files will soon be read."""
        if self._disk.is_cold:
            self._tell(self._step)

    def __iter__(self) -> Iterator[Encoded | None]:
        look_at = 0
        for i, (first, length) in enumerate(zip(self._starts, self._lengths, strict=True)):
            try:
                file = self._open(i)
            except OSError as error:
                if error.errno is None:  # not from the system: a signal handler may raise a TimeoutError
                    raise
                yield self._otherwise(i, error)
                continue
            if i >= look_at:
                look_at = i + self._look(i, file)
            yield from one_span(file, first, length, self._is_compressed)

    def _look(self, position: int, file: int) -> int:
        """Check whether this file, which is being read, is in memory, and act on it; returns how many files
        later to look again."""
        if position >= self._told:
            self._disk.is_cold = not is_in_memory(file, max(0, self._starts[position]))
            self._told = position + 1
        if not self._disk.is_cold:
            return LOOK_EVERY
        self._tell(position + 1 + self._step)
        return max(1, self._step // 2)

    def _tell(self, until: int) -> None:
        first, self._told = self._told, min(until, len(self._starts))
        for position in range(first, self._told):
            try:
                file = self._open(position)
            except (OSError, IntarsiaError) as error:
                if signal_failure(error) is not None:
                    raise
                continue  # the error is raised when it is read
            try:
                start = max(0, self._starts[position])
                if position == first and is_in_memory(file, start):
                    self._disk.is_cold = False  # and so are those after it, as far as can be told
                    return
                os.posix_fadvise(file, start, self._each, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(file)
