"""Whatever people keep missing values in becomes nullable data, every value as it was, or says why not."""

import datetime
import decimal
import fractions
from collections import deque

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
from tests.grids import dear

import intarsia
from intarsia import nullable
from intarsia.errors import DataTypeError
from intarsia.nullable import NULL, NullableValues, Some, as_masked, as_nullable


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


STRING = np.dtypes.StringDType()
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2020, 1, 1, 12)


@pytest.mark.parametrize(
    ("data", "dtype", "values"),
    [
        (["a\0", None, "b"], STRING, ["a\0", None, "b"]),
        ([[]], "float64", [[]]),
        ([2**63, 1], "uint64", [2**63, 1]),
        ([np.uint64(2**63), 5, None], "uint64", [2**63, 5, None]),
        ([2**63 - 1, -(2**63)], "int64", [2**63 - 1, -(2**63)]),
        ([True, 2], "int64", [1, 2]),
        ([2**53, 0.5], "float64", [2**53, 0.5]),
        ([np.float32(0.5), None], "float32", [0.5, None]),
        ([np.array(5), np.ma.array(6, mask=True)], "int64", [5, None]),
        ([np.arange(2), np.ma.masked_equal([3, 4], 4)], "int64", [[0, 1], [3, None]]),
        (range(3), "int64", [0, 1, 2]),
        (deque(["x", None]), STRING, ["x", None]),
        (["a", pd.NA, np.str_("b\0")], STRING, ["a", None, "b\0"]),
        ([datetime.date(2020, 1, 1), None], "M8[D]", [datetime.date(2020, 1, 1), None]),
        ([NOON, datetime.date(2020, 1, 1)], "M8[us]", [NOON, datetime.datetime(2020, 1, 1)]),
        ([NOON.replace(tzinfo=BERLIN)], "M8[us]", [datetime.datetime(2020, 1, 1, 11)]),
        ([datetime.timedelta(hours=1), pd.NaT], "m8[us]", [datetime.timedelta(hours=1), None]),
        (b"x\0", object, b"x\0"),
        ("x\0", STRING, "x\0"),
        (np.timedelta64(5, "s"), "m8[s]", datetime.timedelta(seconds=5)),
    ],
)
def test_the_data_type_that_holds_them_all_is_found(data, dtype, values):
    found = as_nullable(data)
    assert found.values.dtype == dtype
    assert found.tolist() == values


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        ([pd.Timestamp("2020-01-01T00:00:00.123456789"), pd.NaT], "M8[ns]", 123456789),
        (["2020-01-01T00:00:00.5", None], "M8[ms]", 500),
        ([pd.Timedelta(7, "ns"), None], "m8[ns]", 7),
    ],
)
def test_times_keep_every_digit(data, dtype, expected):
    found = as_nullable(data, dtype)
    assert found.values.dtype == dtype
    assert int(found.values[0].astype(np.int64)) % 1000 == expected % 1000
    assert found.missing.tolist() == [0, 1]


RECORD = np.dtype([("n", "i2"), ("x", "f4")])


def test_records_are_tuples():
    found = as_nullable([(1, 2.5), None], RECORD)
    assert found.values[0].item() == (1, 2.5)
    assert found.missing.tolist() == [0, 1]
    assert as_nullable([np.array((1, 2.5), RECORD)[()], None], RECORD).equals(found)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1.5, None], "int32"),
        ([float("nan")], "int32"),
        (np.float64("nan"), "int32"),
        (np.datetime64("NaT", "s"), "int32"),
        (1e300, "float32"),
        ([2**24 + 1], "float32"),
        ([2**53 + 1, 0.5], None),
        ([2**53 + 1], "float64"),
        ([2**63, -1], None),
        ([np.uint64(2**63), np.int64(-1)], None),
        ([2**64], None),
        ([10**400], "float64"),
        ([2], "bool"),
        ([1 + 2j], "float64"),
        ([decimal.Decimal("1.5")], "float64"),
        ([fractions.Fraction(1, 2)], "float64"),
        ([b"x"], STRING),
        (["x"], object),
        (["Zürich"], "U3"),
        (["a\0"], "U3"),
        ([b"abcd"], "S3"),
        ([b"a\0"], "S3"),
        ([b"ab"], "V3"),
        (["\ud800"], None),
        ([NOON], "M8[D]"),
        (["2020-01-01T12"], "M8[D]"),
        ([pd.Timestamp(1)], "M8[us]"),
        ([np.datetime64("9999-01-01", "D"), np.datetime64(1, "ns")], None),
        ([datetime.date(9999, 1, 1)], "M8[ns]"),
        ([NOON, NOON.replace(tzinfo=BERLIN)], None),
        ([5], "M8[s]"),
        ([datetime.timedelta(microseconds=1)], "m8[s]"),
        ([(1.5, 2.5)], RECORD),
        ([(1,)], RECORD),
        ([np.arange(2), np.arange(2.0)], None),
        ([np.arange(2), None], None),
        ([pd.Interval(0, 1)], None),
        ({1, 2}, None),
        ((n for n in [1, 2]), None),
        ({"a": 1}, None),
        (object(), None),
        ([{1}], None),
    ],
)
def test_what_would_change_is_refused(data, dtype):
    with pytest.raises(DataTypeError):
        as_nullable(data, dtype)


