"""What a chunk costs, by its codecs and by where it lies."""

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import intarsia
from intarsia.codecs.coding_costs import decode_cost
from intarsia.engine.plan import plan
from intarsia.engine.replica_choice import LayerChoice, ReadCost
from intarsia.engine.request import parse_selection
from tests.logical.places import AsyncOnly


def member(**options):
    return zarr.create_array({}, shape=(8, 8), chunks=(4, 4), dtype="f4", **options)


def cost(**options):
    return decode_cost(member(**options).metadata.codecs)


def test_slower_codecs_cost_more():
    blosc = zarr.codecs.BloscCodec
    chains = [
        None,
        blosc(cname="lz4"),
        blosc(cname="zstd"),
        zarr.codecs.ZstdCodec(),
        zarr.codecs.GzipCodec(),
        [zarr.codecs.numcodecs.Shuffle(elementsize=4), zarr.codecs.GzipCodec()],
    ]
    costs = [cost(compressors=chain) for chain in chains]
    assert costs == sorted(costs)
    assert len(set(costs)) == len(costs)


def test_codecs_cost_the_same_in_shards():
    gzip = zarr.codecs.GzipCodec()
    assert cost(compressors=gzip, shards=(8, 8)) == cost(compressors=gzip)


def test_far_away_few_requests_count_more():
    few, many = (1, 200_000, 1.0), (4, 30_000, 1.0)
    assert ReadCost.of(*many, near=True).cost < ReadCost.of(*few, near=True).cost
    assert ReadCost.of(*few, near=False).cost < ReadCost.of(*many, near=False).cost


def test_the_choice_depends_on_where_the_chunks_lie():
    store = MemoryStore()
    array = intarsia.create(store, "a", shape=(0, 512), chunks=(1, 512), dtype="f4")
    array.append(np.arange(64 * 512, dtype="f4").reshape(64, 512), codecs=["zstd"])
    array.add_replica(chunks=(64, 256), codecs=["zstd"])
    for place, layer in ((store, 0), (AsyncOnly(store), 1)):  # 4 chunks of 2 kB, or 1 of 64 kB
        explained = intarsia.explain(intarsia.open(place, "a"), np.s_[:4, :64])
        assert [part.layer for part in explained.parts] == [layer]


def test_where_chunks_are_alike_the_faster_codec_wins():
    array = intarsia.create({}, "a", shape=(0, 64), chunks=(1, 64), dtype="f4")
    array.append(np.ones((64, 64), "f4"), codecs=["gzip"], chunks=(64, 64))
    array.add_replica(chunks=(64, 64), codecs=[])
    assert [part.layer for part in intarsia.explain(array, np.s_[3]).parts] == [1]
    array.drop_replica(layer=1)
    array.add_replica(chunks=(64, 64), codecs=["gzip"])
    assert [part.layer for part in intarsia.explain(array, np.s_[3]).parts] == [0]


def random_slices(random, shape):
    for n in shape:
        low, high = sorted(random.integers(0, n + 1, 2).tolist())
        step = int(random.choice([1, 1, 1, 2, 5]))
        yield (
            slice(low, high, step)
            if random.random() < 0.8
            else slice(high - 1, low - 1 if low else None, -step)
        )


@pytest.mark.parametrize("layer", [None, 0, 1, 2])
def test_slices_are_read_from_every_layer(layer):
    values = np.arange(28 * 9, dtype="f4").reshape(28, 9)
    array = intarsia.create({}, "a", shape=(0, 9), chunks=(1, 9), dtype="f4")
    array.append(values[:24], codecs=["zstd"], chunks=(1, 9))
    array.add_replica(chunks=(24, 2), codecs=["zstd"])
    array.add_replica(((4, 16), (0, 9)), chunks=(4, 3), codecs=[])
    array.append(values[24:], codecs=["gzip"], chunks=(2, 9))
    assert array.manifest.layers == (0, 1, 2)
    random = np.random.default_rng(20)
    selections = [tuple(random_slices(random, values.shape)) for _ in range(150)]
    state, reading = array._logical.state, array.with_config(layer=layer)
    choose = LayerChoice(layer).chooser_for(state)
    plans = [plan(state.manifest, parse_selection(values.shape, each), choose=choose) for each in selections]
    alone = {
        int(state.manifest.regions_and_replicas.layer[each.parts[0].row])
        for each in plans
        if len(each.parts) == 1
    }
    assert alone == ({0, 1, 2} if layer is None else {0, layer})
    for selection in selections[:30]:
        np.testing.assert_array_equal(reading[selection], values[selection])
