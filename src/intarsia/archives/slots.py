"""Where shares go inside members: whole chunks one after the other, and the regions that show them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.member import new_name
from intarsia.array.table import Box, RegionTable, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from intarsia.archives.encodings import SourceEncoding
    from intarsia.archives.pieces import Piece
    from intarsia.archives.plan import ArrayPlan, Share
    from intarsia.array.frame import Frame

__all__ = ["Layout", "MemberSlots", "Slot", "merged"]


@dataclass(slots=True)
class Slot:
    """A piece of a file in its place."""

    share: Share
    """Whose it is."""

    piece: Piece
    """Which chunks of it."""

    start: int
    """First step of the share in the member: a multiple of the member's chunk."""


@dataclass(slots=True)
class MemberSlots:
    """A member and what is put into it."""

    name: str
    """Its name."""

    encoding: SourceEncoding
    """How its chunks are encoded."""

    steps: int
    """How many steps it holds, what is put into it included."""

    is_new: bool
    """Whether it has to be created."""

    slots: list[Slot] = field(default_factory=list)
    """What is put into it."""


class Layout:
    """Assigns every share of one array to members: as few as there are encodings."""

    def __init__(self, plan: ArrayPlan, known: Mapping[str, str], frame: Frame | None) -> None:
        self.plan = plan
        self.members: dict[str, MemberSlots] = {}
        self.rows: list[tuple[str, Box, tuple[int, ...]]] = []
        self._known, self._frame = known, frame
        for share in plan.shares:
            for piece in share.pieces:
                self._put(share, piece)

    def _member(self, encoding: SourceEncoding) -> MemberSlots:
        digest = encoding.digest
        if digest not in self.members:
            name = self._known.get(digest)
            if name is not None and self._frame is not None and name in self._frame.manifest.members:
                length = self._frame.members[name].shape[self.plan.axis]
                self.members[digest] = MemberSlots(name, encoding, length, is_new=False)
            else:
                self.members[digest] = MemberSlots(new_name(), encoding, 0, is_new=True)
        return self.members[digest]

    def _put(self, share: Share, piece: Piece) -> None:
        axis, variable = self.plan.axis, share.variable
        member = self._member(piece.encoding)
        chunks = piece.encoding.chunks
        start = -(-member.steps // chunks[axis]) * chunks[axis]
        member.slots.append(Slot(share, piece, start))
        member.steps = start + variable.shape[axis]
        for box in piece.boxes:
            first = [a * c for a, c in zip(box.start, chunks, strict=True)]
            last = [min(b * c, n) for b, c, n in zip(box.stop, chunks, variable.shape, strict=True)]
            inside = list(first)
            inside[axis] += start
            first[axis] += share.start
            last[axis] += share.start
            self.rows.append((member.name, Box(tuple(first), tuple(last)), tuple(inside)))

    def table(self, members: tuple[str, ...]) -> tuple[RegionTable, tuple[str, ...]]:
        """The new regions on the array's lattice, and the list of members that they refer to."""
        names = dict.fromkeys(members)
        names.update(dict.fromkeys(name for name, *_ in self.rows))
        position = {name: i for i, name in enumerate(names)}
        lattice = self.plan.lattice

        def cells(elements: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a // c for a, c in zip(elements, lattice, strict=True))

        rows = [
            Row(
                position[name],
                Box(cells(box.start), tuple(-(-b // c) for b, c in zip(box.stop, lattice, strict=True))),
                cells(inside),
            )
            for name, box, inside in self.rows
        ]
        return RegionTable.from_rows(rows, len(lattice)), tuple(names)


def merged(table: RegionTable, axis: int) -> RegionTable:
    """The table with neighbours along an axis joined where one member continues from one to the next.

    >>> rows = [Row(0, Box((i,), (i + 1,)), (i,)) for i in range(3)] + [Row(1, Box((3,), (4,)), (0,))]
    >>> table = merged(RegionTable.from_rows(rows, 1), 0)
    >>> [table.row(i).box for i in range(len(table))]
    [Box(start=(0,), stop=(3,)), Box(start=(3,), stop=(4,))]
    """
    if len(table) < 2:
        return table
    others = [d for d in range(table.ndim) if d != axis]
    fixed = [
        column for d in others for column in (table.start[:, d], table.stop[:, d], table.member_start[:, d])
    ]
    order = np.lexsort([table.start[:, axis], *fixed[::-1]])
    ordered = table.take(order)
    same = ordered.member[1:] == ordered.member[:-1]
    same &= ordered.start[1:, axis] == ordered.stop[:-1, axis]
    length = ordered.stop[:-1, axis] - ordered.start[:-1, axis]
    same &= ordered.member_start[1:, axis] == ordered.member_start[:-1, axis] + length
    for column in fixed:
        same &= column[order][1:] == column[order][:-1]
    firsts = np.flatnonzero(np.concatenate([[True], ~same]))
    lasts = np.append(firsts[1:], len(ordered)) - 1
    kept: Any = ordered.take(firsts)
    stop = kept.stop.copy()
    stop[:, axis] = ordered.stop[lasts, axis]
    joined = replace(kept, stop=stop)
    in_order: RegionTable = joined.take(np.argsort(joined.start[:, axis], kind="stable"))
    return in_order
