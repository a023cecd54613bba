"""Claim: maps of files on S3 take >= 3x fewer GETs than by zarr-python, and come >= 2x faster, 50 ms away.

Both read the same references of the same repository. It and its sources lie on SeaweedFS, behind a proxy that
answers every request 50 ms late, and counts. The server and the proxy share the two cores. Every read is the
first one of a repository that was just opened: GETs of its own files are counted apart. The ideal is what
`explain` says; what is read beyond the wanted bytes is in per cent of them.
"""

import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import zarr
from tests import http_proxy
from tests.servers import BUCKET, seaweedfs

import intarsia
from benchmarks.measure import headed, numbers, spread, table
from benchmarks.mosaic import folder

LATENCY = 0.05
FILES = 12
LAT, LON, CHUNK = 768, 1536, 96
ROUNDS = 5
READS = {
    "one map": np.s_[3],
    "twelve maps": np.s_[...],
    "a fifth of twelve maps": np.s_[:, 200:500, 300:1000],
    "one place, twelve days": np.s_[:, 400, 700],
}


def day(number: int) -> tuple[bytes, np.ndarray[Any, Any]]:
    """A file as archives have them: two variables in many chunks."""
    random = np.random.default_rng(number)
    smooth = np.add.outer(np.sin(np.linspace(0, 6, LAT)), np.cos(np.linspace(0, 6, LON)))
    values = (smooth + random.normal(size=(LAT, LON)) / 10).round(2).astype("f4")
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        axes = {"time": np.array([float(number)]), "lat": np.arange(LAT) * 1.0, "lon": np.arange(LON) * 1.0}
        scales = []
        for name, places in axes.items():
            scales.append(file.create_dataset(name, data=places))
            scales[-1].make_scale(name)
        for name in ("sst", "error"):
            data = values[None] if name == "sst" else values[None] / 7
            made = file.create_dataset(name, data=data, chunks=(1, CHUNK, CHUNK), compression="gzip")
            for axis, scale in enumerate(scales):
                made.dims[axis].attach_scale(scale)
    return memory.getvalue(), values


def by_zarr(repo: Any, selection: Any) -> Any:
    """The one member that holds all of it, as zarr-python reads it."""
    (region,) = intarsia.open(repo, "sst").regions
    store = repo.readonly_session("main").store
    return lambda: zarr.open_array(store, path=f"sst/{region.name}", mode="r")[selection]


def by_intarsia(repo: Any, selection: Any) -> Any:
    array = intarsia.open(repo, "sst")
    assert len(array.regions) == 1  # what the other has looked at, too
    return lambda: array[selection]


def measured(
    proxy: Any, opened: Any, way: Callable[[Any, Any], Any], selection: Any, expected: Any
) -> tuple[Any, ...]:
    """Median of the seconds, requests for chunks, other requests, bytes of chunks."""
    took = []
    for _ in range(ROUNDS):
        read = way(opened(), selection)
        proxy.seen.clear()
        start = time.perf_counter()
        values = read()
        took.append(time.perf_counter() - start)
        np.testing.assert_array_equal(values, expected)
    sources = proxy.gets("/days/")
    return (
        statistics.median(took),
        len(sources),
        len(proxy.seen) - len(sources),
        sum(len(e.body) for e in sources),
    )


def run() -> str:
    rows = []
    with folder() as place, seaweedfs(place) as server, http_proxy.before(server.endpoint) as proxy:
        client, days = server.client(), []
        for number in range(FILES):
            content, values = day(number)
            client.put_object(Bucket=BUCKET, Key=f"days/{number:02}.nc", Body=content)
            days.append(values)
        cube = np.stack(days)
        options = server.options | {"endpoint_url": proxy.endpoint}
        urls = [f"s3://{BUCKET}/days/{number:02}.nc" for number in range(FILES)]
        location = server.new_location()
        repo = intarsia.open_repository(location, create=True, **options)
        intarsia.ingest(urls, repo, concat_dim="time", storage_options=options)

        def opened() -> Any:
            return intarsia.archives.authorize(
                intarsia.open_repository(location, **options), storage_options=options
            )

        proxy.latency = LATENCY
        for name, selection in READS.items():
            explained = intarsia.explain(intarsia.open(opened(), "sst"), selection)
            ours = measured(proxy, opened, by_intarsia, selection, cube[selection])
            zarrs = measured(proxy, opened, by_zarr, selection, cube[selection])
            over = ours[3] / explained.stored_bytes - 1
            rows.append(
                (
                    name,
                    f"{ours[1]} + {ours[2]}",
                    str(explained.ideal_requests),
                    f"{over:.1%}".replace("%", " %"),
                    f"{zarrs[1]} + {zarrs[2]}",
                    f"{zarrs[1] / ours[1]:.1f}",
                    f"{ours[0] * 1e3:.0f} ms",
                    f"{zarrs[0] * 1e3:.0f} ms",
                    f"{zarrs[0] / ours[0]:.1f}",
                )
            )
    header = (
        "read", "GETs of chunks + others", "ideal", "read beyond", "zarr-python's GETs", "times fewer",
        "intarsia", "zarr-python", "times faster",
    )  # fmt: skip
    chunks = f"{CHUNK} x {CHUNK}"
    title = f"{FILES} files of {LAT} x {LON} float32 in chunks of {chunks}, gzip, {LATENCY * 1e3:.0f} ms away"
    text = table(title, rows, header)
    fewer, faster = (
        spread(numbers(text, column, lambda row: "map" in row[0]))
        for column in ("times fewer", "times faster")
    )
    heading = (
        f"for maps of files on S3, zarr-python takes {fewer} times as many GETs, and {faster} times as long, "
        "50 ms away"
    )
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
