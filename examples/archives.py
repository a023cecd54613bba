"""Two archives in miniature, with the kinds of change that the real ones have.

`mur_like` is a daily analysis of sea surface temperature from June 2002 on. As in NASA's MUR, the
compression changes midway, the chunk shape changes again and again, and a variable appears late.
`aodn_like` is a daily satellite composite. As in the IMOS archive of the AODN, every file is packed with
another scale and offset, made to measure for its own values.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from pathlib import Path

import netCDF4
import numpy as np

GRID = (45, 90)
EPOCH = datetime.datetime(1981, 1, 1)


@dataclass(frozen=True)
class Era:
    """A stretch of days whose files are written in the same way."""

    first: datetime.date
    chunks: tuple[int, int, int]
    level: int
    shuffle: bool = True
    anomaly: bool = False


ERAS = (
    Era(datetime.date(2002, 6, 1), (1, 10, 20), 4),
    Era(datetime.date(2003, 9, 11), (1, 10, 20), 0),
    Era(datetime.date(2003, 9, 17), (1, 10, 20), 4),
    Era(datetime.date(2015, 12, 24), (1, 10, 20), 7, shuffle=False),
    Era(datetime.date(2019, 7, 23), (1, 10, 20), 7, shuffle=False, anomaly=True),
    Era(datetime.date(2021, 2, 20), (1, 45, 90), 7, anomaly=True),
    Era(datetime.date(2021, 12, 24), (1, 10, 20), 7, anomaly=True),
    Era(datetime.date(2022, 11, 9), (1, 23, 45), 7, anomaly=True),
)


def temperature(day: datetime.date, grid: tuple[int, int] = GRID) -> np.ndarray:
    """Sea surface temperature in kelvin: warm at the equator, seasons, eddies; NaN on land."""
    lat, lon = np.meshgrid(np.linspace(-80, 80, grid[0]), np.linspace(-179, 179, grid[1]), indexing="ij")
    season = np.cos((day.timetuple().tm_yday - 220) / 365.25 * 2 * np.pi)
    rng = np.random.default_rng(day.toordinal())
    eddies = rng.normal(0, 0.4, grid)
    values = 272 + 29 * np.cos(np.radians(lat)) ** 2 + 3 * season * np.sin(np.radians(lat)) + eddies
    land = np.sin(np.radians(lon * 2)) * np.cos(np.radians(lat * 3)) > 0.75
    return np.where(land, np.nan, values)


def packed(values: np.ndarray, scale: float, offset: float, fill: int) -> np.ndarray:
    """Values as 16-bit integers."""
    return np.where(np.isnan(values), fill, np.rint((values - offset) / scale)).astype("i2")


def _dimensions(file: netCDF4.Dataset, day: datetime.date, hour: int, grid: tuple[int, int]) -> None:
    file.createDimension("time", None)
    file.createDimension("lat", grid[0])
    file.createDimension("lon", grid[1])
    time = file.createVariable("time", "i4", ("time",))
    time.units = "seconds since 1981-01-01 00:00:00 UTC"
    moment = datetime.datetime(day.year, day.month, day.day, hour)
    time[:] = [int((moment - EPOCH).total_seconds())]
    axes = (("lat", grid[0], 80, "degrees_north"), ("lon", grid[1], 179, "degrees_east"))
    for name, size, limit, units in axes:
        axis = file.createVariable(name, "f4", (name,))
        axis.units = units
        axis[:] = np.linspace(-limit, limit, size)


def _variable(file, name, kind, data, *, fill, era=None, chunks=None, level=4, shuffle=True, **attributes):
    era_chunks = era.chunks if era else chunks
    level, shuffle = (era.level, era.shuffle) if era else (level, shuffle)
    variable = file.createVariable(
        name, kind, ("time", "lat", "lon"), compression="zlib" if level else None, complevel=level or 1,
        shuffle=shuffle, chunksizes=era_chunks, fill_value=fill,
    )  # fmt: skip
    variable.set_auto_maskandscale(False)
    variable.setncatts(attributes)
    variable[0] = data


def mur_day(path: Path, day: datetime.date, era: Era, grid: tuple[int, int] = GRID) -> None:
    """One file of the MUR-like series."""
    values = temperature(day, grid)
    with netCDF4.Dataset(path, "w") as file:
        file.title = "Daily MUR-like SST, analysis"
        file.Conventions = "CF-1.7"
        _dimensions(file, day, 9, grid)
        _variable(
            file, "analysed_sst", "i2", packed(values, 0.001, 298.15, -32768), fill=-32768, era=era,
            scale_factor=0.001, add_offset=298.15, units="kelvin", long_name="sea surface temperature",
        )  # fmt: skip
        error = np.where(np.isnan(values), -32768, 40 + np.abs(values % 1) * 10).astype("i2")
        _variable(
            file, "analysis_error", "i2", error, fill=-32768, era=era, scale_factor=0.01, add_offset=0.0,
            units="kelvin",
        )  # fmt: skip
        _variable(
            file, "mask", "i1", np.where(np.isnan(values), 2, 1), fill=-128, era=era, long_name="sea or land"
        )
        if era.anomaly:
            _variable(
                file, "sst_anomaly", "i2", packed(values - 290, 0.001, 0.0, -32768), fill=-32768, era=era,
                scale_factor=0.001, add_offset=0.0, units="kelvin",
            )  # fmt: skip


def mur_like(folder: Path, days: int = 6, times: int = 1) -> list[Path]:
    """Write `days` files of every era, with a grid `times` as fine; returns them in the order of time."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    grid = (GRID[0] * times, GRID[1] * times)
    for each in ERAS:
        _, rows, columns = each.chunks
        era = replace(each, chunks=(1, rows * times, columns * times))
        for i in range(days):
            day = era.first + datetime.timedelta(days=i)
            path = folder / f"{day:%Y%m%d}090000-MUR-like.nc"
            mur_day(path, day, era, grid)
            made.append(path)
    return made


def aodn_like(folder: Path, days: int = 40, grid: tuple[int, int] = (30, 40)) -> list[Path]:
    """Write a series in which every file has another scale and offset; returns it in the order of time."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for i in range(days):
        day = datetime.date(2002, 6, 1) + datetime.timedelta(days=i)
        values = temperature(day, grid)
        low, high = np.nanmin(values), np.nanmax(values)
        scale, offset = (high - low) / 65000, (high + low) / 2
        path = folder / f"{day:%Y%m%d}-AODN-like.nc"
        with netCDF4.Dataset(path, "w") as file:
            _dimensions(file, day, 3, grid)
            _variable(
                file, "sea_surface_temperature", "i2", packed(values, scale, offset, -32768), fill=-32768,
                chunks=(1, *grid), scale_factor=scale, add_offset=offset, units="kelvin",
            )  # fmt: skip
            _variable(
                file, "quality_level", "i1", np.where(np.isnan(values), 0, 5), fill=-128, chunks=(1, *grid)
            )
        made.append(path)
    return made
