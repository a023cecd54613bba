"""What makes a function a command: what it prints, and how errors become messages and exit codes.

Tables are for people, a single JSON document is for machines; progress goes to the other stream.
"""

import datetime
import functools
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import Annotated, Any, Literal

import icechunk
import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from intarsia import errors
from intarsia.display import GAP, Table, lay_out, plain, table_text, wrapped
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
    if isinstance(error, errors.IntarsiaError) and error.command:
        message = f"{message.split(chr(10))[0]}\n  {error.command}"
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


class Output:
    """What a command prints: a JSON document for machines, or lines and tables for people.

    A `snapshot_id` in the document is also the last line. Without a document, nothing is printed as JSON.
    """

    def __init__(self, *shown: "str | Table | Facts", code: Exit = Exit.OK, **document: Any) -> None:
        self.shown, self.code, self.document = shown, code, document

    def print(self, *, as_json: bool, **more: Any) -> None:
        """Print it in one of the two forms; `more` begins the document."""
        if as_json and self.document:
            indent = 2 if sys.stdout.isatty() else None
            json.dump(more | self.document, sys.stdout, indent=indent, allow_nan=False, default=_for_json)
            sys.stdout.write("\n")
        elif not as_json:
            for each in self.shown:
                if isinstance(each, str):
                    say(each)
                elif isinstance(each, Table):
                    show_table(each)
                else:
                    each.print()
            if self.document.get("snapshot_id"):
                say(f"snapshot {self.document['snapshot_id']}")
        sys.stdout.flush()  # another program may be waiting for it


def _for_json(value: Any) -> Any:
    """A value that JSON does not know: the fields of a dataclass, or the text of a path or a data type."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ma.MaskedArray):
        return _values_for_json(value)
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)


def _values_for_json(values: np.ma.MaskedArray[Any, Any]) -> object:
    """Values for JSON, which lacks NaN, times and complex numbers: those become text."""
    if values.dtype.kind in "biu" or (values.dtype.kind == "f" and bool(np.isfinite(values.data).all())):
        return values.tolist()
    numbers = np.vectorize(_number, otypes=[object])(values.data) if values.size else values.data
    return np.ma.masked_array(numbers, values.mask).tolist()


def _number(value: object) -> object:
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    return str(value)


def record(thing: Any, names: str, **renamed: str) -> dict[str, Any]:
    """Some attributes of an object, for JSON; some have another name there.

    >>> record(1 + 2j, "imag", nbytes="real")
    {'imag': 2.0, 'nbytes': 1.0}
    """
    attributes = {name: name for name in names.split()} | renamed
    return {key: getattr(thing, name) for key, name in attributes.items()}


def verb(function: Callable[..., Output | Iterator[Output]]) -> Callable[..., None]:
    """Make a function a command. It returns what is printed, or yields it part by part.

    Positional parameters are arguments, keyword-only ones are options, and their docstring describes them:
    `name (METAVAR): help`, with a short form as in `(-n METAVAR)`. A section with another heading than
    `Args` is a panel of the help. A parameter whose type is a dataclass stands for the parameters in its
    fields. Every command has `--json`.
    """
    signature = inspect.signature(function, eval_str=True)
    text, entries = read_docstring(function.__doc__ or "")
    types = {name: p.annotation for name, p in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    parameters = [_json_parameter()]
    for name, p in reversed(list(signature.parameters.items())):
        if name in groups:
            parameters[:0] = _group_parameters(p.annotation)
        else:
            is_argument = p.kind is not inspect.Parameter.KEYWORD_ONLY
            parameters.insert(0, _parameter(p, entries.get(name), is_argument=is_argument))

    @functools.wraps(function)
    def command(*, as_json: bool, **options: Any) -> None:
        more = {"store": options["store"]} if "store" in options else {}
        arguments = dict(options)
        code: int = Exit.OK
        try:
            for name, group in groups.items():
                values = {field.name: arguments.pop(field.name) for field in fields(group) if field.init}
                arguments[name] = group(**values)
            printed = function(**arguments)
            for output in [printed] if isinstance(printed, Output) else printed:
                output.print(as_json=as_json, **more)
                code = output.code
        except (typer.Exit, BrokenPipeError):  # typer knows how to end quietly
            raise
        except (Exception, KeyboardInterrupt) as error:
            shown: BaseException = error
            if isinstance(error, icechunk.IcechunkError) and not isinstance(error, icechunk.ConflictError):
                shown = translate_error(error, options.get("store", "the repository"))
            code = complain(shown, as_json=as_json, options=options)
        if code:
            raise typer.Exit(int(code))

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # where typer looks
    command.__doc__ = text
    return command


@dataclass(frozen=True)
class OptionHelp:
    """What a docstring says about a parameter."""

    panel: str | None
    short: str | None
    metavar: str | None
    help: str


ENTRY = re.compile(r"(\w+)(?: \((-\w)? ?([^)]*)\))?: (.*)", re.DOTALL)
"""`name (-s METAVAR): help`."""


def read_docstring(documentation: str) -> tuple[str, dict[str, OptionHelp]]:
    """The paragraphs of a docstring, each on one line, and its sections about parameters.

    >>> read_docstring("Do it.\\n\\nArgs:\\n    limit (-n N): Show only\\n        the first ones.")
    ('Do it.', {'limit': OptionHelp(panel=None, short='-n', metavar='N', help='Show only the first ones.')})
    """
    text, entries = [], {}
    for paragraph in inspect.cleandoc(documentation).split("\n\n"):
        heading, _, section = paragraph.partition(":\n    ")
        for line in re.split(r"\n    (?! )", section) if section else ():
            name, short, metavar, words = ENTRY.fullmatch(line).groups()  # type: ignore[union-attr]
            panel = None if heading == "Args" else heading
            entries[name] = OptionHelp(panel, short, metavar, " ".join(words.split()))
        if not section:
            text.append(" ".join(paragraph.split()))  # typer would break lines where the source does
    return "\n\n".join(text), entries


def _parameter(
    parameter: inspect.Parameter, entry: OptionHelp | None, *, is_argument: bool
) -> inspect.Parameter:
    """A parameter as typer reads it; shared types such as `Array` describe themselves."""
    keyword = inspect.Parameter.KEYWORD_ONLY  # these may come in any order, with or without a default
    if entry is None:
        return parameter.replace(kind=keyword)
    kind, limits = parameter.annotation, {}
    if hasattr(kind, "__metadata__"):  # a number with limits
        limits = {"min": kind.__metadata__[0].min, "max": kind.__metadata__[0].max}
        kind = kind.__origin__
    shows_default = parameter.default not in ("", None, False, inspect.Parameter.empty)
    settings: dict[str, Any] = {"metavar": entry.metavar, "help": entry.help, "show_default": shows_default}
    described: Any = typer.Argument(**settings)
    if not is_argument:
        option: Any = typer.Option
        names = filter(None, (f"--{parameter.name.replace('_', '-')}", entry.short))
        described = option(*names, rich_help_panel=entry.panel, **settings, **limits)
    return parameter.replace(kind=keyword, annotation=Annotated[kind, described])


def _group_parameters(group: Any) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters: arguments if they have no default."""
    entries: dict[str, OptionHelp] = {}
    for each in reversed(group.__mro__):
        entries |= read_docstring(each.__doc__ or "")[1] if is_dataclass(each) else {}
    parameters = inspect.signature(group, eval_str=True).parameters.values()
    empty = inspect.Parameter.empty
    return [_parameter(p, entries[p.name], is_argument=p.default is empty) for p in parameters]


