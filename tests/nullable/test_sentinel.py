"""The codec for files that mark missing values by a special number."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec

from intarsia.errors import ChunkEncodeError, CodecConfigurationError
from intarsia.nullable import SentinelCodec, optional_dtype


def array(values, dtype, codecs=(), **options):
    return zarr.create_array(
        {},
        shape=(4,),
        chunks=(2,),
        dtype=optional_dtype(dtype),
        filters=SentinelCodec(values=values, codecs=codecs),
        serializer=BytesCodec(),
        compressors=None,
        **options,
    )


def stored(z, chunk, dtype):
    return np.frombuffer(z.store_path.store._store_dict[f"c/{chunk}"].to_bytes(), dtype).tolist()


def test_nulls_are_stored_as_the_first_value(pipeline):
    z = array([-9, -8], "int16")
    z[:] = np.ma.MaskedArray([1, 2, 3, 4], mask=[0, 1, 0, 0])
    assert stored(z, 0, "<i2") == [1, -9]
    assert z[:].tolist() == [1, None, 3, 4]


def test_every_one_of_the_values_is_null(pipeline):
    z = array([-9, -8], "int16")
    buffer = zarr.core.buffer.default_buffer_prototype().buffer
    chunks = ([1, -8], [-9, 4])
    for i, numbers in enumerate(chunks):
        z.store_path.store._store_dict[f"c/{i}"] = buffer.from_bytes(np.array(numbers, "<i2").tobytes())
    assert z[:].tolist() == [1, None, None, 4]


def test_values_are_encoded_further(pipeline):
    nested = [
        {"name": "scale_offset", "configuration": {"offset": 10.0, "scale": 2.0}},
        {
            "name": "cast_value",
            "configuration": {
                "data_type": "int16",
                "scalar_map": {"encode": [["NaN", -1]], "decode": [[-1, "NaN"]]},
            },
        },
    ]
    z = array(["NaN"], "float32", codecs=nested)
    z[:] = np.ma.MaskedArray([11, 0, 12.5, 10], mask=[0, 1, 0, 0])
    assert stored(z, 0, "<i2") == [2, -1]
    again = zarr.open_array(z.store_path.store, mode="r")
    assert again[:].tolist() == [11, None, 12.5, 10]


def test_nan_may_be_the_value(pipeline):
    z = array(["NaN"], "float32")
    z[:] = np.ma.MaskedArray([1, 2, 3, 4], mask=[1, 0, 0, 1])
    assert z[:].tolist() == [None, 2, 3, None]
    assert np.isnan(stored(z, 0, "<f4")[0])


def test_a_value_that_means_null_is_refused_and_nothing_written():
    z = array([-9], "int16")
    with pytest.raises(ChunkEncodeError, match=r"the value -9 at \(1,\)"):
        z[:2] = [5, -9]
    assert "c/0" not in z.store_path.store._store_dict


@given(st.lists(st.one_of(st.none(), st.integers(-8, 100)), min_size=4, max_size=4))
def test_round_trips(values):
    z = array([-9], "int16")
    z[:] = np.ma.MaskedArray([value or 0 for value in values], mask=[value is None for value in values])
    assert z[:].tolist() == values


@pytest.mark.parametrize("fill", [None, 5])
def test_chunks_that_are_not_there_read_as_the_fill_value(fill):
    z = array([-9], "int16", fill_value=None if fill is None else [fill])
    assert z[:].tolist() == [fill] * 4


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([], "int16"), ([1.5], "int16"), (["x"], "float32"), ([-1], "optional[optional[int16]]")],
)
def test_bad_configurations_are_refused(values, dtype):
    with pytest.raises((CodecConfigurationError, ValueError)):
        array(values, dtype)


def test_plain_data_types_are_refused():
    with pytest.raises(CodecConfigurationError, match="optional data of one level"):
        zarr.create_array({}, shape=4, dtype="int16", filters=SentinelCodec(values=[1]))


def test_only_array_codecs_can_be_nested():
    with pytest.raises(CodecConfigurationError, match="are no chain"):
        SentinelCodec(values=[1], codecs=["gzip"])
