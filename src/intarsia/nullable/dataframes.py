"""Nullable data from and to Arrow, Polars and pandas.

Numbers are not copied. Nulls are a validity bitmap in Arrow and a mask in pandas' nullable types; null and
NaN are as distinct there as here.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia._compat import pandas_memory
from intarsia.casting import cast
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.extras import import_extra
from intarsia.nullable.nullable_values import NullableValues, check_one_level

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

UNITS = ("s", "ms", "us", "ns")
"""The time units of pandas and Arrow."""


def to_arrow(data: NullableValues, *, nat_as_null: bool = False) -> pyarrow.Array[Any]:
    """Convert to an Arrow array. Further dimensions become lists of fixed size, with the nulls innermost.

    Args:
        data: The nullable data.
        nat_as_null: Whether NaT becomes null too. Otherwise data with NaT is refused.

    >>> to_arrow(NullableValues(np.array([1.5, np.nan, 2.5]), np.array([False, False, True]))).to_pylist()
    [1.5, nan, None]
    """
    pa = import_extra("pyarrow", "nullable")
    data = require_one_null(data, nat_as_null=nat_as_null, where="Arrow")
    if data.ndim == 0:
        raise DataTypeError("a single element is not an Arrow array: use .item()")
    flat = _flat_to_arrow(pa, data.reshape(-1))
    for size in reversed(data.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _flat_to_arrow(pa: ModuleType, data: NullableValues) -> Any:
    values, missing = data.values, data.isnull()
    kind = values.dtype.kind
    if kind in "USOT":
        arrow_type = pa.large_binary() if kind in "SO" else pa.large_string()
        return pa.array(values.astype(object), type=arrow_type, mask=missing)
    if kind in "mM":
        values = _times(values, missing)
    elif kind not in "biuf":
        raise DataTypeError(f"{values.dtype} has no equivalent in Arrow: use masked arrays, or one field")
    values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    return pa.array(values, mask=missing if missing.any() else None, from_pandas=False)


def _times(values: np.ndarray[Any, Any], missing: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Dates or durations in a unit of Arrow and pandas, with NaT beneath nulls."""
    return to_common_unit(np.where(missing, np.array("NaT", values.dtype), values))


def from_arrow(array: Any) -> NullableValues:
    """Convert an Arrow array, chunked array or table; lists of fixed size become dimensions.

    Takes data of pyarrow, and of every library with the Arrow PyCapsule interface.

    Args:
        array: The array, chunked array or table.

    >>> import pyarrow as pa
    >>> from_arrow(pa.array([1, None, 3]))
    NullableValues([1, NULL, 3], dtype=int64)
    """
    pa = import_extra("pyarrow", "nullable")
    if not isinstance(array, pa.Table | pa.RecordBatch | pa.ChunkedArray | pa.Array):
        array = _import_arrow(pa, array)
    if isinstance(array, pa.Table | pa.RecordBatch):
        return stack_columns([from_arrow(column) for column in array.columns], array.column_names)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    shape = [len(array)]
    while pa.types.is_fixed_size_list(array.type):
        if array.null_count:
            raise DataTypeError("a null in place of a whole list has no equivalent in an n-dimensional array")
        shape.append(array.type.list_size)
        array = array.flatten()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return _flat_from_arrow(pa, array).reshape(tuple(shape))


def _import_arrow(pa: ModuleType, data: Any) -> Any:
    """Another library's data as pyarrow's own; tables are exported as arrays of structs."""
    if hasattr(data, "__arrow_c_array__"):
        array, table = pa.array(data), pa.RecordBatch
    elif hasattr(data, "__arrow_c_stream__"):
        array, table = pa.chunked_array(data), pa.Table
    else:
        raise DataTypeError(f"from_arrow takes an Arrow array or table, not {type(data).__name__}")
    if not pa.types.is_struct(array.type):
        return array
    if array.null_count:
        raise DataTypeError("a null in place of a whole row has no equivalent in a two-dimensional array")
    return table.from_struct_array(array)


