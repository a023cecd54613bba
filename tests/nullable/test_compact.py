"""Gathering present elements and putting them back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.nullable import NullableValues
from intarsia.nullable.compact import Compact, gather
from intarsia.nullable.layout import Layout


@given(
    shape=st.tuples(st.integers(0, 4), st.integers(0, 5)),
    share=st.sampled_from([0, 0.5, 1]),
    seed=st.integers(0, 99),
    layout=st.sampled_from(["C", "F", "strided"]),
)
def test_gathering_and_expanding_are_inverse(shape, share, seed, layout):
    rng = np.random.default_rng(seed)
    values = rng.random((shape[0] * 2, shape[1]))[::2] if layout == "strided" else np.array(
        rng.random(shape), order=layout
    )  # fmt: skip
    present = rng.random(shape) >= share
    count = int(present.sum())
    taken = gather(values, present, count)
    np.testing.assert_array_equal(taken, values[present])
    out = np.empty(count)
    assert gather(values, present, count, out) is out
    np.testing.assert_array_equal(out, taken)
    chunk = Compact(present, taken, Layout(values.dtype, 1), count)
    expanded = chunk.expanded()
    assert expanded.equals(NullableValues(values, ~present))
    assert np.isnan(expanded.values[~present]).all()
    # into the middle of something larger, in either order
    target = NullableValues.full((shape[0] + 2, shape[1] + 2), 7.0, Layout(values.dtype, 1))
    region = target[1:-1, 1:-1]
    chunk.expand_into(region.values, region.missing)
    assert region.equals(expanded)
    target[1:-1, 1:-1] = 7.0
    assert (target.values == 7).all()
    assert target.null_count == 0


@given(missing=st.lists(st.integers(0, 3), max_size=9))
def test_levels_expand(missing):
    missing = np.array(missing, dtype="u1")
    values = np.arange(len(missing))
    present = missing < 3
    inner = NullableValues(values[present], missing[present], 2)
    chunk = Compact(present, inner, Layout(values.dtype, 3), int(present.sum()))
    assert chunk.expanded().equals(NullableValues(values, missing, 3))
