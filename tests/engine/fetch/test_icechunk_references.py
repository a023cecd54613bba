"""The table of chunk references agrees with Icechunk, chunk by chunk."""

import icechunk
import numpy as np
import pytest
import zarr
from icechunk import ChunkType

from intarsia import _icechunk
from intarsia.engine.fetch import icechunk as icechunk_fetcher
from intarsia.engine.fetch.icechunk import IcechunkSession
from intarsia.engine.prepared_member import PreparedMember


@pytest.fixture
def array():
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(7, 400), chunks=(2, 100), dtype="f8", compressors=None
    )
    array[:4] = np.random.default_rng(0).normal(size=(4, 400))
    array[6:, 300:] = 1
    zarr.create_array(session.store, name="none", shape=(4,), chunks=(2,), dtype="f8")
    zarr.create_array(session.store, name="scalar", shape=(), dtype="f8")[...] = 5
    session.commit("chunks")
    return repository.readonly_session("main").store


def table(store, name, **options):
    source = PreparedMember.of(name, zarr.open_array(store, path=name, mode="r"))
    return listed(store, [source])[0], source


def listed(store, sources):
    """The tables of some members."""
    session = IcechunkSession(_icechunk.safe_store(store))
    session.locate([(source, np.arange(source.object_count)) for source in sources])
    return [session.references(source) for source in sources]


def test_the_kinds_are_those_of_icechunk():
    kinds = (_icechunk.NATIVE, _icechunk.VIRTUAL, _icechunk.INLINE)
    assert kinds == tuple(map(int, (ChunkType.native, ChunkType.virtual, ChunkType.inline)))


def test_every_stored_chunk_has_a_row(array):
    found, source = table(array, "a")
    assert source.object_grid == (4, 4)
    assert found.object_index.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 15]
    assert found.rows(np.array([15, 8, 0, 99])).tolist() == [8, -1, 0, -1]
    assert found.sizes(np.array([15, 8, 0])).tolist() == [1600, -1, 1600]
    assert found.kinds == {_icechunk.NATIVE}


def test_batches_are_joined(array, monkeypatch):
    iterate = icechunk.IcechunkStore.array_chunk_iterator
    monkeypatch.setattr(
        icechunk.IcechunkStore, "array_chunk_iterator", lambda self, path: iterate(self, path, batch_size=2)
    )
    found, _ = table(array, "a")
    assert found.object_index.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 15]


def test_arrays_without_chunks_and_without_axes(array):
    found, _ = table(array, "none")
    assert found.sizes(np.array([0, 1])).tolist() == [-1, -1]
    found, _ = table(array, "scalar")
    assert found.object_index.tolist() == [0]
    assert set(found.inlined) == {0}


def test_what_lies_outside_the_grid_is_left_out(array):
    source = PreparedMember.of("a", zarr.open_array(array, path="a", mode="r"))
    source.object_grid = (2, 4)
    assert listed(array, [source])[0].object_index.tolist() == list(range(8))


def test_inlined_chunks_are_found_behind_others():
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(400,), chunks=(100,), dtype="f8")
    array[200:] = np.random.default_rng(0).normal(size=200)
    array[:100] = 3
    session.commit("a chunk that is tiny, one that is not stored, two that are large")
    store = repository.readonly_session("main").store
    found, source = table(store, "a")
    assert found.object_index.tolist() == [0, 2, 3]
    assert found.inlined.keys() == {0}
    assert len(found.inlined[0]) == found.nbytes[0]
    assert source.keys(found.object_index) == ["a/c/0", "a/c/2", "a/c/3"]


@pytest.mark.parametrize("at_a_time", [1, 4, 32])
def test_several_arrays_at_a_time(array, at_a_time, monkeypatch):
    monkeypatch.setattr(icechunk_fetcher, "MEMBERS_LISTED_AT_A_TIME", at_a_time)
    paths = ["a", "none", "scalar"] * 3
    sources = [PreparedMember.of(path, zarr.open_array(array, path=path, mode="r")) for path in paths]
    counts = [found.object_index.size for found in listed(array, sources)]
    assert counts == [9, 0, 1] * 3
