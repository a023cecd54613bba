"""What parses files: this thread, its own threads or processes, an executor or a cluster.

Files are parsed in order, and never far ahead: only a bounded number of tasks have results waiting, so the
consumer decides how much is in memory.

Processes of our own are started as programs, and fed through pipes. They are not forked, so that no thread of
Icechunk is lost, and they do not import the caller's script, as `multiprocessing` does. If one cannot be
started, or dies, its files are parsed here.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import batched, islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from intarsia.engine.config import cores
from intarsia.errors import IngestError
from intarsia.parallel import Client, check_client, result_of

if TYPE_CHECKING:
    from intarsia.archives.parsed_file import ParsedFile, ParseFailure

type Engine = int | Client | None
"""A number of threads, a `dask.distributed.Client`, or an executor of `concurrent.futures`."""

FILES_A_TASK = 16
"""How many files a worker parses in one task: what they have in common is sent once."""

TASKS_AHEAD = 3
"""How many tasks are given out per worker, so that none waits for the next."""

TRIED = 100
"""How many files are parsed here before we know whether processes would be worth starting."""

PAYING = 4.0
"""How many seconds of parsing make that worthwhile: a process takes one or two seconds to start."""

MAX_PROCESSES = 8
"""How many processes one process can give work to and take results from."""

USUAL_WORKERS = 8
"""The number of workers if it is unknown."""


def check_engine(client: Any) -> Engine:
    """What should parse, if it can.

    >>> check_engine(4)
    4
    >>> check_engine("cluster")
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: client='cluster' cannot parse files: give a number of threads, a \
dask.distributed.Client, or an executor of concurrent.futures
    """
    if isinstance(client, int) and not isinstance(client, bool):
        return client
    if not callable(getattr(client, "submit", None)):
        raise IngestError(
            f"client={client!r} cannot parse files: give a number of threads, a dask.distributed.Client, "
            "or an executor of concurrent.futures"
        )
    engine: Client = client
    return engine


type Parse = Callable[[Sequence[str]], list[ParsedFile | ParseFailure]]


def parse_with(engine: Engine, parse: Parse, urls: Sequence[str], *, remote: bool) -> Iterator[Any]:
    """The results of `parse` for all URLs, some at a time, in order.

    By default, this thread parses, and processes of its own do if enough work is left for them.
    """
    if engine is None:
        first, rest = urls[:TRIED], urls[TRIED:]
        began = time.perf_counter()
        yield from parse_with(1, parse, first, remote=remote)
        seconds = (time.perf_counter() - began) / max(1, len(first)) * len(rest)
        count = min(cores(), MAX_PROCESSES)
        if seconds < PAYING or count < 2 or not can_be_started():
            yield from parse_with(1, parse, rest, remote=remote)
            return
        with closing(ParseWorkers(parse, count)) as workers:
            yield from _in_threads(workers.parse, batched(rest, FILES_A_TASK), count)
    elif isinstance(engine, int):
        if engine > 1:
            yield from _in_threads(parse, batched(urls, 1), engine)
        for url in urls if engine <= 1 else ():
            yield from parse([url])
    else:
        if remote and isinstance(engine, Executor):
            check_client(engine)
        ahead = TASKS_AHEAD * _workers_of(engine)
        files = max(1, min(FILES_A_TASK, len(urls) // ahead))
        yield from _submit_ahead(engine, parse, batched(urls, files), ahead)


def _in_threads(parse: Parse, tasks: Iterator[Sequence[str]], count: int) -> Iterator[Any]:
    pool = ThreadPoolExecutor(max_workers=count)
    try:
        yield from _submit_ahead(pool, parse, tasks, TASKS_AHEAD * count)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C the remaining files are not wanted


def _workers_of(engine: Any) -> int:
    count = getattr(engine, "_max_workers", None)
    if count is None and callable(getattr(engine, "nthreads", None)):  # from dask
        count = sum(engine.nthreads().values())
    return max(1, count or USUAL_WORKERS)


def _submit_ahead(client: Any, parse: Parse, tasks: Any, ahead: int) -> Iterator[Any]:
    """The results of tasks, in order; at most `ahead` tasks are given out before their results are taken."""
    run = uuid.uuid4().hex  # dask treats equal calls as one; files may have changed since
    waiting: deque[tuple[Any, Sequence[str]]] = deque()
    left = iter(tasks)
    try:
        while True:
            for task in islice(left, ahead - len(waiting)):
                waiting.append((client.submit(_do, run, parse, tuple(task)), task))
            if not waiting:
                return
            future, task = waiting.popleft()
            yield from _result(future, task)
    finally:
        for future, _ in waiting:
            future.cancel()


def _result(future: Any, task: Sequence[str]) -> list[Any]:
    try:
        results: list[Any] = result_of(future)
    except Exception as error:
        if not isinstance(error, BrokenExecutor) and type(error).__name__ != "KilledWorker":  # from dask
            raise
        more = f" and {len(task) - 1} more" if len(task) > 1 else ""
        raise IngestError(
            f"a process that parsed {task[0]}{more} died ({error}).\n"
            "  What is committed stays; ingest again to continue"
        ) from error
    return results


def _do(_run: str, parse: Parse, urls: Sequence[str]) -> list[ParsedFile | ParseFailure]:
    return parse(urls)


PROGRAM = "import sys; sys.path[:] = {path!r}; from intarsia.archives.parse_pool import serve; serve()"


def can_be_started() -> bool:
    """Whether this interpreter can be started as a program: one embedded in another program cannot."""
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


class ParseWorkers:
    """As many processes as tasks may run at once. Any thread may give them a task."""

    def __init__(self, parse: Parse, count: int) -> None:
        self._parse = parse
        self._closed = False
        self._started: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        command = [sys.executable, "-c", PROGRAM.format(path=sys.path)]
        for _ in range(count):
            worker = None
            with suppress(OSError):
                worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self._started.append(worker)
                send(worker.stdin, parse)
            self._idle.put(worker)

    def parse(self, urls: Sequence[str]) -> list[Any]:
        """Parse some files in a process; if that does not answer, parse them here."""
        worker, results = self._idle.get(), None
        with suppress(OSError, ValueError):  # ValueError if its pipes are closed
            if worker is not None:
                send(worker.stdin, urls)
                results = receive(worker.stdout)
        self._idle.put(worker)
        if results is None:
            return [] if self._closed else self._parse(urls)
        answer: list[Any] = results
        return answer

    def close(self) -> None:
        """End all of them, even those at work: nobody waits for them any more."""
        self._closed = True
        for worker in self._started:
            worker.kill()
            with suppress(OSError), worker:  # closes its pipes, and waits for its end
                pass


def send(pipe: Any, message: Any) -> None:
    """Write a message into a pipe."""
    pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def receive(pipe: Any) -> Any:
    """The next message from a pipe; None if it has ended, also in the middle of a message."""
    try:
        return pickle.load(pipe)
    except (EOFError, pickle.UnpicklingError):
        return None


def serve() -> None:
    """Run as such a process: parse what comes, until nothing more comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that gives out the tasks
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    parse = receive(sys.stdin.buffer)
    while (urls := receive(sys.stdin.buffer)) is not None:
        send(answers, parse(urls))
