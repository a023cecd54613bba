"""Compaction: smaller files with the same values, the bytes that zarr-python writes."""

import errno
import os
import threading

import numpy as np
import pytest
import tensorstore
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

import intarsia
from intarsia.shards import compaction, replace_shard
from intarsia.shards.files import open_existing
from intarsia.shards.locks import try_lock
from tests.grids import spread
from tests.shards import fleet

GEOMETRIES = {
    "one axis": {"shape": 1000, "chunks": 10, "shards": 400},
    "three axes": {"shape": (9, 20, 14), "chunks": (2, 5, 3), "shards": (4, 10, 6)},
}
KINDS = {
    f"{'crc32c' if codecs == fleet.CHECKED else 'bare'} chunks, "
    f"{'crc32c' if index_codecs == fleet.CHECKED else 'bare'} index at the {location}": {
        "codecs": codecs, "index_codecs": index_codecs, "location": location,
    }
    for codecs in (fleet.BARE, fleet.CHECKED)
    for index_codecs in (fleet.BARE, fleet.CHECKED)
    for location in ("start", "end")
}  # fmt: skip


def files_of(directory):
    return {
        p.relative_to(directory): p.read_bytes() for p in sorted((directory / "c").rglob("*")) if p.is_file()
    }


@pytest.mark.parametrize(
    ("kind", "geometry", "safe_readers"), spread(KINDS, GEOMETRIES, [True, False], times=2)
)
def test_compacted_shards_are_byte_for_byte_what_zarr_writes(
    tmp_path, monkeypatch, kind, geometry, safe_readers
):
    monkeypatch.setattr(replace_shard, "ASTRAY_SECONDS", 0)  # nobody else reads here
    made = GEOMETRIES[geometry] | KINDS[kind]
    array = fleet.make_array(tmp_path / "slots", **made)
    twin = fleet.make_array(tmp_path / "plain", **made)
    values = np.arange(array.size, dtype="int32").reshape(array.shape)
    values[:3] = 0  # some chunks are not there
    slots = intarsia.shards.slotted(array, safe_readers=safe_readers)
    slots[...] = -values
    for start in range(0, array.shape[0], -(-array.shape[0] // 7)):  # in pieces that chunks know nothing of
        part = slice(start, start + -(-array.shape[0] // 7))
        slots[part] = values[part]
    twin[...] = values
    intarsia.shards.compact(array)
    assert files_of(tmp_path / "slots") == files_of(tmp_path / "plain")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "slots")}}
    assert np.array_equal(tensorstore.open(spec).result().read().result(), values)


def test_the_sizes_that_are_reported_are_the_real_ones(tmp_path):
    array = fleet.make_array(tmp_path, shape=1 << 20, chunks=1 << 12, shards=1 << 18)
    slots = intarsia.shards.slotted(array, safe_readers=True)
    slots[: 1 << 17] = 1
    slots[: 1 << 16] = 2  # rewritten: now two slots each
    slots[1 << 19 : (1 << 19) + 5] = 3
    paths = [p for p in (tmp_path / "c").iterdir() if p.is_file()]
    before = intarsia.shards.slot_stats(array)
    assert before.bytes_on_disk == sum(p.stat().st_blocks * 512 for p in paths)
    assert before.bytes_stored == sum(p.stat().st_size for p in paths)
    result = intarsia.shards.compact(array)
    assert result.bytes_before == before.bytes_on_disk
    assert result.bytes_after == sum(p.stat().st_blocks * 512 for p in paths)
    assert result.bytes_freed == before.bytes_freed > 1 << 18
    after = intarsia.shards.slot_stats(array)
    assert after.bytes_stored == before.bytes_compacted == sum(p.stat().st_size for p in paths)
    assert (after.bytes_freed, after.slotted, after.shards) == (0, 0, 2)
    assert after.bytes_used == before.bytes_used == 33 * ((1 << 14) + 4)


def test_what_is_compact_stays_and_what_is_empty_goes(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=32)
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    slots[:32] = 0
    assert intarsia.shards.compact(array).replaced == 2
    assert not (tmp_path / "c/0").exists()
    inode = (tmp_path / "c/1").stat().st_ino
    assert intarsia.shards.compact(array).replaced == 0
    assert (tmp_path / "c/1").stat().st_ino == inode
    assert array[:].tolist() == [0] * 32 + [1] * 32


def test_a_compacted_shard_gets_slots_again_when_it_is_written(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    slots = intarsia.shards.slotted(array)
    slots[:24] = np.arange(24)
    intarsia.shards.compact(slots)
    assert intarsia.shards.slot_stats(array).slotted == 0
    slots[40:48] = 5
    assert intarsia.shards.slot_stats(array).slotted == 1
    assert array[:].tolist() == [*range(24), *[0] * 16, *[5] * 8, *[0] * 16]


def test_a_compacted_shard_that_somebody_else_rewrote_is_refused(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    slots = intarsia.shards.slotted(array)
    slots[:24] = 1
    intarsia.shards.compact(slots)
    array[:8] = 2
    with pytest.raises(intarsia.errors.SlotsGoneError, match=r"intarsia\.shards\.reslot"):
        slots[8:16] = 3
    # The same if the file was rewritten in place, as some programs do, and kept its extended attributes.
    intarsia.shards.reslot(array)
    intarsia.shards.compact(slots)
    data = (tmp_path / "c/0").read_bytes()
    array[:] = 3
    other = (tmp_path / "c/0").read_bytes()
    (tmp_path / "c/0").unlink()
    (tmp_path / "c/0").write_bytes(data)
    os.setxattr(tmp_path / "c/0", replace_shard.COMPACTED_ATTRIBUTE, b"of another index")
    (tmp_path / "c/0").write_bytes(other)
    with pytest.raises(intarsia.errors.SlotsGoneError):
        slots[8:16] = 3


def test_without_extended_attributes_reslot_has_to_be_called(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    slots = intarsia.shards.slotted(array)
    slots[:24] = 1
    intarsia.shards.compact(slots)
    with pytest.raises(intarsia.errors.SlotsGoneError):
        slots[8:16] = 3
    intarsia.shards.reslot(slots)
    slots[8:16] = 3
    assert array[:].tolist() == [*[1] * 8, *[3] * 8, *[1] * 8, *[0] * 40]


def test_a_chunk_that_cannot_be_read_is_kept_as_it_is(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    intarsia.shards.slotted(array)[:] = 1
    with (tmp_path / "c/0").open("r+b") as file:
        file.seek(2 * 40 + 3)
        file.write(b"\xff")
    assert [problem.where for problem in intarsia.verify(array)] == ["c/0 chunk (2,)"]
    intarsia.shards.compact(array)
    assert [problem.where for problem in intarsia.verify(array)] == ["c/0 chunk (2,)"]
    with pytest.raises(ValueError, match="checksum"):
        array[16:24]
    assert (array[24:] == 1).all()


def test_an_index_that_leads_out_of_the_file_is_not_compacted_away(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, index_codecs=fleet.BARE)
    intarsia.shards.slotted(array)[:] = 1
    before = bytearray((tmp_path / "c/0").read_bytes())
    before[-16:-8] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "c/0").write_bytes(before)
    with pytest.raises(intarsia.errors.ChunkDecodeError, match=r"\(7,\).*damaged"):
        intarsia.shards.compact(array)
    assert (tmp_path / "c/0").read_bytes() == before


def test_a_full_disk_leaves_the_old_shard(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, codecs=fleet.BARE)
    slots = intarsia.shards.slotted(array)
    slots[8:] = 1  # a hole at the start: compaction moves chunks, so other readers are led astray before
    before = (tmp_path / "c/0").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", full)
        with pytest.raises(OSError, match="No space"):
            intarsia.shards.compact(array)
    assert (tmp_path / "c/0").read_bytes() == before
    assert os.listdir(tmp_path / "c") == ["0"]
    slots[:8] = 2
    assert array[:].tolist() == [2] * 8 + [1] * 56


def test_a_disk_that_fails_after_the_replacement_leaves_no_lock(tmp_path, monkeypatch):
    slots = intarsia.shards.slotted(fleet.make_array(tmp_path, shape=64, chunks=8, shards=32))
    slots[...] = 3

    def fails(*_):
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(replace_shard.files.os, "unlink", fails)
    monkeypatch.setattr(replace_shard.files, "sync_directory", fails)
    with pytest.raises(OSError, match="read-only"):
        intarsia.shards.compact(slots)
    monkeypatch.undo()
    for file in (file for file in (tmp_path / "c").rglob("*") if file.is_file()):
        with open_existing(file, write=True) as fd:
            assert try_lock(fd), file
    assert (slots[...] == 3).all()


def test_progress_goes_shard_by_shard(tmp_path):
    array = fleet.make_array(tmp_path, shape=96, chunks=8, shards=32)
    intarsia.shards.slotted(array)[:] = 1
    steps = []
    intarsia.shards.compact(array, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_an_array_for_reading_only_is_not_compacted(tmp_path):
    array = fleet.make_array(tmp_path, shape=96, chunks=8, shards=32)
    intarsia.shards.slotted(array)[:] = 1
    with pytest.raises(intarsia.errors.ReadOnlyError):
        intarsia.shards.compact(zarr.open_array(tmp_path, mode="r"))


def test_modes_of_files_are_kept(tmp_path):
    array = fleet.make_array(tmp_path, shape=32, chunks=8, shards=32)
    intarsia.shards.slotted(array)[:8] = 1
    (tmp_path / "c/0").chmod(0o640)
    intarsia.shards.compact(array)
    assert (tmp_path / "c/0").stat().st_mode & 0o7777 == 0o640


@pytest.fixture
def ingested(tmp_path):
    """An array written fast, without compression, by a chain that can compress."""
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=3)])
    array = fleet.make_array(
        tmp_path,
        shape=(40, 500),
        chunks=(4, 100),
        shards=(20, 500),
        codecs=(BytesCodec(), codec, fleet.CHECKED[1]),
    )
    slots = intarsia.shards.slotted(array)
    noise = np.random.default_rng(0).integers(0, 1 << 30, (4, 500), dtype="int32")
    slots[:36] = np.repeat(np.arange(36), 500).reshape(36, 500)
    slots[36:] = noise
    return array, array[:]


def test_write_fast_compress_later_in_one_call(tmp_path, ingested):
    array, values = ingested
    before = intarsia.shards.slot_stats(array)
    result = intarsia.shards.compact(array, decision="compress_if_smaller")
    assert result.replaced == 2
    after = intarsia.shards.slot_stats(array)
    assert after.bytes_stored < before.bytes_stored / 4
    assert np.array_equal(zarr.open_array(tmp_path)[:], values)
    assert intarsia.codecs.masks(array).tolist() == [[1] * 5] * 9 + [[0] * 5]
    assert intarsia.shards.compact(array, decision="compress_if_smaller").replaced == 0  # nothing left to do
    assert intarsia.verify(array) == ()


def test_slots_come_back_with_chunks_as_they_are(ingested):
    array, values = ingested
    intarsia.shards.compact(array, decision="compress_if_smaller")
    slots = intarsia.shards.slotted(array)
    slots[0, 0] = values[0, 0] = 77
    assert np.array_equal(array[:], values)
    assert intarsia.codecs.masks(array)[0, 0] == 0  # written without a decision
    assert intarsia.codecs.masks(array)[0, 1] == 1  # still compressed, in its slot
    assert intarsia.shards.slot_stats(array).slotted == 1


def test_a_decision_may_ask_which_chunk_it_is(ingested):
    array, values = ingested
    intarsia.shards.compact(array, decision=lambda chunk_index: sum(chunk_index) % 2 == 0)
    rows, columns = np.indices((10, 5))
    assert np.array_equal(intarsia.codecs.masks(array), (rows + columns) % 2 == 0)
    assert np.array_equal(array[:], values)


def test_a_damaged_chunk_stays_when_the_others_are_compressed(tmp_path, ingested):
    array, values = ingested
    with (tmp_path / "c/0/0").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    intarsia.shards.compact(array, decision="compress_if_smaller")
    (problem,) = intarsia.verify(array)
    assert problem.where == "c/0/0 chunk (0, 0)"
    assert np.array_equal(array[4:], values[4:])


def test_a_decision_needs_a_codec_that_decides(tmp_path):
    array = fleet.make_array(tmp_path, shape=32, chunks=8, shards=32)
    with pytest.raises(intarsia.errors.CodecConfigurationError, match="no conditional codec"):
        intarsia.shards.compact(array, decision="compress_if_smaller")


def test_many_shards_wait_together_until_their_old_index_is_forgotten(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=32 * 64, chunks=8, shards=64, codecs=fleet.BARE)
    slots = intarsia.shards.slotted(array)
    for shard in range(32):
        slots[shard * 64 + 8 : shard * 64 + 24] = shard + 1
    together = threading.Barrier(32)
    monkeypatch.setattr(replace_shard.time, "sleep", lambda _: together.wait(timeout=60))
    assert intarsia.shards.compact(array).replaced == 32
    assert np.array_equal(array[8::64], np.arange(1, 33))


def test_what_was_written_after_the_preparation_is_encoded_again(tmp_path, monkeypatch):
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=3)])
    array = fleet.make_array(tmp_path, shape=4000, chunks=1000, shards=4000, codecs=(BytesCodec(), codec))
    slots = intarsia.shards.slotted(array)
    slots[:3000] = 1
    encode_stored = compaction.encode_stored

    def prepared_too_early(*arguments):
        encode_stored(*arguments)
        slots[500:2500] = 2  # changes two chunks, one of them in part
        slots[3000:] = 3
        slots[:1000] = 0  # and one is gone

    monkeypatch.setattr(compaction, "encode_stored", prepared_too_early)
    intarsia.shards.compact(array, decision="compress_if_smaller")
    assert np.array_equal(array[:], np.repeat([0, 2, 2, 1, 3], [1000, 1000, 500, 500, 1000]))
    assert intarsia.codecs.masks(array).filled(99).tolist() == [99, 1, 1, 1]
    assert intarsia.verify(array) == ()
