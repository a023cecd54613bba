"""Reading through dask: one block for a chunk, names that tell versions apart; the grid of the blocks."""

from itertools import accumulate, product

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.base import tokenize
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.interop.dask import to_dask
from intarsia.interop.dask.to_dask import block_sizes
from intarsia.interop.xarray.variables import xarray_chunks
from intarsia.manifest.box import Box
from tests.grids import dear
from tests.interop.datasets import CountingStore
from tests.logical import backings
from tests.logical.strategies import arrays, axis_slices


@given(st.data())
def test_a_dask_array_has_the_values_of_the_logical_array(data):
    array, model = data.draw(arrays())
    lazy = array.to_dask()
    assert (lazy.shape, lazy.dtype) == (model.shape, model.dtype)
    with dask.config.set(scheduler="sync"):
        assert np.array_equal(lazy.compute(), model)
        chosen = tuple(data.draw(axis_slices(n)) for n in model.shape)
        # dask takes [-n - 1 :: -1], which is empty, for [::-1]: so the model is one of its arrays, too
        assert np.array_equal(lazy[chosen].compute(), da.from_array(model)[chosen].compute())


@given(backings.arrays())
def test_packed_and_turned_regions_through_dask(drawn):
    array, model = drawn
    lazy = array.to_dask()
    assert (lazy.shape, lazy.dtype) == (model.shape, model.dtype)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), model)


def two_members(store):
    array = intarsia.create(store, "a", shape=(0, 6), chunks=(1, 6), dtype="i4")
    array.append(np.arange(60).reshape(10, 6), codecs=["gzip"], chunks=(4, 3))
    array.append(np.arange(60, 90).reshape(5, 6), codecs=["zstd"], chunks=(5, 6))
    return array


def test_every_chunk_is_read_once():
    store = CountingStore(zarr.storage.MemoryStore())
    two_members(store)
    lazy = intarsia.open(store, "a").to_dask()
    assert lazy.chunks == ((4, 4, 2, 5), (6,))
    store.gets.clear()
    lazy.compute()
    chunks = {key: count for key, count in store.gets.items() if not key.endswith("zarr.json")}
    assert len(chunks) == 7
    assert set(chunks.values()) == {1}


def test_other_blocks_can_be_asked_for():
    array = two_members({})
    assert array.to_dask(chunks=(15, 2)).chunks == ((15,), (2, 2, 2))
    assert array.to_dask(chunks="auto").numblocks == (1, 1)
    assert array.to_dask(chunks={0: -1}).chunks == ((15,), (6,))
    assert np.array_equal(array.to_dask(chunks=7).compute(), array[...])


def test_fancy_indexing_equals_numpy():
    array = two_members({})
    model = array[...]
    lazy = array.to_dask()
    assert np.array_equal(lazy[[14, 0, 7]].compute(), model[[14, 0, 7]])
    assert np.array_equal(lazy[:, [5, 1]][::-3].compute(), model[:, [5, 1]][::-3])
    assert np.array_equal(lazy[lazy % 7 == 0].compute(), model[model % 7 == 0])
    assert np.array_equal(lazy.vindex[[1, 12], [3, 5]].compute(), model[[1, 12], [3, 5]])


def test_equal_snapshots_have_equal_names_and_others_have_others():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        two_members(tx.store)
    first = intarsia.open(repo, "a")
    assert first.to_dask().name == intarsia.open(repo, "a").to_dask().name
    assert first.to_dask().name != first.to_dask(chunks=5).name
    with intarsia.transaction(repo, message="second") as tx:
        tx.open("a")[0, 0] = 7
    second = intarsia.open(repo, "a")
    assert second.to_dask().name != first.to_dask().name
    assert intarsia.open(repo, "a", snapshot_id=tx.snapshot_id).to_dask().name == second.to_dask().name
    assert (second.to_dask() - first.to_dask()).compute()[0, 0] == 7


def test_where_values_may_change_no_two_names_are_equal():
    repo = intarsia.open_repository("memory://", create=True)
    session = repo.writable_session("main")
    two_members(session.store)
    two_members(store := {})
    for place in (session.store, store):
        assert tokenize(intarsia.open(place, "a")) != tokenize(intarsia.open(place, "a"))


def test_errors_of_a_read_come_through():
    array = two_members({})
    del array.group[array.regions[1].name]
    lazy = intarsia.open(array.store, "a").to_dask()
    assert lazy[:10].sum().compute() == np.arange(60).sum()
    with pytest.raises(intarsia.errors.MissingMemberError):
        lazy.sum().compute()


