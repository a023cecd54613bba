"""The slots of a shard: how its index numbers them, where they lie, and the settings of one array."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from intarsia._compat import morton_order_coords
from intarsia.codecs.shard_index import ENTRY, ShardIndex, Table, is_absent
from intarsia.shards.inner_codecs import EncodedBound

PARKED = np.uint64(1 << 62)
"""Added to an offset, it leads beyond the end of every file: a reader that follows it fails rather than reads
something else, and subtracting it again loses nothing."""

TORN = np.uint64(1 << 61)
"""Added to the offset of a chunk while its only slot is overwritten, with the same effect. If the writer
dies, it stays: some readers check neither the length of a chunk nor its checksum, so none may find it."""


@lru_cache(maxsize=64)
def chunk_order(grid: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The position in the index of each chunk, in the order in which chunks lie in shards.

    Chunks lie in Morton order, as zarr-python writes them; the index is in C order.

    >>> chunk_order((2, 2, 2)).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    coordinates = np.array(morton_order_coords(grid), dtype=np.intp).reshape(math.prod(grid), len(grid))
    strides = np.array([math.prod(grid[axis + 1 :]) for axis in range(len(grid))], dtype=np.intp)
    order = coordinates @ strides
    order.flags.writeable = False
    return order


@lru_cache(maxsize=64)
def chunk_numbers(grid: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The number in `chunk_order` of each chunk of a shard, by its coordinates.

    >>> chunk_numbers((2, 2)).tolist()
    [[0, 2], [1, 3]]
    """
    numbers = np.argsort(chunk_order(grid)).reshape(grid)
    numbers.flags.writeable = False
    return numbers


@dataclass(frozen=True)
class SlotIndex(ShardIndex):
    """An index whose entries can be rewritten in place: plain numbers, perhaps with a crc32c.

    Its tables list the chunks in the order in which they lie, `chunk_order`; that is their *number*.

    >>> index = SlotIndex(grid=(4, 2), first=False)
    >>> index.chunks, index.nbytes, index.number((0, 1)), index.coordinates(3)
    (8, 132, 2, (1, 1))
    """

    def number(self, coordinates: tuple[int, ...]) -> int:
        """The number of an inner chunk, given its coordinates."""
        return int(chunk_numbers(self.grid)[coordinates])

    def coordinates(self, number: int) -> tuple[int, ...]:
        """The coordinates in its shard of the chunk with this number."""
        return tuple(int(i) for i in np.unravel_index(chunk_order(self.grid)[number], self.grid))

    def positions(self, numbers: Sequence[int] | None) -> np.ndarray[Any, np.dtype[np.intp]]:
        """The entries of the stored index that belong to the chunks with these numbers, or to all."""
        order = chunk_order(self.grid)
        return order if numbers is None else order[np.asarray(numbers, np.intp)]

    def encode_numbered(self, table: Table) -> bytes:
        """The index as it is stored."""
        return self.encode(table[chunk_numbers(self.grid).ravel()])


@dataclass(frozen=True)
class SlotLayout:
    """A shard in which every chunk has a place of its own, written or not.

    >>> from intarsia.shards.inner_codecs import EncodedBound
    >>> index = SlotIndex(grid=(4,), first=False)
    >>> layout = SlotLayout(index, EncodedBound(nbytes=97, fixed=True), copies=1)
    >>> [layout.offset(number) for number in range(4)], layout.file_bytes
    ([0, 104, 208, 312], 484)
    """

    index: SlotIndex
    """How the index is stored."""

    bound: EncodedBound
    """What a slot must be able to hold."""

    copies: int
    """Slots per chunk: 1, or 2, of which the index names the current one."""

    @property
    def slot(self) -> int:
        """The bytes of one slot: the most that an encoded chunk takes, which `inner_codecs` knows."""
        return self.bound.slot

    @property
    def start(self) -> int:
        """Where the first slot starts."""
        return self.index.nbytes if self.index.first else 0

    @property
    def file_bytes(self) -> int:
        """The size of the file; slots that were never written take no room on disk."""
        end = self.start + self.copies * self.index.chunks * self.slot
        # An entry must not straddle two pages, or a reader could see half of it.
        return end if self.index.first else -(-end // ENTRY) * ENTRY + self.index.nbytes

    def offset(self, number: int, copy: int = 0) -> int:
        """Where a slot starts."""
        return self.start + (copy * self.index.chunks + number) * self.slot

    def copy_at(self, offset: int) -> int:
        """Which of its chunk's slots starts at `offset`."""
        return (offset - self.start) // self.slot // self.index.chunks

    def holds(self, table: Table, numbers: Sequence[int] | None = None) -> bool:
        """Whether every chunk in the table lies in its own slot, so that writing one harms no other.

        The table is complete, or has the rows of the chunks with these `numbers`.
        """
        rows = np.arange(self.index.chunks) if numbers is None else np.asarray(numbers)
        first = np.uint64(self.start) + rows.astype(np.uint64) * np.uint64(self.slot)
        offsets, lengths = table[:, 0] & ~TORN, table[:, 1]
        own = offsets == first
        if self.copies == 2:
            own |= offsets == first + np.uint64(self.index.chunks * self.slot)
        fewest = self.bound.nbytes if self.bound.fixed else 1
        fits = (lengths >= fewest) & (lengths <= self.bound.nbytes)
        return bool((is_absent(table) | (own & fits)).all())


def is_marked(table: Table, mark: np.uint64) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which chunks of a table are `PARKED` or `TORN`; only a process that died leaves any."""
    return np.asarray((table[:, 0] & mark != 0) & ~is_absent(table), dtype=np.bool_)


def without_marks(table: Table, marks: np.uint64 = PARKED | TORN) -> Table:
    """The table with all chunks where their bytes are, good or not."""
    table = table.copy()
    table[~is_absent(table), 0] &= ~marks
    return table


@dataclass(frozen=True)
class SlotSettings:
    """The settings for the shards of one array.

    >>> from intarsia.shards.inner_codecs import EncodedBound
    >>> index = SlotIndex(grid=(4,), first=False)
    >>> SlotSettings(index, EncodedBound(8, fixed=True), safe_readers=True).new.copies
    2
    """

    index: SlotIndex
    """How the index is stored."""

    bound: EncodedBound
    """What a slot must be able to hold."""

    safe_readers: bool
    """Whether a chunk stays readable while it is rewritten: two slots per chunk."""

    fsync: bool = False
    """Whether a write returns only once it would survive a power loss."""

    durable: dict[Path, tuple[int, int]] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What `files.sync_names` has made durable."""

    checked: set[tuple[int, int, int]] = field(init=False, repr=False, compare=False, default_factory=set)
    """Files whose whole table was checked: their device, number and size."""

    @cached_property
    def layouts(self) -> tuple[SlotLayout, SlotLayout]:
        """The layouts with one and with two slots per chunk."""
        return SlotLayout(self.index, self.bound, 1), SlotLayout(self.index, self.bound, 2)

    @property
    def new(self) -> SlotLayout:
        """The layout of new shards."""
        return self.layouts[1 if self.safe_readers else 0]

    def layout_of(
        self, file_bytes: int, table: Table, numbers: Sequence[int] | None = None
    ) -> SlotLayout | None:
        """The layout of an existing shard; None if its chunks do not lie in suitable slots.

        The table is complete, or has the rows of the chunks with these `numbers`.
        """
        for layout in self.layouts[1 if self.safe_readers else 0 :]:
            if layout.file_bytes == file_bytes and layout.holds(table, numbers):
                return layout
        return None
