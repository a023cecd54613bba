"""Writing chunks to the slots of one shard file, beside other processes that do the same."""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from intarsia.codecs.shard_index import NO_ENTRY
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, SlotsGoneError
from intarsia.shards import files
from intarsia.shards.locks import lock_index, lock_out_writers
from intarsia.shards.reading import TORN, held_chunks, locked_entries, mend, parked, torn_message
from intarsia.shards.slots import SlotLayout, SlotSettings

WORTH_ALLOCATING = 64 << 10
"""From this size on, having the file system allocate a slot before writing it pays: the write holds the
file's own lock for a shorter time."""

MOST_DOUBLINGS = 5
"""How often the pause of a writer that was forestalled doubles: up to some thirty encodings."""

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
    path: Path,
    settings: SlotSettings,
    writes: Sequence[SlotWrite],
    restore: Callable[[Path, SlotSettings], bool],
) -> None:
    """Carry out `writes`, which one lock covers; a shard is created if it must be.

    Chunks are encoded while nobody waits for them, because codecs may run for long and decisions may read
    the very shard, or need threads that wait for it. So a chunk of which a part is replaced is read, let go
    of, encoded, and written if it is still what was read; if not, somebody else has got on. What is `quick`
    to encode is not let go of. `restore` is called with a shard that has no slots, and says whether it made
    some.
    """
    numbers = [write.number for write in writes]
    updates = {write.number: write for write in writes if write.partial}
    encoded = {write.number: write.encode(None) for write in writes if not write.partial}
    merged: dict[int, bytes | None] = {}  # what the updates were merged with
    rests = _Rests()

    def merge(stored: dict[int, bytes | None]) -> None:
        with rests.worked():
            for number, write in updates.items():
                if number not in merged or merged[number] != stored[number]:
                    encoded[number], merged[number] = write.encode(stored[number]), stored[number]

    while True:
        slots, stored = None, dict[int, bytes | None].fromkeys(updates)
        with held_chunks(path, numbers[0], numbers[-1], write=True) as fd:
            if fd is not None:
                slots, sound = _find_slots(path, fd, settings, numbers)
            if slots is not None:
                stored = {number: slots.stored(number) for number in updates}
                if settings.quick:
                    merge(stored)
                if stored == merged:
                    slots.write(encoded)
                    break
        if fd is not None and slots is None:
            if not sound:
                _mend(path, settings)
            elif not restore(path, settings):
                raise SlotsGoneError(_gone(path, settings))
            continue
        if merged and rests.take():
            continue
        merge(stored)
        if fd is None:
            if all(data is None for data in encoded.values()):
                break
            files.create(path, settings.new)
    if settings.fsync:
        files.sync_names(path, settings.durable)


