"""Putting another file in the place of a shard while processes read and write it.

Our own writers wait, and our own readers keep to the file that they have opened. Other programs know no
locks, and open the file twice: for the index, then for a chunk. A program that opens the old file first and
then the new one would follow an old entry into the new layout. So the old entry of every chunk that moves is
led astray some time before (the chunk is *parked*), and such a read fails instead. A checksum of the chunk
would not be enough, because some readers do not check it.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.codecs.shard_index import Table, is_absent
from intarsia.errors import ChunkDecodeError, SlotsUnsupportedError
from intarsia.file_io import copy_range, write_all
from intarsia.shards import files
from intarsia.shards.chunks import is_plausible_table, repair_index
from intarsia.shards.locks import lock_out_writers
from intarsia.shards.slots import PARKED, TORN, SlotIndex, SlotLayout, SlotSettings, is_marked, without_marks

ASTRAY_SECONDS = 0.2
"""Seconds for which an entry leads astray before the file is replaced: far longer than a reader takes to get
from the index to the chunk."""

COMPACTED_ATTRIBUTE = "user.intarsia.compacted"
"""Extended attribute of a shard that was compacted here, with a digest of its index: a slotted writer may
give it slots again without asking."""


@dataclass(frozen=True)
class LockedShard:
    """A shard that no other process of ours writes to."""

    path: Path
    fd: int
    index: SlotIndex
    table: Table
    """Where every chunk lies."""
    torn: np.ndarray[Any, np.dtype[np.bool_]]
    """Which chunks were half overwritten when their writer died; they stay that way."""
    nbytes: int
    """The size of the file."""
    repairable: bool
    """Whether its index could be repaired if this process died while changing it."""


@contextlib.contextmanager
def lock_shard(path: Path, index: SlotIndex, layouts: Sequence[SlotLayout]) -> Iterator[LockedShard | None]:
    """Hold the shard at `path` against all writers, and clear up after dead ones; None if there is none."""
    with files.hold_existing(path, lock_out_writers, write=True) as fd:
        if fd is None:
            yield None
            return
        files.clear_leftovers(path)
        table = repair_index(path, fd, index, layouts)
        nbytes = os.fstat(fd).st_size
        repairable = is_plausible_table(index, nbytes, table, layouts)
        yield LockedShard(path, fd, index, without_marks(table), is_marked(table, TORN), nbytes, repairable)


def dense_layout(index: SlotIndex, lengths: Mapping[int, int]) -> tuple[Table, int]:
    """The table and the size of the shard that zarr-python writes for chunks of these lengths.

    >>> from intarsia.shards.slots import SlotIndex
    >>> index = SlotIndex(grid=(3,), first=False)
    >>> table, nbytes = dense_layout(index, {0: 10, 2: 5})
    >>> table[[0, 2]].tolist(), nbytes
    ([[0, 10], [10, 5]], 67)
    """
    table = index.empty()
    end = index.nbytes if index.first else 0
    for number in sorted(lengths):
        table[number] = end, lengths[number]
        end += lengths[number]
    return table, end if index.first else end + index.nbytes


def chunk_lengths(shard: LockedShard) -> dict[int, int]:
    """The length of every chunk in the shard; raises `ChunkDecodeError` if one lies outside the file."""
    lengths = {}
    for number in np.flatnonzero(~is_absent(shard.table)).tolist():
        offset, length = (int(word) for word in shard.table[number])
        if offset + length > shard.nbytes:
            raise ChunkDecodeError(
                f"inner chunk {shard.index.coordinates(number)} of {shard.path} is damaged: it ends at byte "
                f"{offset + length} of {shard.nbytes}. Write the chunk again"
            )
        lengths[number] = length
    return lengths


def replace_file(
    shard: LockedShard,
    table: Table,
    nbytes: int,
    *,
    replaced: Mapping[int, bytes],
    slotted: bool = False,
) -> None:
    """Replace the held shard by one with this table and size.

    Chunks come from the old file, except for those in `replaced`. The new file is on disk before it appears,
    atomically. Unless it is `slotted`, it is marked as compacted.
    """
    stray = _astray(shard, table)
    with files.new_file(shard.path) as (partial, fd), _parked(shard, stray):
        since = time.monotonic()
        os.fchmod(fd, os.fstat(shard.fd).st_mode & 0o7777)
        os.ftruncate(fd, nbytes)
        if not slotted:
            files.allocate(fd, 0, nbytes)
        _copy_chunks(shard, table, fd, replaced)
        stored = shard.index.encode_numbered(_as_stored(shard, table))
        write_all(fd, [stored], shard.index.start(nbytes))
        if not slotted:
            with contextlib.suppress(OSError):  # no such attributes here: then reslot must be called
                os.setxattr(fd, COMPACTED_ATTRIBUTE, _digest(stored))
        os.fsync(fd)
        if stray:
            time.sleep(max(0.0, ASTRAY_SECONDS - (time.monotonic() - since)))
        os.replace(partial, shard.path)
        files.sync_directory(shard.path.parent)


def _copy_chunks(shard: LockedShard, table: Table, fd: int, replaced: Mapping[int, bytes]) -> None:
    """Write the chunks of a shard where the table of the new file says."""
    for number in np.flatnonzero(~is_absent(table)).tolist():
        offset = int(table[number, 0])
        if number in replaced:
            write_all(fd, [replaced[number]], offset)
        else:
            start, length = shard.table[number].tolist()
            copy_range(shard.fd, start, fd, offset, length)


def _as_stored(shard: LockedShard, table: Table) -> Table:
    """A table for the chunks of the held shard in which torn chunks stay torn."""
    table = table.copy()
    table[shard.torn, 0] |= TORN
    return table


def _digest(stored_index: bytes) -> bytes:
    return hashlib.blake2s(stored_index, digest_size=16).digest()


def _astray(shard: LockedShard, table: Table) -> list[int]:
    """The chunks whose old place holds, or may later hold, something else."""
    if not shard.repairable:
        return []
    moved = ~is_absent(shard.table) & (shard.table != table).any(axis=1)
    return [int(number) for number in np.flatnonzero(moved)]


@contextlib.contextmanager
def _parked(shard: LockedShard, numbers: Sequence[int]) -> Iterator[None]:
    """Lead the entries of some chunks of the old file astray, and back if it is not replaced."""
    table = _as_stored(shard, shard.table)

    def point(away: int) -> None:
        entries = {n: (int(table[n, 0]) | away, int(table[n, 1])) for n in numbers}
        files.write_entries(shard.fd, shard.index, entries)

    if not numbers:
        yield
        return
    try:
        point(int(PARKED))
        yield
    except BaseException:
        point(0)
        raise


def reslot_file(shard: LockedShard, layout: SlotLayout) -> None:
    """Give a held shard slots."""
    table = shard.index.empty()
    for number, length in chunk_lengths(shard).items():
        if length > layout.bound.nbytes:
            raise SlotsUnsupportedError(
                f"inner chunk {shard.index.coordinates(number)} of {shard.path} has {length} bytes, but a "
                f"slot holds only {layout.bound.nbytes}. The shard was left as it is"
            )
        table[number] = layout.offset(number), length
    replace_file(shard, table, layout.file_bytes, replaced={}, slotted=True)


def restore_slots(path: Path, settings: SlotSettings) -> bool:
    """Repair the index of a shard, give slots back if it was compacted here, and say whether it has some."""
    with lock_shard(path, settings.index, settings.layouts) as shard:
        if shard is None or settings.layout_of(shard.nbytes, shard.table) is not None:
            return True
        if not _is_marked(shard.fd, settings.index.encode_numbered(_as_stored(shard, shard.table))):
            return False
        reslot_file(shard, settings.new)
        return True


def _is_marked(fd: int, stored_index: bytes) -> bool:
    """Whether the open shard was compacted here and not touched since."""
    try:
        return os.getxattr(fd, COMPACTED_ATTRIBUTE) == _digest(stored_index)
    except OSError:
        return False
