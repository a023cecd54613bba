"""First reads by many threads at once, in every way there is to read: nothing hangs, every value is right.

A hang ends the run with all stacks, see `faulthandler_timeout` in pyproject.toml. `make soak` runs 100,000
rounds of these and more (`soak/threads.py`).
"""

import pickle
import threading
import urllib.request
import uuid
from contextlib import suppress
from functools import partial

import dask
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.errors import NotLogicalArrayError
from tests.servers import BUCKET

SHAPE, CHUNKS, ROWS = (24, 16), (3, 4), 6
VALUES = np.random.default_rng(0).random(SHAPE, "f4")
NULLS = np.ma.masked_less(VALUES, 0.3)
VARIABLES = "abcd"


def at_once(works):
    """Call each function in a thread of its own, all at the same time; every failure is raised."""
    barrier, failures = threading.Barrier(len(works)), []

    def run(work):
        try:
            barrier.wait()
            work()
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(works)} threads failed", failures)


def filled(tx):
    """Logical arrays of four regions in two encodings, and a nullable array."""
    for name in VARIABLES:
        array = tx.create(name, shape=SHAPE, chunks=CHUNKS, dtype="f4", dimension_names=["y", "x"])
        for start in range(0, SHAPE[0], ROWS):
            codecs = ["zstd"] if start % (2 * ROWS) else ["gzip"]
            rows = (start, start + ROWS)
            array.add_region([rows, (0, SHAPE[1])], codecs=codecs, data=VALUES[slice(*rows)])
    intarsia.nullable.create_array(tx.store, "nulls", data=NULLS, chunks=CHUNKS)


@pytest.fixture(scope="module", params=["local", "memory", "s3"])
def reopen(request, tmp_path_factory):
    """Opens a repository anew for every round, so that nothing was read from it yet."""
    kind, options = request.param, {}
    if kind == "s3":
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        options = request.getfixturevalue("moto_server").options
    else:
        url = "memory://" if kind == "memory" else str(tmp_path_factory.mktemp("threads") / "repository")
    repo = intarsia.open_repository(url, create=True, **options)
    with intarsia.transaction(repo, message="all of it") as tx:
        filled(tx)
    return (lambda: repo) if kind == "memory" else partial(intarsia.open_repository, url, **options)


def right(array):
    np.testing.assert_array_equal(array[...], VALUES)


def one_handle(repo, count):
    array = intarsia.open(repo, "a")
    return [lambda: right(array)] * count


def handles_of_one_session(repo, count):
    store = repo.readonly_session("main").store
    arrays = [intarsia.open(store, VARIABLES[i % len(VARIABLES)]) for i in range(count)]
    return [lambda array=array: right(array) for array in arrays]


def opened_in_threads(repo, count):
    session = repo.readonly_session("main")
    return [lambda i=i: right(intarsia.open(session, VARIABLES[i % len(VARIABLES)])) for i in range(count)]


def sessions(repo, count):
    return [lambda i=i: right(intarsia.open(repo, VARIABLES[i % len(VARIABLES)])) for i in range(count)]


def nullables(repo, count):
    store = repo.readonly_session("main").store
    shared = intarsia.nullable.open_array(store, "nulls", mode="r")

    def read(i):
        array = intarsia.nullable.open_array(store, "nulls", mode="r") if i % 2 else shared
        found = array[...]
        np.testing.assert_array_equal(found.mask, NULLS.mask)
        np.testing.assert_array_equal(found.compressed(), NULLS.compressed())

    return [lambda i=i: read(i) for i in range(count)]


