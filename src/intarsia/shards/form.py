"""How one array wants its shards to be: their index, their slots, how safe and how durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intarsia.shards.layout import IndexForm, SlotLayout

if TYPE_CHECKING:
    from intarsia.shards.bound import EncodedBound
    from intarsia.shards.layout import Table

__all__ = ["SlotForm"]


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
