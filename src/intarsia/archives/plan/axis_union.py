"""Where files go: their steps on the axes that grow, by coordinates, and which file shows which cells.

The axis of a dimension holds every coordinate value that any file has, in order. A file's part of it is cut
into spans of consecutive steps; a box of the cube is one span of every dimension. What no file has is a hole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.archives.plan.coordinates import labels
from intarsia.archives.plan.member_allocation import insert_gap, remove_cells
from intarsia.errors import IngestError
from intarsia.manifest.box import Box

if TYPE_CHECKING:
    from intarsia.manifest.region_table import Ints, RegionTable

ULPS = 4
"""Values that are at most this many steps of their floating-point type apart are equal by default."""


class Span(NamedTuple):
    """Consecutive steps of an axis, and the steps of a file that are there.

    >>> Span(4, 3, first=2, stride=-1).file_steps
    (0, 3)
    """

    start: int
    """The first step of the axis."""

    length: int

    first: int = 0
    """The file's step at `start`."""

    stride: int = 1
    """1, or -1 if the file counts the other way."""

    @property
    def stop(self) -> int:
        return self.start + self.length

    @property
    def file_steps(self) -> tuple[int, int]:
        """The first and last (excluded) step of the file."""
        low = self.first if self.stride > 0 else self.first - self.length + 1
        return low, low + self.length

    def cut(self, low: int, high: int) -> Span | None:
        """The part between two steps of the axis.

        >>> Span(4, 3, first=2, stride=-1).cut(5, 9)
        Span(start=5, length=2, first=1, stride=-1)
        """
        start, stop = max(low, self.start), min(high, self.stop)
        if start >= stop:
            return None
        return Span(start, stop - start, self.first + self.stride * (start - self.start), self.stride)

    def of_file(self, low: int, high: int) -> Span | None:
        """The part between two steps of the file.

        >>> Span(4, 3, first=2, stride=-1).of_file(1, 9)
        Span(start=4, length=2, first=2, stride=-1)
        """
        a, b = self.file_steps
        a, b = max(a, low), min(b, high)
        if a >= b:
            return None
        ends = (self.start + self.stride * (a - self.first), self.start + self.stride * (b - 1 - self.first))
        return self.cut(min(ends), max(ends) + 1)


def spans(positions: Ints) -> tuple[Span, ...]:
    """Steps of an axis, one for each step of a file, as a few spans.

    >>> spans(np.array([3, 4, 5, 9, 2, 1]))
    (Span(start=3, length=3, first=0, stride=1), Span(start=9, length=1, first=3, stride=1), \
Span(start=1, length=2, first=5, stride=-1))
    """
    count = len(positions)
    if count == 1 or bool((np.diff(positions) == 1).all()):
        return (Span(int(positions[0]), count),) if count else ()
    steps = np.diff(positions).tolist()
    found, begin = [], 0
    while begin < count:
        stride = steps[begin] if begin < count - 1 and abs(steps[begin]) == 1 else 0
        end = begin
        while stride and end < count - 1 and steps[end] == stride:
            end += 1
        length = end - begin + 1
        if stride == -1:
            found.append(Span(int(positions[end]), length, end, -1))
        else:
            found.append(Span(int(positions[begin]), length, begin))
        begin = end + 1
    return tuple(found)


def stored_spans(places: Sequence[Span], picked: Ints) -> tuple[Span, ...]:
    """Spans of the `picked` steps of a file, counted in its stored steps.

    >>> stored_spans([Span(10, 3)], np.array([4, 5, 9]))
    (Span(start=10, length=2, first=4, stride=1), Span(start=12, length=1, first=9, stride=1))
    """
    found = []
    for span in places:
        stored = picked[span.first + span.stride * np.arange(span.length)]
        for run in spans(stored):  # in the order of the axis; `first` counts along it
            at = run.first if run.stride > 0 else run.first - run.length + 1
            found.append(Span(span.start + at, run.length, int(stored[at]), run.stride))
    return tuple(found)


