"""Running work in other processes: on anything that has a `submit`, with a store that all of them write to.

Workers get a handle of the store. An Icechunk session is sent as a fork of itself, once for every task, and
each fork's changes come back and are merged. So a worker that dies loses its own changes and nothing else,
and its work can be done again without being done twice. Other stores are sent as they are.
"""

import os
import pickle
import socket
import sys
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from concurrent import futures  # imports its pools when they are first named
from dataclasses import dataclass, field
from typing import Any, Protocol

import icechunk
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from intarsia import errors
from intarsia._icechunk import safe_store, writing
from intarsia.progress import Progress, silent

_forked = False


def _remember_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_remember_fork)

FIRST_TIMEOUT = 30.0
"""Seconds after which a result is requested from dask again; then twice as many, and so on."""

SPAWN = 'ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")), or "forkserver"'


def check_process() -> None:
    """Refuse to use Icechunk in a process that was forked from one that had imported it.

    Icechunk starts its threads when it is imported. A forked child does not have them, and most calls would
    wait for them for ever. zarr's own stores may be used there: zarr starts its event loop again.

    >>> check_process()
    """
    if _forked:
        raise errors.ForkedProcessError(
            "this process was forked from one that had imported Icechunk, whose threads do not survive a "
            f"fork.\n  Start processes in another way: {SPAWN}"
        )


def check_store(store: Any) -> None:
    """Refuse an Icechunk store in a forked process.

    >>> check_store({})
    """
    if _forked and isinstance(store, icechunk.IcechunkStore):
        check_process()


def check_client(client: Any) -> None:
    """Refuse an executor whose workers are forked, before it starts any.

    >>> check_client(futures.ThreadPoolExecutor(1))
    """
    context = getattr(client, "_mp_context", None)  # of a pool of processes
    if context is not None and context.get_start_method() == "fork":
        raise errors.ForkedProcessError(
            "the executor forks this process, and the threads of Icechunk and of remote stores do not "
            "survive a fork.\n"
            f"  Use one that starts processes in another way: {SPAWN}"
        )


class Client(Protocol):
    """Runs functions elsewhere: a `dask.distributed.Client`, or an executor of `concurrent.futures`.

    >>> from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    >>> client: Client = ThreadPoolExecutor(1)
    >>> client.submit(abs, -1).result()
    1
    """

    def submit(self, function: Any, /, *args: Any) -> Any:
        """Run `function(*args)` and return a future, which has `result` and `cancel`."""


@dataclass(frozen=True)
class WriteResult:
    """What a worker returns: its name, and the changes that it made."""

    worker: str
    """The host and process of the worker."""

    changes: bytes | None
    """The fork with its changes; None if the store was written to directly."""


@dataclass(frozen=True)
class StoreHandle:
    """A store on its way to a worker.

    >>> import zarr
    >>> store = zarr.storage.MemoryStore()
    >>> StoreHandle(store=store).open() is store
    True
    """

    fork: bytes | None = None
    """A fork of an Icechunk session."""

    store: Any = None
    """Any other store."""

    def open(self) -> Any:
        """The store to write to; every call opens a fork of its own."""
        if self.fork is None:
            return self.store
        check_process()
        store = safe_store(pickle.loads(self.fork).store)
        try:
            sync(store.exists("zarr.json"))
        except icechunk.StorageError as error:
            raise _unshared(f"the worker {_worker_name()} cannot read the repository", error) from error
        return store

    def result(self, store: Any) -> WriteResult:
        """What the worker has to return after writing."""
        return WriteResult(_worker_name(), None if self.fork is None else pickle.dumps(store.session))


def _unshared(what: str, error: Exception) -> errors.UnsharedStorageError:
    return errors.UnsharedStorageError(
        f"{what}: the storage is in the memory of another process, or on a disk that others do not have.\n"
        f"  Use storage that all workers reach. Icechunk says: {error}"
    )


def fork_of(store: Any) -> icechunk.ForkSession:
    """A fork of the writable session of an Icechunk store; a fork is its own."""
    session = store.session
    return session if isinstance(session, icechunk.ForkSession) else session.fork()


