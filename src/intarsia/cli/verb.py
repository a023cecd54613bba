"""What all verbs have in common: errors become messages and exit codes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import typer

from intarsia.cli.output import complain

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
            code = complain(error, as_json=bool(options.get("as_json")))
        if code:
            raise typer.Exit(int(code))

    return command
