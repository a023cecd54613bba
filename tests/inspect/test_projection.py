"""Projections keep every region visible and add up to what is there, however many regions there are."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import intarsia
from intarsia.inspect.drawing import map_axes, plane_axes, project
from tests.logical.strategies import arrays


def small():
    """Two regions that do not fit into one cell."""
    array = intarsia.create({}, shape=(3, 1, 1), chunks=(2, 1, 1), dtype="u1")
    array.add_region([(0, 2), (0, 1), (0, 1)], codecs=[])
    array.add_region([(2, 3), (0, 1), (0, 1)], codecs=[])
    return array, None


def cells_of(manifest, axes, most):
    start, stop = manifest.region_bounds()
    return project(manifest.shape, start, stop, np.arange(len(start)) % 3, axes, most)


@example(made=small(), most=1)
@given(made=arrays(), most=st.integers(1, 40))
def test_shares_add_up_to_what_regions_cover(made, most):
    manifest = made[0].manifest
    axes = plane_axes(manifest.shape)
    cells = cells_of(manifest, axes, most)
    depth = np.prod([n for i, n in enumerate(manifest.shape) if i not in axes])
    start, stop = manifest.region_bounds()
    covered = np.prod(stop - start, axis=1).sum() if len(start) else 0
    drawn = sum(
        np.prod(np.subtract(cell.stop, cell.start)) * depth * sum(share for _, share in cell.shares)
        for cell in cells
    )
    assert drawn == pytest.approx(covered)


def grid(side, ndim):
    cells = np.indices((side,) * ndim).reshape(ndim, -1).T
    return cells, cells + 1


def test_few_regions_keep_their_outline():
    start, stop = np.array([[0, 0], [0, 30], [5, 0]]), np.array([[5, 30], [5, 40], [10, 40]])
    cells = project((10, 40), start, stop, np.arange(3), (0, 1), 100)
    assert [(cell.start, cell.stop) for cell in cells] == [
        ((0, 0), (5, 30)),
        ((0, 30), (5, 40)),
        ((5, 0), (10, 40)),
    ]
    assert [cell.regions.tolist() for cell in cells] == [[0], [1], [2]]


def test_regions_behind_one_another_share_a_cell():
    start, stop = np.array([[0, 0, 0], [3, 0, 0]]), np.array([[3, 8, 8], [4, 8, 8]])
    (cell,) = project((4, 8, 8), start, stop, np.array([0, 1]), (1, 2), 100)
    assert cell.shares == ((0, 0.75), (1, 0.25))


def test_crossing_projections_are_cut_at_their_edges():
    start, stop = np.array([[0, 0, 0], [1, 2, 0]]), np.array([[1, 4, 4], [2, 6, 4]])
    cells = project((2, 6, 4), start, stop, np.array([0, 1]), (1, 2), 100)
    assert [(cell.start[0], cell.stop[0], cell.shares) for cell in cells] == [
        (0, 2, ((0, 0.5),)),
        (2, 4, ((0, 0.5), (1, 0.5))),
        (4, 6, ((1, 0.5),)),
    ]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_many_regions_become_few_cells_that_hold_them_all(ndim):
    side = {1: 8000, 2: 90, 3: 20}[ndim]
    start, stop = grid(side, ndim)
    axes = plane_axes((side,) * ndim)
    cells = project((side,) * ndim, start, stop, np.zeros(len(start), dtype=int), axes, 200)
    assert len(cells) <= 200
    assert set(np.concatenate([cell.regions for cell in cells]).tolist()) == set(range(len(start)))
    assert all(share == pytest.approx(1) for cell in cells for _, share in cell.shares)


def test_nothing_to_draw():
    nothing = np.empty((0, 2), dtype=int)
    assert project((4, 4), nothing, nothing, np.empty(0, dtype=int), (0, 1), 10) == []
    assert project((0, 4), np.array([[0, 0]]), np.array([[0, 4]]), np.array([0]), (0, 1), 10) == []


def test_a_map_shows_the_axes_that_regions_divide():
    """Years of a map one after the other are bands along time, not stripes on top of one another."""
    shape, start = (6, 72, 144), np.array([[0, 0, 0], [2, 0, 0], [4, 0, 0]])
    assert map_axes(shape, start, start + (2, 72, 144)) == (0, 2)
    assert plane_axes(shape) == map_axes(shape, start[:1], start[:1] + shape) == (1, 2)
    halves = np.array([[0, 0, 0], [0, 36, 0]])
    assert map_axes(shape, halves, halves + (6, 36, 144)) == (1, 2)
    assert map_axes((5,), start[:0, :1], start[:0, :1]) == (0,)