def _worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass
class WriterPool:
    """The workers that write to one store, from the point of view of the process that has it.

    >>> import zarr
    >>> pool = WriterPool(zarr.storage.MemoryStore(), in_process=True)
    >>> pool.merge(pool.handle.result(pool.handle.open()))
    """

    store: Any
    """The store that everything ends up in."""

    in_process: bool = False
    """Whether the workers are threads of this process, which can share the store itself."""

    handle: StoreHandle = field(init=False)
    """What every task gets."""

    _workers: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if not self.in_process and isinstance(self.store, MemoryStore):
            raise errors.UnsharedStorageError(
                "the store is in the memory of this process: other processes cannot write to it.\n"
                "  Write with threads, or to a store on disk or in the cloud"
            )
        if not self.in_process and isinstance(self.store, icechunk.IcechunkStore):
            self.handle = StoreHandle(fork=pickle.dumps(fork_of(self.store)))
        else:
            self.handle = StoreHandle(store=self.store)

    def merge(self, result: WriteResult) -> None:
        """Merge the changes of a worker."""
        if result.changes is None:
            return
        fork: icechunk.ForkSession = pickle.loads(result.changes)
        session = self.store.session
        with writing(session):
            session.merge(fork)
        if result.worker not in self._workers:
            self._check(result.worker, fork)
            self._workers.add(result.worker)

    def _check(self, worker: str, fork: icechunk.ForkSession) -> None:
        """The first chunk of every worker must be readable from here."""
        for path, chunks in fork.status().updated_chunks.items():
            for index in chunks[:1]:
                key = "/".join([path.strip("/"), "c", *map(str, index)])
                try:
                    sync(self.store.get(key, default_buffer_prototype(), RangeByteRequest(0, 1)))
                except icechunk.IcechunkError as error:
                    what = f"the worker {worker} wrote the chunk {key}, but it cannot be read from here"
                    raise _unshared(what, error) from error
                return


def run_on_workers(
    client: Client,
    store: Any,
    function: Callable[[Any, Any], Any],
    tasks: Iterable[Any],
    progress: Progress = silent,
) -> list[Any]:
    """Call `function(store, task)` for every task on the client's workers, and return the results in order.

    What the workers write ends up in `store`. If a task fails, the others are cancelled, its error is raised,
    and `store` holds the changes of some tasks.

    >>> from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    >>> import zarr
    >>> def write(store, i):
    ...     zarr.create_array(store, name=str(i), shape=2, dtype="i4")[:] = i
    ...     return i
    >>> store = zarr.storage.MemoryStore()
    >>> run_on_workers(ThreadPoolExecutor(2), store, write, [3, 4])
    [3, 4]
    >>> int(zarr.open_array(store, path="4")[0])
    4
    """
    if isinstance(client, futures.ProcessPoolExecutor):
        _check_pickles(function)
    if isinstance(store, icechunk.IcechunkStore):
        check_client(client)
    pool = WriterPool(store, in_process=isinstance(client, futures.ThreadPoolExecutor))
    run = uuid.uuid4().hex  # dask runs equal calls only once, but each of these has to run
    submitted = [client.submit(_run_task, run, pool.handle, function, task) for task in tasks]
    results = []
    progress(0, len(submitted))
    try:
        for done, future in enumerate(submitted, 1):
            result, changes = result_of(future)
            pool.merge(changes)
            results.append(result)
            progress(done, len(submitted))
    except BaseException as error:
        for future in submitted[len(results) :]:
            future.cancel()
        if isinstance(error, Exception):  # code that catches it finds the store at rest
            futures.wait([future for future in submitted if isinstance(future, futures.Future)])
        raise
    return results


def result_of(future: Any) -> Any:
    """Wait for the result of a task, and request it again if no answer comes.

    dask's scheduler fetches it from the worker. If a worker dies at that moment, the scheduler may try to
    reach it until a timeout (`distributed.comm.timeouts.connect`), and answers none of the simultaneous
    requests. A repeated request gets the result from where it is by then.

    >>> result_of(futures.ThreadPoolExecutor(1).submit(abs, -1))
    1
    """
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(future, distributed.Future):
        return future.result()
    timeout = FIRST_TIMEOUT
    while True:
        try:
            return future.result(timeout=timeout)
        except (TimeoutError, CancelledError):  # the second if there were simultaneous requests
            if future.status in ("error", "cancelled"):
                raise
            timeout *= 2


def _check_pickles(function: object) -> None:
    """Refuse work that cannot be sent to other processes, before any of them starts."""
    try:
        pickle.dumps(function)
    except Exception as error:
        raise errors.CodecConfigurationError(
            "the work cannot be sent to other processes: its run-time options (a decision, a padding "
            f"function) cannot be pickled: {error}\n"
            "  Define such functions at the top level of a module, use a dask client, or work without one"
        ) from error


def _run_task(
    _run: str, handle: StoreHandle, function: Callable[[Any, Any], Any], task: Any
) -> tuple[Any, WriteResult]:
    store = handle.open()
    result = function(store, task)
    return result, handle.result(store)


def snapshot_of(store: Any) -> str | None:
    """The snapshot that a read-only Icechunk session shows; None if values may change.

    >>> snapshot_of({}) is None
    True
    """
    if isinstance(store, icechunk.IcechunkStore) and store.session.read_only:
        return store.session.snapshot_id
    return None
