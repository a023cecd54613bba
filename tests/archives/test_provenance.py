"""Which file holds which part of a dataset, and whether it still does."""

import json
import os

import numpy as np
import obstore
import pytest
import xarray as xr

import intarsia
from intarsia.errors import BoundsError, IngestError, NotLogicalArrayError
from tests.archives.files import netcdf
from tests.archives.plan.test_cube import tile
from tests.archives.test_parse import kerchunk_of


def name(file):
    return file.url.rsplit("/", 1)[-1]


@pytest.fixture
def days(tmp_path):
    for first in (0, 2, 4):
        netcdf(tmp_path / f"{first}.nc", first, steps=2, chunks=(1, 3, 8), extra=("ice",))
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "repository", concat_dim="time")
    return tmp_path, report.repository


def test_a_dataset_lists_its_files_and_what_each_shows(days):
    _, repo = days
    found = intarsia.archives.sources(repo)
    assert [(name(file), file.state, file.chunks) for file in found] == [
        (f"{first}.nc", "present", ()) for first in (0, 2, 4)
    ]
    (part,) = found[1].parts
    assert (part.variables, part.bounds) == (("sst", "ice"), ((2, 4),))
    assert str(found).split("\n")[2].split()[0] == "present"
    assert [name(file) for file in intarsia.archives.sources(repo, at=3)] == ["2.nc"]
    assert [name(file) for file in intarsia.archives.sources(repo, at={"time": [0, 5]})] == ["0.nc", "4.nc"]


def test_an_index_leads_to_a_file_and_a_chunk_whose_bytes_are_there(days):
    folder, repo = days
    (file,) = intarsia.archives.sources(repo, "sst", at=(3, 4, 5))
    (chunk,) = file.chunks
    assert name(file) == "2.nc"
    assert file.parts[0].bounds == ((2, 4), (0, 6), (0, 8))
    assert chunk.bounds == ((3, 4), (3, 6), (0, 8))
    assert (chunk.url, chunk.nbytes > 0) == (file.url, True)
    array = intarsia.open(repo, "sst")
    with (folder / "2.nc").open("r+b") as stream:  # the bytes are those that the array reads
        stream.seek(chunk.offset)
        stream.write(b"\xff" * chunk.nbytes)
        stamp = os.stat(folder / "0.nc").st_mtime
    os.utime(folder / "2.nc", (stamp, stamp))
    array[3, :3]
    with pytest.raises(intarsia.IntarsiaError):
        array[3, 3:]


def test_selections_choose_chunks_exactly(days):
    _, repo = days
    found = intarsia.archives.sources(repo, "sst", at=np.s_[1:3, 0])
    assert [[chunk.bounds[0] for chunk in file.chunks] for file in found] == [[(1, 2)], [(2, 3)]]
    found = intarsia.archives.sources(repo, "sst", at=np.s_[::5, [0, 5]])
    assert [(name(file), len(file.chunks)) for file in found] == [("0.nc", 2), ("4.nc", 2)]
    assert [len(file.chunks) for file in intarsia.archives.sources(repo, "sst", at=...)] == [4, 4, 4]
    assert [file.chunks for file in intarsia.archives.sources(repo, "sst")] == [(), (), ()]
    assert len(intarsia.archives.sources(repo, "sst", at=np.s_[2:2])) == 0


def test_files_that_changed_or_went_away_are_told(days):
    folder, repo = days
    (folder / "0.nc").unlink()
    os.utime(folder / "2.nc", (1e9, 1e9))
    found = intarsia.archives.sources(repo, "sst")
    assert [file.state for file in found] == ["gone", "changed", "present"]
    assert [name(file) for file in found.missing] == ["0.nc", "2.nc"]
    assert [file.state for file in intarsia.archives.sources(repo, check=False)] == [None] * 3
    assert intarsia.archives.sources(folder / "repository", "sst").missing == found.missing


def test_the_past_has_its_own_sources(days):
    folder, repo = days
    before = repo.lookup_branch("main")
    netcdf(folder / "6.nc", 6, chunks=(1, 3, 8), extra=("ice",))
    intarsia.ingest(folder / "*.nc", repo, concat_dim="time")
    assert len(intarsia.archives.sources(repo)) == 4
    assert len(intarsia.archives.sources(repo, snapshot_id=before)) == 3


