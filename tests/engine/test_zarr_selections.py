"""The names of zarr's arrays for selections mean on ours what they mean there; zarr is the referee."""

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.errors import IntarsiaError, NullsPresentError, ReadOnlyError

VALUES = np.arange(7 * 5).reshape(7, 5)
MASK = VALUES % 3 == 0
CASES = {
    "get_basic_selection": [..., 2, (slice(1, 6, 2), 3), (-1, slice(None))],
    "get_orthogonal_selection": [([0, 6], [1, 4]), ([2, 3], slice(None)), (MASK[:, 0], 2)],
    "get_coordinate_selection": [([0, 6], [1, 4]), (np.array([[0, 1], [2, 3]]), np.array([[4, 3], [2, 1]]))],
    "get_mask_selection": [MASK],
    "get_block_selection": [0, (1, 2), (slice(1, None), 0), (..., -1), (slice(0, 2), slice(1, 3))],
}
ALL = [(name, selection) for name, selections in CASES.items() for selection in selections]


@pytest.fixture
def referee():
    array = zarr.create_array({}, shape=VALUES.shape, chunks=(3, 2), dtype="int64")
    array[...] = VALUES
    return array


@pytest.fixture
def logical():
    array = intarsia.create({}, "a", shape=(0, 5), chunks=(3, 2), dtype="int64")
    array.append(VALUES[:3], codecs=["zstd"])
    array.append(VALUES[3:], codecs=[])
    return array.with_config(cross_region_writes=True)


@pytest.mark.parametrize(("name", "selection"), ALL)
def test_logical_arrays_and_readers_read_what_zarr_reads(name, selection, referee, logical):
    expected = getattr(referee, name)(selection)
    for array in (logical, intarsia.reader(referee)):
        got = getattr(array, name)(selection)
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("name", "selection"), ALL)
def test_writes_go_where_zarrs_go(name, selection, referee, logical):
    method = name.replace("get", "set")
    getattr(referee, method)(selection, -1)
    getattr(logical, method)(selection, -1)
    np.testing.assert_array_equal(logical[...], referee[...])


REFUSED = {
    "get_basic_selection": [None, (None, 1), ([0, 1], 2), (MASK[:, 0],), (..., None)],
    "get_coordinate_selection": [
        ...,
        ([1], ...),
        [0, 1],
        MASK,
        (MASK[:, 0], 2),
        ([0.0], [1]),
        ((0, 1), (0, 1)),
        (),
    ],
    "get_mask_selection": [(MASK[:, 0], MASK[0]), ([0, 1], slice(None)), ...],
    "get_block_selection": [slice(5, 9), (0, slice(3, None)), slice(-4, None), True, (0, None)],
    "__getitem__": [None, (None, 1), (..., None)],
}


@pytest.mark.parametrize(
    ("name", "selection"), [(name, each) for name, all in REFUSED.items() for each in all]
)
def test_what_zarr_refuses_is_refused(name, selection, referee, logical):
    for array in (referee, logical, intarsia.reader(referee)):
        with pytest.raises(IndexError):
            getattr(array, name)(selection)
    if name.startswith("get"):
        with pytest.raises(IndexError):
            getattr(logical, name.replace("get", "set"))(selection, 1)


@pytest.mark.parametrize("selection", [..., (...,), (), slice(None)])
def test_vindex_wants_arrays(selection, referee, logical):
    for array in (referee, logical, intarsia.reader(referee)):
        with pytest.raises(IndexError):
            array.vindex[selection]
    with pytest.raises(IndexError):
        logical.vindex[selection] = 1


MASKED = [
    (MASK[:, 0], MASK[0]),
    (MASK[:, 0], [0, 4]),
    ([1, 2], MASK[0]),
    (MASK[:, 0].tolist(), MASK[0].tolist()),
]


@pytest.mark.parametrize("selection", MASKED)
def test_masks_between_brackets_mean_what_they_mean_in_zarr(selection, referee, logical):
    for array in (logical, intarsia.reader(referee)):
        np.testing.assert_array_equal(array[selection], referee[selection])
    referee[selection] = logical[selection] = -1
    np.testing.assert_array_equal(logical[...], referee[...])


def test_blocks_are_the_chunks_of_the_lattice(logical, referee):
    logical.blocks[2, 1:] = 0
    referee.blocks[2, 1:] = 0
    np.testing.assert_array_equal(logical[...], referee[...])
    np.testing.assert_array_equal(logical.blocks[0:2, -1], referee.blocks[0:2, -1])


def test_an_axis_with_more_blocks_than_memory_is_no_trouble():
    array = intarsia.create({}, "a", shape=(10**12, 2), chunks=(1, 2), dtype="u1")
    assert array.blocks[10**11].tolist() == [[0, 0]]


@pytest.mark.parametrize("selection", [3, (0, 3), -4, (0, 0, 0), (..., ...), slice(0, 2, 2), [0, 1]])
def test_blocks_that_are_not_there_are_refused(selection, logical):
    with pytest.raises(IndexError, match="block"):
        logical.blocks[selection]


@pytest.mark.parametrize("mask", [MASK[:3], [0, 1], np.zeros((7, 5))])
def test_a_mask_has_the_shape_of_the_array(mask, logical):
    with pytest.raises(IndexError, match=r"a mask must have the shape of the array, \(7, 5\)"):
        logical.get_mask_selection(mask)


def test_values_go_into_out():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="i4")
    array.append([1, 2, 3])
    out = np.zeros(2, "i4")
    assert array.get_basic_selection(slice(1, 3), out=out) is out
    assert out.tolist() == [2, 3]
    buffer = zarr.buffer.cpu.NDBuffer.from_numpy_array(out)
    array.get_coordinate_selection([2, 0], out=buffer)
    assert out.tolist() == [3, 1]
    with pytest.raises(ValueError, match=r"out has the shape \(2,\), but the selection has \(1,\)"):
        array.get_orthogonal_selection([0], out=out)
    with pytest.raises(TypeError, match="out is a list: give a NumPy array"):
        array.get_block_selection(0, out=[0, 0])


def test_fields_of_structured_values(tmp_path):
    records = np.zeros(4, [("x", "i4"), ("y", "f4")])
    records["x"] = range(4)
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(2,), dtype=records.dtype)
    array.append(records)
    assert array.get_basic_selection(slice(1, 3), fields="x").tolist() == [1, 2]
    assert array.get_block_selection(1, fields=["y", "x"]).tolist() == [(0, 2), (0, 3)]


def test_tuples_are_structured_values():
    dtype = np.dtype([("x", "i4"), ("y", "f4")])
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype=dtype)
    array.append([(1, 2), (3, 4)])
    array[1] = (5, 6.5)
    assert array[...].tolist() == [(1, 2.0), (5, 6.5)]
    array[:] = (7, 8)
    assert array[...].tolist() == [(7, 8.0), (7, 8.0)]
    for refused, error in {
        (1,): "a record needs the fields x, y",
        (2**40, 1): "int32 cannot hold them all",
        (None, 1): "cannot become int32",
    }.items():
        with pytest.raises(IntarsiaError, match=error):
            array[0] = refused
    with pytest.raises(NullsPresentError, match="1 of 2 values are masked or null"):
        array[:] = [(1, 2), None]
    assert array[...].tolist() == [(7, 8.0), (7, 8.0)]


def test_a_reader_does_not_write(referee):
    with pytest.raises(ReadOnlyError, match="only reads"):
        intarsia.reader(referee).set_block_selection(0, 1)
