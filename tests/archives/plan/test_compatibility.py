"""Files that are unlike each other, or hold what few files hold: taken, or refused in words."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError
from tests.archives.files import netcdf


def write(path, time, attrs=None, **variables):
    """A NetCDF file with one step of time, and variables along it, or crs: name=(type, value, attributes)."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 1)
        variable = file.createVariable("time", "i4", ("time",))
        variable.setncatts(attrs or {})
        variable[:] = [time]
        for name, (kind, value, attributes) in variables.items():
            dims = () if name == "crs" else ("time",)
            variable = file.createVariable(name, kind, dims)
            variable.setncatts(attributes)
            variable.set_auto_maskandscale(False)
            variable[...] = value


def test_two_calendars_are_refused_by_name_and_the_others_taken(tmp_path):
    for i, calendar in enumerate(("standard", "gregorian", "365_day")):
        attrs = {"units": "days since 2000-01-01", "calendar": calendar}
        write(tmp_path / f"{i}.nc", i, attrs, x=("f4", i, {}))
    with pytest.raises(IngestError, match=r"2\.nc: the coordinate 'time' uses the calendars 'noleap'"):
        intarsia.ingest(f"{tmp_path}/*.nc", tmp_path / "r", concat_dim="time")
    report = intarsia.ingest(f"{tmp_path}/*.nc", tmp_path / "r", concat_dim="time", errors="skip")
    assert [file.status for file in report.files] == ["added", "added", "failed"]
    with pytest.raises(IngestError, match="'standard': a dataset has one calendar"):
        intarsia.ingest(tmp_path / "2.nc", report.repository, concat_dim="time")


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
def test_calendars_that_agree_on_the_days_of_files_are_one(tmp_path):
    """As xarray has it: the days are the same, whatever they are counted from."""
    for i, (calendar, units, number) in enumerate((
        ("standard", "days since 2000-01-01", 0),
        ("proleptic_gregorian", "days since 2000-01-01", 1),
        ("proleptic_gregorian", "days since 0001-01-01", 730121),  # where the calendars differ by two days
        ("proleptic_gregorian", "days since 2000-01-01", -200_000),
    )):  # fmt: skip
        write(tmp_path / f"{i}.nc", number, {"units": units, "calendar": calendar}, x=("f4", i, {}))
    repo = "memory://"
    for i in (1, 0, 2):
        report = intarsia.ingest(tmp_path / f"{i}.nc", repo, concat_dim="time")
        repo = report.repository
    whole = intarsia.ingest([tmp_path / f"{i}.nc" for i in range(3)], "memory://", concat_dim="time")
    expected = xr.concat([xr.open_dataset(tmp_path / f"{i}.nc") for i in range(3)], "time")
    for each in (report, whole):
        xr.testing.assert_equal(xr.open_dataset(each.repository, engine="intarsia").load(), expected)
    with pytest.raises(IngestError, match=r"3\.nc: .* and 'standard': .* these two differ before 1582-10-15"):
        intarsia.ingest(tmp_path / "3.nc", whole.repository, concat_dim="time")


def test_a_grid_mapping_is_kept_for_its_attributes_whatever_its_value(tmp_path):
    for i in range(3):
        crs = {"grid_mapping_name": "latitude_longitude", "earth_radius": 6371229.0 + (i == 2)}
        write(tmp_path / f"{i}.nc", i, crs=("i4", 7 * i, crs), x=("f4", i, {"grid_mapping": "crs"}))
    report = intarsia.ingest([tmp_path / "0.nc", tmp_path / "1.nc"], tmp_path / "r", concat_dim="time")
    assert not report.left_out
    opened = xr.open_dataset(report.repository, engine="intarsia")
    assert opened["crs"].attrs["grid_mapping_name"] == "latitude_longitude"
    other = intarsia.ingest(f"{tmp_path}/*.nc", tmp_path / "other", concat_dim="time")
    assert "differs between" in other.left_out["crs"]  # another sphere


