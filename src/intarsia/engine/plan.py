"""From a request to parts: which box of which member goes where in the output."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.engine.request import AxisIndices, Request, points_in_member, to_member_axes
from intarsia.errors import BoundsError
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import NONE, Ints, runs_along

if TYPE_CHECKING:
    from intarsia.engine.replica_choice import LayerChooser
    from intarsia.manifest.data_types import Values
    from intarsia.manifest.manifest import Manifest
    from intarsia.manifest.view import View


type AxisSelector = slice | Ints
"""Where on one axis: a slice with a positive step, or indices."""


def chunks_along(indices: AxisSelector | range, size: int) -> Sequence[int]:
    """The chunks of an axis that hold some of these indices, in ascending order.

    >>> chunks_along(slice(3, 12), 4), chunks_along(range(11, 2, -8), 4), chunks_along(np.array([9, 1, 8]), 4)
    (range(0, 3), [0, 2], [0, 2])
    """
    if isinstance(indices, slice):
        indices = range(indices.start, indices.stop, indices.step or 1)
    if not isinstance(indices, range):
        chunks: list[int] = np.unique(indices // size).tolist()
        return chunks
    upwards = indices if indices.step > 0 else indices[::-1]
    if upwards.step > size:
        return [index // size for index in upwards]
    return range(upwards[0] // size, upwards[-1] // size + 1)


def touched_chunks(
    selection: Sequence[AxisSelector | range], sizes: Sequence[int], *, points: bool
) -> Iterable[tuple[int, ...]]:
    """The chunks that a selection takes something from, each once: of all axes, or of single points.

    >>> list(touched_chunks((np.array([5, 0, 1]), np.array([0, 9, 8])), (4, 4), points=True))
    [(0, 2), (1, 0)]
    """
    if points and selection:
        columns = [np.asarray(along) // size for along, size in zip(selection, sizes, strict=True)]
        return map(tuple, np.unique(np.stack(columns, axis=1), axis=0).tolist())
    return product(*map(chunks_along, selection, sizes))


def count_chunks(selection: Sequence[AxisSelector], sizes: Sequence[int], *, points: bool) -> int:
    """How many chunks a selection takes something from."""
    if points:
        return sum(1 for _ in touched_chunks(selection, sizes, points=True))
    return prod(len(chunks_along(*axis)) for axis in zip(selection, sizes, strict=True))


class RegionRun(NamedTuple):
    """Regions that continue one another, both in the array and in their member; their packings may differ.

    >>> RegionRun(np.array([5, 3, 8]), 0, np.array([10, 20])).holding(np.array([0, 10, 99])).tolist()
    [0, 1, 2]
    """

    rows: Ints
    """The regions' rows in the table, in ascending order in the member."""

    axis: int
    """The axis of the member along which they lie."""

    borders: Ints
    """Where each region begins there, except the first."""

    def holding(self, indices: Ints) -> Ints:
        """The number of the region that holds each of these indices of the axis."""
        return self.borders.searchsorted(indices, side="right")

    def to_member_axes(self, view: View) -> RegionRun:
        """The strip as seen by the member that this view shows."""
        axis = next(k for k, axis in enumerate(view.axes) if axis.source == self.axis)
        offset = view.axes[axis].offset
        if view.axes[axis].stride > 0:
            return RegionRun(self.rows, axis, offset + self.borders)
        # A region that begins at position p ends at index offset - p of the member; the next begins there.
        return RegionRun(self.rows[::-1], axis, (offset + 1 - self.borders)[::-1])


