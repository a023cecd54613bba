"""`one_of`: pipelines that exclude one another."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec

import intarsia
from intarsia.codecs import OneOf, ShuffleCodec, one_of
from intarsia.errors import CodecConfigurationError
from tests.grids import dear

SHUFFLE = ShuffleCodec(element_size=4)
KINDS = {
    "sevens": lambda rng, n: np.full(n, 7, "i4"),
    "noise": lambda rng, n: rng.integers(-(2**31), 2**31, n, dtype="i4"),
    "ramp": lambda rng, n: (np.arange(n) * 1000).astype("i4"),
    "words": lambda rng, n: rng.choice(np.array([7, 7000, 70_000_000], "i4"), n),
    "walk": lambda rng, n: np.cumsum(rng.integers(-3, 4, n)).astype("i4"),
}


def mixed(seed, chunks, size):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(KINDS), chunks)
    return np.concatenate([KINDS[kind](rng, size) for kind in kinds])


def stored(data, size, codecs):
    store = {}
    z = zarr.create(
        store=store, shape=data.shape, chunks=size, dtype=data.dtype, codecs=[BytesCodec(), *codecs]
    )
    z[:] = data
    np.testing.assert_array_equal(zarr.open_array(store)[:], data)
    return z, store


def sizes(store):
    return {key: len(value) for key, value in store.items() if key.startswith("c/")}


def test_alternatives_share_codecs_where_the_order_allows_it():
    codec = one_of([["crc32c"], [SHUFFLE, "gzip"], [SHUFFLE, "zstd"], "zstd"])
    assert [nested.to_dict()["name"] for nested in codec.codecs] == ["crc32c", "shuffle", "gzip", "zstd"]
    assert codec.decision == OneOf((0b0001, 0b0110, 0b1010, 0b1000))
    # zstd before shuffle is another pipeline than shuffle before zstd
    turned = one_of([["zstd", SHUFFLE], [SHUFFLE, "zstd"]])
    assert turned.decision.alternatives == (0b011, 0b110)
    assert [nested.to_dict()["name"] for nested in turned.codecs] == ["zstd", "shuffle", "zstd"]


@dear
@given(st.integers(0, 2**32), st.sampled_from([3, 100, 2000]), st.permutations(range(3)))
def test_never_larger_than_the_best_single_choice(seed, size, order):
    pipelines = [[GzipCodec(level=1)], [SHUFFLE, ZstdCodec(level=1)], [ZstdCodec(level=3)]]
    data = mixed(seed, 4, size)
    z, store = stored(data, size, [one_of([pipelines[i] for i in order])])
    ours = sizes(store)
    for pipeline in pipelines:
        alone = sizes(stored(data, size, pipeline)[1])
        assert all(ours[key] <= alone[key] + 1 for key in ours)
    assert all(size_of <= 4 * size + 1 for size_of in ours.values())
    chosen = set(intarsia.codecs.masks(z).compressed().tolist())
    assert chosen <= {0, *z.metadata.codecs[1].decision.alternatives}


def test_what_was_chosen_has_names(tmp_path):
    data = np.concatenate(
        [KINDS[kind](np.random.default_rng(0), 2000) for kind in ("ramp", "noise", "sevens")]
    )
    z, _ = stored(data, 2000, [one_of(["gzip", [SHUFFLE, "zstd"]])])
    assert intarsia.codecs.masks(z, names=True).tolist() == ["shuffle+zstd", "raw", "shuffle+zstd"]
    shard = ShardingCodec(chunk_shape=(2000,), codecs=[BytesCodec(), one_of(["gzip", [SHUFFLE, "zstd"]])])
    sharded = zarr.create(store={}, shape=6000, chunks=6000, dtype="i4", codecs=[shard])
    sharded[:4000] = data[:4000]
    assert intarsia.codecs.masks(sharded, names=True).tolist() == ["shuffle+zstd", "raw", None]
    logical = intarsia.create(tmp_path / "l", "a", shape=(0,), chunks=(2000,), dtype="i4")
    logical.append(data, codecs=[one_of(["gzip", [SHUFFLE, "zstd"]])])
    named = intarsia.codecs.masks(logical, names=True)
    assert {bounds: part.tolist() for bounds, part in named.items()} == {
        ((0, 6000),): ["shuffle+zstd", "raw", "shuffle+zstd"]
    }


def test_a_slow_line_weighs_size_alone_and_an_infinitely_fast_one_decoding_alone():
    data = mixed(1, 6, 20_000)
    pipelines = [["gzip"], [SHUFFLE, "zstd"], [{"name": "zstd", "configuration": {"level": 9}}]]
    small = intarsia.codecs.masks(stored(data, 20_000, [one_of(pipelines)])[0])
    slow = intarsia.codecs.masks(stored(data, 20_000, [one_of(pipelines, weight=1e-3)])[0])
    assert small.tolist() == slow.tolist()
    endless = intarsia.codecs.masks(stored(data, 20_000, [one_of(pipelines, weight=1e300)])[0])
    assert endless.tolist() == [0] * 6  # nothing is decoded faster than what is not encoded


def test_a_faster_line_prefers_the_codec_that_decodes_faster():
    gzip, zstd = GzipCodec(level=9), ZstdCodec(level=1)
    chunk = KINDS["walk"](np.random.default_rng(0), 20_000)
    smallest, fastest = (
        intarsia.codecs.masks(stored(chunk, 20_000, [one_of([gzip, zstd], weight=weight)])[0], names=True)
        for weight in ("small", 2e8)
    )
    assert (smallest.tolist(), fastest.tolist()) == (["gzip"], ["zstd"])


def test_an_array_that_was_opened_again_chooses_on(tmp_path):
    codec = one_of(["gzip", [SHUFFLE, "zstd"]])
    z = zarr.create(store=tmp_path / "a", shape=4000, chunks=2000, dtype="i4", codecs=[BytesCodec(), codec])
    z[:2000] = KINDS["ramp"](None, 2000)
    again = intarsia.codecs.with_decision(zarr.open_array(tmp_path / "a"), codec.decision)
    again[2000:] = KINDS["ramp"](None, 2000)
    assert intarsia.codecs.masks(again, names=True).tolist() == ["shuffle+zstd"] * 2


def test_a_pipeline_that_cannot_work_on_a_chunk_is_passed_over():
    shuffle = ShuffleCodec(element_size=7)  # 4 bytes an element: never a whole number of sevens
    z, _ = stored(np.full(1000, 7, "i4"), 1000, [one_of([[shuffle, "zstd"], "gzip"])])
    assert intarsia.codecs.masks(z, names=True).tolist() == ["gzip"]


@pytest.mark.parametrize(
    ("alternatives", "weight", "match"),
    [
        (["zstd"], "quick", "'quick' is not 'small', 'fast' or"),
        (["zstd"], -1, "bytes per second"),
        (["zstd"], True, "bytes per second"),
        (["zstd"], float("nan"), "bytes per second"),
        (["bytes"], "small", "bytes -> bytes"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(alternatives, weight, match):
    with pytest.raises(CodecConfigurationError, match=match):
        one_of(alternatives, weight=weight)
