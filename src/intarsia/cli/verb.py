"""What all commands have in common: errors become messages and exit codes."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from typing import Any, get_type_hints

import icechunk
import typer
from rich.text import Text

from intarsia import errors
from intarsia.cli.output import stderr
from intarsia.versions.repository import translated
from intarsia.words import plain

TRACEBACK = "INTARSIA_TRACEBACK"
"""Set this variable to see where an unexpected error comes from."""


class CommandError(ValueError):
    """A mistake on the command line that only shows when the command runs.

    >>> exit_of(CommandError("…")).value
    2
    """


class Exit(IntEnum):
    """Exit codes, for scripts.

    >>> Exit.NOT_FOUND.value, Exit.NOT_FOUND.meaning
    (3, 'the store, array, version or file does not exist')
    """

    OK = 0, "done"
    PROBLEMS = 1, "`verify` found problems"
    USAGE = 2, "the command line is wrong: an option, a selection, a codec that cannot be understood"
    NOT_FOUND = 3, "the store, array, version or file does not exist"
    REFUSED = 4, "it cannot be done as asked: bounds, alignment, overlap, data type, read-only"
    DAMAGED = 5, "the data is damaged, or of a version that this intarsia does not read"
    CONFLICT = 6, "somebody else changed the same thing at the same time; nothing was changed"
    MISSING_EXTRA = 7, "an optional package is not installed; the message names the command"
    STORAGE = 8, "the storage failed: server, credentials, permissions, full disk"
    UNEXPECTED = 70, "an error that intarsia did not expect: please report it"
    INTERRUPTED = 130, "stopped by Ctrl-C; the data is as it was"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Exit:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


# The first line that fits counts, so a class comes before those it derives from.
CODES: tuple[tuple[tuple[type[BaseException], ...], Exit], ...] = (
    ((KeyboardInterrupt,), Exit.INTERRUPTED),
    ((CommandError,), Exit.USAGE),
    ((errors.MissingExtraError,), Exit.MISSING_EXTRA),
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


def verb(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a function a command: what it returns, or raises, becomes the exit code.

    A parameter whose type is a dataclass, such as `Reading`, stands for the arguments that are its fields.
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
                told = translated(error, options.get("store", "the repository"))
            code = complain(told, as_json=bool(options.get("as_json")))
        if code:
            raise typer.Exit(int(code))

    spread = [each for p in parameters.values() for each in _arguments(p)]
    command.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]  # where typer looks
    return command


def _arguments(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """What stands on the command line for a parameter: itself, or the fields of its dataclass."""
    kind = inspect.Parameter.KEYWORD_ONLY  # which may come in any order, with a default or without
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter.replace(kind=kind)
        return
    types = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(field.name, kind, default=default, annotation=types[field.name])
