"""Runs every benchmark and writes docs/benchmarks.md from what they print, and the README's table."""

import ast
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

SHARED = {"measure", "mosaic"}
CLAIMS = sorted(
    p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("__") and p.stem not in SHARED
)
PEERS = ("zarr", "numcodecs", "icechunk", "tensorstore")
README_TABLE = "read_engine"
"""Whose first table the README shows."""

BEGIN, END = "<!-- written by make bench -->\n", "<!-- end of what make bench writes -->\n"


def main() -> None:
    parts = [
        "# Benchmarks\n",
        "Written by `make bench`. Every table compares jobs that took turns in one run; times are the best "
        "of several, repeated until none improves by 2 % for five rounds or more.\n",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        + ", ".join(f"{peer} {version(peer)}" for peer in PEERS)
        + ".\n",
    ]
    for claim in CLAIMS:
        # In a process each: libraries that are peers here do not always live well together.
        command = [sys.executable, "-m", f"benchmarks.{claim}"]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        print(text, flush=True)
        if claim == README_TABLE:
            _show_in_readme(text)
        source = Path(__file__).with_name(f"{claim}.py").read_text(encoding="utf-8")
        said = (ast.get_docstring(ast.parse(source)) or "").removeprefix("Claim: ")
        parts.append(f"## {said}\n\n{text.strip()}\n")
    Path("docs/benchmarks.md").write_text("\n".join(parts), encoding="utf-8")


def _show_in_readme(text: str) -> None:
    """Put the first table of a benchmark between the two marks."""
    title, table = text.removeprefix("### ").split("\n\n")[:2]
    page = Path("README.md")
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(
        f"{before}{BEGIN}\n{title[0].upper()}{title[1:]}:\n\n{table.strip()}\n\n{END}{after}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
