"""The order of files along the axis."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.archives.arrange import Segment, arrange


@given(st.permutations(range(12)), st.integers(0, 11), st.data())
def test_files_end_up_sorted_wherever_they_belong(order, count, data):
    steps = data.draw(st.lists(st.integers(1, 4), min_size=12, max_size=12))
    whole = [Segment(f"{i}", np.arange(10 * i, 10 * i + n), n) for i, n in enumerate(steps)]
    old = sorted(order[:count])
    new = order[count:]
    placements, refused = arrange([whole[i] for i in old], [whole[i] for i in new], "time", {})
    assert not refused
    axis = np.concatenate([whole[i].values for i in old]) if old else np.empty(0, int)
    for placement in reversed(placements):
        axis = np.insert(axis, placement.at, whole[new[placement.file]].values)
    assert axis.tolist() == np.concatenate([segment.values for segment in whole]).tolist()


def test_overlapping_and_interleaved_files_are_refused_by_name():
    old = [Segment("a.nc", np.array([1, 3, 5]), 3)]
    new = [
        Segment("inside.nc", np.array([2]), 1),
        Segment("across.nc", np.array([5, 6]), 2),
        Segment("b.nc", np.array([7]), 1),
    ]
    placements, refused = arrange(old, new, "time", {"units": "days since 2000-01-01"})
    assert [placement.file for placement in placements] == [2]
    assert refused[0] == "its time 2000-01-03 … 2000-01-03 overlaps that of a.nc (2000-01-02 … 2000-01-06)"
    assert "across" not in refused[1]
    assert "a.nc" in refused[1]


def test_values_that_do_not_increase_or_are_missing_are_refused():
    new = [Segment("down", np.array([3, 2]), 2), Segment("gap", np.array([1.0, np.nan]), 2)]
    placements, refused = arrange([], new, "time", {})
    assert not placements
    assert "does not increase" in refused[0]
    assert "missing values" in refused[1]


def test_without_a_coordinate_files_are_appended_as_they_are_named():
    new = [Segment("b", None, 2), Segment("a", None, 1)]
    placements, refused = arrange([Segment("old", None, 5)], new, "time", {})
    assert [(p.file, p.at, p.length) for p in placements] == [(0, 5, 2), (1, 5, 1)]
    assert not refused
