"""Sources that moved are found again: one commit, nothing parsed, and only files that can be the same."""

import os
import shutil

import numpy as np
import obstore
import pytest
import zarr

import intarsia
from intarsia.archives import parse, relocation
from intarsia.errors import IngestError, ReadError
from tests.archives.conftest import BUCKET
from tests.archives.files import netcdf


@pytest.fixture
def archive(tmp_path):
    """Two files in two directories, below one that will move."""
    values = []
    for day, name in enumerate("ab"):
        (tmp_path / "old" / name).mkdir(parents=True)
        values.append(netcdf(tmp_path / "old" / name / f"{day}.nc", day))
    intarsia.ingest(tmp_path / "old/*/*.nc", tmp_path / "r", concat_dim="time")
    return tmp_path / "r", np.concatenate(values)


def test_a_moved_archive_is_read_again_after_one_commit_that_parses_nothing(archive, tmp_path, monkeypatch):
    repo, values = archive
    before = intarsia.open_repository(repo).lookup_branch("main")
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.setattr(parse, "parse_one", lambda *_: pytest.fail("parsed again"))
    done = intarsia.archives.relocate(repo, {tmp_path / "old": tmp_path / "new"})
    assert (done.files, done.chunks, done.unmarked) == (2, 2, 0)
    assert np.array_equal(intarsia.open(done.repository, "sst")[...], values)
    assert np.array_equal(intarsia.open(repo, "sst", authorize=True)[...], values)
    ancestry = [each.id for each in intarsia.open_repository(repo).ancestry(branch="main")]
    assert ancestry[1] == before
    files = intarsia.archives.sources(repo)
    assert [file.state for file in files] == ["present"] * 2
    assert all("/new/" in file.url for file in files)
    with pytest.raises(ReadError):
        intarsia.open(repo, "sst", snapshot_id=before, authorize=True)[...]


def test_a_commit_meanwhile_is_looked_at_again(archive, tmp_path, monkeypatch):
    repo, values = archive
    later = netcdf(tmp_path / "old/b/2.nc", 2)
    (tmp_path / "old").rename(tmp_path / "new")
    original, meanwhile = relocation.with_containers, iter([tmp_path / "new/b/2.nc"])

    def interrupted(*arguments):
        configured = original(*arguments)
        for other in meanwhile:  # another process is faster
            intarsia.ingest(other, repo, concat_dim="time")
        return configured

    monkeypatch.setattr(relocation, "with_containers", interrupted)
    done = intarsia.archives.relocate(repo, {tmp_path / "old": tmp_path / "new"})
    assert (done.files, done.chunks) == (2, 2)
    found = intarsia.open(done.repository, "sst")[...]
    assert np.array_equal(found, np.concatenate([values, later]))


def test_a_file_that_replaced_a_longer_one_moves(archive, tmp_path):
    repo, values = archive
    shorter = netcdf(tmp_path / "old/b/1.nc", 1, values=np.ones((1, 6, 8)))
    report = intarsia.ingest(tmp_path / "old/b/1.nc", repo, concat_dim="time", replace=True)
    assert report.summary == "1 replaced"
    (tmp_path / "old").rename(tmp_path / "new")
    done = intarsia.archives.relocate(repo, {tmp_path / "old": tmp_path / "new"})
    assert np.array_equal(intarsia.open(done.repository, "sst")[...], np.concatenate([values[:1], shorter]))


def test_ingest_goes_on_after_a_move(archive, tmp_path):
    repo, _ = archive
    (tmp_path / "old").rename(tmp_path / "new")
    intarsia.archives.relocate(repo, {f"{tmp_path}/old/": f"{tmp_path}/new/"})
    netcdf(tmp_path / "new/b/2.nc", 2)
    report = intarsia.ingest(tmp_path / "new/*/*.nc", repo, concat_dim="time")
    assert report.summary == "1 added, 2 unchanged"
    assert intarsia.verify(report.repository) == ()


def test_files_restored_without_their_times_are_taken_again(archive, tmp_path):
    repo, values = archive
    for file in (tmp_path / "old").rglob("*.nc"):
        os.utime(file, (2_000_000_000, 2_000_000_000))
    with pytest.raises(ReadError):
        intarsia.open(repo, "sst", authorize=True)[...]
    done = intarsia.archives.relocate(repo, {tmp_path / "old": tmp_path / "old"})
    assert done.unmarked == 2
    assert "2 files with another mark" in str(done)
    assert np.array_equal(intarsia.open(repo, "sst", authorize=True)[...], values)