@dataclass(frozen=True, slots=True)
class RegionPart:
    """What one region, or a strip of regions, contributes.

    Outer: `member_selection` and `output_selection` hold a selector for every axis of the member. Points:
    `member_selection` holds one flat array of coordinates per axis, `output_selection` their positions in the
    flat output.
    """

    row: int
    """The region's row in the table; for a strip, that of its first region."""

    member_selection: tuple[AxisSelector, ...]
    """Where in the member, in elements."""

    output_selection: tuple[AxisSelector, ...]
    """Where in the output's working shape; if there is a view, in the output as `onto` returns it."""

    size: int
    """The number of elements."""

    view: View | None = None
    """How the axes of the output become those of the member; None if they are the same, and for points."""

    at: Mapping[int, int] = field(default_factory=dict)
    """The output's index on axes that the member does not have."""

    strip: RegionRun | None = None
    """The regions, if there are several."""

    def onto(self, out: Values) -> Values:
        """The output, or the values to write, with the axes of the member; the same memory."""
        return out if self.view is None else self.view.onto(out, self.at)


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Every part of a request, and how many elements they hold in total."""

    request: Request
    parts: tuple[RegionPart, ...]
    size: int
    """The number of elements that regions cover; the rest of the request is holes."""

    @property
    def is_complete(self) -> bool:
        return self.size == self.request.size


def plan(
    manifest: Manifest, request: Request, *, by_strips: bool = False, choose: LayerChooser | None = None
) -> SelectionPlan:
    """The parts of the request, one for every region, or strip of regions, that it touches.

    They are regions of layer 0, unless `choose` takes replicas in their place.

    A region has several parts only if its view has a new axis whose one index is requested repeatedly.

    >>> from intarsia.manifest.manifest import Manifest
    >>> from intarsia.engine.request import parse_selection
    >>> plan(Manifest.empty((4,), (2,), "u1"), parse_selection((4,), slice(1, 3))).parts
    ()
    """
    if 0 in request.shape:
        return SelectionPlan(request, (), 0)
    box = request.box
    if any(map(operator.gt, box.stop, manifest.shape)):
        raise BoundsError(
            f"the selection reaches over {box.text()}, but the array now has the shape {manifest.shape}"
        )
    count, is_slices = len(manifest.regions), request.is_slices
    if not count:
        return SelectionPlan(request, (), 0)
    if count == 1 and is_slices and manifest.is_plain:
        return from_region(request, 0, *manifest.place_of(0))
    cells = manifest.cells(box)
    rows = manifest.regions.touching(cells)
    if rows.size == 1 and is_slices and not manifest.views:
        region = int(rows[0])
        row = region if choose is None else choose.choose_one(request, cells, region)
        if row is not None:
            return from_region(request, row, *manifest.place_of(row))
    touched = TouchedRegions.of(manifest, rows)
    if choose is not None:
        touched = choose.choose_all(request, cells, touched)
    # Archives pack every file in its own way. Without different packings, neighbours are one region.
    if by_strips and touched.rows.size > 1 and len(manifest.packings) > 1:
        touched = in_strips(manifest, touched)
    return from_touched(manifest, request, touched)


def from_touched(manifest: Manifest, request: Request, touched: TouchedRegions) -> SelectionPlan:
    """What these regions, or strips of them, contribute to a request."""
    divide = _outer_parts if request.axes is not None else _point_parts
    parts = tuple(divide(manifest, request, touched))
    return SelectionPlan(request, parts, sum(part.size for part in parts))


class TouchedRegions(NamedTuple):
    """Regions that a request may need, or strips of them, by column."""

    rows: Ints
    """The regions' rows in the table of regions and replicas."""
    start: Ints
    """The first elements."""
    stop: Ints
    """The last elements, excluded."""
    shift: Ints
    """Where element 0 lies in the member."""
    strips: Sequence[RegionRun | None]

    @classmethod
    def of(cls, manifest: Manifest, rows: Ints) -> TouchedRegions:
        """All of some regions or replicas."""
        chunk, table = np.array(manifest.chunk_shape, dtype=np.int64), manifest.regions_and_replicas
        start = table.start[rows] * chunk
        stop = np.minimum(table.stop[rows] * chunk, np.array(manifest.shape, dtype=np.int64))
        return cls(rows, start, stop, table.member_start[rows] * chunk - start, [None] * rows.size)

    def select(self, chosen: Any) -> TouchedRegions:
        """Some of these regions, none of which is a strip."""
        rows = self.rows[chosen]
        of_each = rows, self.start[chosen], self.stop[chosen], self.shift[chosen]
        return TouchedRegions(*of_each, [None] * rows.size)

    def concat(self, other: TouchedRegions) -> TouchedRegions:
        """These regions and others, none of which is a strip."""
        rows, start, stop, shift = (np.concatenate(pair) for pair in zip(self[:4], other[:4], strict=True))
        return TouchedRegions(rows, start, stop, shift, [None] * rows.size)

    def crop(self, box: Box) -> TouchedRegions:
        """A box of elements of a single region."""
        return self._replace(start=np.array([box.start]), stop=np.array([box.stop]))


