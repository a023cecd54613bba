"""Facts read from zarr.json say what zarr itself says, and damage is told, not raised."""

import json

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.logical.stored_members import MemberFacts, read_facts

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
    (facts,) = read_facts(array.group, array.manifest)
    assert facts.shape == member.shape
    assert facts.chunks == member.chunks
    assert facts.grain == (member.shards or member.chunks)
    assert facts.is_sharded == (member.shards is not None)
    assert facts.names == array.regions[0].codec_names == "gzip"
    assert not facts.problem


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
    facts = MemberFacts.of("m", json.loads(json.dumps(z.metadata.to_dict(), default=str)))
    assert facts.index_of(z.metadata.encode_chunk_key(index)) == index
    assert facts.index_of("zarr.json") is None
    assert facts.index_of("c/x") is None


def test_a_missing_and_a_damaged_member_say_so():
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=(0,), chunks=(2,), dtype="f4")
    for codec in ("gzip", "zstd", "crc32c"):
        array.append([1, 2], codecs=[codec])
    missing, broken, good = array.manifest.members
    del store._store_dict[f"a/{missing}/zarr.json"]
    store._store_dict[f"a/{broken}/zarr.json"] = store._store_dict[f"a/{broken}/zarr.json"][:20]
    facts = read_facts(array.group, array.manifest)
    assert [bool(fact.problem) for fact in facts] == [True, True, False]
    assert "missing" in facts[0].problem
    assert facts[0].names == "unknown"
    assert facts[2].name == good
