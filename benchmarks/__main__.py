"""Runs the benchmarks and writes docs/benchmarks.md from what they print.

The page has the tables that back claims. Tables that say what stands in the way of more go to
`benchmarks/results/`, a file for each benchmark.

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

from benchmarks.measure import LIMITS_BELOW

SHARED = {"measure", "mosaic", "profiled", "read_parts", "write_parts"}
CLAIMS = sorted(
    p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("__") and p.stem not in SHARED
)
PEERS = ("zarr", "numcodecs", "icechunk", "tensorstore", "zarrista", "zarrs")
PAGE = Path("docs/benchmarks.md")
RESULTS = Path("benchmarks/results")
ABOUT_LIMITS = "\nParts and limits: "
"""In the docstring of a benchmark: what follows is about its tables in `benchmarks/results/`."""

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
        f"{_versions()}\n",
    ]
    kept, failed = _sections(), []
    for claim in CLAIMS:
        if names and claim not in names:
            parts += [f"## {kept[claim]}"] if claim in kept else []
            continue
        source = Path(__file__).with_name(f"{claim}.py").read_text(encoding="utf-8")
        said = (ast.get_docstring(ast.parse(source)) or "").removeprefix("Claim: ")
        # In a process each: libraries that are peers here do not always live well together.
        command = [sys.executable, "-m", f"benchmarks.{claim}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        text = done.stdout
        print(text, flush=True)
        if done.returncode:
            failed.append(claim)
            parts += [f"## {kept[claim]}"] if claim in kept else []
            continue
        section, limits = sections(claim, said, text)
        if section:
            parts.append(section)
        if limits:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{claim}.md").write_text(limits, encoding="utf-8")
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    if failed:
        raise SystemExit(f"failed, and not written anew: {', '.join(failed)}")


def sections(claim: str, said: str, text: str) -> tuple[str, str]:
    """The section of the page, and what goes to `benchmarks/results/`; each is empty if it has no tables.

    `said` is the docstring of a benchmark, and `text` what it printed.
    """
    heading, _, introduction = said.partition("\n")
    introduction, _, about_limits = introduction.partition(ABOUT_LIMITS)
    if text.startswith("## "):  # it depends on what was measured
        heading, _, text = text.removeprefix("## ").partition("\n")
    text, _, limits = (piece.strip() for piece in text.partition(LIMITS_BELOW))
    where = f"Parts and limits: `{RESULTS / claim}.md`." if limits else ""
    section = _paragraphs(f"## {heading}", MARK.format(claim), introduction, text, where)
    title = f"# `benchmarks/{claim}.py`: {'parts and limits' if text else heading}"
    written = f"Written by `make bench`. {_versions()}"
    details = _paragraphs(title, written, about_limits, limits.replace("### ", "## "))
    return section if text else "", details if limits else ""


def _paragraphs(*pieces: str) -> str:
    return "\n\n".join(piece.strip() for piece in pieces if piece.strip()) + "\n"


def _versions() -> str:
    peers = ", ".join(f"{peer} {version(peer)}" for peer in PEERS)
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {peers}."


def _sections() -> dict[str, str]:
    """What the page says already, by benchmark."""
    if not PAGE.exists():
        return {}
    _, *sections = PAGE.read_text(encoding="utf-8").split(SECTION)
    marked = ((claim, text) for text in sections for claim in CLAIMS if MARK.format(claim) in text)
    return {claim: text.rstrip("\n") + "\n" for claim, text in marked}


if __name__ == "__main__":
    main(sys.argv[1:])
