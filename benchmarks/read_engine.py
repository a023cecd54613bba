"""Claim: reads of many members are faster than zarr-python's; full reads no slower than TensorStore's.

Parts and limits: The tables say what stands in the way of more on plain files, as those in `reader.md` do:
the parts of a read, a bare loop and the goals, and where our time goes.
"""

from unittest import mock

import numpy as np
import zarr

import intarsia
from benchmarks.measure import best_costs, headed, numbers, spread, table, with_limits
from benchmarks.mosaic import DEFAULT, FUSED, SIDE, TILES, ZARRS, Mosaic, folder
from benchmarks.profiled import profile_table, shares
from benchmarks.read_parts import LIMITS, Reads, call_of_members, limits, limits_table
from intarsia.codecs import compressors

WHOLE = np.s_[0:4096, 0:4096]
STRIDED = np.s_[0:4096:9, 0:4096:7]


def without_libraries(read):
    """The same read with the inflate of the standard library."""

    def slower(selection):
        with mock.patch.object(compressors, "deflate", None):
            return read(selection)

    return slower


def readers(mosaic):
    """Every way to read the mosaic."""
    files = zarr.storage.LocalStore(mosaic.files)
    ours = mosaic.ours.__getitem__
    return {
        "intarsia, plain files": mosaic.ours_on_files.__getitem__,
        "TensorStore concat, plain files": mosaic.tensorstore(),
        "zarrs member by member, plain files": mosaic.loop(files, ZARRS),
        "zarrista member by member, plain files": mosaic.zarrista(),
        "h5py virtual dataset, one file": mosaic.h5py(),
        "intarsia, Icechunk": ours,
        "intarsia, Icechunk, without libdeflate": without_libraries(ours),
        "zarr-python member by member, Icechunk": mosaic.loop(mosaic.store, DEFAULT),
        "the same, fused pipeline": mosaic.loop(mosaic.store, FUSED),
        "zarr-python, one zstd array, Icechunk": mosaic.one_array(DEFAULT),
        "the same, fused pipeline ": mosaic.one_array(FUSED),
        "dask, Icechunk": mosaic.dask(),
        "xarray and dask, Icechunk": mosaic.xarray(),
    }


SHORT = {
    "intarsia": "intarsia, plain files",
    "TensorStore": "TensorStore concat, plain files",
    "zarrista": "zarrista member by member, plain files",
}
"""Those of which there are goals."""


def bare_read(mosaic, selection):
    """The parts of a read from plain files, and the bare loops; and the threads that we take for it."""
    members = mosaic.members(zarr.storage.LocalStore(mosaic.files), FUSED)
    call = call_of_members(
        list(zip(TILES, members, strict=True)), [range(SIDE)[entry] for entry in selection]
    )
    threads = intarsia.explain(mosaic.ours_on_files, selection).threads
    bare = Reads([call], mosaic.data.dtype, threads)
    for name, loop in bare.loops.items():
        np.testing.assert_array_equal(loop()[0], mosaic.data[selection], err_msg=name)
    return bare.parts | bare.loops, threads


def ours_like(name):
    """The row of ours that a reader is compared with: files with files, Icechunk with Icechunk."""
    here = "plain files" in name or "one file" in name
    return "intarsia, plain files" if here else "intarsia, Icechunk"


def run() -> str:
    text, limited, profiled = [], [], {}
    with folder() as place:
        for chunk in (128, 512):
            mosaic = Mosaic(place, chunk)
            ways = readers(mosaic)
            for title, selection in (("full read", WHOLE), ("every 9th row and 7th column", STRIDED)):
                expected = mosaic.data[selection]
                if selection is STRIDED:
                    del ways["zarrista member by member, plain files"]  # it takes no steps
                for name, read in ways.items():
                    np.testing.assert_array_equal(read(selection), expected, err_msg=name)
                jobs = {name: (lambda r=read, s=selection: r(s)) for name, read in ways.items()}
                bare, threads = bare_read(mosaic, selection)
                costs = best_costs(jobs | bare, most_rounds=20, most_seconds=60)
                times = {name: costs[name].clock for name in jobs}
                named = costs | {short: costs[name] for short, name in SHORT.items() if name in costs}
                name = title, f"{chunk} x {chunk}"
                cells = limits(named, threads, elements=chunk**2, full=selection is WHOLE)
                limited.append((*name, *cells))
                alone = mosaic.ours_on_files.with_config(threads=1)
                profiled[name] = shares(lambda a=alone, s=selection: a[s])
                rows = [
                    (name, f"{took * 1e3:.0f} ms", f"{took / times[ours_like(name)]:.2f}")
                    for name, took in times.items()
                ]
                header = ("reader", "best", "times ours, same kind of store")
                text.append(table(f"{title}, chunks of {chunk} x {chunk}", rows, header))
    pages = "\n".join(text)
    column = "times ours, same kind of store"
    zarrs, tensorstores = (
        spread(numbers(pages, column, lambda row, names=names: any(name in row[0] for name in names)))
        for names in (("zarr-python", "fused"), ("TensorStore",))
    )
    heading = (
        "how many times as long others take to read many members: "
        f"zarr-python {zarrs}, TensorStore {tensorstores}"
    )
    stands = limits_table(limited, ("read", "chunks", *LIMITS))
    return headed(heading, with_limits(pages, stands, profile_table(profiled, "read", "chunks")))


if __name__ == "__main__":
    print(run())
