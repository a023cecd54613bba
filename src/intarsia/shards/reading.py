"""Reading chunks of one shard file, slotted or not, beside processes that write and replace it.

A process that died may leave an index half changed: what of it can be believed, and how it is put right.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codecs.shard_index import NO_ENTRY, Table, absent
from intarsia.errors import ChunkDecodeError
from intarsia.shards import files
from intarsia.shards.locks import lock_chunks, lock_index

if TYPE_CHECKING:
    from intarsia.shards.slots import SlotIndex, SlotLayout

BATCH = 16 << 20
"""Bytes of slots that one lock covers: more would keep other processes waiting, less costs more locks."""

PARKED = np.uint64(1 << 62)
"""Added to an offset, it leads beyond the end of every file: who follows it fails instead of reading
something else, and taking it away again loses nothing."""

TORN = np.uint64(1 << 61)
"""Added to the offset of a chunk while its only slot is overwritten, with the same effect. If the writer dies
it stays: some readers check neither the length of a chunk nor its checksum, so nobody may find the chunk."""


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


def parked(table: Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which chunks a compaction has put out of the way of readers; only one that died leaves any."""
    return np.asarray((table[:, 0] & PARKED != 0) & ~absent(table), dtype=np.bool_)


def unparked(table: Table) -> Table:
    """The table with all chunks where they really are."""
    where = parked(table)
    if not where.any():
        return table
    table = table.copy()
    table[where, 0] &= ~PARKED
    return table


def torn(table: Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which chunks were being overwritten in their only slot when their writer died."""
    return np.asarray((table[:, 0] & TORN != 0) & ~absent(table), dtype=np.bool_)


def placed(table: Table) -> Table:
    """The table with all chunks where their bytes are, good or not."""
    table, where = unparked(table), torn(table)
    if not where.any():
        return table
    table = table.copy()
    table[where, 0] &= ~TORN
    return table


def believable(index: SlotIndex, file_bytes: int, table: Table, layouts: Sequence[SlotLayout]) -> bool:
    """Whether a table makes sense without its checksum: chunks in slots, or one behind the other, no gaps."""
    if any(layout.file_bytes == file_bytes and layout.holds(table) for layout in layouts):
        return True
    rows = placed(table)[~absent(table)]
    rows = rows[np.argsort(rows[:, 0])]
    start = np.array([index.nbytes if index.first else 0], dtype=np.uint64)
    ends = np.concatenate([start, rows[:, 0] + rows[:, 1]])
    data_end = file_bytes if index.first else file_bytes - index.nbytes
    return bool(np.array_equal(ends[:-1], rows[:, 0]) and ends[-1] == data_end)


def check_believable(
    path: Path, index: SlotIndex, file_bytes: int, table: Table, layouts: Sequence[SlotLayout]
) -> None:
    """Raise `ChunkDecodeError` unless a dying process may have left a table without its checksum."""
    if not believable(index, file_bytes, table, layouts):
        raise ChunkDecodeError(
            f"the index of the shard {path} does not agree with its checksum, and makes no sense without: "
            "the file is damaged"
        )


def torn_message(path: Path, coordinates: tuple[int, ...]) -> str:
    """What to say of a chunk whose slot was being overwritten when its writer died."""
    return (
        f"inner chunk {coordinates} of {path} was being overwritten when its writer died: neither its old "
        "nor its new value is left. Write the whole chunk again"
    )


def mend(path: Path, fd: int, index: SlotIndex, layouts: Sequence[SlotLayout]) -> Table:
    """Put right what a writer or a compaction that died left in the index; returns where every chunk is.

    The caller keeps all writers out.
    """
    table, intact = files.read_index(fd, index)
    if intact and not parked(table).any():
        return table
    size, table = os.fstat(fd).st_size, unparked(table)
    if not intact:
        check_believable(path, index, size, table, layouts)
    with lock_index(fd, exclusive=True):
        files.write_all(fd, [index.encode_numbered(table)], index.start(size))
    os.fsync(fd)
    return table
