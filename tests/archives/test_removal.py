"""Files are taken out of a dataset again, or give way to newer ones: as if they had never been there."""

import os

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia
from intarsia.archives import remove
from intarsia.errors import IngestError
from tests.archives.files import netcdf


def opened(repo):
    return xr.open_dataset(repo, engine="intarsia", decode_times=False)


def tile(folder, row, column):
    y, x = 2 * row + np.arange(2), 3.0 * column + np.arange(3)
    values = np.random.default_rng(10 * row + column).normal(size=(2, 3))
    name = folder / f"{row}-{column}.nc"
    xr.Dataset({"v": (("y", "x"), values), "area": (("y", "x"), values)}, {"y": y, "x": x}).to_netcdf(name)
    return name


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiles")
    return [tile(folder, row, column) for row in range(3) for column in range(3)]


@settings(max_examples=max(4, settings().max_examples // 10))
@given(st.sets(st.integers(0, 8), min_size=1, max_size=7), st.booleans())
def test_without_some_files_it_is_as_if_they_had_never_been_there(tiles, chosen, one_by_one):
    options = {"concat_dim": ["y", "x"]}
    repo = intarsia.ingest(tiles, "memory://", **options).repository
    gone = [tiles[i] for i in sorted(chosen)]
    for each in gone if one_by_one else [gone]:
        remove(repo, each)
    rest = [path for path in tiles if path not in gone]
    expected = intarsia.ingest(rest, "memory://", **options).repository
    xr.testing.assert_identical(opened(repo), opened(expected))
    assert not any(intarsia.verify(intarsia.open(repo, name)) for name in ("v", "area"))
    report = intarsia.ingest(tiles, repo, **options)
    assert report.summary == f"{len(gone)} added, {len(rest)} unchanged"
    whole = intarsia.ingest(tiles, "memory://", **options).repository
    xr.testing.assert_identical(opened(report.repository), opened(whole))


def test_globs_are_those_of_sources_and_files_need_not_be_there(tmp_path):
    values = [netcdf(tmp_path / f"{i}.nc", i) for i in range(4)]
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    (tmp_path / "1.nc").unlink()
    (tmp_path / "2.nc").unlink()
    snapshot = remove(tmp_path / "r", tmp_path / "[12].nc", message="they were wrong")
    assert snapshot == report.repository.lookup_branch("main")
    assert next(iter(report.repository.ancestry(branch="main"))).message == "they were wrong"
    found = opened(report.repository)
    np.testing.assert_array_equal(found.sst, np.concatenate([values[0], values[3]]))
    assert found.time.values.tolist() == [0, 3]


def test_globs_lead_into_folders_only_where_they_say_so(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "files [1]").mkdir()
    names = [tmp_path / name for name in ("0.nc", "old/1.nc", "old/2 b.nc", "files [1]/3.nc", "4.nc")]
    for i, name in enumerate(names):
        netcdf(name, i)
    repo = intarsia.ingest(names, "memory://", concat_dim="time").repository
    remove(repo, tmp_path / "*.nc")
    assert opened(repo).time.values.tolist() == [1, 2, 3]
    remove(repo, [names[3], tmp_path / "**" / "* b.nc"])
    assert opened(repo).time.values.tolist() == [1]


def test_what_cannot_be_removed_is_refused_in_words(tmp_path):
    netcdf(tmp_path / "0.nc", 0)
    netcdf(tmp_path / "1.nc", 1)
    repo = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time").repository
    with pytest.raises(IngestError, match=r"9\.nc is not a source of the dataset, which has 2 files"):
        remove(repo, tmp_path / "9.nc")
    with pytest.raises(IngestError, match="all the files of the dataset"):
        remove(repo, tmp_path / "*.nc")
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_files_without_a_coordinate_are_removed_too(tmp_path):
    for i in range(3):
        xr.Dataset({"v": ("n", np.arange(2.0) + 10 * i)}).to_netcdf(tmp_path / f"{i}.nc")
    repo = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="n").repository
    remove(repo, tmp_path / "1.nc")
    assert intarsia.open(repo, "v")[...].tolist() == [0, 1, 20, 21]


def test_coordinates_beside_the_axis_lose_what_is_removed(tmp_path):
    paths = [tmp_path / f"{i}.nc" for i in range(4)]
    for i, path in enumerate(paths):
        steps = {"t": [2 * i, 2 * i + 1], "label": ("t", [10 * i, 10 * i + 1]), "run": i}
        plane = {"plane": (("t", "x"), np.arange(6).reshape(2, 3) + i)}
        xr.Dataset({"v": (("t", "x"), np.full((2, 3), float(i)))}, steps | plane).to_netcdf(path)
    repo = intarsia.ingest(paths, "memory://", concat_dim="t").repository
    remove(repo, paths[1])
    expected = intarsia.ingest([paths[0], *paths[2:]], "memory://", concat_dim="t").repository
    xr.testing.assert_identical(opened(repo), opened(expected))


def test_stacked_variables_are_removed_too(tmp_path):
    for i in range(3):
        ds = xr.Dataset({f"b{k}": ("t", [10.0 * i + k]) for k in (1, 2)}, {"t": [i]})
        ds.to_netcdf(tmp_path / f"{i}.nc")
    options = {"concat_dim": "t", "stack": {"b": ("band", ["b1", "b0", "b2"])}, "missing": "fill"}
    repo = intarsia.ingest(tmp_path / "*.nc", "memory://", **options).repository
    remove(repo, tmp_path / "1.nc")
    assert intarsia.open(repo, "b")[::2].tolist() == [[1, 21], [2, 22]]
    repo = intarsia.ingest(tmp_path / "1.nc", repo, **options).repository
    assert intarsia.open(repo, "b")[::2].tolist() == [[1, 11, 21], [2, 12, 22]]


@pytest.mark.parametrize("policy", ["last", "newest"])
def test_a_reprocessed_file_takes_the_place_of_the_old_one(tmp_path, policy):
    options = {"concat_dim": "time", "overlap": policy, "copy": "never"}
    days = [netcdf(tmp_path / f"{i}_v1.nc", 2 * i, steps=2) for i in range(3)]
    for i in range(3):
        os.utime(tmp_path / f"{i}_v1.nc", (1e9, 1e9))
    repo = "memory://"
    for i in range(3):
        repo = intarsia.ingest(tmp_path / f"{i}_v1.nc", repo, **options).repository
    new = netcdf(tmp_path / "1_v2.nc", 2, steps=2, kind="f4", values=np.ones((2, 6, 8)), chunks=(1, 6, 8))
    report = intarsia.ingest(tmp_path / "1_v2.nc", repo, **options)
    assert report.summary == "1 added"
    expected = np.concatenate([days[0], new, days[2]])
    np.testing.assert_array_equal(opened(report.repository).sst, expected)
    # the old one is known, and shows nothing
    report = intarsia.ingest(tmp_path / "*.nc", report.repository, **options)
    assert report.snapshot_id is None
    assert report.summary == "nothing to do: 4 unchanged"
    remove(report.repository, tmp_path / "1_v1.nc")
    np.testing.assert_array_equal(opened(report.repository).sst, expected)
    remove(report.repository, tmp_path / "1_v2.nc")
    assert opened(report.repository).time.values.tolist() == [0, 1, 4, 5]
    report = intarsia.ingest(tmp_path / "1_v1.nc", report.repository, **options)
    np.testing.assert_array_equal(opened(report.repository).sst, np.concatenate(days))
    assert not intarsia.verify(intarsia.open(report.repository, "sst"))


def test_the_newest_version_is_shown_whatever_came_first(tmp_path):
    options = {"concat_dim": "time", "overlap": "newest"}
    for version, moment in ((1, 1e9), (2, 2e9)):
        netcdf(tmp_path / f"v{version}.nc", 0, values=np.full((1, 6, 8), version))
        os.utime(tmp_path / f"v{version}.nc", (moment, moment))
    for order in ((1, 2), (2, 1)):
        repo = "memory://"
        for version in order:
            repo = intarsia.ingest(tmp_path / f"v{version}.nc", repo, **options).repository
        assert (opened(repo).sst == 2).all()
