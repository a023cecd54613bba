"""Claim: reading from an S3 server is twice as fast as zarr-python."""

import numpy as np
import zarr
from tests.servers import seaweedfs

import intarsia
from benchmarks.measure import best_times, table
from benchmarks.mosaic import DEFAULT, FUSED, SIDE, TILE, field, fill, folder

CHUNK = 128


def loop(store, pipeline):
    array = intarsia.open(store, "mosaic")
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        group = zarr.open_group(store, path="mosaic", mode="r")
        members = [(region.bounds, group[region.name]) for region in array.regions]

    def read():
        out = np.empty((SIDE, SIDE), dtype="f4")
        for ((y, _), (x, _)), member in members:
            out[y : y + TILE, x : x + TILE] = member[...]
        return out

    return read


def run() -> str:
    data = field()
    with folder() as place, seaweedfs(place) as server:
        location = server.new_location()
        repository = intarsia.open_repository(location, create=True, **server.options)
        session = repository.writable_session("main")
        fill(session.store, "mosaic", CHUNK, data)
        session.commit("mosaic")
        store = repository.readonly_session("main").store
        ours = intarsia.open(store, "mosaic")
        ways = {
            "intarsia": lambda: ours[...],
            "zarr-python member by member": loop(store, DEFAULT),
            "the same, fused pipeline": loop(store, FUSED),
        }
        for read in ways.values():
            np.testing.assert_array_equal(read(), data)
        times = best_times(ways, most_rounds=15)
    base = times["intarsia"]
    rows = [(name, f"{took * 1e3:.0f} ms", f"{took / base:.2f}") for name, took in times.items()]
    title = f"Full read, chunks of {CHUNK} x {CHUNK}, Icechunk on SeaweedFS over loopback"
    return table(title, rows, ("reader", "best", "times ours"))


if __name__ == "__main__":
    print(run())
