"""The memory that zarr gets for nullable arrays."""

import numpy as np
import pytest
from zarr.buffer.cpu import NDBuffer

from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NULL, NullableValues, Some
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, nullable_of
from intarsia.nullable.compact import Compact
from intarsia.nullable.layout import Layout, tagged

FLOATS = tagged(np.dtype("f8"), 1)


def chunk():
    """A chunk just decoded."""
    present = np.array([[True, False], [True, True]])
    return OptionalNDBuffer.from_compact(
        Compact(present, np.array([1.0, 2.0, 3.0]), Layout(np.dtype("f8"), 1), 3)
    )


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("fill", "expected"), [(NULL, None), (None, None), (Some(3.0), 3), (3.0, 3)])
def test_memory_is_allocated_by_the_dtype(fill, expected, order):
    buffer = NullableNDBuffer.create(shape=(2, 2), dtype=FLOATS, order=order, fill_value=fill)
    assert buffer.as_ndarray_like().tolist() == [[expected] * 2] * 2
    assert buffer.nullable.values.flags.f_contiguous == (order == "F")
    assert NullableNDBuffer.empty((3,), FLOATS, order).shape == (3,)
    assert buffer.dtype == np.dtype("f8")


def test_a_chunk_is_expanded_into_its_place():
    out = NullableNDBuffer.create(shape=(4, 4), dtype=FLOATS, fill_value=Some(0.0))
    decoded = chunk()
    assert decoded[(slice(0, 2, 1), slice(0, 2, 1))] is decoded
    out[1:3, 1:3] = decoded
    assert decoded._nullable is None  # it never lay in memory of its own
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
    assert decoded.layout == Layout(np.dtype("f8"), 1)
    assert decoded.transpose((1, 0)).nullable.tolist() == [[1, 2], [None, 3]]
    assert decoded.reshape(-1).nullable.tolist() == [1, None, 2, 3]
    assert decoded[0:1].squeeze((0,)).nullable.tolist() == [1, None]
    assert decoded.astype(tagged(np.dtype("f4"), 1)).nullable.values.dtype == np.dtype("f4")
    with pytest.raises(DataTypeError, match="float64, and int16"):
        decoded.astype(tagged(np.dtype("i2"), 1))
    assert len(decoded) == 2
    copied = decoded.copy()
    copied.fill(NULL)
    assert decoded.nullable.null_count == 1
    assert copied[(0, 0)].as_scalar() is NULL
    assert decoded[(0, 0)].as_scalar() == 1
    assert "OptionalNDBuffer" in repr(decoded)


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
    assert nullable_of(NullableNDBuffer(np.ma.masked_equal([1, 2], 1)), 1).tolist() == [None, 2]
    assert nullable_of(NDBuffer(np.arange(2)), 3).depth == 3
    assert nullable_of(chunk(), 1).null_count == 1
