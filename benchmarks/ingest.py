"""Claim: ingesting 1,000 files is at least 0.9x as fast as VirtualiZarr, reading them as fast as zarr."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import icechunk
import netCDF4
import numpy as np
import virtualizarr
import xarray as xr
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

import intarsia
from benchmarks.measure import best_times, headed, numbers, table

FILES, GRID, CHUNKS = 1_000, (60, 120), (1, 30, 60)
ROUNDS = 2


def series(folder: Path, count: int = FILES) -> list[Path]:
    """Daily files, all encoded alike: VirtualiZarr can concatenate no others."""
    rng = np.random.default_rng(0)
    paths = []
    for day in range(count):
        path = folder / f"{day:05d}.nc"
        with netCDF4.Dataset(path, "w") as file:
            for name, size in (("time", None), ("lat", GRID[0]), ("lon", GRID[1])):
                file.createDimension(name, size)
            time = file.createVariable("time", "i4", ("time",))
            time.units = "days since 2000-01-01"
            time[:] = [day]
            file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-90, 90, GRID[0])
            file.createVariable("lon", "f4", ("lon",))[:] = np.linspace(-180, 180, GRID[1])
            for name in ("sst", "error"):
                variable = file.createVariable(
                    name,
                    "i2",
                    ("time", "lat", "lon"),
                    compression="zlib",
                    chunksizes=CHUNKS,
                    fill_value=-32768,
                )
                variable.set_auto_maskandscale(False)
                variable.setncatts({"scale_factor": 0.001, "add_offset": 298.15})
                variable[0] = rng.integers(-3000, 3000, GRID)
        paths.append(path)
    return paths


def by_virtualizarr(paths: list[Path], target: Path, loaded: Sequence[str] = ("time", "lat", "lon")) -> None:
    """Parse, concatenate, write, commit: what its documentation shows."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    datasets = [
        virtualizarr.open_virtual_dataset(
            f"file://{path}", parser=HDFParser(), registry=registry, loadable_variables=list(loaded)
        )
        for path in paths
    ]
    joined = xr.concat(
        datasets, dim="time", coords="minimal", compat="override", join="override", data_vars="minimal"
    )
    prefix = f"file://{paths[0].parent}/"
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(paths[0].parent))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    shutil.rmtree(target, ignore_errors=True)
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(target)), config)
    session = repo.writable_session("main")
    joined.vz.to_icechunk(session.store)
    session.commit("all files")


def by_intarsia(paths: list[Path], target: Path) -> intarsia.types.IngestReport:
    shutil.rmtree(target, ignore_errors=True)
    return intarsia.ingest(paths, target, concat_dim="time")


def run() -> str:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        paths = series(root)
        jobs = {
            "VirtualiZarr": lambda: by_virtualizarr(paths, root / "theirs"),
            "intarsia": lambda: by_intarsia(paths, root / "ours"),
        }
        times = best_times(jobs, most_rounds=ROUNDS)
        rows = [
            (name, f"{took:.1f} s", f"{took / FILES * 1e3:.1f} ms", f"{times['VirtualiZarr'] / took:.2f}")
            for name, took in times.items()
        ]
        header = ("", "best", "a file", "speed")
        text = table(f"{FILES:,} NetCDF files of two variables: parse, write, commit", rows, header)
        text += "\n" + _reading(by_intarsia(paths, root / "ours"))
    ingested, read = numbers(text, "speed", lambda row: row[0] == "intarsia")
    heading = (
        f"1,000 files are ingested {ingested}x as fast as by VirtualiZarr, and read {read}x as fast as by "
        "zarr-python"
    )
    return headed(heading, text)


def _reading(report: intarsia.types.IngestReport) -> str:
    store = report.repository.readonly_session("main").store
    logical = intarsia.open(report.repository, "sst")
    (name,), (packing,) = logical.members, logical.manifest.packings
    member = zarr.open_array(store, path=f"sst/{name}", mode="r")
    days = slice(0, 200)
    jobs = {"zarr-python": lambda: packing.decode(member[days]), "intarsia": lambda: logical[days]}
    assert np.array_equal(*(job() for job in jobs.values()), equal_nan=True)
    times = best_times(jobs)
    rows = [
        (name, f"{took * 1e3:.0f} ms", f"{times['zarr-python'] / took:.2f}") for name, took in times.items()
    ]
    title = "Reading 200 days (800 virtual chunks) of it, unpacked"
    return table(title, rows, ("", "best", "speed"))


if __name__ == "__main__":
    print(run())
