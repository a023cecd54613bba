"""Archives opened in one line: as xarray opens them, kept in a cache, up to date at every open."""

import json
import multiprocessing
import os
import shutil
import warnings
from concurrent.futures import ProcessPoolExecutor

import netCDF4
import numpy as np
import obstore
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia
from intarsia.archives import cache
from intarsia.archives.source_files import MIN_LISTED, Sources, content_fingerprints
from intarsia.errors import IngestError
from tests.archives.conftest import BUCKET
from tests.archives.files import netcdf


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def opened(files, **options):
    return xr.open_dataset(files, engine="intarsia", **{"concat_dim": "time"} | options)


def by_xarray(files):
    """With the defaults that xarray will have: what does not change along the dimension is not repeated."""
    with xr.set_options(use_new_combine_kwarg_defaults=True):
        return xr.open_mfdataset(
            sorted(map(str, files)), engine="h5netcdf", combine="nested", concat_dim="time"
        )


def test_globs_lists_directories_and_single_files_are_one_dataset_like_that_of_xarray(kept):
    for day in range(3):
        netcdf(kept / f"{day}.nc", day)
    expected = by_xarray(kept.glob("*.nc")).load()
    names = sorted(map(str, kept.glob("*.nc")))
    for files in (f"{kept}/*.nc", kept / "*.nc", names, kept, str(kept) + "/"):
        with opened(files) as dataset:
            assert dataset["sst"].chunks is None  # lazy without dask
            xr.testing.assert_identical(dataset.load(), expected)
    with opened(f"{kept}/*.nc", concat_dim=None) as dataset:  # the coordinates tell
        xr.testing.assert_identical(dataset.load(), expected)
    with opened(names[0]) as dataset:
        xr.testing.assert_identical(dataset.load(), expected.isel(time=[0]))
    tree = xr.open_datatree(f"{kept}/*.nc", engine="intarsia", concat_dim="time")
    xr.testing.assert_identical(tree.to_dataset().load(), expected)


def test_what_is_new_changed_and_gone_shows_at_the_next_open(kept):
    pattern = f"{kept}/*.nc"
    for day in (0, 1, 3):
        netcdf(kept / f"{day}.nc", day)
    opened(pattern).close()
    record = cache.cached_archives()[0].record()
    netcdf(kept / "2.nc", 2)  # in the middle
    xr.testing.assert_identical(opened(pattern).load(), by_xarray(kept.glob("*.nc")).load())
    netcdf(kept / "1.nc", 1, values=np.full((1, 6, 8), 7.0))
    xr.testing.assert_identical(opened(pattern).load(), by_xarray(kept.glob("*.nc")).load())
    assert opened(pattern)["sst"].values[1, 0, 0] == 7
    (kept / "0.nc").unlink()
    with pytest.warns(
        UserWarning, match=r"1 file .* has disappeared since the archive was last opened, such as .*0.nc"
    ):
        dataset = opened(pattern).load()
    xr.testing.assert_identical(dataset, by_xarray(kept.glob("*.nc")).load())
    assert cache.cached_archives()[0].record().group == record.group  # nothing had to be built anew
    for file in kept.glob("*.nc"):
        file.unlink()
    with pytest.raises(IngestError, match="no file matches"):
        opened(pattern)


def test_a_tree_of_groups_shows_what_is_new_changed_and_gone(kept):
    def save(day, value):
        with netCDF4.Dataset(kept / f"{day}.nc", "w") as file:
            for name in ("a", "b"):
                group = file.createGroup(name)
                group.createDimension("time", 1)
                group.createVariable("time", "i4", ("time",))[:] = day
                group.createVariable("v", "f4", ("time",))[:] = value

    def shown():
        tree = xr.open_datatree(f"{kept}/*.nc", engine="intarsia", concat_dim="time")
        return [tree[name].v.values.tolist() for name in ("a", "b")]

    for day in (0, 1):
        save(day, day)
    assert shown() == [[0, 1]] * 2
    save(2, 2)
    assert shown() == [[0, 1, 2]] * 2
    save(1, 7)
    assert shown() == [[0, 7, 2]] * 2
    (kept / "0.nc").unlink()
    with pytest.warns(UserWarning, match=r"1 file .* has disappeared"):
        assert shown() == [[7, 2]] * 2
    assert cache.cached_archives()[0].record().group == "0"  # nothing had to be built anew


