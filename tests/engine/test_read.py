"""What a read costs: which bytes are fetched, how often, and how much memory it takes."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.storage import MemoryStore, WrapperStore

import intarsia
from intarsia._compat import HAS_GIL
from intarsia.codecs.compressors import HAS_BATCHES
from tests.grids import dear
from tests.logical import strategies as s


class Counted(WrapperStore):
    """Counts reads of each key."""

    def __init__(self, store):
        super().__init__(store)
        self.reads = {}

    def _with_store(self, store):
        return self

    def get_sync(self, key, *, prototype=None, byte_range=None):
        if "/c/" in key or key.endswith("/c"):
            self.reads[key] = self.reads.get(key, 0) + 1
        return super().get_sync(key, prototype=prototype, byte_range=byte_range)


def counted(array):
    store = Counted(array.store)
    return store, intarsia.open(store, array.path)


@dear
@given(st.data())
def test_every_chunk_is_read_once_whatever_the_selection(data):
    array, model = data.draw(s.arrays())
    if any(region.member.shards for region in array.regions):
        return
    store, there = counted(array)
    selection = data.draw(s.orthogonal(model.shape))
    np.testing.assert_array_equal(there.oindex[selection], s.by_numpy_orthogonal(model, selection))
    assert set(store.reads.values()) <= {1}
    assert len(store.reads) == intarsia.explain(there, selection, mode="orthogonal").chunks


def test_points_in_one_chunk_read_it_once():
    array = intarsia.create(MemoryStore(), "a", shape=(100,), chunks=(50,), dtype="i4")
    array.add_region(((0, 100),), codecs=["zstd"], data=np.arange(100))
    store, there = counted(array)
    assert there.vindex[[3, 60, 3, 1, 99]].tolist() == [3, 60, 3, 1, 99]
    assert sorted(store.reads.values()) == [1, 1]


def test_chunks_that_a_stride_skips_are_not_read():
    array = intarsia.create(MemoryStore(), "a", shape=(100,), chunks=(10,), dtype="i4")
    array.add_region(((0, 100),), codecs=[], data=np.arange(100))
    store, there = counted(array)
    assert there[5::25].tolist() == [5, 30, 55, 80]
    assert len(store.reads) == 4


def test_holes_cost_no_read():
    array = intarsia.create(MemoryStore(), "a", shape=(100,), chunks=(10,), dtype="i4", fill_value=4)
    array.add_region(((90, 100),), codecs=[], data=np.arange(10))
    store, there = counted(array)
    assert there[:90].tolist() == [4] * 90
    assert not store.reads


def test_chunks_that_a_snapshot_does_not_hold_cost_no_read(tmp_path, monkeypatch):
    import icechunk

    for storage in (icechunk.in_memory_storage(), icechunk.local_filesystem_storage(str(tmp_path))):
        repository = icechunk.Repository.create(storage)
        session = repository.writable_session("main")
        array = intarsia.create(session.store, "a", shape=(100,), chunks=(10,), dtype="i4")
        array.add_region(((0, 100),), codecs=[], fill_value=6)
        session.commit("nothing in it")
        there = intarsia.open(repository.readonly_session("main").store, "a")

        def refuse(*_):
            raise AssertionError("a chunk was asked for")

        monkeypatch.setattr("intarsia.engine.fetch.icechunk.get_many", refuse)
        assert there[:].tolist() == [6] * 100
        monkeypatch.undo()


def test_a_read_is_planned_with_one_manifest_while_another_thread_edits():
    array = intarsia.create(MemoryStore(), "a", shape=(0,), chunks=(4,), dtype="i8")
    array.append(np.arange(40), codecs=["zstd"])
    stop, failures = threading.Event(), []

    def read():
        try:
            while not stop.is_set():
                values = array[:40]
                assert values.tolist() == list(range(40))
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for i in range(15):
            array.append(np.full(4, i), codecs=["gzip" if i % 2 else "zstd"], merge=False)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not failures


def test_a_little_of_large_chunks_that_are_not_compressed_takes_one_thread(monkeypatch):
    monkeypatch.setattr("intarsia.engine.thread_pool.WORTH_A_READING_THREAD", 16 << 10)
    array = intarsia.create(MemoryStore(), "a", shape=(8, 1 << 16), chunks=(1, 1 << 16), dtype="f8")
    array.add_region(((0, 4), (0, 1 << 16)), codecs=[], data=np.ones((4, 1 << 16)))
    array.add_region(((4, 8), (0, 1 << 16)), codecs=["zstd"], data=np.ones((4, 1 << 16)))
    many = array.with_config(threads=4)
    assert intarsia.explain(many, np.s_[:4, :9]).threads == 1
    assert intarsia.explain(many, np.s_[:4]).threads == 4
    assert intarsia.explain(many, np.s_[4:, :9]).threads == 4
    monkeypatch.setattr("intarsia.engine.thread_pool.WORTH_A_READING_THREAD", 256 << 10)
    assert [intarsia.explain(many, rows).threads for rows in (np.s_[:4], np.s_[4:])] == [1, 4]


FAST = BloscCodec(cname="lz4")


@pytest.mark.skipif(not HAS_GIL, reason="threads of this Python hand no lock to one another")
@pytest.mark.parametrize(
    ("codec", "side", "threads"),
    [
        (GzipCodec(), 32, 1),
        (ZstdCodec(), 32, 1 + HAS_BATCHES),
        (ZstdCodec(), 64, 2),
        (FAST, 128, 1),
        (FAST, 256, 1),
        (FAST, 512, 2),
        (BloscCodec(), 128, 2),
    ],
)
def test_small_chunks_are_decoded_by_one_thread_unless_many_are_one_call(codec, side, threads, monkeypatch):
    monkeypatch.undo()
    values = np.arange(1 << 20, dtype="f4").reshape(1024, 1024)
    array = zarr.create_array({}, data=values, chunks=(side, side), shards=(512, 512), compressors=codec)
    reader = intarsia.reader(array).with_config(threads=2)
    assert intarsia.explain(reader, ...).threads == threads
    np.testing.assert_array_equal(reader[...], values)


@pytest.mark.skipif(not HAS_GIL, reason="threads of this Python hand no lock to one another")
def test_chunks_that_take_long_are_shared_among_threads_beside_those_that_do_not(monkeypatch):
    monkeypatch.undo()
    array = intarsia.create({}, "a", shape=(2048, 512), chunks=(128, 128), dtype="f4")
    values = np.arange(1 << 19, dtype="f4").reshape(1024, 512)
    array.add_region(((0, 1024), (0, 512)), codecs=[FAST], data=values)
    array.add_region(((1024, 2048), (0, 512)), codecs=["zstd"], data=values)
    array = array.with_config(threads=2)
    assert [intarsia.explain(array, rows).threads for rows in (np.s_[:1024], np.s_[1024:], ...)] == [1, 2, 2]


def test_results_are_the_callers_own():
    array = intarsia.create(MemoryStore(), "a", shape=(8,), chunks=(8,), dtype="i8")
    array.add_region(((0, 8),), codecs=[], data=np.arange(8))
    first = array[:]
    first[:] = -1
    assert array[:].tolist() == list(range(8))
    assert array[3].flags.writeable


MEASURED = """
import sys
import icechunk, numpy as np, zarr, intarsia
from pathlib import Path
from tests.logical.places import AsyncOnly

