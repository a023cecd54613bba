"""Reading beside others who write and replace the file."""

import os

import numpy as np
import pytest

import intarsia
from intarsia.shards import files
from tests.shards import fleet


def test_a_file_that_is_replaced_between_index_and_chunk_makes_no_difference(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, codecs=fleet.BARE)
    slots = intarsia.shards.slotted(array)
    slots[24:] = np.arange(40)
    read_entries, replaced = files.read_entries, []

    def replaced_meanwhile(*arguments):
        monkeypatch.undo()  # compacting reads entries, too
        found = read_entries(*arguments)
        replaced.append(intarsia.shards.compact(array).replaced)  # which moves every chunk
        return found

    monkeypatch.setattr(files, "read_entries", replaced_meanwhile)
    assert slots[24:].tolist() == list(range(40))
    assert replaced == [1]


def test_damage_is_named_with_shard_and_chunk(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, index_codecs=fleet.BARE)
    intarsia.shards.slotted(array)[:] = 1
    slots = intarsia.shards.slotted(array)
    with (tmp_path / "c/0").open("r+b") as file:
        file.seek(-3 * 16, os.SEEK_END)
        file.write((1 << 50).to_bytes(8, "little"))
    with pytest.raises(intarsia.errors.ChunkDecodeError, match=r"inner chunk \(5,\) of .*c/0 cannot be read"):
        slots[:]
    assert (slots[:40] == 1).all()


def test_reading_needs_no_permission_to_write(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    (tmp_path / "c/0").chmod(0o444)
    opened = []
    real = os.open

    def recorded(path, flags, *more, **options):
        opened.append(flags & os.O_ACCMODE)
        return real(path, flags, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", recorded)
        assert (slots[:] == 1).all()
        assert intarsia.verify(array) == ()
        assert intarsia.shards.slot_stats(array).slots_used == 8
    assert set(opened) == {os.O_RDONLY}


@pytest.mark.parametrize("action", ["read", "write a part"])
def test_a_chunk_that_does_not_match_its_checksum_is_named_with_its_shard(tmp_path, action):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, index_codecs=fleet.BARE)
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    with (tmp_path / "c/0").open("r+b") as file:
        file.seek(5)
        file.write(b"\7")
    attempt = {"read": lambda: slots[:8], "write a part": lambda: slots.__setitem__(slice(3, 5), 2)}[action]
    with pytest.raises(
        intarsia.errors.ChunkDecodeError, match=r"inner chunk \(0,\) of the shard .*c/0 is dam"
    ):
        attempt()


@pytest.mark.parametrize(
    "action", [intarsia.shards.compact, lambda a: intarsia.shards.slotted(a).__setitem__(0, 3)]
)
def test_a_file_that_is_shorter_than_its_index_is_named(tmp_path, action):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    intarsia.shards.slotted(array)[:] = 1
    os.truncate(tmp_path / "c/0", 100)
    with pytest.raises(
        intarsia.errors.ChunkDecodeError, match=r"the shard .*c/0 has 100 bytes, but its index"
    ):
        action(array)