def _json_parameter() -> inspect.Parameter:
    option = typer.Option("--json", help="Print one JSON document instead of text.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("as_json", kind, default=False, annotation=Annotated[bool, option])


def _console(stream: Any) -> Console:
    # Nothing in the data is markup, an emoji code or something to highlight.
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def stderr() -> Console:
    """The console for progress and errors."""
    return _console(sys.stderr)


def say(*lines: str) -> None:
    """Print lines; characters that a terminal would obey are spelled out.

    On a terminal, sentences are wrapped between words; text that is laid out with spaces stays as it is.
    """
    console = _console(sys.stdout)
    for line in lines:
        width = console.width if console.is_terminal and "  " not in line else None
        for part in wrapped(plain(line, 10_000), width):
            console.print(Text(part))


def show_table(table: Table) -> None:
    """Print a table, fitted to the terminal, or in complete lines if there is none."""
    cells = [[plain(cell) for cell in row] for row in table.rows]
    console = _console(sys.stdout)
    if not console.is_terminal:
        print(table_text(table.columns, cells))
        return
    for line in lay_out(table.columns, cells, console.width):
        text = Text()
        row_style = "bold" if line.row in (-1, table.bold) else ""
        for j, cell in enumerate(line.cells):
            style = table.colours[j][line.row] if line.row >= 0 and j in table.colours else row_style
            text.append(GAP if j else "").append(cell, style=style)
        text.rstrip()
        console.print(text)


@dataclass(frozen=True)
class Facts:
    """Names and values, one per line, as `array.info` shows them."""

    fields: Sequence[tuple[str, str]]

    def print(self) -> None:
        """Print them, with the names in one column."""
        width = max(len(name) for name, _ in self.fields)
        for name, value in self.fields:
            text = Text.assemble((f"{name:<{width}}", "bold"), ": ", plain(value))
            _console(sys.stdout).print(text)


def waiting(
    what: str, *, counted: bool = True, unit: Literal["steps", "bytes"] = "steps"
) -> AbstractContextManager[Progress]:
    """A progress bar on the error stream, for anything that takes more than a moment; only on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext(silent)
    return progress_bar(what, console=stderr(), patience=PATIENCE, counted=counted, unit=unit)


OPTIONS = {
    "errors": "skip_bad_files",
    "dims": "dim",
    "variables": "variable",
    "authorize": "allow",
}
"""Arguments of functions that have another name as options."""

ARGUMENT = re.compile(r"\b([a-z][a-z_]*)=(?:(True|…)|\['([^']*)'\]|'([^']*)'|\"([^\"]*)\")?(?![=\w])")
"""An argument as messages name it: `replace=True`, `units='ignore'`, `authorize=['/data']`, `stack=`."""

RELOCATE = re.compile(r"intarsia\.archives\.relocate\(store, \{'([^']*)': '([^']*)'\}\)")
"""The call that the reason of a refused file advises."""


def in_options(message: str, options: Iterable[str]) -> str:
    """A message that names arguments, with the options of a command that has these.

    >>> in_options("errors='skip' ingests the others; units='ignore' trusts you", ["skip_bad_files", "units"])
    '--skip-bad-files ingests the others; --units ignore trusts you'
    >>> in_options("it changed (replace=True ingests it again); level=3", ["replace"])
    'it changed (--replace ingests it again); level=3'
    """
    known = {*options}

    def option(match: re.Match[str]) -> str:
        name, _, *texts = match.groups()
        if name == "combine":
            return "no --concat-dim"
        if name not in known and OPTIONS.get(name) not in known:
            return match.group()
        text = "" if name == "errors" else "".join(filter(None, texts))
        return f"--{OPTIONS.get(name, name).replace('_', '-')} {text}".rstrip()

    return ARGUMENT.sub(option, RELOCATE.sub(r"intarsia relocate STORE \1=\2", message))
