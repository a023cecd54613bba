"""Which layer dask's blocks are read from: the one that suits each block, whoever cut it."""

import numpy as np
import pytest
import xarray as xr
from zarr.storage import MemoryStore

import intarsia
from tests.engine.test_read import Counted

SHAPE, MAP, SERIES = (40, 12, 16), (1, 12, 16), (40, 4, 4)
VALUES = np.random.default_rng(0).normal(size=SHAPE).astype("f4")


@pytest.fixture
def store():
    store = MemoryStore()
    array = intarsia.create(
        store, "t", shape=(0, *SHAPE[1:]), chunks=MAP, dtype="f4", dimension_names=("time", "lat", "lon")
    )
    array.append(VALUES, codecs=["zstd"])
    array.add_replica(chunks=SERIES, codecs=["zstd"])
    return Counted(store)


def layers_read(store):
    """How many chunks of each layer were fetched."""
    replicas = {replica.name for replica in intarsia.open(store, "t").replicas}
    counts = {0: 0, 1: 0}
    for key, times in store.reads.items():
        counts[int(key.split("/")[1] in replicas)] += times
    return counts


BLOCKS = [
    ({"time": -1, "lat": 4, "lon": 4}, SERIES, {0: 0, 1: 12}),
    ({"time": 1}, MAP, {0: 40, 1: 0}),
    ({}, MAP, {0: 40, 1: 0}),
]


# xarray takes layer 0's blocks for axes that are not named: one block, which is read from the better layer.
ONE = ({"time": -1}, SHAPE, {0: 0, 1: 12})
HALVES = ({"time": 20, "lat": 4, "lon": 4}, (20, 4, 4), {0: 0, 1: 24})


@pytest.mark.parametrize(("chunks", "blocks", "read"), [ONE, HALVES, *BLOCKS])
def test_datasets_that_xarray_cuts_into_blocks(store, chunks, blocks, read):
    lazy = xr.open_dataset(store, engine="intarsia", chunks=chunks)["t"]
    assert lazy.data.chunksize == blocks
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), VALUES)
    assert layers_read(store) == read


@pytest.mark.parametrize(("chunks", "blocks", "read"), [ONE, HALVES, *BLOCKS])
def test_arrays_that_dask_cuts_into_blocks(store, chunks, blocks, read):
    array = intarsia.open(store, "t")
    entries = tuple(map(chunks.get, ("time", "lat", "lon"), MAP))
    for lazy in (array.to_dask(chunks=entries), array.to_xarray(chunks=chunks).data):
        store.reads.clear()
        assert lazy.chunksize == blocks
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), VALUES)
        assert layers_read(store) == read


def test_one_place_and_one_day_of_a_dataset_without_dask(store):
    lazy = xr.open_dataset(store, engine="intarsia")["t"]
    np.testing.assert_array_equal(lazy[:, 5, 6], VALUES[:, 5, 6])
    assert layers_read(store) == {0: 0, 1: 1}
    store.reads.clear()
    np.testing.assert_array_equal(lazy[7], VALUES[7])
    assert layers_read(store) == {0: 1, 1: 0}


def test_a_dataset_takes_the_blocks_of_a_layer_that_is_named(store):
    array = intarsia.open(store, "t")
    for lazy in (
        xr.open_dataset(store, engine="intarsia", chunks={"time": -1}, layer=1)["t"].data,
        array.to_xarray(chunks={"time": -1}, layer=1).data,
        array.with_config(layer=1).to_dask(),
    ):
        store.reads.clear()
        assert lazy.chunksize == SERIES
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), VALUES)
        assert layers_read(store) == {0: 0, 1: 12}


def test_blocks_that_no_layer_has_are_warned_of_where_there_is_one_layer(store):
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        xr.open_dataset(store, engine="intarsia", chunks={"lat": 3}, layer=1)
