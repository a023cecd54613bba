"""Claim: reading from an S3 server is faster than zarr-python, and as fast as the bytes come.

The server shares the two cores: half of the time of every row is its own. The last row is the limit.
"""

import asyncio

import numpy as np
import obstore
import zarr
from tests.servers import BUCKET, seaweedfs

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table
from benchmarks.mosaic import DEFAULT, FUSED, SIDE, TILE, field, fill, folder

CHUNK = 128
REQUESTS_AT_A_TIME = 32


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


def bytes_alone(server, location):
    """Fetch every chunk object and throw it away: what no reader can be faster than."""
    store = obstore.store.S3Store(
        BUCKET,
        endpoint=server.endpoint,
        region=server.options["region"],
        access_key_id=server.options["access_key_id"],
        secret_access_key=server.options["secret_access_key"],
        client_options={"allow_http": True},
    )
    prefix = location.split("/", 3)[3]
    keys = [found["path"] for page in obstore.list(store, prefix=f"{prefix}/chunks") for found in page]

    async def fetch() -> None:
        gate = asyncio.Semaphore(REQUESTS_AT_A_TIME)

        async def one(key: str) -> None:
            async with gate:
                await (await obstore.get_async(store, key)).bytes_async()

        await asyncio.gather(*map(one, keys))

    return lambda: asyncio.run(fetch())


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
        ways["the bytes alone, by obstore"] = bytes_alone(server, location)
        times = best_times(ways, most_rounds=15)
    base = times["intarsia"]
    rows = [(name, f"{took * 1e3:.0f} ms", f"{took / base:.2f}") for name, took in times.items()]
    title = f"Full read, chunks of {CHUNK} x {CHUNK}, Icechunk on SeaweedFS over loopback"
    text = table(title, rows, ("reader", "best", "times ours"))
    _, *zarrs, limit = numbers(text, "times ours")
    heading = f"from an S3 server zarr-python takes {spread(zarrs)} times as long, the bytes alone {limit}"
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
