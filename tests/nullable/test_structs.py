"""Structs that are null as a whole: nested, stored, and in other libraries. Their fields are never null."""

import json

import numpy as np
import pyarrow as pa
import pytest
import zarr
from zarr.dtype import Struct, parse_dtype

from intarsia import nullable
from intarsia.errors import DataTypeError
from intarsia.nullable import as_nullable

POINT = np.dtype([("x", "f4"), ("n", "i4"), ("p", [("a", "i2"), ("b", "?")])])
POINTS = [(0.5, 1, (2, True)), None, (float("inf"), -3, (4, True)), (1.5, 0, (0, False)), None]

LAYOUTS = {
    "chunks": {"chunks": (2, 2)},
    "shards": {"chunks": (1, 2), "shards": (2, 4)},
    "transposed": {"chunks": (2, 2), "filters": [{"name": "transpose", "configuration": {"order": [1, 0]}}]},
    "big endian": {"chunks": (2, 2), "data_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_selections(layout, tmp_path, pipeline):
    rows = [POINTS[:4], POINTS[1:], [*POINTS[3:], *POINTS[:2]]]
    nullable.create_array(tmp_path, data=rows, dtype=POINT, **LAYOUTS[layout])
    a = nullable.open_array(tmp_path)
    expected = np.empty((3, 4), dtype=object)
    for i, row in enumerate(rows):
        for j, element in enumerate(row):
            expected[i, j] = element
    for key in (..., 1, (slice(None), 2), (slice(0, 3, 2), slice(1, 3)), ([0, 2], [1, 3])):
        assert a.read_nullable(key).tolist() == expected[key].tolist()
    assert a[0, 0].item() == POINTS[0]
    assert a[0, 1] is np.ma.masked
    a[2, 1:3] = [(2.5, 7, (1, False)), None]
    expected[2, 1], expected[2, 2] = (2.5, 7, (1, False)), None
    assert a.read_nullable().tolist() == expected.tolist()
    assert a.append([POINTS[:4]]) == (4, 4)


def test_fields_are_null_where_their_struct_is():
    x = as_nullable(POINTS, POINT)
    assert x["n"].tolist() == [1, None, -3, 0, None]
    assert (x["p"]["a"] + 1).tolist() == [3, None, 5, 1, None]
    assert x.equals(x.copy())
    levels = as_nullable([(1,), nullable.Some(None), None], np.dtype([("a", "i1")]), depth=2)
    assert levels["a"].tolist() == [1, None, None]


def test_masked_arrays_both_ways():
    masked = np.ma.array([(1, 2.5), (3, 4.5), (5, 6.5)], dtype=[("a", "i4"), ("b", "f8")])
    masked[1] = np.ma.masked
    x = as_nullable(masked)
    assert x.tolist() == [(1, 2.5), None, (5, 6.5)]
    assert x.masked().mask.tolist() == masked.mask.tolist()
    assert as_nullable(x.masked()).equals(x)
    masked["a"][0] = np.ma.masked
    with pytest.raises(DataTypeError, match="null as a whole"):
        as_nullable(masked)
    nested = np.ma.zeros(2, dtype=[("p", [("a", "i4"), ("b", "f8")]), ("n", "i2")])
    nested["p"]["a"][1] = np.ma.masked
    with pytest.raises(DataTypeError, match="null as a whole"):
        as_nullable(nested)


def test_a_null_struct_is_none_in_lists():
    x = as_nullable([(1, 2.5), None], np.dtype([("n", "i2"), ("x", "f4")]))
    assert x.tolist() == [(1, 2.5), None]
    assert x.reshape(2, 1).tolist() == [[(1, 2.5)], [None]]
    assert x[1:].reshape(()).tolist() is None


def test_other_libraries_get_one_field_at_a_time():
    x = as_nullable(POINTS, POINT)
    for convert in (nullable.to_arrow, nullable.to_polars, nullable.to_pandas):
        with pytest.raises(DataTypeError, match=r"no equivalent in Arrow|no nullable type"):
            convert(x)
    assert nullable.to_arrow(x["n"]).to_pylist() == [1, None, -3, 0, None]
    assert nullable.to_polars(x["p"]["a"]).to_list() == [2, None, 4, 0, None]
    with pytest.raises(DataTypeError, match="has no equivalent in NumPy"):
        as_nullable(pa.array([{"a": 1}, None]))


def test_fields_are_cast_as_other_values_are():
    x = as_nullable([(5, 1.5), None], np.dtype([("n", "i8"), ("x", "f8")]))
    assert x.astype(np.dtype([("n", "u1"), ("x", "f4")]), casting="same_kind").tolist() == [(5, 1.5), None]
    with pytest.raises(DataTypeError, match=r"'n' of the values .* cannot hold"):
        as_nullable(as_nullable([(300, 1.5)], x.values.dtype), np.dtype([("n", "u1"), ("x", "f4")]))


def test_optional_fields_are_refused(tmp_path):
    by_hand = Struct(fields=(("x", nullable.optional_dtype("float32")),))
    with pytest.raises(DataTypeError, match="cannot be optional"):
        nullable.create_array({}, shape=2, dtype=by_hand)
    with pytest.raises((DataTypeError, TypeError), match=r"cannot be optional|Null"):
        zarr.create_array({}, shape=2, dtype=by_hand)
    with pytest.raises(DataTypeError, match="cannot be optional"):
        zarr.create_array({}, shape=2, dtype=by_hand, fill_value=(1,))
    optional = {"name": "optional", "configuration": {"name": "int8"}}
    stored = {"name": "struct", "configuration": {"fields": [{"name": "x", "data_type": optional}]}}
    with pytest.raises(DataTypeError, match="cannot be optional"):
        parse_dtype(stored, zarr_format=3)
    zarr.create_array(tmp_path, shape=2, dtype=Struct(fields=(("x", parse_dtype("int8", zarr_format=3)),)))
    document = json.loads((tmp_path / "zarr.json").read_text())
    (tmp_path / "zarr.json").write_text(json.dumps(document | {"data_type": stored}))
    with pytest.raises(DataTypeError, match="cannot be optional"):
        zarr.open_array(tmp_path)
    with pytest.raises(DataTypeError, match="cannot become"):
        as_nullable([(None, 1, (2, True))], POINT)
