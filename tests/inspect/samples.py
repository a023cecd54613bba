"""Logical arrays to look at: two-dimensional, a series, many regions, hostile names."""

from dataclasses import replace
from itertools import product

import numpy as np

import intarsia
from intarsia.logical.encoding import Encoding
from intarsia.manifest.region_table import RegionTable

HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=2'>\"'&\x1b[31m\u202e"


def two_codecs(store=None):
    """1000 x 1000: gzip above, raw below on the left, nothing below on the right."""
    random = np.random.default_rng(0)
    array = intarsia.create(
        {} if store is None else store,
        "field",
        shape=(1000, 1000),
        chunks=(100, 100),
        dtype="float32",
        dimension_names=("y", "x"),
    )
    array.add_region(((0, 500), (0, 1000)), codecs=["gzip"], data=np.arange(500_000).reshape(500, 1000))
    array.add_region(((500, 1000), (0, 600)), codecs=[], data=random.normal(size=(500, 600)))
    return array


def series(store=None, steps=(("gzip", 20), ("zstd", 30))):
    """Time, lat, lon: one codec after the other along time, the shortest axis."""
    array = intarsia.create(
        {} if store is None else store,
        "series",
        shape=(0, 72, 144),
        chunks=(10, 36, 72),
        dtype="float32",
        dimension_names=("time", "lat", "lon"),
    )
    for codec, length in steps:
        array.append(np.ones((length, 72, 144), dtype="f4"), codecs=[codec])
    return array


def tiles(side, ndim, kinds=3, store=None):
    """side ** ndim regions of one lattice cell each, in a few members; nothing is stored."""
    array = intarsia.create(
        {} if store is None else store, "tiles", shape=(side * 4,) * ndim, chunks=(4,) * ndim, dtype="f4"
    )
    codecs = [["gzip"], ["zstd"], []]
    members = [
        array._logical.create_member(
            array.shape,
            Encoding(codecs[k] if k < 3 else [{"name": "gzip", "configuration": {"level": k % 10}}]),
        )[0]
        for k in range(kinds)
    ]
    cells = np.array(list(product(range(side), repeat=ndim)))
    which = np.random.default_rng(1).integers(0, kinds, len(cells))
    which[:kinds] = range(kinds)
    table = RegionTable.of(which, cells, cells + 1, cells)
    array._logical.commit(replace(array.manifest, members=tuple(members)).changed(table))
    return array


def hostile(store=None):
    """Names and attributes that a page must not obey."""
    array = intarsia.create(
        {} if store is None else store,
        "evil<script>alert(1)</script>",
        shape=(4, 4),
        chunks=(2, 2),
        dtype="f4",
        dimension_names=(HOSTILE, "x"),
        attributes={HOSTILE: HOSTILE},
    )
    array.append(np.ones((2, 4)), codecs=["gzip"])
    return array