def views(repo, count):
    session = repo.readonly_session("main")
    group = intarsia.fused_view(session)
    works = [lambda i=i: right(group[VARIABLES[i % len(VARIABLES)]]) for i in range(count // 2)]
    return works + [lambda: right(intarsia.fused_view(session, "a"))] * (count - len(works))


def everything(repo, count):
    """Reads, opens of what is there and what is not, pickles, texts and listings, all of one session."""
    session = repo.readonly_session("main")
    group, array = intarsia.fused_view(session), intarsia.open(session, "a")

    def missing():
        with pytest.raises(NotLogicalArrayError):
            intarsia.open(session, "nowhere")

    def travel():
        pickled = pickle.dumps(array)
        if "in-memory" not in str(repo.storage):  # which stays where it is
            right(pickle.loads(pickled))

    works = [
        lambda: right(array),
        lambda: right(intarsia.open(session, "b")),
        travel,
        lambda: right(group["c"]),
        missing,
        lambda: [repr(array), str(array.store), repr(array.group), repr(array.regions)],
        lambda: sorted(array.group.array_keys()) + sorted(group.group_keys()),
        lambda: right(xr.open_dataset(session, engine="intarsia")["d"].values),
    ]
    return [works[i % len(works)] for i in range(count)]


def threads_of_dask(repo, count):
    data = xr.open_dataset(repo, engine="intarsia", chunks={})[[*VARIABLES]]

    def mean():
        with dask.config.set(scheduler="threads", num_workers=count):
            means = data.mean().compute()
        for name in VARIABLES:
            np.testing.assert_allclose(means[name], VALUES.mean(), rtol=1e-5)

    return [mean]


WAYS = (
    one_handle,
    handles_of_one_session,
    opened_in_threads,
    sessions,
    nullables,
    views,
    everything,
    threads_of_dask,
)


@pytest.mark.parametrize(("way", "count"), [*((way, 8) for way in WAYS), (everything, 32)])
def test_first_reads(reopen, way, count):
    for _ in range(2 if count == 8 else 1):
        at_once(way(reopen(), count))


def read_over_http(repo, count):
    """Chunks and metadata, from a server that has not read anything yet."""

    def read(url):
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
            return answer.read()

    def chunk(place):
        values = np.frombuffer(read(f"{place}/c/1/2"), "<f4")
        np.testing.assert_array_equal(values.reshape(CHUNKS), VALUES[3:6, 8:12])

    with intarsia.serve(repo, codecs=[], port=0) as server:
        places = [f"{server.url}/{VARIABLES[i % len(VARIABLES)]}" for i in range(count // 2)]
        works = [lambda place=place: chunk(place) for place in places]
        at_once(works + [lambda place=place: read(f"{place}/zarr.json") for place in places])


@pytest.mark.parametrize("count", [8, 32])
def test_a_server(reopen, count):
    read_over_http(reopen(), count)


def in_one_transaction(tx, count):
    """Threads that write to, create, open, miss, list and read arrays of one transaction."""
    array = tx.create("w", shape=(8 * count,), chunks=(1,), dtype="i8")
    array.add_region([(0, 8 * count)], codecs=[])
    plain = zarr.create_array(tx.store, name="p", shape=(8,), chunks=(1,), dtype="i8")

    def write(i):
        array[8 * i : 8 * i + 8] = np.arange(8 * i, 8 * i + 8)
        plain[:] = 3

    def create(i):
        made = tx.create(f"new-{i}", shape=(0,), chunks=(2,), dtype="u1")
        made.append([1, 2], codecs=[])
        assert made[...].tolist() == [1, 2]

    def miss(_):
        for _ in range(4):
            with pytest.raises(NotLogicalArrayError):
                tx.open("missing")
            with pytest.raises(FileNotFoundError):
                zarr.open_group(tx.store, path="missing", mode="r")

    def look(_):
        assert {"w", *VARIABLES} <= set(zarr.open_group(tx.store, mode="r").group_keys())
        assert "icechunk:main" in repr(tx.open("w"))
        assert tx.session.has_uncommitted_changes

    works = [lambda i=i: write(i) for i in range(count)]
    for other in (create, miss, look):
        works += [lambda i=i, other=other: other(i) for i in range(count // 3)]
    works += [lambda: right(tx.open("a")) for _ in range(count // 3)]
    at_once(works)
    assert array[...].tolist() == list(range(8 * count))


class UndoneError(Exception):
    """Ends a transaction, so that the next one begins with the same."""


def undone_transaction(repo, count):
    with suppress(UndoneError), intarsia.transaction(repo, message="never") as tx:
        in_one_transaction(tx, count)
        raise UndoneError


@pytest.mark.parametrize("count", [4, 16])
def test_threads_of_one_transaction(reopen, count):
    undone_transaction(reopen(), count)
    undone_transaction(reopen(), count)
