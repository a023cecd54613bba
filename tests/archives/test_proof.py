"""What cannot be opened is not committed: it is left out by name, and the rest is taken."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives import write_plan
from intarsia.errors import IngestError
from tests.archives.files import netcdf


def with_mask(path, first, **attrs):
    """A file with a variable `mask`, of which xarray cannot make sense, beside the good ones."""
    values = netcdf(path, first)
    with netCDF4.Dataset(path, "a") as file:
        mask = file.createVariable("mask", "f4", ("lat",))
        mask.setncatts(attrs)
        mask.set_auto_maskandscale(False)
        mask[:] = 1
    return values


def test_a_variable_with_which_the_dataset_does_not_open_is_left_out(tmp_path):
    factors = {"scale_factor": np.array([1.0, 2.0])}
    values = [with_mask(tmp_path / f"{day}.nc", day, **factors) for day in range(2)]
    with pytest.raises(ValueError, match="size 1"):
        xr.open_dataset(tmp_path / "0.nc")
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    assert report.summary == "2 added; left out: mask"
    assert "size 1" in report.left_out["mask"]
    opened = xr.open_dataset(report.repository, engine="intarsia")
    np.testing.assert_array_equal(opened.sst, np.concatenate(values))
    with_mask(tmp_path / "2.nc", 2, **factors)
    again = intarsia.ingest(tmp_path / "2.nc", report.repository, concat_dim="time")
    assert again.summary == "1 added; left out: mask"


def test_what_zarr_cannot_write_is_left_out(tmp_path, monkeypatch):
    write = write_plan.write_plain

    def refusing(group, name, *arguments):
        if name == "mask":
            raise TypeError("no such type")
        write(group, name, *arguments)

    monkeypatch.setattr(write_plan, "write_plain", refusing)
    with_mask(tmp_path / "0.nc", 0)
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    assert report.left_out == {"mask": "it cannot be written: no such type"}
    assert set(xr.open_dataset(report.repository, engine="intarsia").variables) == {"time", "lat", "sst"}


def test_files_that_would_spoil_a_dataset_are_refused(tmp_path, monkeypatch):
    for day in range(2):
        netcdf(tmp_path / f"{day}.nc", day)
    report = intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time")
    monkeypatch.setattr("intarsia.archives.ingestion.variable_problems", lambda *_: {"sst": "it is too good"})
    with pytest.raises(IngestError, match=r"'sst' of the dataset could no longer be opened.*too good"):
        intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time")
    assert intarsia.open(report.repository, "sst").shape[0] == 1


def test_numbers_that_nobody_can_read_are_left_out_and_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = np.arange(4.0)
        file.create_dataset("elsewhere", (4,), "f4", external=[("gone.raw", 0, 16)])
        file.create_dataset("long", (4,), np.longdouble)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2,))
        plist.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple((4,))
        coded = h5py.Dataset(h5py.h5d.create(file.id, b"coded", h5py.h5t.NATIVE_INT32, space, plist))
        coded.id.write_direct_chunk((0,), b"12345678", 0)
    report = intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="step")
    assert set(report.left_out) == {"elsewhere", "long", "coded"}
    assert "external" in report.left_out["elsewhere"]
    assert "32999" in report.left_out["coded"]
    assert intarsia.open(report.repository, "good")[0].tolist() == [0, 1, 2, 3]


def test_one_bad_dataset_of_many_is_found(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i in range(20):
            file[f"v{i}"] = np.full(3, i)
        file.create_dataset("v7b", data=np.arange(3), chunks=(3,), scaleoffset=0)
    report = intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="step")
    assert report.files[0].reason.startswith("'v7b' copied")
    assert report.copied == 24


def test_the_dimensions_that_grow_are_unlimited_to_xarray(tmp_path):
    netcdf(tmp_path / "0.nc", 0, kind="i2", fill=-1, attrs={"scale_factor": 0.5})
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    with xr.open_dataset(tmp_path / "0.nc") as theirs:
        assert opened.encoding["unlimited_dims"] == theirs.encoding["unlimited_dims"] == {"time"}
        for key in ("dtype", "scale_factor", "_FillValue"):
            assert opened.sst.encoding[key] == theirs.sst.encoding[key]
    assert opened.attrs == {}
