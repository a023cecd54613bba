"""The command line: `intarsia VERB …`, with a module for each kind of verb."""

import sys

from intarsia.errors import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command line; says what to install if the extra is missing."""
    try:
        import rich  # noqa: F401 (only asked whether it is there, as is the next one)
        import typer  # noqa: F401 (as above)
    except ImportError as error:
        print(f"intarsia: the command line needs {error.name}: {install_command('cli')}", file=sys.stderr)
        raise SystemExit(7) from None
    from intarsia.cli.app import run

    run()
