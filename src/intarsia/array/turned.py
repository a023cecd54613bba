"""Selections as members see them that regions look at through views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from intarsia.array.orientation import View
    from intarsia.array.plan import AxisSelector
    from intarsia.array.table import Ints


class Turned(NamedTuple):
    """An outer selection as a member sees it."""

    at: Mapping[int, int]
    """Where the output is met on axes that the member does not have; see `View.onto`."""

    source: tuple[AxisSelector, ...]
    """What is taken of every axis of the member."""

    target: tuple[AxisSelector, ...]
    """Where it goes in the output, its axes in the order of the member."""


def turned(view: View, source: Sequence[AxisSelector], target: Sequence[AxisSelector]) -> Iterator[Turned]:
    """An outer selection of places, and where it goes, as the member sees it.

    One, unless the selection takes the one place of a new axis several times.

    >>> from intarsia.array.orientation import View
    >>> view = View.identity(1).flip(0, length=10).expand(0)
    >>> places, out = (slice(0, 1, 1), slice(2, 9, 3)), (slice(0, 1, 1), slice(0, 3, 1))
    >>> list(turned(view, places, out))
    [Turned(at={0: 0}, source=(slice(1, 8, 3),), target=(slice(2, None, -1),))]
    """
    taken: list[AxisSelector] = []
    goes: list[AxisSelector] = []
    for axis in view.axes:
        if axis.source is None:
            taken.append(slice(axis.offset, axis.offset + 1, 1))
            goes.append(slice(0, 1, 1))
        elif axis.stride > 0:
            taken.append(_moved(source[axis.source], axis.offset))
            goes.append(target[axis.source])
        else:
            taken.append(_mirrored(source[axis.source], axis.offset))
            goes.append(_reversed(target[axis.source]))
    new = view.new_axes
    for places in product(*(_indices(target[axis]) for axis in new)):
        yield Turned(dict(zip(new, places, strict=True)), tuple(taken), tuple(goes))


def turned_points(view: View, points: Sequence[Ints], count: int) -> tuple[Ints, ...]:
    """Some single places as the member sees them, one array an axis of the member.

    >>> from intarsia.array.orientation import View
    >>> turned_points(View.identity(2).transpose(1, 0), [np.array([1, 2]), np.array([3, 4])], 2)
    (array([3, 4]), array([1, 2]))
    """
    return tuple(
        np.full(count, axis.offset)
        if axis.source is None
        else axis.offset + axis.stride * points[axis.source]
        for axis in view.axes
    )


def _moved(selector: AxisSelector, by: int) -> AxisSelector:
    if isinstance(selector, slice):
        return slice(selector.start + by, selector.stop + by, selector.step)
    return selector + by


def _mirrored(selector: AxisSelector, offset: int) -> AxisSelector:
    """The indices `offset - place`, upwards."""
    if not isinstance(selector, slice):
        return (offset - selector)[::-1]
    step = selector.step or 1
    last = selector.start + (selector.stop - 1 - selector.start) // step * step
    return slice(offset - last, offset - selector.start + 1, step)


def _reversed(selector: AxisSelector) -> AxisSelector:
    """The same places of an output, from the other end."""
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
