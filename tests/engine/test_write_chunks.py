"""Shards as the engine writes them: byte for byte as zarr does, and readable by others."""

import threading
from unittest import mock

import numpy as np
import pytest
import tensorstore
import zarr
import zarrista
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import cpu
from zarr.storage import LocalStore, MemoryStore
from zarrista.store import FilesystemStore

import intarsia
from intarsia.codecs import ConditionalCodec, PadCodec
from intarsia.engine import write
from intarsia.engine.prepared_member import EngineMember, PreparedMember
from intarsia.engine.write import write_box
from intarsia.engine.write_chunks import ShardWriter
from intarsia.manifest.box import Box
from tests.logical.places import AsyncOnly
from tests.logical.stores import stored

INDEX_CODECS = [
    None,
    [BytesCodec()],
    [BytesCodec(endian="big"), Crc32cCodec()],
]
INNER = [
    (BytesCodec(),),
    (BytesCodec(endian="big"), ZstdCodec(level=1)),
    (BytesCodec(), BloscCodec(typesize=4, shuffle="shuffle"), Crc32cCodec()),
    (TransposeCodec(order=(1, 0)), BytesCodec(), ZstdCodec()),
]
ORDERS = ["morton", "lexicographic", "colexicographic", "unordered"]


@st.composite
def shardings(draw):
    """Shape, shard shape and the codec."""
    inner = tuple(draw(st.integers(1, 3)) for _ in range(2))
    shard = tuple(n * draw(st.integers(1, 3)) for n in inner)
    options = {}
    if (index_codecs := draw(st.sampled_from(INDEX_CODECS))) is not None:
        options["index_codecs"] = index_codecs
    codecs = draw(st.sampled_from(INNER))
    if draw(st.integers(0, 4)) == 0:
        codecs = (ShardingCodec(chunk_shape=(1, 1), codecs=codecs),)
    codec = ShardingCodec(
        chunk_shape=inner, codecs=codecs, index_location=draw(st.sampled_from(["start", "end"])),
        subchunk_write_order=draw(st.sampled_from(ORDERS)), **options,
    )  # fmt: skip
    return tuple(draw(st.integers(1, 14)) for _ in range(2)), shard, codec


def made(store, shape, shard, codec):
    return zarr.create_array(
        store, shape=shape, chunks=shard, dtype="int32", fill_value=7, serializer=codec, compressors=None
    )


@given(st.data(), st.booleans())
def test_shards_are_stored_as_zarr_stores_them(data, loop):
    shape, shard, codec = data.draw(shardings())
    memory = MemoryStore(), MemoryStore()
    ours, theirs = (made(AsyncOnly(m) if loop else m, shape, shard, codec) for m in memory)
    source = PreparedMember.of("m", ours)
    assert isinstance(source, EngineMember)
    assert source.is_written_by_engine
    for _ in range(3):
        start = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
        stop = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(start, shape, strict=True))
        box = Box(start, stop)
        values = np.arange(np.prod(box.shape), dtype="i4").reshape(box.shape) // 4 + 6
        if data.draw(st.integers(0, 3)) == 0:
            values = np.int32(data.draw(st.sampled_from([7, 5])))
        config = intarsia.engine.config.LogicalConfig(threads=data.draw(st.integers(1, 3)))
        with mock.patch.object(intarsia.engine.thread_pool, "WORTH_A_THREAD", 1):
            write_box(source, box, values, config)
        theirs[tuple(slice(a, b) for a, b in zip(*box, strict=True))] = values
        assert stored(memory[0]) == stored(memory[1])


def region(store, **options):
    """A logical array with one sharded region."""
    array = intarsia.create(store, "a", shape=(64, 48), chunks=(16, 24), dtype="f4")
    data = np.random.default_rng(0).normal(size=array.shape).astype("f4").round(1)
    options = {"codecs": ["zstd"], "chunks": (4, 4), "shards": (16, 24)} | options
    array.add_region(((0, 64), (0, 48)), data=data, **options)
    return array, data


@pytest.mark.parametrize("codecs", [[], ["zstd"], ["blosc"], ["gzip", "crc32c"]], ids=str)
def test_others_read_what_was_written(tmp_path, codecs):
    array, data = region(LocalStore(tmp_path), codecs=codecs)
    array[3:21, 5] = data[3:21, 5] = 9
    array[40:48, 0:24] = data[40:48, 0:24] = 0
    place = tmp_path / "a" / array.regions[0].name
    np.testing.assert_array_equal(zarr.open_array(place, mode="r")[...], data)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(place)}}
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), data)
    rust = zarrista.Array.open(FilesystemStore(str(place)), "/")
    np.testing.assert_array_equal(np.asarray(rust[0:64, 0:48]), data)
    assert not list(tmp_path.rglob("*.partial"))


