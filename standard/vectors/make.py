"""Makes the vectors: `python -m standard.vectors.make`. The same bytes every time, on every machine."""

from itertools import groupby
from pathlib import Path

from standard.vectors.generate import (
    conditional,
    headers,
    layouts,
    optional,
    packbits,
    packings,
    refused,
    reshape,
    views,
)
from standard.vectors.generate.case import laid_out

STANDARD = Path(__file__).parent.parent
DATA = STANDARD / "vectors" / "data"

EXAMPLES = {
    "two-codecs": "manifest-1/two-codecs",
    "holes": "manifest-1/holes",
    "packings-and-views": "manifest-2/view-packed",
    "table": "manifest-2/table",
}
"""Vectors whose groups are the examples of the convention."""

FAMILIES = (
    conditional.conditionals,
    headers.pads,
    headers.offsets,
    headers.shuffles,
    reshape.reshapes,
    packbits.packbits,
    optional.optionals,
    layouts.version_1,
    refused.refused_1,
    packings.packings,
    views.views,
    views.tables_2,
    refused.refused_2,
)


def cases():
    """All vectors."""
    return [case for family in FAMILIES for case in family()]


def everything():
    """All files that this script makes, by their paths below `standard/`."""
    made = cases()
    assert len({case.path for case in made}) == len(made), "a vector is made twice"
    found = {}
    for family, of_family in groupby(sorted(made, key=lambda case: case.family), lambda case: case.family):
        document = {"format": 1, "family": family, "vectors": [case.entry() for case in of_family]}
        found[f"vectors/data/{family}.json"] = f"{laid_out(document)}\n".encode()
    groups = {case.path: case.files["zarr.json"] for case in made}
    examples = {f"logical-array/examples/{name}.json": groups[path] for name, path in EXAMPLES.items()}
    return found | examples


def main():
    made = everything()
    for path in DATA.glob("*.json"):
        path.unlink()
    for name, content in made.items():
        path = STANDARD / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    print(f"{len(cases())} vectors, {len(made)} files, {sum(map(len, made.values())):,} bytes")


if __name__ == "__main__":
    main()
