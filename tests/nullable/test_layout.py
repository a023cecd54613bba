"""The note on a dtype that says it is nullable."""

import pickle

import numpy as np
import pytest

from intarsia.nullable.layout import Layout, beneath, layout_of, tagged

DTYPES = ["?", "i1", ">i4", "f8", "c16", "M8[ns]", "m8[10us]", "S3", "U4", "V5", "O", [("a", "i4")]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_note_changes_nothing_else(dtype):
    plain = np.dtype(dtype)
    noted = tagged(plain, 3)
    assert noted == plain
    assert noted.name == plain.name
    assert layout_of(noted) == Layout(plain, 3)
    assert layout_of(noted).dtype.metadata is None
    assert layout_of(pickle.loads(pickle.dumps(noted))) == Layout(plain, 3)
    assert np.empty(2, dtype=noted).dtype == plain


def test_byte_orders_are_not_mixed_up():
    assert layout_of(tagged(np.dtype(">i4"), 1)).dtype.str == ">i4"
    assert layout_of(tagged(np.dtype("<i4"), 1)).dtype.str == "<i4"


def test_strings_carry_it_as_their_na_object():
    noted = tagged(np.dtypes.StringDType(), 2)
    assert layout_of(noted) == Layout(np.dtypes.StringDType(), 2)
    with pytest.raises(ValueError, match="string"):
        np.asarray(["x", None], dtype=noted)  # never the text "None"


@pytest.mark.parametrize(
    "dtype", ["f8", np.dtype("f8"), np.dtypes.StringDType(na_object=None), "nonsense", None]
)
def test_other_dtypes_have_none(dtype):
    assert layout_of(dtype) is None
    assert layout_of(np.dtype("f8", metadata={"somebody": "else"})) is None


def test_nothing_looks_like_a_number_where_that_is_possible():
    assert np.isnan(beneath(np.dtype("f4")))
    assert np.isnat(beneath(np.dtype("M8[s]")))
    assert beneath(np.dtype("M8[s]")).dtype == np.dtype("M8[s]")
    for dtype in DTYPES:
        np.empty(2, dtype=dtype)[...] = beneath(np.dtype(dtype))
