"""Claim: with nothing in the page cache, the disk decides; how full reads compare then.

The same files for all; before every read, the system is told to forget them (posix_fadvise). Ratios are times
of theirs over ours, the best of several, by the clock: on a machine that is busy they say little.
"""

import os
import time
from pathlib import Path

import numpy as np
import zarr

import intarsia
from benchmarks.few_requests import FILES, day
from benchmarks.measure import headed, table, times_ours
from benchmarks.mosaic import field, folder
from benchmarks.reader import SHARD, SIDE, WHOLE, readers, written

ROUNDS = 7
NAMES = ("intarsia", "zarr-python", "TensorStore", "zarrista", "zarrs")


def forget(place: Path) -> None:
    """Have the system drop what it holds of these files, which are on the disk."""
    for path in place.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def best_cold(jobs, place):
    """Least seconds of each job, each begun with a cold cache, the jobs taking turns."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            forget(place)
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def row(title, jobs, place):
    times = best_cold(jobs, place)
    ours = times["intarsia"]
    return title, f"{ours * 1e3:.1f} ms", *(f"{times[n] / ours:.2f}" if n in times else "" for n in NAMES[1:])


def of_source_files(place):
    """Virtual chunks of NetCDF files: neighbours in a file are read in one go."""
    expected = []
    for number in range(FILES):
        content, values = day(number)
        (place / f"{number:02}.nc").write_bytes(content)
        expected.append(values)
    os.sync()
    intarsia.ingest(sorted(place.glob("*.nc")), place / "repository", concat_dim="time")
    store = intarsia.authorize(place / "repository").readonly_session("main").store
    array = intarsia.open(store, "sst")
    (region,) = array.regions
    theirs = zarr.open_array(store, path=f"sst/{region.name}", mode="r")
    jobs = {"intarsia": lambda: array[...], "zarr-python": lambda: theirs[...]}
    for job in jobs.values():
        np.testing.assert_array_equal(job(), np.stack(expected))
    return row(f"{FILES} NetCDF files, referred to by Icechunk, gzip", jobs, place)


def run() -> str:
    data, rows = field()[:SIDE, :SIDE], []
    kinds = {
        "zstd, 128 x 128": (128, "zstd", {}),
        "raw, 128 x 128": (128, "raw", {}),
        "zstd, 512 x 512": (512, "zstd", {}),
        f"zstd, 32 x 32 in shards of {SHARD} x {SHARD}": (32, "zstd", {"shards": (SHARD, SHARD)}),
    }
    with folder() as place:
        for number, (title, (chunk, kind, options)) in enumerate(kinds.items()):
            at = place / str(number)
            array = written(at, data, chunk, kind, **options)
            os.sync()  # what is not on the disk is not forgotten
            jobs = {name: lambda read=read: read(WHOLE) for name, read in readers(array, at).items()}
            rows.append(row(title, jobs, at))
        (place / "sources").mkdir()
        rows.append(of_source_files(place / "sources"))
    header = ("array", "intarsia", "zarr-python, fused", "TensorStore", "zarrista", "zarrs")
    text = table(f"Full reads of {SIDE} x {SIDE} float32 from a cold page cache", rows, header)
    others = times_ours(text, {name: name for name in header[2:]})
    return headed(f"how many times as long others take with nothing in the page cache: {others}", text)


if __name__ == "__main__":
    print(run())
