"""Nullable data from and to pandas' nullable types, which are values and a mask as well."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia._compat import pandas_memory
from intarsia.errors import DataTypeError
from intarsia.extras import extra
from intarsia.nullable.arrow import from_arrow, in_common_unit, stacked, to_arrow, with_one_null
from intarsia.nullable.elements import is_string
from intarsia.nullable.values import NullableValues

if TYPE_CHECKING:
    import pandas


def to_pandas(
    data: NullableValues, *, name: Any = None, nat_as_null: bool = False
) -> pandas.Series | pandas.DataFrame:
    """A Series of a nullable type, or of two dimensions a DataFrame. Numbers and bools are not copied.

    Dates and durations become pandas' own, where NaT is the missing value.

    >>> to_pandas(NullableValues(np.array([1.5, np.nan, 2.5]), np.array([False, False, True])))
    0     1.5
    1     NaN
    2    <NA>
    dtype: Float64
    """
    pd = extra("pandas", "nullable")
    data = with_one_null(data, nat_as_null=nat_as_null, where="pandas")
    if data.ndim == 1:
        return pd.Series(_column(pd, data), name=name, copy=False)
    if data.ndim == 2:
        columns = {j: _column(pd, data[:, j]) for j in range(data.shape[1])}
        return pd.DataFrame(columns, index=range(data.shape[0]), copy=False)
    raise DataTypeError(
        f"pandas has one or two dimensions, and this data has {data.ndim}: select or reshape first"
    )


def _column(pd: ModuleType, data: NullableValues) -> Any:
    values, missing = data.values, data.is_null()
    dtype = values.dtype if is_string(values.dtype) else values.dtype.newbyteorder("=")
    kind = dtype.kind
    if is_string(dtype) or kind == "U":
        objects = values.astype(object)
        objects[missing] = pd.NA
        return pd.array(objects, dtype=pd.StringDtype(na_value=pd.NA))
    if kind in "OS" or dtype == np.float16:
        return pd.arrays.ArrowExtensionArray(to_arrow(data))
    if kind in "mM":
        values = in_common_unit(values)
        beneath = values[missing]
        if not np.isnat(beneath).all():
            values = values.copy()
            values[missing] = np.array("NaT", dtype=values.dtype)
        return pd.Series(values, copy=False).array
    native = values.astype(dtype, copy=False)
    if kind == "b":
        return pd.arrays.BooleanArray(native, missing)
    if kind in "iu":
        return pd.arrays.IntegerArray(native, missing)
    if kind == "f" and dtype.itemsize in (4, 8):
        return pd.arrays.FloatingArray(native, missing)
    raise DataTypeError(f"pandas has no nullable type for {dtype}: use masked arrays")


def from_pandas(data: Any, *, nan_as_null: bool = False) -> NullableValues:
    """A Series, a DataFrame of one type, or one of pandas' arrays, as nullable data.

    pandas' nullable types keep NaN apart from null, and so does this. In its plain float types NaN may
    mean either: it stays a NaN unless `nan_as_null`. NaT is null.

    >>> import pandas as pd
    >>> from_pandas(pd.Series([1, None], dtype="Int64"))
    NullableValues([1, NULL], dtype=int64)
    """
    pd = extra("pandas", "nullable")
    if isinstance(data, pd.DataFrame):
        columns = [from_pandas(data.iloc[:, j], nan_as_null=nan_as_null) for j in range(data.shape[1])]
        return stacked(columns, list(data.columns))
    if isinstance(data, pd.MultiIndex):
        raise DataTypeError("an index of several levels has no equal in an array: give one level of it")
    array = data.array if isinstance(data, pd.Series | pd.Index) else data
    if isinstance(array, pd.arrays.BooleanArray | pd.arrays.IntegerArray | pd.arrays.FloatingArray):
        return NullableValues(*pandas_memory(array))
    if isinstance(array, pd.arrays.ArrowExtensionArray) and not isinstance(array.dtype, pd.StringDtype):
        return from_arrow(array.__arrow_array__())
    if isinstance(array.dtype, pd.StringDtype):
        missing = np.asarray(array.isna())
        text = array.to_numpy(dtype=object, na_value="").astype(np.dtypes.StringDType())
        return NullableValues(text, missing)
    if isinstance(array, pd.Categorical):  # which would give NaN for what is missing, and floats
        return _of_codes(from_pandas(array.categories), np.asarray(array.codes))
    if getattr(array.dtype, "tz", None) is not None:
        array = array.tz_convert("UTC").tz_localize(None)
    plain = array.to_numpy()
    if plain.dtype.kind in "mM":
        return NullableValues(plain, np.isnat(plain))
    if plain.dtype.kind in "biufc":
        nan_is_null = nan_as_null and plain.dtype.kind in "fc"
        return NullableValues(plain, np.isnan(plain) if nan_is_null else None)
    raise DataTypeError(
        f"a column of {array.dtype} has no equal in an array: give it a type with convert_dtypes() first"
    )


def _of_codes(categories: NullableValues, codes: np.ndarray[Any, Any]) -> NullableValues:
    """The category that each code stands for; -1 is null."""
    missing = codes < 0
    if not len(categories):
        return NullableValues(np.zeros(codes.shape, dtype=categories.values.dtype), missing)
    return NullableValues(categories.values[np.where(missing, 0, codes)], missing)
