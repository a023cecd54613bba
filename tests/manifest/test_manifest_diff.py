"""What differs between two layouts, checked element by element."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.manifest.box import Box
from intarsia.manifest.manifest_diff import rebacked_boxes, region_diffs
from tests.grids import dear
from tests.logical import strategies as s


def routes(manifest):
    """Member and place in it, for every logical chunk; None for holes."""
    found = np.full(manifest.lattice, None, dtype=object)
    for i in range(len(manifest.regions)):
        row = manifest.regions.row(i)
        for cell in np.ndindex(*row.box.shape):
            place = tuple(a + c for a, c in zip(row.box.start, cell, strict=True))
            inside = tuple(a + c for a, c in zip(row.member_start, cell, strict=True))
            found[place] = (manifest.members[row.member], inside)
    return found


@st.composite
def changes(draw):
    """A layout, and the layout after a few changes of the regions."""
    array, _ = draw(s.arrays(max_ndim=2).filter(lambda pair: pair[1].size))
    before = array.manifest
    for _ in range(draw(st.integers(0, 3))):
        bounds = []
        for n, c, cells in zip(array.shape, array.chunks, array.manifest.lattice, strict=True):
            start = draw(st.integers(0, cells - 1))
            stop = draw(st.integers(start + 1, cells))
            bounds.append((start * c, min(stop * c, n)))
        try:
            if draw(st.booleans()):
                array.drop_region(bounds)
            elif draw(st.booleans()):
                array.recode(bounds, codecs=["gzip"])
            else:
                array.add_region(bounds, codecs=["gzip"])
        except (intarsia.errors.NoRegionError, intarsia.errors.OverlapError):
            continue
    return before, array.manifest


@dear
@given(changes())
def test_every_rerouted_cell_is_told_once_and_no_other(pair):
    before, after = pair
    old, new = routes(before), routes(after)
    told = np.full(before.lattice, None, dtype=object)
    for change in region_diffs(before, after):
        index = tuple(slice(a, b) for a, b in zip(*change.box, strict=True))
        assert all(cell is None for cell in np.ravel(told[index]))
        told[index] = change.kind
    for cell in np.ndindex(*before.lattice):
        expected = None
        if old[cell] != new[cell]:
            expected = "added" if old[cell] is None else "dropped" if new[cell] is None else "moved"
        assert told[cell] == expected


@dear
@given(changes(), st.data())
def test_a_box_is_disturbed_if_any_of_its_cells_is_hole_or_not(pair, data):
    before, after = pair
    changed = routes(before) != routes(after)
    boxes = [before.regions.row(i).box for i in range(len(before.regions))]
    starts = tuple(data.draw(st.integers(0, n - 1)) for n in before.lattice)
    stops = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(starts, before.lattice, strict=True))
    boxes.append(Box(starts, stops))
    expected = [
        box for box in boxes if np.any(changed[tuple(slice(a, b) for a, b in zip(*box, strict=True))])
    ]
    assert rebacked_boxes(before, after, boxes) == expected
