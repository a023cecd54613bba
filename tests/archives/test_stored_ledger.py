"""The ledger: written, read back, also from an older version, and refused when it is from another time."""

import json
import tracemalloc

import numpy as np
import pytest
import zarr
from numcodecs import zstd

from intarsia.archives.ledger import DOCUMENT, MOST_MEMBERS, Ledger, read_ledger, write_ledger
from intarsia.errors import IngestError
from intarsia.logical.hierarchy import LEDGER
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import RegionTable, Row

CLAIMS = RegionTable.from_rows(
    [Row(0, Box((0, 0), (3, 1)), (0, 0)), Row(1, Box((3, 0), (7, 1)), (0, 0))], ndim=2
)


def test_it_reads_back_as_it_was_written():
    group = zarr.create_group({})
    ledger = Ledger(
        ("time",), ["file:///é/a.nc", "s3://b/c"], ["1 x", "2 y"], [1.5, None], ["sst"], CLAIMS,
        {"sst": {"digest": "m-1"}},
    )  # fmt: skip
    write_ledger(ledger, group)
    assert read_ledger(group) == ledger
    write_ledger(Ledger(), group)
    assert read_ledger(group) == Ledger()


def test_version_1_is_read_and_written_as_version_3():
    group = zarr.create_group({})
    document = {
        "locations": ["a", "b"], "contents": ["1", "2"], "lengths": [3, 4], "members": {"sst": {"d": "m-1"}}
    }  # fmt: skip
    node = group.create_group(LEDGER, attributes={"version": 1, "concat_dim": "time"})
    node.create_array(DOCUMENT, data=np.frombuffer(json.dumps(document).encode(), dtype=np.uint8))
    ledger = read_ledger(group)
    assert ledger == Ledger(
        ("time",), ["a", "b"], ["1", "2"], [None, None], ["sst"], CLAIMS, {"sst": {"d": "m-1"}}
    )
    write_ledger(ledger, group)
    assert group[LEDGER].attrs["version"] == 3
    assert read_ledger(group) == ledger


def test_only_the_latest_encodings_are_remembered():
    group = zarr.create_group({})
    members = {f"digest-{i}": f"m-{i}" for i in range(MOST_MEMBERS + 5)}
    write_ledger(Ledger(members={"sst": members}), group)
    assert next(iter(read_ledger(group).members["sst"].values())) == "m-5"


def test_a_group_without_a_ledger_has_an_empty_one():
    assert read_ledger(zarr.create_group({})) == Ledger()


def test_an_unknown_version_is_refused():
    group = zarr.create_group({})
    write_ledger(Ledger(), group)
    group[LEDGER].attrs["version"] = 99
    with pytest.raises(IngestError, match="version 99"):
        read_ledger(group)


def damaged_ledger(attrs, document):
    group = zarr.create_group({})
    node = group.create_group(LEDGER, attributes=attrs)
    node.create_array(DOCUMENT, data=np.frombuffer(document, dtype=np.uint8))
    return group


GOOD = {
    "locations": ["a"], "contents": ["1"], "moments": [None], "variables": ["sst"], "members": {},
    "stacked": {}, "claims": {"file": [0], "start": [[0, 0]], "stop": [[1, 1]]},
}  # fmt: skip
BAD = {
    "no JSON": b"{",
    "no text": b"\xff",
    "no object": b"[]",
    "claims that are gone": GOOD | {"claims": {}},
    "a claim of nobody": GOOD | {"claims": GOOD["claims"] | {"file": [7]}},
    "half a claim": GOOD | {"claims": GOOD["claims"] | {"stop": [[1]]}},
    "numbers for places": GOOD | {"locations": [7]},
    "one content too few": GOOD | {"contents": []},
    "an unknown field": GOOD | {"more": 1},
    "a number of 70 bits": GOOD | {"claims": GOOD["claims"] | {"file": [1 << 70]}},
}


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_ledger_is_refused_in_words(what):
    document = BAD[what] if isinstance(BAD[what], bytes) else json.dumps(BAD[what]).encode()
    group = damaged_ledger({"version": 2, "concat_dims": ["time"]}, document)
    with pytest.raises(IngestError, match=r"the ledger of memory://.* is damaged"):
        read_ledger(group)
    read_ledger(damaged_ledger({"version": 2, "concat_dims": ["time"]}, json.dumps(GOOD).encode()))


def many_texts(_stored):
    """A chunk that claims a billion texts, which numcodecs would make room for at once."""
    return zstd.compress((1 << 30).to_bytes(4, "little") + bytes(8))


def of_shape(*shape):
    return lambda stored: json.dumps(json.loads(stored) | {"shape": shape}).encode()


def with_nulls(stored):
    """The data type is another one, which does not fit the fill value."""
    optional = {"name": "optional", "configuration": {"name": "int8", "configuration": {}}}
    return json.dumps(json.loads(stored) | {"data_type": optional}).encode()


@pytest.mark.parametrize(
    ("key", "damage"),
    [
        ("sources/c/0/0", many_texts),
        ("sources/c/0/0", lambda stored: stored[:5]),
        ("claims/c/0/0", lambda stored: b"\x1f\x8b" + stored),
        ("head/zarr.json", of_shape(1 << 40)),
        ("claims/zarr.json", of_shape(2, 1 << 31)),
        ("claims/zarr.json", of_shape(1 << 31, 5)),
        ("sources/zarr.json", of_shape(1 << 31, 3)),
        ("claims/zarr.json", with_nulls),
    ],
)
def test_damaged_arrays_of_it_are_refused_in_words_and_take_no_memory(key, damage):
    group = zarr.create_group({})
    write_ledger(Ledger(("time",), ["a", "b"], ["1", "2"], [None, None], ["sst"], CLAIMS, {}), group)
    stored = group.store._store_dict[f"{LEDGER}/{key}"].to_bytes()
    group.store._store_dict[f"{LEDGER}/{key}"] = zarr.core.buffer.cpu.Buffer.from_bytes(damage(stored))
    tracemalloc.start()
    with pytest.raises(IngestError, match=r"the ledger of memory://.* (is damaged|cannot be read)"):
        read_ledger(zarr.open_group(group.store, mode="r"))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64 << 20
