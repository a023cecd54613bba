"""Which file shows which cells of the cube, if several have them.

A claim is a box of the cube, for some variables: files with different variables may share a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intarsia.archives.plan.axis_union import spans
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import Ints, RegionTable, Row

type Bools = np.ndarray[Any, np.dtype[np.bool_]]

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
class Claims:
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


def make_claims(file: int, boxes: Sequence[Box], variables: Ints) -> list[Row]:
    """The claims of one file: boxes of the cube, for runs of variables.

    >>> [row.box for row in make_claims(0, [Box((0,), (4,))], np.array([0, 1, 5]))]
    [Box(start=(0, 0), stop=(4, 2)), Box(start=(0, 5), stop=(4, 6))]
    """
    runs = spans(variables)
    return [
        Row(file, Box((*box.start, run.start), (*box.stop, run.stop)), (0,) * (len(box.start) + 1))
        for box in boxes
        for run in runs
    ]


def free_claims(rows: Sequence[Row], table: RegionTable) -> list[Row]:
    """The parts of claims where the table has none.

    >>> table = RegionTable.from_rows(make_claims(0, [Box((0,), (4,))], np.array([0])), 2)
    >>> [row.box for row in free_claims(make_claims(1, [Box((2,), (6,))], np.array([0])), table)]
    [Box(start=(4, 0), stop=(6, 1))]
    """
    return [row._replace(box=part) for row in rows for part in table.free(row.box)]


def resolve_overlaps(
    old: RegionTable, new: RegionTable, policy: str, moments: Mapping[int, float] | None = None
) -> Claims:
    """The claims of existing and new files, where the policy says which file wins.

    With `refuse`, a new file that overlaps another is not taken. Otherwise the file wins that came first, or
    last, or that was changed last; the other shows the rest of what it has.

    >>> old = RegionTable.from_rows(make_claims(0, [Box((0,), (4,))], np.array([0])), 2)
    >>> new = RegionTable.from_rows(make_claims(1, [Box((2,), (6,))], np.array([0])), 2)
    >>> resolve_overlaps(old, new, "refuse").refused
    {1: Overlap(other=0, box=Box(start=(2, 0), stop=(4, 1)))}
    >>> resolve_overlaps(old, new, "first").boxes(1, 0), resolve_overlaps(old, new, "last").boxes(1, 0)
    ([Box(start=(4,), stop=(6,))], [Box(start=(2,), stop=(6,))])
    """
    everything = old.concat(new)
    if everything.overlap() is None:
        return Claims(everything)
    there, coming = dict.fromkeys(old.member.tolist()), dict.fromkeys(new.member.tolist())
    if policy == "refuse":
        return _refuse_overlaps(old, new, list(coming))
    numbers = list(there | coming)
    if policy in ("last", "newest"):
        numbers.reverse()
    if policy == "newest":  # of equally old files, the later one
        ages = moments or {}
        numbers.sort(key=lambda number: -ages.get(number, -np.inf))
    return _cut_by_rank(everything, numbers)


def _refuse_overlaps(old: RegionTable, new: RegionTable, coming: Sequence[int]) -> Claims:
    """Take files one by one, unless they overlap an existing file or one that was taken."""
    everything, first = old.concat(new), len(old)
    is_taken = np.arange(len(everything)) < first
    result = Claims(old)
    for number in coming:
        own = first + np.flatnonzero(new.member == number)
        overlap = _first_overlap(everything, own.tolist(), is_taken)
        if overlap is None:
            is_taken[own] = True
        else:
            result.refused[number] = overlap
    result.table = everything.select(np.flatnonzero(is_taken))
    return result


def _first_overlap(table: RegionTable, rows: Sequence[int], others: Bools) -> Overlap | None:
    """Where one of these rows overlaps one of the others."""
    for box in (table.row(i).box for i in rows):
        for j in np.flatnonzero(others & _touches(table, box)).tolist():
            common = box.intersect(table.row(j).box)
            if common is not None:
                return Overlap(table.row(j).member, common)
    return None


def _cut_by_rank(table: RegionTable, numbers: Sequence[int]) -> Claims:
    """Every file shows what no file before it has."""
    ranks = {number: rank for rank, number in enumerate(numbers)}
    ranked = table.select(np.argsort([ranks[number] for number in table.member.tolist()], kind="stable"))
    rows: list[Row] = []
    cut: set[int] = set()
    for i in range(len(ranked)):
        row = ranked.row(i)
        parts = [row.box]
        for j in np.flatnonzero(_touches(ranked, row.box)[:i]).tolist():
            winner = ranked.row(j)
            parts = [left for part in parts for left in part.subtract(winner.box)]
            cut |= {row.member, winner.member}
        rows += [row._replace(box=part) for part in parts]
    return Claims(RegionTable.from_rows(rows, table.ndim), cut=cut)


def _touches(table: RegionTable, box: Box) -> Bools:
    """For every row of a table: whether it has cells in common with a box."""
    touches: Bools = ((table.start < box.stop) & (table.stop > box.start)).all(axis=1)
    return touches