kind, folder, window = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
shape = (2048, 1024)
if kind.startswith("icechunk"):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder / "r")))
    session = repository.writable_session("main")
    store = session.store
else:
    store = zarr.storage.LocalStore(folder / "files")
array = intarsia.create(store, "a", shape=shape, chunks=(128, 128), dtype="float64")
rng = np.random.default_rng(0)
codecs = [[], ["zstd"], ["gzip"], ["blosc"]]
for i in range(8):
    data = rng.random((256, 1024))  # nothing to compress, so that what is held shows
    shards = (256, 256) if kind == "shards" else None
    array.add_region(((i * 256, i * 256 + 256), (0, 1024)), codecs=codecs[i % 4], data=data, shards=shards)
if kind == "icechunk":
    session.commit("data")
    store = repository.readonly_session("main").store
elif kind == "asynchronous":
    store = AsyncOnly(store)
if kind == "by zarr":
    from unittest import mock
    from intarsia.engine import prepared_member as source
    source.Decoder = mock.Mock(side_effect=source._ObstacleError("a test"))

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

array = intarsia.open(store, "a").with_config(window_bytes=window, threads=4)
array[:256, :256].sum()  # what is imported and kept after a first read is not what a read takes
array[::300, ::300].sum()
del data
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
out = array[...]
print(status("VmHWM") - before - out.nbytes)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux to measure")
@pytest.mark.parametrize(
    "kind", ["icechunk", "icechunk uncommitted", "files", "asynchronous", "shards", "by zarr"]
)
def test_a_read_takes_no_more_memory_than_its_window(kind, tmp_path):
    """16 MiB are read; the window is 4 MiB, and 5 MiB are granted to the allocator and the libraries."""
    window = 4 << 20
    program = [sys.executable, "-c", MEASURED, kind, str(tmp_path), str(window)]
    one_heap = {
        **os.environ,
        "MALLOC_ARENA_MAX": "1",
    }  # with one for each thread, what they keep is up to chance
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, cwd=os.getcwd(), env=one_heap)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= window + (5 << 20)


def test_reading_in_slices_lets_go_of_what_was_read(tmp_path):
    """As one walks over an array that is larger than memory: nothing adds up from slice to slice."""
    import tracemalloc

    from tests.logical.places import icechunk_local
    from tests.logical.stores import stored

    array = intarsia.create(MemoryStore(), "a", shape=(400, 2000), chunks=(10, 2000), dtype="f8")
    for i in range(4):
        box = ((i * 100, i * 100 + 100), (0, 2000))
        array.add_region(box, codecs=["zstd"], data=np.full((100, 2000), i + 1.5))
    with icechunk_local(stored(array.store), tmp_path) as store:
        there = intarsia.open(store, "a")
        there[...]
        tracemalloc.start()
        there[0:10].sum()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for start in range(0, 400, 10):
            there[start : start + 10].sum()
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert after - before < 100_000
    assert peak - before < 3 * 10 * 2000 * 8
