"""Commands about archives of files: every option of ingest, what lint says, which file holds what."""

import inspect

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.cli.archive import ARCHIVE
from intarsia.cli.arguments import OPTION_SYNTAX
from intarsia.errors import IngestError
from tests.cli.program import document, failure, run, succeed
from tests.cli.test_change import archive

ONLY_PYTHON = {"preprocess", "parser", "progress", "combine", "store"}


def test_every_option_of_ingest_is_on_the_command_line():
    names = {name: syntax.option or name for name, syntax in (ARCHIVE | OPTION_SYNTAX).items()}
    said = succeed("ingest", "--help")
    for argument in inspect.signature(intarsia.ingest).parameters.keys() - ONLY_PYTHON:
        option = names.get(argument, argument).replace("_", "-")
        assert f"--{option} " in said or option.upper() in said


def test_the_help_of_ingest_offers_no_store_that_it_refuses(tmp_path):
    said = " ".join(succeed("ingest", "--help").split())
    assert "of an Icechunk repository" in said
    assert "or of a Zarr store" not in said


def test_dimensions_in_names_and_attributes_stacked_and_renamed_variables(tmp_path):
    for member in range(2):
        for date in ("20020601", "20020602"):
            bands = {f"b{i}": ("width", np.full(3, 10.0 * member + i)) for i in (1, 2)}
            ds = xr.Dataset(bands, attrs={"realization": member})
            ds.to_netcdf(tmp_path / f"x_{date}_{member}.nc")
    arguments = (
        "--dim", r"start=date:%Y%m%d:\d{8}", "--dim", "member=attribute:realization",
        "--stack", "b=band:1=b1,2=b2", "--rename", "width=x", "--workers", "2", "--copy", "never",
    )  # fmt: skip
    succeed("ingest", tmp_path / "*.nc", tmp_path / "store", *arguments)
    ds = xr.open_dataset(
        intarsia.archives.authorize(intarsia.open_repository(tmp_path / "store")), engine="intarsia"
    )
    assert ds.b.sizes == {"band": 2, "start": 2, "member": 2, "x": 3}
    assert ds.band.values.tolist() == [1, 2]
    assert ds.b.sel(band=2, member=1, start="2002-06-02").values.tolist() == [12, 12, 12]
    again = ("--dim", r"run=name:_(\d)\.nc", "--concat-dim", "width", "--variable", "b1", "--dtype", "b1=f4")
    assert "steps of" not in succeed("lint", tmp_path / "x_20020601_*.nc", *again[:2], *again[4:])


