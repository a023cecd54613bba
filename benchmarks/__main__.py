"""Runs the benchmarks and writes docs/benchmarks.md from what they print, and the README's table.

`python -m benchmarks` runs all; `python -m benchmarks read_s3` that one, and keeps the other sections.
The section of a benchmark that fails is kept as well, and the failure is told at the end.
"""

import ast
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

SHARED = {"measure", "mosaic", "profiled", "read_parts", "write_parts"}
CLAIMS = sorted(
    p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("__") and p.stem not in SHARED
)
PEERS = ("zarr", "numcodecs", "icechunk", "tensorstore", "zarrista", "zarrs")
README_TABLE = "read_engine"
"""Whose first table the README shows."""

BEGIN, END = "<!-- written by make bench -->\n", "<!-- end of what make bench writes -->\n"
PAGE = Path("docs/benchmarks.md")
SECTION = "\n## "
MARK = "<!-- {} -->"
"""Under the heading of a section: which benchmark wrote it. Headings change with what was measured."""


def main(names: list[str]) -> None:
    unknown = set(names) - set(CLAIMS)
    if unknown:
        raise SystemExit(f"no benchmark is called {min(unknown)}; there are {', '.join(CLAIMS)}")
    parts = [
        "# Benchmarks\n",
        "Written by `make bench`. Every table compares jobs that took turns in one run; times are the best "
        "of several, repeated until none improves by 2 % for five rounds or more, or some seconds are over. "
        "Headings are made of the numbers below them.\n",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        + ", ".join(f"{peer} {version(peer)}" for peer in PEERS)
        + ".\n",
    ]
    kept, failed = _sections(), []
    for claim in CLAIMS:
        if names and claim not in names:
            parts += [f"## {kept[claim]}"] if claim in kept else []
            continue
        source = Path(__file__).with_name(f"{claim}.py").read_text(encoding="utf-8")
        said = (ast.get_docstring(ast.parse(source)) or "").removeprefix("Claim: ")
        claimed, _, introduction = said.partition("\n")
        # In a process each: libraries that are peers here do not always live well together.
        command = [sys.executable, "-m", f"benchmarks.{claim}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        text = done.stdout
        print(text, flush=True)
        if done.returncode:
            failed.append(claim)
            parts += [f"## {kept[claim]}"] if claim in kept else []
            continue
        heading = claimed
        if text.startswith("## "):  # it depends on what was measured
            heading, _, text = text.removeprefix("## ").partition("\n")
            text = text.lstrip("\n")
        if claim == README_TABLE:
            _show_in_readme(text)
        pieces = f"## {heading}", MARK.format(claim), introduction.strip(), text.strip()
        parts.append("\n\n".join(piece for piece in pieces if piece) + "\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    if failed:
        raise SystemExit(f"failed, and not written anew: {', '.join(failed)}")


def _sections() -> dict[str, str]:
    """What the page says already, by benchmark."""
    if not PAGE.exists():
        return {}
    _, *sections = PAGE.read_text(encoding="utf-8").split(SECTION)
    marked = ((claim, text) for text in sections for claim in CLAIMS if MARK.format(claim) in text)
    return {claim: text.rstrip("\n") + "\n" for claim, text in marked}


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
    main(sys.argv[1:])
