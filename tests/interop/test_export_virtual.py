"""Uniform parts of an archive as virtual Zarr: programs without intarsia read what intarsia reads."""

import os
import subprocess
import sys
import time

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.errors import IngestError, OverwriteError, RepositoryError, UnreachableMembersError
from tests.archives.files import hdf5, netcdf
from tests.cli.program import document, failure

PARTS = {"time0-4": slice(0, 4), "time4-7": slice(4, 7), "time7-9": slice(7, 9)}


@pytest.fixture
def archive(tmp_path):
    """Three encodings: two packings, one with other chunks, and plain floats."""
    packed = {"scale_factor": 0.01, "add_offset": 270.0}
    netcdf(tmp_path / "0.nc", 0, steps=2, kind="i2", attrs=packed, fill=-1, chunks=(1, 6, 8))
    netcdf(tmp_path / "1.nc", 2, steps=2, kind="i2", attrs=packed, fill=-1, chunks=(1, 6, 8))
    other = {"scale_factor": 0.02, "add_offset": 270.0}
    netcdf(tmp_path / "2.nc", 4, steps=3, kind="i2", attrs=other, fill=-2, chunks=(1, 3, 4), shuffle=False)
    netcdf(tmp_path / "3.nc", 7, steps=2, kind="f4", chunks=(2, 6, 8), compression=None)
    return intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time").repository


def foreign_store(path):
    """The store as people without intarsia open it."""
    storage = icechunk.local_filesystem_storage(str(path))
    containers = icechunk.Repository.fetch_config(storage).virtual_chunk_containers
    access = dict.fromkeys(containers, icechunk.credentials.LocalFileSystemAccess)
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    return repo.readonly_session("main").store


WITHOUT_INTARSIA = """
import importlib.metadata, sys
installed = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **which: importlib.metadata.EntryPoints(
    each for each in installed(**which) if not each.value.startswith("intarsia")
)
sys.modules["intarsia"] = None  # importing it fails
import icechunk, xarray
storage = icechunk.local_filesystem_storage(sys.argv[1])
containers = icechunk.Repository.fetch_config(storage).virtual_chunk_containers
access = dict.fromkeys(containers, icechunk.credentials.LocalFileSystemAccess)
repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
for name in sys.argv[3:]:
    part = xarray.open_zarr(repo.readonly_session("main").store, group=name, consolidated=False)
    part.load().drop_encoding().to_netcdf(f"{sys.argv[2]}/{name}.nc", engine="h5netcdf")
"""


def test_xarray_without_intarsia_reads_every_part(archive, tmp_path):
    group = intarsia.export(archive, tmp_path / "plain", "sst", to="virtual")
    assert (group.path, set(group.group_keys())) == ("sst", set(PARTS))
    (tmp_path / "out/sst").mkdir(parents=True)
    names = [f"sst/{name}" for name in PARTS]
    arguments = [tmp_path / "plain", tmp_path / "out", *names]
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT_INTARSIA, *map(str, arguments)], check=True)
    with xr.open_dataset(archive, engine="intarsia") as own:
        for name, steps in PARTS.items():
            with xr.open_dataset(tmp_path / f"out/sst/{name}.nc", engine="h5netcdf") as part:
                expected = own.isel(time=steps)
                xr.testing.assert_allclose(part.load(), expected.load())
                assert part.sst.attrs == expected.sst.attrs


def test_one_part_is_at_the_path_itself_and_nothing_is_copied(tmp_path):
    netcdf(tmp_path / "a b.nc", 0, steps=20, grid=(60, 80))
    repo = intarsia.ingest(tmp_path / "a b.nc", tmp_path / "r", concat_dim="time", group="g").repository
    group = intarsia.export(repo, tmp_path / "plain", source_path="g", to="virtual")
    assert isinstance(group["sst"], zarr.Array)
    assert set(group) == {"sst", "time", "lat"}
    stored = sum(file.stat().st_size for file in (tmp_path / "plain").rglob("*") if file.is_file())
    assert stored < (tmp_path / "a b.nc").stat().st_size / 4
    containers = intarsia.archives.containers
    assert containers(tmp_path / "plain") == containers(repo)
    with (
        xr.open_zarr(foreign_store(tmp_path / "plain"), consolidated=False) as plain,
        xr.open_dataset(repo, group="g", engine="intarsia") as own,
    ):
        xr.testing.assert_equal(plain.load(), own.load())


