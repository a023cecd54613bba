"""Running work in a few threads that live no longer than the work.

The calling thread works too. All reads of a process together take no more helpers than one of them may, so
reads from many threads (as dask makes them) do not multiply.
"""

from __future__ import annotations

import os
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]


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
    give_up: Callable[[], None] = lambda: None,
) -> None:
    """Do `work` on everything that `take` hands out until it hands out None, in up to so many threads.

    The first failure stops the others after the piece they are at, and is raised; `give_up` is called so that
    they do not wait for what is on its way. No thread is left behind, not by a failure and not by
    KeyboardInterrupt.

    >>> left, done = [3, 2, 1], []
    >>> run(lambda: left.pop() if left else None, done.append, threads=1)
    >>> done
    [1, 2, 3]
    """
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
            give_up()

    helpers = _helpers
    granted = helpers.take(threads - 1, threads - 1) if threads > 1 else 0
    started: list[threading.Thread] = []
    try:
        for _ in range(granted):
            thread = threading.Thread(target=copy_context().run, args=(loop,), name="intarsia", daemon=True)
            thread.start()
            started.append(thread)
        loop()
    finally:
        try:
            for thread in started:
                thread.join()
        except BaseException:  # interrupted while waiting: stop them, then wait after all
            stop.set()
            give_up()
            for thread in started:
                thread.join()
            raise
        finally:
            helpers.give_back(granted)
    if failures:
        raise failures[0]
