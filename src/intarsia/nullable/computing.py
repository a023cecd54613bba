"""Computing with nulls: operators, ufuncs, reductions and a few NumPy functions for `NullableValues`.

The answers are Arrow's. A null in gives a null out; `&` and `|` of bools know three values (null & False is
False); a null condition chooses nothing. Reductions skip nulls; if nothing is present, even a sum is null.
numpy.ma reduces where its rules match Arrow's.

Anything may lie in memory beneath a null, so NumPy's warnings and errors about it are not passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from intarsia._compat import numpys_own
from intarsia.errors import DataTypeError
from intarsia.nullable.conversions import as_nullable, is_null_type
from intarsia.nullable.elements import placeholder
from intarsia.nullable.nullable_values import Array, NullableValues, check_one_level

type Axis = int | tuple[int, ...] | None

_KLEENE = {np.bitwise_and: False, np.logical_and: False, np.bitwise_or: True, np.logical_or: True}
"""Three-valued logic: the value of one operand that decides the result regardless of the other."""

_SCALARS = (bool, int, float, complex, str, bytes, np.generic)
"""Passed to NumPy as they are, so that they adapt to the array's data type: int8 + 1 stays int8."""


# -- element by element


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], out: Any, options: Any) -> Any:
    """The result of a NumPy ufunc; see `numpy.ndarray.__array_ufunc__`."""
    if method != "__call__" or ufunc.signature is not None or "where" in options:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise TypeError(
            f"{name} has no rule for nulls, which would affect other elements.\n"
            "  Reductions are methods, such as x.sum(). Otherwise remove the nulls with fillna or dropna"
        )
    if any(hasattr(value, "to_dask") for value in inputs):
        return NotImplemented  # stored arrays compute lazily
    if any(hasattr(value, "__dask_graph__") for value in inputs):
        from intarsia.nullable.dask_blocks import to_dask

        return ufunc(*(to_dask(v) if isinstance(v, NullableValues) else v for v in inputs), **options)
    operands = _operands(inputs)
    if ufunc in _KLEENE and all(map(_is_bool, operands)):
        results: Any = _kleene(operands, _KLEENE[ufunc])
    elif ufunc in (np.logical_and, np.logical_or):
        truths = [_elementwise(np.not_equal, (operand, 0), {}) for operand in operands]
        results = _kleene(truths, _KLEENE[ufunc])
    else:
        results = _elementwise(ufunc, operands, options)
    if out is None or all(target is None for target in out):
        return results
    if len(out) != 1:
        raise TypeError(f"{ufunc.__name__} has {len(out)} results, but out= takes one")
    out[0][...] = results
    return out[0]


def _operands(inputs: Sequence[Any]) -> list[Any]:
    """Nullable data, and scalars as they are. A bare null gets the data type of the first other operand."""
    operands = [None if is_null_type(type(value)) else _operand(value) for value in inputs]
    first = next((operand for operand in operands if operand is not None), False)
    dtype = np.asarray(_values(first)).dtype
    null = NullableValues(np.full((), placeholder(dtype), dtype), np.True_)
    return [null if operand is None else operand for operand in operands]


def _operand(value: Any) -> Any:
    if isinstance(value, _SCALARS):
        return value
    data = value if isinstance(value, NullableValues) else as_nullable(value)
    check_one_level(data.depth)
    return data


def _elementwise(ufunc: np.ufunc, operands: Sequence[Any], options: Any) -> Any:
    """The result of `ufunc` for elements that are present in all operands."""
    nulls = [operand.isnull() for operand in operands if isinstance(operand, NullableValues)]
    null = np.logical_or.reduce(np.broadcast_arrays(*nulls))
    values = [_values(operand) for operand in operands]
    modes: Any = {kind: mode if mode == "ignore" else "raise" for kind, mode in np.geterr().items()}
    results: Any
    try:  # to compute all elements, which takes far less time than choosing some
        with np.errstate(**modes):
            results = ufunc(*values, out=..., **options)
    except Exception:  # raised again if it is about present elements
        results = ufunc(*values, out=..., where=~null, **options)
        for result in results if isinstance(results, tuple) else (results,):
            result[null] = placeholder(result.dtype)
    if isinstance(results, tuple):
        return tuple(NullableValues(result, null.copy()) for result in results)
    return NullableValues(results, null)


def _values(operand: Any) -> Any:
    return operand.values if isinstance(operand, NullableValues) else operand


def _is_bool(operand: Any) -> bool:
    return bool(np.asarray(_values(operand)).dtype == np.bool_)


def _kleene(operands: Sequence[Any], decisive: bool) -> NullableValues:
    """`and` (False decides) or `or` (True decides): decided by one operand, else null if there is a null."""
    null: Any = np.False_
    decided: Any = np.False_
    for operand in map(_to_array, operands):
        unknown, values = operand.isnull(), operand.values
        null = null | unknown
        decided = decided | (~unknown & (values if decisive else ~values))
    return NullableValues(decided if decisive else ~decided, null & ~decided)


# -- NumPy functions


def apply_function(function: Any, arguments: Any, options: Any) -> Any:
    """The result of another NumPy function; see `numpy.ndarray.__array_function__`.

    Functions without a rule here treat the data as any object: they call a method, or np.asarray, which
    refuses nulls.
    """
    return (_FUNCTIONS.get(function) or numpys_own(function))(*arguments, **options)


def _to_array(value: Any) -> NullableValues:
    return value if isinstance(value, NullableValues) else NullableValues(np.asarray(value))


def _on_both_parts(function: Callable[..., Any]) -> Callable[..., NullableValues]:
    """np.concatenate or np.stack, applied to the values and to `missing`."""

    def concat(
        arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind"
    ) -> NullableValues:
        parts = [_to_array(operand) for operand in _operands(arrays)]
        values = function([part.values for part in parts], axis, dtype=dtype, casting=casting)
        return NullableValues(values, function([part.missing for part in parts], axis))

    return concat


def _where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return np.where(np.asarray(condition))
    (condition,) = map(_to_array, _operands([condition]))
    choices = tuple(_operands(choices))
    null = [_to_array(choice).isnull() for choice in choices]
    chosen = condition.values.astype(np.bool_, copy=False)
    values = np.where(chosen, *map(_values, choices))
    missing = condition.isnull() | np.where(chosen, *null)
    return NullableValues(values, np.broadcast_to(missing, values.shape).copy())


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: _on_both_parts(np.concatenate),
    np.stack: _on_both_parts(np.stack),
    np.where: _where,
}


# -- reductions


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


def reduce(
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
    if out is not None:
        raise TypeError(f"the result of {name} cannot be written to out=, which may not hold nulls")
    check_one_level(data.depth)
    axes = tuple(range(data.ndim)) if axis is None else normalize_axis_tuple(axis, data.ndim)
    null = data.isnull()
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
    values, null = data.values, data.isnull()
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
    """The smallest or largest element."""
    values, kind = data.values, data.values.dtype.kind
    if kind not in "biufcmM":
        raise DataTypeError(f"{name} is for numbers and times, not for {values.dtype}")
    is_min = name == "min"
    reducer: np.ufunc = np.fmin if is_min else np.fmax
    other_end = np.ma.minimum_fill_value if is_min else np.ma.maximum_fill_value
    # NaN and NaT lose against anything; in types without them, the other extreme does.
    loses = np.asarray(placeholder(values.dtype) if kind in "fcmM" else other_end(values), values.dtype)
    filled = np.where(data.isnull(), loses, values)
    return np.asarray(reducer.reduce(filled, axis=axes, keepdims=True, initial=loses[()]))
