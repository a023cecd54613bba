"""CF attributes, held against what xarray decodes from the same numbers and attributes."""

import itertools
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

from intarsia.archives.cf import (
    PACKING,
    CFDecoding,
    decoded_fill_attribute,
    encoded_fill_attribute,
    packing_of,
)
from intarsia.errors import IngestError, PackingError
from intarsia.manifest.packing import Packing

INTEGERS = ["i1", "i2", "i4", "u1", "u2", "u4"]
KINDS = [*INTEGERS, "f4", "f8"]


def decoded_by_xarray(numbers, attrs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        variable = xr.conventions.decode_cf_variable(
            "v", xr.Variable(("n",), numbers, dict(attrs)), decode_times=False
        )
        return variable.values


@st.composite
def packed_variables(draw):
    """Stored numbers with attributes as real files have them."""
    dtype = np.dtype(draw(st.sampled_from(KINDS)))
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if limits:
        numbers = rng.integers(limits.min, limits.max, 50, dtype=dtype, endpoint=True)
    else:
        numbers = rng.normal(0, 100, 50).astype(dtype)
    attrs = {}
    kind = np.dtype(draw(st.sampled_from(["f4", "f8"])))
    if draw(st.booleans()):
        attrs["scale_factor"] = kind.type(draw(st.floats(1e-4, 10, exclude_min=True)))
    if draw(st.booleans()):
        other = np.dtype(draw(st.sampled_from(["f4", "f8"])))
        attrs["add_offset"] = other.type(draw(st.floats(-500, 500)))
    if dtype.kind == "i" and draw(st.booleans()):
        attrs["_Unsigned"] = "true"
    if dtype.kind == "u" and draw(st.booleans()):
        attrs["_Unsigned"] = "false"
    if draw(st.booleans()):
        attrs["_FillValue"] = numbers[draw(st.integers(0, 49))]
    if "_Unsigned" not in attrs and draw(st.booleans()):
        attrs["missing_value"] = numbers[draw(st.lists(st.integers(0, 49), min_size=1, max_size=3))]
    return numbers, attrs


@given(packed_variables())
def test_values_types_and_gaps_are_xarrays(variable):
    numbers, attrs = variable
    decoding = CFDecoding.of(numbers.dtype, attrs)
    theirs = decoded_by_xarray(numbers, attrs)
    assert decoding.values == theirs.dtype
    packing = decoding.packing_in(theirs.dtype)
    ours = numbers if packing is None else packing.decode(numbers)
    assert np.array_equal(ours, theirs, equal_nan=True)


@given(packed_variables())
def test_a_wider_array_holds_the_values_of_the_narrow_one(variable):
    numbers, attrs = variable
    decoding = CFDecoding.of(numbers.dtype, attrs)
    packing = decoding.packing_in(np.dtype("f8"))
    assert not decoding.needs_filters(np.dtype("f8"))
    wide = np.empty(numbers.shape)
    if packing is None:
        wide[...] = numbers
    else:
        packing.decode_into(numbers, wide)
    assert np.array_equal(wide, decoded_by_xarray(numbers, attrs).astype("f8"), equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "attrs", "logical", "filters"),
    [
        ("f8", {}, "f4", False),  # one rounding
        ("i8", {}, "f8", False),
        ("i8", {}, "i4", True),  # numbers that do not fit are an error
        ("i2", {"scale_factor": 0.1}, "f4", False),
        ("i2", {"add_offset": 1 / 3, "_FillValue": np.int16(7)}, "f4", False),
        ("u2", {"scale_factor": np.float64(1 / 3), "_Unsigned": "false"}, "f4", False),
        ("i2", {"scale_factor": 0.1, "add_offset": 1 / 3}, "f4", True),  # two roundings
        ("i4", {"scale_factor": 0.1}, "f4", True),  # more digits than float32 has
        ("i4", {"_FillValue": np.int32(-1)}, "f4", True),
        ("i2", {"scale_factor": np.float32(0.1)}, "f8", False),
        ("i1", {"_Unsigned": "true"}, "u1", False),
        ("i1", {"_Unsigned": "true"}, "f4", False),
        ("i2", {"scale_factor": np.int64(3)}, "f8", True),  # 64-bit integers
        ("i2", {"scale_factor": np.int32(3)}, "f8", False),
    ],
)
def test_what_a_packing_cannot_do_filters_have_to(dtype, attrs, logical, filters):
    decoding = CFDecoding.of(np.dtype(dtype), attrs)
    assert decoding.needs_filters(np.dtype(logical)) == filters
    packing = decoding.packing_in(np.dtype(logical))
    assert (packing is None) == filters
    if packing is not None:
        numbers = np.arange(-9, 9).astype(dtype)
        assert np.can_cast(packing.values, logical, "safe")
        out = np.empty(numbers.shape, logical)
        packing.decode_into(numbers, out)
        assert np.array_equal(
            out, decoded_by_xarray(numbers, attrs).astype(logical), equal_nan=out.dtype.kind == "f"
        )


