"""The region table: every region of a logical array, by columns, in units of logical chunks.

Lookups and checks work on whole columns, so that 100,000 regions cost no Python loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Box", "Ints", "RegionTable", "Row", "chunk_grid"]

type Ints = np.ndarray[Any, np.dtype[np.int64]]

# Painting all regions onto their compressed lattice is the fastest test for overlaps, up to this many cells.
MOST_PAINTED_CELLS = 20_000_000


class Box(NamedTuple):
    """A box of lattice cells or elements: `start` included, `stop` excluded.

    >>> Box((0, 5), (2, 10)).shape
    (2, 5)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))

    @classmethod
    def of(cls, bounds: Iterable[tuple[int, int]]) -> Box:
        """The box between a (start, stop) pair for every axis.

        >>> Box.of([(0, 2), (5, 10)])
        Box(start=(0, 5), stop=(2, 10))
        """
        pairs = list(bounds)
        return cls(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))

    @classmethod
    def sized(cls, shape: Iterable[int], start: Sequence[int] | None = None) -> Box:
        """The box of a shape, at the origin or at `start`.

        >>> Box.sized((2, 5)), Box.sized((2, 5), start=(1, 1))
        (Box(start=(0, 0), stop=(2, 5)), Box(start=(1, 1), stop=(3, 6)))
        """
        stop = tuple(shape)
        corner = cls((0,) * len(stop), stop)
        return corner if start is None else corner.shifted(start)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """A (start, stop) pair for every axis.

        >>> Box((0, 5), (2, 10)).bounds
        ((0, 2), (5, 10))
        """
        return tuple(zip(self.start, self.stop, strict=True))

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as a subscript.

        >>> Box((0, 5), (2, 10)).slices
        (slice(0, 2, None), slice(5, 10, None))
        """
        return tuple(map(slice, self.start, self.stop))

    def indices(self) -> Iterator[tuple[int, ...]]:
        """Every place in the box, in C order.

        >>> list(Box((0, 5), (2, 6)).indices())
        [(0, 5), (1, 5)]
        """
        return product(*map(range, self.start, self.stop))

    def shifted(self, by: Sequence[int]) -> Box:
        """This box, moved.

        >>> Box((0, 5), (2, 10)).shifted((1, -5))
        Box(start=(1, 0), stop=(3, 5))
        """
        start, stop = (tuple(a + d for a, d in zip(edge, by, strict=True)) for edge in self)
        return Box(start, stop)

    def seen_from(self, origin: Sequence[int]) -> Box:
        """This box, counted from another origin.

        >>> Box((4,), (9,)).seen_from((3,))
        Box(start=(1,), stop=(6,))
        """
        return self.shifted([-o for o in origin])

    def in_units(self, unit: Sequence[int]) -> Box:
        """The smallest box of larger units, such as chunks of this shape, that holds this one of elements.

        >>> Box((4,), (9,)).in_units((3,))
        Box(start=(1,), stop=(3,))
        """
        start = tuple(a // u for a, u in zip(self.start, unit, strict=True))
        return Box(start, chunk_grid(self.stop, unit))

    def intersect(self, other: Box) -> Box | None:
        """What both boxes share, or None.

        >>> Box((0,), (5,)).intersect(Box((3,), (9,)))
        Box(start=(3,), stop=(5,))
        """
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, self.stop, other.stop))
        return Box(start, stop) if all(a < b for a, b in zip(start, stop, strict=True)) else None

    def without(self, hole: Box) -> list[Box]:
        """What is left of this box outside `hole`, as boxes that do not overlap.

        >>> Box((0,), (5,)).without(Box((1,), (2,)))
        [Box(start=(0,), stop=(1,)), Box(start=(2,), stop=(5,))]
        """
        shared = self.intersect(hole)
        if shared is None:
            return [self]
        left, rest = [], self
        for axis in range(len(self.start)):
            for a, b in ((rest.start[axis], shared.start[axis]), (shared.stop[axis], rest.stop[axis])):
                if a < b:
                    left.append(rest.with_axis(axis, a, b))
            rest = rest.with_axis(axis, shared.start[axis], shared.stop[axis])
        return left

    def with_axis(self, axis: int, start: int, stop: int) -> Box:
        """This box with other bounds on one axis.

        >>> Box((0, 0), (2, 2)).with_axis(1, 5, 6)
        Box(start=(0, 5), stop=(2, 6))
        """
        starts, stops = list(self.start), list(self.stop)
        starts[axis], stops[axis] = start, stop
        return Box(tuple(starts), tuple(stops))

    def text(self) -> str:
        """As in a subscript, for messages.

        >>> Box((0, 5), (10, 20)).text()
        '[0:10, 5:20]'
        """
        return "[" + ", ".join(f"{a}:{b}" for a, b in zip(self.start, self.stop, strict=True)) + "]"


def chunk_grid(shape: Iterable[int], chunks: Iterable[int]) -> tuple[int, ...]:
    """How many chunks an array of a shape has on every axis; the last ones may be partial.

    >>> chunk_grid((250, 100), (100, 100))
    (3, 1)
    """
    return tuple(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True))


class Row(NamedTuple):
    """One region of the table.

    >>> Row(0, Box((5, 0), (10, 10)), (0, 0)).cropped(Box((6, 0), (7, 10)))
    Row(member=0, box=Box(start=(6, 0), stop=(7, 10)), member_start=(1, 0))
    """

    member: int
    """Position in the manifest's list of members."""

    box: Box
    """What it backs, in logical chunks."""

    member_start: tuple[int, ...]
    """Where the box starts in the member, in logical chunks."""

    @property
    def shift(self) -> tuple[int, ...]:
        """What to add to a logical chunk to get its place in the member.

        >>> Row(0, Box((5, 0), (10, 10)), (0, 2)).shift
        (-5, 2)
        """
        return tuple(m - a for m, a in zip(self.member_start, self.box.start, strict=True))

    @property
    def member_box(self) -> Box:
        """The box of the member, in logical chunks.

        >>> Row(0, Box((5, 0), (10, 10)), (0, 2)).member_box
        Box(start=(0, 2), stop=(5, 12))
        """
        return self.box.shifted(self.shift)

    def cropped(self, box: Box) -> Row:
        """The same region, showing another box of the same member: less of it, or more."""
        return Row(self.member, box, box.shifted(self.shift).start)


