"""A slotted array behaves as the plain one does: NumPy and plain zarr are the oracles."""

import copy
import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

import intarsia
from tests.conftest import PIPELINES
from tests.grids import dear
from tests.shards import fleet

CHAINS = {
    "bare": fleet.BARE,
    "crc32c": fleet.CHECKED,
    "big endian": (BytesCodec(endian="big"),),
    "shuffle and crc32c": (BytesCodec(), intarsia.codecs.ShuffleCodec(element_size=4), fleet.CHECKED[1]),
    "odd padding": (BytesCodec(), intarsia.codecs.PadCodec(location="start", nbytes=3)),
    "conditional in conditional": (
        BytesCodec(),
        intarsia.codecs.ConditionalCodec(
            codecs=[
                intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=1)], decision=lambda codec: True),
                Crc32cCodec(),
            ],
            decision=lambda codec: True,
        ),
    ),
    "conditional": (
        BytesCodec(),
        intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=1)], decision="compress_if_smaller"),
        fleet.CHECKED[1],
    ),
}


@st.composite
def shapes(draw):
    ndim = draw(st.integers(1, 3))
    chunk = draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim))
    inside = draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim))
    shard = [c * n for c, n in zip(chunk, inside, strict=True)]
    shape = draw(st.tuples(*(st.integers(1, 2 * s + 1) for s in shard)))
    return shape, tuple(chunk), tuple(shard)


@st.composite
def writes(draw, shape):
    """A way of selecting, a selection, and whether to write one value, the fill value, or many."""
    way = draw(st.sampled_from(("basic", "basic", "orthogonal", "coordinates", "mask")))
    what = draw(st.sampled_from(("many", "many", "one", "fill")))
    if way == "basic":
        selection = tuple(
            draw(st.one_of(st.integers(0, n - 1), st.slices(n).filter(lambda s: (s.step or 1) > 0)))
            for n in shape
        )
    elif way == "orthogonal":
        selection = tuple(
            draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4, unique=True).map(np.array))
            for n in shape
        )
    elif way == "coordinates":
        last = int(np.prod(shape)) - 1
        flat = draw(st.lists(st.integers(0, last), min_size=1, max_size=5, unique=True))
        selection = np.unravel_index(np.array(flat), shape)
    else:
        bits = draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        selection = np.array(bits).reshape(shape)
    return way, selection, what


def apply(target, way, selection, value):
    """Write in the same way to a zarr array or to NumPy's."""
    if isinstance(target, np.ndarray):
        target[np.ix_(*selection) if way == "orthogonal" else selection] = value
    elif way == "basic":
        target[selection] = value
    elif way == "orthogonal":
        target.oindex[selection] = value
    else:
        target.vindex[selection] = value


def selected(expected, way, selection):
    return expected[np.ix_(*selection) if way == "orthogonal" else selection]


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@dear
@given(data=st.data(), geometry=shapes())
def test_every_write_does_what_numpy_does(data, geometry):
    shape, chunks, shards = geometry
    pipeline = data.draw(st.sampled_from(sorted(PIPELINES)))
    options = {"safe_readers": data.draw(st.booleans())}
    codecs = CHAINS[data.draw(st.sampled_from(sorted(CHAINS)))]
    for _ in range(data.draw(st.integers(0, 2))):
        codecs = (ShardingCodec(chunk_shape=(1,) * len(shape), codecs=codecs),)
    more = {
        "codecs": codecs,
        "index_codecs": data.draw(st.sampled_from([fleet.BARE, fleet.CHECKED])),
        "location": data.draw(st.sampled_from(["start", "end"])),
        "fill_value": data.draw(st.sampled_from([0, -1])),
        "config": {"write_empty_chunks": data.draw(st.booleans())},
    }
    with (
        tempfile.TemporaryDirectory() as directory,
        # zarr reads parts of nested shards with its own memory class only, not where nullable data was met.
        zarr.config.set(
            {"codec_pipeline.path": PIPELINES[pipeline], "ndbuffer": "zarr.core.buffer.cpu.NDBuffer"}
        ),
    ):
        array = fleet.make_array(directory, shape=shape, chunks=chunks, shards=shards, **more)
        slots = intarsia.shards.slotted(array, **options)
        expected = np.full(shape, more["fill_value"], dtype="int32")
        number = 1
        for _ in range(data.draw(st.integers(1, 5))):
            way, selection, what = data.draw(writes(shape))
            size = selected(expected, way, selection).shape
            value = more["fill_value"] if what == "fill" else number
            if what == "many":
                value = np.arange(number, number + int(np.prod(size)), dtype="int32").reshape(size)
            number += 1000
            apply(expected, way, selection, value)
            apply(slots, way, selection, value)
            assert np.array_equal(slots[...], expected)
            if way == "basic":
                assert np.array_equal(slots[selection], expected[selection])
            elif way == "orthogonal":
                assert np.array_equal(slots.oindex[selection], selected(expected, way, selection))
            else:
                assert np.array_equal(slots.vindex[selection], selected(expected, way, selection))
        assert np.array_equal(zarr.open_array(directory, mode="r")[...], expected)
        assert intarsia.verify(array) == ()
        intarsia.shards.compact(slots)
        assert np.array_equal(zarr.open_array(directory, mode="r")[...], expected)


