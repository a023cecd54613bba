"""What `verify` finds in shards, and that it goes on after the first problem."""

import os

import pytest
import zarr

import intarsia
from tests.shards import fleet


def test_an_array_without_files_has_nothing(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=32)
    stats = intarsia.shards.slot_stats(array)
    assert stats == intarsia.types.SlotStats(*[0] * 9)


def test_shards_with_and_without_slots_are_told_apart(tmp_path):
    array = fleet.make_array(tmp_path, shape=128, chunks=8, shards=32)
    intarsia.shards.slotted(array)[:40] = 1
    array[64:] = 1
    stats = intarsia.shards.slot_stats(array)
    assert (stats.shards, stats.slotted, stats.slots, stats.slots_used, stats.slots_free) == (4, 2, 8, 5, 3)
    assert stats.bytes_used == 13 * 36


def test_compressed_shards_are_counted_too(tmp_path):
    array = zarr.create_array(tmp_path, shape=640, chunks=80, shards=320, dtype="i4", compressors="auto")
    array[:] = 1
    stats = intarsia.shards.slot_stats(array)
    assert (stats.shards, stats.slotted) == (2, 0)
    assert stats.bytes_stored == stats.bytes_compacted
    assert stats.bytes_freed == 0


def test_a_shard_that_holds_nothing_would_go(tmp_path):
    array = fleet.make_array(tmp_path, shape=32, chunks=8, shards=32)
    slots = intarsia.shards.slotted(array)
    slots[:8] = 1
    slots[:8] = 0
    stats = intarsia.shards.slot_stats(array)
    assert (stats.slots_used, stats.bytes_used, stats.bytes_compacted) == (0, 0, 0)
    assert stats.bytes_freed == stats.bytes_on_disk > 0


def test_the_cost_is_that_of_what_is_stored_not_of_the_grid(tmp_path):
    array = fleet.make_array(tmp_path, shape=10**15, chunks=8, shards=64)
    intarsia.shards.slotted(array)[10**14 : 10**14 + 8] = 1
    assert intarsia.shards.slot_stats(array).shards == 1
    assert intarsia.verify(array) == ()
    assert intarsia.shards.flush_slots(array) == 1
    assert intarsia.shards.compact(array).replaced == 1
    assert intarsia.shards.reslot(array) == 1


@pytest.fixture
def array(tmp_path):
    array = fleet.make_array(tmp_path / "a", shape=(16, 16), chunks=(4, 4), shards=(8, 8))
    intarsia.shards.slotted(array)[:] = 1
    return array


def overwrite(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        file.write(data)


def test_all_damaged_chunks_of_all_shards_are_listed(tmp_path, array):
    overwrite(tmp_path / "a/c/0/0", 10, b"x")
    overwrite(tmp_path / "a/c/1/1", 10, b"x")
    overwrite(tmp_path / "a/c/1/1", 72 + 10, b"x")
    problems = intarsia.verify(array)
    assert [problem.where for problem in problems] == [
        "c/0/0 chunk (0, 0)",
        "c/1/1 chunk (2, 2)",
        "c/1/1 chunk (3, 2)",
    ]
    assert all("checksum" in problem.what for problem in problems)
    assert intarsia.verify(array, data=False) == ()


def test_a_checksum_that_is_out_of_date_is_reported_and_put_right_by_the_next_write(tmp_path, array):
    overwrite(tmp_path / "a/c/0/0", -4, b"oops")
    (problem,) = intarsia.verify(array)
    assert "a writer died" in problem.what
    assert "intarsia.shards.compact" in problem.advice
    with pytest.raises(ValueError, match="checksum"):
        array[:]
    slots = intarsia.shards.slotted(array)
    assert (slots[:] == 1).all()  # our own reader can do without
    slots[0, 0] = 2
    assert intarsia.verify(array) == ()
    assert array[:].sum() == 257


def test_an_index_that_makes_no_sense_is_not_put_right(tmp_path, array):
    overwrite(tmp_path / "a/c/0/0", -60, b"\x07")
    (problem,) = intarsia.verify(array)
    assert "damaged" in problem.what
    slots = intarsia.shards.slotted(array)
    for action in (
        lambda: slots[0:4, 0:4],
        lambda: slots.__setitem__((0, 0), 2),
        lambda: intarsia.shards.compact(array),
    ):
        with pytest.raises(intarsia.errors.ChunkDecodeError, match="makes no sense"):
            action()


def test_chunks_that_overlap_are_reported(tmp_path):
    array = fleet.make_array(tmp_path / "b", shape=16, chunks=4, shards=16, index_codecs=fleet.BARE)
    intarsia.shards.slotted(array)[:] = 1
    overwrite(tmp_path / "b/c/0", -16, (40).to_bytes(8, "little"))  # the last chunk, at the place of another
    assert any("share the bytes from 40 to" in problem.what for problem in intarsia.verify(array))


def test_sound_shards_of_any_kind_have_no_problems(tmp_path, array):
    intarsia.shards.compact(array)
    assert intarsia.verify(array) == ()
    compressed = zarr.create_array(
        tmp_path / "z", shape=64, chunks=8, shards=32, dtype="i4", compressors="auto"
    )
    compressed[:] = 3
    assert intarsia.verify(compressed) == ()
