"""Datasets that the tests of xarray and dask share."""

from collections import Counter

import numpy as np
import xarray as xr
import zarr

import intarsia

CODECS = (["gzip"], ["zstd"], [], [{"name": "blosc", "configuration": {"cname": "lz4"}}], ["zstd", "crc32c"])


def weather(times=17, lats=7, lons=5, seed=0):
    """A dataset in memory: two variables of different dimensions, coordinates, attributes."""
    rng = np.random.default_rng(seed)
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), rng.random((times, lats, lons), "f4"), {"units": "K"}),
            "n": (("time", "lat"), rng.integers(0, 99, (times, lats))),
        },
        {
            "time": xr.date_range("2024-01-01", periods=times),
            "lat": np.linspace(-60, 60, lats),
            "lon": ("lon", np.linspace(0, 288, lons), {"units": "degrees_east"}),
        },
        {"title": "weather"},
    )


def stored_in_parts(dataset, target, path="", parts=(5, 4, 8), **options):
    """The dataset in a group, appended in parts along time, each with other codecs."""
    start = 0
    for i, length in enumerate(parts):
        intarsia.from_xarray(
            dataset[{"time": slice(start, start + length)}],
            target,
            path,
            append_dim="time",
            codecs=CODECS[i % len(CODECS)],
            **options,
        )
        start += length
    assert start == dataset.sizes["time"]


class CountingStore(zarr.storage.WrapperStore):
    """Notes what is read of a store, and how much."""

    def __init__(self, store, counted=None):
        super().__init__(store)
        self.read, self.gets = counted or (Counter(), Counter())

    def _with_store(self, store):
        return CountingStore(store, (self.read, self.gets))

    def with_read_only(self, read_only=False):
        return self._with_store(self._store.with_read_only(read_only))

    def _count(self, key, found):
        self.gets[key] += 1
        self.read[key] += 0 if found is None else len(found)

    async def get(self, key, prototype, byte_range=None):
        found = await super().get(key, prototype, byte_range)
        self._count(key, found)
        return found

    def get_sync(self, key, *, prototype=None, byte_range=None):
        found = super().get_sync(key, prototype=prototype, byte_range=byte_range)
        self._count(key, found)
        return found

    async def get_partial_values(self, prototype, key_ranges):
        asked = list(key_ranges)
        found = await super().get_partial_values(prototype, asked)
        for (key, _), part in zip(asked, found, strict=True):
            self._count(key, part)
        return found

    @property
    def chunks_read(self):
        return [key for key in self.read if not key.endswith("zarr.json")]

    @property
    def bytes_read(self):
        return sum(self.read.values())
