"""Claim: a series over files that are packed each in its own way takes at most 1.2x of one over equal ones.

Files are chunks of one member here, as in an archive of references. With equal packings they are one region;
with packings of their own, a region each. Every read is cold: the repository is opened for it.
"""

from pathlib import Path

import icechunk
import numpy as np
import zarr

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table
from benchmarks.mosaic import folder
from intarsia.manifest.box import Box
from intarsia.manifest.packing_columns import NO_PACKINGS
from intarsia.manifest.region_table import RegionTable, Row

GRID = (30, 60)
COUNTS = (300, 12_000)


def build(place: Path, files: int, packings: int) -> None:
    """A repository with one array: so many files, which share so many packings."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(place)))
    session = repository.writable_session("main")
    array = intarsia.create(session.store, "a", shape=(files, *GRID), chunks=(1, *GRID), dtype="float64")
    member = array.group.create_array(
        "m", shape=array.shape, chunks=array.chunks, dtype="int16",
        compressors=zarr.codecs.ZstdCodec(level=1),
    )  # fmt: skip
    member[...] = np.random.default_rng(0).integers(-3000, 3000, array.shape).astype("int16")
    found, numbers = NO_PACKINGS.with_(
        intarsia.Packing("int16", scale=0.001 * (1 + i), offset=298.15, missing=-32768)
        for i in range(packings)
    )
    length = files // packings
    rows = [
        Row(0, Box((i * length, 0, 0), ((i + 1) * length, 1, 1)), (i * length, 0, 0), number)
        for i, number in enumerate(numbers)
    ]
    logical = array._logical
    logical.commit(logical.manifest.changed(RegionTable.from_rows(rows, 3), members=("m",), packings=found))
    session.commit("all files")


def run() -> str:
    rows = []
    with folder() as root:
        for files in COUNTS:
            places = {"one": root / f"one-{files}", "own": root / f"own-{files}"}
            for name, place in places.items():
                build(place, files, files if name == "own" else 1)
            jobs = {
                name: lambda place=place: intarsia.open(place, "a")[:, 7, 9] for name, place in places.items()
            }
            assert jobs["one"]()[0] == jobs["own"]()[0]  # the first has the same packing in both
            times = best_times(jobs, rounds=10)
            took = [f"{seconds * 1e3:.0f} ms" for seconds in times.values()]
            rows.append((f"{files:,}", *took, f"{times['own'] / times['one']:.2f}"))
    header = ("files", "one packing", "a packing each", "ratio")
    text = table("One point in all files, the repository opened each time, local Icechunk", rows, header)
    took = spread(numbers(text, "ratio"))
    return headed(
        f"a series over files that are packed each in its own way takes {took} of one over equal ones", text
    )


if __name__ == "__main__":
    print(run())
