"""Packing, held against what xarray decodes from the same numbers and attributes."""

import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from zarr.core.metadata.v3 import ArrayV3Metadata

from intarsia.archives.cf import PACKING, Packing, decoded_fill_attribute, encoded_fill_attribute
from intarsia.archives.encodings import SourceEncoding
from intarsia.errors import IngestError

INTEGERS = ["i1", "i2", "i4", "u1", "u2", "u4"]
KINDS = [*INTEGERS, "f4", "f8"]


def decoded_by_filters(numbers, packing, logical=None):
    """What a zarr array with the packing's filters makes of stored numbers."""
    logical = np.dtype(logical or packing.decoded)
    fill = logical.type(np.nan) if packing.fills else logical.type(packing.value(packing.stored.type(0)))
    endian = {"configuration": {"endian": "little"}} if packing.stored.itemsize > 1 else {}
    codecs = (*packing.filters(logical), {"name": "bytes"} | endian)
    encoding = SourceEncoding(numbers.shape, codecs, logical, fill, packing)
    metadata = ArrayV3Metadata.from_dict(encoding.document(numbers.shape, ("n",)))
    buffers = metadata.to_buffer_dict(zarr.core.buffer.default_buffer_prototype())
    store = zarr.storage.MemoryStore(buffers)
    chunk = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(numbers.tobytes())
    store._store_dict["c/0"] = chunk
    return zarr.open_array(store, mode="r")[...]


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
    packing = Packing.of(numbers.dtype, attrs)
    # xarray looks for fill values after narrowing to float32, where a wide number may no longer be itself
    narrow = packing.stored.itemsize < 4 or packing.stored == np.dtype("f4")
    assume(narrow or packing.decoded == np.dtype("f8"))
    theirs = decoded_by_xarray(numbers, attrs)
    ours = decoded_by_filters(numbers, packing)
    assert ours.dtype == theirs.dtype
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    if packing.scale is None:
        assert np.array_equal(ours, theirs, equal_nan=True)
    else:
        # one rounding more, of the product or of the sum, whichever is coarser
        product = np.abs(numbers.view(packing.stored).astype(theirs.dtype)) * theirs.dtype.type(packing.scale)
        unit = np.spacing(np.maximum(np.maximum(np.abs(theirs), product), abs(packing.offset or 0)))
        good = ~np.isnan(theirs)
        assert (np.abs(ours - theirs)[good] <= 2 * unit[good]).all()


@given(packed_variables())
def test_a_single_value_is_decoded_as_the_filters_decode_it(variable):
    numbers, attrs = variable
    packing = Packing.of(numbers.dtype, attrs)
    whole = decoded_by_filters(numbers, packing)
    single = np.array([packing.value(number) for number in numbers.view(packing.stored)])
    assert np.array_equal(whole, single, equal_nan=True)


def test_a_wider_logical_type_keeps_the_roundings_of_the_narrow_one():
    attrs = {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15), "_FillValue": np.int16(-1)}
    numbers = np.arange(-5, 400, dtype="i2")
    packing = Packing.of(numbers.dtype, attrs)
    assert packing.decoded == np.dtype("f4")
    narrow = decoded_by_filters(numbers, packing)
    assert np.array_equal(decoded_by_filters(numbers, packing, "f8"), narrow.astype("f8"), equal_nan=True)


def test_bools_of_xarray_files_are_bools():
    assert Packing.of(np.dtype("i1"), {"dtype": "bool"}).decoded == np.dtype(bool)


@pytest.mark.parametrize("attrs", [{"scale_factor": 0.0}, {"scale_factor": "one"}, {"add_offset": np.inf}])
def test_a_packing_that_cannot_be_undone_is_refused(attrs):
    with pytest.raises(IngestError, match=r"scale_factor|add_offset"):
        Packing.of(np.dtype("i2"), attrs)


def test_a_fill_value_that_the_type_cannot_hold_never_matches():
    assert Packing.of(np.dtype("i2"), {"_FillValue": np.float64(1e20)}).fills == ()
    assert Packing.of(np.dtype("i2"), {"missing_value": "none"}).fills == ()


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
    packing = Packing.of(np.dtype("i2"), {"scale_factor": scale, "add_offset": offset})
    assert packing.decoded == np.dtype("f4")
    assert packing.value(4) == 3.5
