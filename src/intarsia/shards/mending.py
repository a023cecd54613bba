"""What a process that died may leave in an index: what can be believed, and putting it right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codecs.shard_index import Table, absent
from intarsia.errors import ChunkDecodeError
from intarsia.shards import files
from intarsia.shards.locks import lock_index

if TYPE_CHECKING:
    from intarsia.shards.slots import SlotIndex, SlotLayout


PARKED = np.uint64(1 << 62)
"""Added to an offset, it leads beyond the end of every file: who follows it fails instead of reading
something else, and taking it away again loses nothing."""

TORN = np.uint64(1 << 61)
"""Added to the offset of a chunk while its only slot is overwritten, with the same effect. If the writer dies
it stays: some readers check neither the length of a chunk nor its checksum, so nobody may find the chunk."""


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
