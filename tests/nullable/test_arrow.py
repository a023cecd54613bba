"""Arrow and Polars: round trips that keep null apart from NaN; units of time, and NaT beside null."""

import arro3.core
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import (
    NullableValues,
    as_nullable,
    create_array,
    from_arrow,
    from_polars,
    to_arrow,
    to_polars,
)
from intarsia.nullable.dataframes import require_one_null, to_common_unit

MASK = np.array([False, False, True])
SAMPLES = {
    "bool": np.array([True, False, True]),
    **{f"{k}{8 * n}": np.array([1, 0, 3], dtype=f"{k[0]}{n}") for k in ("int", "uint") for n in (1, 2, 4, 8)},
    "float16": np.array([1.5, np.nan, 2.5], dtype="f2"),
    "float32": np.array([1.5, np.nan, 2.5], dtype="f4"),
    "float64": np.array([-0.0, np.nan, 2.5]),
    "big endian": np.array([1, 2, 3], dtype=">i4"),
    "datetime64[s]": np.array([0, 1, 2], dtype="M8[s]"),
    "datetime64[ns]": np.array([0, 1, 2], dtype="M8[ns]"),
    "timedelta64[us]": np.array([0, 1, 2], dtype="m8[us]"),
    "string": np.array(["a", "", "zä"], dtype=np.dtypes.StringDType()),
    "bytes": np.array([b"a", b"", b"bc"], dtype=object),
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("mask", [MASK, ~MASK, np.zeros(3, dtype=bool), np.ones(3, dtype=bool)])
def test_round_trips(kind, mask):
    data = NullableValues(SAMPLES[kind], mask)
    arrow = to_arrow(data)
    arrow.validate(full=True)
    assert arrow.null_count == mask.sum()
    back = from_arrow(arrow)
    native = data.astype(data.values.dtype.newbyteorder("=")) if kind == "big endian" else data
    assert back.equals(native)
    # through the C data interface, sliced, and in chunks
    again = pa.chunked_array([pa.concat_arrays([arrow, arrow]).slice(1, 2), arrow.slice(0, 1)])
    expected = [data.tolist()[i] for i in (1, 2, 0)]
    got = from_arrow(again).tolist()
    assert got == expected or (kind.startswith("float") and str(got) == str(expected))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2), (1, 1), (0, 2)])
def test_more_dimensions_are_lists_of_fixed_size(shape):
    rng = np.random.default_rng(0)
    data = NullableValues(rng.random(shape), rng.random(shape) < 0.5)
    arrow = to_arrow(data)
    arrow.validate(full=True)
    assert len(arrow) == shape[0]
    assert arrow.to_pylist() == data.tolist()
    assert from_arrow(arrow).equals(data)


def test_values_are_shared_both_ways():
    values = np.arange(10.0)
    arrow = to_arrow(NullableValues(values, np.arange(10) % 3 == 0))
    assert np.shares_memory(np.frombuffer(arrow.buffers()[1], dtype="f8"), values)
    assert np.shares_memory(from_arrow(arrow).values, values)


def test_the_bitmap_is_what_the_codec_stores():
    array = create_array({}, data=[1, None, 3, None, 5], compressors=None)
    stored = array.zarr_array.store_path.store._store_dict["c/0"].to_bytes()
    assert stored[16:17] == bytes([0b10101]) == array.to_arrow().buffers()[0].to_pybytes()


def test_nat_is_refused_or_made_null_on_request():
    data = NullableValues(np.array(["NaT", 1, 2], dtype="M8[s]"), MASK)
    with pytest.raises(NullsPresentError, match=r"1 of 3 elements are NaT and not null.*nat_as_null=True"):
        to_arrow(data)
    assert to_arrow(data, nat_as_null=True).is_null().to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([None, None]), [None, None]),
        (pa.array([1, None], pa.date32()), [np.datetime64(1, "D"), None]),
        (pa.array([86400000, None], pa.date64()), [np.datetime64(1, "D"), None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array(["a", None]).cast(pa.string_view()), ["a", None]),
        (pa.array([b"ab", None], pa.binary(2)), [b"ab", None]),
        (pa.array([0, None], pa.timestamp("s", "UTC")), [np.datetime64(0, "s"), None]),
    ],
)
def test_other_types_of_arrow(array, expected):
    found = from_arrow(array)
    assert found.isnull().tolist() == [e is None for e in expected]
    for value, want, null in zip(found.values, expected, found.isnull(), strict=True):
        assert null or value == want


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (pa.array([{"a": "text"}]), "struct.*cast it first"),
        (pa.array([[1], [2, 3]]), "cast it first"),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "whole list"),
        (pa.array([0], pa.timestamp("s", "Europe/Berlin")), "convert to UTC"),
        (3, "takes an Arrow array"),
    ],
)
def test_types_without_an_equal_are_refused(array, match):
    with pytest.raises(DataTypeError, match=match):
        from_arrow(array)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (NullableValues(np.zeros(2, dtype="c8")), "complex64 has no equivalent"),
        (NullableValues(np.zeros(2, dtype="V3")), "has no equivalent"),
        (NullableValues(np.array(3)), "single element"),
        (NullableValues(np.zeros(2), np.zeros(2, dtype="u1"), 2), "one kind of null"),
        (NullableValues(np.ones(2, dtype="i8").view("M8[ps]")), "cannot hold them all"),
    ],
)
def test_what_arrow_cannot_hold_is_refused(data, match):
    with pytest.raises(DataTypeError, match=match):
        to_arrow(data)


