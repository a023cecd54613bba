"""Creating and opening."""

import icechunk
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from zarr.codecs import BytesCodec, GzipCodec, ZstdCodec

from intarsia.codecs import PackBitsCodec
from intarsia.errors import CodecConfigurationError, DataTypeError
from intarsia.nullable import NULL, Some, as_nullable, create_array, open_array, optional_dtype


def parts(array):
    codec = array.zarr_array.metadata.codecs[-1]
    return codec.mask_codecs, codec.data_codecs


def test_compressors_apply_to_both_parts():
    assert parts(create_array({}, shape=3, dtype="i2")) == (
        (PackBitsCodec(), ZstdCodec()), (BytesCodec(endian="little"), ZstdCodec()),
    )  # fmt: skip
    assert parts(create_array({}, shape=3, dtype="i2", compressors=None)) == (
        (PackBitsCodec(),), (BytesCodec(endian="little"),),
    )  # fmt: skip
    assert parts(create_array({}, shape=3, dtype="i2", compressors=["gzip"], mask_codecs=["packbits"])) == (
        (PackBitsCodec(),), (BytesCodec(endian="little"), GzipCodec()),
    )  # fmt: skip
    assert parts(create_array({}, shape=3, dtype="i1", data_codecs=["packbits"]))[1] == (PackBitsCodec(),)


@pytest.mark.parametrize("dtype", ["float32", "optional[float32]", optional_dtype("float32"), np.float32])
def test_data_types_as_people_write_them(dtype):
    array = create_array({}, shape=3, dtype=dtype)
    assert array.data_type == optional_dtype("float32")
    array = create_array({}, data=[1, None], dtype=dtype)
    assert array.data_type == optional_dtype("float32")


def test_options_reach_zarr(tmp_path):
    array = create_array(
        tmp_path, "group/name", shape=(4, 6), dtype="i2", chunks=(2, 3), shards=(4, 6), fill_value=9,
        dimension_names=("y", "x"), attributes={"units": "K"},
    )  # fmt: skip
    opened = open_array(tmp_path, "group/name", mode="r")
    assert opened.zarr_array.metadata.dimension_names == ("y", "x")
    assert (opened.chunks, opened.shards, opened.fill_value) == ((2, 3), (4, 6), Some(9))
    assert opened.attrs["units"] == "K"
    with pytest.raises(ValueError, match=r"read.only"):
        opened[0, 0] = 1
    with pytest.raises(zarr.errors.ContainsArrayError):
        create_array(tmp_path, "group/name", shape=2, dtype="i2")
    create_array(tmp_path, "group/name", shape=2, dtype="i2", overwrite=True)
    assert array.fill_value == Some(9)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"shape": 3}, DataTypeError, "give shape and dtype, or data"),
        ({"dtype": "i2"}, DataTypeError, "give shape and dtype, or data"),
        ({"data": [1, 2], "shape": 3}, ValueError, r"the data has shape \(2,\)"),
        ({"shape": 3, "dtype": "nonsense"}, DataTypeError, "nonsense"),
        ({"shape": 3, "dtype": "i2", "filters": ["gzip"]}, CodecConfigurationError, "are no chain|filters"),
        (
            {"shape": 3, "dtype": "i2", "filters": ["packbits"]},
            CodecConfigurationError,
            "are no chain|filters",
        ),
        ({"shape": 3, "dtype": "i2", "codec_name": "maybe"}, DataTypeError, "is named"),
    ],
)
def test_nothing_is_created_of_what_makes_no_sense(options, error, match, tmp_path):
    with pytest.raises(error, match=match):
        create_array(tmp_path / "a", **options)
    assert not (tmp_path / "a/zarr.json").exists()


def test_an_ordinary_array_is_not_opened_as_nullable(tmp_path):
    zarr.create_array(tmp_path, shape=3, dtype="i2")
    with pytest.raises(DataTypeError, match="has no nulls"):
        open_array(tmp_path)


def test_in_an_icechunk_repository():
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repo.writable_session("main")
    create_array(session.store, "a", data=np.ma.masked_equal([1, 2, 3], 2), chunks=2)
    first = session.commit("first")
    session = repo.writable_session("main")
    open_array(session.store, "a").append([None, 5])
    session.commit("second")
    now = open_array(repo.readonly_session("main").store, "a", mode="r")
    assert now[:].tolist() == [1, None, 3, None, 5]
    then = open_array(repo.readonly_session(snapshot_id=first).store, "a", mode="r")
    assert then[:].tolist() == [1, None, 3]
    assert then.fill_value is NULL


def test_data_that_would_change_is_taken_only_if_asked_for():
    data = np.ma.masked_equal([1.5, 300.0, -1.0], -1)
    store = {}
    with pytest.raises(DataTypeError, match="float64, and int8"):
        create_array(store, data=data, dtype="int8")
    assert not store
    with np.errstate(invalid="ignore"):
        array = create_array(store, data=data[::2], dtype="int8", casting="unsafe")
    assert array[:].tolist() == [1, None]
    with pytest.raises(DataTypeError, match="float64, and int8"):
        array.append(data)
    array[:] = as_nullable(data[::2], array.dtype, casting="unsafe")


def test_plain_zarr_says_how_data_with_nulls_is_stored():
    group = zarr.group({})
    data = as_nullable([1, None])
    for attempt in (lambda: group.__setitem__("x", data), lambda: zarr.create_array({}, data=data)):
        with pytest.raises(DataTypeError, match=r"nullable\.create_array\(group, name, data=…\)"):
            attempt()
    for values in (np.ma.masked_equal([1, 2], 2), [1, None], pa.array([1, None]), pd.array([1, None])):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            group["x"] = values
    create_array(group, "inner/x", data=data)
    assert group["inner/x"][:].tolist() == open_array(group, "inner/x")[:].tolist() == [1, None]


STRINGS = np.array(["x", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan))
HANDED_OVER = {
    "NullableValues": as_nullable([1, None]),
    "pandas": pd.Series([1, None], dtype="Int64"),
    "arrow": pa.array([1, None]),
    "polars": pl.Series([1, None]),
    "list": [1, None],
    "strings": STRINGS,
}


@pytest.mark.parametrize("what", HANDED_OVER)
def test_what_zarr_itself_creates_of_nulls_is_an_error_and_the_call_to_use_works(what):
    group, data = zarr.group({}), HANDED_OVER[what]
    # Where our data type is asked, the error says what to call; the other errors are zarr's own.
    match = r"nullable\.create_array\(group, name, data=" if what == "NullableValues" else None
    for create in (
        group.__setitem__,
        lambda name, data: group.create_array(name, data=data),
    ):
        with pytest.raises((DataTypeError, TypeError, ValueError, AttributeError), match=match):
            create("a", data)
    array = create_array(group, "a", data=data)
    assert array.read_nullable().isnull().tolist() == [False, True]
    group["a"][:] = np.ma.masked_all(2, dtype=array.dtype)  # into an array that exists, zarr writes nulls
    assert array.read_nullable().null_count == 2