def test_chunks_that_no_file_stores_and_zeros_stay_what_they_are(tmp_path):
    def build(file, shape):
        values = np.arange(np.prod(shape), dtype="i2").reshape(shape)
        for name, marks in (("plain", {}), ("marked", {"_FillValue": np.int16(-1)})):
            data = file.create_dataset(name, shape=shape, dtype="i2", chunks=(1, 3, 8))
            data[:, :3] = values[:, :3]
            data.attrs.update(marks)
            yield data

    for day in range(2):
        hdf5(tmp_path / f"{day}.h5", day, build)
    repo = intarsia.ingest(tmp_path / "*.h5", tmp_path / "r", concat_dim="time").repository
    intarsia.export(repo, tmp_path / "plain", to="virtual")
    with (
        xr.open_zarr(foreign_store(tmp_path / "plain"), consolidated=False) as plain,
        xr.open_dataset(repo, engine="intarsia") as own,
    ):
        xr.testing.assert_equal(plain.load(), own.load())
        assert plain["plain"].dtype == "i2"


def test_a_variable_that_an_era_lacks_is_a_hole(tmp_path):
    netcdf(tmp_path / "0.nc", 0)
    netcdf(tmp_path / "1.nc", 1, extra=("ice",))
    repo = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time", missing="fill").repository
    intarsia.export(repo, tmp_path / "plain", to="virtual")
    store = foreign_store(tmp_path / "plain")
    with (
        xr.open_dataset(repo, engine="intarsia") as own,
        xr.open_zarr(store, group="time0-1", consolidated=False) as first,
        xr.open_zarr(store, group="time1-2", consolidated=False) as last,
    ):
        xr.testing.assert_equal(xr.concat([first, last], "time").load(), own.load())


@pytest.mark.parametrize("place", ["on disk", "in memory"])
def test_sources_that_changed_are_never_read_as_if_they_had_not(place, tmp_path):
    netcdf(tmp_path / "0.nc", 0)
    os.utime(tmp_path / "0.nc", (1_000_000, 1_000_000))
    store = tmp_path / "r" if place == "on disk" else intarsia.open_repository("memory://", create=True)
    repo = intarsia.ingest(tmp_path / "0.nc", store, concat_dim="time").repository
    before = intarsia.open(repo, "sst")[...]
    intarsia.export(repo, tmp_path / "plain", to="virtual")
    assert np.array_equal(zarr.open_array(foreign_store(tmp_path / "plain"), path="sst")[...], before)
    later = time.time() + 1_000
    os.utime(tmp_path / "0.nc", (later, later))
    with pytest.raises(icechunk.IcechunkError, match="has changed"):
        zarr.open_array(foreign_store(tmp_path / "plain"), path="sst")[...]
    if place == "on disk":  # its checksums are known and kept
        intarsia.export(repo, tmp_path / "later", to="virtual")
        with pytest.raises(icechunk.IcechunkError, match="has changed"):
            zarr.open_array(foreign_store(tmp_path / "later"), path="sst")[...]
    else:
        with pytest.raises(RepositoryError, match="has changed"):
            intarsia.export(repo, tmp_path / "later", to="virtual")


def test_data_that_were_copied_are_copied_again(tmp_path):
    netcdf(tmp_path / "0.nc", 0, steps=3)
    repo = intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time", copy="all").repository
    (tmp_path / "0.nc").unlink()
    group = intarsia.export(repo, tmp_path / "plain", to="virtual")
    assert np.array_equal(group["sst"][...], intarsia.open(repo, "sst")[...])


def test_texts_are_texts(tmp_path):
    for day in range(2):
        values = {"v": (("time", "station"), np.full((1, 2), day, "f4"))}
        names = {"time": [day], "name": ("station", ["Bonn", "Oslo"]), "date": ("time", [f"day {day}"])}
        xr.Dataset(values, names).to_netcdf(tmp_path / f"{day}.nc", engine="h5netcdf")
    repo = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time").repository
    intarsia.export(repo, tmp_path / "plain", to="virtual")
    with (
        xr.open_zarr(foreign_store(tmp_path / "plain"), consolidated=False) as plain,
        xr.open_dataset(repo, engine="intarsia") as own,
    ):
        for name in ("v", "time", "name", "date"):
            assert plain[name].values.tolist() == own[name].values.tolist()


def _reversed(folder):
    netcdf(folder / "0.nc", 0)
    netcdf(folder / "1.nc", 1, lat=np.linspace(10, -10, 6))
    return intarsia.ingest(folder / "*.nc", folder / "r", concat_dim="time").repository


def _conditional(folder):
    netcdf(folder / "0.nc", 0)
    repo = intarsia.ingest(folder / "*.nc", folder / "r", concat_dim="time").repository
    with intarsia.transaction(repo, message="another codec") as tx:
        conditional = intarsia.codecs.ConditionalCodec(codecs=[zarr.codecs.GzipCodec()])
        tx.open("sst").recode(..., codecs=[conditional])
    return repo


