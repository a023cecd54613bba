"""The protocol of progress, and the bar: in a terminal, and nowhere else."""

import io
import itertools
import re

import dask.array as da
from rich.console import Console

import intarsia
from intarsia.progress import silent


def test_the_default_says_nothing(capsys):
    assert silent(1, 2) is None
    assert capsys.readouterr() == ("", "")


def store(console):
    with intarsia.progress_bar("storing", console=console) as progress:
        intarsia.store_dask(da.ones(6, chunks=2), {}, "a", progress=progress)


def test_a_terminal_shows_a_bar():
    stream = io.StringIO()
    store(Console(file=stream, force_terminal=True, width=80))
    assert "storing" in stream.getvalue()
    assert "3/3" in stream.getvalue()


def test_a_file_shows_nothing():
    stream = io.StringIO()
    store(Console(file=stream, force_terminal=False))
    assert stream.getvalue() == ""


def test_a_bar_with_patience_does_not_show_for_short_work():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    with intarsia.progress_bar("short", console=console, patience=1e6, counted=False) as progress:
        progress(1, 1)
    assert stream.getvalue() == ""


def test_a_bar_stays_in_one_line_of_a_narrow_terminal():
    stream, clock = io.StringIO(), itertools.count()
    console = Console(file=stream, force_terminal=True, width=60, get_time=lambda: next(clock))
    with intarsia.progress_bar("reading every chunk", console=console, unit="bytes") as progress:
        progress(0, 864_000_000)
        for done in range(100):
            progress(done * 4_320_000, 864_000_000)
        progress(432_000_000, 864_000_000)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).replace("\r", "\n")
    assert "432.0/864.0 MB" in shown
    assert "MB/s" in shown
    assert all(line.startswith("reading every chunk") for line in shown.split("\n") if line.strip())
