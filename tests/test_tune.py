"""Advice is measured, choices follow the objective, and acting on it keeps every value."""

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.tune import SAMPLE_BYTES, candidates, sample
from tests.array.stores import memory


def smooth(shape=(400, 500)):
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]]
    return (np.sin(x / 50) * 1000 + y).astype("int32")


def noise(shape=(400, 500)):
    return np.random.default_rng(0).integers(-(2**31), 2**31, shape).astype("int32")


@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f4", "f8", "complex64", "datetime64[s]"])
def test_every_candidate_round_trips(dtype):
    data = (np.arange(600).reshape(20, 30) % 7).astype(dtype)
    for name, codecs in candidates(np.dtype(dtype)).items():
        array = intarsia.create({}, "a", shape=(0, 30), chunks=(8, 30), dtype=dtype)
        array.append(data, codecs=codecs)
        np.testing.assert_array_equal(array[...], data, err_msg=name)


def test_reported_sizes_are_the_stored_ones():
    data = smooth((100, 100))
    advice = intarsia.advise(data, "size", encodings={"gzip": ["gzip"], "raw": []})
    by_name = {trial.name: trial for trial in advice.trials}
    assert by_name["raw"].stored_bytes == sum(block.nbytes for block in sample(data))
    store = memory()
    total = 0
    for i, block in enumerate(sample(data)):
        z = zarr.create_array(
            store, name=str(i), data=block, chunks=block.shape, compressors=zarr.codecs.GzipCodec()
        )
        total += len(store._store_dict[f"{i}/{'/'.join(['c', *['0'] * block.ndim])}"])
        np.testing.assert_array_equal(z[...], block)
    assert by_name["gzip"].stored_bytes == total


def test_the_objective_size_takes_the_smallest_and_noise_stays_raw():
    assert intarsia.advise(smooth(), "size").best.ratio == max(
        trial.ratio for trial in intarsia.advise(smooth(), "size").trials
    )
    assert intarsia.advise(noise(), "speed").best.ratio < 1.01


def test_the_table_names_every_encoding():
    text = repr(intarsia.advise(smooth((50, 50))))
    for name in candidates(np.dtype("int32")):
        assert name in text


def test_samples_are_bounded_contiguous_and_the_same_every_time():
    big = np.broadcast_to(np.arange(5000), (20_000, 5000))
    blocks = sample(big)
    assert sum(block.nbytes for block in blocks) <= SAMPLE_BYTES * 1.5
    for first, second in zip(blocks, sample(big), strict=True):
        np.testing.assert_array_equal(first, second)
    assert sample(np.zeros((0, 5))) == []
    assert len(sample(np.float32(3))) == 1


def test_optimize_recodes_what_pays_and_keeps_every_value():
    array = intarsia.create({}, "a", shape=(0, 500), chunks=(100, 500), dtype="int32")
    data = np.concatenate([smooth(), noise()])
    array.append(data[:400], codecs=[])
    array.append(data[400:], codecs=[{"name": "zstd", "configuration": {"level": 19}}])
    changes = array.optimize("size")
    np.testing.assert_array_equal(array[...], data)
    assert changes[0].saved > 0.5 * changes[0].bytes_before
    assert changes[0].bytes_after == array.region_at((0, 0)).nbytes_stored
    assert intarsia.verify(array) == ()
    again = array.optimize("size")
    assert [change.saved for change in again] == [0, 0]


def test_codecs_auto_chooses_by_the_data():
    array = intarsia.create({}, "a", shape=(0, 500), chunks=(100, 500), dtype="int32")
    array.append(smooth(), codecs="auto")
    assert array.regions[0].nbytes_stored < 0.5 * array.regions[0].nbytes
    array.append(noise(), codecs=["gzip"])
    array.recode(((0, 400), (0, 500)), codecs="auto")
    np.testing.assert_array_equal(array[...], np.concatenate([smooth(), noise()]))


def test_nothing_to_try_is_an_error_that_says_so():
    array = intarsia.create({}, "a", shape=(10,), chunks=(5,), dtype="u1")
    with pytest.raises(intarsia.errors.ShapeError, match="no values"):
        intarsia.advise(array)
    with pytest.raises(intarsia.errors.ShapeError, match="give a codec list"):
        array.add_region([(0, 5)], codecs="auto")
    with pytest.raises(ValueError, match="objective 'tiny' is not one of"):
        intarsia.advise(np.zeros(5), "tiny")
