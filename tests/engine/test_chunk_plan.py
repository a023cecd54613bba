"""Chunks of a part, put together again, are the part."""

import numpy as np
import zarr
from hypothesis import given
from hypothesis import strategies as st

from intarsia.engine.chunk_plan import AxisCuts, ChunkPlan, outer_index
from intarsia.engine.plan import RegionPart
from intarsia.engine.prepared_member import PreparedMember


@st.composite
def axes(draw):
    """Where on an axis of up to 20 elements, and where in an output, in one of the ways that plans have."""
    n = draw(st.integers(1, 20))
    if draw(st.booleans()):
        indices = np.array(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8)))
        target = np.array(draw(st.permutations(range(indices.size))))
        return n, indices, target, indices.size
    start = draw(st.integers(0, n - 1))
    step = draw(st.integers(1, 7))
    count = draw(st.integers(1, (n - 1 - start) // step + 1))
    source = slice(start, start + (count - 1) * step + 1, step)
    if draw(st.booleans()):
        return n, source, slice(0, count, 1), count
    return n, source, slice(count - 1, None, -1), count


@given(axes(), st.integers(1, 8), st.none() | st.sets(st.integers(1, 20)))
def test_an_axis_is_cut_at_chunk_borders_and_where_regions_begin(axis, size, borders):
    n, source, target, count = axis
    borders = None if borders is None else np.array(sorted(borders), dtype=np.int64)
    pieces = AxisCuts(source, target, size, borders)
    values, out = np.arange(n), np.full(count, -1)
    for chunk, inside, place, whole in zip(
        pieces.chunk, pieces.inside, pieces.target, pieces.whole, strict=True
    ):
        stored = np.full(size, -9)
        part = values[chunk * size : (chunk + 1) * size]
        stored[: part.size] = part
        out[place] = stored[inside]
        if whole:
            assert stored[inside].tolist() == stored.tolist()
        if borders is not None:
            assert np.unique(borders.searchsorted(stored[inside], side="right")).size == 1
    expected = np.empty(count, dtype=int)
    expected[target] = values[source]
    assert out.tolist() == expected.tolist()
    if borders is None:
        assert len(set(pieces.chunk)) == len(pieces.chunk)


def made(part, chosen, sizes, counts, points=False):
    shape = tuple(axis[0] for axis in chosen)
    array = zarr.create_array({}, shape=shape, chunks=sizes, dtype="i8", compressors=None)
    values = np.arange(1, np.prod(shape) + 1).reshape(shape)
    array[...] = values
    work = ChunkPlan(part, PreparedMember.of("m", array), points)
    work.out = np.empty(counts, dtype=int)
    return work, array, values


@given(st.lists(axes(), min_size=1, max_size=3), st.data())
def test_the_chunks_of_a_part_are_read_once_and_fill_it(chosen, data):
    sizes = tuple(data.draw(st.integers(1, 8)) for _ in chosen)
    counts = tuple(axis[3] for axis in chosen)
    part = RegionPart(0, tuple(a[1] for a in chosen), tuple(a[2] for a in chosen), int(np.prod(counts)))
    work, array, values = made(part, chosen, sizes, counts)
    padded = np.zeros([-(-n // c) * c for n, c in zip(array.shape, sizes, strict=True)], dtype=int)
    padded[tuple(slice(0, n) for n in array.shape)] = values
    assert len(set(work.chunks.tolist())) == work.chunks.size
    out = np.zeros(counts, dtype=int)
    covered = work.covered(work.source.chunk_shape)
    for k, (target, inside) in enumerate(work.placements(np.arange(work.chunks.size))):
        index = work.source.index(int(work.chunks[k]))
        chunk = padded[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, sizes, strict=True))]
        taken = chunk if inside is None else chunk[inside]
        out[target] = taken
        assert covered[k] <= (np.unique(taken[taken > 0]).size == (chunk > 0).sum())
    expected = np.zeros(counts, dtype=int)
    expected[outer_index(part.output_selection, counts)] = values[
        outer_index(part.member_selection, array.shape)
    ]
    np.testing.assert_array_equal(out, expected)
    whole = np.full(counts, -1)
    whole[work.whole_target()] = 5
    assert (whole == 5).all()


@given(st.data())
def test_points_are_grouped_by_chunk(data):
    shape, sizes = (9, 7), (4, 3)
    count = data.draw(st.integers(1, 12))
    points = [
        np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count))) for n in shape
    ]
    places = np.array(data.draw(st.permutations(range(count))))
    part = RegionPart(0, tuple(points), (places,), count)
    work, _, values = made(part, [(n,) for n in shape], sizes, (count,), points=True)
    out = np.zeros(count, dtype=int)
    for k, (target, inside) in enumerate(work.placements(np.arange(work.chunks.size))):
        y, x = work.source.index(int(work.chunks[k]))
        out[target] = values[y * 4 : y * 4 + 4, x * 3 : x * 3 + 3][inside]
    np.testing.assert_array_equal(out[places], values[tuple(points)])
    assert not work.covered(work.source.chunk_shape).any()
