"""`masks`: every stored chunk's bitmask, from as few bytes as possible."""

import threading

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore, WrapperStore

import intarsia
from intarsia import nullable
from intarsia.codecs import ConditionalCodec, OffsetCodec, PadCodec, masks
from intarsia.errors import ChunkDecodeError, CodecConfigurationError

LITTLE = BytesCodec(endian="little")
LOCK = threading.Lock()


class Counting(WrapperStore[MemoryStore]):
    """Counts the bytes that are read."""

    total = 0

    async def get(self, key, prototype, byte_range=None):
        return self._count(await super().get(key, prototype, byte_range))

    def get_sync(self, key, *, prototype=None, byte_range=None):
        return self._count(super().get_sync(key, prototype=prototype, byte_range=byte_range))

    def _count(self, found):
        with LOCK:
            self.total += 0 if found is None else len(found)
        return found


class CountingAsync(Counting):
    """The same without synchronous methods."""

    _supports_sync_io = False


def stored_bytes(store):
    return sum(len(value) for key, value in store._store._store_dict.items() if not key.endswith("zarr.json"))


def test_a_thousand_chunks_are_read_by_their_headers():
    store = Counting(MemoryStore())
    plan = np.random.default_rng(0).integers(0, 4, (25, 40))
    codec = ConditionalCodec(codecs=[Crc32cCodec(), Crc32cCodec()], decision=plan)
    with zarr.config.set({"codec_pipeline.path": "intarsia.codecs.context.FusedPipeline"}):  # writes faster
        z = zarr.create(store=store, shape=(250, 400), chunks=(10, 10), dtype="f8", codecs=[LITTLE, codec])
    z[:] = np.random.default_rng(1).normal(size=(250, 400))
    store.total = 0
    found = masks(z)
    np.testing.assert_array_equal(found, plan)
    assert found.dtype == np.uint8
    assert store.total == 1000
    assert store.total < stored_bytes(store) / 100


SURROUNDINGS = {
    "nothing": [],
    "checksum": [Crc32cCodec()],
    "padding": [
        PadCodec(location="start", nbytes=5),
        OffsetCodec(offset=3),
        PadCodec(location="end", nbytes=9),
    ],
    "compressor": [GzipCodec()],
}


def wrap(codecs, layout, after):
    chain = [LITTLE, *codecs, *after]
    if layout == "plain":
        return chain
    shard = ShardingCodec(
        chunk_shape=(2, 3), codecs=chain, index_location="start" if "start" in layout else "end"
    )
    if layout == "nested shards":
        shard = ShardingCodec(chunk_shape=(4, 3), codecs=[shard])
    if layout == "transposed shards":
        shard = ShardingCodec(chunk_shape=(3, 2), codecs=chain)
        return [TransposeCodec(order=(1, 0)), shard]
    return [shard, *after] if layout == "shards with the same around" else [shard]


