"""A bounded look at values: what NumPy has there, coarser where that is too dear, damage marked by chunks."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.inspect import sample as module
from intarsia.inspect.sample import DAMAGED, HOLE, NULL, VALUE, sample
from tests.grids import dear
from tests.logical import strategies

GZIP = zarr.codecs.GzipCodec()


def spans_of(draw, shape):
    """A place or a range on every axis."""
    spans = []
    for size in shape:
        start = draw(st.integers(0, size - 1))
        if draw(st.booleans()):
            spans.append(start)
        else:
            spans.append(range(start, draw(st.integers(start + 1, size)), draw(st.integers(1, size + 1))))
    return spans


@dear
@given(strategies.arrays(), st.data())
def test_a_sample_is_what_numpy_has_there(case, data):
    array, model = case
    if not all(model.shape):
        return
    spans = spans_of(data.draw, model.shape)
    seen = sample(array, spans)
    expected = model[tuple(s if isinstance(s, int) else slice(s.start, s.stop, s.step) for s in spans)]
    np.testing.assert_array_equal(seen.values, expected.astype(seen.values.dtype))
    assert seen.coarser == 1
    for place in np.ndindex(seen.status.shape):
        rest = iter(place)
        index = [s if isinstance(s, int) else s[next(rest)] for s in spans]
        assert seen.status[place] == (HOLE if array.region_at(index) is None else VALUE)


def big():
    array = intarsia.create({}, "a", shape=(64, 64), chunks=(4, 4), dtype="i4")
    values = np.arange(64 * 64).reshape(64, 64)
    array.add_region([(0, 64), (0, 64)], data=values, codecs=[])
    return array, values


@pytest.mark.parametrize(("name", "most"), [("MAX_CHUNKS", 20), ("MAX_DECODED", 20 * 64)])
def test_what_is_too_dear_is_read_coarser_and_keeps_its_shape(monkeypatch, name, most):
    monkeypatch.setattr(module, name, most)
    array, values = big()
    for looked in (array, intarsia.reader(zarr.create_array({}, data=values.astype("i4"), chunks=(4, 4)))):
        seen = sample(looked, [range(0, 64, 2), range(0, 63, 1)])
        assert seen.coarser == 16
        assert seen.values.shape == (32, 63)
        rows, columns = np.arange(32) // 16 * 32, np.arange(63) // 16 * 16
        np.testing.assert_array_equal(seen.values, values[np.ix_(rows, columns)])


def test_one_chunk_is_never_too_much(monkeypatch):
    monkeypatch.setattr(module, "MAX_DECODED", 1)
    array, values = big()
    np.testing.assert_array_equal(sample(array, [range(4), range(4)]).values, values[:4, :4])


def test_more_than_an_answer_may_hold_is_refused():
    array = intarsia.create({}, "a", shape=(1000, 1000), chunks=(1000, 1000), dtype="u1")
    with pytest.raises(intarsia.errors.BoundsError, match="1,000,000 elements"):
        sample(array, [range(1000), range(1000)])
    for wrong in ([range(3)], [5, range(990, 1001)], [-1, 0], [1000, 0]):
        with pytest.raises(intarsia.errors.BoundsError):
            sample(array, wrong)


@pytest.mark.parametrize("logical", [True, False])
def test_damage_is_marked_chunk_by_chunk_and_the_rest_is_there(tmp_path, logical):
    values = np.arange(400.0).reshape(20, 20)
    if logical:
        array = intarsia.create(tmp_path, "a", shape=(20, 20), chunks=(5, 5), dtype="f8")
        array.add_region([(0, 20), (0, 20)], data=values, codecs=["gzip"])
        folder = tmp_path / "a" / array.regions[0].name
    else:
        zarr.create_array(tmp_path, name="a", data=values, chunks=(5, 5), compressors=GZIP)
        array = intarsia.reader(tmp_path, "a")
        folder = tmp_path / "a"
    for chunk in ("1/2", "3/0"):
        file = folder / "c" / chunk
        file.write_bytes(file.read_bytes()[:-20])
    seen = sample(array, [range(0, 20, 1), range(0, 20, 2)])
    expected = np.zeros((20, 20), bool)
    expected[5:10, 10:15] = expected[15:20, 0:5] = True
    np.testing.assert_array_equal(seen.status == DAMAGED, expected[:, ::2])
    good = seen.status == VALUE
    np.testing.assert_array_equal(seen.values[good], values[:, ::2][good])
    assert seen.problem


def test_where_all_is_damaged_it_gives_up_in_time(tmp_path, monkeypatch):
    array = intarsia.create(tmp_path, "a", shape=(64, 64), chunks=(1, 1), dtype="u1")
    array.add_region([(0, 64), (0, 64)], codecs=["gzip"])
    reads = []

    def fail(self, selection):
        reads.append(selection)
        raise OSError("no such device")

    monkeypatch.setattr(intarsia.LogicalArray, "__getitem__", fail)
    assert (sample(array, [range(64), range(64)]).status == DAMAGED).all()
    assert len(reads) < 4 * module.MAX_TRIES


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (np.array([True, False]), [1, 0]),
        (np.array([3 + 4j, 0]), [5, 0]),
        (np.array(["1970-01-03", "1970-01-01"], dtype="M8[D]"), [2, 0]),
        (np.array([7, 2**40], dtype="u8"), [7, 2**40]),
    ],
)
def test_every_kind_of_value_is_a_number_to_the_eye(values, numbers):
    array = intarsia.create({}, "a", shape=values.shape, chunks=values.shape, dtype=values.dtype)
    array.add_region([(0, 2)], data=values)
    assert sample(array, [range(2)]).values.tolist() == numbers


def test_equal_words_have_equal_numbers():
    words = np.array(["oak", "ash", "oak"], dtype=np.dtypes.StringDType())
    array = intarsia.create({}, "a", shape=(3,), chunks=(3,), dtype="string")
    array.add_region([(0, 3)], data=words)
    first, second, third = sample(array, [range(3)]).values
    assert first == third != second


def test_nulls_are_no_values():
    array = intarsia.create({}, "a", shape=(3,), chunks=(3,), dtype="optional[int8]")
    array.add_region([(0, 3)], data=[1, None, 3])
    seen = sample(array, [range(3)])
    assert seen.status.tolist() == [VALUE, NULL, VALUE]
    assert seen.finite.tolist() == [1, 3]
    assert seen.limits(0, 100) == (1, 3)


def test_limits_leave_out_the_few_and_what_is_no_number():
    array = intarsia.create({}, "a", shape=(1000,), chunks=(1000,), dtype="f4")
    values = np.linspace(0, 1, 1000, dtype="f4")
    values[[3, 500]] = np.nan, 1e30
    array.add_region([(0, 1000)], data=values)
    low, high = sample(array, [range(1000)]).limits()
    assert 0 < low < 0.05
    assert 0.95 < high < 1
