"""Counting slots and bytes."""

import zarr

import intarsia
from tests.shards import fleet


def test_an_array_without_files_has_nothing(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=32)
    stats = intarsia.slot_stats(array)
    assert stats == intarsia.types.SlotStats(*[0] * 9)


def test_shards_with_and_without_slots_are_told_apart(tmp_path):
    array = fleet.make_array(tmp_path, shape=128, chunks=8, shards=32)
    intarsia.slotted(array)[:40] = 1
    array[64:] = 1
    stats = intarsia.slot_stats(array)
    assert (stats.shards, stats.slotted, stats.slots, stats.slots_used, stats.slots_free) == (4, 2, 8, 5, 3)
    assert stats.bytes_used == 13 * 36


def test_compressed_shards_are_counted_too(tmp_path):
    array = zarr.create_array(tmp_path, shape=640, chunks=80, shards=320, dtype="i4", compressors="auto")
    array[:] = 1
    stats = intarsia.slot_stats(array)
    assert (stats.shards, stats.slotted) == (2, 0)
    assert stats.bytes_stored == stats.bytes_compacted
    assert stats.bytes_freed == 0


def test_a_shard_that_holds_nothing_would_go(tmp_path):
    array = fleet.make_array(tmp_path, shape=32, chunks=8, shards=32)
    slots = intarsia.slotted(array)
    slots[:8] = 1
    slots[:8] = 0
    stats = intarsia.slot_stats(array)
    assert (stats.slots_used, stats.bytes_used, stats.bytes_compacted) == (0, 0, 0)
    assert stats.bytes_freed == stats.bytes_on_disk > 0


def test_the_cost_is_that_of_what_is_stored_not_of_the_grid(tmp_path):
    array = fleet.make_array(tmp_path, shape=10**15, chunks=8, shards=64)
    intarsia.slotted(array)[10**14 : 10**14 + 8] = 1
    assert intarsia.slot_stats(array).shards == 1
    assert intarsia.verify(array) == ()
    assert intarsia.shards.flush_slots(array) == 1
    assert intarsia.compact(array).replaced == 1
    assert intarsia.shards.reslot(array) == 1
