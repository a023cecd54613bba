"""Draws the picture of the README: one array, inlaid from four encodings, and its map as SVG."""

import re
import sys
from pathlib import Path

import numpy as np
from zarr.codecs import BloscCodec, ZstdCodec

import intarsia

OUTPUT = Path(__file__).parent.parent / "docs" / "assets" / "regions.svg"
SHAPE, LATTICE = (600, 1200), (100, 100)

SMOOTH = [intarsia.codecs.ShuffleCodec(element_size=4), ZstdCodec(level=9)]
CLASSES = [ZstdCodec(level=9)]
HOT = [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4)]
RAW: list = []

# Which kind of data lies where, as a keeper of such data would draw it: y from, to, x from, to.
LAYOUT = (
    (0, 200, 0, 500, SMOOTH),
    (0, 300, 500, 800, CLASSES),
    (0, 200, 800, 1200, SMOOTH),
    (200, 600, 0, 200, RAW),
    (200, 400, 200, 500, HOT),
    (200, 400, 800, 1000, HOT),
    (300, 600, 500, 800, SMOOTH),
    (400, 600, 200, 500, CLASSES),
    (200, 500, 1000, 1200, RAW),
    (400, 600, 800, 1000, SMOOTH),
)


def field() -> np.ndarray:
    """Values that suit the layout: smooth, classes, noise."""
    random = np.random.default_rng(1)
    y, x = np.mgrid[0 : SHAPE[0], 0 : SHAPE[1]]
    values = (np.sin(x / 90) * np.cos(y / 70) * 20).round(2).astype("f4")
    levels = random.normal(size=24).astype("f4")
    for top, bottom, left, right, codecs in LAYOUT:
        box = np.s_[top:bottom, left:right]
        if codecs is RAW:
            values[box] = random.normal(size=values[box].shape)
        elif codecs is CLASSES:
            values[box] = levels[random.integers(0, len(levels), size=values[box].shape)]
    return values


def inlaid() -> intarsia.LogicalArray:
    """The array, in memory."""
    values = field()
    array = intarsia.create({}, "field", shape=SHAPE, chunks=LATTICE, dtype="f4", dimension_names=("y", "x"))
    for top, bottom, left, right, codecs in LAYOUT:
        bounds = ((top, bottom), (left, right))
        array.add_region(bounds, codecs=codecs, data=values[top:bottom, left:right])
    return array


def picture() -> str:
    """The map; member names, which are random, are numbered instead."""
    text = intarsia.region_map(inlaid())
    for number, name in enumerate(dict.fromkeys(re.findall(r"m-[0-9a-f]{32}", text)), 1):
        text = text.replace(name, f"m-{number}")
    return text + "\n"


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_text(picture(), encoding="utf-8")
    print(output)