def test_no_shard_is_left_to_zarr_and_none_is_written_twice():
    store = MemoryStore()
    with mock.patch.object(write, "write_part_by_zarr", side_effect=AssertionError):
        array, _ = region(store)
        member, put = array.regions[0].name, []
        with mock.patch.object(MemoryStore, "set_sync", lambda _, key, value: put.append(key)):
            array[10:40, 20:30] = 1
    assert sorted(put) == [f"a/{member}/c/{i}/{j}" for i in range(3) for j in range(2)]


def test_a_shard_of_fill_values_alone_is_removed():
    store = MemoryStore()
    array, _ = region(store)
    array[0:16, 0:24] = 0
    assert f"a/{array.regions[0].name}/c/0/0" not in stored(store)
    assert f"a/{array.regions[0].name}/c/1/0" in stored(store)


@pytest.mark.parametrize("damage", [lambda b: b[:-1] + b"?", lambda b: b[:40], lambda b: b"?" * len(b)])
def test_a_damaged_shard_is_not_overwritten_in_part(damage):
    store = MemoryStore()
    array, _ = region(store)
    key = f"a/{array.regions[0].name}/c/1/0"
    store._store_dict[key] = cpu.Buffer.from_bytes(damage(store._store_dict[key].to_bytes()))
    before = stored(store)
    with pytest.raises(
        intarsia.errors.ReadError, match=r"chunk \(4, 0\).* would be written only in part, but cannot"
    ):
        array[16:18, 0:2] = 5
    assert stored(store) == before
    array[16:32, 0:24] = 5  # written as a whole, it is whole again
    assert (array[16:32, 0:24] == 5).all()


def test_codecs_in_shards_learn_which_chunk_they_work_on():
    seen = {}

    def pad(encoded, chunk_index):
        seen[chunk_index] = seen.get(chunk_index, 0) + 1
        return bytes(chunk_index)

    array, data = region(MemoryStore(), codecs=[])
    array.recode(
        ((0, 64), (0, 48)), codecs=[PadCodec(nbytes=2, padding_func=pad)], chunks=(4, 4), shards=(16, 24)
    )
    assert seen == {(i, j): 1 for i in range(16) for j in range(12)}
    np.testing.assert_array_equal(array[...], data)


@pytest.mark.filterwarnings("ignore:Combining a:zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("outer", [(TransposeCodec(order=(1, 0)),), ()], ids=["behind a transpose", "nested"])
def test_decisions_in_inner_shards_get_the_index_of_their_own_chunk(outer):
    """The engine cannot tell it to them, so zarr writes."""
    seen = set()

    def decide(chunk_index):
        seen.add(chunk_index)
        return True

    conditional = ConditionalCodec(codecs=[ZstdCodec()], decision=decide)
    inner = ShardingCodec(chunk_shape=(2, 2), codecs=[BytesCodec(), conditional])
    codecs = [*outer, inner] if outer else [ShardingCodec(chunk_shape=(4, 4), codecs=[inner])]
    array = intarsia.create(MemoryStore(), "a", shape=(8, 8), chunks=(8, 8), dtype="i4")
    data = np.arange(1, 65, dtype="i4").reshape(8, 8)
    array.add_region(((0, 8), (0, 8)), codecs=codecs, data=data)
    assert seen == {(i, j) for i in range(4) for j in range(4)}
    np.testing.assert_array_equal(array[...], data)


class Failing(AsyncOnly):
    """Cannot read one shard."""

    async def get(self, key, prototype, byte_range=None):
        if key.endswith("/c/2/1"):
            raise OSError("broken")
        return await super().get(key, prototype, byte_range)


def test_a_shard_that_cannot_be_read_ends_the_write_and_nobody_waits_for_it():
    array, _ = region(Failing(MemoryStore()))
    with (
        mock.patch.object(intarsia.engine.thread_pool, "WORTH_A_THREAD", 1),
        pytest.raises(intarsia.errors.ReadError, match="broken"),
    ):
        array.with_config(threads=4)[1:63, 1:47] = 3
    assert not [thread for thread in threading.enumerate() if thread.name == "intarsia"]


def test_memory_for_shards_that_are_kept_in_part_is_bounded():
    """One element in each of many shards: they are read some at a time."""
    array, data = region(MemoryStore())
    most = 0
    original = ShardWriter.write

    def watched(self, positions):
        nonlocal most
        most = max(most, len(positions))
        original(self, positions)

    with mock.patch.object(ShardWriter, "write", watched):
        array.with_config(window_bytes=20_000, threads=1).oindex[::16, ::24] = 4
    data[::16, ::24] = 4
    assert most < 8
    np.testing.assert_array_equal(array[...], data)


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(4,), chunks=(2,), dtype="u1")
    array.add_region(((0, 4),), codecs=["zstd"])
    array[:] = 1
    before = sorted(tmp_path.rglob("*"))
    with mock.patch("os.replace", side_effect=OSError(5, "Input/output error")), pytest.raises(OSError):
        array[:] = 2
    assert sorted(tmp_path.rglob("*")) == before
    assert array[...].tolist() == [1, 1, 1, 1]
