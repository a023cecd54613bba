"""Running work in a few threads that live no longer than the work.

The calling thread works too. All reads of a process together take no more helpers than one of them may, so
reads from many threads (as dask makes them) do not multiply.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context

START_SECONDS = 1.0
"""After this long a thread whose start was interrupted does not start any more."""


class _Helpers:
    """How many helping threads there are now."""

    def __init__(self) -> None:
        self._lock, self._busy = threading.Lock(), 0

    def take(self, wanted: int, most: int) -> int:
        with self._lock:
            granted = max(0, min(wanted, most - self._busy))
            self._busy += granted
            return granted

    def give_back(self, count: int) -> None:
        with self._lock:
            self._busy -= count


_helpers = _Helpers()


def _forget_helpers() -> None:
    """In a forked child no helper runs, whatever the parent was doing."""
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)


def run[T](
    take: Callable[[], T | None],
    work: Callable[[T], None],
    threads: int,
    give_up: Callable[[BaseException], None] = lambda _: None,
) -> None:
    """Do `work` on everything that `take` hands out until it hands out None, in up to so many threads.

    The first failure stops the others after the piece they are at, and is raised; `give_up` is called with
    it so that they do not wait for what is on its way. No thread is left behind, not by a failure and not by
    KeyboardInterrupt, which is raised whatever else failed.

    >>> left, done = [3, 2, 1], []
    >>> run(lambda: left.pop() if left else None, done.append, threads=1)
    >>> done
    [1, 2, 3]
    """
    if threads <= 1:  # as most small reads and writes
        try:
            while (piece := take()) is not None:
                work(piece)
        except BaseException as failure:
            give_up(failure)
            raise
        return
    failures: list[BaseException] = []
    stop = threading.Event()

    def loop() -> None:
        try:
            while not stop.is_set():
                piece = take()
                if piece is None:
                    return
                work(piece)
        except BaseException as failure:
            failures.append(failure)
            stop.set()
            give_up(failure)

    helpers = _helpers
    granted = helpers.take(threads - 1, threads - 1)
    started: list[_Helper] = []
    try:
        for _ in range(granted):
            started.append(_Helper(loop))
            started[-1].start()
        loop()
        for thread in started:
            thread.join()
    except BaseException as interrupt:  # while threads start, or while they are waited for
        stop.set()
        give_up(interrupt)
        for thread in started:
            thread.join_if_it_runs()
        raise
    finally:
        helpers.give_back(granted)
    if failures:
        raise next((f for f in failures if not isinstance(f, Exception)), failures[0])


class _Helper:
    """A thread that works in the context of its maker.

    It has a thread, and is none: every version of Python gives threads other private names.
    """

    def __init__(self, loop: Callable[[], None]) -> None:
        self._loop, self._context, self._runs = loop, copy_context(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="intarsia", daemon=True)

    def _run(self) -> None:
        self._runs.set()
        self._context.run(self._loop)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def join_if_it_runs(self) -> None:
        """Wait for its end; the thread may have been interrupted in the middle of being started."""
        if self._runs.wait(START_SECONDS):
            self.join()
