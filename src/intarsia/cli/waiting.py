"""Progress bars: shown on the error stream, on a terminal only, for whatever takes more than a moment."""

from __future__ import annotations

import sys
import time
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
"""Seconds before a bar with a known end appears: what is over sooner needs none."""


class _Bar:
    """A bar that appears when the work turns out to take a while."""

    def __init__(self, what: str, *, counted: bool) -> None:
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
        if counted:
            columns.insert(2, MofNCompleteColumn())
        self._bars = Bars(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty())
        self._task = self._bars.add_task(what, total=None)
        self._begun = time.monotonic()
        self._shown = False

    def show(self) -> None:
        if not self._shown:
            self._shown = True
            self._bars.start()

    def __call__(self, done: int, total: int, /) -> None:
        self._bars.update(self._task, completed=done, total=total)
        if time.monotonic() - self._begun > PATIENCE:
            self.show()

    def close(self) -> None:
        if self._shown:
            self._bars.stop()


@contextmanager
def waiting(what: str, *, counted: bool = True) -> Iterator[Progress]:
    """A bar for the time of a `with` block; what it yields takes (done, total).

    Work that cannot count its steps (`counted=False`) gets a bar without an end, and the time it takes.
    """
    bar = _Bar(what, counted=counted)
    if not counted:
        bar.show()
    try:
        yield bar
    finally:
        bar.close()
