"""Where the index, the chunks and the slots of a shard lie, compared with what zarr writes."""

import itertools

import numpy as np
import pytest
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec

import intarsia
from intarsia.codecs.shard_index import ABSENT
from intarsia.shards import files
from intarsia.shards.inner_codecs import EncodedBound
from intarsia.shards.slots import TORN, SlotIndex, SlotLayout, chunk_order
from tests.shards import fleet
from tests.shards.fleet import CHECKED

INDEXES = [
    SlotIndex(grid=grid, first=first, codecs=(BytesCodec(endian=endian), *CHECKED[1:][:checksum]))
    for grid in ((1,), (7,), (3, 4), (2, 3, 2))
    for first, endian, checksum in itertools.product((False, True), ("little", "big"), (False, True))
]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_an_index_is_stored_as_zarr_stores_it(tmp_path, index):
    array = fleet.make_array(
        tmp_path, shape=index.grid, chunks=(1,) * len(index.grid), shards=index.grid, codecs=fleet.BARE,
        index_codecs=index.codecs, location="start" if index.first else "end",
    )  # fmt: skip
    array[...] = np.arange(1, index.chunks + 1).reshape(index.grid) % 4  # chunks of zeros are not there
    (shard,) = (p for p in (tmp_path / "c").rglob("*") if p.is_file())
    raw = shard.read_bytes()
    start = index.start(len(raw))
    stored = raw[start : start + index.nbytes]
    with shard.open("rb") as file:
        table, intact = files.read_entries(file.fileno(), index)
    assert intact
    assert index.encode_numbered(table) == stored
    assert SlotIndex.of(array.metadata.codecs[0], index.grid) == index
    for number in range(index.chunks):
        coordinates = index.coordinates(number)
        assert index.number(coordinates) == number
        value = int(array[coordinates])
        offset, length = table[number]
        if value:
            assert int.from_bytes(raw[int(offset) : int(offset + length)], "little") == value
        else:
            assert (offset, length) == (ABSENT, ABSENT)
    present = table[table[:, 0] != ABSENT, 0]
    assert (np.diff(present.astype(int)) > 0).all()  # numbers follow the order in which zarr writes


def test_a_damaged_or_short_index_is_noticed(tmp_path):
    index = INDEXES[-1]
    stored = bytearray(index.encode_numbered(index.empty()))
    stored[3] ^= 1
    (tmp_path / "shard").write_bytes(stored)
    with (tmp_path / "shard").open("r+b") as file:
        assert not files.read_entries(file.fileno(), index)[1]
        file.truncate(len(stored) - 1)
        with pytest.raises(intarsia.errors.ChunkDecodeError, match="its index alone needs"):
            files.read_entries(file.fileno(), index)


def test_other_index_codecs_are_refused_by_name():
    codec = ShardingCodec(
        chunk_shape=(2,), index_codecs=[BytesCodec(), intarsia.codecs.PadCodec(location="end", nbytes=4)]
    )
    with pytest.raises(intarsia.errors.CodecConfigurationError, match="'pad'"):
        SlotIndex.of(codec, (8,))
    with pytest.raises(ValueError, match="fixed-size"):
        ShardingCodec(chunk_shape=(2,), index_codecs=[BytesCodec(), GzipCodec()])


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("copies", [1, 2])
def test_slots_overlap_neither_one_another_nor_the_index(index, copies):
    layout = SlotLayout(index, EncodedBound(13, fixed=True), copies)
    assert layout.slot == 16
    starts = sorted(layout.offset(n, c) for n in range(index.chunks) for c in range(copies))
    assert all(b - a == layout.slot for a, b in itertools.pairwise(starts))
    start = index.start(layout.file_bytes)
    assert start % 16 == 0  # an entry lies in one page
    assert (starts[0] >= index.nbytes) if index.first else (starts[-1] + layout.slot <= start)
    for number, copy in itertools.product(range(index.chunks), range(copies)):
        assert layout.copy_at(layout.offset(number, copy)) == copy


def test_only_chunks_in_their_own_slots_are_taken_for_slotted():
    index = SlotIndex(grid=(4,), first=False, codecs=(BytesCodec(endian="little"),))
    layout = SlotLayout(index, EncodedBound(16, fixed=True), copies=1)
    table = index.empty()
    assert layout.holds(table)
    table[2] = 32, 16
    assert layout.holds(table)
    assert layout.holds(table[[2, 0]], [2, 0])
    assert not layout.holds(table[[2, 0]], [1, 0])
    table[2] = 32 | int(TORN), 16
    assert layout.holds(table)
    for bad in ((16, 16), (32, 17), (32, 15), (32, 0), (40, 8), (int(ABSENT), 16), (32, int(ABSENT))):
        table[2] = bad
        assert not layout.holds(table), bad


def test_the_order_of_chunks_is_cached_and_cannot_be_spoilt():
    with pytest.raises(ValueError, match="read-only"):
        chunk_order((2, 2))[0] = 1
