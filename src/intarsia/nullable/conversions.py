"""Converting data with nulls to `NullableValues`: exactly, or with an error.

How a list of Python objects is converted depends on the set of its element types. That set is quick to find,
so a long list of numbers goes to NumPy as a whole.
"""

import array
import datetime
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from intarsia.casting import Casting, cast
from intarsia.errors import DataTypeError
from intarsia.nullable.elements import NULL, Null, Some, scatter, tag_dtype, unwrap
from intarsia.nullable.nullable_values import NullableValues

type _Array = np.ndarray[Any, Any]

_FAMILIES: dict[str, tuple[type, ...]] = {  # to Python a timedelta64 is an integer, hence the order
    "text": (str,),
    "bytes": (bytes,),
    "time": (datetime.date, np.datetime64),
    "span": (datetime.timedelta, np.timedelta64),
    "number": (bool, int, float, complex, np.bool_, np.number),
    "record": (tuple, np.void),
}
"""Element types that can go together in one array."""

_INTEGERS = (int, np.integer)
_BUFFERS = (bytearray, memoryview, array.array)


def as_nullable(
    data: Any, dtype: Any = None, depth: int = 1, *, casting: Casting = "same_kind"
) -> NullableValues:
    """Convert data with nulls from NumPy, pandas, Arrow, Polars, or lists with None to `NullableValues`.

    Masked arrays, and most data of pandas and Arrow, are not copied. With a `dtype`, the present values are
    converted to it; values that would change are refused, unless `casting="unsafe"`.

    Args:
        data: The data with nulls, see above.
        depth: The number of levels of null: 1, unless data types are nested.

    >>> as_nullable([1, None, 3], "int16")
    NullableValues([1, NULL, 3], dtype=int16)
    >>> as_nullable(np.array([1.5, np.nan]), "int16")
    Traceback (most recent call last):
    ...
    intarsia.errors.DataTypeError: the values are float64, and int16 cannot hold them all...
    """
    if dtype is None:
        return _convert(data, None, depth, casting)
    dtype = np.dtype(dtype)
    return _convert(data, dtype, depth, casting).astype(tag_dtype(dtype, depth), copy=False, casting=casting)


def _convert(data: Any, dtype: np.dtype[Any] | None, depth: int, casting: Casting) -> NullableValues:
    if isinstance(data, NullableValues | np.ndarray) and data is not np.ma.masked:
        if isinstance(data, np.ndarray) and data.dtype == object:
            return from_objects(data, dtype, depth, casting=casting)
        return NullableValues.of(data, depth)
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and (hasattr(data, "dtype") or hasattr(data, "iloc")):
        from intarsia.nullable.dataframes import from_pandas

        return from_pandas(data).at_depth(depth)
    if library == "polars":  # also what from_polars refuses, which NumPy would take for one object
        from intarsia.nullable.dataframes import from_polars

        return from_polars(data).at_depth(depth)
    read = getattr(data, "read_nullable", None)
    if read is not None:
        return NullableValues.of(read(), depth)
    if _is_element(type(data)):
        return from_objects(data, dtype, depth, casting=casting)
    if isinstance(data, Sequence) and not isinstance(data, _BUFFERS):
        return _convert_sequence(
            data if isinstance(data, list | tuple) else list(data), dtype, depth, casting
        )
    if all(hasattr(data, name) for name in ("shape", "dtype", "ndim")):
        # An array that is stored or computed elsewhere; NumPy's conversion would drop its mask.
        array = data.compute() if hasattr(data, "compute") else data[...]
        if type(array) is not type(data):
            return _convert(array, dtype, depth, casting)
    elif library == "pyarrow" or hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__"):
        # NumPy would turn Arrow's nulls into NaN. xarray's arrays are above: they are exported as tables.
        from intarsia.nullable.dataframes import from_arrow

        return from_arrow(data).at_depth(depth)
    plain = np.asarray(data)
    if plain.dtype == object and plain.ndim == 0:
        raise DataTypeError(
            f"an object of type {type(data).__name__} is neither an array nor an element of one: give a "
            "list, a masked array, or a table or series of pandas, Arrow or Polars"
        )
    return _convert(plain, dtype, depth, casting)


