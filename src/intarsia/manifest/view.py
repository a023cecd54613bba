"""How a region sees its member: with axes in another order, reversed, new or dropped.

A view is an index transform as in TensorStore and zarr-indexing, but with strides of 1 and -1 only: every
axis of the member takes its index from one axis of the logical array, or has one fixed index. Nothing is
copied and nothing is computed: reading through a view is like reading through a NumPy view.

A view counts in elements, from the place where a member without a view would begin: `member_start` of the
region times the logical chunk. So regions of one member share one view, and a cropped region keeps it,
regardless of the sizes of the chunks and of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from intarsia.errors import ShapeError
from intarsia.manifest.box import Box
from intarsia.manifest.typed_json import decode

MAX_AXES = 64
"""The most axes of a view, as in NumPy arrays."""

FARTHEST = 1 << 62
"""Positions of elements stay below this, so that sums fit 64 bits."""


class AxisDocument(Struct, forbid_unknown_fields=True):
    """An output index map of a TensorStore index transform, as far as views have them."""

    offset: int = 0
    stride: int | UnsetType = UNSET
    input_dimension: int | UnsetType = UNSET


class ViewDocument(Struct, forbid_unknown_fields=True):
    """A view in the manifest."""

    input_rank: Annotated[int, Meta(ge=0, le=MAX_AXES)]
    output: Annotated[list[AxisDocument], Meta(max_length=MAX_AXES)]


class MemberAxis(NamedTuple):
    """Where one axis of the member takes its index from.

    >>> MemberAxis(0, offset=720, stride=-1).at((0, 5))
    720
    """

    source: int | None
    """The axis of the logical array; None for an axis that is dropped."""

    offset: int = 0
    """The index at place 0 of the logical axis; for a dropped axis, its one index."""

    stride: int = 1
    """1 for upwards, -1 for downwards."""

    def at(self, place: Sequence[int]) -> int:
        """The index on this axis for a place in the logical array."""
        return self.offset + (0 if self.source is None else self.stride * place[self.source])


@dataclass(frozen=True, slots=True)
class View:
    """How a region sees its member.

    Build it as you would work on a NumPy array: start with the member, then transpose, flip, add and drop
    axes.

    >>> view = View.identity(2).flip(0, length=721).expand(0)  # (lat, lon) as (time, reversed lat, lon)
    >>> view.member_box(Box((0, 0, 10), (1, 100, 20)))
    Box(start=(621, 10), stop=(721, 20))
    >>> view.seen(np.array([[1, 2], [3, 4]])).tolist()
    [[[3, 4], [1, 2]]]
    """

    ndim: int
    """The number of axes of the logical array."""

    axes: tuple[MemberAxis, ...]
    """One for every axis of the member."""

    def __post_init__(self) -> None:
        used = [axis.source for axis in self.axes if axis.source is not None]
        if not 0 <= self.ndim <= MAX_AXES or len(self.axes) > MAX_AXES:
            raise ShapeError(f"a view of {len(self.axes)} axes as {self.ndim}: at most {MAX_AXES}")
        for i, (source, offset, stride) in enumerate(self.axes):
            if source is not None and not 0 <= source < self.ndim:
                raise ShapeError(f"axis {i} of the member: there is no axis {source} among {self.ndim}")
            if stride not in (1, -1):
                raise ShapeError(f"axis {i} of the member: a stride of {stride}; only 1 and -1 are possible")
            if not -FARTHEST < offset < FARTHEST or (source is None and offset < 0):
                raise ShapeError(f"axis {i} of the member: an offset of {offset}, which no member can have")
        if len(set(used)) != len(used):
            raise ShapeError(f"an axis is used twice: {used}; this is not a permutation")

    @classmethod
    def identity(cls, ndim: int) -> View:
        """The member as it is.

        >>> View.identity(2).seen(np.array([[1, 2]])).tolist()
        [[1, 2]]
        """
        return cls(ndim, tuple(MemberAxis(i) for i in range(ndim)))

    @property
    def new_axes(self) -> tuple[int, ...]:
        """Axes of the logical array that the member does not have.

        >>> View.identity(1).expand(0).new_axes
        (0,)
        """
        return tuple(sorted(set(range(self.ndim)) - {axis.source for axis in self.axes}))

    def transpose(self, *order: int) -> View:
        """The view with its axes in another order, as in NumPy: axis i is then the current `order[i]`.

        >>> View.identity(3).transpose(2, 0, 1).seen(np.empty((4, 5, 6))).shape
        (6, 4, 5)
        """
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(f"{order} is not a permutation of {self.ndim} axes")
        return self._renumbered(self.ndim, {axis: i for i, axis in enumerate(order)})

    def flip(self, axis: int, length: int) -> View:
        """The view with one axis reversed, of which it shows `length` elements.

        >>> View.identity(1).flip(0, length=5).member_box(Box((0,), (2,)))
        Box(start=(3,), stop=(5,))
        """
        return self._changed(
            axis, lambda a: MemberAxis(a.source, a.offset + a.stride * (length - 1), -a.stride)
        )

    def expand(self, axis: int) -> View:
        """The view with a new axis of length 1 at position `axis`.

        >>> View.identity(1).expand(1).seen(np.empty(4)).shape
        (4, 1)
        """
        if not 0 <= axis <= self.ndim:
            raise ShapeError(f"no axis can be put at {axis} among {self.ndim}")
        return self._renumbered(self.ndim + 1, {i: i + (i >= axis) for i in range(self.ndim)})

    def drop(self, axis: int, at: int = 0) -> View:
        """The view without one axis, of which it shows the index `at`.

        >>> View.identity(2).drop(0).seen(np.empty((1, 4))).shape
        (4,)
        """
        kept = self._changed(axis, lambda a: MemberAxis(None, a.offset + a.stride * at))
        return kept._renumbered(self.ndim - 1, {i: i - (i > axis) for i in range(self.ndim)})

    def _changed(self, axis: int, change: Callable[[MemberAxis], MemberAxis]) -> View:
        """The view with a change of the member's axis behind one of its own, if there is one."""
        if not 0 <= axis < self.ndim:
            raise ShapeError(f"there is no axis {axis} among {self.ndim}")
        return View(self.ndim, tuple(change(a) if a.source == axis else a for a in self.axes))

    def _renumbered(self, ndim: int, now: Mapping[int, int]) -> View:
        axes = (a if a.source is None else a._replace(source=now[a.source]) for a in self.axes)
        return View(ndim, tuple(axes))

    def member_box(self, box: Box) -> Box:
        """The box of the member that backs a box of places; both in elements.

        >>> View.identity(2).transpose(1, 0).member_box(Box((0, 5), (1, 9)))
        Box(start=(5, 0), stop=(9, 1))
        """
        # By the first and the last place: a reversed axis swaps these, but not the first and the one after
        # the last.
        last = tuple(b - 1 for b in box.stop)
        ends = [sorted((axis.at(box.start), axis.at(last))) for axis in self.axes]
        return Box(tuple(a for a, _ in ends), tuple(b + 1 for _, b in ends))

    def places(self, box: Box) -> Box:
        """The box of places that show a box of the member; new axes have the place 0.

        >>> View.identity(1).flip(0, length=5).expand(0).places(Box((3,), (5,)))
        Box(start=(0, 0), stop=(1, 2))
        """
        starts, stops = [0] * self.ndim, [1] * self.ndim
        for (source, offset, stride), (a, b) in zip(self.axes, box.bounds, strict=True):
            if source is not None:
                first, last = sorted((stride * (a - offset), stride * (b - 1 - offset)))
                starts[source], stops[source] = first, last + 1
        return Box(tuple(starts), tuple(stops))

    def seen(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A block of the member in the axes of the logical array; a NumPy view.

        >>> View.identity(2).transpose(1, 0).seen(np.array([[1, 2, 3]])).tolist()
        [[1], [2], [3]]
        """
        # The ellipsis keeps an array without axes an array.
        array = block[(*(0 if a.source is None else slice(None, None, a.stride) for a in self.axes), ...)]
        sources = [axis.source for axis in self.axes if axis.source is not None]
        array = array.transpose(sorted(range(len(sources)), key=sources.__getitem__))
        return np.expand_dims(array, self.new_axes)

    def unseen(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A block of the logical array in the member's axes; a NumPy view that can be written to.

        >>> View.identity(2).transpose(1, 0).unseen(np.array([[1], [2], [3]])).tolist()
        [[1, 2, 3]]
        """
        onto = self.onto(block, dict.fromkeys(self.new_axes, 0))
        directions: Any = (*(slice(None, None, axis.stride) for axis in self.axes), ...)
        turned: np.ndarray[Any, Any] = onto[directions]
        return turned

    def onto(self, out: np.ndarray[Any, Any], at: Mapping[int, int]) -> np.ndarray[Any, Any]:
        """An output in the member's order of axes, but in its own directions; a NumPy view.

        `at` gives the index on new axes. Reads of a reversed axis fill it from its end.

        >>> out = np.zeros((2, 3, 4))
        >>> View.identity(2).transpose(1, 0).flip(0, 3).expand(0).onto(out, {0: 1})[3, 0] = 7
        >>> np.argwhere(out).tolist()
        [[1, 0, 3]]
        """
        array = out[(*(at[i] if i in at else slice(None) for i in range(self.ndim)), ...)]
        ranks = {source: i for i, source in enumerate(sorted(set(range(self.ndim)) - set(self.new_axes)))}
        array = array.transpose([ranks[axis.source] for axis in self.axes if axis.source is not None])
        return array[(*(None if a.source is None else slice(None) for a in self.axes), ...)]

    def grid(self, chunks: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The member's chunk grid in the axes of the logical array: size and first border for every axis.

        A chunk begins wherever a place is the first border plus a multiple of the size.

        >>> View.identity(1).flip(0, length=721).grid((100,))  # the member's last chunk, of 21, comes first
        ((100, 21),)
        """
        axes = [(1, 0)] * self.ndim
        for (source, offset, stride), chunk in zip(self.axes, chunks, strict=True):
            if source is not None:
                # A chunk begins where offset + p is a multiple of its size; reversed, where offset - p is its
                # last element, so that offset - p + 1 is a multiple.
                axes[source] = chunk, (-offset if stride > 0 else offset + 1) % chunk
        return tuple(axes)

    def __str__(self) -> str:
        """The member's axes in the order of the array; a minus means reversed.

        >>> str(View.identity(3).drop(2).flip(0, length=5).expand(0))
        '[new, -0, 1], axis 2 at 0'
        """
        seen = {a.source: f"{'-' * (a.stride < 0)}{i}" for i, a in enumerate(self.axes)}
        dropped = (f", axis {i} at {a.offset}" for i, a in enumerate(self.axes) if a.source is None)
        return f"[{', '.join(seen.get(i, 'new') for i in range(self.ndim))}]{''.join(dropped)}"

    def to_json(self) -> dict[str, Any]:
        """The view as JSON, in the form of a TensorStore index transform.

        >>> View.identity(1).flip(0, length=5).to_json()
        {'input_rank': 1, 'output': [{'offset': 4, 'stride': -1, 'input_dimension': 0}]}
        """
        output = []
        for source, offset, stride in self.axes:
            entry = {"offset": offset} if offset or source is None else {}
            if source is not None:
                entry |= ({"stride": stride} if stride != 1 else {}) | {"input_dimension": source}
            output.append(entry)
        return {"input_rank": self.ndim, "output": output}

    @classmethod
    def from_json(cls, document: object) -> View:
        """The view that a JSON document describes.

        >>> View.from_json({"input_rank": 1, "output": [{"input_dimension": 3}]})
        Traceback (most recent call last):
        ...
        intarsia.errors.ShapeError: axis 0 of the member: there is no axis 3 among 1
        """
        parsed: ViewDocument = decode(document, ViewDocument, ShapeError)
        axes = []
        for i, axis in enumerate(parsed.output):
            if axis.input_dimension is UNSET:
                if axis.stride is not UNSET:
                    raise ShapeError(f"output[{i}]: a stride without an input_dimension")
                axes.append(MemberAxis(None, axis.offset))
            else:
                stride = 1 if axis.stride is UNSET else axis.stride
                axes.append(MemberAxis(axis.input_dimension, axis.offset, stride))
        return cls(parsed.input_rank, tuple(axes))
