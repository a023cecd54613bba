"""Lists become arrays with every value as it was, or are refused; pyarrow is the referee."""

import datetime
import decimal
import fractions
from collections import deque

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import DataTypeError
from intarsia.nullable import NULL, Some, as_nullable

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