@pytest.mark.parametrize("depth", [1, 2])
def test_many_nested_shards_do_not_wait_for_each_other(tmp_path, pipeline, depth):
    codecs = CHAINS["shuffle and crc32c"]
    for size in (2, 4)[:depth]:
        codecs = (ShardingCodec(chunk_shape=(size,), codecs=codecs),)
    array = fleet.make_array(tmp_path, shape=(256,), chunks=(8,), shards=(16,), codecs=codecs)
    slots = intarsia.shards.slotted(array)
    slots[:] = expected = np.arange(256, dtype="i4")
    assert np.array_equal(slots[...], expected)


@pytest.fixture
def array(tmp_path):
    return fleet.make_array(tmp_path, shape=(40, 40), chunks=(4, 8), shards=(16, 32))


def test_the_metadata_on_disk_never_changes(tmp_path, array, pipeline):
    plain = json.loads((tmp_path / "zarr.json").read_text())
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    assert json.loads((tmp_path / "zarr.json").read_text()) == plain
    slots.attrs["units"] = "K"
    slots.resize((48, 40))
    slots.append(np.full((8, 40), 2))
    assert json.loads((tmp_path / "zarr.json").read_text()) == plain | {
        "shape": [56, 40],
        "attributes": {"units": "K"},
    }
    assert (zarr.open_array(tmp_path)[48:] == 2).all()
    assert intarsia.shards.slot_stats(slots).slotted == 8  # the appended shards too


@pytest.mark.parametrize("way", [lambda a: pickle.loads(pickle.dumps(a)), copy.copy, copy.deepcopy])
def test_a_copied_or_pickled_array_still_writes_slots(array, way):
    slots = way(intarsia.shards.slotted(array, safe_readers=True, fsync=True))
    slots[0:4, 0:8] = 1
    codec = slots.metadata.codecs[0]
    assert (codec.safe_readers, codec.fsync) == (True, True)
    assert intarsia.shards.slot_stats(array).slotted == 1
    assert array[0:4, 0:8].all()


def test_another_process_gets_the_array_by_pickling(array):
    slots = intarsia.shards.slotted(array)
    with fleet.crew((set_corner, slots)) as (member,):
        member.result()
    assert array[0, 0] == 9
    assert intarsia.shards.slot_stats(array).slotted == 1


def set_corner(slots):
    slots[0, 0] = 9


def test_writing_one_chunk_touches_no_other_byte(tmp_path, array):
    slots = intarsia.shards.slotted(array, safe_readers=False)
    slots[:] = np.arange(1600).reshape(40, 40)
    before = np.fromfile(tmp_path / "c/0/0", dtype="u1")
    slots[4:8, 8:16] = -1
    after = np.fromfile(tmp_path / "c/0/0", dtype="u1")
    changed = np.flatnonzero(before != after)
    slot = 4 * 8 * 4 + 8  # the chunk, its checksum, and the rounding
    assert changed.size
    assert changed[0] // slot == changed[-1] // slot == 3  # fourth in Morton order


def test_chunks_of_the_fill_value_take_no_room_and_erase_what_was_there(tmp_path, array):
    slots = intarsia.shards.slotted(array)
    slots[:] = 0
    assert not (tmp_path / "c").exists()
    slots[0:16, 0:32] = 1
    slots[0:4, 0:8] = 0
    stats = intarsia.shards.slot_stats(array)
    assert (stats.slots, stats.slots_used) == (16, 15)
    assert not array[0:4, 0:8].any()