def test_files_that_cannot_be_the_same_are_named_and_nothing_is_changed(archive, tmp_path):
    repo, _ = archive
    before = intarsia.open_repository(repo).lookup_branch("main")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    with open(tmp_path / "new/a/0.nc", "ab") as file:
        file.write(b"more")
    (tmp_path / "new/b/1.nc").unlink()
    with pytest.raises(IngestError) as caught:
        intarsia.archives.relocate(repo, {tmp_path / "old": tmp_path / "new"})
    assert "2 of 2 files" in str(caught.value)
    assert "0.nc: it has" in str(caught.value)
    assert "1.nc: it is not there" in str(caught.value)
    for nothing in ({tmp_path / "else": tmp_path / "new"}, {}):
        with pytest.raises(IngestError, match=r"refers to nothing below|say what has moved"):
            intarsia.archives.relocate(repo, nothing)
    assert intarsia.open_repository(repo).lookup_branch("main") == before


def test_the_longest_prefix_counts_and_the_rest_stays(archive, tmp_path):
    repo, values = archive
    shutil.move(tmp_path / "old/a", tmp_path / "elsewhere")
    done = intarsia.archives.relocate(repo, {tmp_path / "old/a": tmp_path / "elsewhere"})
    assert done.files == 1
    assert np.array_equal(intarsia.open(repo, "sst", authorize=True)[...], values)
    (tmp_path / "elsewhere").rename(tmp_path / "third")
    (tmp_path / "old").rename(tmp_path / "fourth")
    moves = {
        tmp_path / "elsewhere": tmp_path / "nowhere",
        tmp_path / "elsewhere/0.nc": tmp_path / "third/0.nc",
        tmp_path / "old": tmp_path / "fourth",
    }
    intarsia.archives.relocate(repo, moves)
    assert np.array_equal(intarsia.open(repo, "sst", authorize=True)[...], values)


def test_to_a_bucket(archive, tmp_path, bucket, s3):
    repo, values = archive
    for file in (tmp_path / "old").rglob("*.nc"):
        obstore.put(bucket, f"{file.parent.name}/{file.name}", file.read_bytes())
    shutil.rmtree(tmp_path / "old")
    done = intarsia.archives.relocate(repo, {tmp_path / "old": f"s3://{BUCKET}"}, storage_options=s3)
    assert (done.files, done.unmarked) == (2, 2)
    opened = intarsia.open(repo, "sst", authorize=True, storage_options=s3)
    assert np.array_equal(opened[...], values)
    obstore.put(bucket, "a/0.nc", b"something else")
    with pytest.raises(ReadError):
        opened[0]


def test_a_zarr_source_moves_as_one(tmp_path):
    for day in range(2):
        group = zarr.create_group(tmp_path / f"old/{day}.zarr")
        group.create_array("time", data=np.array([day], "i4"), dimension_names=["time"])
        group.create_array("v", data=np.full((1, 4), day + 1.0), chunks=(1, 2), dimension_names=["time", "x"])
    intarsia.ingest([tmp_path / f"old/{day}.zarr" for day in range(2)], tmp_path / "r", concat_dim="time")
    (tmp_path / "old").rename(tmp_path / "new")
    done = intarsia.archives.relocate(tmp_path / "r", {tmp_path / "old": tmp_path / "new"})
    assert (done.files, done.chunks) == (2, 4)
    assert intarsia.open(tmp_path / "r", "v", authorize=True)[:, 3].tolist() == [1, 2]


def test_the_error_of_a_moved_source_names_what_helps(tmp_path):
    values = np.arange(6, dtype="f4")
    zarr.create_array(tmp_path / "old/a.zarr", data=values, chunks=2)
    repo = intarsia.open_repository(tmp_path / "repository", create=True)
    intarsia.adopt(repo, "t", tmp_path / "old/a.zarr")
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(intarsia.errors.ReadError) as caught:
        intarsia.open(tmp_path / "repository", "t", authorize=True)[...]
    advice = str(caught.value).split("If it has moved, say so: ")[1]
    new = (tmp_path / "new/a.zarr/c").as_uri()
    eval(advice.replace("NEW_PLACE", new), {"intarsia": intarsia, "store": tmp_path / "repository"})
    read = intarsia.open(tmp_path / "repository", "t", authorize=True)[...]
    np.testing.assert_array_equal(read, values)