LAYOUTS = [
    "plain",
    "shards",
    "shards, index at the start",
    "nested shards",
    "transposed shards",
    "shards with the same around",
]


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize("after", SURROUNDINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("store_class", [Counting, CountingAsync])
def test_wherever_the_codec_is(layout, after, store_class):
    plan = np.random.default_rng(0).integers(0, 4, (10, 4))
    codec = ConditionalCodec(codecs=[Crc32cCodec(), ZstdCodec()], decision=plan)
    store = store_class(MemoryStore())
    z = zarr.create(
        store=store, path="g/a", shape=(20, 12), chunks=(2, 3) if layout == "plain" else (12, 6), dtype="f8",
        codecs=wrap([codec], layout, SURROUNDINGS[after]),
    )  # fmt: skip
    z[:] = np.arange(1, 241).reshape(20, 12)
    z[4:6, 3:6] = 0  # one chunk is not stored
    store.total = 0
    found = masks(z)
    assert found.mask[2, 1]
    assert found.count() == 39
    found[2, 1] = plan[2, 1]
    np.testing.assert_array_equal(found, plan)
    whole = layout == "nested shards" or (layout == "shards with the same around" and after != "nothing")
    if after in ("nothing", "checksum") and not whole:
        index = 0 if layout == "plain" else 40 * 16 * 3 + 200
        assert store.total <= 40 + index


@given(shape=st.integers(1, 30), chunk=st.integers(1, 4), factor=st.integers(1, 4), data=st.data())
def test_any_shape(shape, chunk, factor, data):
    grid = -(-shape // chunk)
    plan = data.draw(st.lists(st.integers(0, 1), min_size=grid, max_size=grid))
    codec = ConditionalCodec(codecs=[Crc32cCodec()], decision=plan)
    shards = ShardingCodec(chunk_shape=(chunk,), codecs=[LITTLE, codec])
    z = zarr.create(store={}, shape=shape, chunks=chunk * factor, dtype="u1", codecs=[shards])
    z[:] = 1
    assert masks(z).tolist() == plan


@pytest.mark.parametrize(
    ("bits", "dtype"), [(8, "u1"), (16, "u2"), (24, "u4"), (64, "u8"), (72, "O"), (128, "O")]
)
def test_long_bitmasks(bits, dtype):
    codec = ConditionalCodec(
        codecs=[Crc32cCodec()] * bits,
        decision=lambda codec_index, chunk_index: (codec_index + chunk_index[0]) % 2,
    )
    z = zarr.create(store={}, shape=4, chunks=2, dtype="u1", codecs=[LITTLE, codec])
    z[:] = 1
    odd = sum(1 << i for i in range(1, bits, 2))
    found = masks(z)
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == [odd, odd >> 1]


def test_an_empty_array_and_one_without_axes():
    codec = ConditionalCodec(codecs=[Crc32cCodec()], decision="always_apply")
    assert masks(
        zarr.create(store={}, shape=(0, 3), chunks=(1, 1), dtype="u1", codecs=[LITTLE, codec])
    ).shape == (0, 3)
    z = zarr.create(store={}, shape=(), dtype="u1", codecs=[LITTLE, codec])
    assert masks(z).count() == 0
    z[...] = 3
    assert masks(z)[()] == 1


def test_damage_is_an_error_that_names_the_chunk(tmp_path):
    codec = ConditionalCodec(codecs=[Crc32cCodec()])
    z = zarr.create(store=tmp_path / "a", shape=4, chunks=2, dtype="u1", codecs=[LITTLE, codec])
    z[:] = 1
    (tmp_path / "a/c/1").write_bytes(b"\x02")
    with pytest.raises(ChunkDecodeError, match=r"header of chunk \(1,\) says 0b10"):
        masks(z)
    (tmp_path / "a/c/1").write_bytes(b"")
    with pytest.raises(ChunkDecodeError, match=r"0 bytes of chunk \(1,\) are fewer"):
        masks(z)


@pytest.mark.parametrize("damage", ["truncated", "checksum", "beyond"])
def test_a_damaged_shard_is_an_error(damage, tmp_path):
    index_codecs = [LITTLE] if damage == "beyond" else [LITTLE, Crc32cCodec()]
    chain = [LITTLE, ConditionalCodec(codecs=[Crc32cCodec()])]
    shards = ShardingCodec(chunk_shape=(2,), codecs=chain, index_codecs=index_codecs)
    z = zarr.create(store=tmp_path / "a", shape=8, chunks=4, dtype="u1", codecs=[shards])
    z[:] = 1
    file = tmp_path / "a/c/1"
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        content = content[:10]
    elif damage == "checksum":
        content[-10] ^= 1
    else:
        content[-16:-8] = (10**9).to_bytes(8, "little")
    file.write_bytes(content)
    with pytest.raises(ChunkDecodeError, match=r"of chunk \([13],\)"):
        masks(z)


def test_arrays_without_such_a_codec_are_refused():
    with pytest.raises(
        CodecConfigurationError, match="cannot read bitmasks: the array has no conditional codec"
    ):
        masks(zarr.create(store={}, shape=4, dtype="u1"))
    logical = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    logical.append([1, 2], codecs=["gzip"])
    with pytest.raises(CodecConfigurationError, match="none of the 1 members"):
        masks(logical)


def seen(found):
    """Bitmasks as lists, None where a chunk has none."""
    if isinstance(found, dict):
        return {key: seen(value) for key, value in found.items()}
    return found.tolist()


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed`")
def test_several_codecs_each_have_their_bitmasks():
    codecs = [
        ShardingCodec(
            chunk_shape=(2,),
            codecs=[
                LITTLE,
                ConditionalCodec(codecs=[Crc32cCodec()], decision=lambda chunk_index: chunk_index[0] % 2),
                ConditionalCodec(codecs=[Crc32cCodec()], decision="always_apply"),
            ],
        ),
        ConditionalCodec(codecs=[ZstdCodec()], decision=[1, 0, 1]),
    ]
    z = zarr.create(store={}, shape=12, chunks=4, dtype="u1", codecs=codecs, fill_value=0)
    z[4:] = np.arange(1, 9)
    assert seen(masks(z)) == {
        "codecs[0].codecs[1]": [None, None, 0, 1, 0, 1],
        "codecs[0].codecs[2]": [None, None, 1, 1, 1, 1],
        "codecs[1]": [None, 0, 1],
    }


@pytest.mark.parametrize("sharded", [False, True])
def test_nested_codecs_have_bitmasks_where_they_were_applied(sharded):
    innermost = ConditionalCodec(codecs=[Crc32cCodec()], decision="always_apply")
    inner = ConditionalCodec(codecs=[ZstdCodec(), innermost], decision=[2, 3, 0])
    codecs = [LITTLE, ConditionalCodec(codecs=[Crc32cCodec(), inner], decision=[3, 2, 1]), Crc32cCodec()]
    inside = "codecs[1]"
    if sharded:
        codecs, inside = [ShardingCodec(chunk_shape=(2,), codecs=codecs)], "codecs[0].codecs[1]"
    z = zarr.create(store={}, shape=6, chunks=6 if sharded else 2, dtype="u1", codecs=codecs)
    z[:] = 7
    assert seen(masks(z)) == {
        inside: [3, 2, 1],
        f"{inside}.codecs[1]": [2, 3, None],
        f"{inside}.codecs[1].codecs[1]": [1, 1, None],
    }


def test_codecs_inside_the_codec_of_nulls_have_bitmasks():
    data = ["bytes", ConditionalCodec(codecs=["crc32c"], decision=[0, 1, 1])]
    mask = ["packbits", ConditionalCodec(codecs=["crc32c"], decision=[1, 0, 1])]
    # With such a fill value, a chunk of nulls is stored: it has no data.
    z = nullable.create_array(
        {}, shape=6, chunks=2, dtype="u1", fill_value=9, data_codecs=data, mask_codecs=mask
    )
    z[:] = [1, 2, 3, None, None, None]
    both = {
        "codecs[0].mask_codecs[1]": [1, 0, 1],
        "codecs[0].data_codecs[1]": [0, 1, None],
    }
    assert seen(masks(z)) == seen(masks(z.zarr_array)) == both
    z = nullable.create_array({}, shape=6, chunks=2, dtype="u1", data_codecs=data)
    z[:] = [1, 2, 3, 4, 5, 6]
    assert seen(masks(z)) == [0, 1, 1]


def test_a_turned_region_has_the_bitmasks_of_the_chunks_that_it_shows():
    array = intarsia.create({}, "a", shape=(2, 6), chunks=(1, 2), dtype="f8")
    codec = ConditionalCodec(codecs=["crc32c"], decision=[0, 1, 1, 0])
    member = zarr.create(
        store=array.store, path="a/m", shape=7, chunks=2, dtype="i2", codecs=[BytesCodec(), codec]
    )
    member[...] = np.arange(1, 8)
    flipped = intarsia.View.identity(1).flip(0, length=6).expand(0)
    packing = intarsia.Packing("int16", scale=0.5)
    array.add_region(((1, 2), (0, 6)), member="m", view=flipped, packing=packing)
    expected = array[...]
    assert seen(masks(array)) == {((1, 2), (0, 6)): [0, 1, 1]}
    array.drop_region(((1, 2), (0, 2)))  # the last two that it showed of the member
    assert seen(masks(array)) == {((1, 2), (2, 6)): [0, 1]}
    assert intarsia.codecs.rewrite(array, 0).rewritten == 2
    assert seen(masks(array)) == {((1, 2), (2, 6)): [0, 0]}
    np.testing.assert_array_equal(array[1, 2:], expected[1, 2:])


@pytest.mark.parametrize("where", ["plain", "transaction"])
def test_a_logical_array_has_bitmasks_by_region(where, tmp_path):
    def fill(array):
        conditional = ConditionalCodec(codecs=["crc32c"], decision=lambda chunk_index: chunk_index[0] % 2)
        array.append(np.arange(8, dtype="u1"), codecs=["gzip"])
        array.append(np.arange(9, 17, dtype="u1"), codecs=[conditional])
        array.append(np.arange(9, 17, dtype="u1"), codecs=["bytes", conditional, "crc32c"], chunks=(4,))
        array.drop_region(((10, 12),))
        found = masks(array)
        assert seen(found) == {
            ((8, 10),): [0],
            ((12, 16),): [0, 1],
            ((16, 24),): [0, 1],
        }

    if where == "plain":
        fill(intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="u1"))
        return
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        fill(tx.create("a", shape=(0,), chunks=(2,), dtype="u1"))
    assert len(masks(intarsia.open(repo, "a"))) == 3


def test_a_grid_of_many_places_costs_what_is_stored():
    """Ten million places, one chunk: asking for each would take hours."""
    z = zarr.create(
        store={}, shape=10**7, chunks=1, dtype="u1", codecs=[LITTLE, ConditionalCodec(codecs=[ZstdCodec()])]
    )
    z[4_000_000] = 7
    found = masks(z)
    assert found.count() == 1
    assert found[4_000_000] == 0


def test_the_result_can_be_a_decision():
    codec = ConditionalCodec(codecs=[Crc32cCodec()], decision=[1, 0, 1])
    z = zarr.create(store={}, shape=6, chunks=2, dtype="u1", codecs=[LITTLE, codec])
    z[:] = 1
    again = ConditionalCodec(codecs=[Crc32cCodec()], decision=masks(z))
    copy = zarr.create(store={}, shape=6, chunks=2, dtype="u1", codecs=[LITTLE, again])
    copy[:] = z[:]
    assert masks(copy).tolist() == [1, 0, 1]


def test_an_array_in_format_2_is_refused():
    array = zarr.create_array({}, shape=4, dtype="u1", zarr_format=2)
    with pytest.raises(CodecConfigurationError, match="has no conditional codec"):
        masks(array)


@pytest.mark.parametrize("shards", [None, 4])
def test_an_encoding_of_keys_that_cannot_be_read_backwards(shards, monkeypatch):
    def refuse(_self, _key):
        raise NotImplementedError

    encoding = zarr.core.chunk_key_encodings.DefaultChunkKeyEncoding
    monkeypatch.setattr(encoding, "decode_chunk_key", refuse)
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=0b1)
    z = zarr.create_array({}, shape=8, chunks=2, shards=shards, dtype="u1", compressors=codec)
    z[2:] = 7
    assert masks(z).tolist() == [None, 1, 1, 1]
