"""Room for data that is written later ends up like data that is written at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.logical.append import AppendPlan
from intarsia.logical.encoding import Encoding
from intarsia.logical.staging import reserve_in_existing_regions, reserve_region
from intarsia.manifest.box import Box
from tests.grids import dear
from tests.logical.strategies import arrays, codec_lists


def fill(logical, reservation, values):
    """Write the pieces; together they have to be all of the data, each element once."""
    seen = np.zeros(values.shape, dtype=int)
    for piece in reservation.pieces:
        source = tuple(slice(a, b) for a, b in zip(*piece.source, strict=True))
        target = tuple(slice(a, b) for a, b in zip(*piece.target, strict=True))
        logical.members.child(piece.member)[target] = values[source]
        seen[source] += 1
    assert (seen == 1).all()


@dear
@given(st.data())
def test_reserving_and_writing_is_appending(data):
    array, model = data.draw(arrays(max_ndim=3).filter(lambda drawn: drawn[1].ndim > 0))
    axis = data.draw(st.integers(0, array.ndim - 1))
    length = data.draw(st.integers(0, 7))
    shape = model.shape[:axis] + (length,) + model.shape[axis + 1 :]
    values = np.arange(np.prod(shape)).reshape(shape).astype(model.dtype)
    codecs = data.draw(st.none() | codec_lists(array.ndim))
    merge = data.draw(st.booleans())
    logical = array._logical
    plan = AppendPlan.of(logical, shape, axis, Encoding(codecs))
    reservation = (plan.reserve_growth() if merge else None) or plan.reserve()
    assert np.array_equal(array[...], model)  # nothing can be seen of it yet
    if np.prod(shape):
        fill(logical, reservation, values)
    reservation.commit()
    assert np.array_equal(array[...], np.concatenate([model, values], axis=axis))
    assert intarsia.verify(array) == ()


@pytest.mark.parametrize(("reserve", "codecs"), [("reserve", ["zstd"]), ("reserve_growth", ["gzip"])])
def test_what_was_reserved_and_not_wanted_leaves_nothing_behind(reserve, codecs):
    store = {}
    array = intarsia.create(store, "a", shape=(3,), chunks=(2,), dtype="i4")
    array.add_region(((0, 3),), codecs=["gzip"], data=[1, 2, 3])
    before = {key: value.to_bytes() for key, value in store.items()}
    plan = AppendPlan.of(array._logical, (5,), 0, Encoding(codecs))
    reservation = getattr(plan, reserve)()
    reservation.discard()
    assert {key: value.to_bytes() for key, value in store.items()} == before
    assert array[...].tolist() == [1, 2, 3]


def test_regions_that_overlap_are_refused_before_anything_is_made():
    store = {}
    array = intarsia.create(store, "a", shape=(8,), chunks=(2,), dtype="i4")
    array.add_region(((0, 6),), codecs=[])
    before = dict(store)
    with pytest.raises(intarsia.errors.OverlapError, match=r"\[0:6\] and \[4:8\] overlap"):
        reserve_region(array._logical, Box((2,), (4,)), Encoding())
    assert store == before


def test_a_member_that_cannot_be_made_leaves_nothing_behind():
    store = {}
    array = intarsia.create(store, "a", shape=(8,), chunks=(2,), dtype="i4")
    before = dict(store)
    with pytest.raises(intarsia.errors.ShapeError):
        reserve_region(array._logical, Box((2,), (4,)), Encoding(chunks=(2, 2)))
    assert store == before


def test_a_box_that_regions_do_not_cover_is_refused():
    array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="i4")
    array.add_region(((0, 4),), codecs=[])
    with pytest.raises(intarsia.errors.NoRegionError, match="2 of the 4 elements"):
        reserve_in_existing_regions(array._logical, Box((2,), (6,)))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (np.s_[2:4], ((2, 4), (0, 6))),
        (np.s_[:, 3:], ((0, 4), (3, 6))),
        (np.s_[..., :3], ((0, 4), (0, 3))),
        (np.s_[-2:, -3:], ((2, 4), (3, 6))),
        (..., ((0, 4), (0, 6))),
        ([(0, 2), slice(0, 3)], ((0, 2), (0, 3))),
    ],
)
def test_a_box_is_given_by_slices_too(bounds, expected):
    array = intarsia.create({}, "a", shape=(4, 6), chunks=(2, 3), dtype="u1")
    array.add_region(bounds, codecs=["gzip"], fill_value=7)
    assert array.regions[0].bounds == expected
    array.recode(bounds, codecs=["zstd"])
    assert array.regions[0].codec_names == "zstd"
    array.drop_region(bounds)
    assert not array.regions


@pytest.mark.parametrize("bounds", [np.s_[::2], np.s_[0:2, 0:3, 0:1], np.s_[0, :], [(0, 2, 1), (0, 3)]])
def test_what_is_no_box_is_refused(bounds):
    array = intarsia.create({}, "a", shape=(4, 6), chunks=(2, 3), dtype="u1")
    with pytest.raises(intarsia.errors.ShapeError, match=r"or slices without a step: np\.s_"):
        array.add_region(bounds)
    with pytest.raises(intarsia.errors.BoundsError, match="outside the array"):
        array.add_region(np.s_[2:8])