def _flat_from_arrow(pa: ModuleType, array: Any) -> NullableValues:
    types, kind, size = pa.types, array.type, len(array)
    missing = np.array(array.is_null(), dtype=np.bool_)
    if types.is_null(kind):
        return NullableValues(np.zeros(size, dtype=np.bool_), missing)
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    binary = types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary
    if is_text or any(is_binary(kind) for is_binary in binary):
        empty = "" if is_text else b""
        objects = np.empty(size, dtype=object)
        objects[:] = [empty if element is None else element for element in array.to_pylist()]
        return NullableValues(objects.astype(np.dtypes.StringDType()) if is_text else objects, missing)
    if types.is_date(kind):
        array = array.cast(pa.timestamp("s" if types.is_date32(kind) else "ms"))
        kind = array.type
    numbers = types.is_boolean, types.is_integer, types.is_floating, types.is_timestamp, types.is_duration
    if not any(is_number(kind) for is_number in numbers):
        raise DataTypeError(f"the Arrow type {kind} has no equivalent in NumPy: cast it first")
    if getattr(kind, "tz", None) not in (None, "UTC"):
        raise DataTypeError(f"{kind}: NumPy's dates have no time zone; convert to UTC first")
    if size:  # without the bitmap, integers with nulls do not become floats
        array = pa.Array.from_buffers(kind, size, [None, array.buffers()[1]], offset=array.offset)
    return NullableValues(array.to_numpy(zero_copy_only=False), missing)


def stack_columns(columns: list[NullableValues], names: list[Any]) -> NullableValues:
    """The columns of a data frame as one two-dimensional array; they must have one type."""
    types = {str(column.values.dtype) for column in columns}
    if len(types) != 1:
        text = ", ".join(f"{n}: {c.values.dtype}" for n, c in zip(names, columns, strict=True))
        raise DataTypeError(f"the columns have different types ({text}), but an array has one")
    values = np.stack([column.values for column in columns], axis=1)
    return NullableValues(values, np.stack([column.missing for column in columns], axis=1))


def to_polars(data: NullableValues, *, name: str = "", nat_as_null: bool = False) -> polars.Series:
    """Convert to a Polars series, of arrays if there is more than one dimension. Values are not copied.

    Args:
        data: The nullable data.
        name: The name of the series.
        nat_as_null: Whether NaT becomes null too. Otherwise data with NaT is refused.

    >>> to_polars(NullableValues(np.array([1.5, np.nan, 2.5]), np.array([False, False, True]))).to_list()
    [1.5, nan, None]
    """
    arrow = to_arrow(data, nat_as_null=nat_as_null)
    series: polars.Series = import_extra("polars", "nullable").Series(name, arrow)
    return series


def from_polars(series: Any) -> NullableValues:
    """Convert a Polars series to nullable data.

    Args:
        series: The series.

    >>> import polars as pl
    >>> from_polars(pl.Series([1.5, None]))
    NullableValues([1.5, NULL], dtype=float64)
    """
    pl = import_extra("polars", "nullable")
    if not isinstance(series, pl.Series | pl.DataFrame):
        kind = type(series).__name__
        raise DataTypeError(f"from_polars takes a series, or a data frame after its collect(), not {kind}")
    dtypes = series.dtypes if isinstance(series, pl.DataFrame) else [series.dtype]
    for dtype in dtypes:
        if dtype == pl.Object or (dtype.is_nested() and "Object" in str(dtype)):
            # Polars exports the addresses of the objects.
            raise DataTypeError(f"a series of {dtype} has no equivalent in an array: cast it first")
    try:
        exported = series.to_arrow()
    except ValueError as error:
        names = ", ".join(map(str, dtypes))
        raise DataTypeError(f"data of {names} does not exist in Arrow: cast it first") from error
    return from_arrow(exported)


