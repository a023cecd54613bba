"""Whatever people keep missing values in becomes nullable data, or says why not."""

import datetime

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

import intarsia
from intarsia import as_masked, nullable
from intarsia.errors import DataTypeError
from intarsia.nullable import NULL, NullableValues, Some, as_nullable


@pytest.mark.parametrize(
    ("data", "values", "missing"),
    [
        ([1, None, 3], [1, 0, 3], [0, 1, 0]),
        ((1.5, np.ma.masked), [1.5, np.nan], [0, 1]),
        ([[1, NULL], [Some(3), pd.NA]], [[1, 0], [3, 0]], [[0, 1], [0, 1]]),
        (None, [], 1),
        (7, 7, 0),
        (Some(7), 7, 0),
        (np.float32(2), 2, 0),
        (np.array([1, 2]), [1, 2], [0, 0]),
        (np.ma.masked_equal([1, 2], 2), [1, 2], [0, 1]),
        (np.ma.MaskedArray([1, 2]), [1, 2], [0, 0]),
        (np.array([1, None, pd.NA], dtype=object), [1, 0, 0], [0, 1, 1]),
        (np.ma.MaskedArray(np.array([1, 5], dtype=object), mask=[0, 1]), [1, 0], [0, 1]),
        (pd.Series([1, None], dtype="Int16"), [1, 0], [0, 1]),
        (pd.array([True, None], dtype="boolean"), [True, False], [0, 1]),
        (pl.Series([1, None]), [1, 0], [0, 1]),
        (pa.array([1, None]), [1, 0], [0, 1]),
        (pa.chunked_array([[1], [None]]), [1, 0], [0, 1]),
        (pa.table({"a": [1, None], "b": [3, 4]}), [[1, 3], [0, 4]], [[0, 0], [1, 0]]),
        (range(3), [0, 1, 2], [0, 0, 0]),
        ([], [], []),
    ],
)
def test_nulls_of_every_kind_are_found(data, values, missing):
    found = as_nullable(data)
    assert found.missing.tolist() == missing
    present = found.missing == 0
    np.testing.assert_array_equal(found.values[present], np.asarray(values)[present] if values != [] else [])


@pytest.mark.parametrize(
    ("data", "dtype", "kind"),
    [
        (["x", None], None, np.dtypes.StringDType()),
        ([None, None], "int8", np.dtype("int8")),
        ([1, None], "float32", np.dtype("float32")),
        ([b"x", None], None, np.dtype(object)),
        ([1, 2.5], None, np.dtype("float64")),
        ([datetime.datetime(2020, 1, 1), None], "M8[us]", np.dtype("M8[us]")),
        (["2020-01-01", None], "M8[D]", np.dtype("M8[D]")),
        (np.array(["a"]), np.dtypes.StringDType(), np.dtypes.StringDType()),
        (np.ma.masked_equal([1, 300], 300), "int8", np.dtype("int8")),
        (pd.Series([1, None], dtype="Int64"), "float16", np.dtype("float16")),
    ],
)
def test_the_data_type_is_found_or_obeyed(data, dtype, kind):
    assert as_nullable(data, dtype).values.dtype == kind


def test_what_lies_beneath_a_null_is_never_converted():
    with np.errstate(all="raise"):
        made = as_nullable(np.ma.MaskedArray([1.0, np.nan, 1e300], mask=[0, 1, 1]), "float32")
        assert made.tolist() == [1, None, None]
        made = as_nullable(np.ma.MaskedArray([1.0, np.nan, 1e300], mask=[0, 1, 1]), "int8", casting="unsafe")
        assert made.tolist() == [1, None, None]


