"""The program: all verbs together."""

import os
import sys
from typing import Annotated, NoReturn

import typer

import intarsia
from intarsia.cli.archive import cache, ingest, lint, relocate, sources
from intarsia.cli.choose import advise, consolidate, optimize
from intarsia.cli.demo import demo
from intarsia.cli.fill import append, create
from intarsia.cli.keep import diff, log, restore, vacuum, verify
from intarsia.cli.look import explain, info, read, regions, report
from intarsia.cli.overview import branch, ls, tag
from intarsia.cli.reencode import compact, recode, rewrite
from intarsia.cli.replication import maintain, replicate
from intarsia.cli.serving import serve, view
from intarsia.cli.transfer import adopt, convert, export, fuse, split
from intarsia.cli.verb import Exit, complain

VERBS = {
    "Look": (ls, info, regions, read, explain, advise, sources, log, diff, report, serve, view),
    "Change": (
        create,
        append,
        ingest,
        convert,
        adopt,
        relocate,
        recode,
        optimize,
        rewrite,
        consolidate,
        compact,
        restore,
        replicate,
    ),
    "Hand over": (export, fuse, split),
    "Keep": (lint, maintain, verify, vacuum, tag, branch, cache),
    "Try": (demo,),
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
    for _verb in _verbs:
        app.command(rich_help_panel=_heading)(_verb)


def run() -> NoReturn:
    """Run the program with the arguments of the process, and end the process."""
    code: str | int | None = 0
    try:
        app(prog_name="intarsia")
    except SystemExit as end:
        code = end.code
    _end(code if isinstance(code, int) else int(code is not None))


def _end(code: int) -> NoReturn:
    """End the process without taking the interpreter apart.

    Nothing of ours is open any more. But threads of Icechunk may be on their way out of a call that Python
    has its answer of already: they wait for Python's lock once more, to let go of what they hold. If the
    interpreter is taken apart meanwhile, Python ends such a thread on the spot, in the middle of Rust, and
    the process dies of a segmentation fault instead of ending with its exit code. Icechunk offers no way to
    wait for them. After Ctrl-C there are also threads that still encode what nobody wants.
    """
    try:
        print(end="", flush=True)  # says nothing to a stream that is closed
    except BrokenPipeError:  # a reader who goes away is no error
        pass
    except OSError as error:
        code = complain(error, as_json=False)
    print(end="", flush=True, file=sys.stderr)
    os._exit(code)
