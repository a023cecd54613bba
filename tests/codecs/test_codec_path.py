"""The way to the conditional codec, in zarr.json and in the bytes of a chunk."""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

from intarsia.codecs import ConditionalCodec, ShuffleCodec, with_decision
from intarsia.codecs.chunk_rewrite import redecide_chunk
from intarsia.codecs.codec_path import ChunkWalk, StoredChunk, find_codecs
from intarsia.codecs.stored_chunks import read_parts

LITTLE = BytesCodec(endian="little")
CODEC = ConditionalCodec(codecs=[ZstdCodec()])


def create(codecs, **fields):
    fields = {"store": MemoryStore(), "shape": 16, "chunks": 8, "dtype": "u1"} | fields
    return zarr.create(codecs=codecs, **fields)


def found(z):
    return [(each.path, each.codec, len(each.shards), each.nested) for each in find_codecs(z, "test")]


def test_among_other_codecs():
    z = create([LITTLE, ShuffleCodec(element_size=1), CODEC, Crc32cCodec()])
    assert found(z) == [("codecs[2]", CODEC, 0, False)]


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_through_shards():
    inner = ShardingCodec(chunk_shape=(2,), codecs=[LITTLE, CODEC])
    outer = ShardingCodec(chunk_shape=(4,), codecs=[inner])
    assert found(create([outer, Crc32cCodec()])) == [("codecs[0].codecs[0].codecs[1]", CODEC, 2, False)]


def test_nested_conditional_codecs_come_after_the_outer_one():
    outer = ConditionalCodec(codecs=[CODEC])
    z = create([LITTLE, outer])
    assert found(z) == [("codecs[1]", outer, 0, False), ("codecs[1].codecs[0]", CODEC, 0, True)]


def walk(z, index, decision):
    chunk = StoredChunk.of(with_decision(z, decision), index)
    walk = ChunkWalk(redecide_chunk)
    new = walk.through(chunk.codecs, read_parts(chunk.path, [None])[0], chunk.spec, chunk.locate)
    return walk, new


def test_only_the_inner_chunks_that_change_are_encoded_again():
    shards = ShardingCodec(chunk_shape=(2,), codecs=[LITTLE, CODEC, Crc32cCodec()])
    z = create([shards])
    z[:] = np.arange(1, 17)
    seen = []

    def third(chunk_index, unencoded_chunk):
        seen.append(chunk_index)
        return chunk_index == (6,)

    done, new = walk(z, (1,), third)
    assert seen == [(4,), (5,), (6,), (7,)]
    assert (done.chunks, done.changed) == (4, 1)
    z.store_path.store._store_dict["c/1"] = new
    np.testing.assert_array_equal(z[:], np.arange(1, 17))


def test_nothing_to_change_is_none():
    z = create([LITTLE, CODEC])
    z[:] = 1
    done, new = walk(z, (0,), "never_apply")
    assert new is None
    assert (done.chunks, done.changed) == (1, 0)


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_the_grid_is_in_the_axes_of_the_array():
    inner = ShardingCodec(chunk_shape=(3, 2), codecs=[TransposeCodec(order=(1, 0)), LITTLE, CODEC])
    z = zarr.create(
        store={}, shape=(12, 18), chunks=(6, 6), dtype="f4", codecs=[TransposeCodec(order=(1, 0)), inner],
        fill_value=np.float32(1),
    )  # fmt: skip
    (own,) = find_codecs(z, "test")
    assert own.chunk_shape(z) == (2, 3)
    assert own.grid_shape(z) == (6, 6)
    assert own.spec.shape == (2, 3)
