"""What is written where, in which order, and what a chunk looks like while it is overwritten."""

import os

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.codecs.shard_index import NO_ENTRY
from intarsia.shards import chunks, files
from intarsia.shards.handle import ShardedArray
from tests.shards import fleet


def table_of(path, array):
    with files.open_existing(path, write=False) as fd:
        return [tuple(row) for row in files.read_entries(fd, ShardedArray(array).index)[0].tolist()]


def test_payloads_that_leave_room_in_their_slots_leave_holes(tmp_path):
    codec = intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision="compress_if_smaller")
    array = fleet.make_array(
        tmp_path, shape=1 << 20, chunks=1 << 17, shards=1 << 20, codecs=(*fleet.BARE, codec), dtype="u1"
    )
    intarsia.shards.slotted(array)[:] = 1
    stats = intarsia.shards.slot_stats(array)
    assert stats.slots_used == 8
    assert stats.bytes_on_disk <= 2 * 9 * 4096


OTHERS = {
    "zarr": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}


FAILURES = (ValueError, OSError, RuntimeError, ExceptionGroup)  # whatever they make of it


def read_as(program, path, selection):
    with zarr.config.set({"codec_pipeline.path": OTHERS[program]}):
        return zarr.open_array(path, mode="r")[selection]


@pytest.mark.parametrize("codecs", [fleet.BARE, fleet.CHECKED])
@pytest.mark.parametrize("index_codecs", [fleet.BARE, fleet.CHECKED])
def test_an_only_slot_is_marked_before_it_is_overwritten(tmp_path, monkeypatch, codecs, index_codecs):
    array = fleet.make_array(
        tmp_path, shape=64, chunks=8, shards=64, codecs=codecs, index_codecs=index_codecs
    )
    slots = intarsia.shards.slotted(array, safe_readers=False)
    slots[:16] = 1
    before = table_of(tmp_path / "c/0", array)[:3]
    seen = []

    def look(*args):
        seen.append(table_of(tmp_path / "c/0", array)[:3])
        for program in OTHERS:  # zarrs looks neither at the length nor at the checksum of a chunk
            for selection in (slice(8, 16), slice(9, 12)):
                with pytest.raises(FAILURES):
                    read_as(program, tmp_path, selection)
            assert (read_as(program, tmp_path, slice(0, 8)) == 1).all()
        return write_all(*args)

    write_all = chunks.write_all
    monkeypatch.setattr(chunks, "write_all", look)
    slots[8:16] = 2
    (offset, length) = before[1]
    assert seen == [[before[0], (offset | 1 << 61, length), NO_ENTRY]]
    assert table_of(tmp_path / "c/0", array)[:3] == before


@pytest.mark.parametrize("codecs", [fleet.BARE, fleet.CHECKED])
def test_a_chunk_left_half_overwritten_fails_until_it_is_written_as_a_whole(tmp_path, monkeypatch, codecs):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, codecs=codecs)
    slots = intarsia.shards.slotted(array, safe_readers=False)
    slots[:24] = 1

    def interrupted(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "write_all", interrupted)
        with pytest.raises(MemoryError):
            slots[8:16] = 2
    for action in (lambda: slots[8:16], lambda: slots.__setitem__(9, 3)):
        with pytest.raises(
            intarsia.errors.ChunkDecodeError, match=r"chunk \(1,\).*Write the whole chunk again"
        ):
            action()
    (problem,) = intarsia.verify(array)
    assert problem.where == "c/0 chunk (1,)"
    for replace in (intarsia.shards.compact, intarsia.shards.reslot, intarsia.shards.compact):
        replace(array)
        assert [problem.where for problem in intarsia.verify(array)] == ["c/0 chunk (1,)"]
        for program in OTHERS:
            with pytest.raises(FAILURES):  # it is kept as what it is: unreadable
                read_as(program, tmp_path, slice(9, 12))
            assert (read_as(program, tmp_path, slice(16, 24)) == 1).all()
    assert intarsia.shards.compact(array).replaced == 0
    slots[8:16] = 4
    assert array[:16].tolist() == [1] * 8 + [4] * 8


@pytest.mark.parametrize("index_codecs", [fleet.BARE, fleet.CHECKED])
def test_with_two_slots_a_writer_that_fails_leaves_the_old_value(tmp_path, monkeypatch, index_codecs):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, index_codecs=index_codecs)
    slots = intarsia.shards.slotted(array)
    slots[:16] = 1

    def half(fd, buffers, offset):
        os.pwrite(fd, b"".join(buffers)[:10], offset)
        raise MemoryError

    monkeypatch.setattr(chunks, "write_all", half)
    for _ in range(2):
        with pytest.raises(MemoryError):
            slots[8:16] = 2
    assert [(read_as(program, tmp_path, slice(0, 16)) == 1).all() for program in OTHERS] == [True, True]


@pytest.mark.parametrize("index_codecs", [fleet.BARE, fleet.CHECKED])
def test_of_a_large_index_no_more_is_touched_than_must_be(tmp_path, monkeypatch, index_codecs):
    chunks = 1 << 15
    array = fleet.make_array(
        tmp_path, shape=chunks * 2, chunks=2, shards=chunks * 2, index_codecs=index_codecs, dtype="u1"
    )
    slots = intarsia.shards.slotted(array)
    slots[:8] = 1
    moved = {"pread": 0, "pwritev": 0}
    pread, pwritev = os.pread, os.pwritev

    def reads(*args):
        data = pread(*args)
        moved["pread"] += len(data)
        return data

    def writes(*args):
        nbytes = pwritev(*args)
        moved["pwritev"] += nbytes
        return nbytes

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", reads)
        patch.setattr(os, "pwritev", writes)
        slots[2:4] = 2
        assert slots[2:4].tolist() == [2, 2]
    assert moved["pwritev"] <= 8 + 16 + 4
    if index_codecs == fleet.BARE:
        assert moved["pread"] <= 3 * 16 + 8
    assert array[:8].tolist() == [1, 1, 2, 2, 1, 1, 1, 1]


def test_a_large_write_goes_in_several_batches(tmp_path):
    array = fleet.make_array(tmp_path, shape=(8, 8 << 18), chunks=(1, 1 << 18), shards=(8, 8 << 18))
    values = np.arange(8 * 8 << 18, dtype="int32").reshape(8, -1)
    intarsia.shards.slotted(array)[:, 5:-5] = values[:, 5:-5]
    assert np.array_equal(array[:, 5:-5], values[:, 5:-5])
    assert not array[:, :5].any()
