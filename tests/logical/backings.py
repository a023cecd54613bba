"""Logical arrays with packed regions and every way to look at members, with the values that they show."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

import intarsia
from intarsia import Packing, View
from intarsia.manifest.box import Box
from intarsia.manifest.view import MemberAxis
from tests.logical import strategies

PACKINGS = [
    None,
    Packing("int16", scale=0.5, offset=3.0, missing=-1),
    Packing("int8", unsigned=True, scale=np.float32(0.1)),
    Packing("uint8", missing=(255, 254)),
    Packing("int32", offset=np.float64(1e3)),
    Packing("float32", missing=-9.0),
]


@st.composite
def views(draw, shape, chunks):
    """A view that shows `shape`; axes that have a logical chunk of 1 and one element may be new."""
    ndim = len(shape)
    new = [d for d in range(ndim) if chunks[d] == shape[d] == 1 and draw(st.booleans())]
    kept = [d for d in range(ndim) if d not in new]
    order = draw(st.permutations(kept))
    view = View.identity(len(kept)).transpose(*(order.index(d) for d in kept))
    for d in new:
        view = view.expand(d)
    for d in kept:
        if draw(st.booleans()):
            view = view.flip(d, shape[d])
    axes = list(view.axes)
    if draw(st.booleans()):  # a member with one axis more, of which one index is seen
        axes.insert(draw(st.integers(0, len(axes))), MemberAxis(None, draw(st.integers(0, 2))))
    return View(ndim, tuple(axes))


def a_member(draw, array, name, view, shape, packing, dtype):
    """A real array that a region of `shape` looks at, and the values that it then shows."""
    needed = view.member_box(Box.sized(shape)).stop
    member_shape = tuple(n + draw(st.integers(0, 2)) for n in needed)
    stored = np.dtype(dtype) if packing is None else packing.stored
    size = int(np.prod(member_shape, dtype=int))
    numbers = (np.arange(size) * 7 % 251).astype(stored).reshape(member_shape)
    chunks = tuple(draw(st.integers(1, 4)) for _ in member_shape)
    shards = tuple(2 * n for n in chunks) if draw(st.integers(0, 3)) == 0 and chunks else None
    member = array.group.create_array(
        name,
        shape=member_shape,
        chunks=chunks or "auto",
        shards=shards,
        dtype=stored,
        fill_value=7,
        serializer={"name": "bytes", "configuration": {"endian": draw(st.sampled_from(["little", "big"]))}},
        compressors=draw(st.sampled_from([None, {"name": "zstd", "configuration": {"level": 1}}])),
    )
    written = tuple(slice(draw(st.sampled_from([0, 0, 0, n // 2, n])), n) for n in member_shape)
    member[written or ...] = numbers[written]
    numbers = member[...]  # chunks that were never written are the member's fill value
    seen = view.seen(numbers[view.member_box(Box.sized(shape)).slices])
    return seen if packing is None else packing.decode(seen)


@st.composite
def arrays(draw, max_ndim=3, packings=PACKINGS, store=None):
    """A logical array with packed and turned regions, plain ones and holes, and what it must equal."""
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=max_ndim)))
    chunks = tuple(draw(st.integers(1, 4)) for _ in shape)
    array = intarsia.create(store or {}, "a", shape=shape, chunks=chunks, dtype="float64", fill_value=-5)
    model = np.full(shape, -5.0)
    for number, tile in enumerate(draw(strategies.tilings(Box.sized(array.manifest.lattice)))):
        if draw(st.integers(0, 5)) == 0:
            continue  # a hole
        bounds = array.manifest.elements(tile)
        packing = draw(st.sampled_from(packings))
        if draw(st.integers(0, 3)) == 0:
            data = np.arange(np.prod(bounds.shape, dtype=int), dtype=float).reshape(bounds.shape)
            packing = None if packing is None or packing.missing == (255, 254) else packing
            data = data if packing is None else packing.decode(data.astype(packing.stored))
            array.add_region(bounds.bounds, data=data, packing=packing)
            model[bounds.slices] = data
            continue
        view = draw(views(bounds.shape, chunks))
        model[bounds.slices] = a_member(draw, array, f"m{number}", view, bounds.shape, packing, "float64")
        array.add_region(bounds.bounds, member=f"m{number}", packing=packing, view=view)
    return array, model


@st.composite
def series(draw):
    """A logical array whose regions lie in one member, one behind the other, each with a packing of its own.

    There are holes between them, and chunks of the member in which several of them lie.
    """
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    along = draw(st.integers(0, len(shape) - 1))
    shape[along] = draw(st.integers(2, 12))
    chunks = [draw(st.integers(1, 3)) for _ in shape]
    array = intarsia.create({}, "a", shape=shape, chunks=chunks, dtype="float64", fill_value=-5)
    model = np.full(shape, -5.0)
    view = draw(views(shape, [0] * len(shape)))
    numbers = a_member(draw, array, "m", view, tuple(shape), None, "int16")
    lattice = Box.sized(array.manifest.lattice)
    cuts = [0, *sorted(draw(st.sets(st.integers(0, lattice.stop[along])))), lattice.stop[along]]
    tiles = [lattice.with_axis(along, low, high) for low, high in pairwise(cuts) if low < high]
    for i, tile in draw(st.permutations(list(enumerate(tiles)))):
        if draw(st.integers(0, 5)) == 0:
            continue  # a hole
        missing = draw(st.sampled_from([(), (70,), (84, 91)]))  # other kinds of packings
        packing = Packing("int16", scale=1.0 + i, offset=draw(st.sampled_from([None, 0.5])), missing=missing)
        packing = packing if draw(st.integers(0, 5)) else Packing("int16", values="float64")
        bounds = array.manifest.elements(tile)
        array.add_region(bounds.bounds, member="m", member_start=bounds.start, packing=packing, view=view)
        model[bounds.slices] = packing.decode(numbers[bounds.slices])
    return array, model
