"""Filters that unpack, as members of old datasets have them, against what xarray decodes."""

import numpy as np
import zarr
from hypothesis import assume, given
from zarr.core.metadata.v3 import ArrayV3Metadata

from intarsia.archives.cf import CFDecoding
from intarsia.archives.plan.encodings import SourceEncoding, filters_of
from intarsia.manifest.data_types import zarr_type
from tests.archives.test_cf import decoded_by_xarray, packed_variables


def decoded_by_filters(numbers, decoding, logical=None):
    """What a zarr array with filters makes of stored numbers."""
    logical, stored = np.dtype(logical or decoding.values), decoding.numbers
    fill = logical.type(np.nan if decoding.missing else 0)
    endian = {"configuration": {"endian": "little"}} if stored.itemsize > 1 else {}
    filters = tuple(filters_of(decoding, logical))
    codecs = ({"name": "bytes"} | endian,)
    encoding = SourceEncoding(numbers.shape, codecs, stored, zarr_type(logical), fill, filters)
    metadata = ArrayV3Metadata.from_dict(encoding.document(numbers.shape, ("n",)))
    buffers = metadata.to_buffer_dict(zarr.core.buffer.default_buffer_prototype())
    store = zarr.storage.MemoryStore(buffers)
    chunk = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(numbers.tobytes())
    store._store_dict["c/0"] = chunk
    return zarr.open_array(store, mode="r")[...]


@given(packed_variables())
def test_values_types_and_gaps_are_xarrays(variable):
    numbers, attrs = variable
    decoding = CFDecoding.of(numbers.dtype, attrs)
    # xarray looks for fill values after narrowing to float32, where a wide number may no longer be itself
    narrow = decoding.numbers.itemsize < 4 or decoding.numbers == np.dtype("f4")
    assume(narrow or decoding.values == np.dtype("f8"))
    theirs = decoded_by_xarray(numbers, attrs)
    ours = decoded_by_filters(numbers, decoding)
    assert ours.dtype == theirs.dtype
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    packing = decoding.packing
    if packing is None or packing.scale is None:
        assert np.array_equal(ours, theirs, equal_nan=True)
    else:
        # one rounding more, of the product or of the sum, whichever is coarser
        kind, offset = theirs.dtype.type, float(packing.offset or 0)
        product = np.abs(numbers.view(packing.numbers).astype(kind)) * kind(packing.scale)
        unit = np.spacing(np.maximum(np.maximum(np.abs(theirs), product), kind(abs(offset))))
        good = ~np.isnan(theirs)
        assert (np.abs(ours - theirs)[good] <= 2 * unit[good]).all()


def test_a_wider_logical_type_keeps_the_roundings_of_the_narrow_one():
    attrs = {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15), "_FillValue": np.int16(-1)}
    numbers = np.arange(-5, 400, dtype="i2")
    decoding = CFDecoding.of(numbers.dtype, attrs)
    assert decoding.values == np.dtype("f4")
    narrow = decoded_by_filters(numbers, decoding)
    assert np.array_equal(decoded_by_filters(numbers, decoding, "f8"), narrow.astype("f8"), equal_nan=True)
