"""What a chunk costs, by its codecs and by where it lies."""

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import intarsia
from intarsia.array.prices import ChunkPrice, decoding_work
from tests.array.places import AsyncOnly


def member(**options):
    return zarr.create_array({}, shape=(8, 8), chunks=(4, 4), dtype="f4", **options)


def test_slower_codecs_cost_more():
    blosc = zarr.codecs.BloscCodec
    chains = [
        None,
        blosc(cname="lz4"),
        zarr.codecs.ZstdCodec(),
        zarr.codecs.GzipCodec(),
        [zarr.codecs.numcodecs.Shuffle(elementsize=4), zarr.codecs.GzipCodec()],
    ]
    works = [decoding_work(member(compressors=chain)) for chain in chains]
    assert works == sorted(works)
    assert len(set(works)) == len(works)
    assert decoding_work(member(compressors=blosc(cname="lz4"))) < decoding_work(
        member(compressors=blosc(cname="zstd"))
    )


@pytest.mark.parametrize("options", [{"shards": (8, 8)}, {"zarr_format": 2}])
def test_codecs_cost_the_same_in_shards_and_in_format_2(options):
    gzip = numcodecs.GZip() if "zarr_format" in options else zarr.codecs.GzipCodec()
    assert decoding_work(member(compressors=gzip, **options)) == decoding_work(
        member(compressors=zarr.codecs.GzipCodec())
    )


def test_far_away_few_requests_count_more():
    few, many = ChunkPrice(200_000, 1.0), ChunkPrice(30_000, 1.0)
    assert many.of(4, near=True) < few.of(1, near=True)
    assert few.of(1, near=False) < many.of(4, near=False)


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
