"""Three archives in miniature that are cubes, with the drift that real ones have; each becomes one dataset.

`goes_like` is a geostationary satellite: sixteen bands, every one packed in its own way, a file for every
scan, and four eras, between which the software was changed; in one of them channels are missing. `cmip_like`
is an ensemble: a file for every member and span of years, in a calendar without leap years, counted from
other days; one member was written from north to south, one has not come to its end. `tiles_like` is a sparse
map of tiles, in three resolutions of chunks.

    python examples/cubes.py demo-output/cubes
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

import intarsia
from intarsia.archives import IngestReport, from_attribute

BANDS = range(1, 17)
SCAN = (24, 36)


@dataclass(frozen=True)
class ScanEra:
    """A stretch of scans whose files are written in the same way."""

    chunks: tuple[int, int]
    level: int
    fill: int
    gain: float
    """By how much the scales of the bands differ from those of the first era."""

    absent: tuple[int, ...] = ()
    """Channels that are missing."""


SCAN_ERAS = (
    ScanEra((12, 36), 1, -1, 1.0, absent=(7, 16)),
    ScanEra((24, 36), 1, -1, 1.0),
    ScanEra((10, 10), 6, 16383, 1.25),
    ScanEra((24, 12), 0, 16383, 1.0),
)


def radiance(band: int, hour: int, shape: tuple[int, int] = SCAN) -> np.ndarray:
    """A scene in one band; NaN in space."""
    y, x = np.mgrid[-1 : 1 : shape[0] * 1j, -1 : 1 : shape[1] * 1j]
    scene = 60 + 4 * band + 20 * np.sin(3 * x + hour / 4) * np.cos(2 * y * band / 8)
    return np.where(x**2 + y**2 > 1.6, np.nan, scene)


def scan_file(path: Path, hour: int, era: ScanEra) -> None:
    """One scan: time is a number without a dimension, and the axes are packed, as in the files of GOES."""
    with netCDF4.Dataset(path, "w") as file:
        file.platform_ID = "G16"
        for name, size in zip(("y", "x"), SCAN, strict=True):
            file.createDimension(name, size)
            axis = file.createVariable(name, "i2", (name,))
            axis.set_auto_maskandscale(False)
            axis.setncatts(
                {"scale_factor": np.float32(5.6e-5), "add_offset": np.float32(-0.1), "units": "rad"}
            )
            axis[:] = np.arange(size)
        time = file.createVariable("t", "f8", ())
        time.units = "seconds since 2000-01-01 12:00:00"
        time[...] = 6e8 + 3600.0 * hour
        for band in BANDS:
            if band in era.absent:
                continue
            scale, offset = np.float32(0.01 * band * era.gain), np.float32(40 + band)
            image = file.createVariable(
                f"CMI_C{band:02}", "i2", ("y", "x"), chunksizes=era.chunks, fill_value=era.fill,
                compression="zlib" if era.level else None, complevel=era.level or 1,
            )  # fmt: skip
            image.set_auto_maskandscale(False)
            image.setncatts({"scale_factor": scale, "add_offset": offset, "units": "K", "coordinates": "t"})
            values = radiance(band, hour)
            numbers = np.rint((values - offset) / scale)
            image[:] = np.where(np.isnan(values), era.fill, numbers).astype("i2")


def goes_like(folder: Path, scans: int = 3) -> list[Path]:
    """Write so many scans of every era."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, era in enumerate(SCAN_ERAS):
        for i in range(scans):
            hour = number * 100 + i
            made.append(folder / f"OR_ABI-L2-MCMIPC_{hour:04}.nc")
            scan_file(made[-1], hour, era)
    return made


def open_goes(files: list[Path], repo: Any) -> IngestReport:
    """All bands in one array, along a dimension of their numbers."""
    stack = {"CMI": ("band", {band: f"CMI_C{band:02}" for band in BANDS})}
    return intarsia.ingest(files, repo, concat_dim="t", stack=stack, missing="fill", copy="never")


def goes_by_xarray(files: list[Path]) -> xr.Dataset:
    """The same with xarray, file by file, all data read."""
    scans = []
    for path in files:
        with xr.open_dataset(path) as scan:
            empty = xr.full_like(scan["CMI_C01"], np.nan)
            bands = [scan.get(f"CMI_C{band:02}", empty).load() for band in BANDS]
            scans.append(
                xr.concat(bands, xr.IndexVariable("band", list(BANDS)), coords="minimal", compat="override")
            )
    return xr.concat(scans, "t").rename("CMI").to_dataset().transpose("band", "t", ...)


MEMBERS, SPANS, YEARS = range(1, 5), range(3), 2
"""An ensemble of four members, in files of two years."""


