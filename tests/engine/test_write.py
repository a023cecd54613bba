"""What the engine writes is what zarr would have written, byte for byte."""

import asyncio
import threading
from contextlib import nullcontext
from unittest import mock

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

import intarsia
from intarsia.engine import prepared_member, write_chunks
from intarsia.engine.prepared_member import PreparedMember
from intarsia.engine.write import write_box
from intarsia.logical.encoding import Encoding, create_member
from intarsia.manifest.box import Box
from tests.logical import strategies as s
from tests.logical.places import AsyncOnly
from tests.logical.stores import stored

# No gzip: it stores the time of writing.
TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
CHAINS = [["zstd"], [], ["blosc", "crc32c"], [TRANSPOSE, "zstd"]]


def two(shape, chunks, codecs, wrap=lambda store: store):
    """Two equal empty arrays; the engine writes to the first, zarr to the second."""
    made = []
    for _ in range(2):
        store = wrap(MemoryStore())
        array = intarsia.create({}, "x", shape=shape, chunks=chunks, dtype="int32", fill_value=7)
        encoding = Encoding(codecs=codecs)
        made.append(create_member(store, "m", array.manifest, shape, encoding))
    return made


def inner(array):
    store = array.store_path.store
    return stored(getattr(store, "_store", store))


@given(st.data(), st.sampled_from(CHAINS), st.booleans())
def test_boxes_are_stored_as_zarr_stores_them(data, codecs, loop):
    shape = tuple(data.draw(st.integers(1, 12)) for _ in range(2))
    chunks = tuple(data.draw(st.integers(1, 6)) for _ in range(2))
    ours, theirs = two(shape, chunks, codecs, AsyncOnly if loop else lambda store: store)
    source = PreparedMember.of("m", ours)
    for _ in range(3):
        start = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
        stop = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(start, shape, strict=True))
        box = Box(start, stop)
        # Runs of one value, the fill value among them.
        values = np.arange(np.prod(box.shape), dtype="i4").reshape(box.shape) // 4 + 6
        if data.draw(st.integers(0, 3)) == 0:
            values = np.int32(data.draw(st.sampled_from([7, 5])))
        write_box(source, box, values)
        theirs[tuple(slice(a, b) for a, b in zip(*box, strict=True))] = values
        assert inner(ours) == inner(theirs)


def chunks_of(array):
    """Stored chunks, whatever the member is called."""
    return {key.split("/c/")[1]: data for key, data in stored(array.store).items() if "/c/" in key}


@given(st.data(), st.sampled_from(CHAINS))
def test_selections_are_stored_as_zarr_stores_them(data, codecs):
    shape = (9, 8)
    arrays = []
    for _ in range(2):
        array = intarsia.create(MemoryStore(), "a", shape=shape, chunks=shape, dtype="int32", fill_value=7)
        array.add_region(((0, 9), (0, 8)), codecs=codecs, chunks=(4, 3))
        arrays.append(array)
    kind = data.draw(st.sampled_from(["oindex", "vindex", "basic"]))
    selection = data.draw({"oindex": s.orthogonal, "vindex": s.points, "basic": s.basic}[kind](shape))
    values = np.int32(data.draw(st.sampled_from([7, 5])))  # one value: an element may be chosen twice
    left_to_zarr = mock.patch.object(
        prepared_member, "Decoder", side_effect=prepared_member._ObstacleError("a test")
    )
    for array, engine in zip(arrays, (nullcontext(), left_to_zarr), strict=True):
        with engine:
            (array if kind == "basic" else getattr(array, kind))[selection] = values
    assert chunks_of(arrays[0]) == chunks_of(arrays[1])


def large(store, codecs):
    array = intarsia.create(store, "a", shape=(512, 512), chunks=(64, 64), dtype="float64")
    data = np.random.default_rng(0).normal(size=(512, 512))
    array.add_region(((0, 512), (0, 512)), codecs=codecs, data=data)
    return array, data


@pytest.mark.parametrize("kind", ["memory", "loop", "files", "icechunk"])
def test_large_writes_in_threads(kind, tmp_path):
    store = {
        "memory": MemoryStore,
        "loop": lambda: AsyncOnly(MemoryStore()),
        "files": lambda: zarr.storage.LocalStore(tmp_path),
        "icechunk": lambda: (
            icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main").store
        ),
    }[kind]()
    array, data = large(store, ["zstd"])
    np.testing.assert_array_equal(array[...], data)
    narrow = array.with_config(threads=4, window_bytes=100_000)
    narrow[30:400, 1:500] = 2.5
    data[30:400, 1:500] = 2.5
    np.testing.assert_array_equal(array[...], data)
    member = array.regions[0].member
    np.testing.assert_array_equal(member[...], data)


def test_chunks_are_encoded_in_several_threads():
    met, together = set(), threading.Barrier(2, timeout=30)

    class Meeting(MemoryStore):
        def set_sync(self, key, value):
            if "/c/" in key and len(met) < 2:
                met.add(threading.get_ident())
                together.wait()
            super().set_sync(key, value)

    store = Meeting()
    array = intarsia.create(store, "a", shape=(64, 65536), chunks=(1, 65536), dtype="u1")
    array.add_region(((0, 64), (0, 65536)), codecs=[])
    array.with_config(threads=2)[...] = 1
    assert len(met) == 2


class FullDisk(AsyncOnly):
    """Takes a few chunks, and then no more."""

    room = 5

    async def set(self, key, value):
        if "/c/" in key:
            type(self).room -= 1
            await asyncio.sleep(0)
            if self.room < 0:
                raise OSError("no space left")
        await super().set(key, value)


