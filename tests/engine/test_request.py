"""Requests: what selections mean."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr_indexing import IndexTransform
from zarr_indexing.boundary import normalize_positional_selection

import intarsia
from intarsia.engine.request import from_transform, parse_selection
from tests.logical import strategies as s


@given(st.data())
def test_integers_and_slices_mean_what_zarr_indexing_says(data):
    shape = data.draw(st.lists(st.integers(0, 9), max_size=4).map(tuple))
    selection = data.draw(s.basic(shape))
    transform = IndexTransform.from_shape(shape)
    literal = normalize_positional_selection(selection, transform.domain, "basic")
    assert parse_selection(shape, selection) == from_transform(transform[literal])


@pytest.mark.parametrize(
    "selection", [10, -11, (0, 0, 0), slice(None, None, 0), (..., ...), slice("a", None), True, 1.5, "x"]
)
def test_mistakes_are_told(selection):
    with pytest.raises((IndexError, TypeError, ValueError)):
        parse_selection((10, 10), selection)


def test_what_has_the_methods_of_an_integer_is_one():
    assert parse_selection((10, 10), (np.int64(3), slice(np.int8(2), None))) == parse_selection(
        (10, 10), (3, slice(2, None))
    )


def test_a_mask_of_another_length_is_refused_with_the_shapes():
    words = r"boolean index has shape \(5,\) but the selected axes have shape \(12,\)"
    with pytest.raises(IndexError, match=words):
        parse_selection((12, 3), (np.ones(5, bool), slice(None)), "orthogonal")


@pytest.mark.parametrize("indices", [np.arange(10) % 2 == 1, np.array([7, 0, 2])])
def test_an_array_of_zarr_selects_by_its_values(indices):
    values = np.arange(10)
    reader, stored = intarsia.reader(zarr.array(values, chunks=3)), zarr.array(indices, chunks=2)
    for of in (reader, reader.oindex, reader.vindex):
        np.testing.assert_array_equal(of[stored], values[indices])
