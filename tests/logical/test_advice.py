"""Advice is measured, choices follow the objective, and acting on it keeps every value."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.logical import optimization
from intarsia.logical.advice import SAMPLE_BYTES, candidates, sample_blocks
from tests.logical.stores import memory


def smooth(shape=(100, 500)):
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]]
    return (np.sin(x / 50) * 1000 + y).astype("int32")


def noise(shape=(100, 500)):
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
    assert by_name["raw"].stored_bytes == sum(block.nbytes for block in sample_blocks(data))
    store = memory()
    total = 0
    for i, block in enumerate(sample_blocks(data)):
        z = zarr.create_array(
            store, name=str(i), data=block, chunks=block.shape, compressors=zarr.codecs.GzipCodec()
        )
        total += len(store._store_dict[f"{i}/{'/'.join(['c', *['0'] * block.ndim])}"])
        np.testing.assert_array_equal(z[...], block)
    assert by_name["gzip"].stored_bytes == total


def test_the_objective_size_takes_the_smallest_and_noise_stays_raw():
    advice = intarsia.advise(smooth(), "size")
    assert advice.best.ratio == max(trial.ratio for trial in advice.trials)
    assert intarsia.advise(noise(), "speed").best.ratio < 1.01


@pytest.mark.parametrize("objective", ["size", "balanced", "speed"])
def test_the_same_values_get_the_same_advice(objective):
    advice = intarsia.advise(smooth(), objective)
    assert advice == intarsia.advise(smooth(), objective)
    assert {trial.decode_seconds for trial in advice.trials} != {0.0}


def test_the_highest_level_of_zstd_is_tried_once_and_for_size_alone():
    names = {
        objective: [trial.name for trial in intarsia.advise(smooth(), objective).trials]
        for objective in ("size", "balanced", "speed")
    }
    assert [name for name in names["size"] if name.endswith("zstd-19")] == ["shuffle+zstd-19"]
    assert not [name for name in names["balanced"] + names["speed"] if name.endswith("zstd-19")]


def test_the_table_names_every_encoding():
    text = repr(intarsia.advise(smooth((50, 50))))
    for name in candidates(np.dtype("int32")):
        assert name in text


def test_samples_are_bounded_contiguous_and_the_same_every_time():
    big = np.broadcast_to(np.arange(5000), (20_000, 5000))
    blocks = sample_blocks(big)
    assert sum(block.nbytes for block in blocks) <= SAMPLE_BYTES * 1.5
    for first, second in zip(blocks, sample_blocks(big), strict=True):
        np.testing.assert_array_equal(first, second)
    assert sample_blocks(np.zeros((0, 5))) == []
    assert len(sample_blocks(np.float32(3))) == 1


def test_samples_of_many_regions_are_no_larger_than_those_of_one():
    array = intarsia.create({}, "a", shape=(0, 1000), chunks=(1000, 1000), dtype="int32")
    for _ in range(5):
        array.append(smooth((1000, 1000)), codecs=["zstd"])
    assert intarsia.advise(array).best.raw_bytes <= SAMPLE_BYTES


def test_optimize_recodes_what_pays_and_keeps_every_value():
    array = intarsia.create({}, "a", shape=(0, 500), chunks=(50, 500), dtype="int32")
    data = np.concatenate([smooth(), noise()])
    array.append(data[:100], codecs=[])
    array.append(data[100:], codecs=[{"name": "zstd", "configuration": {"level": 19}}])
    changes = array.optimize("size")
    np.testing.assert_array_equal(array[...], data)
    assert changes[0].saved > 0.5 * changes[0].bytes_before
    assert changes[0].bytes_after == array.region_at((0, 0)).nbytes_stored
    assert intarsia.verify(array) == ()
    again = array.optimize("size")
    assert again == ()  # what stays as it is is not reported
    assert "no region would gain" in repr(again)


def test_changes_are_told_by_the_codecs_that_are_stored():
    array = intarsia.create({}, "a", shape=(0,), chunks=(4,), dtype="string")
    array.append(np.array(["a", "b", "c", "d"], dtype="T"), codecs=["gzip"])
    [change] = array.optimize("size")
    assert (change.before, change.after) == ("vlen-utf8+gzip-5", "vlen-utf8")


def test_codecs_auto_chooses_by_the_data():
    array = intarsia.create({}, "a", shape=(0, 500), chunks=(100, 500), dtype="int32")
    array.append(smooth((400, 500)), codecs="auto")
    assert array.regions[0].nbytes_stored < 0.5 * array.regions[0].nbytes
    array.append(noise((400, 500)), codecs=["gzip"])
    array.recode(((0, 400), (0, 500)), codecs="auto")
    np.testing.assert_array_equal(array[...], np.concatenate([smooth((400, 500)), noise((400, 500))]))


def test_nothing_to_try_is_an_error_that_says_so():
    array = intarsia.create({}, "a", shape=(10,), chunks=(5,), dtype="u1")
    with pytest.raises(intarsia.errors.ShapeError, match="no values"):
        intarsia.advise(array)
    with pytest.raises(intarsia.errors.ShapeError, match="give a codec list"):
        array.add_region([(0, 5)], codecs="auto")
    with pytest.raises(ValueError, match="objective 'tiny': there are size, balanced, speed"):
        intarsia.advise(np.zeros(5), "tiny")


@pytest.mark.parametrize(
    ("dtype", "count", "chunk"),
    [("complex128", 8, 8), ("complex128", 8, 16), ("i4", 16, 16), ("u1", 3, 1000)],
)
def test_optimizing_for_size_never_makes_a_region_larger(dtype, count, chunk):
    array = intarsia.create({}, "a", shape=(0,), chunks=(chunk,), dtype=dtype)
    array.append((np.arange(count) % 2).astype(dtype), codecs=["zstd"])
    before = array.regions[0].nbytes_stored
    changes = array.optimize("size")
    after = array.regions[0].nbytes_stored
    assert after < before if changes else after == before
    assert array[...].tolist() == (np.arange(count) % 2).astype(dtype).tolist()


def test_a_region_whose_samples_mislead_stays_as_it_is(monkeypatch):
    array = intarsia.create({}, "a", shape=(0, 100), chunks=(50, 100), dtype="int32")
    array.append(noise((100, 100)), codecs=["zstd"])
    stored, members = array.regions[0].nbytes_stored, array.manifest.members
    real = optimization.advise

    def misled(data, objective, *, encodings=None, **options):
        given = {"worse": ["zstd", "gzip"]} if encodings is None else encodings
        advice = real(data, objective, encodings=given, **options)
        trial = replace(advice.best, stored_bytes=1 if encodings is None else advice.best.stored_bytes)
        return replace(advice, trials=(trial,))

    monkeypatch.setattr(optimization, "advise", misled)
    assert array.optimize("size") == ()
    assert (array.regions[0].nbytes_stored, array.manifest.members) == (stored, members)
    assert intarsia.verify(array) == ()  # nothing is left over


def test_advice_is_sorted_by_the_objective_and_marks_the_best():
    advice = intarsia.advise(smooth((60, 60)), "size")
    sizes = [trial.stored_bytes for trial in advice.trials]
    assert sizes == sorted(sizes)
    lines = repr(advice).splitlines()
    assert lines[0].endswith(f"best first for size: {advice.best.name}")
    assert [line[0] for line in lines[2:]] == ["→", *" " * (len(lines) - 3)]


@pytest.mark.parametrize("data", ["old.zarr", Path("old.zarr"), b"old.zarr", {"a": 1}, object()])
def test_what_holds_no_values_is_refused(data):
    with pytest.raises(intarsia.errors.DataTypeError, match=r"intarsia\.reader\("):
        intarsia.advise(data)


def test_a_box_of_an_array_is_given_by_slices():
    data = np.concatenate([smooth((100, 100)), noise((100, 100))])
    assert intarsia.advise(data, "size", bounds=np.s_[:100]).best.ratio > 2
    assert intarsia.advise(data, "size", bounds=np.s_[100:, :]).best.ratio < 1.1


def test_progress_counts_the_values_of_all_regions():
    array = intarsia.create({}, "a", shape=(0, 100), chunks=(50, 100), dtype="int32")
    array.append(smooth((100, 100)), codecs=[])
    array.append(noise((100, 100)), codecs=["gzip"])
    seen = []
    array.optimize("size", progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, array.nbytes)
    assert seen[-1] == (array.nbytes, array.nbytes)
    assert seen == sorted(seen)
