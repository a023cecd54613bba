"""Writing chunks to the slots of one shard file, beside other processes that do the same."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intarsia.errors import ChunkDecodeError, ChunkEncodeError, SlotsGoneError
from intarsia.shards import files
from intarsia.shards.holding import held_chunks, locked_index
from intarsia.shards.layout import ABSENT, NO_ENTRY
from intarsia.shards.locks import lock_index, lock_out_writers
from intarsia.shards.mending import mend, parked, torn_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from intarsia.shards.form import SlotForm
    from intarsia.shards.layout import SlotLayout, Table

__all__ = ["Payload", "SlotWrite", "write_slots"]

WORTH_ALLOCATING = 64 << 10
"""From this size on, having the file system allocate a slot before writing it pays: the write holds the
file's own lock for a shorter time, and a full disk is noticed before anything is overwritten."""

type Payload = tuple[bytes | memoryview, ...]
"""What is stored of a chunk, in parts that need not be joined in memory."""


def size_of(payload: Payload) -> int:
    """The bytes of a payload.

    >>> size_of((b"abc", b"de"))
    5
    """
    return sum(map(len, payload))


@dataclass(frozen=True)
class SlotWrite:
    """What is to become of one chunk."""

    number: int
    """Which chunk of the shard."""

    encode: Callable[[bytes | None], Payload | None]
    """From what is stored, or None, to what shall be stored, or None for nothing."""

    partial: bool
    """Whether it needs what is stored."""


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
        with held_chunks(path, first, last, write=True) as fd:
            if fd is not None:
                table, intact = locked_index(fd, form.index)
                sound = intact and not parked(table).any()
                layout = form.layout_of(os.fstat(fd).st_size, table)
                if sound and layout is not None:
                    _Slots(path, fd, form, layout, table).write(writes, encoded)
                    if files.is_current(fd, path):
                        return
                    raise SlotsGoneError(
                        f"the shard {path} was replaced or removed while it was written, by a program that "
                        "knows nothing of slots: the write is lost.\n"
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
            raise ChunkDecodeError(torn_message(self.path, self.form.index.coordinates(number)))
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
