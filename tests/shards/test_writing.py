"""What is written where, in which order, and what a chunk looks like while it is overwritten."""

import os

import numpy as np
import pytest

import intarsia
from intarsia.shards import files, writing
from intarsia.shards.array import ShardedArray
from intarsia.shards.layout import NO_ENTRY
from tests.shards import fleet


def table_of(path, array):
    with files.opened(path, write=False) as fd:
        return [tuple(row) for row in files.read_index(fd, ShardedArray(array).form)[0].tolist()]


def test_neighbouring_chunks_are_written_in_one_call(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=640, chunks=80, shards=640)
    calls = []
    pwritev = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, data, at: calls.append((at, len(b"".join(data)))) or pwritev(fd, data, at)
    )
    slots = intarsia.slotted(array)
    slots[80:400] = 1
    payloads = [call for call in calls if call[0] == 328]
    assert payloads == [(328, 4 * 328)]  # four chunks of 320 bytes, their checksums, and the rounding


def test_payloads_that_leave_room_in_their_slots_leave_holes(tmp_path):
    codec = intarsia.ConditionalCodec(codecs=["zstd"], decision="compress_if_smaller")
    array = fleet.make_array(
        tmp_path, shape=1 << 20, chunks=1 << 17, shards=1 << 20, codecs=(*fleet.BARE, codec), dtype="u1"
    )
    intarsia.slotted(array)[:] = 1
    stats = intarsia.slot_stats(array)
    assert stats.slots_used == 8
    assert stats.bytes_on_disk <= 2 * 9 * 4096


@pytest.mark.parametrize("index_codecs", [fleet.BARE, fleet.CHECKED])
def test_without_a_checksum_a_slot_is_marked_before_it_is_overwritten(tmp_path, monkeypatch, index_codecs):
    array = fleet.make_array(
        tmp_path, shape=64, chunks=8, shards=64, codecs=fleet.BARE, index_codecs=index_codecs
    )
    slots = intarsia.slotted(array, safe_readers=False)
    slots[:16] = 1
    seen = []

    def look(*args):
        seen.append(table_of(tmp_path / "c/0", array)[:3])
        with pytest.raises(ValueError, match=r"reshape|size|view"):
            array[8:16]
        assert (array[:8] == 1).all()
        return write_payload(*args)

    write_payload = writing._write_payload
    monkeypatch.setattr(writing, "_write_payload", look)
    slots[8:16] = 2
    assert seen == [[(0, 32), (32, 1), NO_ENTRY]]
    assert table_of(tmp_path / "c/0", array)[:3] == [(0, 32), (32, 32), NO_ENTRY]


def test_a_chunk_left_half_overwritten_fails_until_it_is_written_as_a_whole(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, codecs=fleet.BARE)
    slots = intarsia.slotted(array, safe_readers=False)
    slots[:16] = 1

    def interrupted(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(writing, "_write_payload", interrupted)
        with pytest.raises(MemoryError):
            slots[8:16] = 2
    for action in (lambda: slots[8:16], lambda: slots.__setitem__(9, 3)):
        with pytest.raises(intarsia.ChunkDecodeError, match=r"chunk \(1,\).*Write the whole chunk again"):
            action()
    (problem,) = intarsia.verify(array)
    assert problem.where == "c/0 chunk (1,)"
    intarsia.compact(array)
    with pytest.raises(ValueError, match=r"reshape|size|view"):
        array[8:16]  # it is kept as what it is: unreadable
    slots[8:16] = 4
    assert array[:16].tolist() == [1] * 8 + [4] * 8


def test_chunks_of_one_byte_can_be_marked_too(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=8, chunks=1, shards=8, codecs=fleet.BARE, dtype="u1")
    slots = intarsia.slotted(array, safe_readers=False)
    slots[:] = 5

    def look(*args):
        with pytest.raises(ValueError, match="reshape"):
            array[2]
        return write_payload(*args)

    write_payload = writing._write_payload
    monkeypatch.setattr(writing, "_write_payload", look)
    slots[2] = 6
    assert array[:].tolist() == [5, 5, 6, 5, 5, 5, 5, 5]


def test_rewriting_a_chunk_of_fixed_size_leaves_the_index_alone(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    slots = intarsia.slotted(array)
    slots[:] = 1
    monkeypatch.setattr(files, "write_entries", lambda *_: pytest.fail("there is nothing to change"))
    slots[8:16] = 2
    assert array[:].sum() == 72


def test_a_large_write_goes_in_several_batches(tmp_path):
    array = fleet.make_array(tmp_path, shape=(8, 8 << 18), chunks=(1, 1 << 18), shards=(8, 8 << 18))
    values = np.arange(8 * 8 << 18, dtype="int32").reshape(8, -1)
    intarsia.slotted(array)[:, 5:-5] = values[:, 5:-5]
    assert np.array_equal(array[:, 5:-5], values[:, 5:-5])
    assert not array[:, :5].any()
