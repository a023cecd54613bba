"""The page docs/spec/seeds.md, made of the tables beside this file: `python -m tests.seeds.page` writes it.

A demand has `where` it is met (files of the package, pages, public names) and the `tests` that show it. If it
is met in another way, there is a `reason`; if it is not met yet, what is `missing`.
"""

import os
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spec" / "seeds.md"
DOCUMENTS = {
    name: tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("conditional", "logical", "pad", "offset", "nullable")
}

INTRODUCTION = """\
# What was asked for

intarsia grew from five documents: proposals of codecs and of a data type for Zarr, and the idea of an array
that is made of several. This page goes through them, demand by demand, in our own words: where each is met,
which test shows it, and where we went another way, why. Places are files of the package, pages, or public
names; tests lie in `tests/`. The page is made of tables in `tests/seeds/`, and a test checks that all that
is named here exists.

"""


def demands(document):
    """All rows of a document's table."""
    return [row for part in document["parts"] for row in part["demands"]]


def answer(row):
    """What became of a demand, in a word or two."""
    return "not yet" if "missing" in row else "otherwise" if "reason" in row else "as asked"


def counts(rows):
    """How many demands were answered how."""
    found = Counter(map(answer, rows))
    return ", ".join(f"{found[kind]} {kind}" for kind in ("as asked", "otherwise", "not yet") if found[kind])


def place(name):
    """A file, a page or a public name, as Markdown."""
    if not name.startswith("docs/"):
        return f"`{name}`"
    title = (ROOT / name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}]({os.path.relpath(ROOT / name, PAGE.parent)})"


def shown(row):
    """The last cell of a row: the reason, what is missing, and the tests."""
    words = {"reason": "*Otherwise:*", "missing": "*Not yet:*"}
    said = [f"{words[key]} {row[key]}." for key in words if key in row]
    return "<br>".join([*said, *(f"`{test}`" for test in row.get("tests", ()))])


def table(document):
    """The table of a document, with a bold line for each part of it."""
    lines = ["| demand | where | shown by |", "|---|---|---|"]
    for part in document["parts"]:
        lines.append(f"| **{part['title']}** | | |")
        for row in part["demands"]:
            cells = row["demand"], "<br>".join(map(place, row["where"])), shown(row)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page():
    """The whole page."""
    everything = [row for document in DOCUMENTS.values() for row in demands(document)]
    parts = [f"{INTRODUCTION}{len(everything)} demands: {counts(everything)}.\n"]
    for document in DOCUMENTS.values():
        rows = demands(document)
        parts.append(f"## {document['title']}\n\n{document['about']} {len(rows)} demands: {counts(rows)}.\n")
        parts.append(f"{table(document)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
