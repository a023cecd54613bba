"""Chunks of one shard file, read and written while other processes write and replace it.

A process that dies may leave an index half changed. This says what of it can be believed, and repairs it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import batched
from pathlib import Path

import numpy as np

from intarsia.codecs.shard_index import NO_ENTRY, Table, is_absent
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, SlotsGoneError
from intarsia.file_io import read_exactly, write_all
from intarsia.shards import files
from intarsia.shards.locks import lock_chunks, lock_index
from intarsia.shards.slots import (
    PARKED,
    TORN,
    SlotIndex,
    SlotLayout,
    SlotSettings,
    is_marked,
    without_marks,
)

BATCH = 16 << 20
"""Bytes of slots that one lock covers: more would keep other processes waiting, less takes more locks."""


def in_batches(numbers: Iterable[int], slot: int) -> Iterator[tuple[int, ...]]:
    """Sorted numbers, in tuples of as many slots as one lock should cover.

    >>> list(in_batches([9, 0, 1, 5], slot=8 << 20))
    [(0, 1), (5, 9)]
    """
    return batched(sorted(numbers), max(1, BATCH // max(1, slot)))


def hold_chunks(path: Path, first: int, last: int, *, write: bool) -> AbstractContextManager[int | None]:
    """The file at `path` with some chunks locked, so that nobody replaces it; None if there is none."""
    return files.hold_existing(
        path, partial(lock_chunks, first=first, last=last, exclusive=write), write=write
    )


def read_chunks(
    path: Path, index: SlotIndex, numbers: Sequence[int], layouts: Sequence[SlotLayout]
) -> dict[int, bytes] | None:
    """The stored bytes of some chunks that one lock covers; None if there is no file.

    A chunk that was never written is absent from the result. `layouts` are those in which the shard may
    have been written slot by slot: in these, an index with an outdated checksum is still good.
    """
    with hold_chunks(path, min(numbers), max(numbers), write=False) as fd:
        if fd is None:
            return None
        rows, intact = files.read_entries(fd, index, numbers)
        if not intact:
            read_plausible_table(path, fd, index, layouts)
        entries = zip(numbers, without_marks(rows, PARKED).tolist(), strict=True)
        found = {number: _stored_bytes(path, fd, index, number, entry) for number, entry in entries}
        return {number: data for number, data in found.items() if data is not None}


def _stored_bytes(path: Path, fd: int, index: SlotIndex, number: int, entry: Sequence[int]) -> bytes | None:
    """The stored bytes of a chunk with this entry in the index; None if it was never written."""
    offset, length = entry
    if (offset, length) == NO_ENTRY:
        return None
    if offset & int(TORN):
        raise ChunkDecodeError(
            f"inner chunk {index.coordinates(number)} of {path} was half overwritten when its writer died. "
            "Write the whole chunk again"
        )
    try:
        return bytes(read_exactly(fd, offset, length))
    except (ChunkDecodeError, OSError, OverflowError) as error:
        where = f"inner chunk {index.coordinates(number)} of {path}"
        raise ChunkDecodeError(f"{where} cannot be read: {error}") from error


def is_plausible_table(
    index: SlotIndex, file_bytes: int, table: Table, layouts: Sequence[SlotLayout]
) -> bool:
    """Whether a table makes sense without its checksum: chunks in slots, or in a row without gaps."""
    if any(layout.file_bytes == file_bytes and layout.holds(table) for layout in layouts):
        return True
    rows = without_marks(table)[~is_absent(table)]
    rows = rows[np.argsort(rows[:, 0])]
    start = np.array([index.nbytes if index.first else 0], dtype=np.uint64)
    ends = np.concatenate([start, rows[:, 0] + rows[:, 1]])
    data_end = file_bytes if index.first else file_bytes - index.nbytes
    return bool(np.array_equal(ends[:-1], rows[:, 0]) and ends[-1] == data_end)


def read_plausible_table(
    path: Path, fd: int, index: SlotIndex, layouts: Sequence[SlotLayout]
) -> tuple[Table, bool]:
    """The whole table of an open shard as a writer left it, and whether its checksum agrees.

    Raises `ChunkDecodeError` unless it agrees, or a dying process may have left the table without it.
    """
    table, intact = files.read_entries(fd, index)
    real = without_marks(table, PARKED)
    if not intact and not is_plausible_table(index, os.fstat(fd).st_size, real, layouts):
        raise ChunkDecodeError(
            f"the index of the shard {path} does not match its checksum and makes no sense: it is damaged"
        )
    return table, intact


def repair_index(path: Path, fd: int, index: SlotIndex, layouts: Sequence[SlotLayout]) -> Table:
    """Repair what a writer or a compaction that died left in the index, and return where every chunk is.

    The caller keeps all writers out.
    """
    table, intact = read_plausible_table(path, fd, index, layouts)
    if intact and not is_marked(table, PARKED).any():
        return table
    table = without_marks(table, PARKED)
    with lock_index(fd, exclusive=True):
        write_all(fd, [index.encode_numbered(table)], index.start(os.fstat(fd).st_size))
    os.fsync(fd)
    return table


WORTH_ALLOCATING = 64 << 10
"""From this size on, it pays to have the file system allocate a slot before it is written: the write then
holds the file's own lock for a shorter time."""


@dataclass(frozen=True)
class SlotWrite:
    """A pending write of one chunk."""

    number: int
    """The number of the chunk in the shard."""

    encode: Callable[[bytes | None], memoryview | None]
    """Takes the stored bytes, or None, and returns the new ones, or None to store nothing."""

    partial: bool
    """Whether it needs the stored bytes."""


