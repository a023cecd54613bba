"""The array that the read benchmarks share: 4096 x 4096 float32, 16 members, 4 codec kinds; and its rivals.

Every rival reads the same values in the same chunks and codecs. What reads Icechunk reads one repository;
TensorStore and zarrs read the same members as plain files, h5py a virtual dataset over 16 datasets.
"""

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import dask.array as da
import h5py
import hdf5plugin
import icechunk
import numpy as np
import tensorstore
import xarray as xr
import zarr
import zarrista
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.read_parts import clip

SIDE, TILE = 4096, 1024
TILES = [(y, x) for y in range(0, SIDE, TILE) for x in range(0, SIDE, TILE)]
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}
KINDS = {
    "raw": [],
    "zstd": [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}],
    "blosc": [{"name": "blosc", "configuration": BLOSC}],
    "gzip": [{"name": "gzip", "configuration": {"level": 5}}],
}
DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"
FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
ZARRS = "zarrs.ZarrsCodecPipeline"


def field() -> np.ndarray:
    """Smooth, with noise in the last digits, as measured data is."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype("f4")
    noise = np.random.default_rng(0).normal(0, 0.1, (SIDE, SIDE))
    return (np.sin(x / 37) * np.cos(y / 53) * 20 + 280 + noise).round(2).astype("f4")


def tiles(kinds=KINDS):
    """Every tile, and its codecs."""
    chosen = list(kinds.values())
    return [(tile, chosen[(i + i // 4) % len(chosen)]) for i, tile in enumerate(TILES)]


def fill(store, path, chunk, data, kinds=KINDS, members=True):
    """A logical array of 16 members, or of one."""
    array = intarsia.create(store, path, shape=data.shape, chunks=(chunk, chunk), dtype="f4")
    if not members:
        ((_, codecs),) = {str(c): (t, c) for t, c in tiles(kinds)}.values()
        array.add_region(((0, SIDE), (0, SIDE)), codecs=codecs, data=data)
        return array
    for (y, x), codecs in tiles(kinds):
        part = data[y : y + TILE, x : x + TILE]
        array.add_region(((y, y + TILE), (x, x + TILE)), codecs=codecs, data=part)
    return array


@contextlib.contextmanager
def folder():
    path = Path(tempfile.mkdtemp(prefix="intarsia-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@dataclass
class Mosaic:
    """One chunk size, in every store that a rival needs."""

    folder: Path
    chunk: int

    def __post_init__(self):
        self.data = field()
        repository = icechunk.Repository.create(
            icechunk.local_filesystem_storage(str(self.folder / f"repository-{self.chunk}"))
        )
        session = repository.writable_session("main")
        fill(session.store, "mosaic", self.chunk, self.data)
        one = zarr.create_array(
            session.store, name="one", shape=self.data.shape, chunks=(self.chunk,) * 2, dtype="f4",
            compressors=zarr.codecs.ZstdCodec(level=1),
        )  # fmt: skip
        one[...] = self.data
        session.commit("mosaic")
        self.store = repository.readonly_session("main").store
        self.files = self.folder / f"files-{self.chunk}"
        fill(zarr.storage.LocalStore(self.files), "mosaic", self.chunk, self.data)

    @cached_property
    def ours(self):
        return intarsia.open(self.store, "mosaic")

    @cached_property
    def ours_on_files(self):
        return intarsia.open(zarr.storage.LocalStore(self.files), "mosaic")

    def members(self, store, pipeline):
        """The members in the order of the tiles, opened with one of zarr's pipelines."""
        array = intarsia.open(store, "mosaic")
        with zarr.config.set({"codec_pipeline.path": pipeline}):
            group = zarr.open_group(array.store, path="mosaic", mode="r")
            by_place = {tuple(a for a, _ in region.bounds): group[region.name] for region in array.regions}
        return [by_place[tile] for tile in TILES]

    def loop(self, store, pipeline):
        """Member by member, as the proposal for such a library does it."""
        members = self.members(store, pipeline)

        def read(selection):
            rows, columns = (range(SIDE)[entry] for entry in selection)
            out = np.empty((len(rows), len(columns)), dtype="f4")
            for (y, x), member in zip(TILES, members, strict=True):
                inside, target = zip(clip(rows, y, TILE), clip(columns, x, TILE), strict=True)
                out[target] = member[inside]
            return out

        return read

    def one_array(self, pipeline):
        """One plain array with one codec, which is less work: no gzip."""
        with zarr.config.set({"codec_pipeline.path": pipeline}):
            array = zarr.open_array(self.store, path="one", mode="r")
        return lambda selection: array[selection]

    def tensorstore(self):
        array = intarsia.open(zarr.storage.LocalStore(self.files), "mosaic")
        names = {tuple(a for a, _ in region.bounds): region.name for region in array.regions}

        def opened(name):
            place = {"driver": "file", "path": str(self.files / "mosaic" / name)}
            return tensorstore.open({"driver": "zarr3", "kvstore": place}).result()

        rows = [[opened(names[y, x]) for x in range(0, SIDE, TILE)] for y in range(0, SIDE, TILE)]
        whole = tensorstore.concat([tensorstore.concat(row, axis=1) for row in rows], axis=0)
        return lambda selection: whole[selection].read().result()

    def zarrista(self):
        """Member by member; it reads no steps."""
        array = intarsia.open(zarr.storage.LocalStore(self.files), "mosaic")
        store = FilesystemStore(str(self.files / "mosaic"))
        members = {
            tuple(a for a, _ in region.bounds): zarrista.Array.open(store, f"/{region.name}")
            for region in array.regions
        }

        def read(selection):
            out = np.empty((SIDE, SIDE), dtype="f4")
            for (y, x), member in members.items():
                out[y : y + TILE, x : x + TILE] = member[0:TILE, 0:TILE]
            return out[selection]

        return read

    def dask(self):
        members = self.members(self.store, DEFAULT)
        grid = [[da.from_zarr(members[4 * i + j]) for j in range(4)] for i in range(4)]
        whole = da.block(grid)
        return lambda selection: whole[selection].compute(scheduler="threads")

    def xarray(self):
        members = self.members(self.store, DEFAULT)
        grid = [
            [xr.DataArray(da.from_zarr(members[4 * i + j]), dims=("y", "x"), name="v") for j in range(4)]
            for i in range(4)
        ]
        whole = xr.combine_nested(grid, ["y", "x"])
        return lambda selection: whole[selection].compute(scheduler="threads").values

    def h5py(self):
        path = self.folder / f"virtual-{self.chunk}.h5"
        filters = {
            "raw": {},
            "zstd": hdf5plugin.Zstd(clevel=1),
            "blosc": hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE),
            "gzip": {"compression": "gzip", "compression_opts": 5},
        }
        layout = h5py.VirtualLayout((SIDE, SIDE), "f4")
        with h5py.File(path, "w") as file:
            for (y, x), codecs in tiles():
                kind = codecs[0]["name"] if codecs else "raw"
                name = f"tile-{y}-{x}"
                part = self.data[y : y + TILE, x : x + TILE]
                file.create_dataset(name, data=part, chunks=(self.chunk,) * 2, **filters[kind])
                source = h5py.VirtualSource(".", name, part.shape)
                layout[y : y + TILE, x : x + TILE] = source
            file.create_virtual_dataset("mosaic", layout)

        def read(selection):
            with h5py.File(path, "r") as file:  # a handle that stays open keeps decoded chunks
                return file["mosaic"][selection]

        return read
