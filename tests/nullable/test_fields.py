"""Structs with optional fields, and structs that are null: nested, stored, and in other libraries."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.dtype import Struct, parse_dtype

from intarsia import nullable
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NULL, Some, as_nullable, struct_dtype
from intarsia.nullable.fields import bare, described, may_have_nulls

NUMBERS = {
    "int8": st.integers(-5, 5),
    "uint16": st.integers(0, 9),
    "float32": st.floats(width=32),
    "bool": st.booleans(),
}


@pytest.fixture(autouse=True)
def experimental():
    with zarr.config.set({"intarsia.experimental": True}):
        yield


def point():
    inner = {"a": "optional[int16]", "b": "bool"}
    return struct_dtype(
        {"x": "optional[float32]", "n": "int32", "p": struct_dtype(inner), "q": optional_struct(inner)}
    )


def optional_struct(fields):
    return nullable.optional_dtype(struct_dtype(fields))


POINTS = [
    (0.5, 1, (2, True), (3, False)),
    None,
    (None, 2, (None, False), None),
    (float("inf"), -3, (4, True), (None, True)),
    (1.5, 0, (None, True), (0, False)),
    None,
]


@st.composite
def structs(draw, depth=2):
    """A data type with optional fields, and a strategy of its elements."""
    fields, elements = {}, []
    for i in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            dtype, values = draw(structs(depth - 1))
        else:
            name = draw(st.sampled_from(sorted(NUMBERS)))
            dtype, values = parse_dtype(name, zarr_format=3), NUMBERS[name]
        for _ in range(draw(st.integers(0, 2))):
            dtype, values = nullable.OptionalDType(inner=dtype), st.none() | values
        fields[f"f{i}"] = dtype
        elements.append(values)
    return struct_dtype(fields), st.tuples(*elements)


def same(found, expected):
    """Nested tuples that are equal, NaN to itself."""
    return str(found) == str(expected)


@given(data=st.data())
def test_any_struct_comes_back(data):
    with zarr.config.set({"intarsia.experimental": True}):
        dtype, elements = data.draw(structs())
        rows = data.draw(st.lists(st.none() | elements, min_size=1, max_size=8))
        chunks = data.draw(st.integers(1, len(rows)))
        store = {}
        nullable.create_array(
            store,
            data=rows,
            dtype=dtype,
            chunks=chunks,
            shards=data.draw(st.sampled_from([None, chunks * 2])),
        )
        read = nullable.open_array(store).read_nullable()
        assert same(read.tolist(), as_nullable(rows, dtype.to_native_dtype()).tolist())
        plain = json.loads(json.dumps(dtype.to_json(zarr_format=3)))
        assert parse_dtype(plain, zarr_format=3) == dtype


LAYOUTS = {
    "chunks": {"chunks": (2, 2)},
    "shards": {"chunks": (1, 2), "shards": (2, 4)},
    "transposed": {"chunks": (2, 2), "filters": [{"name": "transpose", "configuration": {"order": [1, 0]}}]},
    "reshaped": {"chunks": (2, 2), "filters": [{"name": "reshape", "configuration": {"shape": [-1]}}]},
    "big endian": {"chunks": (2, 2), "data_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]},
    "conditional": {
        "chunks": (2, 2),
        "data_codecs": [{"name": "conditional", "configuration": {"codecs": [{"name": "crc32c"}]}}],
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_selections(layout, tmp_path, pipeline):
    rows = [POINTS[:4], [*POINTS[4:], *POINTS[1:3]], POINTS[2:]]
    a = nullable.create_array(tmp_path, data=rows, dtype=point(), **LAYOUTS[layout])
    a = nullable.open_array(tmp_path)
    expected = np.empty((3, 4), dtype=object)
    for i, row in enumerate(rows):
        for j, element in enumerate(row):
            expected[i, j] = element
    for key in (..., 1, (slice(None), 2), (slice(0, 3, 2), slice(1, 3)), ([0, 2], [1, 3])):
        assert same(a[key].tolist(), expected[key].tolist())
    assert same(a[0, 0], POINTS[0])
    assert a[0, 1] is np.ma.masked
    assert same(a.oindex[[0, 2], [3, 0]].tolist(), expected[np.ix_([0, 2], [3, 0])].tolist())
    a[2, 1:3] = [(None, 7, (1, False), None), None]
    expected[2, 1], expected[2, 2] = (None, 7, (1, False), None), None
    a[0, 0] = None
    expected[0, 0] = None
    assert same(a[...].tolist(), expected.tolist())
    assert a.append([POINTS[:4]]) == (4, 4)


def test_plain_zarr_has_pairs_and_loses_no_null(tmp_path, pipeline):
    z = zarr.create_array(tmp_path, shape=4, dtype=point(), chunks=3)
    assert json.loads((tmp_path / "zarr.json").read_text())["fill_value"] == {
        "x": None, "n": 0, "p": {"a": None, "b": False}, "q": None,
    }  # fmt: skip
    z[:2] = as_nullable([POINTS[0], POINTS[2]], z.dtype).values
    read = zarr.open_array(tmp_path)[...]
    assert read["x"]["value"][0] == 0.5
    assert read["x"]["not null"].tolist() == [True, False, False, False]
    whole = as_nullable(read)
    assert same(whole.tolist()[:2], [POINTS[0], POINTS[2]])
    assert whole["x"].tolist() == [0.5, None, None, None]
    optional = zarr.create_array(
        {}, shape=2, dtype=nullable.optional_dtype(point()), serializer=nullable.NullableCodec()
    )
    optional[:] = as_nullable([POINTS[2], None], point().to_native_dtype())
    assert same(optional[:].tolist(), [POINTS[2], None])


def test_the_bytes_are_values_and_whether_there_are_any():
    store = {}
    z = zarr.create_array(store, shape=2, dtype=struct_dtype({"x": "optional[int16]"}), compressors=None)
    z[:] = as_nullable([(258,), (None,)], z.dtype).values
    assert store["c/0"].to_bytes() == bytes([2, 1, 1, 0, 0, 0])


def test_fields_are_null_where_their_struct_is():
    levels = struct_dtype({"s": "optional[optional[int8]]", "n": "int8"})
    x = as_nullable([(1, 2), None, (None, 3), (Some(NULL), 4)], levels.to_native_dtype())
    assert repr(x["s"]) == "NullableValues([1, NULL, NULL, Some(NULL)], dtype=int8)"
    assert (x["n"] + 1).tolist() == [3, None, 4, 5]
    assert x.equals(x.copy())
    assert not x.equals(as_nullable([(1, 2), None, (None, 3), (None, 4)], levels.to_native_dtype()))


def test_what_lies_beneath_a_null_does_not_matter():
    dtype = struct_dtype({"x": "optional[int8]"}).to_native_dtype()
    assert as_nullable(np.array([((5, False),)], dtype)).equals(as_nullable([(None,)], dtype))


def test_masks_of_fields_both_ways():
    given = np.ma.array([(1, 2.5), (3, 4.5), (5, 6.5)], dtype=[("a", "i4"), ("b", "f8")])
    given["a"][0] = np.ma.masked
    given[1] = np.ma.masked
    x = as_nullable(given)
    assert x.tolist() == [(None, 2.5), None, (5, 6.5)]
    again = x.masked(collapse=True)
    assert again.mask.tolist() == given.mask.tolist()
    assert again.tolist() == given.tolist()
    with pytest.raises(DataTypeError, match="look at the fields"):
        x.masked()
    whole = as_nullable([(1, 2.5), None], given.dtype)
    assert as_nullable(whole.masked()).equals(whole)
    nested = np.ma.zeros(2, dtype=[("p", [("a", "i4"), ("b", "f8")]), ("n", "i2")])
    nested["p"]["a"][1] = np.ma.masked
    assert as_nullable(nested).tolist() == [((0, 0.0), 0), ((None, 0.0), 0)]
    a = nullable.create_array(
        {}, data=given, dtype=struct_dtype({"a": "optional[int64]", "b": "optional[float32]"})
    )
    assert a[:].tolist() == [(None, 2.5), None, (5, 6.5)]


def test_a_null_struct_is_none_in_lists():
    x = as_nullable([(1, 2.5), None], np.dtype([("n", "i2"), ("x", "f4")]))
    assert x.tolist() == [(1, 2.5), None]
    assert x.reshape(2, 1).tolist() == [[(1, 2.5)], [None]]
    assert x[1:].reshape(()).tolist() is None


def test_arrow_pandas_and_polars():
    x = as_nullable(POINTS, point().to_native_dtype())
    listed = [row and {"x": row[0], "n": row[1], "p": dict(zip("ab", row[2], strict=True)),
                       "q": row[3] and dict(zip("ab", row[3], strict=True))} for row in POINTS]  # fmt: skip
    arrow = nullable.to_arrow(x)
    assert arrow.to_pylist() == listed
    assert as_nullable(arrow).tolist() == x.tolist()
    assert as_nullable(arrow[2:]).tolist() == x.tolist()[2:]
    assert nullable.to_polars(x).to_list() == listed
    assert as_nullable(pl.Series(listed, dtype=nullable.to_polars(x).dtype)).tolist() == x.tolist()
    assert as_nullable(nullable.to_pandas(x)).tolist() == x.tolist()
    a = nullable.create_array({}, data=arrow)
    assert a.to_arrow().equals(arrow)
    required = pa.StructArray.from_arrays(
        [pa.array([1, 2])], fields=[pa.field("n", pa.int64(), nullable=False)]
    )
    assert not may_have_nulls(as_nullable(required).values.dtype)
    with pytest.raises(DataTypeError, match="fixed size"):
        as_nullable(pa.array([{"text": "a"}]))


def test_it_needs_the_flag(tmp_path):
    nullable.create_array(tmp_path, data=POINTS, dtype=point())
    with zarr.config.set({"intarsia.experimental": False}):
        for refused in (point, lambda: nullable.open_array(tmp_path), lambda: zarr.open_array(tmp_path)):
            with pytest.raises(DataTypeError, match="experimental"):
                refused()
        struct_dtype({"n": "int8"})  # nothing special


def test_what_cannot_be_is_refused_in_words():
    with pytest.raises(DataTypeError, match="fixed size"):
        struct_dtype({"text": "optional[string]"})
    made_by_hand = Struct(fields=(("x", nullable.optional_dtype("float32")),))
    for options in ({}, {"fill_value": (0,)}):
        with pytest.raises((DataTypeError, TypeError), match=r"nullable\.struct_dtype|Null"):
            zarr.create_array({}, shape=2, dtype=made_by_hand, **options)
    x = as_nullable([(None, 1)], struct_dtype({"x": "optional[int8]", "n": "int8"}).to_native_dtype())
    with pytest.raises(NullsPresentError, match="'x' of the values are null"):
        x.astype(np.dtype([("x", "i1"), ("n", "i1")]))
    assert x.astype(np.dtype([("x", x.values.dtype["x"]), ("n", "i8")])).tolist() == [(None, 1)]
    with pytest.raises(DataTypeError, match="cannot hold"):
        as_nullable([(300, 1)], x.values.dtype)


def test_words():
    dtype = point().to_native_dtype()
    assert described(dtype["p"]) == "[('a', '<i2', 'optional'), ('b', '|b1')]"
    assert bare(np.zeros((), dtype)[()], dtype) == (None, 0, (None, False), None)
