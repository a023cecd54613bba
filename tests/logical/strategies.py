"""Random layouts and selections that the tests of logical arrays share."""

import numpy as np
from hypothesis import strategies as st

import intarsia
from intarsia.manifest.box import Box

CODECS = [
    ["gzip"],
    [{"name": "zstd", "configuration": {"level": 1}}],
    [],
    [{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 1}}],
    [
        {"name": "shuffle", "configuration": {"element_size": 1}},
        {"name": "conditional", "configuration": {"codecs": []}},
    ],
    [{"name": "pad", "configuration": {"location": "end", "nbytes": 3, "padding": "YWJj"}}, "zstd", "crc32c"],
]


def codec_lists(ndim):
    """A codec list that fits an array of `ndim` dimensions."""
    plain = st.sampled_from(CODECS)
    if not ndim:
        return plain
    order = list(reversed(range(ndim)))
    return plain | plain.map(lambda rest: [{"name": "transpose", "configuration": {"order": order}}, *rest])


@st.composite
def tilings(draw, box):
    """`box` cut at random into boxes that do not overlap."""
    axes = [axis for axis, n in enumerate(box.shape) if n > 1]
    if not axes or draw(st.integers(0, 3)) == 0:
        return [box]
    axis = draw(st.sampled_from(axes))
    cut = draw(st.integers(box.start[axis] + 1, box.stop[axis] - 1))
    low = box.with_axis(axis, box.start[axis], cut)
    high = box.with_axis(axis, cut, box.stop[axis])
    return draw(tilings(low)) + draw(tilings(high))


@st.composite
def arrays(draw, max_ndim=4):
    """A logical array with random regions and holes, and the NumPy array it must equal."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=max_ndim)))
    chunks = tuple(draw(st.integers(1, 4)) for _ in shape)
    dtype = draw(st.sampled_from(["int32", "float64", "uint8"]))
    fill = draw(st.integers(0, 9))
    array = intarsia.create({}, "a", shape=shape, chunks=chunks, dtype=dtype, fill_value=fill)
    model = np.full(shape, fill, dtype=dtype)
    lattice = array.manifest.lattice
    if all(lattice):
        for tile in draw(tilings(Box((0,) * len(shape), lattice))):
            if draw(st.integers(0, 4)) == 0:
                continue  # a hole
            bounds = array.manifest.elements(tile)
            index = tuple(slice(a, b) for a, b in zip(*bounds, strict=True))
            pairs = tuple(zip(*bounds, strict=True))
            member_chunks = tuple(draw(st.integers(1, 5)) for _ in shape) if draw(st.booleans()) else None
            shards = None
            if member_chunks and draw(st.integers(0, 2)) == 0:
                shards = tuple(n * draw(st.integers(1, 3)) for n in member_chunks)
            kind = {"codecs": draw(codec_lists(len(shape))), "chunks": member_chunks, "shards": shards}
            if draw(st.integers(0, 5)) == 0:  # never written: the member's own fill value
                array.add_region(pairs, fill_value=77, **kind)
                model[index] = 77
                continue
            # Runs of the fill value, so that some chunks are not stored.
            data = (np.arange(model[index].size) // draw(st.integers(1, 9)) + fill).astype(dtype)
            data = data.reshape(model[index].shape)
            array.add_region(pairs, data=data, **kind)
            model[index] = data
    return array, model


def axis_slices(n, negative_steps=True):
    steps = st.integers(1, 4) | (st.integers(-4, -1) if negative_steps else st.nothing())
    edges = st.none() | st.integers(-n - 2, n + 2)
    return st.builds(slice, edges, edges, st.none() | steps)


def axis_indices(n):
    return st.integers(-n, n - 1) if n else st.nothing()


def axis_arrays(n):
    masks = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda v: np.array(v, dtype=bool))
    if not n:
        return masks
    lists = st.lists(st.integers(-n, n - 1), min_size=1, max_size=6)
    return masks | lists.map(lambda v: np.array(v, dtype=np.int64))


@st.composite
def basic(draw, shape):
    """Integers, slices and an ellipsis."""
    entries = [draw(axis_slices(n) | axis_indices(n)) for n in shape]
    cut = draw(st.integers(0, len(entries)))
    kept = entries[:cut]
    if cut < len(entries) or draw(st.booleans()):
        tail = draw(st.integers(0, len(entries) - cut))
        kept = [*kept, Ellipsis, *(entries[len(entries) - tail :] if tail else [])]
    return tuple(kept)


@st.composite
def orthogonal(draw, shape):
    return tuple(draw(axis_slices(n) | axis_arrays(n) | axis_indices(n)) for n in shape)


@st.composite
def points(draw, shape):
    count = draw(st.integers(0, 6))
    return tuple(
        np.array(draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)), dtype=np.int64)
        for n in shape
    )


def masks(shape):
    size = int(np.prod(shape))
    return st.lists(st.booleans(), min_size=size, max_size=size).map(
        lambda v: np.array(v, dtype=bool).reshape(shape)
    )


def by_numpy_orthogonal(model, selection):
    """What `oindex` means, one axis after the other."""
    axis = 0
    for entry in selection:
        if isinstance(entry, slice):
            model = model[(slice(None),) * axis + (entry,)]
            axis += 1
        elif np.ndim(entry) == 0:
            model = model[(slice(None),) * axis + (int(entry),)]
        else:
            model = model[(slice(None),) * axis + (np.asarray(entry),)]
            axis += 1
    return model
