"""Reading and writing the slots of one shard file, beside other processes that do the same."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import ChunkDecodeError, ChunkEncodeError, SlotsGoneError
from intarsia.shards import files
from intarsia.shards.layout import ABSENT, PARKED, IndexForm, SlotLayout, absent
from intarsia.shards.locks import lock_chunks, lock_index, lock_out_writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from intarsia.shards.bound import EncodedBound
    from intarsia.shards.layout import Table

__all__ = ["SlotForm", "SlotWrite", "in_batches", "mend", "read_chunks", "write_slots"]

BATCH = 4 << 20
"""Bytes of slots that one lock covers: more would keep other processes waiting, less costs more locks."""

WORTH_ALLOCATING = 64 << 10
"""From this size on, having the file system allocate a slot before writing it pays: the write holds the
file's own lock for a shorter time, and a full disk is noticed before anything is overwritten."""

NO_ENTRY = (int(ABSENT), int(ABSENT))


type Payload = tuple[bytes | memoryview, ...]
"""What is stored of a chunk, in parts that need not be joined in memory."""


def size_of(payload: Payload) -> int:
    """The bytes of a payload.

    >>> size_of((b"abc", b"de"))
    5
    """
    return sum(map(len, payload))


@dataclass(frozen=True)
class SlotForm:
    """How one array wants its shards to be.

    >>> from intarsia.shards.bound import EncodedBound
    >>> index = IndexForm(grid=(4,), first=False, big_endian=False, checksum=False)
    >>> SlotForm(index, EncodedBound(8, fixed=True, checksum=False), safe_readers=True).new.copies
    2
    """

    index: IndexForm
    """How the index is stored."""

    bound: EncodedBound
    """What a slot has to hold."""

    safe_readers: bool
    """Whether a chunk that is rewritten stays readable: two slots a chunk."""

    fsync: bool = False
    """Whether a write returns only when it would survive a power loss."""

    layouts: tuple[SlotLayout, SlotLayout] = field(init=False, repr=False)
    """With one and with two slots a chunk."""

    def __post_init__(self) -> None:
        both = (SlotLayout(self.index, self.bound, 1), SlotLayout(self.index, self.bound, 2))
        object.__setattr__(self, "layouts", both)

    @property
    def new(self) -> SlotLayout:
        """The layout of shards that are created."""
        return self.layouts[1 if self.safe_readers else 0]

    def layout_of(self, file_bytes: int, table: Table) -> SlotLayout | None:
        """The layout of an existing shard; None if its chunks do not lie in slots that will do."""
        for layout in self.layouts[self.safe_readers :]:
            if layout.file_bytes == file_bytes and layout.holds(table):
                return layout
        return None


@dataclass(frozen=True)
class SlotWrite:
    """What is to become of one chunk."""

    number: int
    """Which chunk of the shard."""

    encode: Callable[[bytes | None], Payload | None]
    """From what is stored, or None, to what shall be stored, or None for nothing."""

    partial: bool
    """Whether it needs what is stored."""


