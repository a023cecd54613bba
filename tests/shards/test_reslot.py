"""Slots for shards that were written without them."""

import os

import numpy as np
import pytest
import tensorstore
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

import intarsia
from tests.shards import fleet


@pytest.fixture
def array(tmp_path):
    return fleet.make_array(tmp_path, shape=(24, 24), chunks=(4, 4), shards=(12, 12))


def plain_zarr(path, values):
    zarr.open_array(path)[:12, :12] = values


def zarrs(path, values):
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        zarr.open_array(path)[:12, :12] = values


def tensorstore_(path, values):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    tensorstore.open(spec).result()[:12, :12].write(values).result()


@pytest.mark.parametrize("writer", [plain_zarr, zarrs, tensorstore_])
def test_a_shard_that_another_program_rewrote_is_refused_until_it_has_slots_again(tmp_path, array, writer):
    slots = intarsia.slotted(array)
    slots[:] = 1
    values = np.arange(144, dtype="int32").reshape(12, 12)
    values[0:4, 0:4] = 0  # a chunk that is not stored
    writer(tmp_path, values)
    before = (tmp_path / "c/0/0").read_bytes()
    with pytest.raises(
        intarsia.errors.SlotsGoneError,
        match=r"c/0/0 does not have 2 slots of 72 bytes(.|\n)*intarsia\.shards\.reslot",
    ):
        slots[4:8, 4:8] = 5
    assert (tmp_path / "c/0/0").read_bytes() == before
    slots[12:16, 12:16] = 6  # the other shards still have theirs
    assert intarsia.shards.reslot(slots) == 1
    slots[4:8, 4:8] = values[4:8, 4:8] = 5
    assert np.array_equal(array[:12, :12], values)
    assert intarsia.slot_stats(array).slotted == 4
    assert intarsia.verify(array) == ()


def test_a_write_that_another_program_undoes_at_that_moment_does_not_pass_for_done(
    tmp_path, array, monkeypatch
):
    slots = intarsia.slotted(array)
    slots[:] = 1
    pwritev = os.pwritev

    def meanwhile(*args):
        monkeypatch.setattr(os, "pwritev", pwritev)
        plain_zarr(tmp_path, 2)
        return pwritev(*args)

    monkeypatch.setattr(os, "pwritev", meanwhile)
    with pytest.raises(intarsia.errors.SlotsGoneError, match=r"the write is lost(.|\n)*reslot"):
        slots[0:4, 0:4] = 5
    assert (array[:12, :12] == 2).all()


def test_it_changes_between_one_and_two_slots_a_chunk(array):
    one, two = intarsia.slotted(array, safe_readers=False), intarsia.slotted(array, safe_readers=True)
    one[:] = 1
    with pytest.raises(intarsia.errors.SlotsGoneError, match="2 slots of 72 bytes a chunk"):
        two[0, 0] = 2
    assert intarsia.shards.reslot(array, safe_readers=True) == 4
    two[0, 0] = 2
    one[0, 1] = 2  # who asks for less than there is gets more
    assert array[:].sum() == 24 * 24 + 2
    assert intarsia.shards.reslot(two) == 0


def test_chunks_that_are_too_large_for_a_slot_are_named(tmp_path):
    codec = intarsia.ConditionalCodec(codecs=[ZstdCodec(level=1)], decision="always_apply")
    array = fleet.make_array(
        tmp_path, shape=32, chunks=8, shards=32, codecs=(BytesCodec(), codec), dtype="u1"
    )
    array[:] = np.random.default_rng(0).integers(0, 256, 32)  # eight bytes grow under zstd
    before = (tmp_path / "c/0").read_bytes()
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"chunk \(0,\).*slot only 9"):
        intarsia.shards.reslot(array)
    assert (tmp_path / "c/0").read_bytes() == before
    intarsia.rewrite(array, "compress_if_smaller")
    assert intarsia.shards.reslot(array) == 1


def test_progress_goes_shard_by_shard(array):
    array[:] = 1
    steps = []
    assert intarsia.shards.reslot(array, progress=lambda done, total: steps.append((done, total))) == 4
    assert steps == [(n, 4) for n in range(5)]
