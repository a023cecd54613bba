"""What messages of the program suggest is typed as it stands there, and helps."""

import re
import shlex

import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from tests.cli.program import run, succeed

FILLS = {"--shape …": "--shape 4", "--chunks …": "--chunks 2", "--dtype …": "--dtype int64"}
FILLS |= {"--codec …": "--codec gzip", "--shards …": "--shards 4"}


def follow(ran, command, **places):
    """Type a command that a message names, with the reader's own places and values."""
    printed = ran.err + ran.out
    assert command in " ".join(printed.split()), printed
    for gap, value in FILLS.items():
        command = command.replace(gap, value)
    words = shlex.split(command)
    assert words[0] == "intarsia"
    return succeed(*(places.get(word, word) for word in words[1:]))


@pytest.fixture
def store(tmp_path):
    """A logical array and a plain one in a plain store."""
    array = intarsia.create(tmp_path / "s", "a", shape=(4,), chunks=(2,), dtype="int64")
    array.add_region(((0, 4),), codecs=["gzip"], data=np.arange(4))
    zarr.open_group(tmp_path / "s").create_group("empty")
    zarr.create_array(tmp_path / "plain", name="p", data=np.arange(4), chunks=(2,))
    return tmp_path / "s"


@pytest.fixture
def repo(tmp_path):
    with intarsia.transaction(intarsia.open_repository(tmp_path / "r", create=True)) as tx:
        tx.create("a", shape=(4,), chunks=(2,), dtype="int64")
    return tmp_path / "r"


CREATE = "intarsia create STORE PATH --shape … --chunks … --dtype …"


def test_an_array_that_is_not_there(store):
    follow(run("regions", store, "empty"), CREATE, STORE=store, PATH="empty/new")
    assert intarsia.open(store, "empty/new").shape == (4,)


def test_a_plain_array(store, tmp_path):
    plain = tmp_path / "plain"
    ran = run("regions", plain)
    follow(ran, "intarsia convert STORE NEW_STORE", STORE=plain, NEW_STORE=tmp_path / "new")
    assert intarsia.open(tmp_path / "new", "p")[...].tolist() == [0, 1, 2, 3]
    assert run("regions", plain, "p").err == ran.err
    assert "3" in succeed("read", plain, "p", ":")


def test_slots_where_there_are_none(store, repo):
    follow(run("compact", repo, "a"), "intarsia consolidate STORE PATH", STORE=repo, PATH="a")
    command = "intarsia recode STORE PATH --codec … --shards …"
    follow(run("compact", store, "a"), command, STORE=store, PATH="a")
    assert next(iter(intarsia.open(store, "a").members.values())).shards == (4,)


def test_slots_in_a_plain_array_without_shards(tmp_path, store):
    ran = run("compact", tmp_path / "plain", "p")
    command = "intarsia convert STORE NEW_STORE --shards …"
    follow(ran, command, STORE=tmp_path / "plain", NEW_STORE=tmp_path / "new")
    assert next(iter(intarsia.open(tmp_path / "new", "p").members.values())).shards == (4,)


def test_codecs_where_no_member_chooses(store):
    ran = run("rewrite", store, "a", "--decision", "never_apply")
    assert "To give a region other codecs: intarsia recode" in ran.err
    succeed("recode", store, "a", "--codec", "zstd")


def test_files_instead_of_a_store(tmp_path):
    (tmp_path / "files").mkdir()
    for number in range(2):
        dataset = xr.Dataset({"v": (("t",), [number])}, {"t": [number]})
        dataset.to_netcdf(tmp_path / f"files/{number}.nc")
    for place in (tmp_path / "files", tmp_path / "files/0.nc"):
        assert "To open files as arrays: intarsia ingest" in run("ls", place).err
    succeed("ingest", tmp_path / "files/*.nc", tmp_path / "new-files")
    read = "read", tmp_path / "new-files", "v", ":"
    allowed = re.findall(r"--allow ([^\s,]+)", " ".join(run(*read).err.split()))
    assert allowed == [f"file://{tmp_path}/files/", "all"]
    for each in allowed:
        assert "1" in succeed(*read, "--allow", each)


def test_sources_and_versions_that_are_not_there(tmp_path, repo):
    xr.Dataset({"v": (("t",), [1])}, {"t": [0]}).to_netcdf(tmp_path / "0.nc")
    succeed("ingest", tmp_path / "0.nc", tmp_path / "archive", "--concat-dim", "t")
    ran = run("relocate", tmp_path / "archive", "file:///nowhere=file:///new")
    assert "0.nc" in follow(ran, "intarsia sources STORE", STORE=tmp_path / "archive")
    ran = run("regions", repo, "a", "--as-of", "2001-01-01")
    assert "intarsia log lists the versions" in ran.err
    assert "created" in succeed("log", repo)


def test_an_archive_that_is_not_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    xr.Dataset({"v": (("t",), [1])}, {"t": [0]}).to_netcdf(tmp_path / "0.nc")
    xr.open_dataset(str(tmp_path / "0.nc"), engine="intarsia", concat_dim="t").close()
    ran = run("cache", "--clear", "nothing")
    assert "intarsia cache lists them" in ran.err
    key = succeed("cache").split("\n")[1].split()[0]
    assert "1 archive removed" in succeed("cache", "--clear", key)
