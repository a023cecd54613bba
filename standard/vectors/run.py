"""Runs the vectors through every reader that is here: `python -m standard.vectors.run`, or `make vectors`.

Prints who reads what, and writes it to `docs/spec/vectors.md` where every reader is here.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from standard.vectors import readers, schemas
from standard.vectors.known import KNOWN
from standard.vectors.vectors import Vector, difference, vectors

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "spec" / "vectors.md"
JAVASCRIPT = "JavaScript"
REFERENCE = "reader.py"
CODECS = ("conditional", "pad", "offset", "shuffle", "reshape", "packbits", "optional")
FAMILIES = (*CODECS, "manifest-1", "manifest-2", "members")

TITLES = {
    "manifest-1": "logical arrays, version 1",
    "manifest-2": "logical arrays, version 2",
    "members": "members of logical arrays, as arrays of their own",
}


@dataclass(frozen=True)
class Member(Vector):
    """A member of a logical array, for readers that know nothing of those; zarr-python says what it holds."""

    @property
    def expected(self):
        return readers.intarsia(self)


def members():
    """All members of vectors that can be read."""
    for vector in vectors():
        if vector.kind == "logical" and not vector.refused:
            stored = vector.content["files"]
            for name in sorted({path.split("/")[0] for path in stored if path.startswith("m-")}):
                start = f"{name}/"
                own = {path.removeprefix(start): stored[path] for path in stored if path.startswith(start)}
                path = f"members/{vector.path}/{name}"
                yield Member(path, "array", "A member", content={"files": own})


def outcome(vector, reader):
    """What came of a vector: `right`, `not known`, or what is wrong."""
    try:
        found = reader(vector)
    except readers.NotKnownError:
        return "not known"
    except Exception as error:
        return "right" if vector.refused else f"{type(error).__name__}: {error}"
    if vector.refused:
        return f"read, although: {vector.about}"
    return difference(vector, *found) or "right"


def outcomes(name):
    """What comes of all vectors with one of the readers in Python, by their paths."""
    listed = vectors() if name in ("intarsia", REFERENCE) else [*vectors(), *members()]
    return {vector.path: outcome(vector, readers.READERS[name]) for vector in listed}


def javascript():
    """The same of the reader in JavaScript; None where node or its packages are not here."""
    node = shutil.which("node")
    if node is None or not (ROOT / "js" / "node_modules" / "zarrita").is_dir():
        return None
    command = [node, str(ROOT / "js" / "test" / "report.js")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return {path: "right" if wrong is None else wrong for path, wrong in json.loads(ran.stdout).items()}


def unexpected(name, found):
    """What is wrong and not known to be, and what is known to be wrong and is right."""
    known = KNOWN.get(name, {})
    wrong = {path for path, what in found.items() if what not in ("right", "not known")}
    explained = {path for path in wrong if any(path in paths for _, paths in known.values())}
    listed = {path for _, paths in known.values() for path in paths}
    problems = [f"{name}: {path}: {found[path]}" for path in sorted(wrong - explained)]
    return problems + [f"{name}: {path}: known to be wrong, but is right" for path in sorted(listed - wrong)]


def cell(name, family, found):
    """How a reader fares with a family, in words."""
    refused = {vector.path for vector in vectors() if vector.refused}
    counts = Counter((path in refused, what) for path, what in found.items() if path.split("/")[0] == family)
    total = {kind: sum(n for (is_so, _), n in counts.items() if is_so == kind) for kind in (False, True)}
    if name == REFERENCE and not family.startswith("manifest"):
        return "as zarr does"
    if not total[False]:
        return "in their arrays" if name == JAVASCRIPT else "the measure"
    right = {kind: counts[kind, "right"] for kind in (False, True)}
    if not right[False]:
        return "not implemented"
    text = "all" if right[False] == total[False] else f"{right[False]} of {total[False]}"
    own = name in ("intarsia", REFERENCE, JAVASCRIPT) or not family.startswith("manifest")
    if total[True] and own:
        text += ", refuses all" if right[True] == total[True] else f", refuses {right[True]} of {total[True]}"
    known = KNOWN.get(name, {}).items()
    marks = [str(i) for i, (_, paths) in known if any(path.startswith(f"{family}/") for path in paths)]
    return text + (f" ({', '.join(marks)})" if marks else "")


def table(results):
    """Who reads what, as a table."""
    listed = vectors()
    lines = [f"| vectors | to read | to refuse | {' | '.join(results)} |", "|---" * (3 + len(results)) + "|"]
    for family in FAMILIES:
        of_family = [*members()] if family == "members" else [v for v in listed if v.family == family]
        counts = Counter(bool(vector.refused) for vector in of_family)
        cells = [cell(name, family, found) for name, found in results.items()]
        title = TITLES.get(family, f"`{family}`")
        lines.append(f"| {title} | {counts[False]} | {counts[True] or ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(results):
    """The page of the documentation."""
    notes = [f"{i}. {name}: {why}" for name in KNOWN for i, (why, _) in KNOWN[name].items()]
    head, tail = (ROOT / "standard" / "vectors" / "page.md").read_text().split("<!-- table -->\n")
    return head + table(results) + "\n\n" + "\n".join(notes) + "\n" + tail


def main():
    problems = [
        f"schemas: {vector.path}"
        for vector in vectors()
        if bool(schemas.problems(vector.metadata)) != ((vector.refused or {}).get("by") == "schema")
    ]
    results = {name: outcomes(name) for name in ("intarsia", REFERENCE)}
    if (found := javascript()) is not None:
        results[JAVASCRIPT] = found
    results |= {name: outcomes(name) for name in ("zarrs", "TensorStore", "GDAL")}
    for name, found in results.items():
        problems += unexpected(name, found)
    print(table(results))
    if JAVASCRIPT in results:
        PAGE.write_text(page(results))
        print(f"\n{PAGE.relative_to(ROOT)}")
    else:
        print("\nskipped: the reader in JavaScript (node, and npm install in js/)")
    print("\n".join(problems), file=sys.stderr)
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
