"""What commands print: tables for people, one JSON document for machines, errors to the other stream."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from intarsia.cli.exits import Exit, exit_of
from intarsia.report.escaping import plain
from intarsia.words import aligned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["NUMBERS", "complain", "is_terminal", "print_json", "say", "show_facts", "show_table", "stderr"]

NUMBERS = frozenset(
    ("Size", "Stored", "Ratio", "Regions", "Chunks", "Fetched", "Copied", "Bytes", "Files", "Stored before")
)
"""Columns that are aligned to the right."""

WHOLE = frozenset(("Snapshot", "Time (UTC)", "Kind", "Change"))
"""Columns that are not broken on a narrow terminal: what is in them is copied, or short."""

TRACEBACK = "INTARSIA_TRACEBACK"
"""Set this variable to see where an unexpected error comes from."""


def _console(stream: Any) -> Console:
    # Nothing in the data is markup, an emoji code or something to highlight.
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def stderr() -> Console:
    """The console for progress and errors."""
    return _console(sys.stderr)


def is_terminal() -> bool:
    """Whether somebody looks at the output."""
    return _console(sys.stdout).is_terminal


def say(*lines: str) -> None:
    """Print lines; characters that a terminal would obey are spelled out."""
    console = _console(sys.stdout)
    for line in lines:
        console.print(Text(plain(line, 10_000)))


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document, and nothing else."""
    json.dump(document, sys.stdout, indent=2 if sys.stdout.isatty() else None, allow_nan=False)
    sys.stdout.write("\n")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    colours: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """A table: fitted to the terminal, or complete lines where there is none.

    `colours` gives a column's colours, one a row.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    if title:
        say(title)
    if not is_terminal():
        print(aligned(columns, cells, right=NUMBERS))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        number = name in NUMBERS
        whole = number or name in WHOLE
        table.add_column(name, justify="right" if number else "left", no_wrap=whole, overflow="fold")
    tones = colours or {}
    for i, row in enumerate(cells):
        styles = [tones[j][i] if j in tones else "" for j in range(len(row))]
        table.add_row(*(Text(cell, style=style) for cell, style in zip(row, styles, strict=True)))
    _console(sys.stdout).print(table, soft_wrap=False)


def show_facts(fields: Iterable[tuple[str, str]]) -> None:
    """Names and values, one a line, as `array.info` prints them."""
    listed = [(name, plain(value)) for name, value in fields]
    width = max((len(name) for name, _ in listed), default=0)
    console = _console(sys.stdout)
    for name, value in listed:
        console.print(Text.assemble((f"{name:<{width}}", "bold"), ": ", value))


def complain(error: BaseException, *, as_json: bool) -> Exit:
    """Print an exception as an error message; returns the exit code."""
    code = exit_of(error)
    message = str(error) or type(error).__name__
    if code is Exit.INTERRUPTED:
        message = "interrupted: the data is as it was before"
    elif code is Exit.UNEXPECTED:
        message = (
            f"{type(error).__name__}: {message}\n  Not expected: please report it ({TRACEBACK}=1 shows where)"
        )
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error, file=sys.stderr)
    notes = getattr(error, "__notes__", ())
    if "intarsia.authorize(" in message:
        notes = (*notes, "  On the command line: --allow PREFIX, or --allow all")
    if as_json:
        document = {"type": type(error).__name__, "message": "\n".join([message, *notes]), "exit_code": code}
        sys.stderr.write(json.dumps({"error": document}) + "\n")
        return code
    console = stderr()
    first, *rest = [line for text in (message, *notes) for line in text.split("\n")]
    console.print(Text.assemble(("intarsia: ", "bold red"), plain(first, 2000)))
    for line in rest:
        console.print(Text(plain(line, 2000)))
    return code