def _convert_sequence(
    data: list[Any] | tuple[Any, ...], dtype: np.dtype[Any] | None, depth: int, casting: Casting
) -> NullableValues:
    if not data or not all(isinstance(row, np.ndarray) and row.ndim for row in data):
        return from_objects(data, dtype, depth, casting=casting)
    # Rows that are arrays have their own masks.
    rows = [as_nullable(row, dtype, depth, casting=casting) for row in data]
    if len({(row.shape, str(row.values.dtype)) for row in rows}) > 1:
        raise DataTypeError("the rows differ in shape or data type, but in an array they must agree")
    return NullableValues(
        np.stack([row.values for row in rows]), np.stack([row.missing for row in rows]), depth
    )


def as_masked(data: Any, *, collapse: bool = False) -> np.ma.MaskedArray[Any, Any]:
    """Convert data with nulls to a NumPy masked array, without a copy where the source allows it.

    Takes what plain zarr reads from a nullable array, nullable arrays themselves, and everything that
    `as_nullable` takes. Nested levels of null become one only with `collapse`.

    Args:
        data: The data with nulls, see above.

    >>> import pandas as pd
    >>> print(as_masked(pd.Series([1, None], dtype="Int64")))
    [1 --]
    """
    nullable = data if isinstance(data, NullableValues) else as_nullable(data)
    return nullable.masked(collapse=collapse)


def _is_element(kind: type) -> bool:
    """Whether an object of this type is an element of an array, or a null."""
    return is_null_type(kind) or kind is Some or (not issubclass(kind, tuple) and _family(kind) is not None)


def from_objects(
    data: Any, dtype: np.dtype[Any] | None = None, depth: int = 1, *, casting: Casting = "same_kind"
) -> NullableValues:
    """Nested lists, an array of objects, or one object; None and pandas' equivalents are null."""
    if isinstance(data, np.ndarray) and data is not np.ma.masked:
        objects: _Array = np.array(data, dtype=object)
        objects[np.ma.getmaskarray(data)] = None
        flat, shape = list(objects.reshape(-1)), data.shape
    else:
        flat, shape = _flatten(data, records=dtype is not None and dtype.names is not None)
    kinds = set(map(type, flat))
    missing, present = _split(flat, kinds, depth)
    converted = _to_array(present, dtype, casting)
    if missing is None:
        return NullableValues(converted.reshape(shape), None, depth)
    values = scatter(converted, missing == 0).reshape(shape)
    return NullableValues(values, missing.reshape(shape), depth)


def _flatten(data: Any, *, records: bool) -> tuple[list[Any], tuple[int, ...]]:
    """All elements of nested lists in a row, and the shape. With `records`, tuples are elements."""
    lists: Any = list if records else (list, tuple)
    if not isinstance(data, lists):
        return [data], ()
    flat: list[Any] = list(data)
    shape: tuple[int, ...] = (len(flat),)
    while any(nested := [issubclass(kind, lists) for kind in set(map(type, flat))]):
        lengths = set(map(len, flat)) if all(nested) else set()
        if len(lengths) != 1:
            raise DataTypeError("the lists are ragged: every row of an array has the same length")
        shape = (*shape, *lengths)
        flat = list(chain.from_iterable(flat))
    return flat, shape


def _split(
    flat: list[Any], kinds: set[type], depth: int
) -> tuple[np.ndarray[Any, np.dtype[np.uint8]] | None, list[Any]]:
    """`missing`, or None if nothing is missing, and the present elements."""
    nulls = {kind for kind in kinds if is_null_type(kind)}
    if Some in kinds or any(issubclass(kind, np.ndarray) for kind in kinds - nulls):
        pairs = [unwrap(_unwrap_0d(value), depth) for value in flat]
        missing = np.array([level for _, level in pairs], dtype=np.uint8)
        return missing, [value for value, level in pairs if level == 0]
    if not nulls:
        return None, flat
    null = bytes([type(value) in nulls for value in flat])
    present = [value for value in flat if type(value) not in nulls]
    return np.frombuffer(null, dtype=np.uint8) * np.uint8(depth), present


def is_null_type(kind: type) -> bool:
    """Whether objects of this type are null: None, `NULL`, `np.ma.masked`, and pandas' NA and NaT."""
    if kind is type(None) or kind is Null or kind is type(np.ma.masked):
        return True
    return kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas.")


