"""Reading on an event loop gives the same, fails as loudly, and takes no thread for a request that waits."""

import asyncio
import threading

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

import intarsia
from intarsia.engine.config import cores
from intarsia.errors import ReadError
from tests.logical import strategies as s
from tests.logical.places import PLACES, AsyncOnly
from tests.logical.stores import stored

VALUES = np.arange(2000).reshape(40, 50)


def written(store, **options):
    settings = {"shape": (40, 50), "chunks": (8, 8), "dtype": "int32", "name": "a"} | options
    array = zarr.create_array(store, **settings)
    array[...] = VALUES
    return array


@given(st.data())
def test_selections_of_logical_arrays_equal_numpy(data):
    array, model = data.draw(s.arrays())
    selection = data.draw(s.orthogonal(model.shape))
    got = asyncio.run(array.read_async(selection, "orthogonal"))
    np.testing.assert_array_equal(got, s.by_numpy_orthogonal(model, selection))
    basic = data.draw(s.basic(model.shape))
    np.testing.assert_array_equal(asyncio.run(array.read_async(basic)), model[basic])


@pytest.mark.parametrize("shards", [None, (16, 16)])
@pytest.mark.parametrize("place", sorted(set(PLACES) - {"icechunk S3"}))
def test_every_store(place, shards, tmp_path):
    array = written(MemoryStore(), shards=shards)
    with PLACES[place](stored(array.store), tmp_path) as store:
        reader = intarsia.reader(store, "a")

        async def several():
            return await asyncio.gather(*(reader.read_async(np.s_[i::7]) for i in range(7)))

        for i, got in enumerate(asyncio.run(several())):
            np.testing.assert_array_equal(got, VALUES[i::7])


class Waiting(AsyncOnly):
    """Answers when it is told to; counts who waits."""

    def __init__(self, store):
        super().__init__(store)
        self.asked, self.enough, self.go = 0, threading.Event(), asyncio.Event()
        self.patient = False

    def _with_store(self, store):
        return self

    async def get(self, key, prototype, byte_range=None):
        if self.patient and "/c/" in key:
            self.asked += 1
            if self.asked >= 30:
                self.enough.set()
            while not self.enough.is_set():
                await asyncio.sleep(0.001)
        return await super().get(key, prototype, byte_range)


def test_many_requests_wait_in_few_threads():
    store = Waiting(MemoryStore())
    reader = intarsia.reader(written(store, chunks=(40, 50)))
    store.patient = True

    async def many():
        before = threading.active_count()
        reads = [asyncio.ensure_future(reader.read_async(np.s_[i])) for i in range(30)]
        # None of them is answered before all have asked: a thread each would have to wait here.
        values = await asyncio.gather(*reads)
        return values, threading.active_count() - before

    with zarr.config.set({"async.concurrency": 64}):
        values, more = asyncio.run(many())
    np.testing.assert_array_equal(values, VALUES[:30])
    assert more <= cores() + 2


def test_damage_is_named(tmp_path):
    reader = intarsia.reader(written(LocalStore(tmp_path)))
    (tmp_path / "a" / "c" / "0" / "0").write_bytes(b"no such thing")
    with pytest.raises(ReadError, match=r"cannot read chunk \(0, 0\) of the array at file://.*/a: "):
        asyncio.run(reader.read_async())
    got = asyncio.run(reader.read_async(np.s_[16:]))
    np.testing.assert_array_equal(got, VALUES[16:])


def test_an_array_that_was_rewritten_is_read_as_it_is_now():
    store = MemoryStore()
    reader = intarsia.reader(written(store))
    written(store, chunks=(10, 10), overwrite=True)
    np.testing.assert_array_equal(asyncio.run(reader.read_async()), VALUES)
    assert reader.chunks == (10, 10)


def test_a_read_that_is_called_off_leaves_nothing_behind():
    store = Waiting(MemoryStore())
    reader = intarsia.reader(written(store))
    store.patient = True

    async def impatient():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read_async(np.s_[:8, :8]), 0.1)
        store.enough.set()
        return await reader.read_async()

    np.testing.assert_array_equal(asyncio.run(impatient()), VALUES)