def test_unwritten_slots_take_no_blocks(tmp_path):
    array = fleet.make_array(tmp_path, shape=64 << 20, chunks=1 << 20, shards=64 << 20, dtype="u1")
    intarsia.shards.slotted(array)[5 << 20 : 6 << 20] = 1
    stats = intarsia.shards.slot_stats(array)
    assert stats.bytes_stored > 64 << 20
    assert 1 << 20 <= stats.bytes_on_disk <= (1 << 20) + 64 * 1024
    assert stats.bytes_on_disk == (tmp_path / "c/0").stat().st_blocks * 512


def test_a_zero_dimensional_array_has_one_slot(tmp_path):
    array = fleet.make_array(tmp_path, shape=(), chunks=(), shards=())
    slots = intarsia.shards.slotted(array)
    slots[()] = 5
    assert (array[()], slots[()]) == (5, 5)


def test_structured_and_single_byte_elements_work(tmp_path):
    for number, dtype in enumerate(["u1", "bool", "complex64", [("a", "<i2"), ("b", "<f8")]]):
        array = fleet.make_array(tmp_path / str(number), shape=12, chunks=1, shards=4, dtype=dtype)
        slots = intarsia.shards.slotted(array, safe_readers=False)
        values = np.ones(12, dtype=dtype)
        slots[:] = values
        slots[3:5] = values[3:5]
        assert np.array_equal(array[:], values)
        assert intarsia.shards.slot_stats(array).slots_used == 12


def test_a_transpose_inside_the_shard_is_no_obstacle(tmp_path):
    array = fleet.make_array(
        tmp_path,
        shape=(8, 12),
        chunks=(2, 3),
        shards=(4, 6),
        codecs=(TransposeCodec(order=(1, 0)), *fleet.CHECKED),
    )
    values = np.arange(96).reshape(8, 12)
    intarsia.shards.slotted(array)[:] = values
    assert np.array_equal(array[:], values)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}
    assert np.array_equal(tensorstore.open(spec).result().read().result(), values)


def test_codecs_are_told_the_index_of_the_chunk_over_the_whole_array(tmp_path, our_pipeline):
    seen = []

    def number(encoded, chunk_index):
        seen.append(chunk_index)
        return bytes(chunk_index)

    codec = intarsia.codecs.PadCodec(location="start", nbytes=2, padding_func=number)
    array = fleet.make_array(
        tmp_path, shape=(8, 12), chunks=(2, 3), shards=(4, 6), codecs=(BytesCodec(), codec)
    )
    slots = intarsia.shards.slotted(array)
    slots[2:4, 6:12] = 1
    assert sorted(set(seen)) == [(1, 2), (1, 3)]
    slots[7, 11] = 1  # partly written, and so read before
    assert seen[-1] == (3, 3)


def test_a_decision_applies_chunk_by_chunk(tmp_path, pipeline):
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=1)])
    array = fleet.make_array(
        tmp_path, shape=4000, chunks=1000, shards=2000, codecs=(BytesCodec(), codec), dtype="u1"
    )
    slots = intarsia.shards.slotted(intarsia.codecs.with_decision(array, "compress_if_smaller"))
    noise = np.random.default_rng(0).integers(0, 256, 1000, dtype="u1")
    slots[0:1000], slots[1000:2000], slots[3000:4000] = 7, noise, 7
    assert np.array_equal(
        array[:], np.concatenate([np.full(1000, 7), noise, np.zeros(1000), np.full(1000, 7)])
    )
    assert intarsia.codecs.masks(array).filled(99).tolist() == [1, 0, 99, 1]
    stats = intarsia.shards.slot_stats(array)
    assert stats.slots_used == 3
    assert stats.bytes_used < 1100
    again = intarsia.codecs.with_decision(slots, "never_apply")  # in the other order it stays slotted, too
    again[0:1000] = 8
    assert intarsia.codecs.masks(array).filled(99).tolist() == [0, 0, 99, 1]


