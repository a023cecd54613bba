"""What all verbs have in common: errors become messages and exit codes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import icechunk
import typer

from intarsia.cli.output import complain
from intarsia.versions.failures import translated

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["verb"]


def verb(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a function a command: what it returns, or raises, becomes the exit code."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> None:
        try:
            code = function(*args, **options)
        except (typer.Exit, BrokenPipeError):  # typer knows how to end quietly
            raise
        except (Exception, KeyboardInterrupt) as error:
            told: BaseException = error
            if isinstance(error, icechunk.IcechunkError) and not isinstance(error, icechunk.ConflictError):
                told = translated(error, options.get("store", "the repository"))
            code = complain(told, as_json=bool(options.get("as_json")))
        if code:
            raise typer.Exit(int(code))

    return command
