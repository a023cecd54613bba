"""Claim: with nothing in the page cache, the disk decides; how full reads compare then.

The same files for all; before every read, the system is told to forget them (posix_fadvise). Ratios are times
of theirs over ours, the best of several, by the clock: on a machine that is busy they say little.

Parts and limits: The table has the parts of a read and the goals, as that in `reader.md`, all with a cold
cache. Its last columns have what the disk takes when the same files are read, so many at a time, and nothing
else is done: a program that asks for more of them at once may wait less.
"""

import os
from math import prod

import numpy as np
import zarr

import intarsia
from benchmarks.few_requests import FILES, day
from benchmarks.measure import best_costs, headed, table, times_ours, with_limits
from benchmarks.mosaic import field, folder
from benchmarks.read_parts import LIMITS, Reads, call_of, limits, limits_table, milliseconds
from benchmarks.reader import RIVALS, SHARD, SIDE, WHOLE, forget, readers, written

ROUNDS = 7
DISK = {f"files alone, {threads} at a time": threads for threads in (1, 2, 8)}
"""In how many threads the same files are read, and nothing is done with them."""


def cold_costs(jobs, place):
    """What each job takes that is begun with a cold cache, the jobs taking turns."""
    return best_costs(jobs, rounds=ROUNDS, most_rounds=ROUNDS, before=lambda: forget(place))


def row(title, costs):
    ours = costs["intarsia"].clock
    ratios = (f"{costs[name].clock / ours:.2f}" if name in costs else "" for name in RIVALS)
    return title, f"{ours * 1e3:.1f} ms", *ratios


def of_source_files(place):
    """Virtual chunks of NetCDF files: neighbours in a file are read in one go."""
    expected = []
    for number in range(FILES):
        content, values = day(number)
        (place / f"{number:02}.nc").write_bytes(content)
        expected.append(values)
    os.sync()
    intarsia.ingest(sorted(place.glob("*.nc")), place / "repository", concat_dim="time")
    repo = intarsia.archives.authorize(place / "repository")
    array, store = intarsia.open(repo, "sst"), repo.readonly_session("main").store
    (region,) = array.regions
    theirs = zarr.open_array(store, path=f"sst/{region.name}", mode="r")
    jobs = {"intarsia": lambda: array[...], "zarr-python, fused": lambda: theirs[...]}
    for job in jobs.values():
        np.testing.assert_array_equal(job(), np.stack(expected))
    return row(f"{FILES} NetCDF files, referred to by Icechunk, gzip", cold_costs(jobs, place))


def run() -> str:
    data, rows, limited = field()[:SIDE, :SIDE], [], []
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
            threads = intarsia.explain(intarsia.reader(array), WHOLE).threads
            bare = Reads([call_of(array, WHOLE)], array.dtype, threads)
            disk = {name: lambda b=bare, n=count: b.read_files(n) for name, count in DISK.items()}
            costs = cold_costs(jobs | bare.parts | bare.loops | disk, at)
            rows.append(row(title, costs))
            cells = limits(costs, threads, elements=prod(array.chunks))
            limited.append((title, *cells, *(milliseconds(costs[name]) for name in DISK)))
        (place / "sources").mkdir()
        rows.append(of_source_files(place / "sources"))
    text = table(
        f"Full reads of {SIDE} x {SIDE} float32 from a cold page cache", rows, ("array", "intarsia", *RIVALS)
    )
    others = times_ours(text, {name: name for name in RIVALS})
    stands = limits_table(limited, ("array", *LIMITS, *DISK))
    heading = f"how many times as long others take with nothing in the page cache: {others}"
    return headed(heading, with_limits(text, stands))


if __name__ == "__main__":
    print(run())
