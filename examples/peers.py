"""The same files through VirtualiZarr with Icechunk, kerchunk, dask and intarsia: who gives the right values.

`python -m examples.peers` prints a table; with `--write`, README.md and docs/comparison.md get it, too. Every
value is compared with what netCDF4 reads from the files one by one.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

import dask.array as da
import h5py
import icechunk
import numpy as np
import virtualizarr
import xarray as xr
import zarr
from examples.archives import aodn_like, mur_like
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

import intarsia

PAGES = (Path("README.md"), Path("docs/comparison.md"))
BEGIN = "<!-- written by examples/peers.py -->\n"
END = "<!-- end of what examples/peers.py writes -->\n"
RUNS = 6
"""How often dask writes: whether blocks that share a chunk lose values depends on timing."""


def virtualizarr_and_icechunk(files: list[Path], name: str, work: Path) -> np.ndarray:
    """The series of a variable by references: opened, concatenated, committed and read by xarray."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    urls = [f"file://{path.resolve()}" for path in files]
    parser = HDFParser()
    parts = [virtualizarr.open_virtual_dataset(url, parser=parser, registry=registry) for url in urls]
    dataset = xr.concat(
        parts, dim="time", coords="minimal", compat="override", join="override", data_vars="minimal"
    )
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{files[0].resolve().parent}/"
    container = icechunk.VirtualChunkContainer(
        prefix, icechunk.local_filesystem_store(str(files[0].resolve().parent))
    )
    config.set_virtual_chunk_container(container)
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(work / "virtualizarr")), config,
        authorize_virtual_chunk_access=icechunk.containers_credentials(
            {prefix: icechunk.credentials.LocalFileSystemAccess}
        ),
    )  # fmt: skip
    session = repo.writable_session("main")
    dataset.vz.to_icechunk(session.store)
    session.commit("references")
    store = repo.readonly_session("main").store
    return xr.open_zarr(store, consolidated=False, chunks=None)[name].values


def by_kerchunk(files: list[Path], name: str, work: Path) -> np.ndarray:
    """The same with kerchunk's own parser and its way to combine references."""
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.hdf import SingleHdf5ToZarr

    parts = [SingleHdf5ToZarr(str(path), inline_threshold=0).translate() for path in files]
    combined = MultiZarrToZarr(
        parts, remote_protocol="file", concat_dims=["time"], identical_dims=["lat", "lon"]
    ).translate()
    return xr.open_dataset(combined, engine="kerchunk")[name].values


def by_intarsia(files: list[Path], name: str, work: Path) -> np.ndarray:
    report = intarsia.ingest(files, work / "intarsia", concat_dim="time", missing="fill")
    if report.copied:
        raise RuntimeError(f"{report.copied} bytes were copied")
    with xr.open_dataset(work / "intarsia", engine="intarsia", authorize=True) as dataset:
        return dataset[name].values


def expected_of(files: list[Path], name: str) -> np.ndarray:
    """What the files hold, one by one, unpacked as xarray does it."""
    values = []
    for path in files:
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            values.append(dataset[name].values)
    return np.concatenate(values)


def skipped_filters(folder: Path) -> list[Path]:
    """Files in which HDF5 skipped the compressor for single chunks, as it may where that saves nothing."""
    folder.mkdir()
    paths = []
    for day in range(4):
        path = folder / f"day-{day}.h5"
        values = np.arange(day * 400, (day + 1) * 400, dtype="i4").reshape(1, 20, 20)
        with h5py.File(path, "w") as file:
            for axis, size in (("time", 1), ("lat", 20), ("lon", 20)):
                file[axis] = np.arange(size, dtype="f8") + (day if axis == "time" else 0)
                file[axis].make_scale(axis)
            data = file.create_dataset("values", data=values, chunks=(1, 10, 20), compression="gzip")
            data.id.write_direct_chunk((0, 10, 0), values[:, 10:].tobytes(), filter_mask=1)
            for i, axis in enumerate(("time", "lat", "lon")):
                data.dims[i].attach_scale(file[axis])
        paths.append(path)
    return paths


