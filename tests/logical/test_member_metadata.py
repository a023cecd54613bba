"""Facts read from zarr.json say what zarr itself says, and damage is told, not raised."""

import json

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.logical.member_metadata import MemberMetadata, read_member_metadata

LAYOUTS = {
    "plain": {},
    "sharded": {"shards": (8, 8)},
    "odd chunks": {"chunks": (3, 5)},
}


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_facts_equal_what_zarr_says(options):
    array = intarsia.create({}, "a", shape=(0, 8), chunks=(4, 4), dtype="f4")
    array.append(np.ones((8, 8)), codecs=["gzip"], **options)
    (member,) = array.members.values()
    (metadata,) = read_member_metadata(array.group, array.manifest)
    assert metadata.shape == member.shape
    assert metadata.chunks == member.chunks
    assert metadata.grain == (member.shards or member.chunks)
    assert metadata.is_sharded == (member.shards is not None)
    assert metadata.names == array.regions[0].codec_names == "gzip"
    assert not metadata.problem


@pytest.mark.parametrize(
    "encoding",
    [
        {"name": "default", "separator": "/"},
        {"name": "default", "separator": "."},
        {"name": "v2", "separator": "."},
        {"name": "v2", "separator": "/"},
    ],
)
@pytest.mark.parametrize("index", [(), (3,), (0, 12)])
def test_keys_are_those_of_zarr_and_back(encoding, index):
    shape = (100,) * len(index)
    z = zarr.create_array({}, shape=shape, chunks=(1,) * len(index), dtype="u1", chunk_key_encoding=encoding)
    metadata = MemberMetadata.of("m", json.loads(json.dumps(z.metadata.to_dict(), default=str)))
    assert metadata.index_of(z.metadata.encode_chunk_key(index)) == index
    assert metadata.index_of("zarr.json") is None
    assert metadata.index_of("c/x") is None


def test_a_missing_and_a_damaged_member_say_so():
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=(0,), chunks=(2,), dtype="f4")
    for codec in ("gzip", "zstd", "crc32c"):
        array.append([1, 2], codecs=[codec])
    missing, broken, good = array.manifest.members
    del store._store_dict[f"a/{missing}/zarr.json"]
    store._store_dict[f"a/{broken}/zarr.json"] = store._store_dict[f"a/{broken}/zarr.json"][:20]
    metadata = read_member_metadata(array.group, array.manifest)
    assert [bool(fact.problem) for fact in metadata] == [True, True, False]
    assert "missing" in metadata[0].problem
    assert metadata[0].names == "unknown"
    assert metadata[2].name == good