def test_a_store_that_refuses_ends_the_write_and_leaves_nothing_running():
    array, _ = large(AsyncOnly(MemoryStore()), [])
    there = intarsia.open(FullDisk(array.store._store), "a", mode="r+")
    with pytest.raises(OSError, match="no space left"):
        there[...] = 1
    assert not [thread for thread in threading.enumerate() if thread.name == "intarsia"]


def test_a_chunk_that_cannot_be_read_is_not_overwritten_in_part():
    store = MemoryStore()
    array = intarsia.create(store, "a", shape=(8,), chunks=(4,), dtype="i8")
    array.add_region(((0, 8),), codecs=["zstd"], data=np.arange(8))
    key = f"a/{array.regions[0].name}/c/1"
    store._store_dict[key] = cpu.Buffer.from_bytes(b"damaged")
    with pytest.raises(
        intarsia.errors.ReadError, match=r"chunk \(1,\) of member m-.* would be written only in part"
    ):
        array[5:7] = 0
    assert store._store_dict[key].to_bytes() == b"damaged"
    array[4:] = 3  # all of it: what was there does not matter
    assert array[:].tolist() == [0, 1, 2, 3, 3, 3, 3, 3]


def test_decisions_learn_which_chunk_they_decide_about():
    seen = []

    def decide(chunk_index, codec_index):
        seen.append(chunk_index)
        return chunk_index[0] % 2 == 0

    codec = intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision=decide)
    array = intarsia.create({}, "a", shape=(8, 100), chunks=(2, 100), dtype="u1")
    array.add_region(((0, 8), (0, 100)), codecs=[codec], data=np.ones((8, 100), dtype="u1"))
    assert sorted(seen) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert intarsia.codecs.masks(array.regions[0].member).ravel().tolist() == [1, 0, 1, 0]
    assert (array[...] == 1).all()


def test_the_callers_memory_is_not_kept():
    for codecs in ([], ["zstd"]):
        array = intarsia.create(MemoryStore(), "a", shape=(8,), chunks=(4,), dtype="i8")
        data = np.arange(8)
        array.add_region(((0, 8),), codecs=codecs, data=data)
        data[:] = -1
        assert array[:].tolist() == list(range(8))


@pytest.mark.parametrize("place", ["memory", "files", "transaction"])
def test_threads_write_different_chunks_of_one_shard_and_none_is_lost(place, tmp_path):
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="one") as tx:
        store = {"memory": MemoryStore(), "files": str(tmp_path), "transaction": tx.store}[place]
        array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
        array.append(np.zeros(64, dtype="i4"), codecs=["zstd"], shards=(32,))
        handles = [array, intarsia.open(store, "a", mode="r+")]  # another handle means the same shards
        barrier = threading.Barrier(16)

        def write(i):
            barrier.wait()
            handles[i % 2][i * 4 : i * 4 + 4] = i + 1

        threads = [threading.Thread(target=write, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert array[::4].tolist() == list(range(1, 17))
    assert len(write_chunks.locks) == 0


def test_threads_that_hold_several_shards_do_not_wait_in_a_circle():
    array = intarsia.create(MemoryStore(), "a", shape=(0,), chunks=(1,), dtype="i4")
    array.append(np.zeros(8, dtype="i4"), codecs=[], shards=(2,))
    orders = [[0, 7], [7, 0], [3, 4], [4, 3]]

    def write(order):
        for _ in range(10):
            array.oindex[order] = 1

    threads = [threading.Thread(target=write, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert array[...].tolist() == [1, 0, 0, 1, 1, 0, 0, 1]


@pytest.mark.parametrize("dtype", ["i4", np.dtypes.StringDType()], ids=["numbers", "texts, left to zarr"])
@pytest.mark.parametrize("shards", [None, (8, 6)])
def test_of_an_index_given_twice_the_last_one_wins(shards, dtype):
    array = intarsia.create(MemoryStore(), "a", shape=(0, 6), chunks=(2, 3), dtype=dtype)
    array.append(np.zeros((16, 6), dtype=dtype), codecs=[], shards=shards)
    expected = np.zeros((16, 6), dtype=dtype)
    y, x = [5, 1, 11, 0, 7, 5, 1], [3, 4, 4, 1, 0, 0, 3]
    values = np.arange(1, 50).astype(dtype).reshape(7, 7)
    array.oindex[y, x] = values
    expected[np.ix_(y, x)] = values
    assert array[...].tolist() == expected.tolist()
    y[0], x[0] = 1, 3
    points = np.arange(101, 108).astype(dtype)
    array.vindex[y, x] = points
    expected[y, x] = points
    assert array[...].tolist() == expected.tolist()


class Busy(AsyncOnly):
    """Fails for one chunk while it stores others, which take their time even to be called off."""

    running = 0

    async def set(self, key, value):
        if "/c/" not in key:
            return await super().set(key, value)
        self.running += 1
        try:
            for _ in range(5000):
                if key.endswith("/c/0") and self.running > 8:
                    raise OSError("broken")
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            for _ in range(1000):
                await asyncio.sleep(0)
            raise
        finally:
            self.running -= 1


@pytest.mark.parametrize(
    ("dtype", "shards"), [("f8", None), ("f8", (1,)), ("optional[float64]", None)], ids=str
)
def test_after_a_failure_nothing_is_on_its_way(dtype, shards):
    """Whoever catches the error may remove what was written, or go on."""
    store = Busy(MemoryStore())
    array = intarsia.create(store, "a", shape=(16,), chunks=(1,), dtype=dtype)
    array.add_region([(0, 16)], codecs=[], shards=shards)
    with pytest.raises(OSError, match="broken"):
        array[...] = np.ones(16)
    assert store.running == 0
