"""The program: all verbs together. It imports only the module of the verb that is called."""

import functools
import os
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import intarsia
from intarsia.cli.output import Exit, print_error

VERBS: dict[str, dict[str, tuple[str, ...]]] = {
    "Look": {
        "overview": ("ls", "view", "serve"),
        "inspect": ("info", "regions", "read", "explain", "report"),
        "reencode": ("advise",),
        "archive": ("sources",),
        "versions": ("log", "diff"),
    },
    "Change": {
        "create": ("create", "append"),
        "archive": ("ingest", "relocate"),
        "transfer": ("convert", "adopt"),
        "reencode": ("recode", "optimize", "rewrite", "consolidate", "compact"),
        "versions": ("restore",),
        "maintenance": ("replicate",),
    },
    "Export": {"transfer": ("export", "fuse", "split")},
    "Maintain": {
        "maintenance": ("maintain", "verify", "vacuum"),
        "versions": ("tag", "branch"),
        "archive": ("lint", "cache"),
    },
    "Try": {"demo": ("demo",)},
}
"""Under the headings of the help, the verbs of each module of this package."""

HOMES = {
    verb: (heading, module)
    for heading, modules in VERBS.items()
    for module, verbs in modules.items()
    for verb in verbs
}
"""The heading and the module of every verb, in the order of the help."""


class _Plain:
    """Help without Python's types: a name says what an option takes, and a switch takes nothing."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; in a narrow terminal, their names need the space that types would take."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of typer's class
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
            elif param.is_flag:
                param.metavar = ""
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments as they are usually written: STORE, and [PATH] if it may be left out."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]  # as above
        return [piece.replace("{", "").replace("}", "") for piece in pieces]


class Verb(_Plain, TyperCommand):
    """One verb."""


class Verbs(_Plain, TyperGroup):
    """All verbs; each is imported only when it is called, or for the help on all of them."""

    def __init__(self, **settings: Any) -> None:
        """Know the verbs by name."""
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name) for name in HOMES}  # suggested after a mistake

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb with this name and its options, or None."""
        return _command(cmd_name) if cmd_name in HOMES else None

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the help."""
        return list(HOMES)


@functools.cache
def _command(name: str) -> Any:
    heading, module = HOMES[name]
    home = import_module(f"intarsia.cli.{module}")
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(rich_help_panel=heading, cls=Verb)(getattr(home, name))
    return get_command(alone)


app = typer.Typer(
    name="intarsia",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in Exit),
)


def _print_version(is_set: bool) -> None:
    if is_set:
        from intarsia.codecs.compressors import compressors_in_use

        print(f"intarsia {intarsia.__version__}")
        for name, library in compressors_in_use().items():
            print(f"  {name}: {library}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the compressors in use, and stop.",
        ),
    ] = False,
) -> None:
    """One Zarr array, many encodings: inspect, change and maintain logical arrays."""


def run() -> NoReturn:
    """Run the program with the arguments of the process, and end the process."""
    code: str | int | None = 0
    try:
        app(prog_name="intarsia")
    except SystemExit as end:
        code = end.code
    _end(code if isinstance(code, int) else int(code is not None))


def _end(code: int) -> NoReturn:
    """End the process without shutting down the interpreter.

    Nothing of ours is open any more. But threads of Icechunk may still be returning from a call whose answer
    Python already has: they wait for Python's lock once more, to release what they hold. If the interpreter
    shuts down meanwhile, Python ends such a thread on the spot, in the middle of Rust, and the process dies
    of a segmentation fault instead of ending with its exit code. Icechunk offers no way to wait for them.
    After Ctrl-C, threads may also still be encoding what is no longer wanted.
    """
    try:
        print(end="", flush=True)  # silent if a stream is closed
    except BrokenPipeError:  # a reader that goes away is not an error
        pass
    except OSError as error:
        code = print_error(error, as_json=False)
    print(end="", flush=True, file=sys.stderr)
    os._exit(code)
