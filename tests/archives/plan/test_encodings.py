"""Boxes around chosen chunks."""

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as hnp

from intarsia.archives.plan.encodings import boxes_of


@given(hnp.arrays(bool, hnp.array_shapes(min_dims=0, max_dims=3, max_side=6)))
def test_boxes_cover_exactly_the_chosen_cells_each_once(chosen):
    painted = np.zeros(chosen.shape, int)
    for box in boxes_of(chosen):
        painted[tuple(slice(a, b) for a, b in zip(*box, strict=True))] += 1
    assert np.array_equal(painted, chosen.astype(int))
