"""What messages about slotted shards suggest, in their own words, is done and helps."""

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.codecs import ConditionalCodec
from intarsia.errors import IntarsiaError
from intarsia.shards import slotted
from tests.suggestions import follow


def created(store, **options):
    options = {"shape": (8,), "chunks": (2,), "shards": (4,), "dtype": "u1", "compressors": None} | options
    return zarr.create_array(store, **options)


def test_an_array_of_another_kind(tmp_path):
    arr = intarsia.create(tmp_path / "s", "a", shape=(8,), chunks=(2,), dtype="u1")
    arr.add_region(((0, 8),), codecs=[], shards=(4,), data=np.zeros(8, "u1"))
    with pytest.raises(IntarsiaError) as error:
        slotted(arr)
    slotted(follow(error, "arr.members[name]", arr=arr, name=next(iter(arr.members))))[:2] = 1
    assert arr[:4].tolist() == [1, 1, 0, 0]
    nullable = intarsia.nullable.create_array(tmp_path / "n", shape=(4,), chunks=(2,), dtype="u1")
    with pytest.raises(IntarsiaError) as error:
        slotted(nullable)
    assert isinstance(follow(error, "arr.zarr_array", arr=nullable), zarr.Array)


def test_an_array_without_shards(tmp_path):
    with pytest.raises(IntarsiaError, match=r"zarr\.create_array\(…, shards=…\)"):
        slotted(created(tmp_path / "a", shards=None))
    assert slotted(created(tmp_path / "b", shards=(4,)))


def test_a_codec_without_a_bound(tmp_path):
    with pytest.raises(IntarsiaError) as error:
        slotted(created(tmp_path / "a", compressors=zarr.codecs.GzipCodec()))[:2] = 1
    code = "ConditionalCodec(codecs=['gzip'], decision='compress_if_smaller')"
    codec = follow(error, code, ConditionalCodec=ConditionalCodec)
    array = created(tmp_path / "b", compressors=codec)
    slotted(array)[:2] = 1
    assert array[:4].tolist() == [1, 1, 0, 0]


def test_a_shard_without_slots(tmp_path):
    array = created(tmp_path / "a")
    writer = slotted(array)
    writer[:2] = 1
    array[:4] = 2  # by a program that knows nothing of slots
    with pytest.raises(IntarsiaError) as error:
        writer[:2] = 3
    assert follow(error, "intarsia.shards.reslot(array)", array=array) == 1
    writer[:2] = 3
    assert array[:4].tolist() == [3, 3, 2, 2]


def test_an_array_in_a_repository(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    session = repo.writable_session("main")
    with pytest.raises(IntarsiaError) as error:
        slotted(created(session.store))
    with intarsia.transaction(repo) as tx:
        tx.create("a", shape=(0,), chunks=(2,), dtype="u1")
    names = {"repo": repo, "path": "a", "data": np.ones(4, "u1"), "codecs": ["gzip"]}
    follow(error, "intarsia.append(repo, path, data, codecs=[...])", **names)
    assert intarsia.open(repo, "a")[...].tolist() == [1, 1, 1, 1]
