"""Shards in files of this machine: an index never belongs to another file than the one read."""

import os
import shutil

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

import intarsia
from intarsia.codecs.shard_index import ShardIndex
from intarsia.engine.fetch import local_files

FIRST = np.arange(256, dtype="i4").reshape(16, 16)
SECOND = FIRST[::-1].copy()


@pytest.fixture(params=[1, local_files.WORTH_JOINING], ids=["joined", "one by one"], autouse=True)
def neighbours(request, monkeypatch):
    """However few there are, and for these few."""
    monkeypatch.setattr(local_files, "WORTH_JOINING", request.param)


def shard(place, data, inner=(), **options):
    """One shard of 4 x 4 chunks."""
    codec = ShardingCodec(chunk_shape=(4, 4), codecs=[BytesCodec(), *inner], **options)
    array = zarr.create_array(
        place, shape=(16, 16), chunks=(16, 16), dtype="i4", serializer=codec, compressors=None, fill_value=-1,
        overwrite=True,
    )  # fmt: skip
    array[...] = data
    return array


def backwards(path):
    """The same chunks, as many bytes, but the last one first: index and chunks belong together."""
    content, form = path.read_bytes(), ShardIndex((4, 4), first=False)
    table = form.decode(content[form.start(len(content)) :])
    turned = {divmod(k, 4): content[a : a + n] for k, (a, n) in reversed([*enumerate(table.tolist())])}
    return b"".join(form.pieces(turned))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("inner", [[], [ZstdCodec()]])
def test_a_shard_that_somebody_rewrites_is_not_read_by_its_old_index(tmp_path, in_place, inner):
    reader = intarsia.reader(shard(tmp_path / "a", FIRST, inner))
    path = tmp_path / "a" / "c" / "0" / "0"
    np.testing.assert_array_equal(reader[...], FIRST)
    times = os.stat(path)
    shard(tmp_path / "b", SECOND, inner)
    new = tmp_path / "b" / "c" / "0" / "0"
    if in_place:
        path.write_bytes(new.read_bytes())
    else:
        shutil.copy(new, tmp_path / "new")
        os.replace(tmp_path / "new", path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as some tools of copying do
    np.testing.assert_array_equal(reader[...], SECOND)
    np.testing.assert_array_equal(reader[3:5, 7], SECOND[3:5, 7])


def test_a_shard_with_its_chunks_in_another_order_is_read_by_its_own_index(tmp_path):
    reader = intarsia.reader(shard(tmp_path / "a", FIRST))
    assert reader[0, 0] == 0
    path = tmp_path / "a" / "c" / "0" / "0"
    content = backwards(path)
    assert len(content) == path.stat().st_size
    assert content != path.read_bytes()
    path.write_bytes(content)
    np.testing.assert_array_equal(reader[...], FIRST)


def test_a_shard_replaced_between_its_index_and_its_chunks_is_read_as_it_was(tmp_path, monkeypatch):
    reader = intarsia.reader(shard(tmp_path / "a", FIRST))
    path = tmp_path / "a" / "c" / "0" / "0"
    (tmp_path / "new").write_bytes(backwards(path))
    decode = ShardIndex.decode

    def decode_and_replace(index, stored):
        if (tmp_path / "new").exists():
            os.replace(tmp_path / "new", path)
        return decode(index, stored)

    monkeypatch.setattr(ShardIndex, "decode", decode_and_replace)
    np.testing.assert_array_equal(reader[...], FIRST)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("inner", [[], [ZstdCodec()]])
def test_what_is_not_stored_is_the_fill_value(tmp_path, location, inner):
    data = FIRST.copy()
    data[4:8] = -1
    reader = intarsia.reader(shard(tmp_path / "a", data, inner, index_location=location))
    np.testing.assert_array_equal(reader[...], data)
    np.testing.assert_array_equal(reader[5, 3], data[5, 3])
    np.testing.assert_array_equal(reader.vindex[[0, 5, 15], [1, 2, 3]], data[[0, 5, 15], [1, 2, 3]])
    (tmp_path / "a" / "c" / "0" / "0").unlink()
    assert (reader[...] == -1).all()


@pytest.mark.parametrize("several", [False, True])
def test_an_index_that_points_outside_names_the_chunk(tmp_path, several):
    place = tmp_path / "a"
    reader = intarsia.reader(shard(place, FIRST, index_codecs=[BytesCodec()]))
    path = place / "c" / "0" / "0"
    for offset in (1 << 20, (1 << 63) + 5):
        content = bytearray(path.read_bytes())
        at = 16 * 64 + 5 * 16  # of chunk (1, 1)
        content[at : at + 8] = offset.to_bytes(8, "little")
        path.write_bytes(content)
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1, 1\)"):
            reader[0:8] if several else reader[4, 4]
        assert reader[8, 8] == FIRST[8, 8]


def test_a_shard_that_is_cut_off_is_an_error(tmp_path):
    reader = intarsia.reader(shard(tmp_path / "a", FIRST))
    path = tmp_path / "a" / "c" / "0" / "0"
    path.write_bytes(path.read_bytes()[:100])
    for selection in (np.s_[0, 0], np.s_[...]):
        with pytest.raises(intarsia.errors.ReadError, match="cut off"):
            reader[selection]