def _unwrap_0d(value: Any) -> Any:
    """The element of an array without dimensions, which may be masked."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    return NULL if is_null_type(type(value)) else value


def _family(kind: type) -> str | None:
    return next((name for name, kinds in _FAMILIES.items() if issubclass(kind, kinds)), None)


def _to_array(present: list[Any], dtype: np.dtype[Any] | None, casting: Casting) -> _Array:
    """The objects as an array of `dtype`, or of the dtype that they have in common."""
    if not present:
        return np.empty(0, dtype=dtype)
    kinds = set(map(type, present))
    family, *others = {_family(kind) for kind in kinds}
    what = f"the elements ({', '.join(sorted({kind.__name__ for kind in kinds}))})"
    if others or family is None:
        raise DataTypeError(f"{what} cannot become {dtype or 'one data type'}")
    if family == "text" and dtype is not None and dtype.kind == "M":
        family = "time"
    try:
        if family == "record" and dtype is not None and dtype.names is not None:
            return _records(present, dtype, casting)
        array = _CONSTRUCTORS[family](present, kinds)
    except DataTypeError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise DataTypeError(f"{what} cannot become {dtype or 'one data type'}: {error}") from error
    return array if dtype is None else cast(array, dtype, casting=casting, what=what)


def _numbers(present: list[Any], kinds: set[type]) -> _Array:
    numbers = np.array(present)
    if numbers.dtype == object:
        raise OverflowError("an integer has more than 64 bits")
    integers = {kind for kind in kinds if issubclass(kind, _INTEGERS)}
    if numbers.dtype.kind not in "fc" or not integers:
        return numbers
    if all(issubclass(kind, (*_INTEGERS, np.bool_)) for kind in kinds):
        # NumPy turns integers that only int64 and uint64 together could hold into floats, and also some
        # that only uint64 holds.
        return np.array([int(value) for value in present], dtype=np.uint64)
    exact = _numbers([value for value in present if isinstance(value, _INTEGERS)], integers)
    cast(exact, numbers.dtype, what="the integers among the elements")
    return numbers


def _bytes(present: list[Any], kinds: set[type]) -> _Array:
    objects = np.empty(len(present), dtype=object)
    objects[:] = present if kinds == {bytes} else [bytes(value) for value in present]
    return objects


def _times(present: list[Any], kinds: set[type]) -> _Array:
    """Times with a zone become UTC, and do not mix with those that have none."""
    has_zone = {getattr(value, "tzinfo", None) is not None for value in present}
    if len(has_zone) > 1:
        raise ValueError("some have a time zone, others have none")
    if True in has_zone:
        present = [value.astimezone(datetime.UTC).replace(tzinfo=None) for value in present]
    # NumPy would drop the nanoseconds of pandas' times.
    times = (value.to_datetime64() if hasattr(value, "to_datetime64") else value for value in present)
    return _to_finest_unit(map(np.datetime64, times))


def _spans(present: list[Any], kinds: set[type]) -> _Array:
    spans = (value.to_timedelta64() if hasattr(value, "to_timedelta64") else value for value in present)
    return _to_finest_unit(map(np.timedelta64, spans))


def _to_finest_unit(scalars: Iterable[Any]) -> _Array:
    """NumPy times in the finest of their units. NumPy itself does not notice values out of its range."""
    times = list(scalars)
    units = {time.dtype for time in times}
    array: _Array = np.empty(len(times), dtype=np.result_type(*units))
    for unit in units:
        places = [i for i, time in enumerate(times) if time.dtype == unit]
        array[places] = cast(np.array([times[i] for i in places], dtype=unit), array.dtype)
    return array


def _records(present: list[Any], dtype: np.dtype[Any], casting: Casting) -> _Array:
    names = dtype.names or ()
    if any(len(record) != len(names) for record in present):
        raise ValueError(f"a record needs the fields {', '.join(names)}")
    records = np.empty(len(present), dtype=dtype)
    for i, name in enumerate(names):
        records[name] = _to_array([record[i] for record in present], dtype[name], casting)
    return records


_CONSTRUCTORS: dict[str, Callable[[list[Any], set[type]], _Array]] = {
    # A fixed width would give each text the room of the longest. NumPy before 2.5 cuts NULs off np.str_.
    "text": lambda present, _: np.array(list(map(str.__str__, present)), dtype=np.dtypes.StringDType()),
    "bytes": _bytes,
    "time": _times,
    "span": _spans,
    "number": _numbers,
    "record": lambda present, _: np.array(present),
}
