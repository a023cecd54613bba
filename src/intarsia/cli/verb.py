"""What makes a function a command: what it prints, and how errors become messages and exit codes.

Tables are for people, a single JSON document is for machines; progress goes to the other stream.
"""

import functools
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from typing import Any, Literal, get_type_hints

import icechunk
import typer
from rich.console import Console
from rich.text import Text

from intarsia import errors
from intarsia.display import GAP, lay_out, plain, table_text, wrapped
from intarsia.progress import Progress, progress_bar, silent
from intarsia.versions.repository import translate_error

TRACEBACK = "INTARSIA_TRACEBACK"
"""Set this variable to see where an unexpected error comes from."""

NAME = "intarsia: "
"""What an error message begins with."""

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


# The first matching line counts, so a class comes before those that it derives from.
CODES: tuple[tuple[tuple[type[BaseException], ...], Exit], ...] = (
    ((KeyboardInterrupt,), Exit.INTERRUPTED),
    ((CommandError,), Exit.USAGE),
    ((errors.MissingExtraError,), Exit.MISSING_EXTRA),
    ((errors.NotAuthorizedError,), Exit.NOT_ALLOWED),
    (
        (
            errors.NotLogicalArrayError,
            errors.RepositoryNotFoundError,
            errors.VersionNotFoundError,
            FileNotFoundError,
        ),
        Exit.NOT_FOUND,
    ),
    (
        (
            errors.ManifestError,
            errors.MemberError,
            errors.MissingMemberError,
            errors.ChunkDecodeError,
            errors.ReadError,
        ),
        Exit.DAMAGED,
    ),
    ((errors.ConcurrentUpdateError, errors.LockTimeoutError, icechunk.ConflictError), Exit.CONFLICT),
    ((errors.RepositoryError,), Exit.STORAGE),
    ((errors.IntarsiaError, FileExistsError), Exit.REFUSED),
    ((OSError, icechunk.IcechunkError), Exit.STORAGE),
)


def exit_of(error: BaseException) -> Exit:
    """The exit code for an exception.

    >>> exit_of(errors.OverlapError("…")).name, exit_of(ZeroDivisionError()).name
    ('REFUSED', 'UNEXPECTED')
    """
    for kinds, code in CODES:
        if isinstance(error, kinds):
            return code
    return Exit.UNEXPECTED


def complain(error: BaseException, *, as_json: bool, options: Iterable[str] = ()) -> Exit:
    """Print an exception as an error message of a command with these options; returns the exit code."""
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
    if isinstance(error, errors.NotAuthorizedError):
        allow = f"  If you trust it: --allow {error.prefix}, or --allow all for all that it names"
        message = "\n".join([message.split("\n")[0], allow])
    message = in_options(message, options)
    notes = tuple(in_options(note, options) for note in notes)
    if as_json:
        document = {"type": type(error).__name__, "message": "\n".join([message, *notes]), "exit_code": code}
        sys.stderr.write(json.dumps({"error": document}) + "\n")
        return code
    console = stderr()
    width = console.width if console.is_terminal else None
    lines = [
        part
        for line in "\n".join([f"{NAME}{message}", *notes]).split("\n")
        for part in wrapped(plain(line, 2000), width)
    ]
    console.print(Text.assemble((NAME, "bold red"), lines[0].removeprefix(NAME)))
    for line in lines[1:]:
        console.print(Text(line))
    return code


