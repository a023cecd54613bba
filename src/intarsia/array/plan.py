"""From a selection to parts: which box of which member goes where in the output.

The only module that knows `zarr-indexing`, which gives selections their meaning. What comes out is of two
kinds. An *outer* plan takes an index set from every axis, as integers, slices and `oindex` do. A *points*
plan takes single elements, as `vindex` and boolean masks do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from zarr_indexing import ArrayMap, ConstantMap, DimensionMap, IndexTransform, LazyArray
from zarr_indexing.boundary import normalize_positional_selection, split_scalar_axes

from intarsia.array.box import Box
from intarsia.array.table import NONE, Ints
from intarsia.array.turning import turned, turned_points
from intarsia.errors import BoundsError
from intarsia.nullable import OptionalDType

if TYPE_CHECKING:
    from zarr_indexing import ReadContext

    from intarsia.array.manifest import Manifest
    from intarsia.array.orientation import View
    from intarsia.array.values import Values


type Mode = Literal["basic", "orthogonal", "vectorized"]
type AxisSelector = slice | Ints
"""Where on one axis: a slice with a positive step, or indices."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The indices that an outer selection takes from one axis, in the order of the output.

    >>> Axis(start=8, step=-3, count=3).bounds
    (2, 9)
    """

    start: int = 0
    """First index, where they are evenly spaced."""

    step: int = 1
    """Distance between them; may be negative, never zero."""

    count: int = 0
    """How many there are."""

    indices: Ints | None = None
    """The indices themselves, where they are not evenly spaced."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest index, and highest plus one."""
        if not self.count:
            return 0, 0
        if self.indices is not None:
            return int(self.indices.min()), int(self.indices.max()) + 1
        last = self.start + self.step * (self.count - 1)
        return min(self.start, last), max(self.start, last) + 1


