"""The optional data type: its JSON, its fill values, what it refuses, and what it changes in zarr."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, ShardingCodec, VLenUTF8Codec, ZstdCodec
from zarr.dtype import Bool, Float64, Int8, Struct, UInt8, parse_dtype
from zarr.registry import get_ndbuffer_class

from intarsia import nullable
from intarsia.codecs import PackBitsCodec
from intarsia.errors import CodecConfigurationError, DataTypeError
from intarsia.nullable import NULL, NullableCodec, OptionalDType, Some, optional_dtype
from intarsia.nullable.buffer import NullableNDBuffer
from intarsia.nullable.dtype import STOCK_NDBUFFERS


def spelled(inner, depth, name="optional"):
    for _ in range(depth):
        inner = {"name": name, "configuration": inner}
    return inner


@pytest.mark.parametrize("name", ["optional", "zarrs.optional"])
@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("inner", ["bool", "uint8", "float64", "string", "complex64"])
def test_json_round_trips(inner, depth, name):
    written = spelled({"name": inner, "configuration": {}}, depth, name)
    read = parse_dtype(written, zarr_format=3)
    assert isinstance(read, OptionalDType)
    assert read.to_json(zarr_format=3) == written
    assert read == optional_dtype(inner, depth, name=name)
    assert read.depth == depth
    assert hash(read) == hash(optional_dtype(inner, depth, name=name))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_innermost_configuration_may_be_missing_and_is_written(depth, tmp_path):
    nullable.create_array(tmp_path, data=[1, 2], dtype="uint8", depth=depth)
    document = json.loads((tmp_path / "zarr.json").read_text())
    full = document["data_type"]
    document["data_type"] = spelled({"name": "uint8"}, depth)
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    opened = nullable.open_array(tmp_path)
    assert opened.read_nullable().tolist() == [1, 2]
    assert opened.data_type.to_json(zarr_format=3) == full
    opened.attrs["k"] = 1
    assert json.loads((tmp_path / "zarr.json").read_text())["data_type"] == full


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("dtype", ["M8[ms]", "m8[10us]", "S5", "U3", "V4", [("a", "i4")]])
def test_inner_types_with_a_configuration_keep_it(dtype):
    made = optional_dtype(np.dtype(dtype) if isinstance(dtype, str) else dtype)
    written = made.to_json(zarr_format=3)
    assert written["configuration"]["configuration"] != {} or dtype == "V4"
    assert parse_dtype(written, zarr_format=3) == made
    assert made.element.dtype == np.dtype(dtype)


@given(
    fill=st.recursive(
        st.none() | st.integers(0, 255).map(lambda n: [[[n]]]),
        lambda inner: inner.map(lambda x: [x]),
        max_leaves=4,
    )
)
def test_only_fill_values_of_the_right_nesting_are_read(fill):
    dtype = optional_dtype("uint8", depth=3)
    level, value = 0, fill
    while isinstance(value, list):
        level, value = level + 1, value[0]
    if (value is None and level < 3) or (value is not None and level == 3):
        scalar = dtype.from_json_scalar(fill, zarr_format=3)
        assert dtype.to_json_scalar(scalar, zarr_format=3) == fill
        assert dtype.cast_scalar(scalar) == scalar
    else:
        with pytest.raises(DataTypeError, match="fill_value"):
            dtype.from_json_scalar(fill, zarr_format=3)


@pytest.mark.parametrize(
    ("fill", "match"),
    [
        (3, r"fill_value 3 of optional\[uint8\]: give null, or a list of one value: \[3\]"),
        ([3, 4], r"fill_value \[3, 4\] of optional\[uint8\]: give null, or a list of one"),
        ([], r"fill_value \[\]"),
        ([None], r"fill_value \[None\] of optional\[uint8\]"),
        ([[3]], r"fill_value \[\[3\]\] of optional\[uint8\]"),
        (["x"], "fill_value"),
        ([300], "fill_value"),
    ],
)
def test_a_wrong_fill_value_in_zarr_json_says_what_is_right(fill, match, tmp_path):
    nullable.create_array(tmp_path, shape=2, dtype="uint8")
    document = json.loads((tmp_path / "zarr.json").read_text())
    document["fill_value"] = fill
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(DataTypeError, match=match):
        zarr.open_array(tmp_path)


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("int8", 3.7),
        ("int8", 300),
        ("int8", np.nan),
        ("uint8", -1),
        ("bool", "x"),
        ("bool", 2),
        ("float32", 1e300),
        ("float32", 2**24 + 1),
        ("string", 3.7),
        ("U3", "Zürich"),
        ("M8[s]", np.datetime64("2020-01-01T00:00:00.5")),
    ],
)
def test_a_fill_value_that_would_change_is_refused(dtype, fill):
    with pytest.raises(DataTypeError, match=r"fill_value .* of optional"):
        nullable.create_array({}, shape=1, dtype=dtype, fill_value=fill)
    with pytest.raises(DataTypeError, match=r"fill_value .* of optional"):
        nullable.create_array({}, shape=1, dtype=dtype, depth=2, fill_value=Some(Some(fill)))


@pytest.mark.parametrize(
    ("data_type", "match"),
    [
        ({"name": "optional"}, "required field `configuration`"),
        ("optional", "Expected `object`, got `str`"),
        ({"name": "optional", "configuration": {"name": "optional"}}, "required field `configuration`"),
        ({"name": "optional", "configuration": {"configuration": {}}}, "required field `name`"),
        ({"name": "optional", "configuration": "uint8"}, r"got `str` - at `\$\.configuration`"),
        (spelled({"name": "uint7", "configuration": {}}, 1), "inner data type is not known.*uint7"),
        (spelled({"name": "uint7", "configuration": {}}, 2), "inner data type is not known.*uint7"),
        (spelled({"name": "uint8", "configuration": {"a": "b"}}, 1), "inner data type is not known"),
        (
            {"name": "optional", "configuration": {"name": "int8", "configuration": {}, "x": 1}},
            "unknown field `x`",
        ),
    ],
)
def test_a_wrong_data_type_in_zarr_json_names_the_field(data_type, match, tmp_path):
    nullable.create_array(tmp_path, shape=2, dtype="uint8")
    document = json.loads((tmp_path / "zarr.json").read_text())
    document["data_type"] = data_type
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    # Of what is no data type by its form alone, zarr says so itself.
    with pytest.raises((DataTypeError, ValueError), match=f"{match}|Invalid data_type: "):
        zarr.open_array(tmp_path)
    with pytest.raises(DataTypeError, match=match):
        zarr.create_array({}, shape=2, dtype=data_type, serializer=NullableCodec(), compressors=None)


@pytest.mark.parametrize(
    "codecs",
    [
        {},
        {"serializer": BytesCodec()},
        {"serializer": BytesCodec(endian=None)},
        {"serializer": "auto"},
        {"serializer": ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec()])},
        {"serializer": {"name": "bytes", "configuration": {"endian": "big"}}, "compressors": [ZstdCodec()]},
    ],
)
@pytest.mark.parametrize("inner", [Bool(), Float64()])
def test_bytes_alone_is_refused_when_the_array_is_created(codecs, inner, tmp_path):
    with pytest.raises(CodecConfigurationError, match=r"by the codec 'bytes'(.|\n)*Use the codec 'optional'"):
        zarr.create_array(tmp_path / "a", shape=2, dtype=OptionalDType(inner=inner), **codecs)
    assert not (tmp_path / "a/zarr.json").exists()


def test_other_serializers_by_themselves_lose_no_null():
    for dtype, codec in (("string", VLenUTF8Codec()), ("bool", PackBitsCodec())):
        z = zarr.create_array({}, shape=2, dtype=optional_dtype(dtype), serializer=codec, compressors=None)
        with pytest.raises(ValueError, match="elements are null"):
            z[:] = nullable.as_nullable([None, "x"] if dtype == "string" else [None, True])


def test_structs_stay_structs():
    assert issubclass(OptionalDType, Struct)  # so that zarr's bytes codec asks us
    z = zarr.create_array({}, shape=2, dtype=[("a", "<i4")], serializer=BytesCodec(), compressors=None)
    z[:] = np.array([(1,), (2,)], dtype=[("a", "<i4")])
    assert z[1]["a"] == 2


def test_the_dtype_of_a_nullable_array_does_not_make_a_plain_one_by_mistake():
    z = nullable.create_array({}, shape=2, dtype="float64").zarr_array
    with pytest.raises(DataTypeError, match="says too little"):
        zarr.create_array({}, shape=2, dtype=z.dtype)
    assert optional_dtype(z.dtype) == z.metadata.data_type
    like = zarr.create_array(
        {}, shape=2, dtype=z.metadata.data_type, serializer=NullableCodec(), compressors=None
    )
    assert like.metadata.data_type == z.metadata.data_type


@pytest.mark.parametrize(
    ("data", "scalar"),
    [(None, NULL), (NULL, NULL), (np.ma.masked, NULL), (3, Some(np.int8(3))), ([3], Some(np.int8(3)))],
)
def test_fill_values_as_people_write_them(data, scalar):
    assert OptionalDType(inner=Int8()).cast_scalar(data) == scalar


@pytest.mark.parametrize("text", ["optional[uint8]", " optional[ uint8 ] ", "optional[optional[uint8]]"])
def test_spelled_with_brackets(text):
    made = optional_dtype(text)
    assert made.innermost == UInt8()
    assert made.depth == text.count("optional")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("float65",), "not a data type that zarr knows"),
        (("optional[float65]",), "not a data type that zarr knows"),
        (("float64", 0), "at least one level"),
        (("float64", 256), "at most 255"),
        (("optional[optional[int8]]", 3), "depth 3 was requested"),
    ],
)
def test_data_types_that_are_not(arguments, match):
    with pytest.raises(DataTypeError, match=match):
        optional_dtype(*arguments)
    with pytest.raises(DataTypeError, match="inner must be"):
        OptionalDType(inner="float64")
    with pytest.raises(DataTypeError, match="is named"):
        OptionalDType(inner=Float64(), name="maybe")


def test_zarr_format_2_has_none():
    with pytest.raises(DataTypeError, match="zarr_format=3"):
        optional_dtype("int8").to_json(zarr_format=2)
    with pytest.raises((DataTypeError, ValueError)):
        zarr.create_array({}, shape=2, dtype=optional_dtype("int8"), zarr_format=2)


def test_chunks_are_chosen_by_bytes():
    plain = zarr.create_array({}, shape=10**8, dtype="float64")
    ours = nullable.create_array({}, shape=10**8, dtype="float64")
    assert ours.chunks == plain.chunks


def run(script, *arguments):
    code = textwrap.dedent(script)
    subprocess.run([sys.executable, "-W", "error", "-c", code, *map(str, arguments)], check=True)


def test_opening_needs_no_import(tmp_path):
    nullable.create_array(tmp_path / "a", data=[[1.5, None]], shards=(1, 2), chunks=(1, 1))
    nullable.create_array(tmp_path / "b", data=["x", None], codec_name="zarrs.optional")
    run(
        """
        import sys, zarr
        assert "intarsia" not in sys.modules
        z = zarr.open_array(sys.argv[1] + "/a")
        assert z[...].tolist() == [[1.5, None]]
        z[0, 0] = z[0, 1]
        assert z[...].tolist() == [[None, None]]
        assert zarr.open_array(sys.argv[1] + "/b")[:].tolist() == ["x", None]
        """,
        tmp_path,
    )


def test_nothing_but_the_core_dependencies_is_needed(tmp_path):
    run(
        """
        import sys
        for name in ("pandas", "pyarrow", "polars", "geff", "anndata", "xarray", "dask", "cast_value_rs"):
            sys.modules[name] = None
        from intarsia import nullable
        a = nullable.create_array(sys.argv[1], data=[1, None])
        assert a[:].tolist() == [1, None]
        try:
            a.to_pandas()
        except ImportError as error:
            assert "[nullable]'" in str(error)
        """,
        tmp_path,
    )


def test_a_choice_made_before_is_left_alone():
    run(
        """
        import zarr
        from zarr.buffer.cpu import NDBuffer
        from zarr.registry import register_ndbuffer
        class Mine(NDBuffer):
            pass
        register_ndbuffer(Mine, "mine")
        zarr.config.set({"ndbuffer": "mine", "codecs.scale_offset": "mine.too"})
        from intarsia.nullable import optional_dtype
        optional_dtype("int8")
        assert zarr.config.get("ndbuffer") == "mine"
        assert zarr.config.get("codecs.scale_offset") == "mine.too"
        """
    )


@pytest.mark.parametrize("stock", STOCK_NDBUFFERS)
def test_using_a_data_type_sets_the_class_for_arrays_again(stock):
    data_type = optional_dtype("int8")
    with zarr.config.set({"ndbuffer": stock}):
        data_type.to_native_dtype()
        assert get_ndbuffer_class() is NullableNDBuffer
