"""Work spread over other processes, and what they wrote, back in one store."""

import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
import zarr

import intarsia
from intarsia.parallel import WriteResult, WriterPool, run_on_workers


def write(store, task):
    path, number = task
    if number < 0:
        raise ValueError(f"task {number}")
    zarr.open_array(store, path=path, mode="r+")[number] = number
    return number * 2


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def repo(tmp_path):
    return intarsia.open_repository(tmp_path / "repo", create=True)


def array_in(store):
    return zarr.create_array(store, name="a", shape=6, chunks=1, dtype="i4", fill_value=-1)


def test_what_processes_write_into_forks_ends_up_in_the_session(processes, repo):
    session = repo.writable_session("main")
    array = array_in(session.store)
    seen = []
    results = run_on_workers(
        processes, session.store, write, [("a", i) for i in range(6)], lambda *n: seen.append(n)
    )
    assert results == [0, 2, 4, 6, 8, 10]
    assert array[:].tolist() == [0, 1, 2, 3, 4, 5]
    assert seen == [(done, 6) for done in range(7)]
    session.commit("written")
    assert zarr.open_array(repo.readonly_session("main").store, path="a")[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_tasks_may_write_to_a_fork(processes, repo):
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a")
    fork = session.fork()
    array_in(fork.store)
    run_on_workers(processes, fork.store, write, [("a", i) for i in range(6)])
    session.merge(fork)
    assert zarr.open_array(session.store, path="a")[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_processes_write_into_a_directory(processes, tmp_path):
    store = zarr.storage.LocalStore(tmp_path / "plain")
    array = array_in(store)
    run_on_workers(processes, store, write, [("a", i) for i in range(6)])
    assert array[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_task_that_fails_raises_its_error(processes, repo):
    session = repo.writable_session("main")
    array_in(session.store)
    with pytest.raises(ValueError, match="task -1"):
        run_on_workers(processes, session.store, write, [("a", i) for i in (0, -1, 2)])


def test_threads_share_the_store_itself():
    store = zarr.storage.MemoryStore()
    array = array_in(store)
    with ThreadPoolExecutor(2) as pool:
        run_on_workers(pool, store, write, [("a", i) for i in range(6)])
    assert array[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_memory_is_not_handed_to_other_processes(processes):
    with pytest.raises(intarsia.errors.UnsharedStorageError, match="memory of this process"):
        run_on_workers(processes, zarr.storage.MemoryStore(), write, [])
    repo = intarsia.open_repository("memory://", create=True)
    session = repo.writable_session("main")
    array_in(session.store)
    with pytest.raises(intarsia.errors.UnsharedStorageError, match="memory of another process"):
        run_on_workers(processes, session.store, write, [("a", 1)])


def test_a_chunk_that_cannot_be_read_from_here_is_noticed(repo, tmp_path):
    """As when a worker has a disk of its own: its chunk is not in the repository that we see."""
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=2000, chunks=1000, dtype="i4", compressors=None)
    pool = WriterPool(session.store)
    store = pool.handle.open()
    zarr.open_array(store, path="a", mode="r+")[:1000] = 7
    changes = pickle.dumps(store.session)
    for chunk in (tmp_path / "repo" / "chunks").iterdir():
        chunk.unlink()
    with pytest.raises(
        intarsia.errors.UnsharedStorageError, match="worker elsewhere:1 wrote the chunk a/c/0"
    ):
        pool.merge(WriteResult("elsewhere:1", changes))


def test_an_executor_that_forks_is_refused_before_it_starts_a_process(repo, tmp_path):
    session = repo.writable_session("main")
    array_in(session.store)
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        with pytest.raises(intarsia.errors.ForkedProcessError, match="spawn"):
            run_on_workers(pool, session.store, write, [("a", 1)])
        assert not pool._processes


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")  # Python's own, about forking with threads
import dask, dask.array as da, numpy as np, intarsia

def made(store, path):
    array = intarsia.create(store, path, shape=(0, 9), chunks=(1, 9), dtype="f4")
    array.append(np.ones((8, 9)), codecs=["zstd"])

made(sys.argv[1] + "/plain", "a")
location = sys.argv[1] + "/repository"
repo = intarsia.open_repository(location, create=True)
with intarsia.transaction(repo, message="create") as tx:
    made(tx.store, "a")
    made(tx.store, "b")
array, plain = intarsia.open(repo, "a"), intarsia.open(sys.argv[1] + "/plain", "a")
assert intarsia.open(repo, "b")[...].sum() == plain[...].sum() == 72
tx = intarsia.transaction(repo).__enter__()
writable = tx.open("a")

def said(call):
    try:
        return call()
    except intarsia.errors.ForkedProcessError:
        return "refused"

def write():
    writable[...] = 2

def append():
    there = intarsia.open(sys.argv[1] + "/plain", "a", mode="r+")
    there.append(np.ones((1, 9)), codecs=["gzip"])
    return there[...].sum()

child = os.fork()
if not child:
    calls = [
        lambda: array[...],
        lambda: intarsia.open(location, "a"),
        lambda: intarsia.open(repo, "a"),
        lambda: tx.open("a"),
        write,
        lambda: writable.append(np.ones((1, 9)), codecs=[]),
        lambda: writable.attrs.update(x=1),
        lambda: intarsia.append(repo, "a", np.ones((1, 9))),
    ]
    print([said(call) for call in calls] == ["refused"] * len(calls), plain[...].sum(), append(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
with dask.config.set({"scheduler": "processes", "multiprocessing.context": "fork"}):
    print(said(lambda: intarsia.store_dask(da.ones((4, 4)), repo, "c")))
"""


def test_a_forked_process_refuses_icechunk_and_works_with_other_stores(tmp_path):
    """Icechunk would wait there for ever for threads that only its parent has."""
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["True 72.0 81.0", "refused"], done.stderr
