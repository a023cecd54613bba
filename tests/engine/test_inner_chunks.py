"""Shards: the inner chunks that a read needs are fetched, and no others."""

import itertools
import json
from copy import deepcopy

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

import intarsia
from intarsia.errors import MetadataError, ReadError
from tests.logical.places import AsyncOnly

DATA = np.random.default_rng(0).normal(size=(32, 32))


class Watched(AsyncOnly):
    """Notes the byte ranges that are read."""

    def __init__(self, store):
        super().__init__(store)
        self.ranges = []

    def _with_store(self, store):
        return self

    async def get(self, key, prototype=None, byte_range=None):
        if "/c/" in key:
            self.ranges.append((key.split("/c/")[1], byte_range))
        return await super().get(key, prototype, byte_range)


def sharded(location="end", index_codecs=None, inner=None, shards=(16, 16)):
    """An array whose one member has shards of 4 x 4 inner chunks, uncompressed: 128 bytes each."""
    store = MemoryStore()
    array = intarsia.create(store, "a", shape=(32, 32), chunks=(16, 16), dtype="float64", fill_value=3)
    codec = ShardingCodec(
        chunk_shape=(4, 4),
        codecs=inner or [BytesCodec()],
        index_codecs=index_codecs or [BytesCodec(), Crc32cCodec()],
        index_location=location,
    )
    zarr.create_array(
        array.group.store_path, name="m", shape=(32, 32), chunks=shards, dtype="float64", serializer=codec,
        compressors=None, fill_value=3,
    )  # fmt: skip
    array.add_region(((0, 32), (0, 32)), member="m")
    array[:] = DATA
    return store, array


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("index_codecs", [None, [BytesCodec()], [BytesCodec(endian="big"), Crc32cCodec()]])
@pytest.mark.parametrize("inner", [None, [BytesCodec(), ZstdCodec(), Crc32cCodec()]])
def test_every_kind_of_shard_is_read(location, index_codecs, inner):
    store, array = sharded(location, index_codecs, inner)
    for there in (array, intarsia.open(AsyncOnly(store), "a")):
        np.testing.assert_array_equal(there[:], DATA)
        np.testing.assert_array_equal(there[3:30:5, ::-7], DATA[3:30:5, ::-7])
        assert there[17, 5] == DATA[17, 5]
        assert "zarr itself" not in repr(intarsia.explain(there))


def test_one_element_takes_the_index_and_one_inner_chunk():
    store, _ = sharded()
    watched = Watched(store)
    array = intarsia.open(watched, "a")
    assert array[17, 5] == DATA[17, 5]
    (first, index), (second, piece) = watched.ranges
    assert (first, second) == ("1/0", "1/0")
    assert index.suffix == 16 * 16 + 4
    assert piece.end - piece.start == 128


def test_neighbouring_inner_chunks_are_fetched_together():
    store, _ = sharded()
    watched = Watched(store)
    np.testing.assert_array_equal(intarsia.open(watched, "a")[:16, :16], DATA[:16, :16])
    assert len(watched.ranges) == 2  # the index, and all sixteen at once
    assert watched.ranges[1][1].end - watched.ranges[1][1].start == 16 * 128


def test_inner_chunks_and_shards_that_are_not_stored_are_the_fill_value():
    store, array = sharded()
    array[:16, :16] = 3
    array[20:24, 20:24] = 3
    expected = DATA.copy()
    expected[:16, :16] = expected[20:24, 20:24] = 3
    watched = Watched(store)
    np.testing.assert_array_equal(intarsia.open(watched, "a")[:], expected)
    explained = intarsia.explain(array)
    assert (explained.parts[0].chunks, explained.parts[0].fetched) == (64, 47)
    assert explained.stored_bytes == 47 * 128


def replaced(store, change):
    key = next(key for key in store._store_dict if key.endswith("c/0/1"))
    raw = bytearray(store._store_dict[key].to_bytes())
    change(raw)
    store._store_dict[key] = cpu.Buffer.from_bytes(bytes(raw))


def test_a_damaged_index_names_the_chunk_that_needs_it():
    store, array = sharded()
    replaced(store, lambda raw: raw.__setitem__(-10, raw[-10] ^ 1))
    for there in (array, intarsia.open(AsyncOnly(store), "a")):
        with pytest.raises(intarsia.errors.ReadError, match=r"\[0:32, 0:32\].*member m, chunk \(1, 5\)"):
            there[4:9, 20:24]
        np.testing.assert_array_equal(there[16:], DATA[16:])


