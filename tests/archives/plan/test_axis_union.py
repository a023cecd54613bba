"""Axes that are the union of all files' coordinates, and where files lie on them, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.archives.plan.axis_union import append_axis, nested_list_axis, spans, uncovered, union_axis
from intarsia.errors import IngestError


@given(st.permutations(range(9)), st.integers(0, 9))
def test_spans_are_the_positions_whatever_their_order(order, count):
    positions = np.array(order[:count], dtype=np.int64)
    found = np.full(count, -1)
    for span in spans(positions):
        steps = span.first + span.stride * np.arange(span.length)
        assert (found[steps] == -1).all()
        found[steps] = np.arange(span.start, span.stop)
        assert (span.inverse.start, span.inverse.stop) == (steps.min(), steps.max() + 1)
        assert span.inverse.inverse == span
    assert found.tolist() == positions.tolist()


@given(st.permutations(range(9)), st.integers(0, 9), st.integers(0, 9))
def test_a_part_of_a_span_shows_the_same(order, a, b):
    low, high = sorted((a, b))
    for span in spans(np.array(order)):
        shown = {span.start + i: span.first + span.stride * i for i in range(span.length)}
        for part, kept in (
            (span.cut(low, high), {p: f for p, f in shown.items() if low <= p < high}),
            (span.of_file(low, high), {p: f for p, f in shown.items() if low <= f < high}),
        ):
            found = (
                {}
                if part is None
                else {part.start + i: part.first + part.stride * i for i in range(part.length)}
            )
            assert found == kept


@given(st.permutations(range(12)), st.integers(0, 11), st.sampled_from([1, -1]), st.data())
def test_files_end_up_sorted_wherever_they_belong(order, count, direction, data):
    values = 10 * np.arange(12)
    old = np.sort(values[order[:count]])[::direction]
    new = [values[[i]] for i in order[count:]]
    gone = np.array(
        sorted(data.draw(st.sets(st.integers(0, count - 1) if count else st.nothing()))), dtype=int
    )
    stays = np.delete(old, gone)
    axis = union_axis("t", stays, new)
    axis.count_removed(gone)
    expected = np.sort(np.concatenate([stays, *new]))
    if direction == -1 and len(stays) > 1:
        expected = expected[::-1]
    assert axis.values.tolist() == expected.tolist()
    assert axis.length == len(expected)
    for part, steps in zip(new, axis.positions, strict=True):
        assert axis.values[steps].tolist() == part.tolist()
    assert axis.values[axis.existing_positions[axis.existing_positions >= 0]].tolist() == stays.tolist()
    assert np.flatnonzero(axis.existing_positions < 0).tolist() == gone.tolist()
    assert axis.appends == (not len(gone) and axis.values[: len(old)].tolist() == old.tolist())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4))
def test_steps_that_nobody_has(intervals):
    pairs = [sorted(pair) for pair in intervals]
    there = np.zeros(9, dtype=bool)
    for a, b in pairs:
        there[a:b] = True
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert uncovered(9, *columns).tolist() == np.flatnonzero(~there).tolist()


def test_without_a_coordinate_files_are_appended_as_they_are_named():
    axis = append_axis("t", 5, [2, 1])
    assert [each.tolist() for each in axis.positions] == [[5, 6], [7]]
    assert axis.length == 8
    assert axis.appends


@pytest.mark.parametrize(
    ("old", "new", "tolerance"),
    [([3.0, 1.0, 2.0], 4.0, None), ([1.0, 1.4], 1.2, 0.25)],
    ids=["in no order", "equal through a new value"],
)
def test_steps_of_a_dataset_are_never_reordered_or_merged(old, new, tolerance):
    with pytest.raises(IngestError, match="in no order, or count as equal"):
        union_axis("t", np.array(old), [np.array([new])], tolerance)


def test_files_at_one_place_of_nested_lists_have_equal_lengths():
    with pytest.raises(IngestError, match="files at 0 of the lists along 'x' have 2 and 3 steps"):
        nested_list_axis("x", [0, 0], [2, 3])
