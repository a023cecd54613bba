"""Attributes of NetCDF classic files, held against netCDF4; damaged headers."""

import io

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.archives.virtual import netcdf3_attributes

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
        whole, variables = netcdf3_attributes(file)
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
        netcdf3_attributes(io.BytesIO(b"CDF" + bytes([version]) + garbage + b"\xff" * 8))


def test_another_file_is_told_apart():
    with pytest.raises(ValueError, match="not a NetCDF classic file"):
        netcdf3_attributes(io.BytesIO(b"HDF\x01"))
