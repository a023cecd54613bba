"""The program: all verbs together."""

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

import intarsia
from intarsia.cli.exits import Exit

__all__ = ["VERBS", "app", "run"]

VERBS = {
    "Look": ("info", "regions", "read", "explain", "log", "diff", "report", "serve"),
    "Change": ("create", "append", "ingest", "recode", "rewrite", "compact", "restore"),
    "Keep": ("verify", "vacuum"),
    "Try": ("demo",),
}
"""Under the headings of the help."""

app = typer.Typer(
    name="intarsia",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in Exit),
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"intarsia {intarsia.__version__}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """One Zarr array, many encodings: look at logical arrays, change them, keep them whole."""


for _heading, _verbs in VERBS.items():
    for _name in _verbs:
        _function = getattr(import_module(f"intarsia.cli.{_name}"), _name)
        app.command(_name, rich_help_panel=_heading)(_function)


def run() -> None:
    """Run the program with the arguments of the process."""
    try:
        app(prog_name="intarsia")
    except SystemExit as end:
        if end.code == Exit.INTERRUPTED:
            # Threads may still be encoding what nobody wants any more, and would trip over an interpreter
            # that takes itself apart. Everything of ours is undone by now.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(Exit.INTERRUPTED)
        raise