def verb(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a function a command: what it returns or raises becomes the exit code.

    A parameter whose type is a dataclass, such as `Reading`, stands for the arguments in its fields.
    """
    parameters = inspect.signature(function).parameters
    groups: dict[str, Any] = {
        name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)
    }

    @functools.wraps(function)
    def command(**options: Any) -> None:
        given = dict(options)
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        try:
            code = function(**given)
        except (typer.Exit, BrokenPipeError):  # typer knows how to end quietly
            raise
        except (Exception, KeyboardInterrupt) as error:
            told: BaseException = error
            if isinstance(error, icechunk.IcechunkError) and not isinstance(error, icechunk.ConflictError):
                told = translate_error(error, options.get("store", "the repository"))
            code = complain(told, as_json=bool(options.get("as_json")), options=options)
        if code:
            raise typer.Exit(int(code))

    spread = [each for p in parameters.values() for each in _arguments(p)]
    command.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]  # where typer looks
    # Typer would also break lines where the source does, in a terminal of any width.
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return command


def _arguments(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """What a parameter becomes on the command line: itself, or the fields of its dataclass."""
    kind = inspect.Parameter.KEYWORD_ONLY  # these may come in any order, with or without a default
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter.replace(kind=kind)
        return
    types = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(field.name, kind, default=default, annotation=types[field.name])


def _console(stream: Any) -> Console:
    # Nothing in the data is markup, an emoji code or something to highlight.
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def stderr() -> Console:
    """The console for progress and errors."""
    return _console(sys.stderr)


def is_terminal() -> bool:
    """Whether somebody is looking at the output."""
    return _console(sys.stdout).is_terminal


def say(*lines: str) -> None:
    """Print lines; characters that a terminal would obey are spelled out.

    On a terminal, sentences are wrapped between words; text that is laid out with spaces stays as it is.
    """
    console = _console(sys.stdout)
    for line in lines:
        width = console.width if console.is_terminal and "  " not in line else None
        for part in wrapped(plain(line, 10_000), width):
            console.print(Text(part))


def print_json(**fields: Any) -> None:
    """Print one JSON document with these fields, and nothing else."""
    json.dump(fields, sys.stdout, indent=2 if sys.stdout.isatty() else None, allow_nan=False)
    sys.stdout.write("\n")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    colours: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Print a table, fitted to the terminal, or in complete lines if there is none.

    `colours` gives a column's colours, one per row.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    console, tones = _console(sys.stdout), colours or {}
    if not console.is_terminal:
        print(table_text(columns, cells))
        return
    for line in lay_out(columns, cells, console.width):
        text = Text()
        for j, cell in enumerate(line.cells):
            style = "bold" if line.row < 0 else tones[j][line.row] if j in tones else ""
            text.append(GAP if j else "").append(cell, style=style)
        text.rstrip()
        console.print(text)


def show_facts(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one per line, as `array.info` does."""
    listed = [(name, plain(value)) for name, value in fields]
    width = max((len(name) for name, _ in listed), default=0)
    console = _console(sys.stdout)
    for name, value in listed:
        console.print(Text.assemble((f"{name:<{width}}", "bold"), ": ", value))


def waiting(
    what: str, *, counted: bool = True, unit: Literal["steps", "bytes"] = "steps"
) -> AbstractContextManager[Progress]:
    """A progress bar on the error stream, for anything that takes more than a moment; only on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext(silent)
    return progress_bar(what, console=stderr(), patience=PATIENCE, counted=counted, unit=unit)


SPELLED = {
    "errors='skip'": "--skip-bad-files",
    "errors=": "--skip-bad-files",
    "dims=": "--dim",
    "variables=": "--variable",
    "combine='by_coords'": "no --concat-dim",
}
"""Arguments that have a different name on the command line."""

BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
"""The arguments of a call, which may contain tuples of tuples."""

CALLS = (
    (r"[Cc]reate one with intarsia\.open_repository\(store, create=True\)", "intarsia create makes one"),
    (r"intarsia\.create\(store, path, shape=…, chunks=…, dtype=…\)",
     "intarsia create STORE PATH --shape … --chunks … --dtype …"),
    (r"Create it in a transaction first: tx\.create\(path, shape=…, chunks=…, dtype=…\)",
     "Create it first: intarsia create STORE PATH --shape … --chunks … --dtype …"),
    (r"[Cc]onvert them first, if that is what you mean: values\.astype\('(\w+)'\)",
     r"Convert the file first, if that is what you mean: its values would have to be \1"),
    (r"intarsia\.archives\.relocate\(store, \{'([^']*)': '([^']*)'\}\)", r"intarsia relocate STORE \1=\2"),
    (r"open it with authorize=\['([^']*)'\]", r"say --allow \1"),
    (r"authorize=\['([^']*)'\]", r"--allow \1"),
    (r"intarsia\.archives\.authorize\([^)]*\)", "--allow PREFIX, or --allow all"),
    (r"Give an (?:older one|age, which)[^:]*: intarsia\.vacuum\([^)]*\)", "Give an earlier time"),
    (r"intarsia\.vacuum\(store, forget_before[^)]*\)( removes them)?",
     r"intarsia vacuum --forget-before TIME\1"),
    (r"(?:arr|array)\.(recode|consolidate|append|optimize)" + BRACKETS, r"intarsia \1"),
    (r"intarsia\.(?:\w+\.)?(verify|vacuum|convert|recode|append|ingest|lint|advise|export|adopt|compact|rewrite)\b(\([^)]*\))?",
     r"intarsia \1"),
    (r"A plain Zarr array is read with intarsia\.reader\(store, path\); intarsia convert makes",
     "intarsia read reads a plain Zarr array; intarsia convert makes"),
    (r"intarsia\.reader\([^)]*\)", "intarsia read"),
    (r"intarsia\.sources\([^)]*\)", "intarsia sources STORE"),
    (r"Shards are chosen when an array is created: zarr\.create_array\([^)]*\)",
     "To copy it into shards: intarsia convert STORE NEW_STORE --shards …"),
    (r"What is read comes first, where it goes comes second: ingest\(files, store\)",
     "Files come first, the store last"),
    (r"give a datetime, or text such as", "write it as"),
    (r" \(parser= reads other formats\)", ""),
)  # fmt: skip
"""Calls that correspond to a verb."""

ARGUMENT = re.compile(r"\b([a-z][a-z_]*)=(True|'[^']*'|\"[^\"]*\"|…)?(?![=\w])")


def in_options(message: str, options: Iterable[str]) -> str:
    """A message for somebody at a command line, for a command with these options.

    >>> in_options("errors='skip' ingests the others; units='ignore' trusts you", ["units"])
    '--skip-bad-files ingests the others; --units ignore trusts you'
    >>> in_options("it changed (replace=True ingests it again)", ["replace"])
    'it changed (--replace ingests it again)'
    """
    known = {name.replace("-", "_") for name in options}
    for pattern, words in CALLS:
        message = re.sub(pattern, words, message)

    def spelled(found: re.Match[str]) -> str:
        whole, name, value = found.group(0), found.group(1), found.group(2)
        if whole in SPELLED or f"{name}=" in SPELLED:
            return SPELLED.get(whole) or SPELLED[f"{name}="]
        if name not in known:
            return whole
        option = f"--{name.replace('_', '-')}"
        return option if value in (None, "True", "…") else f"{option} {value.strip(chr(34) + chr(39))}"

    return ARGUMENT.sub(spelled, message).replace(", or replace it with overwrite=True", "")