def in_strips(manifest: Manifest, touched: TouchedRegions) -> TouchedRegions:
    """The same, with regions joined that continue one another along the axis that separates most regions."""
    table, (rows, start, stop, shift, _) = manifest.regions_and_replicas, touched
    if rows.size < 2:
        return touched
    along = manifest.regions.along
    numbers = table.member[rows], table.view[rows], table.packing[rows] == NONE
    order, begins, ends = runs_along(along, start, stop, *numbers, shift)
    rows, start, stop, shift = (column[order] for column in (rows, start, stop, shift))
    places = start[:, along] + shift[:, along]
    strips = [
        RegionRun(rows[i : j + 1], along, places[i + 1 : j + 1]) if j > i else None
        for i, j in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    return TouchedRegions(rows[begins], start[begins], stop[ends], shift[begins], strips)


def _outer_parts(manifest: Manifest, request: Request, touched: TouchedRegions) -> Iterator[RegionPart]:
    assert request.axes is not None
    axes = request.axes
    rows, start, stop, shift, strips = touched
    orders = [None if isinstance(axis, range) else np.argsort(axis, kind="stable") for axis in axes]
    spans = [
        _span(axis, order, start[:, d], stop[:, d])
        for d, (axis, order) in enumerate(zip(axes, orders, strict=True))
    ]
    taken = np.ones(rows.size, dtype=bool)
    for first, last in spans:
        taken &= first < last
    columns = [(first[taken].tolist(), last[taken].tolist()) for first, last in spans]
    of_each = rows[taken].tolist(), shift[taken].tolist(), compress(strips, taken.tolist())
    for k, (row, offsets, strip) in enumerate(zip(*of_each, strict=True)):
        source: list[AxisSelector] = []
        target: list[AxisSelector] = []
        size = 1
        for axis, order, (first, last), offset in zip(axes, orders, columns, offsets, strict=True):
            i, j = first[k], last[k]
            size *= j - i
            if isinstance(axis, range):
                inside, goes = _slices(axis, i, j, offset)
                source.append(inside)
                target.append(goes)
            elif order is not None:
                places = order[i:j]
                target.append(places)
                source.append(axis[places] + offset)
        view = _view(manifest, row) if manifest.views else None
        if view is None:
            yield RegionPart(row, tuple(source), tuple(target), size, strip=strip)
        else:
            ways = list(to_member_axes(view, source, target))
            strip = None if strip is None else strip.to_member_axes(view)
            for at, taken_there, put_there in ways:
                yield RegionPart(row, taken_there, put_there, size // len(ways), view, at, strip)


def _slices(axis: range, i: int, j: int, offset: int) -> tuple[slice, slice]:
    """Where the indices `i` to `j` of an evenly spaced axis lie in a member, and where they go."""
    first, last, step = axis[i] + offset, axis[j - 1] + offset, axis.step
    if step > 0:
        return slice(first, last + 1, step), slice(i, j, 1)
    # members are read upwards, so the output is filled downwards
    return slice(last, first + 1, -step), slice(j - 1, i - 1 if i else None, -1)


def from_region(request: Request, row: int, box: Box, shift: Sequence[int]) -> SelectionPlan:
    """What a box of one region without a view contributes to slices: by single numbers, as columns take
    longer."""
    source: list[slice] = []
    target: list[slice] = []
    size = 1
    for axis, start, stop, offset in zip(request.axes or (), *box, shift, strict=True):
        assert isinstance(axis, range)
        first, last = _between(axis, start, stop)
        i, j = max(first, 0), min(last, len(axis))
        if i >= j:
            return SelectionPlan(request, (), 0)
        size *= j - i
        inside, goes = _slices(axis, i, j, offset)
        source.append(inside)
        target.append(goes)
    return SelectionPlan(request, (RegionPart(row, tuple(source), tuple(target), size),), size)


def _view(manifest: Manifest, row: int) -> View | None:
    number = int(manifest.regions_and_replicas.view[row])
    return None if number == NONE else manifest.views[number]


def _span(axis: AxisIndices, order: Ints | None, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """The first and last (excluded) of the axis' indices, in ascending order, that lie in each range."""
    if not isinstance(axis, range):
        ordered = axis[order]
        return np.searchsorted(ordered, start), np.searchsorted(ordered, stop)
    first, last = _between(axis, start, stop)
    return np.maximum(first, 0), np.minimum(last, len(axis))


def _between[N: (int, Ints)](axis: range, start: N, stop: N) -> tuple[N, N]:
    """The first and last (excluded) of an evenly spaced axis' indices in each range, as if the axis had no
    ends."""
    # Index k lies at start + k * step. It is in [a, b) from the first k with start + k * step >= a, which is
    # ceil((a - start) / step); -(x // n) is ceil(-x / n) in whole numbers.
    if axis.step > 0:
        return -((axis.start - start) // axis.step), -((axis.start - stop) // axis.step)
    # Downwards: from the first k at or below b - 1, to the last one at or above a.
    return -((stop - 1 - axis.start) // -axis.step), (axis.start - start) // -axis.step + 1


def _points_in(points: Sequence[Ints], touched: TouchedRegions) -> Iterator[tuple[int, Ints]]:
    """The regions that hold some of the points, and which points those are."""
    start, stop = touched.start, touched.stop
    # Along the axis on which the points spread most, a region's bounds single out the fewest of them; only
    # those are compared on the other axes.
    along = int(np.argmax([np.ptp(p) for p in points]))
    order = np.argsort(points[along], kind="stable")
    ordered = points[along][order]
    first = np.searchsorted(ordered, start[:, along])
    last = np.searchsorted(ordered, stop[:, along])
    for k in np.flatnonzero(last > first).tolist():
        places = order[first[k] : last[k]]
        inside = np.ones(places.size, dtype=bool)
        for d, coordinate in enumerate(points):
            here = coordinate[places]
            inside &= (here >= start[k, d]) & (here < stop[k, d])
        if inside.any():
            yield k, places[inside]


def _point_parts(manifest: Manifest, request: Request, touched: TouchedRegions) -> Iterator[RegionPart]:
    assert request.points is not None
    points = request.points
    rows, _, _, shift, strips = touched
    for k, places in _points_in(points, touched):
        source = tuple(p[places] + shift[k, d] for d, p in enumerate(points))
        view, strip = _view(manifest, int(rows[k])) if manifest.views else None, strips[k]
        if view is not None:
            source = points_in_member(view, source, places.size)
            strip = None if strip is None else strip.to_member_axes(view)
        yield RegionPart(int(rows[k]), source, (places,), int(places.size), strip=strip)