def test_nested_lists_are_built_anew_if_a_file_changes(kept):
    def save(y, x, value):
        xr.Dataset({"v": (("y", "x"), np.full((2, 3), value))}).to_netcdf(kept / f"{y}{x}.nc")
        return kept / f"{y}{x}.nc"

    files = [[save(y, x, 10.0 * y + x) for x in range(2)] for y in range(2)]
    assert opened(files, concat_dim=["y", "x"]).v.values[::2, ::3].tolist() == [[0, 1], [10, 11]]
    save(0, 1, 99.0)
    assert opened(files, concat_dim=["y", "x"]).v.values[::2, ::3].tolist() == [[0, 99], [10, 11]]


def test_files_that_do_not_fit_what_was_there_are_a_dataset_of_their_own(kept):
    for day in range(2):
        netcdf(kept / f"{day}.nc", day)
    before = opened(f"{kept}/*.nc")
    for day in range(2):
        netcdf(kept / f"{day}.nc", day, grid=(3, 5))
    after = opened(f"{kept}/*.nc")
    assert after["sst"].shape == (2, 3, 5)
    xr.testing.assert_identical(after.load(), by_xarray(kept.glob("*.nc")).load())
    assert before["lat"].shape == (6,)  # whoever has it open keeps what is kept of it


def test_nothing_is_parsed_at_a_later_open(kept, monkeypatch):
    for day in range(2):
        netcdf(kept / f"{day}.nc", day)
    opened(f"{kept}/*.nc").close()
    monkeypatch.setattr(cache, "ingest", lambda *_, **__: pytest.fail("ingested again"))
    assert opened(f"{kept}/*.nc")["sst"].shape == (2, 6, 8)
    os.utime(kept / "0.nc")
    with pytest.raises(pytest.fail.Exception):
        opened(f"{kept}/*.nc")


def test_an_entry_that_was_damaged_or_cleared_is_made_again(kept):
    netcdf(kept / "0.nc", 0)
    for harm in (
        lambda entry: shutil.rmtree(entry.path / "repository"),
        lambda entry: shutil.rmtree(entry.path),
        lambda entry: (entry.path / "entry.json").write_text("{"),
        lambda entry: shutil.rmtree(entry.path / "repository" / "snapshots"),
    ):
        opened(f"{kept}/*.nc").close()
        harm(cache.cached_archives()[0])
        assert opened(f"{kept}/*.nc")["sst"].values.shape == (1, 6, 8)
    assert cache.clear_cache(["another"]) == 0
    assert cache.clear_cache() == 1
    assert cache.cached_archives() == []


def test_entries_differ_by_what_was_asked_and_not_by_who_asks(kept):
    def key(files="s3://b/*.nc", storage_options=None, **options):
        return cache.CachedArchive.of(files, options, storage_options).key

    assert key() == key(["s3://b/*.nc"]) == key(storage_options={"access_key_id": "a", "bearer_token": "b"})
    others = [key("s3://b/*.h5"), key(concat_dim="time"), key(storage_options={"region": "eu-central-1"})]
    assert len({key(), *others}) == 4
    among_others = cache.CachedArchive.of("s3://b/*.nc", {"storage_options": {"region": "eu-central-1"}})
    assert among_others.key == others[-1]
    assert among_others.storage_options == {"region": "eu-central-1"}
    assert key(concat_dim="time", client=4) == key(concat_dim="time")
    with pytest.raises(IngestError, match=r"plain values: Object of type .* is not JSON"):
        opened(f"{kept}/*.nc", ingest_options={"preprocess": print})


def test_what_is_not_for_files_is_refused(kept, tmp_path):
    netcdf(kept / "0.nc", 0)
    intarsia.ingest(kept / "0.nc", tmp_path / "r", concat_dim="time")
    with pytest.raises(TypeError, match="is a repository"):
        opened(tmp_path / "r")
    with pytest.raises(TypeError, match="are for repositories"):
        opened(f"{kept}/*.nc", branch="main")
    with pytest.raises(IngestError, match=r"cannot be found: .*1.nc"):
        opened([kept / "0.nc", kept / "1.nc"])
    with pytest.raises(IngestError, match="no file matches"):
        opened(f"{kept}/*.h5")
    (kept / "2.nc").write_bytes(b"no file of any kind")
    with pytest.raises(IngestError, match=r"1 of 2 files cannot be ingested"):
        opened(f"{kept}/*.nc")
    with opened(f"{kept}/*.nc", ingest_options={"errors": "skip"}) as dataset:
        assert dataset["sst"].shape == (1, 6, 8)


def test_a_cache_that_cannot_be_written_says_where_else(kept, monkeypatch, tmp_path):
    netcdf(kept / "0.nc", 0)
    (tmp_path / "occupied").touch()
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(OSError, match="INTARSIA_CACHE"):
        opened(f"{kept}/*.nc")


