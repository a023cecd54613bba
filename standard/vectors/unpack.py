"""Writes vectors as plain directories.

`python -m standard.vectors.unpack FOLDER` writes all of them, with a list: for programs that read Zarr from
directories. With `--samples`, it writes the directories of codecs as registries take them: the texts and
schemas, with `sample_data/` beside them.
"""

import argparse
import json
import shutil
from pathlib import Path

from standard.vectors.generate.case import document
from standard.vectors.vectors import vector, vectors

STANDARD = Path(__file__).parent.parent

SAMPLES = {
    "conditional": ["every-mask", "nine-codecs", "nested", "in-shards-end"],
    "pad": ["start-5", "end-5", "both-ends", "tiff", "n5"],
    "packbits": ["bool-5-first_byte", "int16-some", "uint8-low"],
    "optional": ["int16", "all-null", "nested", "in-shards-end"],
}
"""Vectors that are shown beside the specification of each codec."""


def unpack(folder):
    """All vectors, each in the directory of its path, and `index.json`."""
    entries = []
    for each in vectors():
        each.write(folder / each.path / "zarr")
        if not each.refused:
            (folder / each.path / "expected.json").write_bytes(document(each.content["expected"]))
        entry = {"path": each.path, "kind": each.kind, "about": each.about}
        entries.append(json.dumps(entry | ({"refused": each.refused} if each.refused else {})))
    lines = ",\n".join(f"    {entry}" for entry in entries)
    (folder / "index.json").write_text(f'{{\n  "format": 1,\n  "cases": [\n{lines}\n  ]\n}}\n')


def write_samples(folder):
    """The directories of codecs, each with its sample data."""
    for family, names in SAMPLES.items():
        codec = "optional/codec" if family == "optional" else family
        shutil.copytree(STANDARD / codec, folder / codec)
        for name in names:
            sample = vector(f"{family}/{name}")
            sample.write(folder / codec / "sample_data" / f"{name}.zarr")
            (folder / codec / "sample_data" / f"{name}.json").write_bytes(
                document(sample.content["expected"])
            )


def main():
    parser = argparse.ArgumentParser(
        prog="python -m standard.vectors.unpack", description="Writes vectors as plain directories."
    )
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--samples", action="store_true", help="the codecs with sample data, for registries")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    (write_samples if arguments.samples else unpack)(arguments.folder)


if __name__ == "__main__":
    main()
