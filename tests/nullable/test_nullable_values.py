"""`NullableValues` as an array."""

import numpy as np
import pytest
from numcodecs.compat import ensure_ndarray_like
from zarr.core.buffer import NDArrayLike

from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NULL, NullableValues, Some


def sample():
    return NullableValues(np.arange(6.0).reshape(2, 3), np.eye(2, 3, dtype=bool))


def test_it_passes_for_an_array_with_zarr_and_numcodecs():
    data = sample()
    assert isinstance(data, NDArrayLike)
    assert ensure_ndarray_like(data) is data
    assert (data.shape, data.ndim, data.size, len(data)) == ((2, 3), 2, 6, 2)
    assert (data.itemsize, data.nbytes, data.strides) == (9, 54, (24, 8))


@pytest.mark.parametrize(
    "key", [0, (0, 1), slice(1, 2), (slice(None), [2, 0]), ..., (np.array([True, False]),), ([0, 1], [0, 2])]
)
def test_parts_are_views_or_copies_as_of_arrays(key):
    data = sample()
    part = data[key]
    assert isinstance(part, NullableValues)
    np.testing.assert_array_equal(part.values, data.values[key])
    np.testing.assert_array_equal(part.missing, data.missing[key])
    one = isinstance(key, tuple) and all(isinstance(k, int) for k in key)  # a scalar of NumPy, a view here
    viewed = np.shares_memory(np.asarray(data.values[key]), data.values)
    assert np.shares_memory(part.values, data.values) == (viewed or one)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [None, None, None]),
        (NULL, [None, None, None]),
        (np.ma.masked, [None, None, None]),
        (Some(9.0), [9, 9, 9]),
        (9, [9, 9, 9]),
        (np.arange(3), [0, 1, 2]),
        (np.ma.masked_equal([1, 2, 3], 2), [1, None, 3]),
        (NullableValues(np.arange(3), np.array([True, False, True])), [None, 1, None]),
    ],
)
def test_setting(value, expected):
    data = sample()
    data[0] = value
    assert data.tolist() == [expected, [3, None, 5]]


def test_reshaping_and_transposing_keep_nulls_in_place():
    data = sample()
    assert data.transpose().tolist() == [[None, 3], [1, None], [2, 5]]
    assert data.reshape(3, 2).tolist() == [[None, 1], [2, 3], [None, 5]]
    assert data.reshape((6,), order=None, copy=None).tolist() == data.ravel().tolist()
    assert data.ravel("F").tolist() == [None, 3, 1, None, 2, 5]


@pytest.mark.parametrize("convert", [np.asarray, np.array, np.median, np.sort, np.cumsum, np.vstack])
def test_nulls_never_become_numbers(convert):
    with pytest.raises((NullsPresentError, TypeError)):
        convert(sample())


def test_it_has_no_hash_as_no_array_has():
    with pytest.raises(TypeError, match="unhashable"):
        hash(sample())


def test_without_nulls_it_is_an_array_like_any_other():
    data = NullableValues(np.arange(3))
    assert np.asarray(data).tolist() == [0, 1, 2]
    assert np.asarray(data, dtype="f4").dtype == np.dtype("f4")
    assert np.array_equal(data, [0, 1, 2])


def test_bytes_are_refused():
    for attempt in (lambda: sample().view("B"), lambda: sample().tobytes()):
        with pytest.raises(DataTypeError, match="encode it with the codec 'optional'"):
            attempt()


def test_filled_and_items():
    assert sample().filled(-1).tolist() == [[-1, 1, 2], [3, -1, 5]]
    assert [x for row in sample() for x in row] == [NULL, 1, 2, 3, NULL, 5]
    assert sample()[0, 1].item() == 1
    assert sample().all()
    with pytest.raises(ValueError, match="exactly one"):
        sample().item()


def test_astype_converts_what_is_present():
    data = NullableValues(np.array([1.5, np.nan, 1e300]), np.array([False, True, True]))
    with np.errstate(all="raise"):
        assert data.astype("int8").tolist() == [1, None, None]
    same = data.astype("float64", copy=False)
    assert same.values is data.values
    assert not np.shares_memory(data.astype("float64").values, data.values)


def test_levels():
    nested = NullableValues(np.arange(3), np.array([0, 1, 2], dtype="u1"), 2)
    assert repr(nested) == "NullableValues([0, Some(NULL), NULL], dtype=int64)"
    assert nested.isnull().tolist() == [False, True, True]
    assert nested.collapse().depth == 1
    assert nested.at_depth(2) is nested
    with pytest.raises(DataTypeError, match="which of 3 levels"):
        nested.at_depth(3)
    assert NullableValues(np.arange(3)).at_depth(3).depth == 3


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((np.arange(3), np.zeros(2, dtype=bool)), "of shape"),
        ((np.arange(3), np.zeros(3)), "uint8 or bool"),
        ((np.arange(3), None, 0), "1 to 255"),
        ((np.arange(3), None, 256), "1 to 255"),
    ],
)
def test_parts_that_do_not_fit(arguments, match):
    with pytest.raises(DataTypeError, match=match):
        NullableValues(*arguments)


def test_equality_is_to_the_bit():
    a = NullableValues(np.array([0.0, np.nan, 1.0]), np.array([False, False, True]))
    for values, same in (([0.0, np.nan, 2.0], True), ([-0.0, np.nan, 1.0], False), ([0.0, 1.0, 1.0], False)):
        assert a.equals(NullableValues(np.array(values), a.missing)) is same
    assert not a.equals(NullableValues(a.values, ~a.isnull()))
    assert not a.equals(a[:2])


def test_long_arrays_are_shortened():
    assert repr(NullableValues(np.arange(100))).count("...") == 1


def test_long_rows_go_on_in_the_next_line():
    wide = NullableValues(np.arange(1e6, 1e6 + 500).reshape(20, 25), np.eye(20, 25, dtype=bool))
    lines = repr(wide).split("\n")
    assert max(map(len, lines)) <= 75
    assert lines[0].startswith("NullableValues([[NULL, 1000001.0,")
    assert [line.strip() for line in lines].count("...,") == 1
    assert lines[-1].endswith("dtype=float64)")
    assert repr(NullableValues(np.array([1 / 3]))) == "NullableValues([0.33333333], dtype=float64)"
    assert repr(NullableValues(np.zeros((2, 0)))) == "NullableValues([], dtype=float64)"


@pytest.mark.parametrize(
    "value", [3.7, 300, np.float64("nan"), Some(3.7), Some(300), np.array([3.7]), "3", [3.7]]
)
def test_a_value_that_would_change_is_not_set(value):
    data = NullableValues(np.array([1, 2], dtype="int8"))
    with pytest.raises(DataTypeError):
        data[0:1] = value
    assert data.tolist() == [1, 2]


def test_nulls_are_not_filled_with_what_changes():
    numbers = NullableValues(np.array([1, 2], dtype="int8"), np.array([False, True]))
    for value in (3.7, 300, np.nan):
        with pytest.raises(DataTypeError, match="int8"):
            numbers.filled(value)
    text = NullableValues(np.array(["a", ""], dtype=np.dtypes.StringDType()), np.array([False, True]))
    with pytest.raises(NullsPresentError, match="None is null"):
        text.filled(None)