def in_batches(numbers: Iterable[int], slot: int) -> Iterator[list[int]]:
    """Sorted numbers in lists that span no more slots than one lock should cover.

    >>> list(in_batches([0, 1, 5, 9], slot=1 << 20))
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
def _held(path: Path, first: int, last: int, *, write: bool) -> Iterator[int | None]:
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


def write_slots(
    path: Path, form: SlotForm, writes: Sequence[SlotWrite], restore: Callable[[Path, SlotForm], bool]
) -> None:
    """Carry out `writes`, which one lock covers; a shard is created if it must be.

    `restore` is called with a shard that has no slots, and says whether it made some.
    """
    encoded = {write.number: write.encode(None) for write in writes if not write.partial}
    first, last = writes[0].number, writes[-1].number
    while True:
        sound = False
        with _held(path, first, last, write=True) as fd:
            if fd is not None:
                table, intact = locked_index(fd, form.index)
                sound = intact and not parked(table).any()
                layout = form.layout_of(os.fstat(fd).st_size, table)
                if sound and layout is not None:
                    _Slots(path, fd, form, layout, table).write(writes, encoded)
                    if files.is_current(fd, path):
                        return
                    raise SlotsGoneError(
                        f"the shard {path} was replaced or removed while it was written to, by a program "
                        "that knows nothing of slots: the write is lost.\n"
                        "  Stop that program, then intarsia.reslot(array), and write again"
                    )
        if fd is None:
            fresh = (encoded[w.number] if w.number in encoded else w.encode(None) for w in writes)
            if all(data is None for data in fresh):
                return
            files.create(path, form.new, fsync=form.fsync)
        elif not sound:
            with files.opened(path, write=True) as damaged:
                if damaged is not None:
                    with lock_out_writers(damaged):
                        mend(path, damaged, form.index, form.layouts)
        elif not restore(path, form):
            raise SlotsGoneError(_gone(path, form))


def locked_index(fd: int, form: IndexForm) -> tuple[Table, bool]:
    """The table of an open shard as some writer left it, and whether its checksum agrees."""
    with lock_index(fd, exclusive=False) if form.checksum else nullcontext():
        return files.read_index(fd, form)


def _gone(path: Path, form: SlotForm) -> str:
    wanted = f"{form.new.copies} slot{'s' * (form.new.copies - 1)} of {form.new.slot} bytes a chunk"
    return (
        f"the shard {path} does not have {wanted}: it was written without intarsia.slotted, or with other "
        "settings, and writing into it would harm other chunks. Nothing was written.\n"
        "  Stop whoever writes it otherwise, then give it slots: intarsia.reslot(array)"
    )


@dataclass(frozen=True)
class _Slots:
    """An open shard with slots, of which the caller holds some for writing."""

    path: Path
    fd: int
    form: SlotForm
    layout: SlotLayout
    table: Table

    def write(self, writes: Sequence[SlotWrite], encoded: dict[int, Payload | None]) -> None:
        """Merge what is partial, then write payloads, then entries."""
        for write in writes:
            if write.partial:
                encoded[write.number] = write.encode(self._stored(write.number))
        for number, data in encoded.items():
            if data is not None and size_of(data) > self.layout.bound.nbytes:
                raise ChunkEncodeError(
                    f"inner chunk {self.form.index.coordinates(number)} of {self.path} was encoded to "
                    f"{size_of(data)} bytes, but its codecs promised {self.layout.bound.nbytes}. Nothing "
                    "was written: use a decision that bounds the size, such as 'compress_if_smaller'"
                )
        places = {n: self._place(n) for n, data in encoded.items() if data is not None}
        entries = {
            n: (places[n], size_of(data)) if data is not None else NO_ENTRY for n, data in encoded.items()
        }
        torn: dict[int, tuple[int, int]] = {}
        if self.layout.copies == 1 and not self.layout.bound.checksum:
            # What a dying writer leaves half overwritten would decode; so nobody may find it.
            torn = {n: (place, self.layout.torn) for n, place in places.items() if self._entry(n) != NO_ENTRY}
            if torn:
                self._publish(torn)
        for offset, buffers in _runs(places, encoded, self.layout.slot):
            _write_payload(self.fd, buffers, offset)
        if self.form.fsync:
            os.fdatasync(self.fd)
        changed = {n: entry for n, entry in entries.items() if n in torn or self._entry(n) != entry}
        if changed:
            self._publish(changed)

    def _entry(self, number: int) -> tuple[int, int]:
        offset, length = self.table[number]
        return int(offset), int(length)

    def _stored(self, number: int) -> bytes | None:
        offset, length = self._entry(number)
        if (offset, length) == NO_ENTRY:
            return None
        if length == self.layout.torn:
            raise ChunkDecodeError(_torn(self.path, self.form.index.coordinates(number)))
        return files.read_exactly(self.fd, length, offset)

    def _place(self, number: int) -> int:
        """Where to write: the slot that the index does not name, if there are two."""
        offset, _ = self._entry(number)
        in_force = None if offset == int(ABSENT) else self.layout.copy_at(number, offset)
        return self.layout.offset(number, 1 if self.layout.copies == 2 and in_force == 0 else 0)

    def _publish(self, entries: dict[int, tuple[int, int]]) -> None:
        form = self.form.index
        start = form.start(self.layout.file_bytes)
        with lock_index(self.fd, exclusive=True) if form.checksum else nullcontext():
            files.write_entries(self.fd, form, start, entries)
        if self.form.fsync:
            os.fdatasync(self.fd)


def _torn(path: Path, coordinates: tuple[int, ...]) -> str:
    return (
        f"inner chunk {coordinates} of {path} was being overwritten when its writer died: neither its old "
        "nor its new value is left. Write the whole chunk again"
    )


def _runs(
    places: dict[int, int], encoded: dict[int, Payload | None], slot: int
) -> Iterator[tuple[int, list[bytes | memoryview]]]:
    """Payloads that fill neighbouring slots, together, with where they start."""
    start, end, buffers = 0, -1, list[bytes | memoryview]()
    for number, offset in sorted(places.items(), key=lambda item: item[1]):
        data = encoded[number]
        assert data is not None
        if offset != end:
            if buffers:
                yield start, buffers
            start, buffers = offset, []
        buffers += data
        end = offset + size_of(data)
        gap = slot - size_of(data)
        if 0 < gap < 8:  # the rounding of the slot; a longer gap stays a hole
            buffers.append(bytes(gap))
            end += gap
    if buffers:
        yield start, buffers


def _write_payload(fd: int, buffers: list[bytes | memoryview], offset: int) -> None:
    nbytes = sum(map(len, buffers))
    if nbytes >= WORTH_ALLOCATING:
        files.allocate(fd, offset, nbytes)
    files.write_all(fd, buffers, offset)


def read_chunks(
    path: Path, form: IndexForm, numbers: Sequence[int], layouts: Sequence[SlotLayout]
) -> dict[int, bytes] | None:
    """The stored bytes of some chunks, which one lock covers; None if there is no file.

    A chunk that was never written is missing in the result. `layouts` are those in which the shard may
    have been written slot by slot: then an index whose checksum is out of date is still good.
    """
    with _held(path, min(numbers), max(numbers), write=False) as fd:
        if fd is None:
            return None
        table, intact = locked_index(fd, form)
        table = unparked(table)
        if not intact:
            check_believable(path, form, os.fstat(fd).st_size, table, layouts)
        found: dict[int, bytes] = {}
        for number in numbers:
            offset, length = (int(word) for word in table[number])
            if (offset, length) == NO_ENTRY:
                continue
            if layouts and length == layouts[0].torn:
                raise ChunkDecodeError(_torn(path, form.coordinates(number)))
            try:
                found[number] = files.read_exactly(fd, length, offset)
            except (ChunkDecodeError, OSError, OverflowError) as error:
                where = f"inner chunk {form.coordinates(number)} of {path}"
                raise ChunkDecodeError(f"{where} cannot be read: {error}") from error
        return found


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


def believable(form: IndexForm, file_bytes: int, table: Table, layouts: Sequence[SlotLayout]) -> bool:
    """Whether a table makes sense without its checksum: chunks in slots, or one behind the other, no gaps."""
    if any(layout.file_bytes == file_bytes and layout.holds(table) for layout in layouts):
        return True
    rows = table[~absent(table)]
    rows = rows[np.argsort(rows[:, 0])]
    start = np.array([form.nbytes if form.first else 0], dtype=np.uint64)
    ends = np.concatenate([start, rows[:, 0] + rows[:, 1]])
    data_end = file_bytes if form.first else file_bytes - form.nbytes
    return bool(np.array_equal(ends[:-1], rows[:, 0]) and ends[-1] == data_end)


def check_believable(
    path: Path, form: IndexForm, file_bytes: int, table: Table, layouts: Sequence[SlotLayout]
) -> None:
    """Raise `ChunkDecodeError` unless a dying process may have left a table without its checksum."""
    if not believable(form, file_bytes, table, layouts):
        raise ChunkDecodeError(
            f"the index of the shard {path} does not agree with its checksum, and makes no sense without: "
            "the file is damaged"
        )


def mend(path: Path, fd: int, form: IndexForm, layouts: Sequence[SlotLayout]) -> Table:
    """Put right what a writer or a compaction that died left in the index; returns where every chunk is.

    The caller keeps all writers out.
    """
    table, intact = files.read_index(fd, form)
    if intact and not parked(table).any():
        return table
    size, table = os.fstat(fd).st_size, unparked(table)
    if not intact:
        check_believable(path, form, size, table, layouts)
    with lock_index(fd, exclusive=True):
        files.write_all(fd, [form.encode(table)], form.start(size))
    os.fsync(fd)
    return table
