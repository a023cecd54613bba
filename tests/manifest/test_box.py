"""Boxes against NumPy: a box is the set of places that a mask holds."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.manifest.box import Box, chunk_grid, tile_in_blocks

SIZE = 12


@st.composite
def boxes(draw: st.DrawFn, ndim: int = 2) -> Box:
    edges = [sorted(draw(st.lists(st.integers(0, SIZE), min_size=2, max_size=2))) for _ in range(ndim)]
    return Box.of((a, b) for a, b in edges)


units = st.tuples(st.integers(1, 5), st.integers(1, 5))


def painted(*shown: Box) -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), dtype=int)
    for box in shown:
        mask[box.slices] += 1
    return mask


@given(box=boxes())
def test_a_box_holds_what_its_slices_select(box: Box) -> None:
    assert list(box.indices()) == [tuple(place) for place in np.argwhere(painted(box)).tolist()]
    assert Box.of(box.bounds) == Box.sized(box.shape, box.start) == box


@given(box=boxes(), unit=units)
def test_units_hold_every_element_and_none_is_too_many(box: Box, unit: tuple[int, int]) -> None:
    holding = {tuple(i // u for i, u in zip(place, unit, strict=True)) for place in box.indices()}
    found = box.in_units(unit)
    if prod(box.shape):
        assert set(found.indices()) == holding
    assert chunk_grid(box.stop, unit) == found.stop


@given(box=boxes(), by=st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_a_shift_is_undone_by_looking_from_there(box: Box, by: tuple[int, int]) -> None:
    assert box.shifted(by).seen_from(by) == box
    assert box.shifted(by).shape == box.shape


@given(one=boxes(), other=boxes())
def test_what_is_shared_and_what_is_left_make_the_whole(one: Box, other: Box) -> None:
    shared = one.intersect(other)
    assert np.array_equal(painted(*one.subtract(other), *([shared] if shared else [])), painted(one))


@given(box=boxes(), unit=units, most_bytes=st.integers(1, 200))
def test_blocks_tile_a_box_and_share_no_chunk(box: Box, unit: tuple[int, int], most_bytes: int) -> None:
    cut = list(tile_in_blocks(box, unit, 1, most_bytes))
    assert np.array_equal(painted(*cut), painted(box))
    seen = [index for block in cut for index in block.in_units(unit).indices()]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("change", ["shifted", "seen_from", "in_units"])
@pytest.mark.parametrize("other", [(1,), (1, 1, 1)])
def test_coordinates_of_other_dimensions_are_refused(change: str, other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="zip"):
        getattr(Box((0, 0), (4, 4)), change)(other)
