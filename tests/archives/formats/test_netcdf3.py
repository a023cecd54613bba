"""Attributes of NetCDF classic files, held against netCDF4; damaged headers."""

import io

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.archives.formats.netcdf3 import read_attributes
from intarsia.errors import IngestError
from tests.archives.files import netcdf

VERSIONS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]


@pytest.mark.parametrize("version", VERSIONS)
def test_types_and_values_are_netcdfs(tmp_path, version):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=version) as file:
        file.title = "a title"
        file.setncattr("numbers", np.array([1, 2, 3], "i2"))
        file.createDimension("time", None)
        file.createDimension("x", 3)
        for name, dims in (("time", ("time",)), ("sst", ("time", "x")), ("odd name", ("x",))):
            variable = file.createVariable(name, "i2", dims)
            variable.scale_factor = np.float32(0.5)
            variable.add_offset = np.float64(1.5)
            variable.units = "kelvin"
            variable.setncattr("flag", np.int8(3))
    with (tmp_path / "a.nc").open("rb") as file:
        whole, variables = read_attributes(file)
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        for ours, theirs in ((whole, file), *((variables[name], file[name]) for name in file.variables)):
            assert ours.keys() == set(theirs.ncattrs())
            for name, value in ours.items():
                expected = theirs.getncattr(name)
                assert np.array_equal(value, expected)
                if not isinstance(value, str):
                    assert np.asarray(value).dtype == np.asarray(expected).dtype


@given(st.binary(max_size=200), st.sampled_from([1, 2, 5]))
def test_garbage_is_an_error_not_a_crash(garbage, version):
    with pytest.raises(ValueError):
        read_attributes(io.BytesIO(b"CDF" + bytes([version]) + garbage + b"\xff" * 8))


@pytest.mark.parametrize("kind", ["dimension", "variable", "attribute", "attribute of all"])
def test_names_that_are_not_utf8_are_refused_as_by_netcdf(tmp_path, kind):
    names = dict.fromkeys(("dimension", "variable", "attribute", "attribute of all"), "name") | {kind: "nXXe"}
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension(names["dimension"], 2)
        file.createVariable(names["variable"], "f4", (names["dimension"],)).setncattr(names["attribute"], 1)
        file.setncattr(names["attribute of all"], 1)
    path.write_bytes(path.read_bytes().replace(b"nXXe", b"n\xe4\xf6e"))
    with pytest.raises(UnicodeDecodeError), netCDF4.Dataset(path) as file:
        [each.ncattrs() for each in (file, *file.variables.values())]
    with pytest.raises(IngestError, match=r"a\.nc: a name or string in it is not utf-8: b'n\\xe4\\xf6e'"):
        intarsia.ingest(path, tmp_path / "r", concat_dim="time")
    assert not (tmp_path / "r").exists()


def test_another_version_is_refused(tmp_path):
    netcdf(tmp_path / "a.nc", 0, version="NETCDF3_CLASSIC")
    content = (tmp_path / "a.nc").read_bytes()
    (tmp_path / "a.nc").write_bytes(b"CDF\x03" + content[4:])
    with pytest.raises(IngestError, match=r"a\.nc: "):
        intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time")


@pytest.mark.parametrize("version", VERSIONS)
def test_records_that_the_file_cannot_hold_are_refused_before_there_is_room_for_them(tmp_path, version):
    """16,776,961 records in 480 bytes: the parser would make a table of as many rows, 1.8 GB."""
    netcdf(tmp_path / "a.nc", 0, version=version)
    plain = (tmp_path / "a.nc").read_bytes()
    width = 8 if version == "NETCDF3_64BIT_DATA" else 4
    (tmp_path / "a.nc").write_bytes(plain[:4] + 0xFFFF01.to_bytes(width, "big") + plain[4 + width :])
    with pytest.raises(IngestError, match=r"a\.nc: .*its 16,776,961 records need"):
        intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time")
    with pytest.raises(IngestError, match=r"its 16,776,961 records need"):
        intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time", group="*")


@pytest.mark.parametrize("names", [["sst"], ["sst", "ice"]])
def test_records_without_padding_and_with_it_are_read(tmp_path, names):
    values = np.arange(1000, dtype="i1")
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        for name in names:
            file.createVariable(name, "i1", ("time",))[:] = values
    report = intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time")
    for name in names:
        assert np.array_equal(intarsia.open(report.repository, name)[...], values)


def odd_fill_value(path, version, fill=np.nan):
    """A file whose integers have a `_FillValue` that no integer equals."""
    with netCDF4.Dataset(path, "w", format=version) as file:
        file.createDimension("time", 2)
        file.createDimension("x", 3)
        for name, dims in (("count", ("time", "x")), ("month", ("x",))):
            variable = file.createVariable(name, "i4", dims)
            variable.set_auto_maskandscale(False)
            variable[:] = np.arange(variable.size).reshape(variable.shape)
    _spoil(path, version, fill)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fill_value_that_integers_cannot_have_is_refused(tmp_path, version):
    odd_fill_value(tmp_path / "a.nc", version)
    with pytest.raises(IngestError, match=r"'count' has integers, but its _FillValue is nan\."):
        intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time")


@pytest.mark.parametrize(("version", "fill"), [("NETCDF4", np.nan), *((each, 1.5) for each in VERSIONS)])
def test_elsewhere_a_fill_value_that_integers_cannot_have_is_none(tmp_path, version, fill):
    odd_fill_value(tmp_path / "a.nc", version, fill)
    report = intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time", copy="never")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    assert opened["count"].values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert opened["month"].values.tolist() == [0, 1, 2]


def _spoil(path, version, fill):
    """Give integers a `_FillValue` that is a float, which older programs wrote and netCDF4 no longer does."""
    if version == "NETCDF4":
        with h5py.File(path, "a") as file:
            for name in ("count", "month"):
                file[name].attrs["_FillValue"] = fill
        return
    with netCDF4.Dataset(path, "a") as file:
        for name in ("count", "month"):
            file[name].setncattr("_FillVal__", fill)
    path.write_bytes(path.read_bytes().replace(b"_FillVal__", b"_FillValue"))
