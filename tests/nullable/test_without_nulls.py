"""Nullable data for libraries without null: NaN, masked arrays, or an error."""

import numpy as np
import pytest

from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NullableValues, as_nullable, dtype_without_nulls, without_nulls

MASK = np.array([False, True])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "M8[s]", "m8[ns]"])
@pytest.mark.parametrize("nulls", [None, "nan"])
def test_types_with_a_nan_keep_their_dtype(dtype, nulls):
    data = NullableValues(np.array([1, 2]).astype(dtype), MASK)
    got = without_nulls(data, nulls)
    assert got.dtype == np.dtype(dtype) == dtype_without_nulls(got.dtype, nulls)
    assert (np.isnat(got) if got.dtype.kind in "mM" else np.isnan(got)).tolist() == [False, True]
    assert data.values[1] == np.array([1, 2]).astype(dtype)[1]  # the data itself is untouched


@pytest.mark.parametrize("data", [[1, None], [True, None], ["a", None], [b"a", None]])
def test_other_types_are_refused_unless_chosen(data):
    with pytest.raises(NullsPresentError, match=r'1 of 2 elements of temp are null.*nulls="nan"'):
        without_nulls(as_nullable(data), what="temp")
    assert without_nulls(as_nullable(data), "masked").tolist() == data
    plain = without_nulls(as_nullable(data[:1]))
    assert plain.tolist() == data[:1]
    assert plain.dtype == dtype_without_nulls(as_nullable(data).values.dtype)


@pytest.mark.parametrize(
    ("data", "dtype", "becomes"),
    [
        ([1, None], "i1", "f4"),
        ([1, None], "u2", "f4"),
        ([1, None], "i4", "f8"),
        ([2**53, None], "i8", "f8"),
        ([True, None], "bool", "O"),
    ],
)
def test_nan_on_request_changes_the_dtype(data, dtype, becomes):
    got = without_nulls(as_nullable(data, dtype), "nan")
    assert got.dtype == np.dtype(becomes) == dtype_without_nulls(np.dtype(dtype), "nan")
    assert got[0] == data[0]
    assert np.isnan(got[1])
    assert without_nulls(as_nullable(data[:1], dtype), "nan").dtype == np.dtype(becomes)


def test_integers_that_floats_cannot_tell_apart_are_refused():
    with pytest.raises(DataTypeError, match="beyond 2"):
        without_nulls(as_nullable([2**53 + 1, None], "i8"), "nan")
    beneath = NullableValues(np.array([1, 2**60]), MASK)
    assert without_nulls(beneath, "nan")[0] == 1


def test_raise():
    with pytest.raises(NullsPresentError, match="1 of 2"):
        without_nulls(as_nullable([1.5, None]), "raise")
    assert without_nulls(as_nullable([1.5]), "raise").tolist() == [1.5]
    with pytest.raises(DataTypeError, match="choose one of"):
        without_nulls(as_nullable([1.5]), "zero")


def test_strings():
    got = without_nulls(as_nullable(["a", None]), "nan")
    assert got.dtype == object
    assert got[0] == "a"
    assert np.isnan(got[1])


def test_memory_that_cannot_be_written_is_given_as_it_is_if_nothing_is_null():
    values = np.array([1.0, np.nan])
    values.flags.writeable = False
    assert without_nulls(NullableValues(values)) is values
