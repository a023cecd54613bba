"""Any Zarr array read by the engine equals what zarr-python reads."""

import warnings

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import VariableLengthBytes

import intarsia
from intarsia.errors import ReadError
from tests.grids import dear
from tests.logical import strategies as s
from tests.logical import zarr_arrays

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def same(got, expected, dtype):
    """Equal in values, shape and data type; zarr gives scalars where NumPy has no axes."""
    expected = np.asarray(expected, dtype=dtype)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


def whole(array):
    """All of it, as zarr reads it."""
    return np.asarray(array[...], dtype=array.dtype).reshape(array.shape)


@given(st.data())
def test_basic_selections_equal_zarr(data):
    array = data.draw(zarr_arrays.arrays())
    reader, model = intarsia.reader(array), whole(array)
    same(reader[...], model, array.dtype)
    selection = data.draw(s.basic(array.shape))
    same(reader[selection], model[selection], array.dtype)


@given(st.data())
def test_outer_selections_equal_zarr(data):
    array = data.draw(zarr_arrays.arrays())
    reader, model = intarsia.reader(array), whole(array)
    selection = data.draw(s.orthogonal(array.shape))
    same(reader.oindex[selection], s.by_numpy_orthogonal(model, selection), array.dtype)


@given(st.data())
def test_points_and_masks_equal_zarr(data):
    array = data.draw(zarr_arrays.arrays().filter(lambda z: z.ndim and z.size))
    reader, model = intarsia.reader(array), whole(array)
    points, mask = data.draw(s.points(array.shape)), data.draw(s.masks(array.shape))
    same(reader.vindex[points], model[points], array.dtype)
    same(reader[points], model[points], array.dtype)
    same(reader.vindex[mask], model[mask], array.dtype)
    if points[0].size:
        same(reader.vindex[points], array.vindex[points], array.dtype)


@given(st.data())
def test_blocks_equal_zarr(data):
    array = data.draw(zarr_arrays.arrays().filter(lambda z: z.ndim and z.size))
    reader = intarsia.reader(array)
    counts = [len(sizes) for sizes in array.write_chunk_sizes]
    assert reader.write_chunk_sizes == array.write_chunk_sizes
    place = tuple(data.draw(st.integers(-n, n - 1)) for n in counts)
    same(reader.blocks[place], array.blocks[place], array.dtype)
    start = data.draw(st.integers(0, counts[0] - 1))
    same(reader.blocks[start:], array.blocks[start:], array.dtype)
    same(reader.blocks[..., place[-1]], array.blocks[..., place[-1]], array.dtype)


@dear
@given(st.data())
def test_lazy_views_equal_zarr(data):
    array = data.draw(zarr_arrays.arrays().filter(lambda z: z.ndim and z.size and z.dtype.names is None))
    model = whole(array)
    selection = data.draw(s.basic(array.shape))
    same(intarsia.reader(array).lazy[selection].result(), model[selection], array.dtype)


@given(st.data())
def test_nullable_arrays_keep_their_nulls(data):
    array = data.draw(zarr_arrays.nullable())
    reader, model = intarsia.reader(array), array.read_nullable()
    assert reader.dtype == array.dtype
    selection = data.draw(s.basic(array.shape))
    got, expected = reader[selection], model[selection]
    assert got.tolist() == expected.masked().tolist()


@pytest.mark.parametrize("selection", [(), np.s_[1:], 2, ([0, 2],), np.s_[:, 1:]])
def test_fields_of_structured_arrays(selection):
    array = zarr.create_array({}, shape=(4, 3), chunks=(2, 2), dtype=zarr_arrays.STRUCTURED)
    made = np.zeros((4, 3), dtype=zarr_arrays.STRUCTURED)
    made["a"], made["b"] = np.arange(12).reshape(4, 3), 0.5
    array[...] = made
    reader, selection = intarsia.reader(array), selection if isinstance(selection, tuple) else (selection,)
    np.testing.assert_array_equal(reader["a", *selection], made["a"][selection])
    np.testing.assert_array_equal(reader["a", "b", *selection], made[["a", "b"]][selection])


@pytest.mark.parametrize("dtype", ["str", "bytes"])
@pytest.mark.parametrize("compressor", [None, numcodecs.Zstd(), numcodecs.Zlib()])
def test_elements_of_any_length_in_format_2_are_counted_before_there_is_room_for_them(dtype, compressor):
    store = zarr.storage.MemoryStore()
    kind = {"str": str, "bytes": VariableLengthBytes()}[dtype]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bytes that have no specification
        z = zarr.create_array(store, shape=4, chunks=2, dtype=kind, zarr_format=2, compressors=compressor)
        z[...] = np.array(
            [b"a", b"bc", b"", b"d"] if dtype == "bytes" else ["a", "bc", "", "d"], dtype=object
        )
        assert intarsia.reader(store)[...].tolist() == z[...].tolist()
        absurd = (2**32 - 1).to_bytes(4, "little") + bytes(60)  # 32 GB of pointers
        data = absurd if compressor is None else compressor.encode(absurd)
        store._store_dict["1"] = default_buffer_prototype().buffer.from_bytes(bytes(data))
        with pytest.raises(ReadError, match="it says it has 4294967295 elements, but 2 are expected"):
            intarsia.reader(store)[...]
