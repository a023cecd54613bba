"""Anything people keep missing values in, as `NullableValues`."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import DataTypeError
from intarsia.nullable.layout import tagged
from intarsia.nullable.objects import from_objects, is_element
from intarsia.nullable.values import NullableValues

if TYPE_CHECKING:
    from intarsia.casting import Casting

__all__ = ["as_masked", "as_nullable"]

_BUFFERS = (bytearray, memoryview, array.array)


def as_nullable(
    data: Any, dtype: Any = None, depth: int = 1, *, casting: Casting = "same_kind"
) -> NullableValues:
    """Data with nulls from NumPy, pandas, Arrow, Polars, or lists with None, as `NullableValues`.

    Masked arrays, and most of what pandas and Arrow hold, are not copied. Where `dtype` is given, the
    present values are converted to it; those that would change are refused, unless `casting="unsafe"`.

    >>> as_nullable([1, None, 3], "int16")
    NullableValues([1, NULL, 3], dtype=int16)
    >>> as_nullable(np.array([1.5, np.nan]), "int16")
    Traceback (most recent call last):
    ...
    intarsia.errors.DataTypeError: the values are float64, and int16 cannot hold them all...
    """
    if dtype is None:
        return _found(data, None, depth, casting)
    dtype = np.dtype(dtype)
    found = _found(data, dtype, depth, casting)
    return found.astype(tagged(dtype, depth), copy=False, casting=casting)


def _found(data: Any, dtype: np.dtype[Any] | None, depth: int, casting: Casting) -> NullableValues:
    if isinstance(data, NullableValues | np.ndarray) and data is not np.ma.masked:
        if isinstance(data, np.ndarray) and data.dtype == object:
            return from_objects(data, dtype, depth, casting=casting)
        return NullableValues.of(data, depth)
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and (hasattr(data, "dtype") or hasattr(data, "iloc")):
        from intarsia.nullable.pandas import from_pandas

        return from_pandas(data).at_depth(depth)
    if library == "polars":  # also what from_polars refuses: to NumPy it is one object
        from intarsia.nullable.polars import from_polars

        return from_polars(data).at_depth(depth)
    read = getattr(data, "read_nullable", None)
    if read is not None:
        return NullableValues.of(read(), depth)
    if is_element(type(data)):
        return from_objects(data, dtype, depth, casting=casting)
    if isinstance(data, Sequence) and not isinstance(data, _BUFFERS):
        return _of_sequence(data if isinstance(data, list | tuple) else list(data), dtype, depth, casting)
    if all(hasattr(data, name) for name in ("shape", "dtype", "ndim")):
        # An array that is stored or computed somewhere; NumPy's conversion would drop its mask.
        read = data.compute() if hasattr(data, "compute") else data[...]
        if type(read) is not type(data):
            return _found(read, dtype, depth, casting)
    elif library == "pyarrow" or hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__"):
        # NumPy would make NaN of Arrow's nulls. Arrays of xarray are above: they export themselves as tables.
        from intarsia.nullable.arrow import from_arrow

        return from_arrow(data).at_depth(depth)
    plain = np.asarray(data)
    if plain.dtype == object and plain.ndim == 0:
        raise DataTypeError(
            f"an object of type {type(data).__name__} is no array and has no place in one: give a list, "
            "a masked array, or a table or series of pandas, Arrow or Polars"
        )
    return _found(plain, dtype, depth, casting)


def _of_sequence(
    data: list[Any] | tuple[Any, ...], dtype: np.dtype[Any] | None, depth: int, casting: Casting
) -> NullableValues:
    if not data or not all(isinstance(row, np.ndarray) and row.ndim for row in data):
        return from_objects(data, dtype, depth, casting=casting)
    # Rows that are arrays have masks of their own.
    rows = [as_nullable(row, dtype, depth, casting=casting) for row in data]
    if len({(row.shape, str(row.values.dtype)) for row in rows}) > 1:
        raise DataTypeError("the rows differ in shape or data type: those of an array do not")
    return NullableValues(
        np.stack([row.values for row in rows]), np.stack([row.missing for row in rows]), depth
    )


def as_masked(data: Any, *, collapse: bool = False) -> np.ma.MaskedArray[Any, Any]:
    """Data with nulls as a NumPy masked array, without a copy where the source allows it.

    Takes what a read of a nullable array through plain zarr gives, nullable arrays themselves, and all
    that `as_nullable` takes. Nested levels of null become one only if `collapse`.

    >>> import pandas as pd
    >>> print(as_masked(pd.Series([1, None], dtype="Int64")))
    [1 --]
    """
    found = data if isinstance(data, NullableValues) else as_nullable(data)
    return found.masked(collapse=collapse)