@dataclass
class GrownAxis:
    """One dimension that grows: what exists, what goes, what comes."""

    dim: str

    length: int
    """Its length after the commit."""

    removed: list[tuple[int, int]] = field(default_factory=list)
    """Current steps that no file has any more; last first."""

    openings: list[tuple[int, int]] = field(default_factory=list)
    """Where steps are inserted (counted after the removals) and how many; last first."""

    values: np.ndarray[Any, Any] | None = None
    """The coordinate after the commit; None if files have none."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the coordinate's numbers mean."""

    positions: list[Ints] = field(default_factory=list)
    """For every new file, where each of its steps is on the axis."""

    rewritten: bool = False
    """Whether the coordinate's numbers are encoded differently from before."""

    @property
    def appends(self) -> bool:
        """Whether everything new comes after what exists."""
        added = sum(length for _, length in self.openings)
        return not self.removed and all(at == self.length - added for at, _ in self.openings)

    def goes_behind(self, steps: int) -> bool:
        """Whether everything new comes after the first `steps`, which stay as they are."""
        return self.appends and not self.rewritten and all(int(own.min()) >= steps for own in self.positions)

    def kept(self) -> Ints:
        """For every existing step: where it will be; -1 if it is removed."""
        added = sum(length for _, length in self.openings)
        gone = sum(b - a for a, b in self.removed)
        before = self.length - added + gone
        stays = np.ones(before, dtype=bool)
        for a, b in self.removed:
            stays[a:b] = False
        places = np.arange(before - gone)
        for at, length in self.openings:  # counted in the steps that stay
            places[at:] += length
        kept = np.full(before, -1, dtype=np.int64)
        kept[stays] = places
        return kept

    def moved(self, table: RegionTable, axis: int) -> RegionTable:
        """A table of boxes on this axis, moved to their new places."""
        for start, stop in self.removed:
            table = remove_cells(table, axis, start, stop)
        for at, length in self.openings:
            table = insert_gap(table, axis, at, length)
        return table

    def text(self, span: Span) -> str:
        """Steps as people write them."""
        if self.values is None:
            return " … ".join(dict.fromkeys((str(span.start), str(span.stop - 1))))
        ends = labels(self.values[[span.start, span.stop - 1]], self.attrs)
        return " … ".join(dict.fromkeys(ends))


def uncovered(length: int, starts: Ints, stops: Ints) -> list[tuple[int, int]]:
    """The steps of an axis that are in no interval; last first.

    >>> uncovered(9, np.array([0, 5]), np.array([2, 9]))
    [(2, 5)]
    """
    depth = np.zeros(length + 1, dtype=np.int64)
    np.add.at(depth, starts, 1)
    np.add.at(depth, stops, -1)
    free = np.concatenate([[False], np.cumsum(depth)[:-1] == 0, [False]])
    edges = np.flatnonzero(np.diff(free)).reshape(-1, 2)
    return [(a, b) for a, b in edges[::-1].tolist()]


def order(values: np.ndarray[Any, Any]) -> int:
    """1 if values rise, -1 if they fall, 0 if they do neither or there is only one."""
    if len(values) < 2:
        return 0
    if bool((values[1:] > values[:-1]).all()):
        return 1
    return -1 if bool((values[1:] < values[:-1]).all()) else 0


