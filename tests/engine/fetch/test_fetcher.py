"""Every fetcher reads every layout and selection as NumPy does, and names what is damaged."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia
from tests.logical import places
from tests.logical import strategies as s

FEW = settings(max_examples=max(1, settings().max_examples // 4), suppress_health_check=list(HealthCheck))


@FEW
@given(data=st.data())
def test_every_selection_equals_numpy(place, data):
    array, model = data.draw(s.arrays())
    with tempfile.TemporaryDirectory() as folder, places.moved(array, place, Path(folder)) as there:
        there = there.with_config(threads=data.draw(st.sampled_from([1, 3])), window_bytes=data.draw(WINDOWS))
        for _ in range(2):  # what is remembered from the first read must serve the second
            np.testing.assert_array_equal(there[...], model)
        for _ in range(2):
            selection = data.draw(s.basic(model.shape))
            np.testing.assert_array_equal(there[selection], model[selection])
            selection = data.draw(s.orthogonal(model.shape))
            np.testing.assert_array_equal(there.oindex[selection], s.by_numpy_orthogonal(model, selection))
        if model.ndim:
            mask = data.draw(s.masks(model.shape))
            np.testing.assert_array_equal(there[mask], model[mask])
        if model.ndim and model.size:
            points = data.draw(s.points(model.shape))
            np.testing.assert_array_equal(there.vindex[points], model[points])


WINDOWS = st.sampled_from([None, 1, 100])


def filled(shape=(40, 30), shards=None, **options):
    """An array with three members of several chunks, and its values."""
    array = intarsia.create({}, "a", shape=shape, chunks=(10, 10), dtype="float32")
    data = np.random.default_rng(0).normal(size=shape).astype("f4")
    thirds = [((0, 10), (0, 30)), ((10, 20), (0, 30)), ((20, 40), (0, 30))]
    for bounds, codecs in zip(thirds, (["zstd"], ["gzip"], [{"name": "crc32c"}]), strict=True):
        index = tuple(slice(a, b) for a, b in bounds)
        array.add_region(bounds, codecs=codecs, data=data[index], chunks=(5, 10), shards=shards, **options)
    return array, data


def test_the_fetcher_is_the_one_that_is_meant_for_the_store(place, tmp_path):
    with places.moved(filled()[0], place, tmp_path) as there:
        names = {part.fetcher for part in intarsia.explain(there).parts}
    assert names == {places.FETCHERS[place]}


@pytest.mark.parametrize("shards", [None, (10, 30)])
def test_large_reads_in_threads_equal_small_ones(place, tmp_path, shards):
    array = intarsia.create({}, "a", shape=(256, 256), chunks=(64, 64), dtype="float64")
    data = np.random.default_rng(1).normal(size=array.shape)
    array.add_region(((0, 128), (0, 256)), codecs=["zstd"], data=data[:128], chunks=(32, 32))
    shards = None if shards is None else (128, 128)
    array.add_region(((128, 256), (0, 256)), codecs=["gzip"], data=data[128:], chunks=(32, 32), shards=shards)
    with places.moved(array, place, tmp_path) as there:
        for threads in (1, 4):
            np.testing.assert_array_equal(there.with_config(threads=threads)[...], data)
            narrow = there.with_config(threads=threads, window_bytes=40_000)
            np.testing.assert_array_equal(narrow[5:250:3, ::-1], data[5:250:3, ::-1])


@pytest.mark.parametrize("shards", [None, (10, 30)], ids=["chunks", "shards"])
def test_a_damaged_chunk_is_named_and_the_others_are_read(place, tmp_path, shards):
    array, data = filled(shards=shards)
    member = array.regions[2].name
    key = "c/0/0" if shards else "c/1/2"
    stored = array.store._store_dict if hasattr(array.store, "_store_dict") else None
    path = f"a/{member}/{key}"
    value = stored[path]
    raw = bytearray(value.to_bytes())
    if shards:
        raw[8 * 16 + 3 : 8 * 16 + 7] = b"oops"  # in the first inner chunk, whichever that is
    else:
        raw[17] ^= 1
    stored[path] = type(value).from_bytes(bytes(raw))
    with places.moved(array, place, tmp_path) as there:
        with pytest.raises(intarsia.errors.ReadError) as failure:
            there[...]
        text = str(failure.value)
        assert "[20:40, 0:30]" in text
        assert member in text
        assert "chunk (" in text
        if not shards:
            assert "chunk (1, 2)" in text
        np.testing.assert_array_equal(there[:20], data[:20])
        np.testing.assert_array_equal(there[30:], data[30:])


def test_a_chunk_that_is_cut_off_is_an_error(place, tmp_path):
    for codecs in ([], ["zstd"], ["gzip"], ["blosc"], ["crc32c"]):
        array = intarsia.create({}, "a", shape=(8,), chunks=(8,), dtype="float64")
        array.add_region(((0, 8),), codecs=codecs, data=np.arange(8) * 1.1)
        key = f"a/{array.regions[0].name}/c/0"
        value = array.store._store_dict[key]
        array.store._store_dict[key] = type(value).from_bytes(value.to_bytes()[:-3])
        folder = tmp_path / (codecs or ["raw"])[0]
        folder.mkdir()
        named = pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0,\)")
        with places.moved(array, place, folder) as there, named:
            there[...]


def test_what_was_never_written_is_the_members_fill_value(place, tmp_path):
    array = intarsia.create({}, "a", shape=(20,), chunks=(5,), dtype="int16", fill_value=1)
    array.add_region(((0, 10),), codecs=["zstd"], fill_value=2)
    array.add_region(((10, 15),), codecs=[], fill_value=3, chunks=(1,))
    array[11:13] = [8, 9]
    with places.moved(array, place, tmp_path) as there:
        assert there[...].tolist() == [2] * 10 + [3, 8, 9, 3, 3] + [1] * 5


def test_threads_share_a_handle(place, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    array, data = filled()
    with places.moved(array, place, tmp_path) as there, ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(there.__getitem__, np.s_[i : i + 9]) for i in range(31)]
        for i, read in enumerate(reads):
            np.testing.assert_array_equal(read.result(), data[i : i + 9])
