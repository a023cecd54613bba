"""The command line: `intarsia VERB …`, with a module for each kind of verb.

- `app` lists the verbs and imports the module of the one that is called.
- `verb` makes a function a command: its options are the parameters of the function, and of the one it calls.
- `arguments` says how arguments are written as text; `stores` opens the store and version that are named.
- `output` prints results, for people or as JSON, and turns errors into messages and exit codes.
"""

import sys
from importlib import import_module

from intarsia.errors import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command line; says what to install if the extra is missing."""
    try:
        for package in ("rich", "typer"):
            import_module(package)
    except ImportError as error:
        print(f"intarsia: the command line needs {error.name}: {install_command('cli')}", file=sys.stderr)
        raise SystemExit(7) from None
    from intarsia.cli.app import run

    run()
