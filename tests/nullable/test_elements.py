"""`NULL` and `Some`, and the note on a dtype that says it is nullable."""

import copy
import math
import pickle

import numpy as np
import pytest

from intarsia.errors import NullsPresentError
from intarsia.nullable import NULL, Null, Some
from intarsia.nullable.elements import ElementType, element_type, placeholder, tag_dtype, to_scalar, unwrap


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
    with pytest.raises(AttributeError, match="cannot assign"):
        Some(3).value = 4
    assert np.asarray(Some(3)) == 3


def test_levels_are_counted_from_the_inside():
    for depth in (1, 2, 5):
        for missing in range(depth + 1):
            scalar = to_scalar(7, missing, depth)
            assert unwrap(scalar, depth) == ((7, 0) if missing == 0 else (None, missing))
    with pytest.raises(NullsPresentError, match="a null within 1 level"):
        unwrap(Some(NULL), 1)


def test_scalars_become_arrays_of_nullable_types_only():
    assert NULL.astype(tag_dtype(np.dtype("i4"), 2)).missing == 2
    assert Some(3).astype(tag_dtype(np.dtype("i4"), 2)).item() == 3
    with pytest.raises(NullsPresentError, match="that type has no null"):
        NULL.astype("i4")


DTYPES = ["?", "i1", ">i4", "f8", "c16", "M8[ns]", "m8[10us]", "S3", "U4", "V5", "O", [("a", "i4")]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_note_changes_nothing_else(dtype):
    plain = np.dtype(dtype)
    noted = tag_dtype(plain, 3)
    assert noted == plain
    assert noted.name == plain.name
    assert element_type(noted) == ElementType(plain, 3)
    assert element_type(noted).dtype.metadata is None
    assert element_type(pickle.loads(pickle.dumps(noted))) == ElementType(plain, 3)
    assert np.empty(2, dtype=noted).dtype == plain


def test_byte_orders_are_not_mixed_up():
    assert element_type(tag_dtype(np.dtype(">i4"), 1)).dtype.str == ">i4"
    assert element_type(tag_dtype(np.dtype("<i4"), 1)).dtype.str == "<i4"


def test_strings_carry_it_as_their_na_object():
    noted = tag_dtype(np.dtypes.StringDType(), 2)
    assert element_type(noted) == ElementType(np.dtypes.StringDType(), 2)
    with pytest.raises(ValueError, match="string"):
        np.asarray(["x", None], dtype=noted)  # never the text "None"


@pytest.mark.parametrize(
    "dtype", ["f8", np.dtype("f8"), np.dtypes.StringDType(na_object=None), "nonsense", None]
)
def test_other_dtypes_have_none(dtype):
    assert element_type(dtype) is None
    assert element_type(np.dtype("f8", metadata={"somebody": "else"})) is None


def test_nothing_looks_like_a_number_where_that_is_possible():
    assert np.isnan(placeholder(np.dtype("f4")))
    assert np.isnat(placeholder(np.dtype("M8[s]")))
    assert placeholder(np.dtype("M8[s]")).dtype == np.dtype("M8[s]")
    for dtype in DTYPES:
        np.empty(2, dtype=dtype)[...] = placeholder(np.dtype(dtype))
