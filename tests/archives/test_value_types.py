"""Files whose values have other types: numbers go together as in xarray, other kinds are refused by name."""

import itertools

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["u1", "i2", "i4"], marks=pytest.mark.torture),
        pytest.param(["i2", "f4", "f8"], marks=pytest.mark.torture),
        ["i4", "f4", "u1"],
        ["f8", "i8"],
    ],
)
def test_numbers_of_any_type_go_together_in_any_order_as_in_xarray(tmp_path, kinds):
    paths = [tmp_path / f"{i}.nc" for i in range(len(kinds))]
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        ds = xr.Dataset({"x": (("time", "y"), np.full((1, 2), 7 * i, kind))}, {"time": [2 * i]})
        ds.to_netcdf(path, encoding={"x": {"_FillValue": None}})
    expected = xr.concat([xr.open_dataset(path) for path in paths], "time")
    for order in itertools.permutations(paths):
        repo = "memory://"
        for path in order:
            report = intarsia.ingest(path, repo, concat_dim="time", copy="never")
            repo = report.repository
        whole = intarsia.ingest(order, "memory://", concat_dim="time", copy="never")
        for each in (report, whole):
            found = xr.open_dataset(each.repository, engine="intarsia").load()
            xr.testing.assert_equal(found, expected)
            assert found.x.dtype == expected.x.dtype
            holes = intarsia.open(each.repository, "x").fill_value
            assert holes == 0 if found.x.dtype.kind in "iu" else np.isnan(holes)


@pytest.mark.parametrize("other", [["a"], [True]])
def test_a_file_whose_values_are_of_another_kind_is_refused_alone(tmp_path, other):
    for i, values in enumerate(([1.5], other, [2.5])):
        xr.Dataset({"x": ("time", values)}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    one = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time", errors="skip")
    assert one.summary == "2 added, 1 failed"
    with pytest.raises(
        IngestError, match=r"1\.nc: 'x' has values of type (text|bool), but the dataset has float64"
    ):
        intarsia.ingest(tmp_path / "*.nc", one.repository, concat_dim="time")
    alone = intarsia.ingest(tmp_path / "1.nc", "memory://", concat_dim="time")
    with pytest.raises(IngestError, match=r"2\.nc: 'x' has values of type float64, .*\(preprocess="):
        intarsia.ingest(tmp_path / "2.nc", alone.repository, concat_dim="time")


def test_a_type_that_is_asked_for_is_what_an_array_becomes_or_refused(tmp_path):
    for i, kind in enumerate(("f4", "f8")):
        xr.Dataset({"x": ("time", np.array([0.1], kind))}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    with pytest.raises(IngestError, match="'x' is float32 in the dataset and cannot become int16"):
        intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time", dtype={"x": "i2"})
    with pytest.raises(IngestError, match=r"dtype=\{.*\}: data type 'nope' not understood"):
        intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time", dtype={"x": "nope"})
    kept = intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time", dtype={"x": "f4"})
    assert intarsia.open(kept.repository, "x")[...].tolist() == [np.float32(0.1)] * 2
    for kind in ("i2", "i8"):
        xr.Dataset({"x": ("time", np.array([2], kind))}, {"time": [2]}).to_netcdf(tmp_path / "2.nc")
        whole = intarsia.ingest(tmp_path / "2.nc", "memory://", concat_dim="time")
        wider = intarsia.ingest(tmp_path / "1.nc", whole.repository, concat_dim="time", dtype={"x": "f8"})
        assert intarsia.open(wider.repository, "x")[...].tolist() == [0.1, 2]


def test_an_array_with_nulls_does_not_become_wider(tmp_path):
    for i, kind in enumerate(("f4", "f8")):
        xr.Dataset({"x": ("time", np.array([0.1], kind))}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", nulls=True)
    with pytest.raises(IngestError, match=r"float32 of the dataset cannot hold without loss \(dtype="):
        intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time")


@pytest.mark.parametrize("base", ["i1", "u2", "i4", "u8"])
def test_the_fill_value_of_an_enumeration_is_missing_as_in_xarray(tmp_path, base):
    numbers = np.array([[0, 1, 100], [1, 100, 0]], base)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 2)
        file.createDimension("x", 3)
        kind = file.createEnumType(base, "kind", {"clear": 0, "low": 1, "missing": 100})
        for name, fill in (("with", 100), ("without", None)):
            file.createVariable(name, kind, ("time", "x"), zlib=True, fill_value=fill)[:] = numbers
            file.createVariable(f"fixed_{name}", kind, ("x",), fill_value=fill)[:] = numbers[0]
    report = intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia").load()
    expected = xr.open_dataset(tmp_path / "a.nc", engine="netcdf4").load()
    xr.testing.assert_equal(found, expected)
    assert {name: each.dtype for name, each in found.items()} == {
        name: each.dtype for name, each in expected.items()
    }
    nulls = intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time", nulls=True)
    values = intarsia.open(nulls.repository, "with")[...]
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert np.array_equal(values.mask, np.ma.getmaskarray(file["with"][:]))
    assert values.dtype == numbers.dtype


@pytest.mark.parametrize("key", ["_FillValue", "missing_value"])
@pytest.mark.parametrize("copy", ["never", "all"])
def test_bools_that_may_be_missing_are_numbers_as_in_netcdf(tmp_path, key, copy):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, size in (("time", 4), ("x", 3)):
            file[name] = np.arange(size)
            file[name].make_scale(name)
        plain = file.create_dataset("plain", (4, 3), "?", chunks=(1, 3))
        flag = file.create_dataset("flag", (4, 3), "?", chunks=(1, 3), compression="gzip")
        fixed = file.create_dataset("fixed", (3,), "?")
        for dataset in (plain, flag):
            dataset[:2] = [[True, False, True], [False, True, False]]  # the other chunks are not stored
            for axis, name in enumerate(("time", "x")):
                dataset.dims[axis].attach_scale(file[name])
        fixed[:] = [True, False, True]
        fixed.dims[0].attach_scale(file["x"])
        fixed.attrs[key] = flag.attrs[key] = np.int8(0)
    report = intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="time", copy=copy)
    found = xr.open_dataset(report.repository, engine="intarsia").load()
    expected = xr.open_dataset(tmp_path / "a.h5", engine="netcdf4").load()
    xr.testing.assert_equal(found, expected)
    assert found.flag.dtype == expected.flag.dtype
    assert found.plain.dtype == bool


def test_bounds_of_a_climatology_are_dates_in_the_units_of_its_time(tmp_path):
    """CF says so; xarray knows units of `bounds` only, and numbers of files with other units would mix."""
    dates = []
    for i, (year, shift) in enumerate(((1960, 0), (1959, 365))):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createDimension("nv", 2)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time.climatology = f"days since {year}-01-01", "limits"
            time[:] = 15 + 60 * i + shift
            limits = file.createVariable("limits", "f8", ("time", "nv"))
            limits[:] = np.array([[0, 11000]]) + 60 * i + shift
            file.createVariable("v", "f4", ("time",))[:] = i
            dates.append(netCDF4.num2date(limits[0], time.units, only_use_cftime_datetimes=False))
    report = intarsia.ingest(f"{tmp_path}/*.nc", "memory://", concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia").limits
    assert found.values.tolist() == np.array(dates).astype("M8[ns]").tolist()
    numbers = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
    assert numbers.limits.values.tolist() == [[0, 11000], [60, 11060]]
