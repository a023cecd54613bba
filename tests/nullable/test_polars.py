"""Polars: round trips that keep null apart from NaN."""

import numpy as np
import polars as pl
import pytest
from tests.nullable.test_arrow import MASK, SAMPLES

from intarsia.errors import DataTypeError
from intarsia.nullable import NullableValues, as_nullable, create_array, from_polars, to_polars


@pytest.mark.parametrize("kind", SAMPLES)
def test_round_trips(kind):
    data = NullableValues(SAMPLES[kind], MASK)
    series = to_polars(data, name="n")
    assert series.name == "n"
    assert series.null_count() == 1
    back = from_polars(series)
    assert np.array_equal(back.missing, data.missing)
    if kind == "datetime64[s]":  # Polars counts in milliseconds and finer
        back = back.astype("M8[s]")
    assert back.equals(data.astype(data.values.dtype.newbyteorder("=")) if kind == "big endian" else data)


def test_null_is_not_nan():
    array = create_array({}, data=np.ma.MaskedArray([np.nan, 1.0, 2.0], mask=MASK))
    series = array.to_polars()
    assert series.is_nan().to_list() == [True, False, None]
    array[:] = series
    assert array.read_nullable().equals(NullableValues(np.array([np.nan, 1.0, 2.0]), MASK))


def test_data_frames_and_more_dimensions():
    data = NullableValues(np.arange(6).reshape(2, 3), np.eye(2, 3, dtype=bool))
    series = to_polars(data)
    assert series.dtype == pl.Array(pl.Int64, 3)
    assert from_polars(series).equals(data)
    frame = pl.DataFrame({"a": [1, None], "b": [None, 4]})
    assert from_polars(frame).tolist() == [[1, None], [None, 4]]
    with pytest.raises(DataTypeError, match="different types"):
        from_polars(frame.with_columns(pl.col("a").cast(pl.Int8)))
    with pytest.raises(DataTypeError, match="takes a series"):
        from_polars([1])


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pl.Series([object(), None], dtype=pl.Object), "series of Object"),
        (pl.LazyFrame({"a": [1, None]}), "collect"),
        (pl.col("a"), "not Expr"),
        (pl.Series([1, None], dtype=pl.Decimal(10, 2)), "decimal"),
        (pl.Series([[1], None]), "list"),
        (pl.Series([2**100, None], dtype=pl.Int128), "Int128"),
    ],
)
def test_what_has_no_values_for_an_array_is_refused(data, match):
    with pytest.raises(DataTypeError, match=match):
        as_nullable(data)


def test_categories_and_dates():
    assert as_nullable(pl.Series(["a", None, "a"], dtype=pl.Categorical)).tolist() == ["a", None, "a"]
    assert as_nullable(pl.Series(["a", None], dtype=pl.Enum(["b", "a"]))).tolist() == ["a", None]
    dates = as_nullable(pl.Series([1, None]).cast(pl.Date))
    assert (dates.values[0], dates.null_count) == (np.datetime64(1, "D"), 1)
