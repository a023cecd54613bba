"""Reductions that skip nulls, for `NullableValues`, with numpy.ma where its rules match Arrow's."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from intarsia.errors import DataTypeError
from intarsia.nullable.elements import beneath, is_string

if TYPE_CHECKING:
    from intarsia.nullable.values import NullableValues

type Array = np.ndarray[Any, Any]
type Axis = int | tuple[int, ...] | None


class Reduction(TypedDict, total=False):
    """What all reductions take besides `axis`."""

    dtype: Any
    """The type of the result and of the sums. By default as in Arrow: 64-bit integers, floats at least so."""

    out: None
    """Passed by NumPy; a result cannot be put elsewhere."""

    keepdims: bool
    """Whether reduced axes are kept, with length 1."""

    skipna: bool
    """Whether nulls are skipped, as by default; otherwise a null makes the result null."""

    min_count: int
    """With fewer present elements than this, the result is null; 1 by default."""


def only_level(data: Any) -> NullableValues:
    """`data`, which must not have several levels of null."""
    if data.depth > 1:
        raise DataTypeError(
            f"this data has {data.depth} levels of null, but computing supports one: "
            "give up the difference with collapse() first"
        )
    known: NullableValues = data
    return known


def reduced(
    data: Any,
    name: str,
    axis: Axis,
    *,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    skipna: bool = True,
    min_count: int = 1,
    ddof: int = 0,
) -> NullableValues:
    """The reduction called `name` of nullable data."""
    from intarsia.nullable.values import NullableValues

    if out is not None:
        raise TypeError(f"the result of {name} cannot be written to out=, which may not hold nulls")
    data = only_level(data)
    axes = tuple(range(data.ndim)) if axis is None else normalize_axis_tuple(axis, data.ndim)
    null = data.is_null()
    if name in ("min", "max"):
        values = _extreme(data, name, axes).astype(dtype or data.values.dtype, copy=False)
    else:
        values = _statistic(data, name, axes, dtype, ddof)
        if dtype is not None and name not in ("any", "all"):  # numpy.ma divides in a type of its own
            values = values.astype(dtype, copy=False)
    missing = data.count(axes, keepdims=True) < max(min_count, ddof + 1 if name in ("var", "std") else 0)
    if not skipna:
        unknown = null.any(axis=axes, keepdims=True)
        if name in ("any", "all"):  # which the others may have decided
            unknown &= values == (name == "all")
        missing |= unknown
    result = NullableValues(values, missing)
    if keepdims:
        return result
    return result.reshape(tuple(n for d, n in enumerate(data.shape) if d not in axes))


def _statistic(data: NullableValues, name: str, axes: tuple[int, ...], dtype: Any, ddof: int) -> Array:
    """The result of numpy.ma for the numbers."""
    values, null = data.values, data.is_null()
    if values.dtype.kind not in ("biufcm" if name == "sum" else "biufc"):
        raise DataTypeError(f"{name} is for numbers, not for {values.dtype}")
    options: dict[str, Any] = {"ddof": ddof} if name in ("var", "std") else {}
    if name not in ("any", "all"):
        options["dtype"] = dtype or _accumulator(values.dtype, name)
    if name in ("var", "std") and null.any():  # these also square what lies beneath the mask
        values = np.where(null, np.zeros((), values.dtype), values)
    masked: Any = np.ma.MaskedArray(values, mask=null)
    return np.ma.getdata(getattr(masked, name)(axis=axes, keepdims=True, **options))


def _accumulator(dtype: np.dtype[Any], name: str) -> np.dtype[Any] | None:
    """The type that Arrow uses: 64 bits, and float unless integers are added or multiplied."""
    if dtype.kind == "m":
        return None
    if name not in ("sum", "prod") or dtype.kind in "fc":
        return np.result_type(dtype, np.float64)
    return np.dtype(np.int64 if dtype.kind == "i" else np.uint64)


def _extreme(data: NullableValues, name: str, axes: tuple[int, ...]) -> Array:
    """The smallest or largest element of any data that has an order."""
    own, values, null = data.values.dtype, data.values, data.is_null()
    if own.kind in "US":
        values = values.astype(np.dtypes.StringDType() if own.kind == "U" else object)
    best: np.ufunc
    worst: np.ufunc
    best, worst = (np.minimum, np.maximum) if is_string(values.dtype) else (np.fmin, np.fmax)
    if name == "max":
        best, worst = worst, best
    shape = tuple(1 if d in axes else n for d, n in enumerate(values.shape))
    present = values[~null]
    if not present.size:
        return np.full(shape, beneath(own), dtype=own)
    # NaN and NaT lose against anything; in types without them, the other extreme does.
    loses = beneath(own) if own.kind in "fcmM" else worst.reduce(present)
    if null.any():
        values = values.copy()
        values[null] = loses
    # NumPy reduces text and objects along one axis only.
    kept = [d for d in range(values.ndim) if d not in axes]
    in_a_row = values.transpose((*kept, *axes)).reshape((-1, prod(values.shape[d] for d in axes)))
    return np.asarray(best.reduce(in_a_row, axis=-1, initial=loses)).reshape(shape)
