"""Which chunks a store has, on stores of several kinds."""

import icechunk
import numpy as np
import obstore
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore, ObjectStore, WrapperStore, ZipStore

from intarsia.codecs.stored import stored_indices


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
