"""The region table: every region of a logical array, by column, in units of logical chunks.

Lookups and checks work on whole columns, so that 100,000 regions cost no Python loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from intarsia.manifest.box import Box

type Ints = np.ndarray[Any, np.dtype[np.int64]]

NONE = -1
"""The number that means no packing, or no view."""

MAX_REGIONS = 10_000_000
"""A table that claims more than this is not even read."""

MAX_LAYERS = 64
"""Layers are numbered below this."""

FEW = 8
"""Up to this many rows, comparing them one by one takes less time than by columns."""

# Painting all regions onto their compressed lattice is the fastest test for overlaps, up to this many cells.
MAX_PAINTED_CELLS = 20_000_000


class Row(NamedTuple):
    """One region of the table.

    >>> Row(0, Box((5, 0), (10, 10)), (0, 0)).crop(Box((6, 0), (7, 10)))
    Row(member=0, box=Box(start=(6, 0), stop=(7, 10)), member_start=(1, 0), packing=-1, view=-1, layer=0)
    """

    member: int
    """The position in the manifest's list of members."""

    box: Box
    """The part of the array that it backs, in logical chunks."""

    member_start: tuple[int, ...]
    """Where the box starts in the member, or in the view of it, in logical chunks."""

    packing: int = NONE
    """The number of the packing of the member's numbers, or `NONE`."""

    view: int = NONE
    """The number of the view of the member, or `NONE`."""

    layer: int = 0
    """0, or the number of the replica layer that the region belongs to."""

    @property
    def shift(self) -> tuple[int, ...]:
        """What to add to a logical chunk's position to get its position in the member.

        >>> Row(0, Box((5, 0), (10, 10)), (0, 2)).shift
        (-5, 2)
        """
        return tuple(map(operator.sub, self.member_start, self.box.start))

    def crop(self, box: Box) -> Row:
        """The same region, showing another box of the same member: a smaller or larger one."""
        return self._replace(box=box, member_start=box.shifted(self.shift).start)


class LazyColumns:
    """Columns, the fields of a dataclass, that can be read on first use.

    This is for stores that do not change: the columns hold the same later on.
    """

    @classmethod
    def later(cls, read: Callable[[], Self], **columns_at_hand: Any) -> Self:
        """The columns that `read` will return; those in `columns_at_hand` need no read."""
        columns = object.__new__(cls)
        vars(columns).update(columns_at_hand, _read=read)
        return columns

    if not TYPE_CHECKING:  # otherwise a type checker would accept any name as an attribute

        def __getattr__(self, name: str) -> Any:
            values, names = vars(self), [column.name for column in fields(self)]
            if name not in names or "_read" not in values:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            columns = values["_read"]()
            values.update({name: getattr(columns, name) for name in names})
            return values[name]

    def __reduce__(self) -> tuple[Any, ...]:
        columns: Any = self
        return type(self), tuple(getattr(self, column.name) for column in fields(columns))


