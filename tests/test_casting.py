"""The one rule for values of another data type."""

import numpy as np
import pytest

from intarsia.casting import cast
from intarsia.errors import DataTypeError, IntarsiaError

STRING = np.dtypes.StringDType()
RECORD = np.dtype([("lat", "f4"), ("lon", "f4")])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([0.1, np.nan, np.inf, 1e-300]), "f4"),
        (np.array([2.5], "f8"), "c8"),
        (np.array([True]), "f4"),
        (np.array([True]), "u1"),
        (np.array([255, 0]), "u1"),
        (np.array([2**24, -(2**24), 2**40]), "f4"),
        (np.array([2**53, 2**60]), "f8"),
        (np.array([2**63], "u8"), "f8"),
        (np.array([2**62], "u8"), "i8"),
        (np.array([2**31 - 1], "i4"), "f8"),
        (np.array([-(2**63)]), "f4"),
        (np.array(["Bonn"]), "U9"),
        (np.array(["Bonn", "Ulm"], "U9"), "U4"),
        (np.array(["Bonn"]), STRING),
        (np.array(["Bonn"], STRING), "U4"),
        (np.array([b"ab"]), "U2"),
        (np.array(["2024-01-01", "NaT"], "M8[D]"), "M8[ns]"),
        (np.array(["2024-01-01T00:00:05.000", "NaT"], "M8[ms]"), "M8[s]"),
        (np.array([(1.5, 2.5)], [("lat", "f8"), ("lon", "f4")]), RECORD),
        (np.array([], "i8"), "i2"),
    ],
)
def test_what_keeps_its_value_is_taken(values, dtype):
    result = cast(values, np.dtype(dtype))
    assert result.dtype == dtype
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, values.astype(dtype))


@pytest.mark.parametrize(
    ("values", "dtype", "example"),
    [
        (np.array([1.0]), "i4", "float64, and int32"),
        (np.array([1.0, 1e300]), "f4", "1e\\+300 would become inf"),
        (np.array([1e300]), "c8", "would become"),
        (np.array([100_000]), "f2", "100000 would become inf"),
        (np.array([2**24 + 1]), "f4", "16777217 would become"),
        (np.array([2**53 + 1]), "f8", "9007199254740993"),
        (np.array([2**63 - 1]), "f8", "9223372036854775807"),
        (np.array([2**64 - 1], "u8"), "f8", "18446744073709551615"),
        (np.array([2**31 - 1], "i4"), "f4", "2147483647"),
        (np.array([0, 256]), "u1", "256 would become 0"),
        (np.array([-1]), "u8", "-1 would become"),
        (np.array([2**63], "u8"), "i8", "9223372036854775808"),
        (np.array(["Ulm", "Zürich"]), "U3", "Zürich would become Zür"),
        (np.array(["Zürich"], STRING), "U3", "would become Zür"),
        (np.array(["Zürich"], STRING), "S9", "ordinal not in range"),
        (np.array([b"abcd"]), "S2", "would become"),
        (np.array([12345]), "U9", "int64, and <U9"),
        (np.array([1.5]), STRING, "float64"),
        (np.array([5]), "m8[s]", "int64"),
        (np.array(["2024-01-01T00:00:00.999"], "M8[ms]"), "M8[s]", "00.999 would become"),
        (np.array(["9999-01-01"], "M8[s]"), "M8[ns]", "Overflow|would become"),
        (np.array([(9.5, 52.1)], [("lon", "f4"), ("lat", "f4")]), RECORD, "cannot hold"),
        (np.array([(1e300, 1)], [("lat", "f8"), ("lon", "f4")]), RECORD, "field 'lat' of the values"),
        (np.zeros(1, "V4"), "V2", "cannot hold"),
        (np.array([1 + 0j]), "f8", "cannot hold"),
    ],
)
def test_what_would_change_is_refused_and_shown(values, dtype, example):
    with pytest.raises(DataTypeError, match=example) as refused:
        cast(values, np.dtype(dtype))
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, IntarsiaError)


def test_unsafe_takes_what_numpy_makes_of_it():
    assert cast(np.array([1e300, 2.5]), np.dtype("f4"), casting="unsafe").tolist() == [np.inf, 2.5]
    assert cast(np.array([2.7]), np.dtype("i4"), casting="unsafe").tolist() == [2]


def test_values_of_the_same_type_are_not_copied():
    values = np.zeros(4)
    assert cast(values, np.dtype("f8")) is values


def test_a_rule_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="'same_kind' or 'unsafe'"):
        cast(np.zeros(1), np.dtype("f4"), casting="safe")
