"""Selections through views, planned by the planner and checked against NumPy."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.engine.chunk_plan import outer_index
from intarsia.engine.plan import plan
from intarsia.engine.request import parse_selection, points_in_member, to_member_axes
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import RegionTable, Row
from tests.logical import strategies
from tests.manifest.test_view import viewed


def planned(shape, selection, mode):
    """The one part of a selection in an array that a single region covers: in places."""
    manifest = Manifest.empty(shape, (1,) * len(shape), "i8")
    row = Row(0, Box.sized(shape), (0,) * len(shape))
    table = RegionTable.from_rows([row], len(shape))
    manifest = replace(manifest, members=("m",)).changed(table)
    found = plan(manifest, parse_selection(shape, selection, mode))
    return found.request, found.parts


def read_outer(member, view, seen, selection, mode):
    asked, parts = planned(seen.shape, selection, mode)
    out = np.full(asked.working_shape, -1)
    for part in parts:
        for at, source, target in to_member_axes(view, part.member_selection, part.output_selection):
            onto = view.onto(out, at)
            assert all(s.step > 0 if isinstance(s, slice) else (np.diff(s) >= 0).all() for s in source)
            onto[outer_index(target, onto.shape)] = member[outer_index(source, member.shape)]
    return out.reshape(asked.shape)


@given(viewed(), st.data())
def test_basic_selections_read_through_a_view(drawn, data):
    member, view, seen = drawn
    selection = data.draw(strategies.basic(seen.shape))
    np.testing.assert_array_equal(read_outer(member, view, seen, selection, "basic"), seen[selection])


@given(viewed(), st.data())
def test_orthogonal_selections_read_through_a_view(drawn, data):
    member, view, seen = drawn
    if not seen.ndim:
        return
    selection = data.draw(strategies.orthogonal(seen.shape))
    expected = strategies.by_numpy_orthogonal(seen, selection)
    np.testing.assert_array_equal(read_outer(member, view, seen, selection, "orthogonal"), expected)


@given(viewed(), st.data())
def test_points_read_through_a_view(drawn, data):
    member, view, seen = drawn
    if not seen.ndim:
        return
    selection = data.draw(strategies.points(seen.shape))
    asked, parts = planned(seen.shape, selection, "vectorized")
    out = np.full(asked.working_shape, -1)
    for part in parts:
        if asked.points is not None:
            out[part.output_selection] = member[
                (*points_in_member(view, part.member_selection, part.size), ...)
            ]
        else:
            for at, source, target in to_member_axes(view, part.member_selection, part.output_selection):
                onto = view.onto(out, at)
                onto[outer_index(target, onto.shape)] = member[outer_index(source, member.shape)]
    np.testing.assert_array_equal(out.reshape(asked.shape), seen[selection])
