"""Progress bars: shown on the error stream, on a terminal only, for whatever takes more than a moment."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from intarsia.cli.output import stderr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intarsia.progress import Progress

__all__ = ["waiting"]

PATIENCE = 0.5
"""Seconds before a bar appears: what is over sooner needs none."""


class _Bar:
    """A bar that appears when the work turns out to take a while."""

    def __init__(self, what: str, *, counted: bool) -> None:
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
        if counted:
            columns.insert(2, MofNCompleteColumn())
        self._bars = Bars(*columns, console=stderr(), transient=True)
        self._task = self._bars.add_task(what, total=None)
        self._lock = threading.Lock()
        self._open, self._shown = True, False
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self._open:
                self._shown = True
                self._bars.start()

    def __call__(self, done: int, total: int, /) -> None:
        self._bars.update(self._task, completed=done, total=total)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._open = False
            if self._shown:
                self._bars.stop()


@contextmanager
def waiting(what: str, *, counted: bool = True) -> Iterator[Progress]:
    """A bar for the time of a `with` block; what it yields takes (done, total).

    Work that cannot count its steps (`counted=False`) gets a bar without an end, and the time it takes.
    """
    bar = _Bar(what, counted=counted)
    if sys.stderr.isatty():
        bar.start()
    try:
        yield bar
    finally:
        bar.close()
