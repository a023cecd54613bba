"""The ledger: written, read back, and refused if it is damaged or has another version."""

import json
import tracemalloc

import numpy as np
import pytest
import zarr
from numcodecs import zstd

import intarsia
from intarsia.archives import ledger as ledger_module
from intarsia.archives import remove
from intarsia.archives.ledger import (
    HEAD,
    INDEX,
    MAX_MEMBERS,
    Ledger,
    entries_of,
    index_key,
    read_ledger,
    write_ledger,
)
from intarsia.errors import IngestError
from intarsia.logical.hierarchy import LEDGER
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import RegionTable, Row
from tests.archives.files import netcdf

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


def test_only_the_latest_encodings_are_remembered():
    group = zarr.create_group({})
    members = {f"digest-{i}": f"m-{i}" for i in range(MAX_MEMBERS + 5)}
    write_ledger(Ledger(members={"sst": members}), group)
    assert next(iter(read_ledger(group).members["sst"].values())) == "m-5"


def test_a_group_without_a_ledger_has_an_empty_one():
    assert read_ledger(zarr.create_group({})) == Ledger()


@pytest.mark.parametrize(("version", "advice"), [(1, "ingest the files again"), (2, "again"), (99, "newer")])
def test_other_versions_are_refused_by_number(version, advice):
    group = zarr.create_group({})
    write_ledger(Ledger(), group)
    group[LEDGER].attrs["version"] = version
    for read in (read_ledger, lambda group: entries_of(group, ["file:///a.nc"])):
        with pytest.raises(IngestError, match=f"version {version}, but .* only version 3: .*{advice}"):
            read(group)


HEAD_DOCUMENT = {"variables": ["sst"], "members": {}, "stacked": {}}
DAMAGED_HEADS = {
    "no JSON": b"{",
    "no text": b"\xff",
    "no object": b"[]",
    "variables that are gone": {"variables": None},
    "numbers for variables": {"variables": [7]},
    "members in a list": {"members": []},
    "an unknown field": {"more": 1},
}


@pytest.mark.parametrize("what", DAMAGED_HEADS)
def test_a_damaged_head_is_refused_in_words(what):
    damage = DAMAGED_HEADS[what]
    head = damage if isinstance(damage, bytes) else json.dumps(HEAD_DOCUMENT | damage).encode()
    group = zarr.create_group({})
    write_ledger(Ledger(("time",), ["a", "b"], ["1", "2"], [None, None], ["sst"], CLAIMS, {}), group)
    group[LEDGER].create_array(HEAD, data=np.frombuffer(head, dtype=np.uint8), overwrite=True)
    with pytest.raises(IngestError, match=r"the ledger of memory://.* is damaged"):
        read_ledger(group)


def test_a_claim_of_no_source_is_refused_in_words():
    group = zarr.create_group({})
    write_ledger(Ledger(("time",), ["a"], ["1"], [None], ["sst"], CLAIMS, {}), group)
    with pytest.raises(IngestError, match="claims name a source that is not one of 1"):
        read_ledger(group)


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


def test_the_index_of_names_follows_files_that_come_change_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "INDEX_LAG", 3)
    paths = [tmp_path / f"{day}.nc" for day in range(8)]
    urls = [path.as_uri() for path in paths]
    repo = intarsia.open_repository(tmp_path / "r", create=True)

    def check(known, indexed):
        group = zarr.open_group(repo.readonly_session("main").store, mode="r")
        ledger = read_ledger(group)
        assert ledger.locations == known
        assert {url: number for url, (number, _) in entries_of(group, urls).items()} == {
            url: number for number, url in enumerate(known)
        }
        names = ledger.locations[: group[LEDGER][INDEX].shape[0]]
        assert group[LEDGER][INDEX][:].tolist() == list(map(index_key, names))
        assert len(names) == indexed

    sizes = (0, 0, 3, 3, 3, 6, 6, 6)
    for day, path in enumerate(paths):  # each is added without reading those before it
        netcdf(path, day)
        repo = intarsia.ingest(path, repo, concat_dim="time").repository
        check(urls[: day + 1], sizes[day])
    remove(repo, paths[4])
    check([*urls[:4], *urls[5:]], 7)
    netcdf(paths[1], 1, values=np.ones((1, 6, 8)))
    repo = intarsia.ingest(paths[1], repo, concat_dim="time", replace=True).repository
    check([urls[0], *urls[2:4], *urls[5:], urls[1]], 7)