def _sum(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(pattern, engine="intarsia", concat_dim="time") as dataset:
            return float(dataset["sst"].sum()), dataset.sizes["time"]


def test_processes_that_open_at_once_build_it_once(kept):
    for day in range(4):
        netcdf(kept / f"{day}.nc", day)
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawned) as pool:
        answers = set(pool.map(_sum, [f"{kept}/*.nc"] * 4))
    assert answers == {(float(by_xarray(kept.glob("*.nc"))["sst"].sum()), 4)}
    repo = intarsia.open_repository(cache.cached_archives()[0].path / "repository")
    assert [entry.message for entry in repo.ancestry(branch="main")][:-1] == ["ingest: 4 added"]


def test_a_bucket_is_asked_with_one_list(bucket, s3, tmp_path):
    url = f"s3://{BUCKET}"
    values = []
    for day in range(MIN_LISTED):
        values.append(netcdf(tmp_path / f"{day:02d}.nc", day))
        obstore.put(bucket, f"{day:02d}.nc", (tmp_path / f"{day:02d}.nc").read_bytes())
    with opened(f"{url}/*.nc", storage_options=s3) as dataset:
        assert np.array_equal(dataset["sst"].values, np.concatenate(values))
    sources = Sources(s3)
    by_glob = content_fingerprints(sources, [f"{url}/*.nc"])
    sources.identity = lambda url: pytest.fail("asked for one")
    assert content_fingerprints(sources, list(by_glob)) == by_glob
    entry = cache.cached_archives()[0]
    assert not any(s3["secret_access_key"].encode() in f.read_bytes() for f in entry.path.rglob("*.json"))


variable = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["f4", "f8", "i2", "i4", "u1"]),
        "packed": st.booleans(),
        "compressed": st.booleans(),
        "attrs": st.dictionaries(
            st.sampled_from(["units", "long_name", "note"]), st.sampled_from("abc"), max_size=2
        ),
    }
)
archives = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 3), min_size=1, max_size=4),
        "grid": st.tuples(st.integers(1, 5), st.integers(1, 4)),
        "variables": st.lists(variable, min_size=1, max_size=3),
        "step": st.sampled_from([1, 7]),
        "times": st.booleans(),
        "static": st.booleans(),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def _write(folder, drawn):
    rng = np.random.default_rng(drawn["seed"])
    start = 0
    for number, length in enumerate(drawn["lengths"]):
        time = np.arange(start, start + length * drawn["step"], drawn["step"])
        start = int(time[-1]) + drawn["step"]
        units = {"units": "days since 2001-02-03"} if drawn["times"] else {}
        dataset = xr.Dataset(
            coords={
                "time": ("time", time, units),
                "y": np.linspace(-1, 1, drawn["grid"][0]),
                "x": np.arange(drawn["grid"][1], dtype="f4"),
            },
            attrs={"title": "random"},
        )
        encoding = {}
        for k, each in enumerate(drawn["variables"]):
            data = rng.integers(0, 90, (length, *drawn["grid"])).astype(each["kind"])
            packing = (
                {"scale_factor": 0.5, "add_offset": 10.0} if each["packed"] and data.dtype.kind == "i" else {}
            )
            dataset[f"v{k}"] = ("time", "y", "x"), data, {**each["attrs"], **packing}
            encoding[f"v{k}"] = {"zlib": True} if each["compressed"] else {}
        if drawn["static"]:
            dataset["mask"] = ("y", "x"), np.ones(drawn["grid"], "i1")
        dataset.to_netcdf(
            folder / f"{number}.nc", engine="h5netcdf", encoding=encoding, unlimited_dims=["time"]
        )


def _compare(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("random")
    _write(folder, drawn)
    with by_xarray(folder.glob("*.nc")) as expected, opened(f"{folder}/*.nc") as dataset:
        xr.testing.assert_identical(dataset.load(), expected.load())
    cache.clear_cache()


QUIET = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=8, **QUIET)
@given(archives)
def test_random_archives_are_identical_to_those_of_open_mfdataset(tmp_path_factory, drawn):
    _compare(tmp_path_factory, drawn)


@pytest.mark.torture
@settings(max_examples=200, **QUIET)
@given(archives)
def test_many_random_archives_are_identical_to_those_of_open_mfdataset(tmp_path_factory, drawn):
    _compare(tmp_path_factory, drawn)


def test_the_note_is_plain_json(kept):
    netcdf(kept / "0.nc", 0)
    opened(f"{kept}/*.nc").close()
    note = json.loads((cache.cached_archives()[0].path / "entry.json").read_text())
    assert (note["files"], note["options"]) == (1, {"concat_dim": "time"})
