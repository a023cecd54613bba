"""Views of members, with NumPy and TensorStore as referees."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import ShapeError
from intarsia.manifest.box import Box
from intarsia.manifest.view import MemberAxis, View


@st.composite
def viewed(draw):
    """A member, a view of it, and what NumPy says that one sees."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    member = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    view, seen = View.identity(len(shape)), member
    for _ in range(draw(st.integers(0, 6))):
        step = draw(st.sampled_from(["transpose", "flip", "expand", "drop"]))
        if step == "transpose":
            order = draw(st.permutations(range(view.ndim)))
            view, seen = view.transpose(*order), seen.transpose(order)
        elif step == "expand":
            axis = draw(st.integers(0, view.ndim))
            view, seen = view.expand(axis), np.expand_dims(seen, axis)
        elif view.ndim:
            axis = draw(st.integers(0, view.ndim - 1))
            if step == "flip":
                view, seen = view.flip(axis, seen.shape[axis]), np.flip(seen, axis)
            elif seen.shape[axis] == 1:
                view, seen = view.drop(axis), np.squeeze(seen, axis)
    return member, view, seen


def a_box(draw, shape):
    corners = [sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in shape]
    return Box(tuple(a for a, _ in corners), tuple(b + 1 for _, b in corners))


@given(viewed())
def test_a_view_shows_what_numpy_shows(drawn):
    member, view, seen = drawn
    shown = view.seen(member)
    np.testing.assert_array_equal(shown, seen)
    assert shown.shape == seen.shape
    assert np.shares_memory(shown, member)
    back = view.unseen(shown)
    np.testing.assert_array_equal(back, member)
    assert back.shape == member.shape
    assert np.shares_memory(back, member)


@given(viewed(), st.data())
def test_boxes_map_both_ways(drawn, data):
    member, view, seen = drawn
    box = a_box(data.draw, seen.shape)
    there = view.member_box(box)
    np.testing.assert_array_equal(view.seen(member[there.slices]), seen[box.slices])
    assert view.places(there) == box


@given(viewed(), st.data())
def test_writing_through_a_view_writes_the_member(drawn, data):
    member, view, seen = drawn
    box = a_box(data.draw, seen.shape)
    values = -1 - np.arange(np.prod(box.shape, dtype=int)).reshape(box.shape)
    expected = seen.copy()
    expected[box.slices] = values
    member[view.member_box(box).slices] = view.unseen(values)
    np.testing.assert_array_equal(view.seen(member), expected)


@given(viewed(), st.data())
def test_chunks_of_a_member_begin_where_the_grid_says(drawn, data):
    member, view, seen = drawn
    chunks = [data.draw(st.integers(1, 5)) for _ in member.shape]
    numbered = np.zeros(member.shape, dtype=int)
    for axis, chunk in enumerate(chunks):  # every element says in which chunk it is
        along = np.arange(member.shape[axis]) // chunk
        numbered = numbered * 10 + along.reshape([-1 if d == axis else 1 for d in range(member.ndim)])
    numbers = view.seen(numbered)
    for axis, (size, first) in enumerate(view.grid(chunks)):
        assert 0 <= first < size
        borders = [i for i in range(1, seen.shape[axis]) if (i - first) % size == 0]
        line = np.moveaxis(numbers, axis, 0)
        changes = [i for i in range(1, seen.shape[axis]) if (line[i] != line[i - 1]).any()]
        assert borders == changes


@given(viewed())
def test_json_is_what_tensorstore_understands(drawn):
    tensorstore = pytest.importorskip("tensorstore")
    member, view, seen = drawn
    document = json.loads(json.dumps(view.to_json()))
    assert View.from_json(document) == view
    bounds = {"input_inclusive_min": [0] * seen.ndim, "input_exclusive_max": list(seen.shape)}
    transform = tensorstore.IndexTransform(json={**document, **bounds})
    for place in np.ndindex(*seen.shape):
        assert member[tuple(transform(place))] == seen[place]


def test_an_axis_may_be_seen_at_another_index_than_0():
    view = View.identity(2).drop(0, at=3)
    assert view.member_box(Box((2,), (4,))) == Box((3, 2), (4, 4))


@pytest.mark.parametrize(
    "make",
    [
        lambda: View(1, (MemberAxis(0), MemberAxis(0))),
        lambda: View(1, (MemberAxis(1),)),
        lambda: View(1, (MemberAxis(-1),)),
        lambda: View(1, (MemberAxis(0, stride=2),)),
        lambda: View(1, (MemberAxis(0, stride=0),)),
        lambda: View(1, (MemberAxis(0, offset=1 << 62),)),
        lambda: View(1, (MemberAxis(None, offset=-1),)),
        lambda: View(65, ()),
        lambda: View(-1, ()),
        lambda: View.identity(2).transpose(0),
        lambda: View.identity(2).transpose(0, 0),
        lambda: View.identity(2).flip(2, 1),
        lambda: View.identity(2).drop(-1),
        lambda: View.identity(2).expand(4),
    ],
)
def test_impossible_views_are_refused(make):
    with pytest.raises(ShapeError):
        make()


@pytest.mark.parametrize(
    ("document", "match"),
    [
        (None, "Expected object, got null"),
        ([], "Expected object, got array"),
        ({}, "missing required field input_rank"),
        ({"input_rank": 1, "output": [], "input_labels": []}, "unknown field input_labels"),
        ({"input_rank": 1.0, "output": []}, "input_rank: 1.0: Expected int, got float"),
        ({"input_rank": True, "output": []}, "input_rank: True: Expected int, got bool"),
        ({"input_rank": "1", "output": []}, "input_rank"),
        ({"input_rank": 10**30, "output": []}, "input_rank: 1000.*: Expected int <= 64"),
        ({"input_rank": 1, "output": None}, "output: None: Expected array, got null"),
        ({"input_rank": 1, "output": [{}] * 1000}, "output: 1000 entries: Expected array of length <= 64"),
        ({"input_rank": 1, "output": [0]}, r"output\[0\]: 0: Expected object, got int"),
        (
            {"input_rank": 1, "output": [{"index_array": []}]},
            r"output\[0\]: .*unknown field index_array",
        ),
        ({"input_rank": 1, "output": [{"input_dimension": None}]}, r"output\[0\].input_dimension: None"),
        ({"input_rank": 1, "output": [{"offset": float("nan")}]}, r"output\[0\].offset: nan"),
        ({"input_rank": 1, "output": [{"offset": 10**30}]}, "an offset of 1000"),
        ({"input_rank": 1, "output": [{"stride": -1}]}, "a stride without an input_dimension"),
        ({"input_rank": 1, "output": [{"stride": 2, "input_dimension": 0}]}, "a stride of 2"),
        ({"input_rank": 1, "output": [{"input_dimension": 0}] * 2}, "not a permutation"),
    ],
)
def test_json_that_is_no_view_is_refused_and_the_field_is_named(document, match):
    with pytest.raises(ShapeError, match=match):
        View.from_json(document)
