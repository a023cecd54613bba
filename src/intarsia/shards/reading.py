"""Reading chunks of one shard file, slotted or not, beside processes that write and replace it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.codecs.shard_index import NO_ENTRY, Table
from intarsia.errors import ChunkDecodeError
from intarsia.shards import files
from intarsia.shards.locks import lock_chunks, lock_index
from intarsia.shards.mending import TORN, check_believable, torn_message, unparked

if TYPE_CHECKING:
    from intarsia.shards.slots import SlotIndex, SlotLayout


BATCH = 16 << 20
"""Bytes of slots that one lock covers: more would keep other processes waiting, less costs more locks."""


def in_batches(numbers: Iterable[int], slot: int) -> Iterator[list[int]]:
    """Sorted numbers in lists that span no more slots than one lock should cover.

    >>> list(in_batches([0, 1, 5, 9], slot=4 << 20))
    [[0, 1], [5], [9]]
    """
    span = max(1, BATCH // max(1, slot))
    batch: list[int] = []
    for number in sorted(numbers):
        if batch and number - batch[0] >= span:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


@contextmanager
def held_chunks(path: Path, first: int, last: int, *, write: bool) -> Iterator[int | None]:
    """The file at `path` with some chunks locked, certain not to be replaced meanwhile; None without one."""
    while True:
        with files.opened(path, write=write) as fd:
            if fd is None:
                yield None
                return
            with lock_chunks(fd, first, last, exclusive=write):
                if files.is_current(fd, path):
                    yield fd
                    return


def locked_entries(fd: int, index: SlotIndex, numbers: Sequence[int]) -> tuple[Table, bool]:
    """The rows of some chunks as some writer left them, and whether the checksum of the index agrees."""
    with lock_index(fd, exclusive=False) if index.checksum else nullcontext():
        return files.read_entries(fd, index, numbers)


def locked_index(fd: int, index: SlotIndex) -> tuple[Table, bool]:
    """The table of an open shard as some writer left it, and whether its checksum agrees."""
    with lock_index(fd, exclusive=False) if index.checksum else nullcontext():
        return files.read_index(fd, index)


def read_chunks(
    path: Path, index: SlotIndex, numbers: Sequence[int], layouts: Sequence[SlotLayout]
) -> dict[int, bytes] | None:
    """The stored bytes of some chunks, which one lock covers; None if there is no file.

    A chunk that was never written is missing in the result. `layouts` are those in which the shard may
    have been written slot by slot: then an index whose checksum is out of date is still good.
    """
    with held_chunks(path, min(numbers), max(numbers), write=False) as fd:
        if fd is None:
            return None
        rows, intact = locked_entries(fd, index, numbers)
        if not intact:
            table, intact = locked_index(fd, index)
            if not intact:
                check_believable(path, index, os.fstat(fd).st_size, unparked(table), layouts)
        stored: dict[int, bytes] = {}
        for number, (offset, length) in zip(numbers, unparked(rows).tolist(), strict=True):
            if (offset, length) == NO_ENTRY:
                continue
            if offset & int(TORN):
                raise ChunkDecodeError(torn_message(path, index.coordinates(number)))
            try:
                stored[number] = files.read_exactly(fd, length, offset)
            except (ChunkDecodeError, OSError, OverflowError) as error:
                where = f"inner chunk {index.coordinates(number)} of {path}"
                raise ChunkDecodeError(f"{where} cannot be read: {error}") from error
        return stored