def test_attributes_keep_nan_and_infinity(tmp_path):
    limits = {"valid_max": np.float32("inf"), "range": np.array([0, np.nan]), "comment": "NaN"}
    write(tmp_path / "a.nc", 0, x=("f4", 1, limits))
    with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
        file.setncatts({"resolution": np.float64("nan"), "title": "Infinity"})
        file.createVariable("t", "i4", ()).setncatts(limits)
    report = intarsia.ingest(tmp_path / "a.nc", tmp_path / "r", concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia")
    expected = xr.open_dataset(tmp_path / "a.nc")
    for own, other in ((found.attrs, expected.attrs), *((found[n].attrs, expected[n].attrs) for n in "xt")):
        assert own.keys() == other.keys()
        for name, value in other.items():
            np.testing.assert_array_equal(own[name], value)


def ragged(path, start, scale, length):
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(scale) + start
        file["time"].make_scale("time")
        file["b"] = np.arange(float(length)) + start
        file["b"].dims[0].attach_scale(file["time"])


def test_a_variable_shorter_than_its_coordinate_leaves_a_hole_and_a_longer_one_is_refused(tmp_path):
    ragged(tmp_path / "0.h5", 0, 4, 2)
    ragged(tmp_path / "1.h5", 4, 4, 4)
    report = intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", concat_dim="time")
    read = xr.open_dataset(report.repository, engine="intarsia")["b"].values
    np.testing.assert_array_equal(read, [0, 1, np.nan, np.nan, 4, 5, 6, 7])
    ragged(tmp_path / "2.h5", 8, 4, 6)
    with pytest.raises(IngestError, match="'b' has 6 steps along 'time', but its coordinate has 4"):
        intarsia.ingest(tmp_path / "2.h5", report.repository, concat_dim="time")


def test_a_variable_with_another_axis_of_length_0_stays_one(tmp_path):
    for i in range(2):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 3)
            file.createDimension("obs", None)
            file.createVariable("time", "i4", ("time",))[:] = np.arange(3) + 3 * i
            file.createVariable("good", "f4", ("time",))[:] = [1, 2, 3]
            file.createVariable("empty", "f4", ("time", "obs"))
    for i in range(2):
        report = intarsia.ingest(tmp_path / f"{i}.nc", tmp_path / "r", concat_dim="time")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    expected = xr.open_mfdataset(f"{tmp_path}/*.nc", combine="by_coords", data_vars="minimal")
    assert opened["empty"].shape == expected["empty"].shape == (6, 0)
    np.testing.assert_array_equal(opened["good"], expected["good"])


@pytest.mark.parametrize("packed", [False, True])
def test_a_wider_type_that_arrives_later_widens_the_array_and_copies_nothing(tmp_path, packed):
    paths = [tmp_path / f"{i}.nc" for i in range(4)]
    for i, path in enumerate(paths):
        real = np.float32 if i < 2 else np.float64
        packing = {"scale_factor": real(0.01), "add_offset": real(273.15)} if packed else {}
        kind, value = ("i2", 280 + i) if packed else (real, 0.1 + i)
        write(path, i, x=(kind, value, packing))
    intarsia.ingest(paths, tmp_path / "all", concat_dim="time")
    for path in paths:
        report = intarsia.ingest(path, tmp_path / "daily", concat_dim="time")
    whole, daily = (
        intarsia.open(intarsia.archives.authorize(intarsia.open_repository(tmp_path / name)), "x")
        for name in ("all", "daily")
    )
    assert daily.dtype == np.float64
    np.testing.assert_array_equal(daily[...], whole[...])
    assert not any(run.copied for run in report.runs)
    assert not intarsia.verify(daily)


def test_every_length_that_differs_stands_beside_its_own_dimension(tmp_path):
    for i, (dims, shape) in enumerate([(("time", "y", "x"), (1, 2, 3)), (("x", "time", "y"), (4, 1, 2))]):
        xr.Dataset({"v": (dims, np.zeros(shape))}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    words = r"1\.nc: 'v' has the axes \(x=4, time=1, y=2\), but .*0\.nc has \(time=…, y=2, x=3\)"
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")


def test_ancillary_variables_are_kept_and_still_named(tmp_path):
    for first in range(2):
        netcdf(tmp_path / f"{first}.nc", first, attrs={"ancillary_variables": "quality"})
        with netCDF4.Dataset(tmp_path / f"{first}.nc", "a") as file:
            quality = file.createVariable("quality", "i1", ("time", "lat", "lon"))
            quality.setncatts({"standard_name": "status_flag", "flag_values": np.array([0, 1], "i1")})
            quality[:] = first
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    ours = xr.open_dataset(report.repository, engine="intarsia").load()
    with xr.open_mfdataset(
        str(tmp_path / "*.nc"), combine="nested", concat_dim="time", data_vars="all"
    ) as theirs:
        xr.testing.assert_equal(ours[["sst", "quality"]], theirs[["sst", "quality"]])
        assert ours.sst.attrs["ancillary_variables"] == theirs.sst.attrs["ancillary_variables"] == "quality"
        assert ours.quality.attrs.keys() == theirs.quality.attrs.keys()
    assert not report.left_out
