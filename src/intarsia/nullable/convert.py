"""Anything people keep missing values in, as `NullableValues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import DataTypeError
from intarsia.nullable.layout import Layout, beneath, is_string, tagged
from intarsia.nullable.scalars import NULL, Null, Some, unwrap
from intarsia.nullable.values import NullableValues

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_masked", "as_nullable"]


def as_nullable(data: Any, dtype: Any = None, depth: int = 1) -> NullableValues:
    """Data with nulls from NumPy, pandas, Arrow, Polars, or lists with None, as `NullableValues`.

    Masked arrays, and most of what pandas and Arrow hold, are not copied. Where `dtype` is given, the
    present values are converted to it.

    >>> as_nullable([1, None, 3], "int16")
    NullableValues([1, NULL, 3], dtype=int16)
    """
    layout = None if dtype is None else Layout(np.dtype(dtype), depth)
    found = _found(data, layout, depth)
    if layout is None or found.values.dtype == layout.dtype:
        return found
    if layout.dtype.kind in "biuf" and found.values.dtype.kind in "OTUSmM":
        raise DataTypeError(f"{found.values.dtype} does not become {layout.dtype}: convert it first")
    return found.astype(tagged(layout.dtype, depth))


def _found(data: Any, layout: Layout | None, depth: int) -> NullableValues:
    if isinstance(data, NullableValues | np.ndarray) and data is not np.ma.masked:
        if isinstance(data, np.ndarray) and data.dtype == object:
            return _of_objects(data, layout, depth)
        return NullableValues.of(data, depth)
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and (hasattr(data, "dtype") or hasattr(data, "iloc")):
        from intarsia.nullable.pandas import from_pandas

        return from_pandas(data).at_depth(depth)
    if library == "polars" and hasattr(data, "to_arrow"):
        from intarsia.nullable.polars import from_polars

        return from_polars(data).at_depth(depth)
    if library == "pyarrow":  # also what from_arrow refuses: NumPy would make NaN of its nulls
        from intarsia.nullable.arrow import from_arrow

        return from_arrow(data).at_depth(depth)
    read = getattr(data, "read_nullable", None)
    if read is not None:
        return NullableValues.of(read(), depth)
    if isinstance(data, list | tuple | Null | Some) or _is_na(data):
        return _of_objects(_objects(data), layout, depth)
    if not isinstance(data, np.generic) and all(hasattr(data, name) for name in ("shape", "dtype", "ndim")):
        # An array that is stored or computed somewhere; NumPy's conversion would drop its mask.
        read = data.compute() if hasattr(data, "compute") else data[...]
        if type(read) is not type(data):
            return _found(read, layout, depth)
    plain = np.asarray(data, dtype=None if layout is None else layout.dtype)
    if plain.dtype.kind == "U":
        plain = plain.astype(np.dtypes.StringDType())
    return NullableValues.of(plain, depth)


def _is_na(value: Any) -> bool:
    return value is None or value is NULL or value is np.ma.masked or repr(value) == "<NA>"


def _shape_of(data: Any) -> tuple[int, ...]:
    if isinstance(data, list | tuple):
        return (len(data), *(_shape_of(data[0]) if data else ()))
    return ()


def _leaves(data: Any, shape: tuple[int, ...]) -> Iterator[Any]:
    if not shape:
        yield data
        return
    if not isinstance(data, list | tuple) or len(data) != shape[0]:
        raise DataTypeError("the lists are ragged: every row of an array has the same length")
    for part in data:
        yield from _leaves(part, shape[1:])


def _objects(data: Any) -> np.ndarray[Any, Any]:
    """Nested lists as an object array; NumPy would look into our scalars and at their missing numbers."""
    shape = _shape_of(data)
    leaves = list(_leaves(data, shape))
    out = np.empty(len(leaves), dtype=object)
    for i, leaf in enumerate(leaves):
        out[i] = leaf
    return out.reshape(shape)


def _of_objects(objects: np.ndarray[Any, Any], layout: Layout | None, depth: int) -> NullableValues:
    flat = objects.reshape(-1)
    missing = np.zeros(flat.size, dtype=np.uint8)
    if isinstance(flat, np.ma.MaskedArray):
        missing[np.ma.getmaskarray(flat)] = depth
        flat = flat.data
    present: list[Any] = []
    for i, element in enumerate(flat):
        if missing[i]:
            continue
        value, level = unwrap(NULL if _is_na(element) else element, depth)
        missing[i] = level
        if level == 0:
            present.append(value)
    converted = _converted(present, None if layout is None else layout.dtype)
    values: np.ndarray[Any, Any] = np.empty(flat.size, dtype=converted.dtype)
    values[...] = beneath(values.dtype)
    values[missing == 0] = converted
    return NullableValues(values.reshape(objects.shape), missing.reshape(objects.shape), depth)


def _converted(present: list[Any], dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Python objects as an array of `dtype`, or of what they have in common."""
    kinds = sorted({type(value).__name__ for value in present})
    if (dtype is not None and dtype.kind == "O") or (dtype is None and kinds == ["bytes"]):
        if any(kind != "bytes" for kind in kinds):
            raise DataTypeError(f"elements of type {', '.join(kinds)} are not bytes")
        converted = np.empty(len(present), dtype=object)
        converted[:] = present
        return converted
    try:
        converted = np.array(present, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataTypeError(f"elements of type {', '.join(kinds)} do not become {dtype}: {error}") from error
    text = any(isinstance(value, str | bytes) for value in present)
    if converted.ndim != 1 or converted.dtype == object or text != (converted.dtype.kind in "STUMm" and text):
        raise DataTypeError(f"elements of type {', '.join(kinds)} do not become {dtype or 'one data type'}")
    if text and not all(isinstance(value, str | bytes) for value in present):
        raise DataTypeError(f"elements of type {', '.join(kinds)} have no common data type")
    if is_string(converted.dtype) and not text and present:
        raise DataTypeError(f"elements of type {', '.join(kinds)} are not strings")
    return (
        converted.astype(np.dtypes.StringDType())
        if converted.dtype.kind == "U" and dtype is None
        else converted
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
