"""What messages about nulls suggest, in their own words, is done and helps."""

import numpy as np
import pytest
import zarr
from tests.suggestions import follow

import intarsia
from intarsia.errors import IntarsiaError
from intarsia.nullable import NullableValues, without_nulls

DATA = NullableValues(np.array([1, 2]), np.array([False, True]))


def test_nulls_in_a_plain_array():
    with pytest.raises(IntarsiaError) as error:
        np.asarray(DATA)
    assert ".masked()" in str(error.value)
    assert ".filled(value)" in str(error.value)
    assert DATA.masked().tolist() == [1, None]
    assert DATA.filled(7).tolist() == [1, 7]


def test_levels_that_are_not_known():
    with pytest.raises(
        IntarsiaError, match=r"Give NullableValues\(values, missing, depth\).*collapse\(\) first"
    ):
        DATA.at_depth(2)
    two = NullableValues(DATA.values, np.array([0, 2], "u1"), 2)
    assert two.at_depth(2).collapse().masked().tolist() == [1, None]


def test_the_dtype_of_a_nullable_array():
    group = zarr.open_group({})
    array = intarsia.nullable.create_array(group, "a", data=DATA)
    with pytest.raises(IntarsiaError) as error:
        group.create_array("b", shape=(2,), dtype=array.zarr_array.dtype)
    names = {"array": array.zarr_array, "group": group, "np": np, "name": "c", "data": DATA}
    options = {
        "dtype": follow(error, "array.metadata.data_type", **names),
        "serializer": follow(error, "intarsia.nullable.NullableCodec()"),
    }
    assert group.create_array("b", shape=(2,), **options).metadata.data_type == options["dtype"]
    plain = follow(error, "np.dtype('int64')", **names)
    assert group.create_array("p", shape=(2,), dtype=plain).dtype == "int64"
    found = follow(error, "intarsia.nullable.create_array(group, name, data=…)", **names)
    assert found[...].tolist() == [1, None]


def test_the_codec_of_nulls():
    dtype = intarsia.nullable.optional_dtype("int64")
    with pytest.raises((IntarsiaError, ValueError, TypeError)) as error:
        zarr.create_array({}, shape=(2,), dtype=dtype, serializer=zarr.codecs.BytesCodec())
    serializer = follow(error, "intarsia.nullable.NullableCodec()")
    assert zarr.create_array({}, shape=(2,), dtype=dtype, serializer=serializer).shape == (2,)
    with pytest.raises((IntarsiaError, ValueError, TypeError)) as error:
        zarr.create_array({}, shape=(2,), dtype="int64", serializer=serializer)
    kind = follow(error, "intarsia.nullable.optional_dtype")("int64")
    assert zarr.create_array({}, shape=(2,), dtype=kind, serializer=serializer).shape == (2,)


@pytest.mark.parametrize("nulls", ["nan", "masked"])
def test_what_nulls_become(nulls):
    with pytest.raises(IntarsiaError, match='Choose what they become: nulls="nan" or nulls="masked"'):
        without_nulls(DATA)
    assert np.ma.masked_invalid(without_nulls(DATA, nulls=nulls)).tolist() == [1, None]
