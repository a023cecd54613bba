"""One stored chunk or shard, decided again."""

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

from intarsia.codecs import ConditionalCodec, with_decision
from intarsia.codecs.chunk_rewrite import Recoder
from intarsia.codecs.codec_path import EncodedPiece, find_routes, stored_spec
from intarsia.codecs.context import Grid, StoredPlace
from intarsia.codecs.stored_chunks import Extent, MemoryObject

LITTLE = BytesCodec(endian="little")


def recode(z, key, decision):
    (route,) = find_routes(z, "test")
    spec = stored_spec(with_decision(z, decision), (8,))
    recoder = Recoder(route)
    stored = Extent(MemoryObject(z.store_path.store._store_dict[key]))
    new = recoder.recode(EncodedPiece(stored, spec, StoredPlace(Grid.of(z.metadata), key, spec, ())))
    return recoder, new


def test_only_the_inner_chunks_that_change_are_encoded_again():
    shards = ShardingCodec(
        chunk_shape=(2,), codecs=[LITTLE, ConditionalCodec(codecs=[ZstdCodec()]), Crc32cCodec()]
    )
    z = zarr.create(store=MemoryStore(), shape=16, chunks=8, dtype="u1", codecs=[shards])
    z[:] = np.arange(1, 17)
    seen = []

    def third(chunk_index, unencoded_chunk):
        seen.append(chunk_index)
        return chunk_index == (6,)

    recoder, new = recode(z, "c/1", third)
    assert seen == [(4,), (5,), (6,), (7,)]
    assert (recoder.chunks, recoder.changed) == (4, 1)
    z.store_path.store._store_dict["c/1"] = new
    np.testing.assert_array_equal(z[:], np.arange(1, 17))


def test_nothing_to_change_is_none():
    z = zarr.create(
        store=MemoryStore(),
        shape=16,
        chunks=8,
        dtype="u1",
        codecs=[LITTLE, ConditionalCodec(codecs=[ZstdCodec()])],
    )
    z[:] = 1
    recoder, new = recode(z, "c/0", "never_apply")
    assert new is None
    assert (recoder.chunks, recoder.changed) == (1, 0)
