"""A cache of decoded chunks: the same values, fewer fetches, never more bytes than asked for, never stale."""

import asyncio
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import intarsia
from intarsia.engine.chunk_cache import BoundedCache
from tests.grids import dear
from tests.logical import strategies as s
from tests.logical.places import moved

VALUES = np.arange(2000, dtype="int32").reshape(40, 50)
CHUNK = 8 * 8 * 4


@pytest.fixture
def repo(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        array = zarr.create_array(tx.store, name="a", shape=(40, 50), chunks=(8, 8), dtype="int32")
        array[...] = VALUES
    return repo


def refuse(*_, **__):
    raise AssertionError("a chunk is fetched")


@dear
@given(st.data())
def test_values_are_the_same_whatever_is_kept(data):
    array, model = data.draw(s.arrays())
    with tempfile.TemporaryDirectory() as folder, moved(array, "icechunk memory", Path(folder)) as there:
        cached = there.with_config(cache=data.draw(st.integers(1, 2000)))
        for _ in range(3):
            selection = data.draw(s.orthogonal(model.shape))
            got = cached.oindex[selection]
            np.testing.assert_array_equal(got, s.by_numpy_orthogonal(model, selection))
            got[...] = 0  # the caller's own
            assert cached.cached_bytes <= cached.config.cache


@pytest.mark.parametrize("again", [np.s_[:16], np.s_[3:9:2, ::-1], np.s_[15, [4, 40]]])
def test_chunks_that_are_kept_are_not_fetched_again(repo, monkeypatch, again):
    reader = intarsia.reader(repo, "a").with_config(cache=1 << 20)
    np.testing.assert_array_equal(reader[:16], VALUES[:16])
    assert reader.cached_bytes == 2 * 7 * CHUNK
    monkeypatch.setattr("intarsia.engine.thread_pool._begin", refuse)
    np.testing.assert_array_equal(reader[again], VALUES[again])
    np.testing.assert_array_equal(asyncio.run(reader.read_async(again)), VALUES[again])
    with pytest.raises(AssertionError, match="a chunk is fetched"):
        reader[:17]


def test_those_that_were_used_last_stay(repo, monkeypatch):
    reader = intarsia.reader(repo, "a").with_config(cache=3 * CHUNK, threads=1)
    for column in (0, 8, 16, 0, 24):  # the second one makes room for the last
        assert reader[0, column] == column
    assert reader.cached_bytes == 3 * CHUNK
    monkeypatch.setattr("intarsia.engine.thread_pool._begin", refuse)
    assert [int(reader[0, column]) for column in (0, 16, 24)] == [0, 16, 24]
    with pytest.raises(AssertionError):
        reader[0, 8]


def test_another_snapshot_is_another_handle(repo):
    before = intarsia.reader(repo, "a").with_config(cache=1 << 20)
    assert before[0, 0] == 0
    with intarsia.transaction(repo, message="second") as tx:
        zarr.open_array(tx.store, path="a")[0, 0] = 77
        inside = intarsia.reader(tx.store, "a").with_config(cache=1 << 20)
        assert inside[0, 0] == 77
        assert inside.cached_bytes == 0
    assert before[0, 0] == 0
    assert intarsia.reader(repo, "a").with_config(cache=1 << 20)[0, 0] == 77


def test_where_somebody_may_write_nothing_is_kept():
    array = intarsia.create(MemoryStore(), "a", shape=(0,), chunks=(2,), dtype="i4")
    array.append([1, 2, 3, 4])
    cached = array.with_config(cache=1 << 20)
    assert cached[...].tolist() == [1, 2, 3, 4]
    array[0] = 9
    assert cached[...].tolist() == [9, 2, 3, 4]
    assert cached.cached_bytes == 0


def test_nulls_and_shards_and_threads(repo):
    with intarsia.transaction(repo, message="more") as tx:
        sharded = zarr.create_array(
            tx.store, name="s", shape=(40, 50), chunks=(8, 8), shards=(16, 16), dtype="int32"
        )
        sharded[...] = VALUES
        intarsia.nullable.create_array(tx.store, name="n", data=[1, None, 3], chunks=2)
    reader = intarsia.reader(repo, "s").with_config(cache=20 * CHUNK)
    with ThreadPoolExecutor(8) as pool:
        for i, got in enumerate(pool.map(lambda i: reader[i % 40], range(200))):
            np.testing.assert_array_equal(got, VALUES[i % 40])
    assert 0 < reader.cached_bytes <= 20 * CHUNK
    nulls = intarsia.reader(repo, "n").with_config(cache=1 << 20)
    for _ in range(2):
        assert nulls[...].tolist() == [1, None, 3]


def test_what_is_kept_does_not_travel(repo):
    reader = intarsia.reader(repo, "a").with_config(cache=1 << 20)
    assert reader[0, 0] == 0
    there = pickle.loads(pickle.dumps(reader))
    assert (there.config.cache, there.cached_bytes) == (1 << 20, 0)


def test_a_size_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="cache is 0: give a whole number of at least 1, or None for no"):
        intarsia.types.LogicalConfig(cache=0)


def test_what_was_not_asked_for_the_longest_goes_first():
    cache = BoundedCache(6, len)
    for name in "abc":
        cache.put(name, b"xx")
    assert cache.get("a") == b"xx"
    cache.put("d", b"yyyy")
    assert [cache.get(name) for name in "abcd"] == [b"xx", None, None, b"yyyy"]


def test_putting_again_replaces_and_what_is_too_large_is_not_kept():
    cache = BoundedCache(4, len)
    for _ in range(9):
        cache.put("a", b"xxx")
    cache.put("b", b"y")
    assert [cache.get(name) for name in "ab"] == [b"xxx", b"y"]
    cache.put("c", b"12345")
    assert [cache.get(name) for name in "abc"] == [b"xxx", b"y", None]
    cache.put("a", b"1234")
    assert [cache.get(name) for name in "ab"] == [b"1234", None]
    assert cache.nbytes == 4
