"""The axes that grow: which steps they have after the commit, and where the steps of each file are on them.

The axis of a dimension holds every coordinate value that any file has, in order. A file's part of it is cut
into spans of consecutive steps; a box of the cube is one span of every dimension. What no file has is a hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.archives.plan.coordinates import PlainArray, labels
from intarsia.errors import IngestError, argument

if TYPE_CHECKING:
    from intarsia.manifest.region_table import Ints

ULPS = 4
"""Values that are at most this many steps of their floating-point type apart are equal by default."""


class Span(NamedTuple):
    """Consecutive steps of an axis, and the steps of a file that are there.

    >>> Span(4, 3, first=2, stride=-1).inverse
    Span(start=0, length=3, first=6, stride=-1)
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
    def inverse(self) -> Span:
        """The steps of the file, and the steps of the axis that are there."""
        if self.stride > 0:
            return Span(self.first, self.length, self.start)
        return Span(self.first - self.length + 1, self.length, self.stop - 1, -1)

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
        seen = self.inverse.cut(low, high)
        return None if seen is None else seen.inverse

    def through(self, inner: Span) -> Span | None:
        """The part whose steps of the file are in `inner`, with what `inner` shows there.

        >>> Span(4, 3, first=2, stride=-1).through(Span(1, 9, first=70))
        Span(start=4, length=2, first=71, stride=-1)
        """
        seen = self.of_file(inner.start, inner.stop)
        if seen is None:
            return None
        first = inner.first + inner.stride * (seen.first - inner.start)
        return Span(seen.start, seen.length, first, seen.stride * inner.stride)


def spans(positions: Ints, stored: Ints | None = None) -> tuple[Span, ...]:
    """Steps of an axis, one for each step of a file, as a few spans; `stored` are those steps, if not all.

    >>> spans(np.array([3, 4, 5, 9, 2, 1]))
    (Span(start=3, length=3, first=0, stride=1), Span(start=9, length=1, first=3, stride=1), \
Span(start=1, length=2, first=5, stride=-1))
    >>> spans(np.array([10, 11, 12]), np.array([4, 5, 9]))
    (Span(start=10, length=2, first=4, stride=1), Span(start=12, length=1, first=9, stride=1))
    """
    count = len(positions)
    if stored is None:
        if count == 1 or bool((np.diff(positions) == 1).all()):
            return (Span(int(positions[0]), count),) if count else ()
        stored = np.arange(count)
    moves = list(zip(np.diff(positions).tolist(), np.diff(stored).tolist(), strict=True))
    found, begin = [], 0
    while begin < count:
        end, move = begin, (1, 1)
        if begin < count - 1 and all(abs(step) == 1 for step in moves[begin]):
            move = moves[begin]
            while end < count - 1 and moves[end] == move:
                end += 1
        low = begin if move[0] > 0 else end
        found.append(Span(int(positions[low]), end - begin + 1, int(stored[low]), move[0] * move[1]))
        begin = end + 1
    return tuple(found)


@dataclass
class GrownAxis:
    """One dimension that grows: where its steps will be, existing ones and those of new files."""

    dim: str

    length: int
    """Its length after the commit."""

    existing_positions: Ints
    """For every existing step, from the origin on: where it will be; -1 if it is removed."""

    positions: list[Ints]
    """For every new file, where each of its steps is on the axis."""

    values: np.ndarray[Any, Any] | None = None
    """The coordinate after the commit, from the origin on; None if files have none."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the coordinate's numbers mean."""

    rewritten: bool = False
    """Whether the coordinate's numbers are encoded differently from before."""

    origin: int = 0
    """How many existing steps were not read, because they stay as they are."""

    def count_removed(self, steps: Ints) -> None:
        """Count steps that are removed among the existing ones."""
        positions = np.full(len(self.existing_positions) + len(steps), -1, dtype=np.int64)
        positions[np.delete(np.arange(len(positions)), steps)] = self.existing_positions
        self.existing_positions = positions

    @property
    def appends(self) -> bool:
        """Whether everything new comes after what exists."""
        return bool((self.existing_positions == self.origin + np.arange(len(self.existing_positions))).all())

    def goes_behind(self, steps: int) -> bool:
        """Whether everything new comes after the first `steps` that were read, which stay as they are."""
        first = self.origin + steps
        return self.appends and not self.rewritten and all(int(own.min()) >= first for own in self.positions)

    def coordinate(self, before: np.dtype[Any] | None) -> PlainArray | None:
        """The coordinate after the commit, which had a data type before; None if files have none."""
        if self.values is None:
            return None
        stays = before is not None and self.values.dtype == before and not self.rewritten
        unchanged = len(self.existing_positions) if stays and self.appends else None
        return PlainArray((self.dim,), dict(self.attrs), self.values, 0, unchanged)

    def text(self, start: int, stop: int) -> str:
        """Steps as people write them."""
        return " … ".join(dict.fromkeys(self.labels([start, stop - 1])))

    def labels(self, steps: Sequence[int]) -> list[str]:
        """The coordinates of some steps as people write them."""
        if self.values is None or not steps:
            return list(map(str, steps))
        return labels(self.values[np.array(steps) - self.origin], self.attrs)