def test_unsafe_takes_what_numpy_makes_of_it():
    assert as_nullable([1.5, None], "int32", casting="unsafe").tolist() == [1, None]
    assert as_nullable(np.array([2**40]), "int32", casting="unsafe").tolist() == [0]


def test_one_long_text_is_not_paid_for_by_all():
    texts = ["x" * 1_000_000, *["a"] * 50_000, None]  # 200 GB in NumPy's fixed width
    found = as_nullable(texts)
    assert found.values[1] == "a"
    assert found.missing[-1]


integers = (
    st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300) | st.sampled_from([2**53, 2**53 + 1, 2**24])
)
floats = st.floats() | st.floats(width=16) | st.sampled_from([1e300, 65520.0])
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64"]


@given(
    elements=st.one_of(
        st.lists(st.none() | st.booleans()),
        st.lists(st.none() | integers),
        st.lists(st.none() | floats),
        st.lists(st.none() | floats | integers),
    ),
    dtype=st.none() | st.sampled_from(DTYPES),
)
def test_numbers_are_what_pyarrow_makes_of_them(elements, dtype):
    try:
        expected = pa.array(elements, None if dtype is None else pa.from_numpy_dtype(np.dtype(dtype)))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        expected = None
    try:
        found = as_nullable(elements, dtype)
    except DataTypeError:
        found = None
    if found is None:
        return  # we also refuse what arrow truncates, or what becomes infinite
    if expected is None:  # arrow has no bools as numbers, and looks for no uint64 by itself
        found = found.tolist()
        assert [x is None for x in found] == [x is None for x in elements]
        assert all(x is None or x == y or (x != x and y != y) for x, y in zip(found, elements, strict=True))
        return
    assert found.missing.tolist() == [not valid for valid in expected.is_valid().to_pylist()]
    present = found.values[found.missing == 0]
    theirs = np.array(expected.drop_null().to_pylist(), dtype=present.dtype)
    np.testing.assert_array_equal(present, theirs)


@dear
@given(elements=st.lists(st.none() | st.text()), dtype=st.sampled_from([None, STRING, "U4"]))
def test_texts_come_back_or_are_refused(elements, dtype):
    try:
        found = as_nullable(elements, dtype)
    except DataTypeError:
        if dtype == "U4":
            assert any(text is not None and (len(text) > 4 or text.endswith("\0")) for text in elements)
        else:
            assert any("\ud800" <= c <= "\udfff" for text in elements for c in text or "")
        return
    assert found.tolist() == elements


def naive(earliest, latest):
    return st.datetimes(datetime.datetime(earliest, 1, 1), datetime.datetime(latest, 1, 1))


@given(
    elements=st.lists(st.none() | naive(1, 9999) | naive(1700, 2200).map(lambda t: t.replace(microsecond=0))),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_times_are_what_they_were_or_are_refused(elements, unit):
    try:
        found = as_nullable(elements, f"M8[{unit}]")
    except DataTypeError:
        with pytest.raises(pa.ArrowInvalid):
            pa.array(elements, pa.timestamp("us")).cast(pa.timestamp(unit))
        return
    assert [
        None if m else v.astype("M8[us]").item() for v, m in zip(found.values, found.missing, strict=True)
    ] == elements


@given(
    levels=st.recursive(st.none() | st.integers(-128, 127), lambda inner: inner.map(Some), max_leaves=3),
)
def test_levels_go_where_they_belong(levels):
    value, wraps = levels, 0
    while isinstance(value, Some):
        value, wraps = value.value, wraps + 1
    if wraps > 2 + (value is not None):
        return
    found = as_nullable([levels, 7], "int8", depth=3)
    assert found.missing.tolist() == [0 if value is not None else 3 - wraps, 0]
    assert as_nullable([NULL, 7], "int8", depth=3).missing.tolist() == [3, 0]
