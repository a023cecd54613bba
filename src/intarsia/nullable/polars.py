"""Nullable data from and to Polars, whose null and NaN are as different as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.errors import DataTypeError, MissingExtraError
from intarsia.nullable.arrow import from_arrow, stacked, to_arrow

if TYPE_CHECKING:
    from types import ModuleType

    import polars

    from intarsia.nullable.values import NullableValues

__all__ = ["from_polars", "to_polars"]


def _polars() -> ModuleType:
    try:
        import polars as pl
    except ImportError as error:
        raise MissingExtraError("polars", "nullable") from error
    return pl


def to_polars(data: NullableValues, *, name: str = "", nat_as_null: bool = False) -> polars.Series:
    """A Polars series, of arrays if there is more than one dimension. The values are not copied.

    >>> import numpy as np
    >>> from intarsia.nullable import NullableValues
    >>> to_polars(NullableValues(np.array([1.5, np.nan, 2.5]), np.array([False, False, True]))).to_list()
    [1.5, nan, None]
    """
    pl = _polars()
    return pl.Series(name, to_arrow(data, nat_as_null=nat_as_null))  # type: ignore[no-any-return]


def from_polars(series: Any) -> NullableValues:
    """A Polars series as nullable data.

    >>> import polars as pl
    >>> from_polars(pl.Series([1.5, None]))
    NullableValues([1.5, NULL], dtype=float64)
    """
    pl = _polars()
    if isinstance(series, pl.DataFrame):
        columns = [from_polars(series[name]) for name in series.columns]
        return stacked(columns, series.columns)
    if isinstance(series, pl.LazyFrame):
        raise DataTypeError("a LazyFrame has no values yet: call collect() first")
    if not isinstance(series, pl.Series):
        raise DataTypeError(f"from_polars takes a series or a data frame, not {type(series).__name__}")
    if series.dtype.base_type() is pl.Object or (series.dtype.is_nested() and "Object" in str(series.dtype)):
        # Polars exports the addresses of the objects.
        raise DataTypeError(f"a series of {series.dtype} has no equal in an array: cast it first")
    try:
        exported = series.to_arrow()
    except ValueError as error:
        raise DataTypeError(f"a series of {series.dtype} has no equal in Arrow: cast it first") from error
    return from_arrow(exported)
