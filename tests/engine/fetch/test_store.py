"""Any other store of zarr: asked in threads, or on the event loop."""

import asyncio

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync
from zarr.storage import MemoryStore

import intarsia
from intarsia.engine.fetch.fetcher_choice import fetcher_for
from intarsia.engine.fetch.store import run_on_event_loop
from tests.logical.places import AsyncOnly


class Failing(AsyncOnly):
    """Cannot read one key."""

    broken = "c/1"

    async def get(self, key, prototype=None, byte_range=None):
        if key.endswith(self.broken):
            raise PermissionError("not for you")
        return await super().get(key, prototype, byte_range)


class Counting(AsyncOnly):
    """Counts how many reads of chunks run at a time."""

    def __init__(self, store):
        super().__init__(store)
        self.running = self.most = self.reads = 0

    def _with_store(self, store):
        return self

    async def get(self, key, prototype=None, byte_range=None):
        if "/c/" not in key:
            return await super().get(key, prototype, byte_range)
        self.running, self.reads = self.running + 1, self.reads + 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        try:
            return await super().get(key, prototype, byte_range)
        finally:
            self.running -= 1


def filled(chunks=4):
    store = MemoryStore()
    array = intarsia.create(store, "a", shape=(chunks * 10,), chunks=(10,), dtype="int64")
    array.add_region(((0, chunks * 10),), codecs=["zstd"], data=np.arange(chunks * 10))
    return store


def test_stores_are_told_apart():
    store = filled()
    assert fetcher_for(store).in_threads
    assert not fetcher_for(AsyncOnly(store)).in_threads
    assert not fetcher_for(store).immutable


def test_a_failure_names_its_chunk_and_others_are_read():
    array = intarsia.open(Failing(filled()), "a")
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1,\): not for you") as failure:
        array[:]
    assert isinstance(failure.value.__cause__, PermissionError)
    assert array[20:].tolist() == list(range(20, 40))


def test_no_more_reads_run_at_a_time_than_zarr_is_told():
    store = Counting(filled(chunks=50))
    with zarr.config.set({"async.concurrency": 3}):
        array = intarsia.open(store, "a")
        np.testing.assert_array_equal(array[:], np.arange(500))
    assert 1 < store.most <= 3
    assert store.reads == 50


def test_reading_from_within_zarrs_event_loop_is_refused_and_not_a_deadlock():
    array = intarsia.open(AsyncOnly(filled()), "a")

    async def read():
        return array[:]

    assert array[0] == 0  # the member is open now
    with pytest.raises(RuntimeError, match="event loop"):
        sync(read())


def test_reading_within_another_event_loop_works():
    array = intarsia.open(AsyncOnly(filled()), "a")

    async def read():
        return array[:]

    assert asyncio.run(read()).tolist() == list(range(40))


def test_a_cancelled_fetch_does_not_run_on():
    waiting, ended = asyncio.Event(), []

    async def forever():
        try:
            await waiting.wait()
        finally:
            ended.append(True)

    future = run_on_event_loop(forever())
    sync(asyncio.sleep(0))
    future.cancel()
    sync(asyncio.sleep(0))
    sync(asyncio.sleep(0))
    assert ended == [True]