def to_common_unit(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`values` in one of `UNITS`, with the same meaning; those that none of them can express are refused."""
    unit, kind = np.datetime_data(values.dtype)[0], values.dtype.kind
    if unit == "generic":
        raise DataTypeError(f"{values.dtype} says no unit of time: convert it with astype first")
    return cast(values, np.dtype(f"{kind}8[{unit if unit in UNITS else 's'}]"))


def require_one_null(nullable: NullableValues, *, nat_as_null: bool, where: str) -> NullableValues:
    """`nullable` for libraries with one kind of null: refuses levels, and NaT unless it becomes null."""
    check_one_level(nullable.depth, where)
    if nullable.values.dtype.kind not in "mM":
        return nullable
    nat = np.isnat(nullable.values) & ~nullable.isnull()
    count = int(np.count_nonzero(nat))
    if not count:
        return nullable
    if not nat_as_null:
        raise NullsPresentError(
            f"{count} of {nullable.size} elements are NaT and not null, but {where} cannot tell the two "
            "apart: pass nat_as_null=True to make them null"
        )
    return NullableValues(nullable.values, nullable.isnull() | nat)


def to_pandas(
    data: NullableValues, *, name: Any = None, nat_as_null: bool = False
) -> pandas.Series | pandas.DataFrame:
    """Convert to a Series of a nullable type, or to a DataFrame if there are two dimensions.

    Numbers and bools are not copied. Dates and durations become pandas' own, with NaT as the missing value.

    Args:
        data: The nullable data.
        name: The name of the Series.
        nat_as_null: Whether NaT becomes null too. Otherwise data with NaT is refused.

    >>> to_pandas(NullableValues(np.array([1.5, np.nan, 2.5]), np.array([False, False, True])))
    0     1.5
    1     NaN
    2    <NA>
    dtype: Float64
    """
    pd = import_extra("pandas", "nullable")
    data = require_one_null(data, nat_as_null=nat_as_null, where="pandas")
    if data.ndim == 1:
        return pd.Series(_column(pd, data), name=name, copy=False)
    if data.ndim == 2:
        columns = {j: _column(pd, data[:, j]) for j in range(data.shape[1])}
        return pd.DataFrame(columns, index=range(data.shape[0]), copy=False)
    raise DataTypeError(
        f"pandas has one or two dimensions, but this data has {data.ndim}: select or reshape first"
    )


def _column(pd: ModuleType, data: NullableValues) -> Any:
    values, missing = data.values, data.isnull()
    kind, itemsize = values.dtype.kind, values.dtype.itemsize
    if kind in "TU":
        return pd.StringDtype(na_value=pd.NA).__from_arrow__(to_arrow(data))
    if kind in "OS" or (kind, itemsize) == ("f", 2):
        return pd.arrays.ArrowExtensionArray(to_arrow(data))
    if kind in "mM":
        return pd.Series(_times(values, missing), copy=False).array
    integers, arrays = pd.arrays.IntegerArray, pd.arrays
    kinds = {"b": arrays.BooleanArray, "i": integers, "u": integers, "f": arrays.FloatingArray}
    if kind not in kinds or itemsize > 8:
        raise DataTypeError(f"pandas has no nullable type for {values.dtype}: use masked arrays")
    return kinds[kind](values.astype(values.dtype.newbyteorder("="), copy=False), missing)


def from_pandas(data: Any, *, nan_as_null: bool = False) -> NullableValues:
    """Convert a Series, a DataFrame of one type, or one of pandas' arrays to nullable data.

    pandas' nullable types keep NaN apart from null, and so does this. In its plain float types, NaN may
    mean either: it stays NaN, or becomes null with `nan_as_null`. NaT is null.

    Args:
        data: The Series, DataFrame or array.
        nan_as_null: Whether NaN in plain float types becomes null.

    >>> import pandas as pd
    >>> from_pandas(pd.Series([1, None], dtype="Int64"))
    NullableValues([1, NULL], dtype=int64)
    """
    pd = import_extra("pandas", "nullable")
    if isinstance(data, pd.DataFrame):
        columns = [from_pandas(data.iloc[:, j], nan_as_null=nan_as_null) for j in range(data.shape[1])]
        return stack_columns(columns, list(data.columns))
    array = data.array if isinstance(data, pd.Series | pd.Index) else data
    if isinstance(array, pd.arrays.BooleanArray | pd.arrays.IntegerArray | pd.arrays.FloatingArray):
        return NullableValues(*pandas_memory(array))
    if isinstance(array.dtype, pd.ArrowDtype | pd.StringDtype | pd.CategoricalDtype):
        return from_arrow(import_extra("pyarrow", "nullable").array(array))
    if getattr(array.dtype, "tz", None) is not None:
        array = array.tz_convert("UTC").tz_localize(None)
    plain = array.to_numpy()
    if plain.dtype.kind in "mM":
        return NullableValues(plain, np.isnat(plain))
    if plain.dtype.kind in "biufc":
        nan_is_null = nan_as_null and plain.dtype.kind in "fc"
        return NullableValues(plain, np.isnan(plain) if nan_is_null else None)
    raise DataTypeError(
        f"a column of {array.dtype} has no equivalent in an array: give it a type with convert_dtypes()"
    )
