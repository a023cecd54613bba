"""Copying chunks from one shard file to another: neighbours together, the disk at work meanwhile."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from intarsia.errors import ChunkDecodeError
from intarsia.shards import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Piece", "copy_pieces"]

WINDOW = 2 << 20
"""Bytes that are read at a time: enough to make system calls cheap, and still in the processor's caches."""

GAP = 4 << 10
"""Bytes between two chunks that are cheaper to read than to leave out."""

STEP = 8 << 20
"""Bytes after which the disk is set to work on them, so that the final wait for it is short."""


class Piece(NamedTuple):
    """A chunk to be copied."""

    start: int
    """Where it is in the old file."""

    length: int
    """Its bytes."""

    place: int
    """Where it goes in the new file."""

    replacement: bytes | None
    """What goes there instead, if anything."""


def copy_pieces(source: int, fd: int, pieces: Iterable[Piece]) -> None:
    """Bring all pieces, in the order of their places, from `source` to `fd`.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as old, tempfile.TemporaryFile() as new:
    ...     _ = old.write(b"abc-def-----ghi"), old.flush()
    ...     pieces = Piece(12, 3, 0, None), Piece(0, 3, 3, None), Piece(4, 3, 6, b"DEF")
    ...     copy_pieces(old.fileno(), new.fileno(), pieces)
    ...     new.read()
    b'ghiabcDEF'
    """
    target = _Target(fd)
    buffer = memoryview(bytearray(WINDOW))
    for group in _read_together(pieces):
        first, last = group[0], group[-1]
        if first.replacement is not None:
            target.put(memoryview(first.replacement), first.place)
            continue
        end = last.start + last.length
        for start in range(first.start, end, WINDOW):
            window = buffer[: min(WINDOW, end - start)]
            if os.preadv(source, [window], start) < len(window):
                raise ChunkDecodeError("the shard became shorter while it was copied")
            for piece in group:
                low, high = max(piece.start, start), min(piece.start + piece.length, start + len(window))
                if low < high:
                    target.put(window[low - start : high - start], piece.place + low - piece.start)
            target.flush()  # before the buffer is used again
    target.flush()


def _read_together(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces that lie close together in the old file; one that is replaced, or very long, goes alone."""
    group: list[Piece] = []
    for piece in pieces:
        if group:
            last = group[-1]
            gap = piece.start - (last.start + last.length)
            close = 0 <= gap <= GAP and piece.start + piece.length - group[0].start <= WINDOW
            if not close or piece.replacement is not None or last.replacement is not None:
                yield group
                group = []
        group.append(piece)
    if group:
        yield group


@dataclass
class _Target:
    """A file being filled from its start to its end."""

    fd: int
    waiting: list[bytes | memoryview] = field(default_factory=list)
    place: int = 0
    end: int = 0
    begun: int = 0

    def put(self, data: memoryview, place: int) -> None:
        """Have `data` written to `place`, together with what is there before it."""
        gap = place - self.end
        if self.waiting and 0 < gap < 8:  # the rounding of a slot
            self.waiting.append(bytes(gap))
        elif self.waiting and gap:
            self.flush()
        if not self.waiting:
            self.place = place
        self.waiting.append(data)
        self.end = place + len(data)

    def flush(self) -> None:
        """Write what waits."""
        if self.waiting:
            files.write_all(self.fd, self.waiting, self.place)
            self.waiting.clear()
        if self.end - self.begun >= STEP:
            # Of pages that are not on disk yet, "not needed" means: begin to write them.
            os.posix_fadvise(self.fd, self.begun, self.end - self.begun, os.POSIX_FADV_DONTNEED)
            self.begun = self.end
