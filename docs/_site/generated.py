"""Pages of the site that are made, not written: Python names, commands, JSON Schemas."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "intarsia"
STANDARD = ROOT / "standard"

ROOMS = {
    "logical": "Logical arrays",
    "manifest": "Packings and views",
    "versions": "Repositories and versions",
    "archives": "Archives of files",
    "interop": "xarray, dask and others",
    "inspect": "Reports, pictures, HTTP",
    "progress": "Progress",
    "errors": "Errors",
}
"""Where the names at the top come from, as the reference calls it and in its order."""

NAMESPACES = {
    "codecs": "Codecs, and what decides about them",
    "nullable": "Missing values",
    "shards": "Slotted shards",
    "archives": "Archives of files",
    "versions": "Repositories and versions",
    "errors": "Everything that intarsia raises on purpose",
    "types": "What functions return and take",
}
"""The namespaces below `intarsia`."""


def top_names() -> dict[str, list[str]]:
    """The names at the top by the room that they come from."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    rooms: dict[str, list[str]] = {room: [] for room in ROOMS}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            room = node.module.split(".")[0]
            rooms.setdefault(room, []).extend(alias.name for alias in node.names)
    return {room: sorted(names, key=str.lower) for room, names in rooms.items() if names}


def api_pages() -> dict[str, str]:
    """The reference: a page for the names at the top, and one for each namespace below."""
    parts = ["# intarsia\n"]
    for room, names in top_names().items():
        parts.append(f"## {ROOMS.get(room, room)}\n")
        parts.extend(f"::: {_home('intarsia', name)}\n" for name in names)
    pages = {"intarsia": "\n".join(parts)}
    for space, title in NAMESPACES.items():
        names = sorted(import_module(f"intarsia.{space}").__all__, key=str.lower)
        entries = "\n\n".join(f"::: {_home(f'intarsia.{space}', name)}" for name in names)
        pages[space] = f"# intarsia.{space}\n\n{title}.\n\n{entries}\n"
    return pages


def _home(module: str, name: str) -> str:
    """Where an object is defined: `intarsia.explain` is a function, but also the name of a module nearby."""
    thing = getattr(import_module(module), name)
    home, own = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{home}.{own}" if home and own and home.startswith("intarsia.") else f"{module}.{name}"


def cli_page() -> str:
    """The commands, from the program itself."""
    from typer.main import get_command

    from intarsia.cli.app import VERBS, app
    from intarsia.cli.output import Exit

    group: Any = get_command(app)
    parts = ["# Command line\n", f"```console\n{_help(group, None)}\n```\n"]
    for heading, modules in VERBS.items():
        parts.append(f"## {heading}\n")
        verbs = [verb for names in modules.values() for verb in names]
        parts.extend(f"### intarsia {verb}\n\n```console\n{_help(group, verb)}\n```\n" for verb in verbs)
    codes = "\n".join(f"| {code.value} | {code.meaning} |" for code in Exit)
    parts.append(f"## Exit codes {{ #exit-codes }}\n\n| code | meaning |\n|---|---|\n{codes}\n")
    parts.append(
        "## JSON\n\nEvery command takes `--json`: one document on the output, or on failure one on the error "
        "stream. These are their keys, and the types of the values:\n\n"
        f"```json\n{(ROOT / 'docs' / '_site' / 'json_documents.json').read_text(encoding='utf-8')}```\n\n"
        "## Environment\n\n"
        "`NO_COLOR` turns colours off; tables are plain lines wherever the output is not a terminal. "
        "`AWS_…` variables count for `s3://` stores. `INTARSIA_TRACEBACK=1` shows where an unexpected error "
        "comes from. `intarsia --install-completion` sets up the shell.\n"
    )
    return "\n".join(parts)


def _help(group: Any, verb: str | None) -> str:
    from typer.testing import CliRunner

    from intarsia.cli.app import app

    arguments = ["--help"] if verb is None else [verb, "--help"]
    environment = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    text = CliRunner().invoke(app, arguments, prog_name="intarsia", env=environment).output
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def schema_pages() -> dict[str, str]:
    """A list of the JSON Schemas, and each of them as a file."""
    files: dict[str, str] = {}
    lines = [
        "# JSON Schemas\n",
        "The formats, for programs that check them.\n",
    ]
    of_codecs = json.loads((STANDARD / "schemas.json").read_text(encoding="utf-8"))["codecs"]
    schemas = {path.name: path for path in sorted((PACKAGE / "schemas").glob("*.schema.json"))}
    schemas |= {f"{name}.schema.json": STANDARD / path for name, path in of_codecs.items()}
    for name, path in schemas.items():
        text = path.read_text(encoding="utf-8")
        files[f"reference/schemas/{name}"] = text
        lines.append(
            f"- [{name}](schemas/{name}): {json.loads(text).get('description', '')}".removesuffix(": ")
        )
    files["reference/schemas.md"] = "\n".join(lines) + "\n"
    return files


def generated() -> dict[str, str]:
    """Every page that is made rather than written."""
    pages = {f"reference/api/{name}.md": text for name, text in api_pages().items()}
    if not (ROOT / "docs" / "benchmarks.md").exists():
        pages["benchmarks.md"] = "# Benchmarks\n\n`make bench` measures, and writes this page.\n"
    return {**pages, "reference/cli.md": cli_page(), **schema_pages()}