@pytest.mark.parametrize(
    ("exported", "expected"),
    [
        (arro3.core.Array(pa.array([1, None, 3], pa.int16())), [1, None, 3]),
        (arro3.core.Array(pa.array(["a", None])), ["a", None]),
        (arro3.core.ChunkedArray([pa.array([1.5, None]), pa.array([2.5])]), [1.5, None, 2.5]),
        (arro3.core.Table.from_pydict({"a": arro3.core.Array(pa.array([1, None]))}), [[1], [None]]),
        (pa.table({"a": [1, None], "b": [3, 4]}).to_reader(), [[1, 3], [None, 4]]),
        (pa.chunked_array([["a", None], ["b"]]).dictionary_encode(), ["a", None, "b"]),
    ],
)
def test_arrow_of_other_libraries_keeps_its_nulls(exported, expected):
    assert as_nullable(exported).tolist() == expected


def test_an_array_from_another_library_is_written():
    array = create_array({}, shape=3, dtype="float64", fill_value=0)
    array[:2] = arro3.core.Array(pa.array([1.5, None]))
    assert array[:].tolist() == [1.5, None, 0]
    with pytest.raises(DataTypeError, match="float64, and int8"):
        create_array({}, dtype="int8", data=arro3.core.Array(pa.array([1.5, None])))


def test_rows_that_are_null_are_refused():
    rows = arro3.core.Array(pa.array([{"a": 1}, None]))
    with pytest.raises(DataTypeError, match="whole row"):
        as_nullable(rows)


@pytest.mark.parametrize("kind", SAMPLES)
def test_round_trips_through_polars(kind):
    data = NullableValues(SAMPLES[kind], MASK)
    series = to_polars(data, name="n")
    assert series.name == "n"
    assert series.null_count() == 1
    back = from_polars(series)
    assert np.array_equal(back.missing, data.missing)
    if kind == "datetime64[s]":  # Polars counts in milliseconds and finer
        back = back.astype("M8[s]")
    assert back.equals(data.astype(data.values.dtype.newbyteorder("=")) if kind == "big endian" else data)


def test_null_is_not_nan_in_polars():
    array = create_array({}, data=np.ma.MaskedArray([np.nan, 1.0, 2.0], mask=MASK))
    series = array.to_polars()
    assert series.is_nan().to_list() == [True, False, None]
    array[:] = series
    assert array.read_nullable().equals(NullableValues(np.array([np.nan, 1.0, 2.0]), MASK))


def test_data_frames_and_more_dimensions_of_polars():
    data = NullableValues(np.arange(6).reshape(2, 3), np.eye(2, 3, dtype=bool))
    series = to_polars(data)
    assert series.dtype == pl.Array(pl.Int64, 3)
    assert from_polars(series).equals(data)
    frame = pl.DataFrame({"a": [1, None], "b": [None, 4]})
    assert from_polars(frame).tolist() == [[1, None], [None, 4]]
    with pytest.raises(DataTypeError, match="different types"):
        from_polars(frame.with_columns(pl.col("a").cast(pl.Int8)))
    with pytest.raises(DataTypeError, match="takes a series"):
        from_polars([1])


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pl.Series([object(), None], dtype=pl.Object), "series of Object"),
        (pl.LazyFrame({"a": [1, None]}), "collect"),
        (pl.col("a"), "not Expr"),
        (pl.Series([1, None], dtype=pl.Decimal(10, 2)), "decimal"),
        (pl.Series([[1], None]), "list"),
        (pl.Series([2**100, None], dtype=pl.Int128), "Int128"),
    ],
)
def test_what_has_no_values_for_an_array_is_refused(data, match):
    with pytest.raises(DataTypeError, match=match):
        as_nullable(data)


def test_categories_and_dates():
    assert as_nullable(pl.Series(["a", None, "a"], dtype=pl.Categorical)).tolist() == ["a", None, "a"]
    assert as_nullable(pl.Series(["a", None], dtype=pl.Enum(["b", "a"]))).tolist() == ["a", None]
    dates = as_nullable(pl.Series([1, None]).cast(pl.Date))
    assert (dates.values[0], dates.null_count) == (np.datetime64(1, "D"), 1)


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "10s", "25us"])
def test_dates_keep_their_meaning(unit):
    values = np.array([3, "NaT", -5], dtype=f"M8[{unit}]")
    converted = to_common_unit(values)
    assert np.datetime_data(converted.dtype)[0] in ("s", "ms", "us", "ns")
    assert np.datetime_data(converted.dtype)[1] == 1
    assert np.isnat(converted).tolist() == [False, True, False]
    assert (converted[[0, 2]] == values[[0, 2]]).all()


@pytest.mark.parametrize("dtype", ["m8[Y]", "m8[M]", "m8[ps]", "M8[fs]", "m8"])
def test_units_without_an_equal_are_refused(dtype):
    with pytest.raises(DataTypeError, match=r"cannot hold them all|no unit of time"):
        to_common_unit(np.ones(2, dtype="i8").view(dtype))


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[h]", "m8[10s]"])
def test_what_is_out_of_range_is_refused(dtype):
    with pytest.raises((DataTypeError, OverflowError)):
        to_common_unit(np.array([2**61], dtype="i8").view(dtype))


def test_nat():
    data = NullableValues(np.array(["NaT", "NaT", 1], dtype="M8[s]"), np.array([False, True, False]))
    with pytest.raises(NullsPresentError, match="1 of 3 elements are NaT"):
        require_one_null(data, nat_as_null=False, where="Arrow")
    assert require_one_null(data, nat_as_null=True, where="Arrow").isnull().tolist() == [True, True, False]
    floats = NullableValues(np.array([np.nan]))
    assert require_one_null(floats, nat_as_null=False, where="Arrow") is floats
