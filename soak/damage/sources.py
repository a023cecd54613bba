"""Source files at ingest: NetCDF 3 and 4, HDF5, TIFF, Zarr of both formats, N5, kerchunk."""

import json

import numpy as np
import tifffile
import xarray as xr
from tests.archives.files import netcdf
from tests.archives.test_parse import n5_dataset

import intarsia
from soak.damage.chunks import quiet
from soak.damage.verdict import judged
from soak.mutations import damaged, damaged_json
from soak.target import Target

PICTURE = np.random.default_rng(0).integers(0, 255, (48, 32)).astype("u2")


def a_zarr(path, form):
    data = np.random.default_rng(1).normal(280, 5, (4, 6, 8)).astype("f4")
    times = xr.date_range("2002-06-01", periods=4, unit="s")
    dataset = xr.Dataset({"sst": (("time", "lat", "lon"), data)}, {"time": times})
    dataset.to_zarr(path, zarr_format=form, consolidated=False)


def a_kerchunk(folder):
    """References to a file that is there, as JSON."""
    raw = np.arange(48, dtype="<f4").reshape(1, 6, 8)
    (folder / "raw.bin").write_bytes(raw.tobytes())
    zarray = {
        "chunks": [1, 6, 8], "compressor": None, "dtype": "<f4", "fill_value": None, "filters": None,
        "order": "C", "shape": [1, 6, 8], "zarr_format": 2,
    }  # fmt: skip
    times = zarray | {"chunks": [1], "shape": [1], "dtype": "<f8"}
    references = {
        ".zgroup": '{"zarr_format":2}',
        "sst/.zarray": json.dumps(zarray),
        "sst/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["time", "lat", "lon"]}),
        "sst/0.0.0": [f"file://{folder}/raw.bin", 0, 192],
        "time/.zarray": json.dumps(times),
        "time/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["time"], "units": "days since 2002-06-01"}),
        "time/0": "base64:AAAAAAAA8D8=",
    }
    (folder / "a.json").write_text(json.dumps({"version": 1, "refs": references}))


def an_n5(folder):
    """A container with a dataset of several blocks."""
    data = np.random.default_rng(1).integers(0, 60000, (6, 5, 4)).astype("uint16")
    n5_dataset(folder / "a.n5" / "sst", data, (4, 4, 2), "gzip")
    (folder / "a.n5" / "attributes.json").write_text('{"n5": "4.0.0"}')


class Files:
    """A file, or one of a folder, is damaged; then it is ingested, and what comes of that is read.

    Errors name it, or one of `others`.
    """

    def __init__(self, folder, make, name, axis, others):
        self._folder, self._place, self._axis = folder, folder / name, axis
        self._names = (self._place.name, *others)
        make(folder)
        kept = [self._place] if self._place.is_file() else sorted(self._place.rglob("*"))
        self._files = {path: path.read_bytes() for path in kept if path.is_file()}

    def __call__(self, _number, rng):
        path = rng.choice(list(self._files))
        plain, others = self._files[path], list(self._files.values())
        data = None
        if path.suffix == ".json" or path.name.startswith(".z"):
            data = damaged_json(json.loads(plain), rng, others)
        path.write_bytes(damaged(plain, rng, others) if data is None else data)
        try:
            return judged(lambda: self._ingested(rng), (), None, *self._names, declared=True)
        finally:
            path.write_bytes(plain)

    def _ingested(self, rng):
        if rng.random() < 0.2:
            str(intarsia.archives.lint(self._place, concat_dim=self._axis))
            return
        report = intarsia.ingest(self._place, "memory://", concat_dim=self._axis)
        str(report)
        group = intarsia.reader(report.repository)
        for array in list(group.values())[:4]:
            if array.nbytes < 1 << 20:
                array[...]


def of(make, name, axis="time", others=()):
    @quiet
    def prepare(folder, _seed):
        return Files(folder, make, name, axis, others)

    return prepare


REFERRED = ("/raw.bin)", ", chunk (0")
"""What kerchunk's references lead to: a range of another file, or bytes among them, which are a chunk's."""

KINDS = {
    "NetCDF 4": (lambda folder: netcdf(folder / "a.nc", 0, kind="i2", attrs={"scale_factor": 0.5}), "a.nc"),
    "NetCDF 3": (lambda folder: netcdf(folder / "a.nc", 0, version="NETCDF3_CLASSIC"), "a.nc"),
    "TIFF": (
        lambda folder: tifffile.imwrite(folder / "a.tif", PICTURE, tile=(16, 16), compression="deflate"),
        "a.tif",
    ),
    "Zarr, format 2": (lambda folder: a_zarr(folder / "a.zarr", 2), "a.zarr"),
    "Zarr, format 3": (lambda folder: a_zarr(folder / "a.zarr", 3), "a.zarr"),
    "N5": (an_n5, "a.n5", "t"),
    "kerchunk": (a_kerchunk, "a.json", "time", REFERRED),
}

TARGETS = [
    Target("damage", f"sources: {kind}", of(*made), share=0.5, seconds=0.03, stretch=2000, memory=512 << 20)
    for kind, made in KINDS.items()
]
