"""How a long operation reports its progress: a small protocol, silent by default, and a progress bar."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from intarsia.extras import import_extra

BAR_WIDTH = 40
NUMBERS_WIDTH, TIME_WIDTH = 38, 10
"""What steps, rate and time left take beside the bar and its name, or the time alone."""


class Progress(Protocol):
    """Called with the number of steps done and the total: first with 0, at the end with all.

    It is always called from the thread that called the operation. Any function of two numbers will do:

    >>> def show(done: int, total: int) -> None:
    ...     print(f"{done} of {total}")
    >>> progress: Progress = show
    >>> progress(1, 4)
    1 of 4
    """

    def __call__(self, done: int, total: int, /) -> object: ...


def silent(_done: int, _total: int, /) -> None:
    """The default, which shows nothing.

    >>> silent(1, 4)
    """


def part_of(progress: Progress, start: int, length: int, whole: int) -> Progress:
    """The progress of a part with its own steps: `length` of the `whole`, from `start` on.

    >>> def show(done: int, total: int) -> None:
    ...     print(f"{done} of {total}")
    >>> part_of(show, 100, 50, 200)(1, 2)
    125 of 200
    """

    def within(done: int, total: int, /) -> object:
        return progress(start + length * done // max(total, 1), whole)

    return within


@contextmanager
def progress_bar(
    what: str = "",
    *,
    console: Any = None,
    patience: float = 0.0,
    counted: bool = True,
    unit: Literal["steps", "bytes"] = "steps",
) -> Iterator[Progress]:
    """Show a bar named `what` during a `with` block; pass what it yields to the operation.

    rich draws it on the error stream, unless you give a `rich.console.Console`. Nothing is shown if the
    stream is a file or a pipe. With `patience`, the bar appears only after that many seconds, and is removed
    at the end. It shows the progress, the speed and the time left; if steps are bytes (`unit="bytes"`), it
    shows them in MB or similar. Work that cannot count its steps (`counted=False`) gets a bar without an
    end, and the time elapsed.

    >>> import dask.array as da, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.progress_bar("store") as progress:
    ...     snapshot = intarsia.store_dask(da.ones(10, chunks=5), repo, "ones", progress=progress)
    """
    rich = import_extra("rich.progress", "cli")
    target = console or import_extra("rich.console", "cli").Console(stderr=True)
    beside = len(what) + (NUMBERS_WIDTH if counted else TIME_WIDTH)
    room = min(target.width - beside, BAR_WIDTH)  # a narrow terminal has the numbers only
    columns = [rich.TextColumn("{task.description}"), *([rich.BarColumn(room)] if room >= 5 else [])]
    if not counted:
        columns += [rich.TimeElapsedColumn()]
    elif unit == "bytes":
        columns += [rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn()]
    else:
        rate = rich.TextColumn("{task.fields[rate]}")
        columns += [rich.MofNCompleteColumn(), rate, rich.TimeRemainingColumn()]
    bars = rich.Progress(*columns, console=target, transient=patience > 0)
    task = bars.add_task(what, total=None, rate="")

    def show(done: int, total: int, /) -> None:
        speed = bars.tasks[0].speed
        rate = "" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"
        bars.update(task, completed=done, total=total, rate=rate)

    timer = threading.Timer(patience, bars.start)
    timer.daemon = True
    if target.is_terminal or target.is_jupyter:
        (timer.start if patience else bars.start)()
    try:
        yield show
    finally:
        timer.cancel()
        if timer.ident:
            timer.join()  # it may be starting the bars at this moment
        if bars.live.is_started:
            bars.stop()