def sortable(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values that NumPy can sort and search: texts as objects."""
    return values.astype(object) if isinstance(values.dtype, np.dtypes.StringDType) else values


def union(
    dim: str, before: np.ndarray[Any, Any] | None, parts: Sequence[np.ndarray[Any, Any]],
    removed: list[tuple[int, int]], tolerance: float | None = None,
) -> GrownAxis:  # fmt: skip
    """The axis of all existing and new values, and where those of every part are on it.

    It rises, unless everything with a direction falls.

    >>> axis = union("x", np.array([1.0, 3.0]), [np.array([2.0, 1.0]), np.array([9.0])], [])
    >>> axis.values.tolist(), axis.openings, [each.tolist() for each in axis.positions]
    ([1.0, 2.0, 3.0, 9.0], [(2, 1), (1, 1)], [[1, 0], [3]])
    """
    stays = before
    for start, stop in removed:
        assert stays is not None
        stays = np.delete(stays, slice(start, stop))
    old = np.empty(0, parts[0].dtype if parts else np.float64) if stays is None else stays
    known = [old, *parts]
    directions = {order(part) for part in ([old] if len(old) > 1 else parts)} - {0}
    if len(old) > 1 and not directions:  # made without order: new values come last
        directions = {1}
    everything = np.concatenate(known)
    keys = sortable(everything) if everything.dtype.kind != "f" else _snapped(everything, tolerance, known)
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    if directions == {-1}:
        first, inverse = first[::-1], len(distinct) - 1 - inverse
    values = everything[first]
    cuts = np.cumsum([len(part) for part in known])[:-1]
    places = np.split(inverse, cuts)
    openings: dict[int, int] = {}
    fresh = np.ones(len(values), dtype=bool)
    fresh[places[0]] = False
    at = np.cumsum(~fresh)[fresh]  # old steps before each new one
    for where, count in zip(*np.unique(at, return_counts=True), strict=True):
        openings[int(where)] = int(count)
    return GrownAxis(
        dim, len(values), removed, sorted(openings.items(), reverse=True), values, {}, places[1:]
    )


def _snapped(
    values: np.ndarray[Any, Any], tolerance: float | None, parts: Sequence[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """The values, with those that differ by no more than the tolerance made equal."""
    if len(values) < 2 or tolerance == 0:
        return values
    if tolerance is None:  # noise around 0 is small compared with the distance between steps
        kinds = {part.dtype for part in parts if part.dtype.kind == "f"}
        eps = max((float(np.finfo(kind).eps) for kind in kinds), default=0.0)
        steps = (float(np.abs(np.diff(part)).min()) for part in parts if len(part) > 1)
        near = ULPS * eps * np.maximum(np.abs(values), min(steps, default=0.0))
    else:
        near = np.full(len(values), tolerance)
    rank = np.argsort(values, kind="stable")
    ranked = values[rank]
    close = np.diff(ranked) <= near[rank][1:]
    # in a chain of close values, the first stands for all
    leads = np.concatenate([[True], ~close])
    snapped = values.copy()
    snapped[rank] = ranked[np.maximum.accumulate(np.where(leads, np.arange(len(ranked)), 0))]
    return snapped


def appended(dim: str, before: int, lengths: Sequence[int], removed: list[tuple[int, int]]) -> GrownAxis:
    """The axis of a dimension without a coordinate: files follow one another in the given order."""
    stays = before - sum(b - a for a, b in removed)
    ends = np.cumsum([stays, *lengths]).tolist()
    total = ends[-1]
    positions = [np.arange(a, b) for a, b in pairwise(ends)]
    openings = [(stays, total - stays)] if total > stays else []
    return GrownAxis(dim, total, removed, openings, positions=positions)


def nested(dim: str, indices: Sequence[int], lengths: Sequence[int]) -> GrownAxis:
    """The axis of a dimension without a coordinate, from the places of files in nested lists.

    >>> nested("x", [0, 1, 0], [2, 3, 2]).positions[1].tolist()
    [2, 3, 4]
    """
    size = dict(zip(indices, lengths, strict=True))
    for index, length in zip(indices, lengths, strict=True):
        if size[index] != length:
            raise IngestError(
                f"files at {index} of the lists along {dim!r} have {size[index]} and {length} steps"
            )
    starts = dict(zip(sorted(size), np.cumsum([0, *(size[i] for i in sorted(size))]).tolist(), strict=False))
    positions = [np.arange(starts[i], starts[i] + size[i]) for i in indices]
    total = sum(size.values())
    return GrownAxis(dim, total, openings=[(0, total)] if total else [], positions=positions)


def boxes(spans_of: Sequence[Sequence[Span]]) -> list[Box]:
    """All combinations of one span per dimension, as boxes of the cube."""
    return [Box.of((span.start, span.stop) for span in each) for each in product(*spans_of)]
