"""The one rule for values of another data type: those that would change are refused, unless a caller says so.

NumPy's `same_kind` says which data types convert at all, with two changes: integers convert to each other
regardless of sign, and nothing converts between numbers, texts and times. Then the values are checked: none
may change by more than the rounding of a float.
"""

from typing import Any, Literal

import numpy as np

from intarsia.errors import DataTypeError

type Casting = Literal["same_kind", "unsafe"]
CASTINGS = ("same_kind", "unsafe")

type _Values = np.ndarray[Any, Any]
type _Mask = np.ndarray[Any, np.dtype[np.bool_]]

FAMILIES = {kind: family for family in ("biufc", "UTS", "M", "m", "V", "O") for kind in family}
"""Kinds of data types by their meaning: numbers, texts, times, durations, records, objects."""


def cast(
    values: _Values, dtype: np.dtype[Any], *, casting: Casting = "same_kind", what: str = "the values"
) -> _Values:
    """The values in another data type; a view or the array itself if nothing has to be done.

    It refuses integers that do not fit, or that a float would not hold exactly; floats that would become
    infinite; text and times that would be cut off; fractions as integers; records with other fields.
    Rounding a float to a shorter one is not a change. Objects are bytes of any length. `casting="unsafe"`
    accepts all of NumPy's results.

    >>> cast(np.array([0.1]), np.dtype("float32"))
    array([0.1], dtype=float32)
    >>> cast(np.array([2**24 + 1]), np.dtype("float32"))
    Traceback (most recent call last):
    ...
    intarsia.errors.DataTypeError: the values are int64, and float32 cannot hold them all: 16777217 ...
    >>> cast(np.array([2**24 + 1]), np.dtype("float32"), casting="unsafe")
    array([1.6777216e+07], dtype=float32)
    >>> cast(np.array([b"ab"], dtype=object), np.dtype("S3"))
    array([b'ab'], dtype='|S3')
    """
    if casting not in CASTINGS:
        raise ValueError(f"casting is {casting!r}: give 'same_kind' or 'unsafe'")
    if values.dtype == dtype:
        return values
    if values.size == 0:
        return np.empty(values.shape, dtype=dtype)
    if casting == "same_kind" and "O" in (values.dtype.kind, dtype.kind):
        return _cast_bytes(values, dtype, what)
    if casting == "same_kind" and not _convertible(values.dtype, dtype):
        raise _refusal(values.dtype, dtype, what, "")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            result = values.astype(dtype)
    except (UnicodeError, ValueError, TypeError, OverflowError) as error:
        raise _refusal(values.dtype, dtype, what, f": {error}") from error
    if casting == "same_kind":
        _check(values, result, what)
    return result


def _cast_bytes(values: _Values, dtype: np.dtype[Any], what: str) -> _Values:
    """Bytes of any length, which are objects, as bytes of one length, or the other way round."""
    fixed = values.dtype if dtype.kind == "O" else dtype
    if fixed.kind in "SV" and fixed.names is None:
        result = values.astype(dtype)
        if dtype.kind == "O" or bool((result.astype(object) == values).all()):
            return result
        raise DataTypeError(
            f"{what} are bytes, and {dtype} cannot hold them all: they would be cut or padded"
        )
    raise DataTypeError(
        f"{what} are {values.dtype}, not bytes"
        if dtype.kind == "O"
        else f"{what} are bytes, but the array holds {dtype}: decode them first"
    )


def _convertible(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether values of one data type can keep their meaning in the other."""
    if FAMILIES.get(source.kind) != FAMILIES.get(target.kind):
        return False
    if source.names != target.names:  # NumPy goes by position
        return False
    if source.names is not None:
        return all(_convertible(source[name], target[name]) for name in source.names)
    if source.kind in "biu" and target.kind in "iu":
        return True
    if source.kind == "V" and source.names is None:
        return np.can_cast(source, target, "safe")
    return np.can_cast(source, target, "same_kind")


def _check(values: _Values, result: _Values, what: str) -> None:
    """Refuse values that the conversion has changed."""
    if values.dtype.names is not None:
        for name in values.dtype.names:
            if values.dtype[name] != result.dtype[name]:
                _check(values[name], result[name], f"the field {name!r} of {what}")
        return
    lost = _changed(values, result)
    if lost is not None and bool(lost.any()):
        first = np.unravel_index(int(np.argmax(lost)), lost.shape)
        example = f"{values[first]!s} would become {result[first]!s}"
        raise _refusal(values.dtype, result.dtype, what, f": {example}")


def _changed(values: _Values, result: _Values) -> _Mask | None:
    """Where a conversion has changed values; None if it cannot have changed any."""
    source, target, lost = values.dtype, result.dtype, None
    if source.kind in "iu" and target.kind in "iufc":
        lost = _inexact(values, result)
    elif source.kind in "Mm":  # a finer unit has a shorter range, so this is never safe
        lost = (result.astype(source) != values) & ~np.isnat(values)
    elif not np.can_cast(source, target, "safe"):
        is_number = source.kind in "fc"  # rounding it is no change
        lost = np.isfinite(values) & ~np.isfinite(result) if is_number else result.astype(source) != values
    return lost


def _inexact(values: _Values, result: _Values) -> _Mask | None:
    """Integers that do not fit, or that a float does not hold exactly."""
    if result.dtype.kind in "iu":
        low, high = np.iinfo(result.dtype).min, np.iinfo(result.dtype).max
    else:
        high = 2 ** (np.finfo(result.dtype).nmant + 1)  # every whole number up to here is a float
        low = -high
    if int(values.min()) >= low and int(values.max()) <= high:
        return None
    limits = np.iinfo(values.dtype)
    real = result.real if result.dtype.kind in "iu" else result.real.astype(np.float64)
    # The way back is defined only for values that fit: 2**63 - 1 rounds up to 2**63, which is not an int64.
    fits = (real >= limits.min) & (real < limits.max + 1)
    lost: _Mask = ~fits | (np.where(fits, real, 0).astype(values.dtype) != values)
    return lost


def _refusal(source: np.dtype[Any], target: np.dtype[Any], what: str, why: str) -> DataTypeError:
    return DataTypeError(
        f"{what} are {source}, and {target} cannot hold them all{why}.\n"
        f"  Convert them first, if that is what you mean: values.astype({str(target)!r})",
        command=f"Convert the file first, if that is what you mean: its values would have to be {target}",
    )
