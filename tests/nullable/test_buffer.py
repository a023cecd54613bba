"""The memory that zarr gets for nullable arrays, and that plain arrays do not notice."""

import numpy as np
import pytest
import zarr
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import ShardingCodec

from intarsia import nullable
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NULL, NullableValues, Some
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, to_nullable
from intarsia.nullable.elements import tag_dtype

FLOATS = tag_dtype(np.dtype("f8"), 1)


def chunk():
    """A chunk just decoded."""
    missing = np.array([[False, True], [False, False]])
    return OptionalNDBuffer(NullableValues(np.array([[1.0, np.nan], [2.0, 3.0]]), missing))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("fill", "expected"), [(NULL, None), (None, None), (Some(3.0), 3), (3.0, 3)])
def test_memory_is_allocated_by_the_dtype(fill, expected, order):
    buffer = NullableNDBuffer.create(shape=(2, 2), dtype=FLOATS, order=order, fill_value=fill)
    assert buffer.as_ndarray_like().tolist() == [[expected] * 2] * 2
    assert buffer.nullable.values.flags.f_contiguous == (order == "F")
    assert NullableNDBuffer.empty((3,), FLOATS, order).shape == (3,)
    assert buffer.dtype == np.dtype("f8")


def test_a_chunk_is_copied_into_its_place():
    out = NullableNDBuffer.create(shape=(4, 4), dtype=FLOATS, fill_value=Some(0.0))
    out[1:3, 1:3] = chunk()
    assert out.as_ndarray_like().tolist() == [[0, 0, 0, 0], [0, 1, None, 0], [0, 2, 3, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("key", [(slice(0, 1), slice(0, 2)), (0,), (slice(None, None, -1),), ([1, 0],)])
def test_parts_of_a_chunk(key):
    whole = chunk().nullable
    assert chunk()[key].nullable.equals(whole[key])


def test_other_buffers_find_the_nulls():
    plain = NDBuffer(np.zeros((2, 2)))
    with pytest.raises(NullsPresentError):
        plain[...] = chunk()
    with pytest.raises(NullsPresentError):
        chunk().as_numpy_array()


def test_work_on_a_chunk():
    decoded = chunk()
    assert decoded.shape == (2, 2)
    assert decoded.transpose((1, 0)).nullable.tolist() == [[1, 2], [None, 3]]
    assert decoded.reshape(-1).nullable.tolist() == [1, None, 2, 3]
    assert decoded[0:1].squeeze((0,)).nullable.tolist() == [1, None]
    assert decoded.astype(tag_dtype(np.dtype("f4"), 1)).nullable.values.dtype == np.dtype("f4")
    with pytest.raises(DataTypeError, match="float64, and int16"):
        decoded.astype(tag_dtype(np.dtype("i2"), 1))
    assert len(decoded) == 2
    copied = decoded.copy()
    copied.fill(NULL)
    assert decoded.nullable.null_count == 1
    assert copied[(0, 0)].as_scalar() is NULL
    assert decoded[(0, 0)].as_scalar() == 1
    assert "NullableValues" in repr(decoded)


@pytest.mark.parametrize(
    ("data", "scalar", "equal"),
    [
        (np.ma.masked_all(3), NULL, True),
        (np.ma.masked_equal([1.0, 2.0], 1.0), NULL, False),
        (np.zeros(3), NULL, False),
        (np.zeros(3), Some(0.0), True),
        (np.zeros(3), Some(-0.0), False),
        (np.full(3, np.nan), Some(np.nan), True),
        (np.zeros(3), Some(Some(0.0)), True),
        (np.zeros(3), Some(NULL), False),
        (np.ma.masked_all(3), Some(NULL), False),
        (np.ma.masked_equal([1.0, 2.0], 1.0), Some(2.0), False),
        (NullableValues(np.zeros(2), np.array([1, 1], dtype="u1"), 2), Some(NULL), True),
        (NullableValues(np.zeros(2), np.array([1, 1], dtype="u1"), 2), NULL, False),
        (NullableValues(np.zeros(2), np.array([2, 2], dtype="u1"), 2), NULL, True),
        (NullableValues(np.zeros(2), np.array([2, 1], dtype="u1"), 2), NULL, False),
        (NullableValues(np.array(["NaT"], dtype="M8[s]")), Some(np.datetime64("NaT", "s")), True),
        (np.empty(0), NULL, True),
    ],
)
def test_which_chunks_equal_the_fill_value(data, scalar, equal):
    assert NullableNDBuffer.from_ndarray_like(data).all_equal(scalar) is equal


def test_buffers_of_any_kind_hold_nullable_data():
    assert to_nullable(NullableNDBuffer(np.ma.masked_equal([1, 2], 1)), 1).tolist() == [None, 2]
    assert to_nullable(NDBuffer(np.arange(2)), 3).depth == 3
    assert to_nullable(chunk(), 1).null_count == 1


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
def test_plain_arrays_behave_as_with_the_class_of_zarr():
    rng = np.random.default_rng(0)
    for dtype in ("f8", "i2", "bool", "M8[ns]", ">u4", "c16", "U3"):
        data = (rng.random((7, 5)) * 100).astype("i8").astype(dtype)
        results = {}
        for path in ("zarr.buffer.cpu.NDBuffer", "intarsia.nullable.buffer.NullableNDBuffer"):
            with zarr.config.set({"ndbuffer": path}):
                z = _plain(data, dtype)
                read = z[...], z.oindex[[0, 2], 1:], z.vindex[[0, 1], [2, 3]], z[3, 2]
                stored = {k: v.to_bytes() for k, v in z.store_path.store._store_dict.items() if k[0] == "c"}
                results[path] = read, stored
                assert type(z[...]) is np.ndarray
        (ours, our_bytes), (theirs, their_bytes) = results.values()
        assert our_bytes == their_bytes
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)
            assert type(mine) is type(other)
            assert mine.dtype == other.dtype


def _plain(data, dtype):
    z = zarr.create_array({}, shape=data.shape, dtype=np.dtype(dtype), chunks=(3, 2))
    z[...] = data
    z[1:4, ::2] = data[0:3, ::2]
    z.append(data)
    return z


def test_parts_of_shards_within_shards_of_plain_arrays_are_read():
    inner = ShardingCodec(chunk_shape=(2, 2))
    with zarr.config.set({"ndbuffer": "intarsia.nullable.buffer.NullableNDBuffer"}):
        z = zarr.create_array(
            {}, shape=(8, 8), chunks=(8, 8), dtype="i4", filters=None, compressors=None,
            serializer=ShardingCodec(chunk_shape=(4, 4), codecs=[inner]),
        )  # fmt: skip
        z[...] = np.arange(64).reshape(8, 8)
        assert z[3:5, 2].tolist() == [26, 34]


@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_a_masked_array_in_a_plain_array_is_treated_as_zarr_does(dtype):
    data = np.ma.masked_equal(np.array([1, 2, 3], dtype=dtype), 2)
    outcomes = []
    for path in ("zarr.buffer.cpu.NDBuffer", "intarsia.nullable.buffer.NullableNDBuffer"):
        with zarr.config.set({"ndbuffer": path}):
            z = zarr.create_array({}, shape=3, dtype=dtype)
            try:
                z[:] = data
                outcomes.append(z[:].tolist())
            except Exception as error:
                outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]


def test_with_another_class_nulls_are_refused_and_never_read_as_numbers():
    z = nullable.create_array({}, data=[1.0, None]).zarr_array
    with zarr.config.set({"ndbuffer": "zarr.buffer.cpu.NDBuffer"}), pytest.raises(NullsPresentError):
        z[:]


def test_plain_buffers_are_of_the_class_of_zarr():
    made = NullableNDBuffer.create(shape=(2,), dtype="f4", fill_value=1)
    assert isinstance(made, NDBuffer)
    assert not isinstance(made, OptionalNDBuffer)
    assert type(made.as_ndarray_like()) is np.ndarray
