"""Claim: opening with xarray costs < 2x that of a plain array; a mean through dask < 1.05x of one."""

import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import xarray as xr
import zarr

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table

SIDE, MEMBERS = 4096, 16
CODECS = [{"name": "zstd", "configuration": {"level": 1}}]


def repository(folder: Path, chunk: int) -> object:
    """A logical array of 16 members, and one plain array of the same values, codecs and chunks."""
    rng = np.random.default_rng(0)
    rows = SIDE // MEMBERS
    repo = intarsia.open_repository(folder / str(chunk), create=True)
    with intarsia.transaction(repo, message="both") as tx:
        array = tx.create(
            "ours/v",
            shape=(0, SIDE),
            chunks=(min(rows, chunk), chunk),
            dtype="f4",
            dimension_names=("y", "x"),
        )
        plain = zarr.create_array(
            tx.store, name="plain/v", shape=(SIDE, SIDE), chunks=array.chunks, dtype="f4",
            compressors=zarr.codecs.ZstdCodec(level=1), dimension_names=("y", "x"),
        )  # fmt: skip
        for i in range(MEMBERS):
            values = rng.normal(size=(rows, SIDE)).round(2).astype("f4")
            array.append(values, codecs=CODECS, merge=False)
            plain[i * rows : (i + 1) * rows] = values
    return repo


def openings(repo: object) -> dict[str, object]:
    store = repo.readonly_session("main").store
    return {
        "xr.open_zarr, one plain array": lambda: xr.open_zarr(
            store, group="plain", chunks=None, consolidated=False
        ),
        "ours, 16 members": lambda: xr.open_dataset(store, engine="intarsia", group="ours"),
        "xr.open_zarr, one plain array, chunks={}": lambda: xr.open_zarr(
            store, group="plain", chunks={}, consolidated=False
        ),
        "ours, 16 members, chunks={}": lambda: xr.open_dataset(
            store, engine="intarsia", group="ours", chunks={}
        ),
    }


def means(repo: object) -> dict[str, object]:
    store = repo.readonly_session("main").store
    plain = da.from_zarr(zarr.open_array(store, path="plain/v", mode="r"))
    array = intarsia.open(repo, "ours/v")
    ours = array.to_dask()
    joined = da.concatenate([da.from_zarr(array.members[region.name]) for region in array.regions])
    assert plain.chunks == ours.chunks == joined.chunks
    return {
        "dask, one plain Zarr array": lambda: plain.mean().compute(),
        "ours, 16 members": lambda: ours.mean().compute(),
        "dask.array.concatenate of the 16 members": lambda: joined.mean().compute(),
    }


def ratios(title: str, times: dict[str, float], reference: list[str]) -> str:
    """Every job against the reference that comes before it."""
    rows, basis = [], ""
    for name, took in times.items():
        basis = name if name in reference else basis
        rows.append((name, f"{took * 1e3:.1f} ms", f"{took / times[basis]:.2f}"))
    return table(title, rows, ("job", "best", "ratio"))


def run() -> str:
    parts = []
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="threads"):
        for chunk in (512, 256):
            repo = repository(Path(folder), chunk)
            if not parts:
                jobs = openings(repo)
                parts.append(ratios("Opening a dataset with xarray", best_times(jobs), list(jobs)[::2]))
            jobs = means(repo)
            title = f"Mean of {SIDE} x {SIDE} float32 through dask, local Icechunk, chunks of 256 x {chunk}"
            parts.append(ratios(title, best_times(jobs, most_rounds=25), list(jobs)[:1]))
    text = "\n".join(parts)
    openings_, means_ = (
        spread(numbers(part, "ratio", lambda row: row[0].startswith("ours")))
        for part in (parts[0], "\n".join(parts[1:]))
    )
    heading = f"opening with xarray takes {openings_} of a plain array; a mean through dask {means_} of one"
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