@dataclass(frozen=True, eq=False)
class RegionTable(LazyColumns):
    """All regions, one row each.

    >>> table = RegionTable.from_rows([Row(0, Box((0,), (4,)), (0,)), Row(1, Box((4,), (9,)), (0,))], ndim=1)
    >>> table.touching(Box((3,), (5,))).tolist()
    [0, 1]
    """

    member: Ints
    """The position in the list of members; shape (regions,)."""

    start: Ints
    """The first logical chunk; shape (regions, dimensions)."""

    stop: Ints
    """The last logical chunk, excluded."""

    member_start: Ints
    """Where `start` lies in the member, or in the view of it, in logical chunks."""

    packing: Ints
    """The number of the packing, or `NONE`; shape (regions,)."""

    view: Ints
    """The number of the view, or `NONE`; shape (regions,)."""

    layer: Ints
    """0, or the number of a replica layer; shape (regions,)."""

    @classmethod
    def of(cls, *columns: Ints) -> Self:
        """The table with these columns; those from the packing on may be absent.

        >>> RegionTable.of(np.array([0]), np.array([[1]]), np.array([[2]]), np.array([[0]])).packing
        array([-1])
        """
        usual = [np.full(len(columns[0]), number, dtype=np.int64) for number in (NONE, NONE, 0)]
        return cls(*columns, *usual[len(columns) - 4 :])

    def __len__(self) -> int:
        return len(self.member)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegionTable) and np.array_equal(self.columns(), other.columns())

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
        numbers = [(row.member, row.packing, row.view, row.layer) for row in listed]
        member, packing, view, layer = np.array(numbers, dtype=np.int64).reshape(len(listed), 4).T.copy()
        places = [(row.box.start, row.box.stop, row.member_start) for row in listed]
        corners = np.array(places, dtype=np.int64).reshape(len(listed), 3, ndim)
        start, stop, member_start = corners.swapaxes(0, 1).copy()
        return cls(member, start, stop, member_start, packing, view, layer)

    def row(self, i: int) -> Row:
        """Row `i` as an object.

        >>> RegionTable.from_rows([Row(3, Box((0,), (4,)), (0,))], ndim=1).row(0).member
        3
        """
        box = Box(tuple(self.start[i].tolist()), tuple(self.stop[i].tolist()))
        numbers = int(self.packing[i]), int(self.view[i]), int(self.layer[i])
        return Row(int(self.member[i]), box, tuple(self.member_start[i].tolist()), *numbers)

    def in_order(self) -> Ints:
        """Rows in the order in which their regions begin: on the first axis, then on the next.

        >>> rows = [Row(0, Box((4, 0), (8, 2)), (0, 0)), Row(1, Box((0, 0), (4, 2)), (0, 0))]
        >>> RegionTable.from_rows(rows, ndim=2).in_order().tolist()
        [1, 0]
        """
        order: Ints = np.lexsort(self.start.T[::-1]) if self.ndim else np.arange(len(self))
        return order

    def select(self, rows: Any) -> RegionTable:
        """The table with some of the rows."""
        return RegionTable(*[getattr(self, column.name)[rows] for column in fields(self)])

    def in_layers(self) -> RegionTable:
        """The table with replicas after the regions of layer 0."""
        return self.select(np.argsort(self.layer != 0, kind="stable")) if self.layer.any() else self

    def concat(self, other: RegionTable) -> RegionTable:
        """The rows of this table, followed by those of another."""
        names = [column.name for column in fields(self)]
        return RegionTable(*[np.concatenate([getattr(self, n), getattr(other, n)]) for n in names])

    def columns(self) -> Ints:
        """All columns side by side, as they are stored in the table form of the manifest."""
        return np.column_stack([getattr(self, column.name) for column in fields(self)])

    @classmethod
    def from_columns(cls, columns: Ints, ndim: int) -> Self:
        """The table from its stored columns; those from the packing on may be absent.

        >>> RegionTable.from_columns(np.array([[0, 1, 2, 0]]), 1).row(0).box
        Box(start=(1,), stop=(2,))
        """
        corners = [columns[:, 1 + k * ndim : 1 + (k + 1) * ndim] for k in range(3)]
        numbers = columns[:, 1 + 3 * ndim : 4 + 3 * ndim].T
        return cls.of(*map(np.ascontiguousarray, (columns[:, 0], *corners, *numbers)))

    @property
    def along(self) -> int:
        """The axis that separates most regions."""
        return self._along[0]

    @cached_property
    def _along(self) -> tuple[int, Ints, Ints, Ints]:
        """The axis that separates most regions; the rows in order along it, their starts, and the highest
        stop up to each row."""
        # On the axis where regions reach furthest, they mostly follow one another, as appends do; a slice of
        # the rows ordered by start then holds few that a box does not touch.
        axis = int(np.argmax(self.start.max(axis=0)))
        starts = self.start[:, axis]
        order = np.argsort(starts, kind="stable")
        return axis, order, starts[order], np.maximum.accumulate(self.stop[order, axis])

    @cached_property
    def _few(self) -> list[tuple[int, list[int], list[int]]] | None:
        """The number, start and stop of every row, if there are few."""
        if len(self) > FEW and self.ndim:
            return None
        return list(zip(range(len(self)), self.start.tolist(), self.stop.tolist(), strict=True))

    def touching(self, box: Box) -> Ints:
        """Rows that share a lattice cell with `box`, in table order."""
        if (few := self._few) is not None:
            near = []
            for i, start, stop in few:
                for a, b, low, high in zip(start, stop, *box, strict=True):
                    if not (low < high and low < b and a < high):
                        break
                else:
                    near.append(i)
            return np.array(near, dtype=np.int64)
        if any(map(operator.ge, box.start, box.stop)):
            return np.empty(0, dtype=np.int64)
        axis, order, starts, highest_stop = self._along
        # No row before `first` reaches the box, as the highest of their stops does not. The stops themselves
        # are out of order if a long region starts before short ones; their running maximum is not.
        first = highest_stop.searchsorted(box.start[axis], side="right")
        last = starts.searchsorted(box.stop[axis], side="left")
        rows = order[first:last]
        inside = ((self.start[rows] < box.stop) & (self.stop[rows] > box.start)).all(axis=1)
        touched: Ints = rows[inside]
        touched.sort()
        return touched

    def parts(self, box: Box) -> list[tuple[Row, Box]]:
        """The rows that share cells with a box, each with the box that it shares.

        >>> RegionTable.from_rows([Row(0, Box((2,), (4,)), (0,))], ndim=1).parts(Box((3,), (9,)))[0][1]
        Box(start=(3,), stop=(4,))
        """
        rows = map(self.row, self.touching(box).tolist())
        return [(row, shared) for row in rows if (shared := row.box.intersect(box)) is not None]

    def free(self, box: Box) -> list[Box]:
        """The parts of `box` that no region covers.

        >>> RegionTable.from_rows([Row(0, Box((2,), (4,)), (0,))], ndim=1).free(Box((0,), (5,)))
        [Box(start=(0,), stop=(2,)), Box(start=(4,), stop=(5,))]
        """
        parts = [box]
        for row, _ in self.parts(box):
            parts = [left for part in parts for left in part.subtract(row.box)]
        return parts

    def covers(self, box: Box) -> bool:
        """Whether regions, no two of which overlap, back all of a box.

        >>> RegionTable.from_rows([Row(0, Box((2,), (4,)), (0,))], ndim=1).covers(Box((1,), (3,)))
        False
        """
        rows = self.touching(box)
        shared = np.minimum(self.stop[rows], box.stop) - np.maximum(self.start[rows], box.start)
        return int(shared.prod(axis=1).sum()) == prod(box.shape)

    def by_layer(self) -> dict[int, RegionTable]:
        """The rows of every layer in the table, in ascending order.

        >>> rows = [Row(0, Box((0,), (4,)), (0,)), Row(1, Box((0,), (2,)), (0,), layer=3)]
        >>> {layer: len(table) for layer, table in RegionTable.from_rows(rows, ndim=1).by_layer().items()}
        {0: 1, 3: 1}
        """
        layers = np.unique(self.layer).tolist()
        if len(layers) == 1:
            return {layers[0]: self}
        return {layer: self.select(np.flatnonzero(self.layer == layer)) for layer in layers}

    def runs(self, axis: int) -> list[list[int]]:
        """Groups of rows that continue one another along an axis, in one layer and with one cross-section.

        >>> rows = [Row(0, Box((i,), (j,)), (0,)) for i, j in ((4, 6), (0, 1), (1, 4), (7, 8))]
        >>> RegionTable.from_rows(rows, ndim=1).runs(0)
        [[1, 2, 0], [3]]
        """
        order, begins, _ = runs_along(axis, self.start, self.stop, self.layer)
        return [run.tolist() for run in np.split(order, begins[1:])] if len(self) else []

    def merge_neighbours(self, axis: int) -> RegionTable:
        """The table with rows merged that continue one another along an axis, in the array and in the member.

        >>> rows = [Row(0, Box((i,), (i + 2,)), (i,)) for i in (2, 0, 4)]
        >>> RegionTable.from_rows(rows, ndim=1).merge_neighbours(0).row(0).box
        Box(start=(0,), stop=(6,))
        """
        shift = self.member_start - self.start  # this stays the same where a member continues
        alike = self.layer, self.member, self.packing, self.view, shift
        order, begins, ends = runs_along(axis, self.start, self.stop, *alike)
        merged = self.select(order[begins])
        merged.stop[:, axis] = self.stop[order[ends], axis]
        return merged.select(np.argsort(merged.start[:, axis], kind="stable"))

    def move(self, axis: int, places: Ints) -> RegionTable:
        """The table with every cell of an axis in another place: places rise, and -1 removes a cell.

        >>> table = RegionTable.from_rows([Row(0, Box((0,), (4,)), (0,))], ndim=1)
        >>> moved = table.move(0, np.array([0, -1, 1, 5]))
        >>> [(row.box.start, row.box.stop, row.member_start) for row in map(moved.row, range(len(moved)))]
        [((0,), (1,), (0,)), ((1,), (2,), (2,)), ((5,), (6,), (3,))]
        """
        if not len(self) or bool((places == np.arange(len(places))).all()):
            return self
        first, last = self.start[:, axis], self.stop[:, axis] - 1
        removed = np.cumsum(places < 0)
        intact = (places[first] >= 0) & (removed[first] == removed[last])
        intact &= places[last] - places[first] == last - first
        moved = self.select(np.flatnonzero(intact))
        moved.start[:, axis], moved.stop[:, axis] = places[first[intact]], places[last[intact]] + 1
        pieces = []
        for row in map(self.row, np.flatnonzero(~intact).tolist()):
            begin = row.box.start[axis]
            cells = np.flatnonzero(places[begin : row.box.stop[axis]] >= 0) + begin
            breaks = np.flatnonzero((np.diff(cells) != 1) | (np.diff(places[cells]) != 1)) + 1
            for run in np.split(cells, breaks) if len(cells) else ():
                part = row.crop(row.box.with_axis(axis, int(run[0]), int(run[-1]) + 1))
                place = int(places[run[0]])
                pieces.append(part._replace(box=part.box.with_axis(axis, place, place + len(run))))
        return moved.concat(RegionTable.from_rows(pieces, self.ndim)) if pieces else moved

    def subtract(self, *boxes: Box, layer: int | None = None) -> RegionTable:
        """The table with boxes cut out of every region, or of those of one layer."""
        touched = np.unique(np.concatenate([np.empty(0, np.int64), *map(self.touching, boxes)]))
        if layer is not None:
            touched = touched[self.layer[touched] == layer]
        if not touched.size:
            return self
        holes = RegionTable.from_rows([Row(0, box, box.start) for box in boxes], self.ndim)
        rows = map(self.row, touched.tolist())
        pieces = [row.crop(left) for row in rows for left in holes.free(row.box)]
        untouched = self.select(np.setdiff1d(np.arange(len(self)), touched))
        return untouched.concat(RegionTable.from_rows(pieces, self.ndim))

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
        # From the cheapest test to the most expensive; any that succeeds proves that nothing overlaps.
        if bool((starts[1:] >= highest_stop[:-1]).all()):
            return None  # already disjoint along one axis, like a series of appends
        if self._painted_once():
            return None
        return self._overlapping_pair(axis, order, starts)

    def _painted_once(self) -> bool:
        """Whether no cell is covered twice: paint every region onto the lattice, reduced to their bounds."""
        # Between two neighbouring bounds nothing changes, so one cell per interval is enough.
        edges = [np.unique(np.concatenate([self.start[:, d], self.stop[:, d]])) for d in range(self.ndim)]
        if prod(len(edge) for edge in edges) > MAX_PAINTED_CELLS:
            return False
        corners = [
            (np.searchsorted(edge, self.start[:, d]), np.searchsorted(edge, self.stop[:, d]))
            for d, edge in enumerate(edges)
        ]
        # Each box adds +1 or -1 at its 2^d corners. Summed up along every axis in turn (a difference array),
        # that is 1 inside the box and 0 outside: the cost is a few operations per box, however large it is.
        paint = np.zeros([len(edge) for edge in edges], dtype=np.int32)
        for ends in product((0, 1), repeat=self.ndim):
            np.add.at(paint, tuple(corners[d][end] for d, end in enumerate(ends)), (-1) ** sum(ends))
        for d in range(self.ndim):
            np.cumsum(paint, axis=d, out=paint)
        return bool(paint.max() <= 1)

    def _overlapping_pair(self, axis: int, order: Ints, starts: Ints) -> tuple[int, int] | None:
        """Sweep along one axis, comparing each region with those that start before it ends."""
        # Rows are ordered by start: those that may overlap row i come right after it, up to the first that
        # starts where i ends.
        ends = np.searchsorted(starts, self.stop[order, axis], side="left")
        for position, i in enumerate(order.tolist()):
            rivals = order[position + 1 : ends[position]]
            hit = np.all((self.start[rivals] < self.stop[i]) & (self.stop[rivals] > self.start[i]), axis=1)
            if hit.any():
                rival = int(rivals[np.argmax(hit)])
                return min(i, rival), max(i, rival)
        return None


def runs_along(axis: int, start: Ints, stop: Ints, *alike: Ints) -> tuple[Ints, Ints, Ints]:
    """Boxes, by column, that continue one another along an axis and are equal in other columns.

    Returns the boxes in an order in which such runs stand together; where each run begins in it, and where
    it ends (included).

    >>> start, stop = np.array([[4], [0], [1], [7]]), np.array([[6], [1], [4], [8]])
    >>> [places.tolist() for places in runs_along(0, start, stop)]
    [[1, 2, 0, 3], [0, 3], [2, 3]]
    """
    across = np.arange(start.shape[1]) != axis
    columns = np.column_stack([*alike, start[:, across], stop[:, across]])
    order = np.lexsort((start[:, axis], *columns.T[::-1]))
    columns, first, last = columns[order], start[order, axis], stop[order, axis]
    ends_here = (columns[1:] != columns[:-1]).any(axis=1) | (first[1:] != last[:-1])
    breaks = np.flatnonzero(ends_here)
    whole = np.arange(min(len(order), 1))
    return order, np.append(whole, breaks + 1), np.append(breaks, whole + len(order) - 1)
