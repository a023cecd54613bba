"""Replacing a shard under the eyes of a reader that opened the old file and now opens the new one."""

import contextlib
import itertools
import os

import numpy as np
import pytest

import intarsia
from intarsia import file_io
from intarsia.shards import files, replace_shard
from intarsia.shards.handle import ShardedArray
from tests.shards import fleet

KINDS = list(itertools.product((fleet.BARE, fleet.CHECKED), ("start", "end"), (True, False)))


def follow_old_entries(directory, monkeypatch, codecs, location, safe_readers, way, size):
    """Follow every entry that can be read before a file is replaced into the file that replaces it.

    Returns the chunks that read as something else.
    """
    array = fleet.make_array(
        directory,
        shape=16 * size,
        chunks=size,
        shards=16 * size,
        codecs=codecs,
        location=location,
        dtype="u1",
    )
    slots = intarsia.shards.slotted(array, safe_readers=safe_readers)
    for chunk in (1, 2, 3, 5, 8, 13, 14):
        slots[fleet.chunk_slice(array, chunk)] = 100
        slots[fleet.chunk_slice(array, chunk)] = chunk
    if way == "reslot":
        intarsia.shards.compact(array)
    sharded = ShardedArray(array)
    path = directory / "c/0"

    def read_table(_seconds=0):
        with files.open_existing(path, write=False) as fd:
            tables.append(files.read_entries(fd, sharded.index)[0].tolist())

    tables = []
    read_table()
    # Whoever read an entry before it was led astray has followed it when this is over.
    monkeypatch.setattr(replace_shard.time, "sleep", read_table)
    if way == "compact":
        intarsia.shards.compact(array)
    else:
        intarsia.shards.reslot(array, safe_readers=safe_readers)
    assert intarsia.verify(array) == ()
    data = path.read_bytes()
    wrong = []
    for number, (offset, length) in enumerate(tables[-1]):
        stored = data[offset : offset + length]
        if len(stored) == length:
            with contextlib.suppress(ValueError):  # it fails, as it should
                buffer = sharded.chunk_spec.prototype.buffer.from_bytes(stored)
                values = sharded.transform.decode_chunk(buffer, sharded.chunk_spec).as_numpy_array()
                wrong += [number] * bool((values != number).any())
    return wrong


@pytest.mark.parametrize(("codecs", "location", "safe_readers"), KINDS)
@pytest.mark.parametrize("way", ["compact", "reslot"])
@pytest.mark.parametrize("size", [8, 12, 15])  # filling a slot as they are, with a checksum, or never
def test_an_old_entry_never_leads_to_another_chunk(
    tmp_path, monkeypatch, codecs, location, safe_readers, way, size
):
    assert follow_old_entries(tmp_path, monkeypatch, codecs, location, safe_readers, way, size) == []


@pytest.mark.parametrize(("codecs", "size"), [(fleet.BARE, 8), (fleet.CHECKED, 12)])
@pytest.mark.parametrize("way", ["compact", "reslot"])
def test_without_parking_it_would(tmp_path, monkeypatch, codecs, size, way):
    """Shows that the test above can fail."""
    monkeypatch.setattr(replace_shard, "_astray", lambda *_: [])
    assert follow_old_entries(tmp_path, monkeypatch, codecs, "end", False, way, size)


def test_nobody_waits_where_no_chunk_moves(tmp_path, monkeypatch):
    monkeypatch.setattr(replace_shard.time, "sleep", lambda _: pytest.fail("there is nothing to wait for"))
    array = fleet.make_array(tmp_path, shape=640, chunks=80, shards=640, codecs=fleet.BARE)
    intarsia.shards.slotted(array)[:] = 1
    assert intarsia.shards.compact(array).replaced == 1
    intarsia.shards.slotted(array)[:80] = 2
    assert array[:].sum() == 640 + 80


def test_a_parked_chunk_fails_in_other_programs_and_not_in_ours(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, codecs=fleet.BARE)
    slots = intarsia.shards.slotted(array)
    slots[8:] = np.arange(56)
    outcome = []

    def look(_seconds):
        with pytest.raises((ValueError, OSError, ExceptionGroup)):  # whatever zarr makes of it
            array[16:24]
        outcome.append(slots[8:].tolist())

    monkeypatch.setattr(replace_shard.time, "sleep", look)
    intarsia.shards.compact(array)
    assert outcome == [list(range(56))]
    assert array[8:].tolist() == list(range(56))


def test_compaction_of_a_shard_that_disappears_does_nothing(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    intarsia.shards.slotted(array)[:] = 1
    found = list(ShardedArray(array).files())
    monkeypatch.setattr(ShardedArray, "files", lambda self: iter(found))
    os.unlink(tmp_path / "c/0")
    assert intarsia.shards.compact(array).replaced == 0
    assert intarsia.shards.reslot(array) == 0
    assert intarsia.shards.slot_stats(array).shards == 0


@pytest.fixture(scope="module", autouse=True)
def small_windows():
    """A window so small that a few bytes need several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_io, "WINDOW", 64)
        yield