@pytest.mark.parametrize(
    ("data", "dtype", "match"),
    [
        ([1, "x"], None, "int, str"),
        (["x"], "int8", r"\(str\) are StringDType\(\), and int8"),
        ([300], "int8", r"\(int\) are int64, and int8 cannot hold them all: 300 would become 44"),
        ([1, None], np.dtypes.StringDType(), r"\(int\) are int64, and StringDType"),
        ([[1], [2, 3]], None, "ragged"),
        ([[1], 2], None, "ragged"),
        ([1, {}], None, "dict, int"),
        ([b"x", 3], None, "bytes, int"),
        (np.array(["x"]), "int8", "the values are <U1, and int8"),
        (pd.Series(["a", 1], dtype=object), None, "convert_dtypes"),
        (pa.table({"a": [1], "b": ["x"]}), None, "different types"),
        (pa.scalar(None, pa.int8()), None, "array or table"),
    ],
)
def test_what_cannot_be_one_type_is_refused(data, dtype, match):
    with pytest.raises(DataTypeError, match=match):
        as_nullable(data, dtype)


def test_masked_arrays_share_their_memory_both_ways():
    values, mask = np.arange(4.0), np.array([True, False, False, True])
    found = as_nullable(np.ma.MaskedArray(values, mask=mask))
    assert np.shares_memory(found.values, values)
    assert np.shares_memory(found.missing, mask)
    back = found.masked()
    assert np.shares_memory(back.data, values)
    assert np.shares_memory(back.mask, mask)


def test_as_masked_takes_arrays_of_all_kinds():
    array = nullable.create_array({}, data=[1, None, 3])
    for source in (array, array.zarr_array, array.zarr_array[:], array.to_arrow(), [1, None, 3]):
        assert as_masked(source).tolist() == [1, None, 3]
    assert as_masked(zarr.array(np.arange(2))).tolist() == [0, 1]
    nested = NullableValues(np.arange(3), np.array([0, 1, 2], dtype="u1"), 2)
    assert as_masked(nested, collapse=True).tolist() == [0, None, None]
    with pytest.raises(DataTypeError, match="one kind of null"):
        as_masked(nested)


def test_arrays_that_are_computed_or_stored_keep_their_masks():
    masked = np.ma.masked_equal(np.arange(6.0).reshape(2, 3), 4)
    lazy = da.from_array(masked, chunks=(1, 3))
    logical = intarsia.create({}, "a", shape=(2, 3), chunks=(2, 3), dtype="optional[float64]")
    logical.add_region([(0, 2), (0, 3)], codecs=["gzip"], data=lazy)
    for source in (lazy, logical, nullable.create_array({}, data=lazy)):
        assert as_nullable(source).equals(NullableValues.of(masked))
    # xarray itself makes NaN of masks
    assert as_nullable(xr.DataArray(lazy)).null_count == 0


def test_levels_in_lists():
    found = as_nullable([1, NULL, Some(NULL), Some(Some(4)), None], depth=2)
    assert found.missing.tolist() == [0, 2, 1, 0, 2]
    assert found.values[[0, 3]].tolist() == [1, 4]


@pytest.mark.parametrize("na_object", [None, np.nan, pd.NA])
def test_string_arrays_with_an_na_object(na_object):
    text = np.array(["a", na_object, "c"], dtype=np.dtypes.StringDType(na_object=na_object))
    found = as_nullable(text)
    assert found.tolist() == ["a", None, "c"]
    assert not hasattr(found.values.dtype, "na_object")


NUMBERS = st.sampled_from(["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64"])


@given(data=st.data(), source=NUMBERS, target=NUMBERS)
def test_masked_arrays_keep_every_value_where_arrow_would(data, source, target):
    values = data.draw(stn.arrays(source, st.integers(0, 6)))
    mask = data.draw(stn.arrays(bool, values.shape))
    try:
        found = as_nullable(np.ma.MaskedArray(values, mask=mask), target)
    except DataTypeError:
        if np.dtype(source).kind in "iu" and np.dtype(target).kind in "iuf":  # others are another kind
            with pytest.raises(pa.ArrowInvalid):
                pa.array(values, mask=mask).cast(pa.from_numpy_dtype(np.dtype(target)))
        return
    assert found.missing.astype(bool).tolist() == mask.tolist()
    before, after = values[~mask].tolist(), found.values[~mask].tolist()
    if (source, target) == ("float64", "float32"):
        before = np.array(before, dtype=target).tolist()
    assert all(x == y or (x != x and y != y) for x, y in zip(before, after, strict=True))