def write_slots(
    path: Path,
    settings: SlotSettings,
    writes: Sequence[SlotWrite],
    restore: Callable[[Path, SlotSettings], bool],
) -> None:
    """Carry out `writes`, which one lock covers; the shard is created if necessary.

    Chunks are encoded without holding a lock, because codecs may run for long and decisions may read this
    very shard, or need threads that wait for it. So to replace part of a chunk it is read, unlocked, encoded,
    and written only if it is still what was read; if not, another writer has made progress. `restore` is
    called with a shard that has no slots, or an index that a writer that died left half changed; it repairs
    that, and says whether the shard has slots now.
    """
    numbers = [write.number for write in writes]
    updates = {write.number: write for write in writes if write.partial}
    encoded = {write.number: write.encode(None) for write in writes if not write.partial}
    merged: dict[int, bytes | None] = {}  # the stored bytes that the updates were merged with

    while True:
        slots, stored = None, dict[int, bytes | None].fromkeys(updates)
        with hold_chunks(path, numbers[0], numbers[-1], write=True) as fd:
            if fd is not None:
                slots = _find_slots(path, fd, settings, numbers)
            if slots is not None:
                stored = {number: slots.stored(number) for number in updates}
                if stored == merged:
                    slots.write(encoded)
                    break
        if fd is not None and slots is None:
            if not restore(path, settings):
                raise SlotsGoneError(
                    f"the shard {path} does not have {settings.new.copies} slots of {settings.new.slot} "
                    "bytes per chunk: another program wrote it. Nothing was written.\n"
                    "  Stop that program, then intarsia.shards.reslot(array)"
                )
            continue
        for number, write in updates.items():
            if number not in merged or merged[number] != stored[number]:
                encoded[number], merged[number] = write.encode(stored[number]), stored[number]
        if fd is None:
            if all(data is None for data in encoded.values()):
                break
            files.create_shard_file(path, settings.new)
    if settings.fsync:
        files.sync_names(path, settings.durable)


MAX_CHECKED = 1 << 16
"""How many files a handle remembers, in a few MB."""


def _find_slots(path: Path, fd: int, settings: SlotSettings, numbers: Sequence[int]) -> "_Slots | None":
    """The slots of an open shard; None if it has none, or its index has to be repaired first."""
    rows, intact = files.read_entries(fd, settings.index, numbers)
    if not intact or is_marked(rows, PARKED).any():
        return None
    status = os.fstat(fd)
    layout = settings.layout_of(status.st_size, rows, numbers)
    if layout is None:
        return None
    file = (status.st_dev, status.st_ino, status.st_size)
    if file not in settings.checked:  # another program may have made a file of the same size
        table, _ = files.read_entries(fd, settings.index)
        if not layout.holds(without_marks(table, PARKED)):
            return None
        if len(settings.checked) >= MAX_CHECKED:
            settings.checked.clear()
        settings.checked.add(file)
    entries = dict(zip(numbers, map(tuple, rows.tolist()), strict=True))
    return _Slots(path, fd, settings, layout, entries)


@dataclass(frozen=True)
class _Slots:
    """An open shard with slots, some of which the caller holds for writing."""

    path: Path
    fd: int
    settings: SlotSettings
    layout: SlotLayout
    entries: dict[int, tuple[int, int]]
    """What the index says about those chunks."""

    def stored(self, number: int) -> bytes | None:
        """The stored bytes of a chunk."""
        return _stored_bytes(self.path, self.fd, self.settings.index, number, self.entries[number])

    def write(self, encoded: dict[int, memoryview | None]) -> None:
        """Write payloads, then entries. A failure before a chunk's only slot is overwritten harms nothing."""
        payloads = {number: data for number, data in encoded.items() if data is not None}
        for number, data in payloads.items():
            if len(data) > self.layout.bound.nbytes:
                raise ChunkEncodeError(
                    f"inner chunk {self.settings.index.coordinates(number)} of {self.path} was encoded to "
                    f"{len(data)} bytes, but its codecs promised {self.layout.bound.nbytes}: not written"
                )
        offsets = {number: self._free_slot(number) for number in payloads}
        overwritten = [n for n in offsets if self.layout.copies == 1 and self.entries[n] != NO_ENTRY]
        for number, data in payloads.items():
            if overwritten or len(data) >= WORTH_ALLOCATING:
                files.allocate(self.fd, offsets[number], len(data))
        self._publish({n: (offsets[n] | int(TORN), self.entries[n][1]) for n in overwritten})
        for number, data in payloads.items():
            write_all(self.fd, [data], offsets[number])
        if self.settings.fsync:
            os.fdatasync(self.fd)
        self._publish(
            {n: NO_ENTRY if data is None else (offsets[n], len(data)) for n, data in encoded.items()}
        )
        if not files.is_current(self.fd, self.path):
            raise SlotsGoneError(
                f"another program replaced or removed the shard {self.path}: the write is lost.\n"
                "  Stop that program, then intarsia.shards.reslot(array), and write again"
            )

    def _free_slot(self, number: int) -> int:
        """Where to write: if there are two slots, into the one that the index does not name."""
        entry = self.entries[number]
        in_force = None if entry == NO_ENTRY else self.layout.copy_at(entry[0] & ~int(TORN))
        return self.layout.offset(number, 1 if self.layout.copies == 2 and in_force == 0 else 0)

    def _publish(self, entries: dict[int, tuple[int, int]]) -> None:
        changed = {n: entry for n, entry in entries.items() if entry != self.entries[n]}
        if not changed:
            return
        index = self.settings.index
        files.write_entries(self.fd, index, changed)
        self.entries.update(changed)
        if self.settings.fsync:
            os.fdatasync(self.fd)