@dataclass(frozen=True, slots=True)
class Request:
    """A selection, resolved against a shape.

    >>> request((10, 10), (slice(2, 8, 3), 4)).shape
    (2,)
    """

    shape: tuple[int, ...]
    """Shape of the result."""

    axes: tuple[Axis, ...] | None
    """An outer selection: what it takes from each axis."""

    points: tuple[Ints, ...] | None
    """A points selection: the coordinates of every element, one flat array an axis."""

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Lowest index on each axis, and highest plus one."""
        if self.axes is not None:
            return [axis.bounds for axis in self.axes]
        return [(int(p.min()), int(p.max()) + 1) if p.size else (0, 0) for p in self.points or ()]

    @property
    def working_shape(self) -> tuple[int, ...]:
        """Shape of the buffer that parts address: one axis an array axis, or one for all points."""
        if self.axes is not None:
            return tuple(axis.count for axis in self.axes)
        return (self.size,)


@dataclass(frozen=True, slots=True)
class Part:
    """What one region contributes.

    Outer: `source` and `target` hold a selector for every axis of the member. Points: `source` holds one flat
    array of coordinates an axis, `target` their places in the flat output.
    """

    row: int
    """The region's row in the table."""

    source: tuple[AxisSelector, ...]
    """Where in the member, in elements."""

    target: tuple[AxisSelector, ...]
    """Where in the output's working shape; where there is a view, in the output as `onto` gives it."""

    size: int
    """Number of elements."""

    view: View | None = None
    """How the axes of the output become those of the member; None if they are the same, and for points."""

    at: Mapping[int, int] = field(default_factory=dict)
    """Where the output is met on axes that the member does not have."""

    def onto(self, out: Values) -> Values:
        """The output, or what is written, with the axes of the member; the same memory."""
        return out if self.view is None else self.view.onto(out, self.at)

    def shape_onto(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that an output of this shape has there."""
        if self.view is None:
            return shape
        return tuple(1 if axis.source is None else shape[axis.source] for axis in self.view.axes)


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Every part of a request, and how many elements they hold together."""

    request: Request
    parts: tuple[Part, ...]
    size: int
    """Number of elements that regions cover; the rest of the request is holes."""

    @property
    def is_complete(self) -> bool:
        return self.size == self.request.size


def request(shape: tuple[int, ...], selection: Any, mode: Mode | None = None) -> Request:
    """What `selection` asks of an array of this shape.

    Without a mode, `selection` is what stands in `array[...]`: as in zarr, arrays for all axes mean points,
    one array among slices and integers means outer.

    >>> request((10, 10), ([1, 2], [3, 4])).points
    (array([1, 2]), array([3, 4]))
    """
    if mode is None:
        mode, selection = _dialect(selection, len(shape))
    transform = IndexTransform.from_shape(shape)
    if mode != "basic":
        scalars, selection = split_scalar_axes(selection, transform.domain, mode)
        if scalars is not None:
            transform = transform.select(scalars, "basic")
    literal = normalize_positional_selection(selection, transform.domain, mode)
    return from_transform(transform[literal] if mode == "basic" else transform.select(literal, mode))


def _dialect(selection: Any, ndim: int) -> tuple[Mode, Any]:
    entries = selection if isinstance(selection, tuple) else (selection,)
    arrays = [isinstance(entry, np.ndarray | list) and np.ndim(entry) > 0 for entry in entries]
    if not any(arrays):
        return "basic", selection
    masks = [np.asarray(entry).dtype == bool for entry, array in zip(entries, arrays, strict=True) if array]
    if len(entries) == 1 and masks[0]:
        return "vectorized", selection
    scalars = [isinstance(entry, int | np.integer) for entry in entries]
    pure = all(a or s for a, s in zip(arrays, scalars, strict=True)) and len(entries) == ndim
    if pure and not any(masks):
        # NumPy broadcasts integers with the arrays, so they are points too.
        return "vectorized", tuple(np.asarray(entry) for entry in entries)
    if sum(arrays) == 1:
        return "orthogonal", selection
    raise IndexError(
        "several index arrays beside slices: NumPy, zarr and xarray read this in different ways.\n"
        "  Say which: array.oindex[...] (outer product) or array.vindex[...] (points)"
    )


def from_transform(transform: IndexTransform) -> Request:
    """The request behind a transform of zarr-indexing."""
    shape = transform.domain.shape
    if transform.index_array_structure != "general" and _axes_in_order(transform):
        return Request(shape, tuple(_axis(transform, m) for m in transform.output), None)
    coordinates = []
    for output in transform.output:
        if isinstance(output, ConstantMap):
            values: Any = np.int64(output.offset)
        elif isinstance(output, DimensionMap):
            d = output.input_dimension
            along = np.arange(transform.domain.inclusive_min[d], transform.domain.exclusive_max[d])
            spread = [1] * len(shape)
            spread[d] = -1
            values = output.offset + output.stride * along.reshape(spread)
        else:
            values = output.offset + output.stride * output.index_array
        coordinates.append(np.broadcast_to(values, shape).reshape(-1).astype(np.int64, copy=False))
    return Request(shape, None, tuple(coordinates))


def _axes_in_order(transform: IndexTransform) -> bool:
    used = [
        m.input_dimension if isinstance(m, DimensionMap) else m.dependency_axes[0]
        for m in transform.output
        if isinstance(m, DimensionMap) or (isinstance(m, ArrayMap) and m.dependency_axes)
    ]
    return used == sorted(set(used))


def _axis(transform: IndexTransform, output: ConstantMap | DimensionMap | ArrayMap) -> Axis:
    if isinstance(output, ConstantMap):
        return Axis(output.offset, 1, 1)
    if isinstance(output, DimensionMap):
        d = output.input_dimension
        low, high = transform.domain.inclusive_min[d], transform.domain.exclusive_max[d]
        return Axis(output.offset + output.stride * low, output.stride, high - low)
    indices = (output.offset + output.stride * output.index_array.reshape(-1)).astype(np.int64)
    return Axis(0, 1, indices.size, indices)


def plan(manifest: Manifest, asked: Request) -> SelectionPlan:
    """The parts of the request, one for every region that it touches.

    Several only where the region's view has a new axis, and the request takes its one place several times.

    >>> from intarsia.array.manifest import Manifest
    >>> plan(Manifest.empty((4,), (2,), "u1"), request((4,), slice(1, 3))).parts
    ()
    """
    if not asked.size:
        return SelectionPlan(asked, (), 0)
    bounds = asked.bounds
    if any(high > n for (_, high), n in zip(bounds, manifest.shape, strict=True)):
        raise BoundsError(
            f"the selection reaches over {Box.of(bounds).text()}, "
            f"but the shape of the array is {manifest.shape} by now"
        )
    if not len(manifest.regions):
        return SelectionPlan(asked, (), 0)
    divide = _outer_parts if asked.axes is not None else _point_parts
    parts = tuple(divide(manifest, asked, bounds))
    return SelectionPlan(asked, parts, sum(part.size for part in parts))


def _touched(manifest: Manifest, bounds: list[tuple[int, int]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Rows whose boxes meet the bounds; their first and last elements; where element 0 lies in the member."""
    chunk = np.array(manifest.chunk_shape, dtype=np.int64)
    table = manifest.regions
    rows = table.touching(manifest.cells(Box.of(bounds)))
    start = table.start[rows] * chunk
    stop = np.minimum(table.stop[rows] * chunk, np.array(manifest.shape, dtype=np.int64))
    return rows, start, stop, table.member_start[rows] * chunk - start


def _outer_parts(manifest: Manifest, asked: Request, bounds: list[tuple[int, int]]) -> Iterator[Part]:
    assert asked.axes is not None
    axes = asked.axes
    rows, start, stop, shift = _touched(manifest, bounds)
    orders = [None if axis.indices is None else np.argsort(axis.indices, kind="stable") for axis in axes]
    spans = [
        _span(axis, order, start[:, d], stop[:, d])
        for d, (axis, order) in enumerate(zip(axes, orders, strict=True))
    ]
    taken = np.ones(rows.size, dtype=bool)
    for first, last in spans:
        taken &= first < last
    columns = [(first[taken].tolist(), last[taken].tolist()) for first, last in spans]
    for k, (row, offsets) in enumerate(zip(rows[taken].tolist(), shift[taken].tolist(), strict=True)):
        source: list[AxisSelector] = []
        target: list[AxisSelector] = []
        size = 1
        for axis, order, (first, last), offset in zip(axes, orders, columns, offsets, strict=True):
            i, j = first[k], last[k]
            size *= j - i
            if order is not None and axis.indices is not None:
                places = order[i:j]
                target.append(places)
                source.append(axis.indices[places] + offset)
            elif axis.step > 0:
                at = axis.start + i * axis.step + offset
                source.append(slice(at, at + (j - 1 - i) * axis.step + 1, axis.step))
                target.append(slice(i, j, 1))
            else:  # members are read upwards, so the output is filled downwards
                at = axis.start + (j - 1) * axis.step + offset
                source.append(slice(at, at + (j - 1 - i) * -axis.step + 1, -axis.step))
                target.append(slice(j - 1, i - 1 if i else None, -1))
        view = _view(manifest, row) if manifest.views else None
        if view is None:
            yield Part(row, tuple(source), tuple(target), size)
        else:
            ways = list(turned(view, source, target))
            for at, inside, goes in ways:
                yield Part(row, inside, goes, size // len(ways), view, at)


def _view(manifest: Manifest, row: int) -> View | None:
    number = int(manifest.regions.view[row])
    return None if number == NONE else manifest.views[number]


def _span(axis: Axis, order: Ints | None, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """First and last (excluded) of the axis' indices, in ascending order, that lie in each of the ranges."""
    if order is not None and axis.indices is not None:
        ordered = axis.indices[order]
        return np.searchsorted(ordered, start), np.searchsorted(ordered, stop)
    # Index k lies at start + k * step. It is in [a, b) from the first k with start + k * step >= a, which is
    # ceil((a - start) / step); -(x // n) is ceil(-x / n) in whole numbers.
    if axis.step > 0:
        first = -((axis.start - start) // axis.step)
        last = -((axis.start - stop) // axis.step)
    else:  # downwards: from the first k at or below b - 1, to the last one at or above a
        first = -((stop - 1 - axis.start) // -axis.step)
        last = (axis.start - start) // -axis.step + 1
    return np.maximum(first, 0), np.minimum(last, axis.count)


def _point_parts(manifest: Manifest, asked: Request, bounds: list[tuple[int, int]]) -> Iterator[Part]:
    assert asked.points is not None
    points = asked.points
    if not points:  # the one element of a zero-dimensional array, asked for any number of times
        view = _view(manifest, 0)
        places = np.arange(asked.size)
        yield Part(0, () if view is None else turned_points(view, (), places.size), (places,), asked.size)
        return
    rows, start, stop, shift = _touched(manifest, bounds)
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
        places = places[inside]
        if places.size:
            source = tuple(p[places] + shift[k, d] for d, p in enumerate(points))
            view = _view(manifest, int(rows[k])) if manifest.views else None
            if view is not None:
                source = turned_points(view, source, places.size)
            yield Part(int(rows[k]), source, (places,), int(places.size))


class _PlannedReader:
    """Lets a lazy view of zarr-indexing read through our plan: only what it selects, in one go."""

    def read_into(self, source: Any, context: ReadContext, out: Any, /) -> None:
        out[...] = source.read_request(from_transform(context.transform))


def lazy_view(array: Any) -> LazyArray:
    """A view of a logical array that reads nothing until asked for its result."""
    nullable = isinstance(array.manifest.data_type, OptionalDType)
    return LazyArray(_MaskedSource(array) if nullable else array).with_reader(_PlannedReader())


class _MaskedSource:
    """A nullable array as zarr-indexing sees it: masked, so that it allocates masked arrays for results."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.read_request = array.read_request

    @property  # type: ignore[misc]  # isinstance asks for it, which is how zarr-indexing looks for masks
    def __class__(self) -> Any:
        return np.ma.MaskedArray

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    def __getitem__(self, selection: Any) -> Any:
        return self._array[selection]

    def __repr__(self) -> str:
        return repr(self._array)

    def __reduce__(self) -> tuple[Any, ...]:
        return _MaskedSource, (self._array,)
