"""The one rule for values of another data type: those that would change are refused, unless a caller says so.

NumPy's `same_kind` says which data types convert at all, with two changes: integers convert to each other
regardless of sign, and nothing converts between numbers, texts and times. Then the values are checked: none
may change by more than the rounding of a float.
"""

from collections.abc import Callable
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
    Rounding a float to a shorter one is not a change. `casting="unsafe"` accepts all of NumPy's results.

    >>> cast(np.array([0.1]), np.dtype("float32"))
    array([0.1], dtype=float32)
    >>> cast(np.array([2**24 + 1]), np.dtype("float32"))
    Traceback (most recent call last):
    ...
    intarsia.errors.DataTypeError: the values are int64, and float32 cannot hold them all: 16777217 ...
    >>> cast(np.array([2**24 + 1]), np.dtype("float32"), casting="unsafe")
    array([1.6777216e+07], dtype=float32)
    """
    if casting not in CASTINGS:
        raise ValueError(f"casting is {casting!r}: give 'same_kind' or 'unsafe'")
    if values.dtype == dtype:
        return values
    if casting == "same_kind" and not _convertible(values.dtype, dtype):
        raise _refusal(values.dtype, dtype, what, "")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            result = values.astype(dtype)
    except (UnicodeError, ValueError, TypeError, OverflowError) as error:
        raise _refusal(values.dtype, dtype, what, f": {error}") from error
    if casting == "same_kind" and values.size:
        _check(values, result, what)
    return result


def cast_values(
    values: _Values, dtype: np.dtype[Any], *, casting: Casting = "same_kind", what: str = "the values"
) -> _Values:
    """Like `cast`, but also from and to the objects that hold bytes of any length.

    >>> cast_values(np.array([b"ab"], dtype=object), np.dtype("S3"))
    array([b'ab'], dtype='|S3')
    """
    if values.size == 0:
        return np.empty(values.shape, dtype=dtype)
    source, target = values.dtype.kind, dtype.kind
    if casting == "unsafe" or "O" not in (source, target):
        result = cast(values, dtype, casting=casting, what=what)
        fixed_text = casting != "unsafe" and source == "T" and target in "US"
        if fixed_text and bool((result.astype(values.dtype) != values).any()):
            raise DataTypeError(f"some of {what} end with NUL, which {dtype} cannot hold")
        return result
    fixed = values.dtype if target == "O" else dtype
    if source == target:
        return values
    if fixed.kind in "SV" and fixed.names is None:
        result = values.astype(dtype)
        if target == "O" or bool((result.astype(object) == values).all()):
            return result
        raise DataTypeError(
            f"{what} are bytes, and {dtype} cannot hold them all: they would be cut or padded"
        )
    raise DataTypeError(
        f"{what} are {values.dtype}, not bytes"
        if target == "O"
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
    changed = _check_for(values.dtype, result.dtype)
    lost = None if changed is None else changed(values, result)
    if lost is not None and bool(lost.any()):
        first = np.unravel_index(int(np.argmax(lost)), lost.shape)
        example = f"{values[first]!s} would become {result[first]!s}"
        raise _refusal(values.dtype, result.dtype, what, f": {example}")


def _check_for(
    source: np.dtype[Any], target: np.dtype[Any]
) -> Callable[[_Values, _Values], _Mask | None] | None:
    """A function that finds the values that such a conversion changes; None if it cannot change any."""
    kinds = source.kind, target.kind
    if kinds[0] in "Mm":
        return _cut_time  # a finer unit has a shorter range, so this is never safe
    if kinds[0] in "iu" and kinds[1] in "fc":
        return _inexact
    if np.can_cast(source, target, "safe"):
        return None
    if kinds[0] in "iu":
        return _outside
    if kinds[0] in "fc":
        return _overflown
    return _cut_text if kinds[1] in "US" else None


def _outside(values: _Values, result: _Values) -> _Mask | None:
    """Integers that do not fit."""
    limits = np.iinfo(result.dtype)
    if int(values.min()) >= limits.min and int(values.max()) <= limits.max:
        return None
    # As Python numbers: NumPy does not compare int64 with a limit of uint64, or vice versa.
    below, above = max(limits.min, np.iinfo(values.dtype).min), min(limits.max, np.iinfo(values.dtype).max)
    lost: _Mask = (values < below) | (values > above)
    return lost


def _inexact(values: _Values, result: _Values) -> _Mask | None:
    """Integers that a float does not hold exactly."""
    exact = 2 ** (np.finfo(result.dtype).nmant + 1)  # every whole number up to here is a float
    if int(values.min()) >= -exact and int(values.max()) <= exact:
        return None
    limits, real = np.iinfo(values.dtype), result.real.astype(np.float64)
    # The way back is defined only for values that fit: 2**63 - 1 rounds up to 2**63, which is not an int64.
    top = float(limits.max)
    fits = (real >= float(limits.min)) & (real <= top if int(top) == limits.max else real < top)
    back = np.where(fits, real, 0).astype(values.dtype)
    lost: _Mask = ~fits | (back != values)
    return lost


def _overflown(values: _Values, result: _Values) -> _Mask | None:
    """Floats that became infinite."""
    if np.isfinite(result).all():
        return None
    lost: _Mask = np.isfinite(values) & ~np.isfinite(result)
    return lost


def _cut_time(values: _Values, result: _Values) -> _Mask:
    """Times that were cut to a coarser unit, or lie beyond the range of a finer one."""
    lost: _Mask = (result.astype(values.dtype) != values) & ~np.isnat(values)
    return lost


def _cut_text(values: _Values, result: _Values) -> _Mask:
    """Texts that are too long."""
    width = result.dtype.itemsize // (4 if result.dtype.kind == "U" else 1)
    lost: _Mask = np.strings.str_len(values) > width
    return lost


def _refusal(source: np.dtype[Any], target: np.dtype[Any], what: str, why: str) -> DataTypeError:
    return DataTypeError(
        f"{what} are {source}, and {target} cannot hold them all{why}.\n"
        f"  Convert them first, if that is what you mean: values.astype({str(target)!r})",
        command=f"Convert the file first, if that is what you mean: its values would have to be {target}",
    )