class _Rests:
    """Pauses of those who were forestalled, before they encode once more.

    Many who replace parts of one chunk would otherwise encode in vain again and again, all but one of them.
    A pause is as long as some encodings take, more of them each time, and by chance different for each.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._forestalled = 0
        self._rested = False

    @contextmanager
    def worked(self) -> Iterator[None]:
        """Notes how long encoding takes."""
        begin = time.monotonic()
        yield
        self._seconds, self._rested = time.monotonic() - begin, False

    def take(self) -> bool:
        """Pause, once after each time; whether there was a pause, and what is stored has to be read anew."""
        if self._rested:
            return False
        self._forestalled += 1
        self._rested = True
        time.sleep(random.uniform(0, self._seconds * 2 ** min(self._forestalled, MOST_DOUBLINGS)))
        return True


def _find_slots(
    path: Path, fd: int, settings: SlotSettings, numbers: Sequence[int]
) -> tuple["_Slots | None", bool]:
    """The slots of an open shard, if it has any, and whether its index says so as it should."""
    rows, intact = locked_entries(fd, settings.index, numbers)
    sound = intact and not parked(rows).any()
    layout = settings.layout_in(fd, rows, numbers) if sound else None
    if layout is None:
        return None, sound
    entries = dict(zip(numbers, map(tuple, rows.tolist()), strict=True))
    return _Slots(path, fd, settings, layout, entries), sound


def _mend(path: Path, settings: SlotSettings) -> None:
    with files.opened(path, write=True) as fd:
        if fd is not None:
            with lock_out_writers(fd):
                mend(path, fd, settings.index, settings.layouts)


def _gone(path: Path, settings: SlotSettings) -> str:
    wanted = (
        f"{settings.new.copies} slot{'s' * (settings.new.copies - 1)} of {settings.new.slot} bytes a chunk"
    )
    return (
        f"the shard {path} does not have {wanted}: it was written without intarsia.slotted, or with other "
        "settings, and writing into it would harm other chunks. Nothing was written.\n"
        "  Stop whoever writes it otherwise, then give it slots: intarsia.shards.reslot(array)"
    )


@dataclass(frozen=True)
class _Slots:
    """An open shard with slots, of which the caller holds some for writing."""

    path: Path
    fd: int
    settings: SlotSettings
    layout: SlotLayout
    entries: dict[int, tuple[int, int]]
    """What the index says of those chunks."""

    def stored(self, number: int) -> bytes | None:
        """What is stored of a chunk."""
        offset, length = self.entries[number]
        if (offset, length) == NO_ENTRY:
            return None
        if offset & int(TORN):
            raise ChunkDecodeError(torn_message(self.path, self.settings.index.coordinates(number)))
        return files.read_exactly(self.fd, length, offset)

    def write(self, encoded: dict[int, Payload | None]) -> None:
        """Write payloads, then entries. Whatever fails before an only slot is overwritten harms nothing."""
        for number, data in encoded.items():
            if data is not None and size_of(data) > self.layout.bound.nbytes:
                raise ChunkEncodeError(
                    f"inner chunk {self.settings.index.coordinates(number)} of {self.path} was encoded to "
                    f"{size_of(data)} bytes, but its codecs promised {self.layout.bound.nbytes}. Nothing "
                    "was written: use a decision that bounds the size, such as 'compress_if_smaller'"
                )
        places = {n: self._place(n) for n, data in encoded.items() if data is not None}
        runs = list(_runs(places, encoded, self.layout.slot))
        overwritten = [n for n in places if self.layout.copies == 1 and self.entries[n] != NO_ENTRY]
        for offset, buffers in runs:
            nbytes = sum(map(len, buffers))
            if overwritten or nbytes >= WORTH_ALLOCATING:
                files.allocate(self.fd, offset, nbytes)
        self._publish({n: (places[n] | int(TORN), self.entries[n][1]) for n in overwritten})
        for offset, buffers in runs:
            _write_payload(self.fd, buffers, offset)
        if self.settings.fsync:
            os.fdatasync(self.fd)
        self._publish(
            {n: NO_ENTRY if data is None else (places[n], size_of(data)) for n, data in encoded.items()}
        )
        if not files.is_current(self.fd, self.path):
            raise SlotsGoneError(
                f"the shard {self.path} was replaced or removed while it was written, by a program that "
                "knows nothing of slots: the write is lost.\n"
                "  Stop that program, then intarsia.shards.reslot(array), and write again"
            )

    def _place(self, number: int) -> int:
        """Where to write: the slot that the index does not name, if there are two."""
        entry = self.entries[number]
        in_force = None if entry == NO_ENTRY else self.layout.copy_at(entry[0] & ~int(TORN))
        return self.layout.offset(number, 1 if self.layout.copies == 2 and in_force == 0 else 0)

    def _publish(self, entries: dict[int, tuple[int, int]]) -> None:
        changed = {n: entry for n, entry in entries.items() if entry != self.entries[n]}
        if not changed:
            return
        index = self.settings.index
        start = index.start(self.layout.file_bytes)
        with lock_index(self.fd, exclusive=True) if index.checksum else nullcontext():
            files.write_entries(self.fd, index, start, changed)
        self.entries.update(changed)
        if self.settings.fsync:
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
    files.write_all(fd, buffers, offset)