def test_turned_tiles_and_overlaps_lead_to_the_file_that_is_shown(tmp_path):
    tile(tmp_path, "a", [0, 1], [0, 1, 2], 1, chunks=(1, 2))
    tile(tmp_path, "b", [2, 1], [3, 2, 1], 2, chunks=(2, 2))
    report = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim=["y", "x"], overlap="last")
    array = intarsia.open(report.repository, "v")
    for index in np.ndindex(3, 4):
        found = intarsia.archives.sources(report.repository, "v", at=index)
        value = array[index]
        assert [name(file)[0] for file in found] == ([] if np.isnan(value) else ["a" if value == 1 else "b"])
        for file in found:
            (chunk,) = file.chunks
            assert chunk.url == file.url
            assert all(a <= i < b for i, (a, b) in zip(index, chunk.bounds, strict=True))
    tile(tmp_path, "c", [0, 1, 2], [0, 1, 2, 3], 3)
    intarsia.ingest(tmp_path / "*.h5", report.repository, concat_dim=["y", "x"], overlap="last")
    found = intarsia.archives.sources(report.repository)
    assert [len(file.parts) for file in found][:2] == [0, 0]
    assert str(found[0]).endswith("a.h5: nothing")


def test_stacked_variables_have_their_step(tmp_path):
    for hour in range(2):
        bands = {f"C{i}": (("t", "x"), np.full((1, 3), 10.0 * hour + i)) for i in range(3)}
        xr.Dataset(bands, {"t": [hour]}).to_netcdf(tmp_path / f"{hour}.nc")
    stack = {"CMI": ("band", ["C0", "C1"]), "D": ("other", ["C2"])}
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="t", stack=stack)
    (file,) = intarsia.archives.sources(report.repository, "CMI", at=(1, 1))
    (part,) = file.parts
    assert (part.variables, part.bounds) == (("C1",), ((1, 2), (1, 2), (0, 3)))
    assert [chunk.bounds for chunk in file.chunks] == [((1, 2), (1, 2), (0, 3))]
    assert [part.variables for part in intarsia.archives.sources(report.repository, "D")[0].parts] == [
        ("C2",)
    ]


def test_copied_and_referenced_chunks_belong_to_the_file_that_was_ingested(tmp_path):
    netcdf(tmp_path / "0.nc", 0, chunks=(1, 3, 8))
    netcdf(tmp_path / "1.nc", 1, chunks=(1, 3, 8))
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", copy="all")
    (file,) = intarsia.archives.sources(report.repository, "sst", at=0)
    assert [chunk.url for chunk in file.chunks] == ["", ""]
    (tmp_path / "1.json").write_text(json.dumps(kerchunk_of(tmp_path / "1.nc")))
    intarsia.ingest(tmp_path / "1.json", report.repository, concat_dim="time")
    (file,) = intarsia.archives.sources(report.repository, "sst", at=1)
    assert name(file) == "1.json"
    assert {chunk.url.rsplit("/", 1)[-1] for chunk in file.chunks} == {"1.nc"}


def test_a_group_holds_a_dataset_of_its_own(days):
    folder, repo = days
    intarsia.ingest(folder / "0.nc", repo, concat_dim="time", group="some/where")
    assert [name(file) for file in intarsia.archives.sources(repo, "some/where")] == ["0.nc"]
    assert [name(file) for file in intarsia.archives.sources(repo, "some/where/sst", at=1)] == ["0.nc"]


def test_what_cannot_be_asked_is_refused_in_words(days):
    _, repo = days
    with pytest.raises(BoundsError, match="no dimension 'height', only time, lat, lon"):
        intarsia.archives.sources(repo, "sst", at={"height": 0})
    with pytest.raises(BoundsError, match="of shape"):
        intarsia.archives.sources(repo, "sst", at=6)
    with pytest.raises(NotLogicalArrayError, match="nothing at nowhere"):
        intarsia.archives.sources(repo, "nowhere")
    with pytest.raises(NotLogicalArrayError, match=r"(?s)lat is a plain array.*those of /"):
        intarsia.archives.sources(repo, "lat")
    other = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(other) as tx:
        tx.create("a", shape=(4,), chunks=(2,), dtype="f4")
    with pytest.raises(IngestError, match="a was not ingested"):
        intarsia.archives.sources(other, "a")


def test_objects_on_s3_are_asked_by_their_head(tmp_path, s3, bucket):
    for first in range(2):
        netcdf(tmp_path / f"{first}.nc", first)
        obstore.put(bucket, f"x/{first}.nc", (tmp_path / f"{first}.nc").read_bytes())
    urls = [f"s3://archive/x/{first}.nc" for first in range(2)]
    report = intarsia.ingest(urls, "memory://", concat_dim="time", storage_options=s3)
    assert not intarsia.archives.sources(report.repository, storage_options=s3).missing
    obstore.delete(bucket, "x/0.nc")
    obstore.put(bucket, "x/1.nc", b"other")
    found = intarsia.archives.sources(report.repository, "sst", storage_options=s3)
    assert [file.state for file in found] == ["gone", "changed"]
    nobody = s3 | {"endpoint_url": "http://127.0.0.1:9"}
    found = intarsia.archives.sources(report.repository, storage_options=nobody)
    assert {file.state for file in found} == {"unreachable"}
