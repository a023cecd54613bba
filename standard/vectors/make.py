"""Makes the vectors: `python -m standard.vectors.make`. The same bytes every time, on every machine."""

import json
import shutil
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

STANDARD = Path(__file__).parent.parent
DATA = STANDARD / "vectors" / "data"

SAMPLES = {
    "conditional": ["every-mask", "nine-codecs", "nested", "in-shards-end"],
    "pad": ["start-5", "end-5", "both-ends", "tiff", "n5"],
    "packbits": ["bool-5-first_byte", "int16-some", "uint8-low"],
    "optional": ["int16", "all-null", "nested", "in-shards-end"],
}
"""Vectors that are shown beside the specification of each codec."""

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


def files():
    """Every file below `data/`, by its path, and the list of all vectors."""
    made = cases()
    found = {}
    for case in made:
        for name, content in case.written().items():
            assert f"{case.path}/{name}" not in found, f"{case.path} is made twice"
            found[f"{case.path}/{name}"] = content
    lines = ",\n".join(f"    {json.dumps(case.entry())}" for case in made)
    found["index.json"] = f'{{\n  "format": 1,\n  "cases": [\n{lines}\n  ]\n}}\n'.encode()
    return found


def samples(made):
    """The files of samples and examples, by their paths below `standard/`, out of those of the vectors."""
    found = {}
    for family, names in SAMPLES.items():
        folder = "optional/codec" if family == "optional" else family
        for name in names:
            source = f"{family}/{name}/"
            for path, content in made.items():
                if path.startswith(source + "zarr/"):
                    rest = path.removeprefix(source + "zarr/")
                    found[f"{folder}/sample_data/{name}.zarr/{rest}"] = content
            found[f"{folder}/sample_data/{name}.json"] = made[f"{source}expected.json"]
    for name, source in EXAMPLES.items():
        found[f"logical-array/examples/{name}.json"] = made[f"{source}/zarr/zarr.json"]
    return found


def everything():
    """All files that this script makes, by their paths below `standard/`."""
    made = files()
    return {f"vectors/data/{name}": content for name, content in made.items()} | samples(made)


def main():
    made = everything()
    for folder in {DATA, *(STANDARD / name.split(".zarr/")[0] for name in made if ".zarr/" in name)}:
        shutil.rmtree(folder if folder == DATA else folder.with_suffix(".zarr"), ignore_errors=True)
    for name, content in made.items():
        path = STANDARD / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    print(f"{len(cases())} vectors, {len(made)} files, {sum(map(len, made.values())):,} bytes")


if __name__ == "__main__":
    main()