def outcome(values: Callable[[], np.ndarray], expected: np.ndarray) -> str:
    """What one way made of the files, in a few words."""
    try:
        found = values()
    except KeyError:
        return "leaves the variable out"
    except Exception as error:  # whatever another program raises is its answer
        return f"raises `{type(error).__module__}.{type(error).__name__}`".replace("builtins.", "")
    wrong = ~np.isclose(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    if not wrong.any():
        return "equal"
    worst = np.nanmax(np.abs(found[wrong].astype("f8") - expected[wrong]))
    return f"**silently wrong** in {100 * wrong.mean():.1f} % of the values, by up to {worst:.3g}"


def dask_to_zarr(work: Path) -> str:
    """Blocks that do not fit the chunks of a plain Zarr array."""
    for run in range(RUNS):
        da.to_zarr(blocks(), work / f"plain-{run}", chunks=(64, 64))
    return losses(zarr.open_array(work / f"plain-{run}")[...] for run in range(RUNS))


def dask_to_intarsia(work: Path) -> str:
    """The same into an array in a repository."""
    for run in range(RUNS):
        repo = intarsia.open_repository(work / f"repository-{run}", create=True)
        intarsia.store_dask(blocks(), repo, "a", chunks=(64, 64))
    return losses(intarsia.open(work / f"repository-{run}", "a")[...] for run in range(RUNS))


def blocks() -> da.Array:
    return da.from_array(np.arange(1, 360_001, dtype="i4").reshape(600, 600), chunks=(70, 70))


def losses(stored: Iterable[np.ndarray]) -> str:
    lost = sum(not np.array_equal(values, blocks().compute()) for values in stored)
    return f"**values lost** in {lost} of {RUNS} runs" if lost else f"equal in {RUNS} of {RUNS} runs"


def rows(work: Path) -> list[tuple[str, str, str, str]]:
    """The table: an archive, and what each way makes of it."""
    archives: list[tuple[str, list[Path], str]] = [
        (
            "a scale and an offset for each file (40 files, in kelvin)",
            aodn_like(work / "scales"),
            "sea_surface_temperature",
        ),
        ("codecs and chunks that change (48 files)", mur_like(work / "eras"), "analysed_sst"),
        ("HDF5 chunks that skip the compressor (4 files)", skipped_filters(work / "skipped"), "values"),
    ]
    table = []
    for number, (about, files, name) in enumerate(archives):
        expected = expected_of(files, name)
        cells = []
        for way in (virtualizarr_and_icechunk, by_kerchunk, by_intarsia):
            place = work / f"{number}-{way.__name__}"
            place.mkdir()
            cells.append(outcome(lambda: way(files, name, place), expected))  # noqa: B023 (called at once)
        table.append((about, *cells))
    return table


def page(work: Path) -> str:
    """The tables as Markdown."""
    versions = [
        f"{name} {version(name)}" for name in ("virtualizarr", "icechunk", "kerchunk", "dask", "zarr")
    ]
    lines = ["| archive | VirtualiZarr + Icechunk | kerchunk | intarsia |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows(work)]
    lines += [
        f"| dask blocks that do not fit the chunks | `dask.array.to_zarr`: {dask_to_zarr(work)} | | "
        f"`store_dask`: {dask_to_intarsia(work)} |",
        "",
        f"Made by `python -m examples.peers --write`, with {', '.join(versions)}. "
        "intarsia copied nothing from the files.",
    ]
    return "\n".join(lines) + "\n"


def main(args: list[str]) -> None:
    warnings.simplefilter("ignore")  # those of other programs, about their own future
    icechunk.set_logs_filter("error")
    with tempfile.TemporaryDirectory() as folder:
        text = page(Path(folder))
    print(text)
    for path in PAGES if "--write" in args else ():
        before, rest = path.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
