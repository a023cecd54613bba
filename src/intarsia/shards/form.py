"""How one array wants its shards to be: their index, their slots, how safe and how durable."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intarsia.shards.holding import locked_index
from intarsia.shards.layout import SlotIndex, SlotLayout
from intarsia.shards.mending import unparked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from intarsia.codecs.shard_index import Table
    from intarsia.shards.bound import EncodedBound

__all__ = ["SlotSettings"]

MOST_KNOWN = 1 << 16
"""Files that a handle remembers; a few MB."""


@dataclass(frozen=True)
class SlotSettings:
    """How one array wants its shards to be.

    >>> from intarsia.shards.bound import EncodedBound
    >>> index = SlotIndex(grid=(4,), first=False)
    >>> SlotSettings(index, EncodedBound(8, fixed=True, checksum=False), safe_readers=True).new.copies
    2
    """

    index: SlotIndex
    """How the index is stored."""

    bound: EncodedBound
    """What a slot has to hold."""

    safe_readers: bool
    """Whether a chunk that is rewritten stays readable: two slots a chunk."""

    fsync: bool = False
    """Whether a write returns only when it would survive a power loss."""

    quick: bool = False
    """Whether encoding a chunk is little more than copying it, and runs no function of a user's."""

    layouts: tuple[SlotLayout, SlotLayout] = field(init=False, repr=False)
    """With one and with two slots a chunk."""

    durable: dict[Path, tuple[int, int]] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What `files.sync_names` has made durable."""

    _slotted: set[tuple[int, int, int]] = field(init=False, repr=False, compare=False, default_factory=set)
    """Files whose whole table was looked at: their device, number and size."""

    def __post_init__(self) -> None:
        both = (SlotLayout(self.index, self.bound, 1), SlotLayout(self.index, self.bound, 2))
        object.__setattr__(self, "layouts", both)

    @property
    def new(self) -> SlotLayout:
        """The layout of shards that are created."""
        return self.layouts[1 if self.safe_readers else 0]

    def layout_of(
        self, file_bytes: int, table: Table, numbers: Sequence[int] | None = None
    ) -> SlotLayout | None:
        """The layout of an existing shard; None if its chunks do not lie in slots that will do.

        The table is whole, or has the rows of the chunks with these `numbers`.
        """
        for layout in self.layouts[1 if self.safe_readers else 0 :]:
            if layout.file_bytes == file_bytes and layout.holds(table, numbers):
                return layout
        return None

    def layout_in(self, fd: int, rows: Table, numbers: Sequence[int]) -> SlotLayout | None:
        """The layout of an open shard, by its size and the rows of a few chunks.

        A file that is met for the first time is looked at as a whole, which takes long in shards of many
        chunks: other programs may have made one of the same size.
        """
        status = os.fstat(fd)
        layout = self.layout_of(status.st_size, rows, numbers)
        file = (status.st_dev, status.st_ino, status.st_size)
        if layout is None or file in self._slotted:
            return layout
        if not layout.holds(unparked(locked_index(fd, self.index)[0])):
            return None
        if len(self._slotted) >= MOST_KNOWN:
            self._slotted.clear()
        self._slotted.add(file)
        return layout