def test_a_nullable_array_becomes_masked_arrays():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="optional[int16]")
    array.append([1, None, 3])
    array.append([None, 5], codecs=["zstd"])
    lazy = array.to_dask()
    assert isinstance(lazy._meta, np.ma.MaskedArray)
    assert (lazy * 2).compute().tolist() == [2, None, 6, None, 10]
    assert lazy.sum().compute() == 9
    nested = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="optional[optional[int16]]")
    with pytest.raises(intarsia.errors.DataTypeError, match="several levels"):
        nested.to_dask()


def boxes(sizes):
    edges = [list(accumulate(axis, initial=0)) for axis in sizes]
    for corner in product(*(range(len(axis)) for axis in sizes)):
        yield Box(
            tuple(edge[i] for edge, i in zip(edges, corner, strict=True)),
            tuple(edge[i + 1] for edge, i in zip(edges, corner, strict=True)),
        )


def box_of(region):
    return Box(tuple(a for a, _ in region.bounds), tuple(b for _, b in region.bounds))


@dear
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


@given(backings.arrays(max_ndim=1))
def test_cuts_lie_between_chunks_of_members_that_are_seen_in_another_way(drawn):
    array, _ = drawn
    if not array.ndim:
        return
    cuts = set(accumulate(block_sizes(array)[0]))
    for region in array.regions:
        ((start, stop),) = region.bounds

        def chunk_of(x, region=region):
            box = region._manifest.to_member(region.row, Box((x,), (x + 1,)))
            return tuple(i // n for i, n in zip(box.start, region.chunks, strict=True))

        bounds = {x for x in range(start + 1, stop) if chunk_of(x) != chunk_of(x - 1)}
        assert {cut for cut in cuts if start < cut < stop} == bounds


def test_a_flipped_member_with_fewer_axes_is_read_chunk_by_chunk():
    store = CountingStore(zarr.storage.MemoryStore())
    array = intarsia.create(store, "a", shape=(2, 6, 9), chunks=(1, 6, 9), dtype="f4")
    for day in range(2):
        member = array.group.create_array(f"day{day}", shape=(9, 6), chunks=(4, 3), dtype="f4")
        member[...] = np.arange(54).reshape(9, 6) + 100 * day
        view = intarsia.View.identity(2).transpose(1, 0).flip(1, length=9).expand(0)
        array.add_region([(day, day + 1), (0, 6), (0, 9)], member=f"day{day}", view=view)
    lazy = intarsia.open(store, "a").to_dask()
    assert lazy.chunks == ((1, 1), (3, 3), (1, 4, 4))
    store.gets.clear()
    np.testing.assert_array_equal(lazy.compute(), array[...])
    chunks = {key: count for key, count in store.gets.items() if "/c/" in key}
    assert len(chunks) == 12
    store.gets.clear()
    lazy.compute()
    assert {count for key, count in store.gets.items() if "/c/" in key} == {1}


def test_a_turned_region_that_was_cut_keeps_the_chunk_bounds_of_its_member():
    array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="u1")
    array.group.create_array("m", shape=(12,), chunks=(5,), dtype="u1")[...] = np.arange(12)
    flipped = intarsia.View.identity(1).flip(0, length=12)
    array.add_region([(0, 8)], member="m", view=flipped, member_start=(2,))
    assert block_sizes(array) == ((5, 3),)
    array.drop_region([(2, 4)])
    assert array[...].tolist() == [9, 8, 0, 0, 5, 4, 3, 2]
    assert block_sizes(array) == ((2, 2, 1, 3),)
    assert array.to_dask().compute().tolist() == array[...].tolist()


def test_a_member_of_the_wrong_rank_is_for_the_read_to_complain_about():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    array.group.create_array("m", shape=(4,), chunks=(4,), dtype="u1")
    array.add_region([(0, 4)], member="m", view=intarsia.View.identity(1).flip(0, length=4))
    array.group.create_array("m", shape=(4, 1), chunks=(4, 1), dtype="u1", overwrite=True)
    assert block_sizes(intarsia.open(array.store, "a")) == ((2, 2),)


def test_sharded_members_are_cut_at_their_inner_chunks():
    array = intarsia.create({}, "a", shape=(0,), chunks=(8,), dtype="u1")
    array.append(np.ones(16, "u1"), codecs=["gzip"], chunks=(4,), shards=(8,))
    assert block_sizes(array) == ((4, 4, 4, 4),)


def test_a_hole_is_cut_like_the_rest():
    array = intarsia.create({}, "a", shape=(12,), chunks=(2,), dtype="u1")
    array.add_region(((8, 12),), codecs=["gzip"], chunks=(4,))
    assert block_sizes(array) == ((4, 4, 4),)


def test_scattered_regions_do_not_make_a_grid_of_millions_of_blocks(monkeypatch):
    monkeypatch.setattr(to_dask, "ALWAYS_ALLOWED_BLOCKS", 20)
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
    assert xarray_chunks(((3, 3, 1), (3, 3, 4), (5,))) == (3, (3, 3, 4), 5)
