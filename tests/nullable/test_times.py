"""Units of time, and NaT beside null."""

import numpy as np
import pytest

from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NullableValues
from intarsia.nullable.times import in_common_unit, without_nat


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "10s", "25us"])
def test_dates_keep_their_meaning(unit):
    values = np.array([3, "NaT", -5], dtype=f"M8[{unit}]")
    converted = in_common_unit(values)
    assert np.datetime_data(converted.dtype)[0] in ("s", "ms", "us", "ns")
    assert np.datetime_data(converted.dtype)[1] == 1
    assert np.isnat(converted).tolist() == [False, True, False]
    assert (converted[[0, 2]] == values[[0, 2]]).all()


@pytest.mark.parametrize("dtype", ["m8[Y]", "m8[M]", "m8[ps]", "M8[fs]"])
def test_units_without_an_equal_are_refused(dtype):
    with pytest.raises(DataTypeError, match="has no equal"):
        in_common_unit(np.zeros(2, dtype=dtype))


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[h]", "m8[10s]"])
def test_what_is_out_of_range_is_refused(dtype):
    with pytest.raises((DataTypeError, OverflowError)):
        in_common_unit(np.array([2**61], dtype="i8").view(dtype))


def test_nat():
    data = NullableValues(np.array(["NaT", "NaT", 1], dtype="M8[s]"), np.array([False, True, False]))
    with pytest.raises(NullsPresentError, match="1 of 3 elements are NaT"):
        without_nat(data, nat_as_null=False, where="Arrow")
    assert without_nat(data, nat_as_null=True, where="Arrow").is_null().tolist() == [True, True, False]
    floats = NullableValues(np.array([np.nan]))
    assert without_nat(floats, nat_as_null=False, where="Arrow") is floats
