"""pandas: round trips through its nullable types, and what is copied."""

import sys

import numpy as np
import pandas as pd
import pytest
from tests.nullable.test_arrow import MASK, SAMPLES

from intarsia.errors import DataTypeError, MissingExtraError, NullsPresentError
from intarsia.nullable import NullableValues, create_array, from_pandas, to_pandas

EXPECTED = {
    "bool": "boolean", "int8": "Int8", "uint64": "UInt64", "float32": "Float32", "float64": "Float64",
    "string": "string", "datetime64[s]": "datetime64[s]", "datetime64[ns]": "datetime64[ns]",
    "timedelta64[us]": "timedelta64[us]", "float16": "halffloat[pyarrow]", "bytes": "large_binary[pyarrow]",
}  # fmt: skip


@pytest.mark.parametrize("kind", SAMPLES)
def test_round_trips(kind):
    data = NullableValues(SAMPLES[kind], MASK)
    series = to_pandas(data, name="n")
    assert series.name == "n"
    assert series.isna().tolist() == MASK.tolist()
    if kind in EXPECTED:
        assert str(series.dtype) == EXPECTED[kind]
    back = from_pandas(series)
    assert back.equals(data.astype(data.values.dtype.newbyteorder("=")) if kind == "big endian" else data)


def test_null_is_not_nan():
    array = create_array({}, data=np.ma.MaskedArray([np.nan, 1.0, 2.0], mask=MASK))
    series = array.to_pandas()
    assert series.isna().tolist() == [False, False, True]
    assert np.isnan(series[0])
    array[:] = series
    assert array.read_nullable().equals(NullableValues(np.array([np.nan, 1.0, 2.0]), MASK))


@pytest.mark.parametrize("kind", ["bool", "int8", "int64", "float64"])
def test_numbers_are_shared_both_ways(kind):
    values, mask = SAMPLES[kind].copy(), MASK.copy()
    series = to_pandas(NullableValues(values, mask))
    assert np.shares_memory(series.array._data, values)
    assert np.shares_memory(series.array._mask, mask)
    back = from_pandas(series)
    assert np.shares_memory(back.values, values)
    assert np.shares_memory(back.missing, mask)


def test_plain_columns_keep_their_nan_unless_asked():
    series = pd.Series([1.0, np.nan])
    assert from_pandas(series).isnull().tolist() == [False, False]
    assert from_pandas(series, nan_as_null=True).isnull().tolist() == [False, True]
    dates = pd.Series(pd.to_datetime(["2020-01-01", None]))
    assert from_pandas(dates).isnull().tolist() == [False, True]
    zoned = dates.dt.tz_localize("Europe/Berlin")
    assert from_pandas(zoned).values[0] == np.datetime64("2019-12-31T23:00")


@pytest.mark.parametrize("na_value", [pd.NA, np.nan])
@pytest.mark.parametrize("storage", ["pyarrow", "python"])
def test_strings_of_every_kind(storage, na_value):
    series = pd.Series(["a", None, ""], dtype=pd.StringDtype(storage, na_value=na_value))
    assert from_pandas(series).tolist() == ["a", None, ""]
    assert from_pandas(series.astype("large_string[pyarrow]")).tolist() == ["a", None, ""]


def test_two_dimensions_are_a_data_frame():
    data = NullableValues(np.arange(6).reshape(2, 3), np.eye(2, 3, dtype=bool))
    frame = to_pandas(data)
    assert frame.shape == (2, 3)
    assert [str(d) for d in frame.dtypes] == ["Int64"] * 3
    assert from_pandas(frame).equals(data)
    assert create_array({}, data=frame)[...].tolist() == data.tolist()
    with pytest.raises(DataTypeError, match="different types"):
        from_pandas(frame.astype({0: "Int8"}))


def test_dates_beneath_nulls_never_show():
    data = NullableValues(np.array([5, 6, 7], dtype="M8[s]"), MASK)
    assert to_pandas(data).isna().tolist() == [False, False, True]
    assert data.values[2] == np.datetime64(7, "s")


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (NullableValues(np.zeros(2, dtype="c8")), DataTypeError, "no nullable type for complex64"),
        (NullableValues(np.zeros((1, 1, 1))), DataTypeError, "one or two dimensions"),
        (NullableValues(np.zeros(2), np.zeros(2, dtype="u1"), 2), DataTypeError, "one kind of null"),
        (NullableValues(np.array(["NaT"], dtype="M8[s]")), NullsPresentError, "nat_as_null"),
    ],
)
def test_what_pandas_cannot_hold_is_refused(data, error, match):
    with pytest.raises(error, match=match):
        to_pandas(data)


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_a_library_that_is_missing_names_the_pip_command(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    array = create_array({}, data=[1, None])
    with pytest.raises(MissingExtraError, match=rf"{library} is not installed: pip install '\S+\[nullable"):
        getattr(array, "to_arrow" if library == "pyarrow" else f"to_{library}")()


@pytest.mark.parametrize("categories", [[10, 20], [1.5, 2.5], ["a", "b"]])
def test_categories_keep_their_type_and_their_nulls(categories):
    column = pd.Series(pd.Categorical.from_codes([0, -1, 1], categories=categories))
    found = from_pandas(column)
    assert found.tolist() == [categories[0], None, categories[1]]
    assert found.values.dtype == from_pandas(pd.Series(categories)).values.dtype
    nothing = from_pandas(pd.Categorical([None, None], categories=pd.Index([], dtype="int16")))
    assert nothing.values.dtype == np.int16
    assert nothing.null_count == 2


def test_missing_integers_that_pandas_made_nan_of_are_refused():
    array = create_array({}, data=[7, 7, 7], dtype="int32")
    with pytest.raises(DataTypeError, match="float64, and int32"):
        array[:] = pd.Series([1, None, 3])
    assert array[:].tolist() == [7, 7, 7]
    array[:] = pd.Series([1, None, 3]).convert_dtypes()
    assert array[:].tolist() == [1, None, 3]