@pytest.mark.parametrize(("make", "words"), [(_reversed, "reversed"), (_conditional, "conditional")])
def test_what_no_zarr_array_can_show_is_refused_before_there_is_a_repository(make, words, tmp_path):
    repo = make(tmp_path)
    with pytest.raises(UnreachableMembersError, match=rf"(?s){words}.*intarsia\.export"):
        intarsia.export(repo, tmp_path / "new/plain", to="virtual")
    assert not (tmp_path / "new").exists()


def test_an_export_that_fails_while_it_is_written_leaves_nothing(archive, tmp_path):
    def fail(done, total):
        if done:
            raise ValueError("the disk is full")

    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="the disk is full"):
        intarsia.export(archive, tmp_path / "new" / "plain", to="virtual", progress=fail)
    assert sorted(tmp_path.iterdir()) == before
    there = intarsia.open_repository(tmp_path / "there", create=True)
    with pytest.raises(ValueError, match="the disk is full"):
        intarsia.export(archive, tmp_path / "there", to="virtual", progress=fail)
    assert len(list(there.ancestry(branch="main"))) == 1
    assert (tmp_path / "there").exists()
    intarsia.export(archive, tmp_path / "new" / "plain", to="virtual")
    assert len(list(intarsia.open_repository(tmp_path / "new" / "plain").ancestry(branch="main"))) == 2


def test_arguments_that_cannot_be_meant_are_refused(archive, tmp_path):
    new = tmp_path / "new"
    for error, arguments in (
        (ValueError, {"to": "netcdf"}),
        (TypeError, {"to": "virtual", "codecs": ["zstd"]}),
        (IngestError, {"to": "virtual", "source_path": "nowhere"}),
    ):
        with pytest.raises(error):
            intarsia.export(archive, new, **arguments)
    with pytest.raises(TypeError, match="repository"):
        intarsia.export({}, new, to="virtual")
    assert not new.exists()
    zarr.create_array(tmp_path / "there.zarr", data=np.zeros(3))
    with pytest.raises(RepositoryError, match="empty"):
        intarsia.export(archive, tmp_path / "there.zarr", to="virtual")


def test_what_is_there_is_kept_unless_it_may_go(archive, tmp_path):
    target = intarsia.open_repository(tmp_path / "plain", create=True)
    with intarsia.transaction(target, message="something") as tx:
        tx.create("other", shape=(0,), chunks=(2,), dtype="u1").append([1, 2])
    intarsia.export(archive, target, "sst", to="virtual")
    with pytest.raises(OverwriteError, match="overwrite=True"):
        intarsia.export(archive, target, "sst", to="virtual")
    group = intarsia.export(archive, target, "sst", to="virtual", overwrite=True)
    assert set(group) == set(PARTS)
    assert intarsia.open(target, "other")[...].tolist() == [1, 2]
    with pytest.raises(OverwriteError, match="onto itself"):
        intarsia.export(archive, archive, to="virtual", overwrite=True)
    group = intarsia.export(archive, archive, "plain", to="virtual")  # beside its own dataset
    expected = intarsia.open(archive, "sst")[7:9]
    assert np.array_equal(group["time7-9/sst"][...], expected)


def test_the_command_writes_the_same(archive, tmp_path):
    said = document("export", tmp_path / "r", tmp_path / "plain", "--to", "virtual", "--target-path", "p")
    assert set(said["arrays"]) == {f"p/{part}/{name}" for part in PARTS for name in ("sst", "time", "lat")}
    assert "none" in failure(
        "export", tmp_path / "r", tmp_path / "q", "--to", "virtual", "--tag", "none", code=3
    )
    failure("export", tmp_path / "r", tmp_path / "q", "--to", "netcdf", code=2)
    assert not (tmp_path / "q").exists()


def test_fill_values_of_unsigned_numbers_are_as_they_are_stored(tmp_path):
    dataset = xr.Dataset({"t": (("time", "x"), [[1.0, 200.0, np.nan, 250.0]])}, {"time": [0]})
    packing = {"dtype": "i1", "_Unsigned": "true", "_FillValue": np.int8(-1), "scale_factor": 1.0}
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"t": packing})
    archive = intarsia.ingest(tmp_path / "a.nc", tmp_path / "r", concat_dim="time").repository
    plain = intarsia.export(archive, tmp_path / "plain", to="virtual")
    assert plain["t"].attrs["_FillValue"] == -1
    with xr.open_zarr(plain.store, consolidated=False) as opened:
        np.testing.assert_array_equal(opened["t"], dataset["t"])