def member_file(path: Path, member: int, span: int) -> None:
    """The monthly means of one member over some years."""
    months = 12 * YEARS
    lat, lon = np.linspace(-75, 75, 6), np.arange(8) * 45.0
    middle = 365.0 * YEARS * span + (np.arange(months) + 0.5) * 365 / 12
    epoch = 1850 + YEARS * span if member % 2 else 1850
    start = middle - 365.0 * (epoch - 1850)
    counting = {"units": f"days since {epoch}-01-01", "calendar": "noleap"}
    rng = np.random.default_rng([member, span])
    tas = 288 - 0.3 * np.abs(lat)[None, :, None] + rng.normal(0, 1, (months, 6, 8))
    ds = xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), tas.astype("f4"), {"units": "K", "cell_methods": "time: mean"}),
            "time_bnds": (("time", "bnds"), np.stack([start - 365 / 24, start + 365 / 24], axis=1)),
        },
        {
            "time": ("time", start, counting | {"bounds": "time_bnds"}),
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
            "height": ((), 2.0, {"units": "m"}),
        },
        {"realization_index": member, "experiment_id": "historical"},
    )  # fmt: skip
    if member == 3:
        ds = ds.isel(lat=slice(None, None, -1))
    chunks = (12, 6, 8) if member < 3 else (months, 3, 4)
    packed = (
        {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}
        if member == 4
        else {}
    )
    ds.to_netcdf(path, encoding={"tas": {"chunksizes": chunks, "zlib": True, "complevel": member, **packed}})


def cmip_like(folder: Path) -> list[Path]:
    """Write the ensemble; the last member has not come to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for member in MEMBERS:
        for span in SPANS:
            if (member, span) == (MEMBERS[-1], SPANS[-1]):
                continue
            first = 1850 + YEARS * span
            made.append(
                folder / f"tas_Amon_model_historical_r{member}i1p1f1_gn_{first}01-{first + YEARS - 1}12.nc"
            )
            member_file(made[-1], member, span)
    return made


def open_cmip(files: list[Path], repo: Any) -> IngestReport:
    """All members and years in one array; the number of the member stands in an attribute."""
    dims = {"member": from_attribute("realization_index")}
    return intarsia.ingest(files, repo, concat_dim="time", dims=dims, copy="never")


def cmip_by_xarray(files: list[Path]) -> xr.Dataset:
    """The same with xarray."""

    def preprocess(ds: xr.Dataset) -> xr.Dataset:
        ds = ds.sortby("lat")
        return ds.assign(tas=ds.tas.expand_dims(member=[ds.attrs["realization_index"]]))

    options: dict[str, Any] = {"combine": "by_coords", "join": "outer", "compat": "no_conflicts"}
    with xr.open_mfdataset(
        files, preprocess=preprocess, data_vars="minimal", coords="minimal", **options
    ) as dataset:
        return dataset.load()


TILES = {(0, 0): (16, 16), (0, 1): (10, 7), (1, 1): (40, 3), (2, 0): (10, 7), (2, 2): (16, 16)}
"""The tiles that there are, and the chunks of each: three resolutions, for tiles of 40 by 50."""


def tiles_like(folder: Path) -> list[Path]:
    """Write the tiles of a map, one of them from south to north."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for (row, column), chunks in TILES.items():
        y, x = 40 * row + np.arange(40), 50.0 * column + np.arange(50)
        height = 1000 * np.sin(y / 30)[:, None] * np.cos(x / 40)
        ds = xr.Dataset({"height": (("y", "x"), height.astype("f4"), {"units": "m"})}, {"y": y, "x": x})
        if (row, column) == (1, 1):
            ds = ds.isel(y=slice(None, None, -1))
        made.append(folder / f"tile_{row}_{column}.nc")
        ds.to_netcdf(
            made[-1], encoding={"height": {"chunksizes": chunks, "zlib": True, "complevel": 1 + column}}
        )
    return made


def open_tiles(files: list[Path], repo: Any) -> IngestReport:
    """The map, with holes where there is no tile."""
    return intarsia.ingest(files, repo, combine="by_coords", copy="never")


def tiles_by_xarray(files: list[Path]) -> xr.Dataset:
    """The same with xarray."""
    tiles = []
    for path in files:
        with xr.open_dataset(path) as tile:
            tiles.append(tile.sortby("y").load())
    return xr.combine_by_coords(tiles, join="outer")  # type: ignore[return-value]  # of datasets it makes one


@dataclass(frozen=True)
class Cube:
    """An archive: how it is made, ingested, and read by xarray."""

    variable: str
    write: Callable[[Path], list[Path]]
    ingest: Callable[[list[Path], Any], IngestReport]
    by_xarray: Callable[[list[Path]], xr.Dataset]


CUBES = {
    "goes": Cube("CMI", goes_like, open_goes, goes_by_xarray),
    "cmip": Cube("tas", cmip_like, open_cmip, cmip_by_xarray),
    "tiles": Cube("height", tiles_like, open_tiles, tiles_by_xarray),
}


def open_all(output: Path) -> None:
    """Write, ingest and compare each of them."""
    shutil.rmtree(output, ignore_errors=True)
    for name, cube in CUBES.items():
        files = cube.write(output / name)
        report = cube.ingest(files, output / f"{name}.repository")
        array = intarsia.open(report.repository, cube.variable)
        theirs = cube.by_xarray(files)[cube.variable].transpose(*array.dimension_names)
        same = np.array_equal(array[...], theirs.values, equal_nan=True)
        print(
            f"{name}: {len(files)} files, {array.shape} in {len(array.members)} members, nothing copied; ",
            end="",
        )
        print("equal to the files as xarray reads them" if same else "DIFFERENT from the files")


if __name__ == "__main__":
    open_all(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output/cubes"))
