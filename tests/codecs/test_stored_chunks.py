"""Which chunks a store has, on stores of several kinds."""

import icechunk
import numpy as np
import obstore
import pytest
import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore

from intarsia._compat import sync
from intarsia.codecs import iter_chunk_slices
from intarsia.codecs.stored_chunks import read_parts, stored_indices
from tests.codecs.stores import AsyncOnly


class Unlisted(WrapperStore):
    supports_listing = False


def stores(tmp_path):
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    return {
        "memory": MemoryStore(),
        "local": LocalStore(tmp_path / "local"),
        "obstore": ObjectStore(obstore.store.MemoryStore()),
        "zip": ZipStore(tmp_path / "a.zip", mode="w"),
        "icechunk": repository.writable_session("main").store,
        "unlisted": Unlisted(MemoryStore()),
    }


@pytest.mark.parametrize("path", ["", "a/b"])
@pytest.mark.parametrize("kind", ["memory", "local", "obstore", "zip", "icechunk"])
def test_only_what_is_stored_is_listed(kind, path, tmp_path):
    store = stores(tmp_path)[kind]
    z = zarr.create_array(store, name=path or None, shape=(10**7, 6), chunks=(1, 2), dtype="u1")
    z[[3, 10**6], 4:] = 7
    assert stored_indices(z) == [(3, 2), (10**6, 2)]
    z.store.close()


def test_a_store_that_cannot_list_has_all_places(tmp_path):
    z = zarr.create_array(stores(tmp_path)["unlisted"], shape=(2, 2), chunks=(1, 1), dtype="u1")
    assert list(stored_indices(z)) == list(np.ndindex(2, 2))


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("encoding", ["v2", "default"])
def test_every_way_to_spell_keys_is_understood(encoding, separator):
    keys = {"name": encoding, "separator": separator}
    for shape in ((), (4,), (4, 6)):
        z = zarr.create_array({}, shape=shape, chunks=(2,) * len(shape), dtype="u1", chunk_key_encoding=keys)
        assert stored_indices(z) == []
        z[...] = 7
        assert stored_indices(z) == list(np.ndindex(tuple(n // 2 for n in shape)))


def test_chunks_outside_the_grid_are_left_out():
    z = zarr.create_array({}, shape=4, chunks=2, dtype="u1")
    z[:] = 7
    store = z.store._store_dict
    store["c/9"] = store["c/0"]
    assert stored_indices(z) == [(0,), (1,)]


def test_the_chunks_of_an_array_further_below_are_not_its_own():
    z = zarr.create_array({}, name="a", shape=4, chunks=2, dtype="u1")
    z[:2] = 7
    store = z.store._store_dict
    store["a/b/c/1"] = store["a/c/0"]
    assert stored_indices(z) == [(0,)]


CONTENT = bytes(range(100))


@pytest.mark.parametrize("kind", ["local store", "memory store", "asynchronous store"])
def test_parts_of_an_object(kind, tmp_path):
    store = {
        "local store": lambda: LocalStore(tmp_path),
        "memory store": MemoryStore,
        "asynchronous store": lambda: AsyncOnly(MemoryStore()),
    }[kind]()
    path = StorePath(store, "some/key")
    sync(path.set(default_buffer_prototype().buffer.from_bytes(CONTENT)))
    requests = [None, RangeByteRequest(7, 20), SuffixByteRequest(5), RangeByteRequest(90, 120)]
    parts = read_parts(path, requests)
    assert [part.to_bytes() for part in parts] == [CONTENT, CONTENT[7:20], CONTENT[-5:], CONTENT[90:]]
    assert read_parts(StorePath(store, "other"), requests) == [None] * 4


@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_the_slices_of_chunks(shards):
    z = zarr.create_array({}, shape=(5, 7), chunks=(2, 2), shards=shards, dtype="u1")
    seen = np.zeros(z.shape, "u1")
    slices = list(iter_chunk_slices(z))
    for chunk in slices:
        seen[chunk] += 1
    assert (seen == 1).all()
    assert len(slices) == (12 if shards is None else 4)
    assert slices[-1] == (np.s_[4:5, 6:7] if shards is None else np.s_[4:5, 4:7])
