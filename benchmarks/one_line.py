"""Claim: an archive opened in one line takes a third of `open_mfdataset`'s time, and 150 ms from then on.

`xr.open_dataset("*.nc", engine="intarsia")` ingests the files when they are opened first, and later looks
whether any of them changed. Every job has a process of its own, which opened two files before, so that only
opening is measured. Jobs take turns; the best of three counts. Many files are parsed in processes, one per
processor. `python -m benchmarks.one_line 300` takes another number of files.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import xarray as xr

from benchmarks.ingest import series
from benchmarks.measure import headed, table

FILES, ROUNDS = 5_000, 3
JOBS = {
    "open_mfdataset(parallel=False)": "xarray",
    "intarsia, first": "first",
    "intarsia, later": "later",
}


def opened(kind: str, files: list[str]) -> Any:
    """The dataset, by one way or the other."""
    if kind == "xarray":
        return xr.open_mfdataset(files, combine="nested", concat_dim="time", parallel=False)
    return xr.open_dataset(files, engine="intarsia", concat_dim="time")


def used() -> float:
    """Seconds of the processor so far, of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def measure(kind: str, folder: Path) -> tuple[float, float]:
    """Seconds of the clock that one opening takes, and of the processor, here and in processes it starts."""
    files = sorted(map(str, folder.glob("*.nc")))
    with tempfile.TemporaryDirectory() as kept:
        os.environ["INTARSIA_CACHE"] = kept
        opened(kind, files[:2]).close()
        if kind == "later":
            os.environ["INTARSIA_CACHE"] = str(folder / "cache")
        clock, processor = time.perf_counter(), used()
        with opened(kind, files) as dataset:
            took = time.perf_counter() - clock, used() - processor
            assert dataset.sizes["time"] == len(files)
    return took


def run(count: int = FILES) -> str:
    """The table."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        series(folder, count)
        os.environ["INTARSIA_CACHE"] = str(folder / "cache")
        opened("first", sorted(map(str, folder.glob("*.nc")))).close()
        best = dict.fromkeys(JOBS, (float("inf"),) * 2)
        for _ in range(ROUNDS):
            for name, kind in JOBS.items():
                command = [sys.executable, "-m", "benchmarks.one_line", "measure", kind, directory]
                text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                best[name] = tuple(map(min, best[name], json.loads(text)))
    theirs = best["open_mfdataset(parallel=False)"]
    rows = [
        (name, f"{clock * 1e3:,.0f} ms", f"{processor * 1e3:,.0f} ms",
         f"{clock / theirs[0]:.3f}", f"{processor / theirs[1]:.3f}")
        for name, (clock, processor) in best.items()
    ]  # fmt: skip
    header = ("", "clock", "processor", "of xarray's clock", "of xarray's processor time")
    first, later = best["intarsia, first"], best["intarsia, later"]
    heading = (
        f"an archive opened in one line takes {first[0] / theirs[0]:.2f} of the time of `open_mfdataset`, "
        f"{first[1] / theirs[1]:.2f} of its processor time, and {later[0] * 1e3:,.0f} ms from then on"
    )
    return headed(heading, table(f"Opening {count:,} NetCDF files of two variables", rows, header))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", kind, place]:
            print(json.dumps(measure(kind, Path(place))))
        case sizes:
            print(run(*map(int, sizes)))
