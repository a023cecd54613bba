"""What a selection asks for: which elements, and in which shape.

This is the only module that knows `zarr-indexing`, which gives selections their meaning; it is imported for
the first selection that is more than integers and slices. There are two kinds of requests. An *outer* request
takes a set of indices from every axis, as integers, slices and `oindex` do. A *points* request takes single
elements, as `vindex` and boolean masks do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.manifest.box import Box
from intarsia.nullable import OptionalDType

if TYPE_CHECKING:
    from zarr_indexing import ArrayMap, ConstantMap, DimensionMap, IndexTransform, LazyArray, ReadContext

    from intarsia.engine.plan import AxisSelector
    from intarsia.manifest.region_table import Ints
    from intarsia.manifest.view import View

type Mode = Literal["basic", "orthogonal", "vectorized"]


type AxisIndices = range | Ints
"""The indices that an outer selection takes from one axis, in the order of the output."""


@dataclass(frozen=True, slots=True)
class Request:
    """A selection, resolved against a shape.

    >>> parse_selection((10, 10), (slice(2, 8, 3), 4)).shape
    (2,)
    """

    shape: tuple[int, ...]
    """The shape of the result."""

    axes: tuple[AxisIndices, ...] | None
    """An outer selection: what it takes from each axis."""

    points: tuple[Ints, ...] | None
    """A points selection: the coordinates of every element, one flat array per axis."""

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_slices(self) -> bool:
        """Whether it takes evenly spaced indices from every axis."""
        return self.axes is not None and set(map(type, self.axes)) <= {range}

    @property
    def box(self) -> Box:
        """The smallest box that holds all of its elements; it must have some."""
        start, stop = [], []
        for along in self.points or () if self.axes is None else self.axes:
            ends = (along[0], along[-1]) if isinstance(along, range) else (along.min(), along.max())
            start.append(int(min(ends)))
            stop.append(int(max(ends)) + 1)
        return Box(tuple(start), tuple(stop))

    @property
    def working_shape(self) -> tuple[int, ...]:
        """The shape of the buffer that parts address: a length per axis, or one for all points."""
        if self.axes is not None:
            return tuple(map(len, self.axes))
        return (self.size,)


def parse_selection(shape: tuple[int, ...], selection: Any, mode: Mode | None = None) -> Request:
    """What `selection` asks of an array of this shape.

    Without a mode, `selection` is what is written in `array[...]`: as in zarr, arrays for all axes mean
    points, and one array among slices and integers means outer, as do arrays for all axes with masks among
    them.

    >>> parse_selection((10, 10), ([1, 2], [3, 4])).points
    (array([1, 2]), array([3, 4]))
    """
    if mode is None or mode == "basic":
        plain = _plain(shape, selection)
        if plain is not None:
            return plain
    entries = selection if isinstance(selection, tuple) else (selection,)
    if any(map(_is_stored, entries)):
        entries = tuple(np.asarray(entry) if _is_stored(entry) else entry for entry in entries)
        selection = entries if isinstance(selection, tuple) else entries[0]
    if mode is None:
        mode, selection = _dialect(selection, len(shape))
    entries = selection if isinstance(selection, tuple) else (selection,)
    if any(entry is None for entry in entries):
        raise IndexError("a selection of a stored array makes no new axes, as in zarr: use array[...][None]")
    if mode == "vectorized" and shape and all(entry is ... for entry in entries):
        raise IndexError(
            f"array.vindex takes arrays of integers, or a mask, not {selection!r}: use array[...]"
        )
    from zarr_indexing import IndexTransform
    from zarr_indexing.boundary import normalize_positional_selection, split_scalar_axes

    transform = IndexTransform.from_shape(shape)
    try:
        if mode != "basic":
            scalars, selection = split_scalar_axes(selection, transform.domain, mode)
            if scalars is not None:
                transform = transform.select(scalars, "basic")
        literal = normalize_positional_selection(selection, transform.domain, mode)
    except IndexError as error:  # it calls the length of an axis its dimension
        text = re.sub(r"dimensions? .* has shape", "the selected axes have shape", str(error))
        raise IndexError(text) from error
    return from_transform(transform[literal] if mode == "basic" else transform.select(literal, mode))


def _is_stored(entry: Any) -> bool:
    """Whether it is an array of zarr, dask or the like, whose values select."""
    return hasattr(entry, "__array__") and not isinstance(entry, np.ndarray | np.generic)


def _plain(shape: tuple[int, ...], selection: Any) -> Request | None:
    """The request for integers and slices, like most small reads; None for everything else, and for mistakes.

    The result is that of zarr-indexing, which takes ten times as long, as its transforms can be composed.
    """
    entries = selection if type(selection) is tuple else (selection,)
    missing = len(shape) - len(entries)
    if entries and entries[-1] is ...:
        entries, missing = entries[:-1], missing + 1
    if missing < 0:
        return None
    axes: list[range] = []
    kept: list[int] = []
    for entry, size in zip((*entries, *(slice(None),) * missing), shape, strict=True):
        if type(entry) is int and -size <= entry < size:
            axes.append(range(entry % size, entry % size + 1))
        elif type(entry) is slice:
            try:
                places = range(*entry.indices(size))
            except (TypeError, ValueError):  # bounds that are not integers, or a step of zero
                return None
            if not places:
                return None
            axes.append(places)
            kept.append(len(places))
        else:
            return None
    return Request(tuple(kept), tuple(axes), None)


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
    if sum(arrays) == 1 or (all(arrays) and len(entries) == ndim):
        return "orthogonal", selection
    raise IndexError(
        "several index arrays together with slices: NumPy, zarr and xarray interpret this in different "
        "ways.\n"
        "  Say which: array.oindex[...] (outer product) or array.vindex[...] (points)"
    )


def from_transform(transform: IndexTransform) -> Request:
    """The request behind a transform of zarr-indexing."""
    shape = transform.domain.shape
    if transform.index_array_structure != "general" and _axes_in_order(transform):
        return Request(shape, tuple(_axis(transform, m) for m in transform.output), None)
    places = np.moveaxis(np.indices(shape), 0, -1) + np.array(transform.domain.inclusive_min, dtype=np.int64)
    columns = transform.apply_many(places).reshape(-1, transform.output_rank).T
    return Request(shape, None, tuple(np.ascontiguousarray(column, dtype=np.int64) for column in columns))


def _axes_in_order(transform: IndexTransform) -> bool:
    from zarr_indexing import ArrayMap, DimensionMap

    used = [
        m.input_dimension if isinstance(m, DimensionMap) else m.dependency_axes[0]
        for m in transform.output
        if isinstance(m, DimensionMap) or (isinstance(m, ArrayMap) and m.dependency_axes)
    ]
    return used == sorted(set(used))


def _axis(transform: IndexTransform, output: ConstantMap | DimensionMap | ArrayMap) -> AxisIndices:
    from zarr_indexing import ConstantMap, DimensionMap

    if isinstance(output, ConstantMap):
        return range(output.offset, output.offset + 1)
    if isinstance(output, DimensionMap):
        d = output.input_dimension
        low, high = transform.domain.inclusive_min[d], transform.domain.exclusive_max[d]
        return range(output.offset + output.stride * low, output.offset + output.stride * high, output.stride)
    indices: Ints = (output.offset + output.stride * output.index_array.reshape(-1)).astype(np.int64)
    return indices


class _PlannedReader:
    """Lets a lazy view of zarr-indexing read by our plan: only what it selects, in one go."""

    def read_into(self, source: Any, context: ReadContext, out: Any, /) -> None:
        out[...] = source.read_request(from_transform(context.transform))


def lazy_view(array: Any) -> LazyArray:
    """A view of a logical array that reads nothing until its result is requested."""
    from zarr_indexing import LazyArray

    nullable = isinstance(array.manifest.data_type, OptionalDType)
    return LazyArray(_MaskedSource(array) if nullable else array).with_reader(_PlannedReader())


class _MaskedSource:
    """A nullable array as zarr-indexing sees it: masked, so that results are allocated as masked arrays."""

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

    def __reduce__(self) -> tuple[Any, ...]:
        return _MaskedSource, (self._array,)


type MemberSelection = tuple[Mapping[int, int], tuple[AxisSelector, ...], tuple[AxisSelector, ...]]
"""An outer selection as a member sees it: the output's index on axes that the member does not have (see
`View.onto`), what is taken from every axis of the member, and where that goes in the output, with axes in the
order of the member."""


def to_member_axes(
    view: View, source: Sequence[AxisSelector], target: Sequence[AxisSelector]
) -> Iterator[MemberSelection]:
    """An outer selection, and where it goes, as the member sees it.

    There is one, unless the selection takes the one index of a new axis several times.

    >>> from intarsia.manifest.view import View
    >>> view = View.identity(1).flip(0, length=10).expand(0)
    >>> places, out = (slice(0, 1, 1), slice(2, 9, 3)), (slice(0, 1, 1), slice(0, 3, 1))
    >>> list(to_member_axes(view, places, out))
    [({0: 0}, (slice(1, 8, 3),), (slice(2, None, -1),))]
    """
    taken: list[AxisSelector] = []
    goes: list[AxisSelector] = []
    for axis in view.axes:
        if axis.source is None:
            taken.append(slice(axis.offset, axis.offset + 1, 1))
            goes.append(slice(0, 1, 1))
        elif axis.stride > 0:
            taken.append(moved(source[axis.source], axis.offset))
            goes.append(target[axis.source])
        else:
            taken.append(_mirrored(source[axis.source], axis.offset))
            goes.append(_reversed(target[axis.source]))
    new = view.new_axes
    for places in product(*(_indices(target[axis]) for axis in new)):
        yield dict(zip(new, places, strict=True)), tuple(taken), tuple(goes)


def points_in_member(view: View, points: Sequence[Ints], count: int) -> tuple[Ints, ...]:
    """Single positions as the member sees them, one array per axis of the member.

    >>> from intarsia.manifest.view import View
    >>> points_in_member(View.identity(2).transpose(1, 0), [np.array([1, 2]), np.array([3, 4])], 2)
    (array([3, 4]), array([1, 2]))
    """
    return tuple(
        np.full(count, axis.offset)
        if axis.source is None
        else axis.offset + axis.stride * points[axis.source]
        for axis in view.axes
    )


def moved(selector: AxisSelector, by: int) -> AxisSelector:
    """The same indices, shifted by this much."""
    if isinstance(selector, slice):
        return slice(selector.start + by, selector.stop + by, selector.step)
    return selector + by


def _mirrored(selector: AxisSelector, offset: int) -> AxisSelector:
    """The indices `offset - position`, in ascending order."""
    if not isinstance(selector, slice):
        return (offset - selector)[::-1]
    step = selector.step or 1
    last = selector.start + (selector.stop - 1 - selector.start) // step * step
    return slice(offset - last, offset - selector.start + 1, step)


def _reversed(selector: AxisSelector) -> AxisSelector:
    """The same positions of an output, from the other end."""
    if not isinstance(selector, slice):
        return selector[::-1]
    if (selector.step or 1) > 0:
        return slice(selector.stop - 1, selector.start - 1 if selector.start else None, -1)
    return slice(0 if selector.stop is None else selector.stop + 1, selector.start + 1, 1)


def _indices(selector: AxisSelector) -> list[int]:
    if not isinstance(selector, slice):
        indices: list[int] = selector.tolist()
        return indices
    step = selector.step or 1
    stop = selector.stop if selector.stop is not None else -1
    return list(range(selector.start, stop, step))
