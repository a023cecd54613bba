"""Nullable data for libraries without nulls: NaN and NaT, masked arrays, or an error."""

from typing import Any, Literal

import numpy as np

from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable.nullable_values import NullableValues

type NullsChoice = Literal["nan", "masked", "raise"]

CHOICES = ("nan", "masked", "raise")

_EXACT_FLOAT64 = 2**53
"""Every integer up to here is a float64 of its own."""


def dtype_without_nulls(dtype: np.dtype[Any], nulls: NullsChoice | None = None) -> np.dtype[Any]:
    """The dtype that `without_nulls` gives for values of `dtype`, whether or not any are null.

    Args:
        nulls: What nulls become, as in `without_nulls`.

    >>> dtype_without_nulls(np.dtype("int16"), "nan"), dtype_without_nulls(np.dtype("int16"))
    (dtype('float32'), dtype('int16'))
    """
    _check(nulls)
    if nulls != "nan" or dtype.kind in "fcmM":
        return dtype
    if dtype.kind in "iu":
        return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
    return np.dtype(object)


def without_nulls(
    data: NullableValues, nulls: NullsChoice | None = None, *, what: str = "the array"
) -> np.ndarray[Any, Any]:
    """Convert nullable data to an ordinary array; `nulls` says what nulls become.

    "nan": NaN, or NaT for times; integers become floats, and bools and strings become objects. "masked": a
    masked array. "raise": an error if there is a null. By default, nulls become NaN or NaT if the data type
    has one, and raise an error otherwise, so that the data type changes only on request.

    Args:
        data: The nullable data.
        what: What error messages call the data.

    >>> from intarsia.nullable import as_nullable
    >>> without_nulls(as_nullable([1.5, None]))
    array([1.5, nan])
    >>> without_nulls(as_nullable([1, None]), "nan")
    array([ 1., nan])
    """
    _check(nulls)
    if nulls == "masked":
        return data.masked(collapse=True)
    values, missing, count = data.values, data.isnull(), data.null_count
    if nulls == "raise" or (nulls is None and values.dtype.kind not in "fcmM"):
        if count:
            hint = "" if nulls == "raise" else f"{values.dtype} has no NaN. "
            raise NullsPresentError(
                f"{count} of {data.size} elements of {what} are null. {hint}"
                'Choose what they become: nulls="nan" or nulls="masked"'
            )
        return values
    dtype = dtype_without_nulls(values.dtype, "nan")
    if values.dtype.kind in "iu":
        present = values[~missing]
        if present.size and (present.max() > _EXACT_FLOAT64 or present.min() < -_EXACT_FLOAT64):
            raise DataTypeError(
                f'{what} holds integers beyond 2**53, which floats cannot distinguish: choose nulls="masked"'
            )
    out = values.astype(dtype, copy=bool(count))
    if count:
        out[missing] = np.array("NaT", dtype=dtype) if dtype.kind in "mM" else np.nan
    return out


def _check(nulls: object) -> None:
    if nulls is not None and nulls not in CHOICES:
        raise DataTypeError(f"nulls={nulls!r}: choose one of {', '.join(map(repr, CHOICES))}")
