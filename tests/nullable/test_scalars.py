"""`NULL` and `Some`."""

import copy
import math
import pickle

import numpy as np
import pytest

from intarsia.errors import NullsPresentError
from intarsia.nullable import NULL, Null, Some
from intarsia.nullable.layout import tagged
from intarsia.nullable.scalars import scalar_of, unwrap


def test_there_is_one_null():
    assert Null() is NULL
    assert copy.deepcopy(NULL) is pickle.loads(pickle.dumps(NULL)) is NULL
    assert Null() == NULL
    assert NULL != 0
    assert {NULL: 1}[NULL] == 1


@pytest.mark.parametrize(
    "use", [bool, float, np.asarray, lambda x: np.array([x], dtype=float), lambda x: not x]
)
def test_null_is_no_number(use):
    with pytest.raises((NullsPresentError, TypeError)):
        use(NULL)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (3, 3, True),
        (3, np.int8(3), True),
        (3, 4, False),
        (math.nan, np.float32("nan"), True),
        (0.0, -0.0, False),
        (np.float32(-0.0), -0.0, True),
        (1.5, np.float16(1.5), True),
        (np.datetime64("NaT", "s"), np.datetime64("NaT", "s"), True),
        (np.datetime64(1, "s"), np.datetime64(1, "ms"), False),
        ("x", "x", True),
        (NULL, NULL, True),
        (Some(1), Some(1), True),
        (Some(NULL), NULL, False),
    ],
)
def test_values_are_equal_when_they_are_the_same_to_the_bit(a, b, same):
    assert (Some(a) == Some(b)) is same
    if same:
        assert hash(Some(a)) == hash(Some(b))


def test_some_does_not_change():
    with pytest.raises(AttributeError, match="immutable"):
        Some(3).value = 4
    assert np.asarray(Some(3)) == 3


def test_levels_are_counted_from_the_inside():
    for depth in (1, 2, 5):
        for missing in range(depth + 1):
            scalar = scalar_of(7, missing, depth)
            assert unwrap(scalar, depth) == ((7, 0) if missing == 0 else (None, missing))
    with pytest.raises(NullsPresentError, match="a null within 1 level"):
        unwrap(Some(NULL), 1)


def test_scalars_become_arrays_of_nullable_types_only():
    assert NULL.astype(tagged(np.dtype("i4"), 2)).missing == 2
    assert Some(3).astype(tagged(np.dtype("i4"), 2)).item() == 3
    with pytest.raises(NullsPresentError, match="that type has no null"):
        NULL.astype("i4")