@pytest.mark.parametrize("offset", [1 << 20, (1 << 63) + 5, (1 << 64) - 2])
def test_an_index_that_points_outside_its_shard_is_an_error(offset):
    store, array = sharded(index_codecs=[BytesCodec()])
    replaced(store, lambda raw: raw.__setitem__(slice(-256, -248), offset.to_bytes(8, "little")))
    for there in (array, intarsia.open(AsyncOnly(store), "a")):
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0, 4\)"):
            there[0, 16]
        assert there[0, 20] == DATA[0, 20]


def test_a_shard_that_is_cut_off_is_an_error():
    store, array = sharded(location="start")
    replaced(store, lambda raw: raw.__delitem__(slice(-50, None)))
    for there in (array, intarsia.open(AsyncOnly(store), "a")):
        with pytest.raises(intarsia.errors.ReadError, match=r"member m, chunk"):
            there[:16, 16:]


def test_indexes_are_remembered_for_snapshots_alone(tmp_path):
    import icechunk

    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    array = intarsia.create(session.store, "a", shape=(32, 32), chunks=(16, 16), dtype="float64")
    array.add_region(((0, 32), (0, 32)), codecs=["zstd"], chunks=(4, 4), shards=(16, 16), data=DATA)
    np.testing.assert_array_equal(array[:], DATA)
    array[2:5] = 9
    changed = DATA.copy()
    changed[2:5] = 9
    np.testing.assert_array_equal(array[:], changed)
    session.commit("shards")
    snapshot = intarsia.open(repository.readonly_session("main").store, "a")
    np.testing.assert_array_equal(snapshot[:], changed)
    shards = snapshot._logical.state.source(snapshot.regions[0].name).shards
    assert [shard for shard in range(9) if shards.indexes.get(shard) is not None] == [0, 1, 2, 3]
    np.testing.assert_array_equal(snapshot[::3, 1], changed[::3, 1])


def test_shards_in_shards_and_compressed_shards_are_read_too():
    _, array = sharded(inner=[ShardingCodec(chunk_shape=(2, 2), index_codecs=[BytesCodec()])])
    np.testing.assert_array_equal(array[1:30, 3], DATA[1:30, 3])
    np.testing.assert_array_equal(array[...], DATA)
    array = intarsia.create({}, "b", shape=(32, 32), chunks=(16, 16), dtype="float64")
    with pytest.warns(UserWarning, match="sharding"):
        zarr.create_array(
            array.group.store_path, name="m", shape=(32, 32), chunks=(16, 16), dtype="float64",
            serializer=ShardingCodec(chunk_shape=(4, 4)), compressors=[ZstdCodec()],
        )  # fmt: skip
    with pytest.warns(UserWarning, match="sharding"):
        array.add_region(((0, 32), (0, 32)), member="m")
    array[:] = DATA
    np.testing.assert_array_equal(array[1:30, 3], DATA[1:30, 3])


CHAIN = [BytesCodec().to_dict(), Crc32cCodec().to_dict()]
FOREIGN = [GzipCodec().to_dict(), TransposeCodec(order=(2, 1, 0)).to_dict(), {"name": "vlen-utf8"}]


@pytest.mark.parametrize("where", ["index_codecs", "codecs"])
def test_codecs_in_shards_that_are_no_chain_are_refused(where):
    store = {}
    array = zarr.create_array(
        store, shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="u1", compressors=Crc32cCodec(), fill_value=1
    )
    array[:] = values = np.arange(64, dtype="u1").reshape(8, 8)
    metadata = json.loads(store["zarr.json"].to_bytes())
    pool = [*CHAIN, *FOREIGN, deepcopy(metadata["codecs"][0])]
    chains = [list(chain) for n in range(4) for chain in itertools.product(pool, repeat=n)]
    for chain in chains:
        metadata["codecs"][0]["configuration"][where] = chain
        store["zarr.json"] = cpu.Buffer.from_bytes(json.dumps(metadata).encode())
        if chain == CHAIN:
            np.testing.assert_array_equal(intarsia.reader(store)[:], values)
        else:
            with pytest.raises((MetadataError, ReadError)):
                intarsia.reader(store)[:]
