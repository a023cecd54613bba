"""Shard files appear all at once, short writes are finished, and what a dead process left is removed."""

import os
import threading

import pytest

import intarsia
from intarsia.shards import files
from intarsia.shards.inner_codecs import EncodedBound
from intarsia.shards.slots import SlotIndex, SlotLayout
from tests.shards import fleet

LAYOUT = SlotLayout(
    SlotIndex(grid=(16,), first=False),
    EncodedBound(1000, fixed=True),
    copies=1,
)


def test_of_many_creators_one_wins_and_nobody_sees_a_half_made_file(tmp_path):
    path = tmp_path / "c" / "0"
    barrier = threading.Barrier(8)
    seen = []

    def create_shard_file():
        barrier.wait()
        files.create_shard_file(path, LAYOUT)
        seen.append((path.stat().st_ino, path.stat().st_size))

    threads = [threading.Thread(target=create_shard_file) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1
    assert seen[0][1] == LAYOUT.file_bytes
    assert os.listdir(path.parent) == ["0"]
    with files.open_existing(path, write=False) as fd:
        table, intact = files.read_entries(fd, LAYOUT.index)
    assert intact
    assert LAYOUT.holds(table)


def test_an_existing_file_is_left_alone(tmp_path):
    path = tmp_path / "0"
    path.write_bytes(b"somebody's")
    files.create_shard_file(path, LAYOUT)
    assert path.read_bytes() == b"somebody's"


def test_a_file_system_without_hard_links_is_refused(tmp_path, monkeypatch):
    def unable(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unable)
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="hard links"):
        files.create_shard_file(tmp_path / "0", LAYOUT)
    assert os.listdir(tmp_path) == []


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    path = tmp_path / "0"
    dead = tmp_path / ".0.abc.partial"
    for name in (dead, tmp_path / ".00.abc.partial"):
        name.touch()
    with files.new_file(path) as (alive, _):
        assert files.clear_leftovers(path) == 1
        assert not dead.exists()
        assert alive.exists()
        assert (tmp_path / ".00.abc.partial").exists()  # of another shard
    assert not alive.exists()


def test_a_replaced_or_removed_file_is_no_longer_current(tmp_path):
    path = tmp_path / "0"
    path.write_bytes(b"old")
    with files.open_existing(path, write=True) as fd:
        assert files.is_current(fd, path)
        (tmp_path / "new").write_bytes(b"new")
        os.replace(tmp_path / "new", path)
        assert not files.is_current(fd, path)
        path.unlink()
        assert not files.is_current(fd, path)


def test_a_truncated_shard_says_so(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    os.truncate(tmp_path / "c/0", 20)
    with pytest.raises(intarsia.errors.ChunkDecodeError, match="20 bytes, but its index alone needs 132"):
        slots[:8] = 2
    (problem,) = intarsia.verify(array)
    assert problem.what.endswith("c/0 has 20 bytes, but its index alone needs 132")
