"""Files that moved, or were restored without their times, are recognised by what is in them."""

import os

import numpy as np
import pytest

import intarsia
from intarsia.archives import parse
from intarsia.errors import IngestError, ReadError
from tests.archives.files import hdf5, netcdf


@pytest.fixture
def moved(tmp_path):
    """A repository, and the pattern of its files, which are elsewhere now."""
    for day, name in enumerate("ab"):
        (tmp_path / "old" / name).mkdir(parents=True)
        netcdf(tmp_path / "old" / name / "day.nc", day)
    intarsia.ingest(tmp_path / "old/*/*.nc", tmp_path / "r", concat_dim="time")
    (tmp_path / "old").rename(tmp_path / "new")
    return tmp_path / "r", tmp_path / "new/*/*.nc"


def test_the_advice_for_a_moved_archive_is_to_relocate_and_that_works(moved):
    repo, files = moved
    with pytest.raises(IngestError, match="2 of 2 files") as caught:
        intarsia.ingest(files, repo, concat_dim="time")
    assert str(caught.value).count("if the file was only moved, intarsia.archives.relocate") == 2
    folder = repo.parent
    assert intarsia.archives.relocate(repo, {folder / "old": folder / "new"}).files == 2
    assert intarsia.ingest(files, repo, concat_dim="time").summary == "nothing to do: 2 unchanged"


def restore(folder, seconds=2_000_000_000):
    for file in folder.rglob("*.nc"):
        os.utime(file, (seconds, seconds))


@pytest.fixture
def restored(tmp_path):
    """A repository, the pattern of its files, which were restored without their times, and their values."""
    values = [netcdf(tmp_path / f"{day}.nc", day) for day in range(3)]
    intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    restore(tmp_path)
    return tmp_path / "r", tmp_path / "*.nc", np.concatenate(values)


@pytest.mark.parametrize("replace", [False, True])
def test_files_restored_without_their_times_are_recognised_by_their_bytes(restored, monkeypatch, replace):
    repo, files, values = restored
    with pytest.raises(ReadError):
        intarsia.open(repo, "sst", authorize=True)[...]
    monkeypatch.setattr(parse, "parse_one", lambda *_: pytest.fail("parsed again"))
    report = intarsia.ingest(files, repo, concat_dim="time", replace=replace)
    assert report.summary == "nothing to do: 3 unchanged"
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], values)
    assert [file.state for file in intarsia.archives.sources(repo)] == ["present"] * 3
    message = next(intarsia.open_repository(repo).ancestry(branch="main")).message
    assert message == "the same bytes with another time: 3 files"
    commits = len(list(intarsia.open_repository(repo).ancestry(branch="main")))
    intarsia.ingest(files, repo, concat_dim="time")
    assert len(list(intarsia.open_repository(repo).ancestry(branch="main"))) == commits


def test_restored_files_are_recognised_beside_new_and_changed_ones(restored, tmp_path):
    repo, files, values = restored
    values[1] = netcdf(tmp_path / "1.nc", 1, values=np.full((1, 6, 8), 7.0))
    fresh = netcdf(tmp_path / "3.nc", 3)
    with pytest.raises(IngestError, match=r"(?s)1 of 4 files.*1\.nc: it has changed since it was ingested"):
        intarsia.ingest(files, repo, concat_dim="time")
    report = intarsia.ingest(files, repo, concat_dim="time", replace=True)
    assert report.summary == "1 added, 1 replaced, 2 unchanged"
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate([values, fresh]))


def test_other_bytes_of_the_same_size_are_no_restored_file(tmp_path):
    path = tmp_path / "0.nc"
    hdf5(path, 0, lambda file, shape: [file.create_dataset("sst", data=np.zeros(shape))])
    size = path.stat().st_size
    intarsia.ingest(path, tmp_path / "r", concat_dim="time")
    hdf5(path, 0, lambda file, shape: [file.create_dataset("sst", data=np.ones(shape))])
    assert path.stat().st_size == size
    restore(tmp_path)
    with pytest.raises(IngestError, match="it has changed since it was ingested"):
        intarsia.ingest(path, tmp_path / "r", concat_dim="time")


def test_a_dry_run_accepts_restored_files_and_commits_nothing(restored):
    repo, files, _ = restored
    before = intarsia.open_repository(repo).lookup_branch("main")
    assert intarsia.ingest(files, repo, concat_dim="time", dry_run=True).summary.endswith("3 unchanged")
    assert intarsia.open_repository(repo).lookup_branch("main") == before
