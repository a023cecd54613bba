"""Where the index, the chunks and the slots of a shard lie, compared with what zarr writes."""

import itertools

import numpy as np
import pytest
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, TransposeCodec

import intarsia
from intarsia._compat import morton_order_coords
from intarsia.shards.bound import EncodedBound
from intarsia.shards.layout import ABSENT, TORN, IndexForm, SlotLayout, chunk_order, from_the_array
from tests.shards import fleet

FORMS = [
    IndexForm(grid=grid, first=first, big_endian=big_endian, checksum=checksum)
    for grid in ((1,), (7,), (3, 4), (2, 3, 2))
    for first, big_endian, checksum in itertools.product((False, True), repeat=3)
]


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_an_index_is_stored_as_zarr_stores_it(tmp_path, form):
    index_codecs = (
        BytesCodec(endian="big" if form.big_endian else "little"),
        *fleet.CHECKED[1:][: form.checksum],
    )
    array = fleet.make_array(
        tmp_path, shape=form.grid, chunks=(1,) * len(form.grid), shards=form.grid, codecs=fleet.BARE,
        index_codecs=index_codecs, location="start" if form.first else "end",
    )  # fmt: skip
    array[...] = np.arange(1, form.chunks + 1).reshape(form.grid) % 4  # chunks of zeros are not there
    (shard,) = (p for p in (tmp_path / "c").rglob("*") if p.is_file())
    raw = shard.read_bytes()
    start = form.start(len(raw))
    stored = raw[start : start + form.nbytes]
    table, intact = form.decode(stored)
    assert intact
    assert form.encode(table) == stored
    assert IndexForm.of(array.metadata.codecs[0], form.grid) == form
    for number in range(form.chunks):
        coordinates = form.coordinates(number)
        assert form.number(coordinates) == number
        value = int(array[coordinates])
        offset, length = table[number]
        if value:
            assert int.from_bytes(raw[int(offset) : int(offset + length)], "little") == value
        else:
            assert (offset, length) == (ABSENT, ABSENT)
    present = table[table[:, 0] != ABSENT, 0]
    assert (np.diff(present.astype(int)) > 0).all()  # numbers follow the order in which zarr writes


def test_a_damaged_or_short_index_is_noticed():
    form = FORMS[-1]
    stored = bytearray(form.encode(form.empty()))
    stored[3] ^= 1
    assert not form.decode(bytes(stored))[1]
    with pytest.raises(intarsia.errors.ChunkDecodeError, match="truncated"):
        form.decode(bytes(stored[:-1]))


def test_other_index_codecs_are_refused_by_name():
    codec = ShardingCodec(
        chunk_shape=(2,), index_codecs=[BytesCodec(), intarsia.PadCodec(location="end", nbytes=4)]
    )
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="'pad'"):
        IndexForm.of(codec, (8,))
    with pytest.raises(ValueError, match="fixed-size"):
        ShardingCodec(chunk_shape=(2,), index_codecs=[BytesCodec(), GzipCodec()])


@pytest.mark.parametrize("form", FORMS, ids=repr)
@pytest.mark.parametrize("copies", [1, 2])
def test_slots_overlap_neither_one_another_nor_the_index(form, copies):
    layout = SlotLayout(form, EncodedBound(13, fixed=True, checksum=False), copies)
    assert layout.slot == 16
    starts = sorted(layout.offset(n, c) for n in range(form.chunks) for c in range(copies))
    assert all(b - a == layout.slot for a, b in itertools.pairwise(starts))
    index = form.start(layout.file_bytes)
    assert index % 16 == 0  # an entry lies in one page
    assert (starts[0] >= form.nbytes) if form.first else (starts[-1] + layout.slot <= index)
    for number, copy in itertools.product(range(form.chunks), range(copies)):
        assert layout.copy_at(layout.offset(number, copy)) == copy


def test_only_chunks_in_their_own_slots_are_taken_for_slotted():
    form = IndexForm(grid=(4,), first=False, big_endian=False, checksum=False)
    layout = SlotLayout(form, EncodedBound(16, fixed=True, checksum=False), copies=1)
    table = form.empty()
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


def test_behind_a_transpose_chunks_are_numbered_as_the_shard_has_them():
    transposes = [TransposeCodec(order=(1, 2, 0)), TransposeCodec(order=(0, 2, 1))]
    codec, axes = from_the_array(transposes, ShardingCodec(chunk_shape=(1, 1, 1)))
    form = IndexForm.of(codec, (2, 3, 4), axes)
    shard = np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0).transpose(0, 2, 1)
    assert form.grid == shard.shape
    for number, place in enumerate(morton_order_coords(shard.shape)):
        coordinates = np.unravel_index(shard[place], (2, 3, 4))
        assert form.number(coordinates) == number
        assert form.coordinates(number) == coordinates