@pytest.mark.parametrize("checked", [False, True])
def test_what_a_decision_makes_too_large_for_its_slot_is_stored_raw(tmp_path, checked):
    def choose(codec):
        return True  # a function of the user's: nobody knows what it does to the size

    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=1)], decision=choose)
    array = fleet.make_array(
        tmp_path,
        shape=8000,
        chunks=1000,
        shards=4000,
        codecs=(BytesCodec(), codec, *((Crc32cCodec(),) * checked)),
        dtype="u1",
    )
    slots = intarsia.shards.slotted(array)
    noise = np.random.default_rng(0).integers(0, 256, 4000, dtype="u1")
    noise[1000:2000] = 7
    slots[:4000] = noise
    assert intarsia.codecs.masks(array).filled(99).tolist() == [0, 1, 0, 0] + [99] * 4
    intarsia.codecs.with_decision(slots, "always_apply")[4000:] = noise
    with zarr.config.set({"intarsia.decision": "always_apply"}):
        slots[4500:] = noise[500:]
    assert intarsia.codecs.masks(array).filled(99).tolist() == [0, 1, 0, 0] * 2
    assert np.array_equal(array[:], np.concatenate([noise, noise]))


def test_an_encoding_that_breaks_its_promise_is_refused_before_anything_is_written(tmp_path):
    array = fleet.make_array(
        tmp_path, shape=32, chunks=16, shards=32, codecs=(BytesCodec(), Liar()), dtype="u1"
    )
    slots = intarsia.shards.slotted(array)
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="promised"):
        slots[16:32] = 1
    assert not array[:].any()


class Liar(BytesBytesCodec):
    """Says that it keeps the size, and doubles it."""

    is_fixed_size = True

    def to_dict(self):
        return {"name": "liar"}

    def compute_encoded_size(self, input_byte_length, _spec):
        return input_byte_length

    def _encode_sync(self, data, _spec):
        return data.from_bytes(data.to_bytes() * 2)

    def _decode_sync(self, data, _spec):
        return data[: len(data) // 2]


def test_a_decision_may_read_the_very_chunk_that_it_decides_on(tmp_path):
    def choose(codec):
        return bool((intarsia.shards.slotted(array)[:16] >= 0).all())

    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()], decision=choose)
    array = fleet.make_array(tmp_path, shape=64, chunks=16, shards=64, codecs=(BytesCodec(), codec))
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    slots[3:5] = 2  # a part of a chunk, which must be read first
    assert array[:6].tolist() == [1, 1, 1, 2, 2, 1]


def test_an_update_that_somebody_forestalls_is_made_again(tmp_path):
    values = iter((5, 6))

    def choose(codec):
        value = next(values, None)
        if armed and value is not None:
            plain[:16] = value  # as another process might, between reading the chunk and writing it
        return False

    armed = []
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()], decision=choose)
    array = fleet.make_array(tmp_path, shape=64, chunks=16, shards=64, codecs=(BytesCodec(), codec))
    plain = intarsia.shards.slotted(intarsia.codecs.with_decision(array, "never_apply"))
    plain[:] = 1
    armed.append(True)
    intarsia.shards.slotted(array)[3:5] = 2
    assert array[:6].tolist() == [6, 6, 6, 2, 2, 6]


def test_it_can_be_given_to_zarr_when_an_array_is_created(tmp_path):
    codec = intarsia.shards.SlottedSharding(chunk_shape=(8,), codecs=fleet.CHECKED)
    array = zarr.create_array(tmp_path, shape=64, chunks=32, dtype="u1", serializer=codec, compressors=None)
    array[8:16] = 1
    assert intarsia.shards.slot_stats(array).slotted == 1
    assert type(zarr.open_array(tmp_path).metadata.codecs[0]) is ShardingCodec


def test_where_there_are_no_files_it_refuses_instead_of_writing_something_else():
    codec = intarsia.shards.SlottedSharding(chunk_shape=(8,), codecs=fleet.CHECKED)
    array = zarr.create_array({}, shape=64, chunks=32, dtype="u1", serializer=codec, compressors=None)
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="MemoryStore"):
        array[8:16] = 1
    nested = ShardingCodec(chunk_shape=(16,), codecs=[codec])
    array = zarr.create_array({}, shape=64, chunks=32, dtype="u1", serializer=nested, compressors=None)
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"never as a whole|inside another"):
        array[8:16] = 1


def test_a_store_for_reading_only_is_not_written(tmp_path, array):
    slots = intarsia.shards.slotted(zarr.open_array(tmp_path, mode="r"))
    with pytest.raises(intarsia.errors.ReadOnlyError, match="reading only"):
        slots[0:4, 0:8] = 1
    assert not Path(tmp_path, "c").exists()
