"""What the tests of the page look at: a repository with a history, files, and arrays of every kind."""

import numpy as np
import zarr

import intarsia
from tests.inspect.samples import HOSTILE

LAT, LON = np.linspace(-80, 80, 40), np.linspace(0, 350, 60)


def weather(days):
    """A smooth field over time, latitude and longitude."""
    lat, lon = np.radians(LAT)[:, None], np.radians(LON)[None]
    maps = [288 - 40 * np.sin(lat) ** 2 + 6 * np.cos(3 * lon + day / 5) * np.cos(lat) for day in days]
    return np.stack(maps).astype("f4")


def coordinates(group, days):
    """Arrays that say what the places of the axes are."""
    for name, values, units in (
        ("time", np.arange(days), "days since 2020-01-01"),
        ("lat", LAT, "degrees_north"),
        ("lon", LON, "degrees_east"),
    ):
        group.create_array(name, data=values, dimension_names=[name], attributes={"units": units})


def repository(folder):
    """Three commits of one array, and a file that another one refers to; and where that file is."""
    repo = intarsia.open_repository(folder / "repo", create=True)
    with intarsia.transaction(repo, message="an empty array") as tx:
        coordinates(zarr.open_group(tx.store, mode="a"), 20)
        tx.create(
            "temperature",
            shape=(0, 40, 60),
            chunks=(5, 20, 30),
            dtype="f4",
            dimension_names=("time", "lat", "lon"),
            attributes={"units": "K", "long_name": "Air temperature"},
        )
    values = weather(range(20))
    intarsia.append(repo, "temperature", values[:10], codecs=["zstd"], message="ten days")
    intarsia.append(repo, "temperature", values[10:], codecs=[], message="ten more")
    box = [(10, 20), (20, 40), (30, 60)]
    intarsia.recode(repo, "temperature", box, codecs=["gzip"], message="a corner recoded")
    return repo


def with_a_file(folder):
    """A repository that refers to a file; and the file."""
    import h5netcdf

    file = folder / "day-1.nc"
    with h5netcdf.File(file, "w") as made:
        made.dimensions = {"time": 4, "x": 50}
        made.create_variable("time", ("time",), data=np.arange(4.0))
        made.create_variable(
            "rain", ("time", "x"), data=np.arange(200.0).reshape(4, 50), chunks=(4, 50), compression="gzip"
        )
    intarsia.ingest([file], folder / "virtual", concat_dim="time")
    return folder / "virtual", file


def everything(folder):
    """A store with an array of every kind, one of them damaged."""
    store = zarr.storage.LocalStore(folder / "plain.zarr")
    zarr.open_group(store, mode="a")

    def make(name, values, *, chunks=None, dtype=None, names=None, codecs=("gzip",), **more):
        array = intarsia.create(
            store, name, shape=values.shape, chunks=chunks or values.shape, dtype=dtype or values.dtype,
            dimension_names=names, **more,
        )  # fmt: skip
        array.add_region([(0, n) for n in values.shape], data=values, codecs=codecs)
        return array

    make("scalar", np.array(42.5), attributes={"units": "m"})
    make("line", np.sin(np.arange(3000) / 200), chunks=(500,), names=("step",))
    make("cube", np.arange(2 * 3 * 4 * 30 * 40, dtype="i4").reshape(2, 3, 4, 30, 40), names=tuple("abcde"))
    days = np.datetime64("2020-01-01", "D") + np.arange(24).reshape(4, 6)
    make("days", days, names=("week", "day"))
    make("words", np.array([["oak", "ash"], ["elm", "oak"]], dtype=np.dtypes.StringDType()), codecs=None)
    make("flags", np.arange(64).reshape(8, 8) % 3 == 0)
    nullable = np.ma.masked_array(np.arange(80.0).reshape(8, 10), np.arange(80).reshape(8, 10) % 7 == 0)
    make("nullable", nullable, dtype="optional[float64]", chunks=(4, 5))
    holed = intarsia.create(store, "holed", shape=(20, 30), chunks=(10, 10), dtype="f4")
    holed.add_region([(0, 10), (0, 20)], data=np.ones((10, 20)), codecs=[])
    make(
        "evil<script>alert(1)</script>", np.ones((4, 4)), names=(HOSTILE, "x"), attributes={HOSTILE: HOSTILE}
    )
    intarsia.create(store, "empty", shape=(0, 4), chunks=(2, 4), dtype="f4")
    zarr.create_array(store, name="plain", data=np.arange(600.0).reshape(20, 30), chunks=(10, 10))
    damaged = make("damaged", np.random.default_rng(0).random((40, 60)), chunks=(20, 20))
    chunk = folder / "plain.zarr" / "damaged" / damaged.regions[0].name / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-40])
    large = intarsia.create(store, "large", shape=(100_000, 100_000), chunks=(1000, 1000), dtype="u1")
    large.add_region([(0, 100_000), (0, 100_000)], codecs=["zstd"])
    large[0:1000, 0:1000] = 200
    large[50_000:51_000, 50_000:51_000] = 100
    return store
