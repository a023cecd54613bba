"""How the axes of a file differ from those that are expected and hold the same: turned, rolled, noisy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.places import ULPS

if TYPE_CHECKING:
    from intarsia.array.table import Ints

type Values = np.ndarray[Any, Any]

MOST_SPANS = 64
"""An axis that is cut into more parts than this is in no order that anybody meant."""

CIRCLE = 360.0
"""Degrees of longitude after which it is the same place again."""

EASTWARD = frozenset(
    ("degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese")
)  # as CF lists them, in lower case
LONGITUDES = frozenset(("lon", "longitude"))


def is_longitude(name: str, attrs: Mapping[str, Any]) -> bool:
    """Whether 350 and -10 are the same place."""
    units = str(attrs.get("units", "")).lower()
    return units in EASTWARD or str(attrs.get("standard_name", name)).lower() in LONGITUDES


def close(a: Values, b: Values, tolerance: float | None, circle: bool = False) -> bool:
    """Whether two arrays hold the same values up to noise: a few steps of the coarser of their types.

    >>> close(np.array([0.1], "f4"), np.array([0.1]), None), close(np.array([0.1]), np.array([0.2]), None)
    (True, False)
    """
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "iuf" or b.dtype.kind not in "iuf":
        return bool(np.array_equal(a, b))
    apart = _apart(a, b, circle)
    near = np.full(a.shape, tolerance) if tolerance is not None else _noise(a, b, circle)
    return bool(((apart <= near) | (np.isnan(a) & np.isnan(b))).all())


def _apart(a: Values, b: Values, circle: bool) -> Values:
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    if circle:
        apart = apart % CIRCLE
        apart = np.minimum(apart, CIRCLE - apart)
    return apart


def _noise(a: Values, b: Values, circle: bool) -> Values:
    """How far apart values may be that are meant to be the same."""
    eps = max((float(np.finfo(each.dtype).eps) for each in (a, b) if each.dtype.kind == "f"), default=0.0)
    size = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
    if circle:
        size = np.maximum(size, CIRCLE)
    elif b.ndim == 1 and len(b) > 1:  # noise beside 0 is small against the distance of steps
        size = np.maximum(size, float(np.abs(np.diff(b)).min()))
    return ULPS * eps * size


def located(values: Values, expected: Values, tolerance: float | None, circle: bool = False) -> Ints | None:
    """Where each value stands among the expected ones, if both are the same set; None if they are not.

    >>> located(np.array([30.0, 20.0, 10.0]), np.array([10.0, 20.0, 30.0]), None).tolist()
    [2, 1, 0]
    >>> located(np.array([-90.0, 0.0, 90.0]), np.array([0.0, 90.0, 270.0]), None, circle=True).tolist()
    [2, 0, 1]
    """
    if values.shape != expected.shape or values.ndim != 1:
        return None
    if close(values, expected, tolerance):
        return np.arange(len(values))
    if circle and values.dtype.kind in "iuf" and expected.dtype.kind in "iuf":
        low = float(expected.min())
        turned = (values.astype(np.float64) - low) % CIRCLE
        turned[CIRCLE - turned < CIRCLE * 1e-6] = 0  # just below a full turn, by noise
        rank, place = np.argsort(turned, kind="stable"), np.argsort(expected, kind="stable")
    else:
        circle = False
        rank, place = (np.argsort(_sortable(each), kind="stable") for each in (values, expected))
    if not close(values[rank], expected[place], tolerance, circle):
        return None
    positions = np.empty(len(values), dtype=np.int64)
    positions[rank] = place
    return positions


def _sortable(values: Values) -> Values:
    return values.astype(object) if isinstance(values.dtype, np.dtypes.StringDType) else values


def brought(
    values: Values, dims: Sequence[str], expected: Sequence[str], positions: Mapping[str, Ints]
) -> Values | None:
    """Values with their axes as expected; None if these are other axes.

    >>> brought(np.array([[1, 2, 3]]), ("y", "x"), ("x",), {"x": np.array([2, 1, 0])}).tolist()
    [3, 2, 1]
    """
    extra = [d for d, dim in enumerate(dims) if dim not in expected]
    if any(values.shape[d] != 1 for d in extra):
        return None
    left = [dim for dim in dims if dim in expected]
    seen = np.squeeze(values, axis=tuple(extra))
    absent = [dim for dim in expected if dim not in left]
    seen = seen[(..., *[None] * len(absent))]
    left += absent
    seen = seen.transpose([left.index(dim) for dim in expected])
    for axis, dim in enumerate(expected):
        if dim in positions and seen.shape[axis] == len(positions[dim]):
            seen = np.take(seen, np.argsort(positions[dim]), axis=axis)
    return seen


def difference(own: Values, expected: Values) -> str:
    """What is different about values, in words, and what would take it."""
    if own.shape != expected.shape:
        return f"shape {own.shape} instead of {expected.shape}"
    if own.dtype.kind not in "iuf" or expected.dtype.kind not in "iuf" or not own.size:
        if own.dtype != expected.dtype:
            return f"{own.dtype} instead of {expected.dtype}"
        i = int(np.flatnonzero(own.reshape(-1) != expected.reshape(-1))[0])
        return f"{own.reshape(-1)[i]!r} instead of {expected.reshape(-1)[i]!r} at {i}"
    if np.array_equal(np.sort(own, axis=None), np.sort(expected, axis=None)):
        return "the same values in another order"
    apart = np.abs(own.astype(np.float64) - expected.astype(np.float64))
    apart = np.where(np.isnan(apart), np.inf, apart).reshape(-1)
    i = int(np.argmax(apart))
    a, b = own.reshape(-1)[i], expected.reshape(-1)[i]
    steps = np.abs(np.diff(expected)) if expected.ndim == 1 and len(expected) > 1 else np.array([np.inf])
    option = f" (tolerance={apart[i]:.3g} takes it)" if apart[i] < steps.min() / 2 else ""
    return (
        f"values from {own.min():g} to {own.max():g} instead of {expected.min():g} to {expected.max():g}; "
        f"the largest difference is {apart[i]:.3g}, at {i}: {a!s} instead of {b!s}{option}"
    )
