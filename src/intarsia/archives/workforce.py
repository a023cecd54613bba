"""Who parses files: this thread, threads or processes of its own, an executor or a cluster.

They do it in order, and never far ahead: results wait only for a bounded number of tasks, so that whoever
takes them decides how much is in memory.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from itertools import batched, islice
from typing import TYPE_CHECKING, Any

from intarsia.archives.parse_workers import ParseWorkers, can_be_started
from intarsia.errors import IngestError
from intarsia.parallel import Client, check_client, result_of

if TYPE_CHECKING:
    from intarsia.archives.parsed import Failure, ParsedFile

type Engine = int | Client | None
"""A number of threads, a `dask.distributed.Client`, or an executor of `concurrent.futures`."""

FILES_A_TASK = 16
"""Files that a worker parses in one go: what they have in common travels once."""

TASKS_AHEAD = 3
"""Tasks that are given out for every worker, so that none waits for the next."""

TRIED = 100
"""Files that are parsed here before it is known whether processes of their own would be worth their start."""

PAYING = 4.0
"""Seconds of parsing that are: a process takes one or two of them to start."""

MOST_PROCESSES = 8
"""What one process can give work to, and take results from."""

USUAL_WORKERS = 8
"""Where nobody says how many there are."""


def checked_engine(client: Any, workers: Any) -> Engine:
    """Who is to parse, as callers say it: by `client` or, as it was called once, by `workers`.

    >>> checked_engine(4, None), checked_engine(None, 2)
    (4, 2)
    >>> checked_engine("cluster", None)
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: client='cluster' cannot parse files: give a number of threads, a \
dask.distributed.Client, or an executor of concurrent.futures
    """
    if client is not None and workers is not None:
        raise IngestError("client= and workers= say the same: give one of them")
    name, given = ("workers", workers) if client is None else ("client", client)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if not callable(getattr(given, "submit", None)):
        raise IngestError(
            f"{name}={given!r} cannot parse files: give a number of threads, a dask.distributed.Client, "
            "or an executor of concurrent.futures"
        )
    engine: Client = given
    return engine


type Parse = Callable[[Sequence[str]], list[ParsedFile | Failure]]


def parsed_by(engine: Engine, parse: Parse, urls: Sequence[str], *, remote: bool) -> Iterator[Any]:
    """What `parse` makes of all URLs, some at a time, in their order.

    If nobody is named, that is this thread, and processes of its own where there is enough left for them.
    """
    if engine is None:
        first, rest = urls[:TRIED], urls[TRIED:]
        began = time.perf_counter()
        yield from parsed_by(1, parse, first, remote=remote)
        seconds = (time.perf_counter() - began) / max(1, len(first)) * len(rest)
        count = min(_processors(), MOST_PROCESSES)
        if seconds < PAYING or count < 2 or not can_be_started():
            yield from parsed_by(1, parse, rest, remote=remote)
        else:
            yield from _in_processes(parse, rest, count)
        return
    if isinstance(engine, int):
        if engine <= 1 or len(urls) < 2:
            for url in urls:
                yield from parse([url])
            return
        pool = ThreadPoolExecutor(max_workers=engine)
        try:
            yield from _given_out(pool, parse, [[url] for url in urls], TASKS_AHEAD * engine)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C nobody wants the files that are left
        return
    if remote and isinstance(engine, Executor):
        check_client(engine)
    workers = _workers_of(engine)
    files = max(1, min(FILES_A_TASK, len(urls) // (TASKS_AHEAD * workers)))
    yield from _given_out(engine, parse, batched(urls, files), TASKS_AHEAD * workers)


def _processors() -> int:
    """How many processors this process may use; before Python 3.13, how many there are."""
    return getattr(os, "process_cpu_count", os.cpu_count)() or 1


def _in_processes(parse: Parse, urls: Sequence[str], count: int) -> Iterator[Any]:
    workers = ParseWorkers(parse, count)
    pool = ThreadPoolExecutor(max_workers=count)
    try:
        tasks = batched(urls, FILES_A_TASK)
        yield from _given_out(pool, workers.parse, tasks, TASKS_AHEAD * count)
    finally:
        workers.close()  # whoever waits for one of them gets no answer
        pool.shutdown(cancel_futures=True)


def _workers_of(engine: Any) -> int:
    known = getattr(engine, "_max_workers", None)
    if known is None and callable(getattr(engine, "nthreads", None)):  # of dask
        known = sum(engine.nthreads().values())
    return max(1, known or USUAL_WORKERS)


def _given_out(client: Any, parse: Parse, tasks: Any, ahead: int) -> Iterator[Any]:
    """The results of tasks, in order; no more of them are given out than `ahead` of what was taken."""
    run = uuid.uuid4().hex  # dask takes equal calls for one; files may have changed since
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
        found: list[Any] = result_of(future)
    except BrokenExecutor as error:
        raise IngestError(f"a process that parsed files died ({error}). {_words(task)}") from error
    except Exception as error:
        distributed = sys.modules.get("distributed")
        if distributed is None or isinstance(future, Future) or type(error).__name__ != "KilledWorker":
            raise
        raise IngestError(f"workers died again and again. {_words(task)}") from error
    return found


def _words(task: Sequence[str]) -> str:
    more = f" and {len(task) - 1} more" if len(task) > 1 else ""
    return f"It was at {task[0]}{more}.\n  What is committed stays; ingest again to go on"


def _do(_run: str, parse: Parse, urls: Sequence[str]) -> list[ParsedFile | Failure]:
    return parse(urls)
