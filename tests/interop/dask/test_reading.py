"""Reading through dask: one block for a chunk, names that tell versions apart."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.base import tokenize
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from tests.array.strategies import arrays, axis_slices
from tests.interop.datasets import CountingStore


@given(st.data())
def test_a_dask_array_has_the_values_of_the_logical_array(data):
    array, model = data.draw(arrays())
    lazy = array.to_dask()
    assert (lazy.shape, lazy.dtype) == (model.shape, model.dtype)
    with dask.config.set(scheduler="sync"):
        assert np.array_equal(lazy.compute(), model)
        chosen = tuple(data.draw(axis_slices(n)) for n in model.shape)
        # dask takes [-n - 1 :: -1], which is empty, for [::-1]: so the model is one of its arrays, too
        assert np.array_equal(lazy[chosen].compute(), da.from_array(model)[chosen].compute())


def two_members(store):
    array = intarsia.create(store, "a", shape=(0, 6), chunks=(1, 6), dtype="i4")
    array.append(np.arange(60).reshape(10, 6), codecs=["gzip"], chunks=(4, 3))
    array.append(np.arange(60, 90).reshape(5, 6), codecs=["zstd"], chunks=(5, 6))
    return array


def test_every_chunk_is_read_once():
    store = CountingStore(zarr.storage.MemoryStore())
    two_members(store)
    lazy = intarsia.open(store, "a").to_dask()
    assert lazy.chunks == ((4, 4, 2, 5), (6,))
    store.gets.clear()
    lazy.compute()
    chunks = {key: count for key, count in store.gets.items() if not key.endswith("zarr.json")}
    assert len(chunks) == 7
    assert set(chunks.values()) == {1}


def test_other_blocks_can_be_asked_for():
    array = two_members({})
    assert array.to_dask(chunks=(15, 2)).chunks == ((15,), (2, 2, 2))
    assert array.to_dask(chunks="auto").numblocks == (1, 1)
    assert array.to_dask(chunks={0: -1}).chunks == ((15,), (6,))
    assert np.array_equal(array.to_dask(chunks=7).compute(), array[...])


def test_fancy_indexing_equals_numpy():
    array = two_members({})
    model = array[...]
    lazy = array.to_dask()
    assert np.array_equal(lazy[[14, 0, 7]].compute(), model[[14, 0, 7]])
    assert np.array_equal(lazy[:, [5, 1]][::-3].compute(), model[:, [5, 1]][::-3])
    assert np.array_equal(lazy[lazy % 7 == 0].compute(), model[model % 7 == 0])
    assert np.array_equal(lazy.vindex[[1, 12], [3, 5]].compute(), model[[1, 12], [3, 5]])


def test_equal_snapshots_have_equal_names_and_others_have_others():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        two_members(tx.store)
    first = intarsia.open(repo, "a")
    assert first.to_dask().name == intarsia.open(repo, "a").to_dask().name
    assert first.to_dask().name != first.to_dask(chunks=5).name
    with intarsia.transaction(repo, message="second") as tx:
        tx.open("a")[0, 0] = 7
    second = intarsia.open(repo, "a")
    assert second.to_dask().name != first.to_dask().name
    assert intarsia.open(repo, "a", snapshot_id=tx.snapshot_id).to_dask().name == second.to_dask().name
    assert (second.to_dask() - first.to_dask()).compute()[0, 0] == 7


def test_where_values_may_change_no_two_names_are_equal():
    repo = intarsia.open_repository("memory://", create=True)
    session = repo.writable_session("main")
    two_members(session.store)
    two_members(store := {})
    for place in (session.store, store):
        assert tokenize(intarsia.open(place, "a")) != tokenize(intarsia.open(place, "a"))


def test_errors_of_a_read_come_through():
    array = two_members({})
    del array.group[array.regions[1].name]
    lazy = intarsia.open(array.store, "a").to_dask()
    assert lazy[:10].sum().compute() == np.arange(60).sum()
    with pytest.raises(intarsia.errors.MissingMemberError):
        lazy.sum().compute()


def test_a_nullable_array_becomes_masked_arrays():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="optional[int16]")
    array.append([1, None, 3])
    array.append([None, 5], codecs=["zstd"])
    lazy = array.to_dask()
    assert isinstance(lazy._meta, np.ma.MaskedArray)
    assert (lazy * 2).compute().tolist() == [2, None, 6, None, 10]
    assert lazy.sum().compute() == 9
    nested = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="optional[optional[int16]]")
    with pytest.raises(intarsia.errors.DataTypeError, match="several levels"):
        nested.to_dask()
