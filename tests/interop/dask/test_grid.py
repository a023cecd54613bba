"""The grid of a dask array over a logical array."""

from itertools import accumulate, product

import numpy as np
from hypothesis import given

import intarsia
from intarsia.array.box import Box
from intarsia.interop.dask import grid
from intarsia.interop.dask.grid import block_sizes, compact
from tests.array.strategies import arrays


def boxes(sizes):
    edges = [list(accumulate(axis, initial=0)) for axis in sizes]
    for corner in product(*(range(len(axis)) for axis in sizes)):
        yield Box(
            tuple(edge[i] for edge, i in zip(edges, corner, strict=True)),
            tuple(edge[i + 1] for edge, i in zip(edges, corner, strict=True)),
        )


def box_of(region):
    return Box(tuple(a for a, _ in region.bounds), tuple(b for _, b in region.bounds))


@given(arrays())
def test_the_grid_covers_the_array_and_no_block_reaches_over_the_bounds_of_a_region(drawn):
    array, _ = drawn
    sizes = block_sizes(array)
    assert tuple(sum(axis) for axis in sizes) == array.shape
    assert all(n > 0 for axis, length in zip(sizes, array.shape, strict=True) for n in axis if length)
    for box in boxes(sizes):
        assert [shared for region in array.regions if (shared := box_of(region).intersect(box))] in (
            [],
            [box],
        )


@given(arrays(max_ndim=1))
def test_on_one_axis_every_cut_inside_a_region_lies_between_chunks_of_its_member(drawn):
    array, _ = drawn
    if not array.ndim:
        return
    cuts = set(accumulate(block_sizes(array)[0]))
    for region in array.regions:
        ((start, stop),), ((member_start, _),) = region.bounds, region.member_bounds
        chunk = region.chunks[0]
        bounds = {x for x in range(start + 1, stop) if (x - start + member_start) % chunk == 0}
        assert {cut for cut in cuts if start < cut < stop} == bounds


def series(chunks, length=12):
    array = intarsia.create({}, "a", shape=(0, 12), chunks=(1, 12), dtype="u1")
    for shape in chunks:
        array.append(np.ones((length, 12), "u1"), codecs=["gzip"], chunks=shape, merge=False)
    return array


def test_members_of_different_chunks_side_by_side_are_cut_where_both_have_a_bound():
    assert block_sizes(series([(12, 2), (12, 3)]))[1] == (6, 6)


def test_where_no_common_bound_is_near_the_larger_chunks_decide():
    assert block_sizes(series([(12, 7), (12, 5)]))[1] == (7, 5)


def test_a_cropped_region_keeps_the_chunk_bounds_of_its_member():
    array = series([(5, 12)])
    array.drop_region(((0, 3), (0, 12)))
    assert block_sizes(array)[0] == (3, 2, 5, 2)


def test_sharded_members_are_cut_at_their_inner_chunks():
    array = intarsia.create({}, "a", shape=(0,), chunks=(8,), dtype="u1")
    array.append(np.ones(16, "u1"), codecs=["gzip"], chunks=(4,), shards=(8,))
    assert block_sizes(array) == ((4, 4, 4, 4),)


def test_a_hole_is_cut_like_the_rest():
    array = intarsia.create({}, "a", shape=(12,), chunks=(2,), dtype="u1")
    array.add_region(((8, 12),), codecs=["gzip"], chunks=(4,))
    assert block_sizes(array) == ((4, 4, 4),)


def test_scattered_regions_do_not_make_a_grid_of_millions_of_blocks(monkeypatch):
    monkeypatch.setattr(grid, "ALWAYS_ALLOWED_BLOCKS", 20)
    array = intarsia.create({}, "a", shape=(24, 24), chunks=(1, 1), dtype="u1")
    for i in range(24):  # a diagonal: 24 chunks, and 24 cuts on either axis
        array.add_region(((i, i + 1), (i, i + 1)), codecs=[], chunks=(4, 4))
    assert block_sizes(array) == ((4,) * 6, (4,) * 6)
    array[5, 5] = 7
    assert array.to_dask()[4:8, 4:8].compute().sum() == 7


def test_a_missing_member_is_for_the_read_to_complain_about():
    array = series([(12, 12)])
    del array.group[array.regions[0].name]
    assert block_sizes(intarsia.open(array.store, "a")) == ((1,) * 12, (12,))


def test_compact_gives_one_number_where_the_blocks_are_equal():
    assert compact(((3, 3, 1), (3, 3, 4), (5,))) == (3, (3, 3, 4), 5)
