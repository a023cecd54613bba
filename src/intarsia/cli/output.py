"""What a command prints: results for people or as JSON, progress, and errors with their exit codes.

Tables are for people, a single JSON document is for machines; progress goes to the other stream.
"""

import json
import os
import re
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from typing import Any, Literal

import icechunk
from rich.console import Console
from rich.text import Text

from intarsia import errors
from intarsia.display import Result, Table, json_of, plain, wrapped
from intarsia.progress import Progress, progress_bar, silent

TRACEBACK = "INTARSIA_TRACEBACK"
"""Set this variable to see where an unexpected error comes from."""

NAME = "intarsia: "
"""What an error message begins with."""

MAX_LINE = 10_000
"""The most characters of a line."""

PATIENCE = 0.5
"""Seconds before a progress bar appears: anything shorter needs none."""


class CommandError(ValueError):
    """A mistake on the command line that shows only when the command runs.

    >>> exit_of(CommandError("…")).value
    2
    """


class Exit(IntEnum):
    """Exit codes, for scripts.

    >>> Exit.NOT_FOUND.value, Exit.NOT_FOUND.meaning
    (3, 'the store, array, version or file does not exist')
    """

    OK = 0, "done"
    PROBLEMS = 1, "`verify` found problems, `lint` files that would be refused, `sources` some that are gone"
    USAGE = 2, "the command line is wrong: an option, a selection, a codec that cannot be understood"
    NOT_FOUND = 3, "the store, array, version or file does not exist"
    REFUSED = 4, "it cannot be done as asked: bounds, alignment, overlap, data type, read-only"
    DAMAGED = 5, "the data is damaged, or of a version that this intarsia cannot read"
    CONFLICT = 6, "somebody else changed the same thing at the same time; nothing was changed"
    MISSING_EXTRA = 7, "an optional package is not installed; the message names the command"
    STORAGE = 8, "the storage failed: server, credentials, permissions, full disk"
    NOT_ALLOWED = 9, "the repository refers to files that nobody allowed it to read; --allow does"
    UNEXPECTED = 70, "an error that intarsia did not expect: please report it"
    INTERRUPTED = 130, "stopped by Ctrl-C; the data is as it was"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "Exit":
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


# The first that fits counts, so a class comes before those that it derives from.
CODES: dict[type[BaseException], Exit] = {
    KeyboardInterrupt: Exit.INTERRUPTED,
    CommandError: Exit.USAGE,
    errors.MissingExtraError: Exit.MISSING_EXTRA,
    errors.NotAuthorizedError: Exit.NOT_ALLOWED,
    errors.NotLogicalArrayError: Exit.NOT_FOUND,
    errors.VersionNotFoundError: Exit.NOT_FOUND,
    FileNotFoundError: Exit.NOT_FOUND,
    errors.ManifestError: Exit.DAMAGED,
    errors.MemberError: Exit.DAMAGED,
    errors.MissingMemberError: Exit.DAMAGED,
    errors.ChunkDecodeError: Exit.DAMAGED,
    errors.ReadError: Exit.DAMAGED,
    errors.ConcurrentUpdateError: Exit.CONFLICT,
    errors.LockTimeoutError: Exit.CONFLICT,
    icechunk.ConflictError: Exit.CONFLICT,
    errors.RepositoryError: Exit.STORAGE,
    errors.IntarsiaError: Exit.REFUSED,
    FileExistsError: Exit.REFUSED,
    OSError: Exit.STORAGE,
    icechunk.IcechunkError: Exit.STORAGE,
}


def exit_of(error: BaseException) -> Exit:
    """The exit code for an exception.

    >>> exit_of(errors.OverlapError("…")).name, exit_of(ZeroDivisionError()).name
    ('REFUSED', 'UNEXPECTED')
    """
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), Exit.UNEXPECTED)


def print_error(error: BaseException, *, as_json: bool) -> Exit:
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
    if isinstance(error, errors.IntarsiaError) and error.command:
        message = f"{message.split(chr(10))[0]}\n  {error.command}"
    if as_json:
        document = {"type": type(error).__name__, "message": "\n".join([message, *notes]), "exit_code": code}
        sys.stderr.write(json.dumps({"error": document}) + "\n")
        return code
    for line in "\n".join([f"{NAME}{message}", *notes]).split("\n"):
        print_line(line, sys.stderr)
    return code


class Output:
    """What a command prints: a JSON document for machines, or lines, tables and results for people.

    A `snapshot_id` in the document is also the last line. Without a document, nothing is printed as JSON.
    """

    def __init__(self, *shown: str | Table | Result, code: Exit = Exit.OK, **document: Any) -> None:
        self.shown, self.code, self.document = shown, code, document

    def print(self, *, as_json: bool, **more: Any) -> None:
        """Print it in one of the two forms; `more` begins the document."""
        if as_json and self.document:
            indent = 2 if sys.stdout.isatty() else None
            json.dump(json_of(more | self.document), sys.stdout, indent=indent, allow_nan=False)
            sys.stdout.write("\n")
        elif not as_json:
            commit = self.document.get("snapshot_id")
            for each in (*self.shown, *([f"snapshot {commit}"] if commit else [])):
                for block in each.blocks(None) if isinstance(each, Result) else [each]:
                    print_table(block) if isinstance(block, Table) else print_line(block)
        sys.stdout.flush()  # another program may be waiting for it


def _console(stream: Any) -> Console:
    # Nothing in the data is markup, an emoji code or something to highlight.
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_line(line: str, stream: Any = None) -> None:
    """Print a line; characters that a terminal would obey are spelled out.

    On a terminal, sentences are wrapped between words; text that is laid out with spaces stays as it is.
    """
    console = _console(stream or sys.stdout)
    width = console.width if console.is_terminal and "  " not in line.strip() else None
    for part in wrapped(plain(line, MAX_LINE), width):
        text = Text(part)
        if stream is sys.stderr:
            text.highlight_regex(f"^{NAME}", "bold red")
        console.print(text)


def print_table(table: Table) -> None:
    """Print a table as Python shows it, on a terminal with its columns in bold."""
    text = Text(str(table))
    text.highlight_regex(r"(?m)\A" + r" +".join(map(re.escape, table.columns)) + "$", "bold")
    _console(sys.stdout).print(text)


def progress_on_stderr(
    what: str, *, counted: bool, unit: Literal["steps", "bytes"]
) -> AbstractContextManager[Progress]:
    """A progress bar on the error stream, for anything that takes more than a moment; only on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext(silent)
    return progress_bar(what, console=_console(sys.stderr), patience=PATIENCE, counted=counted, unit=unit)
