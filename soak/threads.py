"""Threads: every way to read and write from many threads at once, with fresh and shared handles.

Also under dask, asyncio, fork and spawn. A hang is told with all stacks.
"""

import asyncio
import contextlib
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import zarr
from tests import test_threads as ways
from tests.servers import moto

import intarsia
from intarsia.errors import ForkedProcessError
from soak.target import Target, Wrong

CHUNKS = (6, 8)


def readers_of_a_plain_store(store, count):
    """Readers of one plain array, shared and of their own."""
    shared = intarsia.reader(store, "plain")
    return [
        (lambda: ways.right(shared)) if i % 2 else (lambda: ways.right(intarsia.reader(store, "plain")))
        for i in range(count)
    ]


def asynchronous(repo, count):
    """Reads of one handle on an event loop of one's own."""
    array = intarsia.open(repo, "a")

    async def all_at_once():
        for found in await asyncio.gather(*(array.read_async(...) for _ in range(count))):
            np.testing.assert_array_equal(found, ways.VALUES)

    return [lambda: asyncio.run(all_at_once())] * 2


def writers(repo, count):
    ways.undone_transaction(repo, max(3, count // 3))
    return [lambda: None]


def served(repo, count):
    ways.read_over_http(repo, count)
    return [lambda: None]


def distributed_threads(repo, count):
    import dask
    import xarray as xr

    data = xr.open_dataset(repo, engine="intarsia", chunks={})["a"]

    def mean():
        with dask.config.set(scheduler="threads", num_workers=count):
            np.testing.assert_allclose(data.mean().compute(), ways.VALUES.mean(), rtol=1e-5)

    return [mean] * 3


QUICK = (
    ways.one_handle,
    ways.handles_of_one_session,
    ways.opened_in_threads,
    ways.sessions,
)
SLOW = (
    ways.nullables,
    ways.views,
    ways.everything,
    ways.threads_of_dask,
    writers,
    served,
    distributed_threads,
    asynchronous,
)
"""What takes ten times as long or more, because of zarr's pipelines, xarray, dask, servers and commits."""

SLOW_SHARE = 0.05


class Rounds:
    """One case: a repository that was just opened, and threads that begin together."""

    def __init__(self, reopen, reopen_coarse):
        self._reopen, self._reopen_coarse = reopen, reopen_coarse

    def __call__(self, _number, rng):
        slow = rng.random() < SLOW_SHARE
        way = rng.choice(SLOW if slow else QUICK)
        count = rng.choice((4, 8, 16, 32) if rng.random() < 0.05 else (4,))
        ways.at_once(way(self._reopen() if slow else self._reopen_coarse(), count))
        return way.__name__.replace("_", " ")


def filled(location, **options):
    repo = intarsia.open_repository(location, create=True, **options)
    with intarsia.transaction(repo, message="all of it") as tx:
        ways.filled(tx)
    return repo


def coarse(location, **options):
    """The same with few chunks: a round takes a third of the time."""
    repo = intarsia.open_repository(location, create=True, **options)
    with intarsia.transaction(repo, message="few chunks") as tx:
        for name in ways.VARIABLES:
            array = tx.create(name, shape=ways.SHAPE, chunks=(12, 16), dtype="f4", dimension_names=["y", "x"])
            for start, codecs in ((0, ["zstd"]), (12, ["gzip"])):
                rows = (start, start + 12)
                array.add_region([rows, (0, 16)], codecs=codecs, data=ways.VALUES[slice(*rows)])
    return repo


def prepare_local(folder, _seed):
    filled(folder / "r"), coarse(folder / "c")
    return Rounds(
        lambda: intarsia.open_repository(folder / "r"), lambda: intarsia.open_repository(folder / "c")
    )


def prepare_memory(_folder, _seed):
    fine, few = filled("memory://"), coarse("memory://")
    return Rounds(lambda: fine, lambda: few)


_kept = contextlib.ExitStack()


def prepare_s3(folder, _seed):
    server = _kept.enter_context(moto(folder))
    fine, few = server.new_location(), server.new_location()
    filled(fine, **server.options), coarse(few, **server.options)
    return Rounds(
        lambda: intarsia.open_repository(fine, **server.options),
        lambda: intarsia.open_repository(few, **server.options),
    )


def prepare_plain(folder, _seed):
    stores = [zarr.storage.MemoryStore(), zarr.storage.LocalStore(folder / "z")]
    for store in stores:
        array = intarsia.create(store, "a", shape=ways.SHAPE, chunks=CHUNKS, dtype="f4")
        array.add_region([(0, n) for n in ways.SHAPE], codecs=["zstd"], data=ways.VALUES)
        z = zarr.create_array(store, name="plain", shape=ways.SHAPE, chunks=CHUNKS, dtype="f4")
        z[...] = ways.VALUES

    def case(_number, rng):
        store, count = rng.choice(stores), rng.choice((2, 2, 2, 4, 16))
        handle = intarsia.open(store, "a", mode="r+")
        works = readers_of_a_plain_store(store, count)
        works += [lambda: ways.right(handle)] * 2
        works += [
            lambda i=i: handle.__setitem__(slice(6 * i, 6 * i + 6), ways.VALUES[6 * i : 6 * i + 6])
            for i in range(4)
        ]
        ways.at_once(works)
        return "readers and writers"

    return case


def in_a_process(pickled):
    """What a process of a pool does with a handle that came to it."""
    return float(pickle.loads(pickled)[...].sum())


def opened_in_a_fork(path):
    try:
        return float(intarsia.open(path, "a")[...].sum())
    except ForkedProcessError:
        return None


def prepare_processes(folder, _seed):
    """Pools by spawn and forkserver read; by fork, of a process that has used Icechunk, they are told no."""
    repo = filled(folder / "r")
    expected = float(ways.VALUES.sum())

    def case(_number, rng):
        how = rng.choice(("spawn", "forkserver", "fork"))
        array = intarsia.open(repo, "a")
        array[...]
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how)) as pool:
            if how == "fork":
                found = set(pool.map(opened_in_a_fork, [str(folder / "r")] * 3)) - {None}
            else:
                found = set(pool.map(in_a_process, [pickle.dumps(array)] * 3))
        if found - {expected}:
            raise Wrong(f"{how}: {found} instead of {expected}")
        return how

    return case


TARGETS = [
    Target(
        "threads", "a local repository", prepare_local, share=20, seconds=0.025, memory=None, stretch=5000
    ),
    Target(
        "threads", "a repository in memory", prepare_memory, share=50, seconds=0.02, memory=None, stretch=5000
    ),
    Target(
        "threads", "a repository on S3 (moto)", prepare_s3, share=1, seconds=0.05, memory=None, stretch=500
    ),
    Target("threads", "plain stores", prepare_plain, share=29, seconds=0.02, memory=None, stretch=5000),
    Target(
        "threads",
        "fork, forkserver and spawn",
        prepare_processes,
        share=0.1,
        seconds=1,
        memory=None,
        stretch=100,
    ),
]
