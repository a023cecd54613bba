"""What is kept of the metadata of files: xarray, on the file itself, is the referee."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from tests.archives.files import hdf5
from tests.archives.real_files import other_metadata

ENCODING = "scale_factor", "add_offset", "units", "calendar", "coordinates", "grid_mapping", "bounds"


@pytest.fixture
def file(tmp_path):
    """A NetCDF file with most of what CF knows."""
    path = tmp_path / "0.nc"
    with netCDF4.Dataset(path, "w") as made:
        for name, length in {"time": None, "y": 3, "x": 4, "two": 2, "letters": 5}.items():
            made.createDimension(name, length)
        made.setncatts({"title": "ä", "version": np.int16(3), "box": np.array([0.1, 0.2], "f4")})
        made.setncattr_string("authors", ["a", "b"])
        time = made.createVariable("time", "i4", ("time",))
        time.setncatts({"units": "hours since 2001-01-01", "calendar": "noleap", "bounds": "time_bnds"})
        bounds = made.createVariable("time_bnds", "f8", ("time", "two"))
        lat = made.createVariable("lat", "f4", ("y", "x"), fill_value=np.float32(1e20))
        lat.setncatts({"units": "degrees_north", "valid_range": np.array([-90, 90], "f4")})
        made.createVariable("crs", "i4").grid_mapping_name = "latitude_longitude"
        made.createVariable("station", "S1", ("y", "letters"))[:] = "a"
        packed = made.createVariable("packed", "i2", ("time", "y", "x"), fill_value=-1)
        packed.setncatts({"scale_factor": 0.5, "add_offset": np.float64(2), "missing_value": np.int16(-1)})
        packed.setncatts({"coordinates": "lat station", "grid_mapping": "crs", "valid_min": np.int16(0)})
        flags = made.createVariable("flags", "u1", ("time", "y"))
        flags.setncatts({"flag_values": np.array([1, 2], "u1"), "flag_meanings": "good bad", "nan": np.nan})
        alone = made.createVariable("alone", "f4", ("time",))
        alone.missing_value = np.float32(-999)
        for variable in (packed, flags, alone, lat):
            variable.set_auto_maskandscale(False)
        time[:], bounds[:] = [1, 2], [[0, 1], [1, 2]]
        packed[:] = np.arange(24).reshape(2, 3, 4) - 1
        flags[:], alone[:], lat[:] = 1, [1, -999], np.arange(12).reshape(3, 4)
    return path


@pytest.mark.parametrize("decode_times", [True, False])
def test_names_roles_types_and_attributes_are_those_that_xarray_reads(file, decode_times):
    report = intarsia.ingest(file, "memory://", concat_dim="time")
    ours = xr.open_dataset(report.repository, engine="intarsia", decode_times=decode_times)
    theirs = xr.open_dataset(file, decode_times=decode_times)
    assert not report.left_out
    assert list(other_metadata(ours, theirs)) == []
    assert ours.sizes == theirs.sizes
    for name, expected in theirs.variables.items():
        found = ours[name].variable
        assert found.dims == expected.dims
        if name == "station":  # characters are strings
            continue
        assert found.dtype == expected.dtype
        if name != "time_bnds":  # which has the units of its own
            said = [{key: each.encoding.get(key) for key in ENCODING} for each in (found, expected)]
            assert said[0] == said[1]
    assert ours["packed"].encoding["_FillValue"] == theirs["packed"].encoding["_FillValue"] == -1
    assert ours["alone"].encoding["_FillValue"] == -999


def test_a_dataset_can_be_written_as_netcdf_again(file, tmp_path):
    report = intarsia.ingest(file, "memory://", concat_dim="time")
    xr.open_dataset(report.repository, engine="intarsia").to_netcdf(tmp_path / "again.nc")
    ours, theirs = xr.open_dataset(tmp_path / "again.nc"), xr.open_dataset(file)
    assert list(other_metadata(ours, theirs)) == []
    for name in theirs.variables:
        expected = theirs[name].values
        np.testing.assert_array_equal(ours[name].values, expected.astype(ours[name].dtype))
    with netCDF4.Dataset(tmp_path / "again.nc") as again:
        assert again["packed"].dtype == np.int16
        assert again["packed"].scale_factor == 0.5


def test_references_within_a_file_are_not_attributes_of_a_dataset(tmp_path):
    def build(made, shape):
        data = made.create_dataset("sst", shape, "f4")
        for bearer in (made, data):
            bearer.attrs["object"] = made["lat"].ref
            bearer.attrs["region"] = made["lat"].regionref[1:3]
            bearer.attrs.create("several", [made["lat"].ref] * 2, dtype=h5py.ref_dtype)
            bearer.attrs["title"] = "t"
        yield data

    hdf5(tmp_path / "0.h5", 0, build)
    report = intarsia.ingest(tmp_path / "0.h5", "memory://", concat_dim="time")
    ours = xr.open_dataset(report.repository, engine="intarsia")
    assert ours.attrs == ours["sst"].attrs == {"title": "t"}