def test_bools_of_xarray_files_are_bools():
    assert CFDecoding.of(np.dtype("i1"), {"dtype": "bool"}).values == np.dtype(bool)


@pytest.mark.parametrize("attrs", [{"scale_factor": 0.0}, {"scale_factor": "one"}, {"add_offset": np.inf}])
def test_a_packing_that_cannot_be_undone_is_refused(attrs):
    with pytest.raises(IngestError, match=r"scale_factor|add_offset"):
        CFDecoding.of(np.dtype("i2"), attrs)


def test_a_packing_of_numbers_that_are_too_long_is_refused():
    with pytest.raises(IngestError, match="up to 64 bits"):
        CFDecoding.of(np.dtype(np.longdouble), {"scale_factor": 0.5})


def test_a_fill_value_that_the_type_cannot_hold_never_matches():
    assert CFDecoding.of(np.dtype("i2"), {"_FillValue": np.float64(1e20)}).missing == ()
    assert CFDecoding.of(np.dtype("i2"), {"missing_value": "none"}).missing == ()


@pytest.mark.parametrize("value", [np.float32("nan"), np.float32(1e20), np.float32(-9999)])
def test_fill_attributes_are_written_as_xarray_reads_them(value, tmp_path):
    text = encoded_fill_attribute(value, value.dtype)
    array = zarr.create_array(
        tmp_path / "a.zarr/x", shape=(3,), dtype="f4", dimension_names=("n",), attributes={"_FillValue": text}
    )
    array[...] = np.array([1, value, 2], dtype="f4")
    zarr.open_group(tmp_path / "a.zarr", mode="a")
    with xr.open_zarr(tmp_path / "a.zarr", consolidated=False) as dataset:
        assert np.isnan(dataset.x.values).tolist() == [False, True, False]
    back = decoded_fill_attribute(text, value.dtype)
    assert back == value or (np.isnan(back) and np.isnan(value))


def test_the_list_of_packing_attributes_is_what_packing_reads():
    assert set(PACKING) == {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"}


def test_big_endian_attributes_are_numbers_like_others():
    scale, offset = np.array([0.5], ">f4")[0], np.array([1.5], ">f4")[0]
    decoding = CFDecoding.of(np.dtype("i2"), {"scale_factor": scale, "add_offset": offset})
    assert decoding.values == np.dtype("f4")
    assert decoding.packing.decode(np.array([4], "i2")) == 3.5


def test_packings_differ_as_the_types_of_their_attributes_do():
    """What is decided once for thousands of files is decided by types, not by numbers that are equal."""
    numbers = [None, np.float32(2), np.float64(2), np.int16(2), 2.0, np.array([2.0], "f4")]
    marks = [None, np.int16(1), np.float32(1), np.float64("nan"), np.array([1, 2], "i2"), "none"]
    for stored, scale, offset, fill, sign in itertools.product(
        ["i2", "u1", "f4"], numbers, numbers[:3], marks, [None, "true", "false"]
    ):
        attrs = {"scale_factor": scale, "add_offset": offset, "_FillValue": fill, "_Unsigned": sign}
        given = {name: value for name, value in attrs.items() if value is not None}
        plain = {
            name: value[0] if np.ndim(value) and name != "_FillValue" else value
            for name, value in given.items()
        }
        try:
            expected = Packing.from_attributes(np.dtype(stored), plain)
        except PackingError:
            with pytest.raises(IngestError):
                packing_of(np.dtype(stored), given)
        else:
            assert packing_of(np.dtype(stored), given) == expected