def uncovered(length: int, starts: Ints, stops: Ints) -> Ints:
    """The steps of an axis that are in no interval.

    >>> uncovered(9, np.array([0, 5]), np.array([2, 9])).tolist()
    [2, 3, 4]
    """
    depth = np.zeros(length + 1, dtype=np.int64)
    np.add.at(depth, starts, 1)
    np.add.at(depth, stops, -1)
    return np.flatnonzero(np.cumsum(depth)[:-1] == 0)


def sort_direction(values: np.ndarray[Any, Any]) -> int:
    """1 if values rise, -1 if they fall, 0 if they do neither or there is only one."""
    if len(values) < 2:
        return 0
    if bool((values[1:] > values[:-1]).all()):
        return 1
    return -1 if bool((values[1:] < values[:-1]).all()) else 0


def union_axis(
    dim: str, old: np.ndarray[Any, Any], parts: Sequence[np.ndarray[Any, Any]],
    tolerance: float | None = None, origin: int = 0,
) -> GrownAxis:  # fmt: skip
    """The axis of all existing and new values, and where every part is on it.

    It rises, unless everything with a direction falls.

    >>> axis = union_axis("x", np.array([1.0, 3.0]), [np.array([2.0, 1.0]), np.array([9.0])])
    >>> axis.values.tolist(), axis.existing_positions.tolist(), [each.tolist() for each in axis.positions]
    ([1.0, 2.0, 3.0, 9.0], [0, 2], [[1, 0], [3]])
    """
    known = [old, *parts]
    directions = {sort_direction(part) for part in ([old] if len(old) > 1 else parts)} - {0}
    everything = np.concatenate(known)
    keys = everything if everything.dtype.kind != "f" else _snapped(everything, tolerance, known)
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if directions == {-1}:
        first, inverse = first[::-1], len(distinct) - 1 - inverse
    places, *positions = np.split(origin + inverse, np.cumsum([len(part) for part in known])[:-1])
    if (np.diff(places) <= 0).any():
        raise IngestError(
            f"the steps of {dim!r} in the dataset are in no order, or count as equal with "
            f"{argument('tolerance', tolerance)}: files cannot be placed among them "
            f"({argument('combine', 'nested')} puts them after the others)"
        )
    return GrownAxis(dim, origin + len(distinct), places, positions, everything[first], origin=origin)


def noise(sizes: np.ndarray[Any, Any], dtypes: Iterable[np.dtype[Any]], least: float) -> np.ndarray[Any, Any]:
    """How far apart values of these sizes may be and still count as equal.

    Around 0, that is small compared with the `least` of other sizes, such as the distance between steps.
    """
    eps = max((float(np.finfo(each).eps) for each in dtypes if each.kind == "f"), default=0.0)
    near: np.ndarray[Any, Any] = ULPS * eps * np.maximum(sizes, least)
    return near


def _snapped(
    values: np.ndarray[Any, Any], tolerance: float | None, parts: Sequence[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """The values, with those that differ by no more than the tolerance made equal."""
    if len(values) < 2 or tolerance == 0:
        return values
    if tolerance is not None:
        near = np.full(len(values), tolerance)
    else:
        steps = (float(np.abs(np.diff(part)).min()) for part in parts if len(part) > 1)
        near = noise(np.abs(values), {part.dtype for part in parts}, min(steps, default=0.0))
    rank = np.argsort(values, kind="stable")
    ranked = values[rank]
    close = np.diff(ranked) <= near[rank][1:]
    # in a chain of close values, the first stands for all
    leads = np.concatenate([[True], ~close])
    snapped = values.copy()
    snapped[rank] = ranked[np.maximum.accumulate(np.where(leads, np.arange(len(ranked)), 0))]
    return snapped


def append_axis(
    dim: str, before: int, lengths: Sequence[int], values: np.ndarray[Any, Any] | None = None
) -> GrownAxis:
    """The axis on which files follow one another in the given order, whatever values a coordinate has.

    >>> [each.tolist() for each in append_axis("x", 5, [2, 1]).positions]
    [[5, 6], [7]]
    """
    ends = np.cumsum([before, *lengths]).tolist()
    positions = [np.arange(a, b) for a, b in pairwise(ends)]
    return GrownAxis(dim, ends[-1], np.arange(before), positions, values)


def nested_list_axis(dim: str, indices: Sequence[int], lengths: Sequence[int]) -> GrownAxis:
    """The axis of a dimension without a coordinate, from the places of files in nested lists.

    >>> nested_list_axis("x", [0, 1, 0], [2, 3, 2]).positions[1].tolist()
    [2, 3, 4]
    """
    size: dict[int, int] = {}
    for index, length in zip(indices, lengths, strict=True):
        if size.setdefault(index, length) != length:
            raise IngestError(
                f"files at {index} of the lists along {dim!r} have {size[index]} and {length} steps"
            )
    axis = append_axis(dim, 0, [size[index] for index in sorted(size)])
    steps = dict(zip(sorted(size), axis.positions, strict=True))
    axis.positions = [steps[index] for index in indices]
    return axis