def test_each_batch_is_a_commit(tmp_path):
    for i in range(5):
        xr.Dataset({"v": ("t", [1.0 * i])}, {"t": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    arguments = (tmp_path / "*.nc", tmp_path / "store", "--concat-dim", "t")
    said = document("ingest", *arguments, "--batch", "2")
    assert said["summary"] == "5 added"
    entries = document("log", tmp_path / "store", "v")["commits"]
    assert [entry["message"] for entry in entries] == [
        "ingest: 1 added", "ingest: 2 added", "ingest: 2 added"
    ]  # fmt: skip
    assert said["snapshot_id"] == entries[0]["snapshot_id"]
    assert run("ingest", *arguments, "--batch", "0").code == 2


def test_a_moved_archive_is_to_be_relocated(tmp_path):
    (tmp_path / "old").mkdir()
    xr.Dataset({"v": ("t", [1.0])}, {"t": [1]}).to_netcdf(tmp_path / "old/1.nc")
    succeed("ingest", tmp_path / "old/1.nc", tmp_path / "store", "--concat-dim", "t")
    (tmp_path / "old").rename(tmp_path / "new")
    said = failure("ingest", tmp_path / "new/1.nc", tmp_path / "store", "--concat-dim", "t", code=4)
    move = f"file://{tmp_path}/old/=file://{tmp_path}/new/"
    assert "intarsia relocate updates its references" in said
    succeed("relocate", tmp_path / "store", move)


def test_load_coordinate_nulls_and_units(tmp_path):
    for i in range(2):
        numbers = xr.Variable(
            "t", np.array([i, -1], "i2"), {"_FillValue": np.int16(-1), "units": "m" * (1 + i)}
        )
        ds = xr.Dataset({"v": numbers, "w": ("t", [1.0 * i, 2.0])})
        ds.to_netcdf(tmp_path / f"{i}.nc")
    arguments = ("--concat-dim", "t", "--load", "w", "--nulls", "--units", "ignore", "--dtype", "v=int32")
    succeed("ingest", tmp_path / "*.nc", tmp_path / "store", *arguments)
    opened = intarsia.archives.authorize(intarsia.open_repository(tmp_path / "store"))
    assert intarsia.open(opened, "v")[...].tolist() == [0, None, 1, None]
    assert intarsia.open(opened, "v").dtype == "int32"
    assert xr.open_dataset(opened, engine="intarsia").w.values.tolist() == [0, 2, 1, 2]
    (tmp_path / "0.nc").rename(tmp_path / "x-7.nc")
    (tmp_path / "1.nc").rename(tmp_path / "x-3.nc")
    for path in tmp_path.glob("*.nc"):
        with xr.open_dataset(path) as ds:
            one = ds.isel(t=[0]).load()
        one.to_netcdf(path)
    arguments = ("--concat-dim", "t", "--coordinate", r"name:-(\d)", "--units", "ignore")
    succeed("ingest", tmp_path / "x-*.nc", tmp_path / "other", *arguments)
    opened = intarsia.archives.authorize(intarsia.open_repository(tmp_path / "other"))
    assert xr.open_dataset(opened, engine="intarsia").t.values.tolist() == [3, 7]


def test_units_attributes_and_variables_that_differ_and_a_schema(tmp_path):
    for i, (unit, value) in enumerate((("degC", 1.0), ("K", 280.0), ("K", 281.0))):
        ds = xr.Dataset({"v": (("t", "x"), [[value]], {"units": unit, "by": str(i)})}, {"t": [i]})
        (ds if i < 2 else ds.assign(w=ds.v)).to_netcdf(tmp_path / f"{i}.nc")
    arguments = (tmp_path / "?.nc", tmp_path / "store", "--concat-dim", "t")
    assert "--convert-units" in failure("ingest", *arguments, code=4)
    more = ("--convert-units", "--combine-attrs", "drop_conflicts", "--schema", tmp_path / "1.nc")
    assert "left out: w" in succeed("ingest", *arguments, *more)
    read = document("read", tmp_path / "store", "v", ":, 0", "--allow", "all")
    np.testing.assert_allclose(read["values"], [274.15, 280, 281])
    assert dict(intarsia.open(intarsia.open_repository(tmp_path / "store"), "v").attrs) == {"units": "K"}
    said = document("ingest", *arguments, *more, "--add-variables")
    assert [file["status"] for file in said["files"]] == ["unchanged", "unchanged", "extended"]
    assert said["summary"] == "1 extended, 2 unchanged"


def test_another_variable_gives_the_order(tmp_path):
    for i in range(3):
        ds = xr.Dataset({"v": (("t", "x"), [[1.0 * i]]), "kt": ((), 9 - i)}, {"t": [0.0]})
        ds.to_netcdf(tmp_path / f"{i}.nc")
    assert "--order-by" in failure("ingest", tmp_path / "*.nc", tmp_path / "a", "--concat-dim", "t", code=4)
    succeed("ingest", tmp_path / "*.nc", tmp_path / "a", "--concat-dim", "t", "--order-by", "kt")
    succeed("ingest", tmp_path / "*.nc", tmp_path / "b", "--dim", "t=variable:kt")
    for store in ("a", "b"):
        read = document("read", tmp_path / store, "v", ":, 0", "--allow", "all")
        assert read["values"] == [2, 1, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--dim", "member"),
        ("--dim", "member=nowhere:x"),
        ("--dim", "member=name:("),
        ("--dim", "member=date:%Y"),
        ("--stack", "b=band"),
        ("--rename", "width"),
        ("--coordinate", "attribute:x"),
        ("--coordinate", "variable:x"),
        ("--dtype", "f4"),
    ],
    ids=" ".join,
)
def test_options_that_cannot_be_understood(tmp_path, wrong):
    archive(tmp_path / "archive", [1])
    said = failure("lint", tmp_path / "archive/*.nc", *wrong, code=2)
    assert wrong[0].strip("-") in said


def test_lint_tells_runs_and_drifts_and_ends_with_1_if_a_file_is_refused(tmp_path):
    folder = archive(tmp_path / "archive", range(1, 5))
    said = document("lint", folder / "*.nc")
    assert [run["files"] for run in said["runs"]] == [2, 2]
    assert [(drift["kind"], drift["files"]) for drift in said["drifts"]] == [("codecs", 2)]
    assert said["refused"] == 0
    printed = succeed("lint", folder / "*.nc", "--concat-dim", "time")
    assert "shuffle+zlib-4 instead of raw" in printed
    assert "dry run: 4 added" in printed
    (folder / "05.nc").write_bytes((folder / "04.nc").read_bytes())
    ran = run("lint", folder / "*.nc", "--concat-dim", "time")
    assert ran.code == 1
    assert "05.nc" in ran.out
    assert "--overlap first" in ran.out
    assert ran.out.endswith("dry run: 4 added, 1 failed\n")
    assert run("lint", folder / "*.nc", "--overlap", "last").code == 0
    ran = run("lint", folder / "*.nc", "--json")
    assert ran.code == 1
    assert '"options": ["overlap", "order_by"]' in ran.out
    assert not (tmp_path / "store").exists()


def test_lint_holds_files_against_a_dataset(tmp_path):
    folder = archive(tmp_path / "archive", range(1, 5))
    succeed("ingest", folder / "0[12].nc", tmp_path / "store", "--concat-dim", "time")
    said = document("lint", folder / "*.nc", "--concat-dim", "time", "--into", tmp_path / "store")
    assert said["summary"] == "2 added, 2 unchanged"
    assert document("info", tmp_path / "store", "sst")["shape"] == [2, 4]
    assert document("lint", folder / "*.nc")["summary"] == "4 added"


def test_sources_lead_from_an_index_to_a_file_and_tell_what_is_gone(tmp_path):
    folder, store = archive(tmp_path / "archive", range(1, 5)), tmp_path / "store"
    succeed("ingest", folder / "*.nc", store, "--concat-dim", "time")
    said = document("sources", store)
    assert [(file["state"], file["parts"][0]["bounds"]) for file in said["files"]] == [
        ("present", [[i, i + 1]]) for i in range(4)
    ]
    said = document("sources", store, "sst", "2, 0")
    (file,) = said["files"]
    assert file["url"].endswith("03.nc")
    assert [chunk["bounds"] for chunk in file["chunks"]] == [[[2, 3], [0, 4]]]
    assert "03.nc" in succeed("sources", store, "sst", "2, 0")
    (folder / "03.nc").unlink()
    ran = run("sources", store, "sst")
    assert ran.code == 1
    assert "1 of them changed or gone" in ran.out
    assert "4 files\n" in succeed("sources", store, "sst", "--no-check")
    assert "of shape" in failure("sources", store, "sst", "9", code=4)


@pytest.fixture
def ingested(tmp_path):
    """A repository of four files in the directory `files`."""
    folder = archive(tmp_path / "files", range(1, 5))
    succeed("ingest", folder / "*.nc", tmp_path / "store", "--concat-dim", "time")
    return tmp_path / "store"


def test_relocate_finds_files_that_moved(tmp_path, ingested):
    store = ingested
    before = succeed("read", store, "sst", "0, 0", "--allow", "all")
    (tmp_path / "files").rename(tmp_path / "moved")
    said = failure("read", store, "sst", "0, 0", "--allow", "all", code=5)
    assert f"intarsia relocate STORE file://{tmp_path}/files=NEW_PLACE" in said
    assert "is not there" in failure("relocate", store, f"{tmp_path}/files={tmp_path}/nowhere", code=4)
    said = document("relocate", store, f"{tmp_path}/files={tmp_path}/moved")
    assert (said["files"], said["unmarked"]) == (4, 0)
    assert succeed("read", store, "sst", "0, 0", "--allow", "all") == before
    assert "not of the form" in failure("relocate", store, "old", code=2)


def test_the_cache_is_listed_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    assert document("cache") == {"directory": str(tmp_path / "cache"), "removed": 0, "archives": []}
    folder = archive(tmp_path / "files", [1])
    xr.open_dataset(f"{folder}/*.nc", engine="intarsia", concat_dim="time").close()
    (entry,) = document("cache")["archives"]
    assert (entry["files"], entry["names"]) == (1, [f"{folder}/*.nc"])
    assert entry["key"] in succeed("cache")
    assert "no archive 'other'" in failure("cache", "--clear", "other", code=3)
    assert "1 archive removed" in succeed("cache", "--clear", entry["key"])
    assert document("cache", "--clear", "all")["archives"] == []


def test_what_may_not_be_read_has_an_exit_code_of_its_own_and_is_said_once(tmp_path, ingested):
    store = ingested
    prefix = f"file://{tmp_path}/files/"
    for verb in (("read", store, "sst"), ("serve", store)):
        said = failure(*verb, code=9)
        assert said.count(f"--allow {prefix}") == 1
        assert "intarsia.archives.authorize" not in said
    ran = run("verify", store)
    assert ran.code == 9
    assert ran.out.count(f"--allow {prefix}") == 1
    assert "authorize=" not in ran.out
    assert "no problem" in succeed("verify", store, "--allow", prefix)


def test_files_come_first_and_nothing_new_is_called_by_a_pattern(tmp_path):
    folder = archive(tmp_path / "files", [1])
    file = next(folder.glob("*.nc"))
    before = sorted(tmp_path.rglob("*"))
    assert "the store last" in failure("ingest", file, folder / "*.nc", code=2)
    assert "is a file" in failure("ingest", tmp_path / "store", file, code=2)
    with pytest.raises(ValueError, match="Files come first, the store last"):
        intarsia.ingest(file, folder / "*.nc", concat_dim="time")
    with pytest.raises(TypeError, match=r"a list is not a repository: give(.|\n)*Files come first"):
        intarsia.ingest(tmp_path / "store", [file], concat_dim="time")
    assert sorted(tmp_path.rglob("*")) == before
    intarsia.ingest(file, tmp_path / "store", concat_dim="time")
    with pytest.raises(IngestError, match="an Icechunk repository: files come first, the store last"):
        intarsia.ingest(tmp_path / "store", file, concat_dim="time")
