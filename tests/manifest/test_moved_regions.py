"""Cells of region tables that move, and regions that are merged or refined, against arrays of cells."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import RegionTable, Row


@st.composite
def tables(draw):
    """Regions along an axis, some of several cells, some beside each other in the second axis."""
    rows, position = [], 0
    for _ in range(draw(st.integers(0, 6))):
        position += draw(st.integers(0, 2))
        length = draw(st.integers(1, 4))
        cut = draw(st.integers(0, 3))
        member, inside = draw(st.integers(0, 2)), draw(st.integers(0, 9))
        for a, b in ((0, cut), (cut, 3)):
            if a < b:
                rows.append(Row(member, Box((position, a), (position + length, b)), (inside, a)))
        position += length
    return RegionTable.from_rows(rows, 2), position


def painted(table, length):
    """Member and place in it for every cell; -1 for a hole."""
    cells = np.full((length, 3, 3), -1)
    for i in range(len(table)):
        row = table.row(i)
        for cell in np.ndindex(*row.box.shape):
            at = tuple(a + c for a, c in zip(row.box.start, cell, strict=True))
            assert cells[at][0] == -1, "two regions overlap"
            cells[at] = (row.member, *(a + c for a, c in zip(row.member_start, cell, strict=True)))
    return cells


@given(tables(), st.data())
def test_cells_that_move_or_go_take_everything_along(made, data):
    table, length = made
    steps = data.draw(st.lists(st.integers(-1, 3), min_size=length, max_size=length))
    places = np.full(length, -1)
    expected, at = np.full((length * 4, 3, 3), -1), 0
    for cell, step in enumerate(steps):
        if step >= 0:  # so many cells come before it that are new
            at += step
            places[cell], expected[at] = at, painted(table, length)[cell]
            at += 1
    assert np.array_equal(painted(table.move(0, places), length * 4), expected)


@given(tables())
def test_merging_changes_no_cell_and_leaves_no_neighbours_to_merge(made):
    table, length = made
    cells = []
    for i in range(len(table)):  # the same regions, cut into single steps
        row = table.row(i)
        cells += [row.crop(row.box.with_axis(0, k, k + 1)) for k in range(row.box.start[0], row.box.stop[0])]
    merged = RegionTable.from_rows(cells, 2).merge_neighbours(0)
    assert np.array_equal(painted(merged, length), painted(table, length))
    assert len(merged) <= len(table)


@given(tables(), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]))
def test_a_finer_lattice_shows_the_same_elements(made, first, second):
    table, length = made
    manifest = Manifest.empty((max(length, 1) * 6, 5), (6, 2), "u1")
    manifest = Manifest(0, manifest.shape, (6, 2), manifest.data_type, 0, None, ("a", "b", "c"), table)
    finer = manifest.refine((6 // first, 2 // second))
    for i in range(len(table)):
        assert finer.elements(finer.regions.row(i).box) == manifest.elements(table.row(i).box)
        old, new = table.row(i).member_start, finer.regions.row(i).member_start
        assert tuple(a * c for a, c in zip(new, finer.chunk_shape, strict=True)) == (old[0] * 6, old[1] * 2)
