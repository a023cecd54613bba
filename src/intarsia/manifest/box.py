"""Boxes: the coordinate algebra for everything about regions, members and chunks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from intarsia.errors import ShapeError

type Bounds = tuple[tuple[int, int], ...]
"""(start, stop) for every axis."""

BLOCK_BYTES = 64 << 20
"""A block grows by whole chunks up to this size; it has at least one chunk."""


class Box(NamedTuple):
    """A box of lattice cells or elements: `start` included, `stop` excluded.

    >>> Box((0, 5), (2, 10)).shape
    (2, 5)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(operator.sub, self.stop, self.start))

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

    @classmethod
    def around(cls, boxes: Sequence[Box]) -> Box:
        """The smallest box that holds all of these.

        >>> Box.around([Box((0, 5), (1, 6)), Box((2, 1), (3, 2))])
        Box(start=(0, 1), stop=(3, 6))
        """
        starts, stops = zip(*boxes, strict=True)
        return cls(tuple(map(min, *starts, starts[0])), tuple(map(max, *stops, stops[0])))

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
        start = [a + d for a, d in zip(self.start, by, strict=True)]
        stop = [b + d for b, d in zip(self.stop, by, strict=True)]
        return Box(tuple(start), tuple(stop))

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
        return Box(tuple(map(operator.floordiv, self.start, unit)), chunk_grid(self.stop, unit))

    def in_elements(self, unit: Sequence[int]) -> Box:
        """This box of larger units, such as chunks of this shape, in elements.

        >>> Box((1,), (3,)).in_elements((3,))
        Box(start=(3,), stop=(9,))
        """
        return Box(tuple(map(operator.mul, self.start, unit)), tuple(map(operator.mul, self.stop, unit)))

    def holds(self, index: Sequence[int]) -> bool:
        """Whether a place lies in the box.

        >>> Box((0, 5), (2, 10)).holds((1, 10))
        False
        """
        return all(a <= i < b for a, i, b in zip(self.start, index, self.stop, strict=True))

    def intersect(self, other: Box) -> Box | None:
        """The intersection of both boxes, or None.

        >>> Box((0,), (5,)).intersect(Box((3,), (9,)))
        Box(start=(3,), stop=(5,))
        """
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, self.stop, other.stop))
        return Box(start, stop) if all(map(operator.lt, start, stop)) else None

    def subtract(self, hole: Box) -> list[Box]:
        """What is left of this box outside `hole`, as boxes that do not overlap.

        >>> Box((0,), (5,)).subtract(Box((1,), (2,)))
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
        """The box as in a subscript, for messages.

        >>> Box((0, 5), (10, 20)).text()
        '[0:10, 5:20]'
        """
        return "[" + ", ".join(f"{a}:{b}" for a, b in zip(self.start, self.stop, strict=True)) + "]"


def chunk_grid(shape: Iterable[int], chunks: Iterable[int]) -> tuple[int, ...]:
    """The number of chunks along every axis of an array of a shape; the last ones may be partial.

    >>> chunk_grid((250, 100), (100, 100))
    (3, 1)
    """
    return tuple([-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)])


def block_shape(
    object_shape: tuple[int, ...], chunks: Sequence[int], itemsize: int, most_bytes: int
) -> tuple[int, ...]:
    """A block of whole chunks, as large as `most_bytes` allows; last axes first, at least one chunk.

    >>> block_shape((2, 4), [10, 3], 1, 64)
    (4, 12)
    """
    step, budget = list(object_shape), most_bytes // max(itemsize * prod(object_shape), 1)
    for axis in reversed(range(len(object_shape))):
        times = max(1, min(budget, chunks[axis]))
        step[axis] *= times
        budget //= times
    return tuple(step)


def tile_in_blocks(
    box: Box, object_shape: tuple[int, ...], itemsize: int, most_bytes: int = BLOCK_BYTES
) -> Iterator[Box]:
    """Boxes that tile `box`, each made of whole chunks of shape `object_shape` (except at the edges).

    >>> [block.shape for block in tile_in_blocks(Box((0, 0), (5, 4)), (2, 4), 1, most_bytes=16)]
    [(4, 4), (1, 4)]
    """
    step = block_shape(object_shape, box.in_units(object_shape).shape, itemsize, most_bytes)
    ranges = [range(a // s * s, b, s) for a, b, s in zip(box.start, box.stop, step, strict=True)]
    for corner in product(*ranges):
        block = Box.sized(step, corner).intersect(box)
        if block is not None:
            yield block


def parse_shape(value: Any, what: str) -> tuple[int, ...]:
    """A shape as people give it: a whole number, or one for each axis.

    >>> parse_shape(4, "shape"), parse_shape(np.array([2, 3]), "shape")
    ((4,), (2, 3))
    >>> parse_shape((4.7,), "shape")
    Traceback (most recent call last):
    ...
    intarsia.errors.ShapeError: shape (4.7,): give a whole number for each axis
    """
    try:
        return tuple(operator.index(n) for n in value) if np.iterable(value) else (operator.index(value),)
    except TypeError:
        raise ShapeError(f"{what} {value!r}: give a whole number for each axis") from None


type BoundsLike = Sequence[tuple[int, int] | slice | EllipsisType] | slice | EllipsisType
"""A box of elements: (start, stop) for every axis, or slices as between brackets, `np.s_[0:500, :]`."""


def element_bounds(bounds: BoundsLike, shape: Sequence[int]) -> list[tuple[int, int]]:
    """Bounds as pairs of numbers, one for every axis; slices count as NumPy's do, but nothing is cut.

    >>> import numpy as np
    >>> element_bounds(np.s_[100:], (250, 80)), element_bounds([(0, 50)], (250,))
    ([(100, 250), (0, 80)], [(0, 50)])
    """
    try:
        entries = [bounds] if isinstance(bounds, slice | EllipsisType) else list(bounds)
        if any(isinstance(entry, slice | EllipsisType) for entry in entries):
            at = next((i for i, entry in enumerate(entries) if entry is Ellipsis), len(entries))
            rest = [slice(None)] * (len(shape) - len(entries) + (at < len(entries)))
            entries = [*entries[:at], *rest, *entries[at + 1 :]]
        return [_ends(entry, size) for entry, size in zip(entries, shape, strict=True)]
    except (TypeError, ValueError):  # single numbers, floats, steps, or too few of them
        raise ShapeError(
            f"bounds {bounds!r}: give a pair of integers (start, stop) for each of the {len(shape)} axes, "
            "or slices without a step: np.s_[0:500, :]"
        ) from None


def _ends(entry: Any, size: int) -> tuple[int, int]:
    if isinstance(entry, slice):
        if entry.step not in (None, 1):
            raise TypeError("a box has no step")
        start = 0 if entry.start is None else operator.index(entry.start)
        stop = size if entry.stop is None else operator.index(entry.stop)
        return start + size * (start < 0), stop + size * (stop < 0)
    first, last = (operator.index(edge) for edge in entry)
    return first, last
