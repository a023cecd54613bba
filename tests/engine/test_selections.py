"""Every kind of selection over every kind of layout equals NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import dear
from tests.logical import strategies as s


@dear
@given(st.data())
def test_basic_selections_equal_numpy(data):
    array, model = data.draw(s.arrays())
    selection = data.draw(s.basic(model.shape))
    expected = model[selection]
    got = array[selection]
    assert got.dtype == model.dtype
    np.testing.assert_array_equal(got, expected)
    assert got.shape == np.shape(expected)


@dear
@given(st.data())
def test_orthogonal_selections_equal_numpy(data):
    array, model = data.draw(s.arrays())
    selection = data.draw(s.orthogonal(model.shape))
    expected = s.by_numpy_orthogonal(model, selection)
    got = array.oindex[selection]
    np.testing.assert_array_equal(got, expected)
    assert got.shape == np.shape(expected)


@dear
@given(st.data())
def test_points_equal_numpy(data):
    array, model = data.draw(s.arrays().filter(lambda pair: pair[1].size and pair[1].ndim))
    selection = data.draw(s.points(model.shape))
    np.testing.assert_array_equal(array.vindex[selection], model[selection])
    np.testing.assert_array_equal(array[selection], model[selection])


@given(st.data())
def test_masks_equal_numpy(data):
    array, model = data.draw(s.arrays().filter(lambda pair: pair[1].ndim))
    mask = data.draw(s.masks(model.shape))
    np.testing.assert_array_equal(array.vindex[mask], model[mask])
    np.testing.assert_array_equal(array[mask], model[mask])


@dear
@given(st.data())
def test_lazy_views_equal_numpy(data):
    array, model = data.draw(s.arrays().filter(lambda pair: pair[1].size and pair[1].ndim))
    first = data.draw(s.basic(model.shape))
    view, expected = array.lazy[first], model[first]
    np.testing.assert_array_equal(view.result(), expected)
    if expected.ndim and expected.size:
        second = data.draw(s.orthogonal(expected.shape))
        np.testing.assert_array_equal(view.oindex[second].result(), s.by_numpy_orthogonal(expected, second))


@dear
@given(st.data())
def test_writes_equal_numpy(data):
    array, model = data.draw(s.arrays())
    array = array.with_config(cross_region_writes=True)
    covered = np.zeros(model.shape, dtype=bool)
    for region in array.regions:
        covered[tuple(slice(a, b) for a, b in region.bounds)] = True
    selection = data.draw(s.orthogonal(model.shape))
    entries = [
        np.arange(n)[entry] if np.ndim(entry) or isinstance(entry, slice) else np.array([entry])
        for entry, n in zip(selection, model.shape, strict=True)
    ]
    places = np.ix_(*entries) if entries else ()
    if not np.all(covered[places]) or any(
        np.unique(e % n).size != e.size for e, n in zip(entries, model.shape, strict=True)
    ):
        return  # a hole, or one element twice: which value wins is nobody's promise
    value = np.random.default_rng(0).integers(0, 100, model[places].shape).astype(model.dtype)
    model[places] = value
    array.oindex[selection] = value.reshape(array.oindex[selection].shape)
    np.testing.assert_array_equal(array[...], model)


@given(st.data())
def test_writes_to_points_equal_numpy(data):
    array, model = data.draw(s.arrays().filter(lambda pair: pair[1].ndim))
    array = array.with_config(cross_region_writes=True)
    mask = data.draw(s.masks(model.shape))
    for region in array.regions:
        inside = np.zeros(model.shape, dtype=bool)
        inside[tuple(slice(a, b) for a, b in region.bounds)] = True
        model[mask & inside] = 77
        array.vindex[mask & inside] = 77
    np.testing.assert_array_equal(array[...], model)
