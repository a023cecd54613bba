"""Element-wise codecs of zarr and numcodecs in front of the optional codec."""

import numpy as np
import pytest
import zarr
from zarr.codecs import CastValue, ScaleOffset

from intarsia import nullable
from intarsia.errors import CodecConfigurationError
from intarsia.nullable import NULL, NullableCodec, Some, optional_dtype
from intarsia.nullable.present_values import OnPresentValues

SCALE = {"name": "scale_offset", "configuration": {"offset": 10, "scale": 2}}
CAST = {"name": "cast_value", "configuration": {"data_type": "int16"}}
DATA = np.ma.MaskedArray([10.5, np.nan, 12.0, 1e30], mask=[0, 1, 0, 1])


@pytest.mark.parametrize("fill_value", [NULL, Some(10.0)])
@pytest.mark.parametrize("where", ["filters", "data_codecs"])
@pytest.mark.parametrize("objects", [False, True])
def test_packing_applies_to_present_values_only(where, objects, fill_value, tmp_path, pipeline):
    packing = [ScaleOffset(offset=10, scale=2), CastValue(data_type="int16")] if objects else [SCALE, CAST]
    if where == "data_codecs":
        packing = [*packing, {"name": "bytes", "configuration": {"endian": "little"}}]
    array = nullable.create_array(
        tmp_path,
        shape=6,
        chunks=4,
        dtype="float64",
        fill_value=fill_value,
        compressors=None,
        **{where: packing},
    )
    array[:4] = DATA
    stored = (tmp_path / "c/0").read_bytes()
    assert stored[16:] == bytes([0b0101]) + np.array([1, 4], dtype="<i2").tobytes()
    for opened in (array, nullable.open_array(tmp_path)):
        filled = [None if fill_value is NULL else 10.0] * 2
        assert opened[:].tolist() == [10.5, None, 12.0, None, *filled]
    array[4:] = [11.0, None]
    assert array[4:].tolist() == [11.0, None]


def test_nested_levels_pass_through_packing(pipeline):
    array = nullable.create_array({}, shape=3, dtype="float64", depth=2, filters=[SCALE, CAST])
    array[:] = [11.0, Some(NULL), NULL]
    assert array.read_nullable().missing.tolist() == [0, 1, 2]
    assert array[0] == 11.0


def test_integers_that_do_not_fit_are_refused_only_if_present():
    array = nullable.create_array(
        {}, shape=2, dtype="int8", filters=[{**SCALE, "configuration": {"scale": 100}}]
    )
    array[:] = np.ma.MaskedArray(np.array([1, 120], dtype="i1"), mask=[0, 1])
    assert array[:].tolist() == [1, None]
    with pytest.raises(ValueError, match="outside the range"):
        array[:] = [1, 120]


def test_plain_arrays_get_the_codecs_of_zarr_itself(tmp_path):
    z = zarr.create_array(
        tmp_path, shape=3, dtype="float64", filters=[SCALE, CAST], serializer={"name": "bytes"} | {
            "configuration": {"endian": "little"}}, compressors=None, fill_value=10.0,
    )  # fmt: skip
    z[:] = [10.5, 11, 12]
    for opened in (z, zarr.open_array(tmp_path)):
        assert [type(codec) for codec in opened.metadata.codecs[:2]] == [ScaleOffset, CastValue]
        assert opened[:].tolist() == [10.5, 11, 12]


def test_objects_of_zarr_in_front_of_optional_say_that_they_cannot():
    with pytest.raises(ValueError, match="not representable"):
        zarr.create_array(
            {}, shape=3, dtype=optional_dtype("float64"), filters=[ScaleOffset(offset=1)],
            serializer=NullableCodec(), compressors=None,
        )  # fmt: skip


def test_json_is_that_of_zarr():
    for written, theirs in ((SCALE, ScaleOffset), (CAST, CastValue)):
        assert OnPresentValues.from_dict(written).to_dict() == theirs.from_dict(written).to_dict()


NUMCODECS = {
    "bitround": ("float64", {"keepbits": 6}),
    "delta": ("int32", {"dtype": "<i4"}),
    "fixedscaleoffset": ("float64", {"offset": 1, "scale": 8, "dtype": "<f8", "astype": "<i4"}),
    "quantize": ("float64", {"digits": 1, "dtype": "<f8"}),
    "astype": ("float64", {"encode_dtype": "<f4", "decode_dtype": "<f8"}),
}


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
@pytest.mark.filterwarnings("ignore:Data type:UserWarning")
@pytest.mark.parametrize("fill_value", [NULL, 2])
@pytest.mark.parametrize("layout", [{"chunks": 4}, {"chunks": 2, "shards": 8}])
@pytest.mark.parametrize("name", NUMCODECS)
def test_codecs_of_numcodecs_leave_nulls_alone(pipeline, name, layout, fill_value):
    dtype, configuration = NUMCODECS[name]
    codec = {"name": f"numcodecs.{name}", "configuration": configuration}
    present = np.array([1.25, 2.5, 4.75, 7.125]).astype(dtype)
    values = np.full(12, 1e9).astype(dtype)
    null = np.ones(12, dtype=bool)
    null[[0, 1, 3, 4]] = False
    values[~null] = present
    store = {}
    options = {"filters": [codec], "fill_value": fill_value, **layout}
    nullable.create_array(store, data=np.ma.MaskedArray(values, mask=null), **options)
    read = nullable.open_array(store)[:]
    assert read.mask.tolist() == null.tolist()
    plain = zarr.create_array({}, data=present, filters=[codec], chunks=4, compressors=None)
    assert type(plain.filters[0]).__module__.startswith("zarr.")
    np.testing.assert_array_equal(read.compressed(), plain[:])
    longer = nullable.open_array(store)
    longer.resize(14)
    assert longer[12:].tolist() == [None if fill_value is NULL else 2] * 2


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_what_packs_elements_together_belongs_among_the_data_codecs():
    with pytest.raises(CodecConfigurationError, match="data_codecs"):
        nullable.create_array({}, shape=4, dtype="bool", filters=[{"name": "numcodecs.packbits"}])
