"""Small source files of every kind, for the tests of ingest."""

import h5py
import netCDF4
import numpy as np

GRID = (6, 8)


def netcdf(
    path,
    first,
    *,
    steps=1,
    grid=GRID,
    kind="f4",
    chunks=None,
    name="sst",
    values=None,
    attrs=None,
    fill=None,
    compression="zlib",
    level=4,
    shuffle=True,
    units="days since 2002-06-01",
    unlimited=True,
    lat=None,
    version="NETCDF4",
    extra=(),
):
    """A NetCDF file of a few steps from day `first` on; returns the numbers as stored."""
    shape = (steps, *grid)
    rng = np.random.default_rng(first)
    if values is None:
        values = rng.normal(280, 9, shape) if kind[0] == "f" else rng.integers(1, 100, shape)
    values = np.asarray(values).astype(kind)
    with netCDF4.Dataset(path, "w", format=version) as file:
        file.createDimension("time", None if unlimited else steps)
        file.createDimension("lat", grid[0])
        file.createDimension("lon", grid[1])
        time = file.createVariable("time", "f8", ("time",))
        time.units = units
        time[:] = np.arange(first, first + steps)
        axis = file.createVariable("lat", "f4", ("lat",))
        axis[:] = np.linspace(-10, 10, grid[0]) if lat is None else lat
        options = {}
        if version.startswith("NETCDF4"):
            options = {
                "compression": compression,
                "complevel": level,
                "shuffle": shuffle,
                "chunksizes": chunks,
            }
        for each in (name, *extra):
            variable = file.createVariable(each, kind, ("time", "lat", "lon"), fill_value=fill, **options)
            variable.set_auto_maskandscale(False)
            variable.units = "kelvin"
            variable.setncatts(attrs or {})
            variable[:] = values
    return values


def hdf5(path, first, build, *, steps=1, grid=GRID):
    """An HDF5 file with dimension scales; `build(file, shape)` makes the datasets to scale."""
    shape = (steps, *grid)
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(first, first + steps, dtype="f8")
        file["time"].attrs["units"] = "days since 2002-06-01"
        file["time"].make_scale("time")
        file["lat"] = np.linspace(-10, 10, grid[0]).astype("f4")
        file["lat"].make_scale("lat")
        file["lon"] = np.linspace(0, 10, grid[1]).astype("f4")
        file["lon"].make_scale("lon")
        for dataset in build(file, shape):
            for axis, name in enumerate(("time", "lat", "lon")):
                dataset.dims[axis].attach_scale(file[name])
