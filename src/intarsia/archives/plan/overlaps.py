"""Which file shows which cells of the cube, if several have them.

A claim is a box of the cube, for some variables: files with different variables may share a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from intarsia.archives.plan.axis_union import spans
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import Ints, RegionTable, Row

POLICIES = ("refuse", "first", "last", "newest")
"""What happens to a file that overlaps others."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two files in the same place."""

    other: int
    """The number of the file that is already there."""

    box: Box
    """A box that both have; the last axis counts variables."""


@dataclass
class Settled:
    """The claims of all files, without overlaps."""

    table: RegionTable
    """Files by number; the last axis counts variables."""

    refused: dict[int, Overlap] = field(default_factory=dict)
    """Files that are not taken."""

    cut: set[int] = field(default_factory=set)
    """Files that show less than they have, or more than was free."""

    def boxes(self, file: int, variable: int) -> list[Box]:
        """What a file shows of a variable, as boxes of the cube."""
        table = self.table
        rows = np.flatnonzero(
            (table.member == file) & (table.start[:, -1] <= variable) & (variable < table.stop[:, -1])
        )
        found = (table.row(i).box for i in rows.tolist())
        return [Box(box.start[:-1], box.stop[:-1]) for box in found]


def claim(file: int, boxes: Sequence[Box], variables: Ints) -> list[Row]:
    """The claims of one file: boxes of the cube, for runs of variables.

    >>> [row.box for row in claim(0, [Box((0,), (4,))], np.array([0, 1, 5]))]
    [Box(start=(0, 0), stop=(4, 2)), Box(start=(0, 5), stop=(4, 6))]
    """
    runs = spans(variables)
    return [
        Row(file, Box((*box.start, run.start), (*box.stop, run.stop)), (0,) * (len(box.start) + 1))
        for box in boxes
        for run in runs
    ]


def unclaimed(rows: Sequence[Row], table: RegionTable) -> list[Row]:
    """The parts of claims where the table has none.

    >>> table = RegionTable.from_rows(claim(0, [Box((0,), (4,))], np.array([0])), 2)
    >>> [row.box for row in unclaimed(claim(1, [Box((2,), (6,))], np.array([0])), table)]
    [Box(start=(4, 0), stop=(6, 1))]
    """
    taken = _Taken(table)
    left = []
    for row in rows:
        parts = [row.box]
        for hit in taken.touching(row.box):
            parts = [part for each in parts for part in each.subtract(hit.box)]
        left += [row.crop(part)._replace(member_start=row.member_start) for part in parts]
    return left


def settled(
    old: RegionTable, new: RegionTable, policy: str, moments: Mapping[int, float] | None = None
) -> Settled:
    """The claims of existing and new files, where the policy says which file wins.

    With `refuse`, a new file that overlaps another is not taken. Otherwise the file wins that came first, or
    last, or that was changed last; the other shows the rest of what it has.

    >>> old = RegionTable.from_rows(claim(0, [Box((0,), (4,))], np.array([0])), 2)
    >>> new = RegionTable.from_rows(claim(1, [Box((2,), (6,))], np.array([0])), 2)
    >>> settled(old, new, "refuse").refused
    {1: Overlap(other=0, box=Box(start=(2, 0), stop=(4, 1)))}
    >>> settled(old, new, "first").boxes(1, 0), settled(old, new, "last").boxes(1, 0)
    ([Box(start=(4,), stop=(6,))], [Box(start=(2,), stop=(6,))])
    """
    everything = old.concat(new)
    if everything.overlap() is None:
        return Settled(everything)
    there, coming = dict.fromkeys(old.member.tolist()), dict.fromkeys(new.member.tolist())
    if policy == "refuse":
        return _refusing(old, new, list(coming))
    numbers = list(there | coming)
    if policy in ("last", "newest"):
        numbers.reverse()
    if policy == "newest":  # of equally old files, the later one
        ages = moments or {}
        numbers.sort(key=lambda number: -ages.get(number, -np.inf))
    return _by_rank(everything, numbers)


def _refusing(old: RegionTable, new: RegionTable, coming: Sequence[int]) -> Settled:
    result = Settled(old)
    taken = _Taken(old)
    for number in coming:
        rows = new.select(np.flatnonzero(new.member == number))
        hit = next((hit for i in range(len(rows)) for hit in taken.touching(rows.row(i).box)), None)
        if hit is not None:
            box = next(b for i in range(len(rows)) if (b := rows.row(i).box.intersect(hit.box)) is not None)
            result.refused[number] = Overlap(hit.member, box)
        else:
            taken.add([rows.row(i) for i in range(len(rows))])
    kept = new.select(np.flatnonzero(~np.isin(new.member, list(result.refused))))
    result.table = old.concat(kept)
    return result


def _by_rank(table: RegionTable, numbers: Sequence[int]) -> Settled:
    """Every file shows what no file before it shows."""
    result = Settled(RegionTable.from_rows([], table.ndim))
    taken = _Taken(result.table)
    for number in numbers:
        for i in np.flatnonzero(table.member == number).tolist():
            row = table.row(i)
            left = [row.box]
            for hit in taken.touching(row.box):
                left = [part for each in left for part in each.subtract(hit.box)]
                result.cut |= {number, hit.member}
            taken.add([row.crop(part)._replace(member_start=row.member_start) for part in left])
    result.table = taken.table
    return result


class _Taken:
    """Claims that are added one by one, in columns that fill up."""

    def __init__(self, table: RegionTable) -> None:
        self._rows = [table.row(i) for i in range(len(table))]
        self._start, self._stop = table.start.copy(), table.stop.copy()

    def touching(self, box: Box) -> list[Row]:
        count = len(self._rows)
        hit = ((self._start[:count] < box.stop) & (self._stop[:count] > box.start)).all(axis=1)
        return [self._rows[i] for i in np.flatnonzero(hit).tolist()]

    def add(self, rows: Sequence[Row]) -> None:
        count = len(self._rows)
        if count + len(rows) > len(self._start):
            room = np.zeros((count + len(rows) + 1024, self._start.shape[1]), dtype=np.int64)
            self._start = np.concatenate([self._start[:count], room])
            self._stop = np.concatenate([self._stop[:count], room])
        for i, row in enumerate(rows, start=count):
            self._start[i], self._stop[i] = row.box
        self._rows += rows

    @property
    def table(self) -> RegionTable:
        return RegionTable.from_rows(self._rows, self._start.shape[1])
