"""Polars: round trips that keep null apart from NaN."""

import numpy as np
import polars as pl
import pytest
from tests.nullable.test_arrow import MASK, SAMPLES

from intarsia.errors import DataTypeError
from intarsia.nullable import NullableValues, create_array, from_polars, to_polars


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
