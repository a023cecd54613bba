"""A progress bar for whatever takes a `progress`: in a terminal or notebook, and nowhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from intarsia.interop.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intarsia.progress import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str = "", *, console: Any = None) -> Iterator[Progress]:
    """A bar that is shown during a `with` block; give what it yields to the operation.

    Made by rich, on the error stream unless a `rich.console.Console` is given. Where nobody looks (the stream
    is a file or a pipe) nothing is shown.

    >>> import dask.array as da, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.progress_bar("store") as progress:
    ...     snapshot = intarsia.store_dask(da.ones(10, chunks=5), repo, "ones", progress=progress)
    """
    rich = require("rich.progress", "cli")
    target = console or require("rich.console", "cli").Console(stderr=True)
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn())
    shown = target.is_terminal or target.is_jupyter
    with rich.Progress(*columns, rich.TimeRemainingColumn(), console=target, disable=not shown) as bars:
        task = bars.add_task(what, total=None)

        def show(done: int, total: int, /) -> None:
            bars.update(task, completed=done, total=total)

        yield show