@dataclass(frozen=True, eq=False)
class RegionTable:
    """All regions, one row each.

    >>> table = RegionTable.from_rows([Row(0, Box((0,), (4,)), (0,)), Row(1, Box((4,), (9,)), (0,))], ndim=1)
    >>> table.touching(Box((3,), (5,))).tolist()
    [0, 1]
    """

    member: Ints
    """Position in the list of members; shape (regions,)."""

    start: Ints
    """First logical chunk; shape (regions, dimensions)."""

    stop: Ints
    """Last logical chunk, excluded."""

    member_start: Ints
    """Where `start` lies in the member, in logical chunks."""

    def __len__(self) -> int:
        return len(self.member)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegionTable) and np.array_equal(self.packed(), other.packed())

    __hash__ = None  # type: ignore[assignment]  # its columns are arrays

    @property
    def ndim(self) -> int:
        return int(self.start.shape[1])

    @classmethod
    def from_rows(cls, rows: Iterable[Row], ndim: int) -> Self:
        """The table of these rows.

        >>> len(RegionTable.from_rows([], ndim=2))
        0
        """
        listed = list(rows)

        def column(values: list[tuple[int, ...]]) -> Ints:
            return np.array(values, dtype=np.int64).reshape(len(listed), ndim)

        return cls(
            np.array([row.member for row in listed], dtype=np.int64),
            column([row.box.start for row in listed]),
            column([row.box.stop for row in listed]),
            column([row.member_start for row in listed]),
        )

    def row(self, i: int) -> Row:
        """Row `i` as an object.

        >>> RegionTable.from_rows([Row(3, Box((0,), (4,)), (0,))], ndim=1).row(0).member
        3
        """
        box = Box(tuple(self.start[i].tolist()), tuple(self.stop[i].tolist()))
        return Row(int(self.member[i]), box, tuple(self.member_start[i].tolist()))

    def take(self, rows: Ints) -> RegionTable:
        """The table of some of the rows."""
        return RegionTable(self.member[rows], self.start[rows], self.stop[rows], self.member_start[rows])

    def joined(self, other: RegionTable) -> RegionTable:
        """This table and another one's rows after it."""
        return RegionTable(
            np.concatenate([self.member, other.member]),
            np.concatenate([self.start, other.start]),
            np.concatenate([self.stop, other.stop]),
            np.concatenate([self.member_start, other.member_start]),
        )

    def packed(self) -> Ints:
        """All columns side by side, as they are stored in the table form of the manifest."""
        return np.concatenate([self.member[:, None], self.start, self.stop, self.member_start], axis=1)

    @classmethod
    def unpacked(cls, columns: Ints) -> Self:
        """The table from its stored columns.

        >>> RegionTable.unpacked(np.array([[0, 1, 2, 0]])).row(0).box
        Box(start=(1,), stop=(2,))
        """
        ndim = (columns.shape[1] - 1) // 3
        member, start, stop, member_start = np.split(columns, [1, 1 + ndim, 1 + 2 * ndim], axis=1)
        return cls(
            np.ascontiguousarray(member[:, 0]),
            np.ascontiguousarray(start),
            np.ascontiguousarray(stop),
            np.ascontiguousarray(member_start),
        )

    @cached_property
    def _along(self) -> tuple[int, Ints, Ints, Ints]:
        """The axis that tells most regions apart; the rows in its order, their starts, and the highest
        stop up to each row."""
        axis = int(np.argmax(self.start.max(axis=0)))
        starts = self.start[:, axis]
        order = np.argsort(starts, kind="stable")
        return axis, order, starts[order], np.maximum.accumulate(self.stop[order, axis])

    def touching(self, box: Box) -> Ints:
        """Rows that share a lattice cell with `box`, in the table's order."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        if not self.ndim:
            return np.arange(len(self))
        if any(a >= b for a, b in zip(box.start, box.stop, strict=True)):
            return np.empty(0, dtype=np.int64)
        axis, order, starts, highest_stop = self._along
        first = highest_stop.searchsorted(box.start[axis], side="right")
        last = starts.searchsorted(box.stop[axis], side="left")
        rows = order[first:last]
        inside = ((self.start[rows] < box.stop) & (self.stop[rows] > box.start)).all(axis=1)
        found: Ints = rows[inside]
        found.sort()
        return found

    def cells(self) -> int:
        """Number of lattice cells that regions cover."""
        return int(np.prod(self.stop - self.start, axis=1).sum()) if len(self) else 0

    def free(self, box: Box) -> list[Box]:
        """The parts of `box` that no region covers.

        >>> RegionTable.from_rows([Row(0, Box((2,), (4,)), (0,))], ndim=1).free(Box((0,), (5,)))
        [Box(start=(0,), stop=(2,)), Box(start=(4,), stop=(5,))]
        """
        parts = [box]
        for i in self.touching(box).tolist():
            covered = self.row(i).box
            parts = [left for part in parts for left in part.without(covered)]
        return parts

    def without(self, box: Box) -> RegionTable:
        """The table with `box` cut out of every region."""
        touched = self.touching(box)
        kept = np.ones(len(self), dtype=bool)
        kept[touched] = False
        pieces = [
            row.cropped(left)
            for row in (self.row(i) for i in touched.tolist())
            for left in row.box.without(box)
        ]
        return self.take(np.flatnonzero(kept)).joined(RegionTable.from_rows(pieces, self.ndim))

    def overlap(self) -> tuple[int, int] | None:
        """Two rows that share a lattice cell, or None; the cost grows with the rows, not their square.

        >>> RegionTable.from_rows([Row(0, Box((0,), (4,)), (0,)), Row(1, Box((3,), (5,)), (0,))], 1).overlap()
        (0, 1)
        """
        if len(self) < 2:
            return None
        if not self.ndim:
            return 0, 1
        axis, order, starts, highest_stop = self._along
        if bool((starts[1:] >= highest_stop[:-1]).all()):
            return None  # disjoint along one axis already, as a series of appends is
        if self._same_size_tiles_are_distinct():
            return None
        if self._painted_once():
            return None
        return self._overlapping_pair(axis, order, starts)

    def _same_size_tiles_are_distinct(self) -> bool:
        """Whether all regions are equal tiles of one grid, each in another place."""
        shape = self.stop - self.start
        if not (bool((shape == shape[0]).all()) and bool((self.start % shape[0] == 0).all())):
            return False
        tiles = self.start // shape[0]
        extent = tiles.max(axis=0) + 1
        if prod(extent.tolist()) >= 1 << 62:
            return False
        places = np.ravel_multi_index(tuple(tiles.T), tuple(extent.tolist()))
        return bool(np.unique(places).size == len(self))

    def _painted_once(self) -> bool:
        """Whether no cell is covered twice: paint every region onto the lattice squeezed to its bounds."""
        edges = [np.unique(np.concatenate([self.start[:, d], self.stop[:, d]])) for d in range(self.ndim)]
        if prod(len(edge) for edge in edges) > MOST_PAINTED_CELLS:
            return False
        corners = [
            (np.searchsorted(edge, self.start[:, d]), np.searchsorted(edge, self.stop[:, d]))
            for d, edge in enumerate(edges)
        ]
        paint = np.zeros([len(edge) for edge in edges], dtype=np.int32)
        for ends in product((0, 1), repeat=self.ndim):
            np.add.at(paint, tuple(corners[d][end] for d, end in enumerate(ends)), (-1) ** sum(ends))
        for d in range(self.ndim):
            np.cumsum(paint, axis=d, out=paint)
        return bool(paint.max() <= 1)

    def _overlapping_pair(self, axis: int, order: Ints, starts: Ints) -> tuple[int, int] | None:
        """Sweep along one axis, each region against those that start before it ends."""
        ends = np.searchsorted(starts, self.stop[order, axis], side="left")
        for position, i in enumerate(order.tolist()):
            rivals = order[position + 1 : ends[position]]
            hit = np.all((self.start[rivals] < self.stop[i]) & (self.stop[rivals] > self.start[i]), axis=1)
            if hit.any():
                pair: Sequence[int] = sorted((i, int(rivals[np.argmax(hit)])))
                return pair[0], pair[1]
        return None
