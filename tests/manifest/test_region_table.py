"""The region table: packings, views and layers stay with their rows, and a cropped region shows the same."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.packing import Packing
from intarsia.manifest.packing_columns import NO_PACKINGS
from intarsia.manifest.region_table import RegionTable, Row
from intarsia.manifest.view import View

ROWS = [
    Row(0, Box((0,), (4,)), (0,), packing=1, view=0),
    Row(1, Box((4,), (9,)), (2,), view=1),
    Row(0, Box((9,), (10,)), (4,), packing=0, layer=3),
]
TABLE = RegionTable.from_rows(ROWS, 1)


def test_rows_keep_their_numbers():
    assert [TABLE.row(i) for i in range(3)] == ROWS
    assert [TABLE.select(np.array([2, 0])).row(i) for i in range(2)] == [ROWS[2], ROWS[0]]
    assert TABLE.concat(TABLE.select(np.array([1]))).row(3) == ROWS[1]
    assert RegionTable.from_columns(TABLE.columns(), 1) == TABLE
    assert ROWS[0].crop(Box((1,), (2,))) == Row(0, Box((1,), (2,)), (1,), packing=1, view=0)


def test_tables_that_differ_in_a_number_alone_are_not_equal():
    for name in ("packing", "view", "layer"):
        assert replace(TABLE, **{name: getattr(TABLE, name) + 1}) != TABLE


def test_what_is_cut_out_of_a_region_leaves_its_numbers():
    left = TABLE.subtract(Box((1,), (6,)))
    assert {left.row(i) for i in range(len(left))} == {
        Row(0, Box((0,), (1,)), (0,), packing=1, view=0),
        Row(1, Box((6,), (9,)), (4,), view=1),
        ROWS[2],
    }


def test_a_change_leaves_out_what_no_region_refers_to():
    packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5), Packing("int16", scale=0.5)])
    views = (View.identity(1).flip(0, 40), View.identity(1).flip(0, 50))
    table = RegionTable.from_rows([row._replace(layer=0) for row in ROWS], 1)
    empty = Manifest.empty((100,), (10,), "f8")
    manifest = replace(empty, members=("a", "b"), packings=packings, views=views).changed(table)
    assert (manifest.version, manifest.members, manifest.views) == (2, ("a", "b"), views)
    kept = manifest.changed(manifest.regions.select(np.array([0])))
    assert list(kept.packings) == [Packing("int16", scale=0.5)]
    assert kept.views == views[:1]
    assert kept.regions.row(0) == Row(0, Box((0,), (4,)), (0,), packing=0, view=0)
    middle = manifest.changed(manifest.regions.select(np.array([1])))
    assert (len(middle.packings), middle.views, middle.regions.row(0).view) == (0, views[1:], 0)
    assert manifest.changed(RegionTable.from_rows([], 1)).version == 1


@st.composite
def arranged(draw):
    """A member, a manifest with one region that looks at it through a view, and what the region shows."""
    ndim = draw(st.integers(1, 3))
    chunk = tuple(draw(st.integers(1, 4)) for _ in range(ndim))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(ndim))  # the last chunks may be partial
    lattice = Manifest.empty(shape, chunk, "i8").lattice
    corners = [sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in lattice]
    box = Box(tuple(a for a, _ in corners), tuple(b + 1 for _, b in corners))
    member_start = tuple(draw(st.integers(0, 2)) for _ in range(ndim))
    size = Manifest.empty(shape, chunk, "i8").elements(box).shape
    # how far into the member the view has to reach, in the order of the logical axes
    length = [m * c + n + draw(st.integers(0, 3)) for m, c, n in zip(member_start, chunk, size, strict=True)]
    order = draw(st.permutations(range(ndim)))
    view = View.identity(ndim).transpose(*order)
    for axis in range(ndim):
        if draw(st.booleans()):
            view = view.flip(axis, length[axis])
    member = np.arange(np.prod(length)).reshape([length[order.index(i)] for i in range(ndim)])
    table = RegionTable.from_rows([Row(0, box, member_start, view=0)], ndim)
    empty = Manifest.empty(shape, chunk, "i8")
    manifest = replace(empty, members=("m",), views=(view,)).changed(table)
    manifest.check()
    return member, manifest


def shown(manifest, row, member):
    return manifest.view_of(row).seen(member[manifest.in_member(row).slices])


@given(arranged(), st.data())
def test_cropping_a_region_with_a_view_keeps_what_it_shows(drawn, data):
    member, manifest = drawn
    row = manifest.regions.row(0)
    whole, values = manifest.elements(row.box), shown(manifest, row, member)
    assert values.shape == whole.shape
    corners = [
        sorted(data.draw(st.tuples(st.integers(a, b - 1), st.integers(a, b - 1)))) for a, b in row.box.bounds
    ]
    hole = Box(tuple(a for a, _ in corners), tuple(b + 1 for _, b in corners))
    left = manifest.changed(manifest.regions.subtract(hole))
    left.check()
    for cropped in [*(left.regions.row(i) for i in range(len(left.regions))), row.crop(hole)]:
        where = manifest.elements(cropped.box).seen_from(whole.start)
        np.testing.assert_array_equal(shown(manifest, cropped, member), values[where.slices])


@given(arranged(), st.data())
def test_elements_and_places_in_the_member_map_both_ways(drawn, data):
    member, manifest = drawn
    row = manifest.regions.row(0)
    whole, values = manifest.elements(row.box), shown(manifest, row, member)
    corners = [
        sorted(data.draw(st.tuples(st.integers(a, b - 1), st.integers(a, b - 1)))) for a, b in whole.bounds
    ]
    elements = Box(tuple(a for a, _ in corners), tuple(b + 1 for _, b in corners))
    there = manifest.to_member(row, elements)
    seen = manifest.view_of(row).seen(member[there.slices])
    np.testing.assert_array_equal(seen, values[elements.seen_from(whole.start).slices])
    assert manifest.from_member(row, there) == elements
    plain = row._replace(view=-1)
    assert manifest.from_member(plain, manifest.to_member(plain, elements)) == elements
