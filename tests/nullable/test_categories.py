"""Categorical data of pandas, Arrow and Polars, stored as codes and read back as what it was."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr

from intarsia import nullable
from intarsia.errors import DataTypeError
from intarsia.nullable.categories import Categories

LABELS = ["low", None, "high", "low", "mid"]
ORDER = ["low", "mid", "high"]


def stored(data, **options):
    store = {}
    nullable.create_array(store, data=data, categories=True, chunks=2, **options)
    return nullable.open_array(store)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("wrap", [pd.Series, pd.Categorical, pd.CategoricalIndex])
def test_pandas(wrap, ordered):
    given = pd.Categorical(LABELS, categories=[*ORDER, "never"], ordered=ordered)
    a = stored(wrap(given))
    pd.testing.assert_series_equal(a.to_pandas(), pd.Series(given))
    assert a.dtype == np.int8
    assert a[:].tolist() == [0, None, 2, 0, 1]
    assert a.attrs["categories"] == {"values": [*ORDER, "never"], "ordered": ordered}


@pytest.mark.parametrize("chunked", [False, True])
def test_arrow(chunked):
    given = pa.array(LABELS).dictionary_encode()
    data = pa.chunked_array([given, pa.array(["new"]).dictionary_encode()]) if chunked else given
    read = stored(data).to_arrow()
    assert pa.types.is_dictionary(read.type)
    assert read.to_pylist() == [*LABELS, "new"][: len(data)]
    assert read.dictionary.to_pylist() == ["low", "high", "mid", "new"][: 4 if chunked else 3]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(ORDER)])
def test_polars(dtype):
    given = pl.Series("level", LABELS, dtype=dtype)
    read = stored(given).to_polars(name="level")
    assert read.dtype == dtype
    assert read.to_list() == LABELS


def test_they_go_from_one_library_to_another():
    a = stored(pl.Series(LABELS, dtype=pl.Enum(ORDER)))
    assert a.to_pandas().cat.ordered
    assert a.to_pandas().cat.categories.tolist() == ORDER
    assert a.to_arrow().type.ordered


@pytest.mark.parametrize("values", [[10, 20], [True, False], [0.5, 1.5]])
def test_categories_need_not_be_text(values):
    given = pd.Series(pd.Categorical([values[1], None, values[0]], categories=values))
    a = stored(given)
    pd.testing.assert_series_equal(a.to_pandas(), given)
    assert a.to_arrow().to_pylist() == [values[1], None, values[0]]
    with pytest.raises(DataTypeError, match="text only"):
        a.to_polars()


def test_more_is_written_by_the_categories_of_the_array():
    a = stored(pd.Categorical(LABELS, categories=ORDER))
    a[:2] = pd.Categorical(["high", "mid"])
    a.append(pa.array(["mid", None]).dictionary_encode())
    a[3] = None
    assert a.to_arrow().to_pylist() == ["high", "mid", "high", None, "mid", "mid", None]
    with pytest.raises(DataTypeError, match="'odd' is not one of the array's categories"):
        a[:1] = pd.Categorical(["odd"])


@pytest.mark.parametrize(("count", "dtype"), [(0, "i1"), (127, "i1"), (200, "i2"), (40_000, "i4")])
def test_codes_are_as_small_as_they_can_be(count, dtype):
    labels = [f"c{i}" for i in range(count)]
    codes, categories = Categories.split(pd.Categorical(labels or [None], categories=labels))
    assert codes.values.dtype == np.dtype(dtype)
    assert categories.to_pandas(codes).isna().sum() == (0 if count else 1)


def test_what_is_no_category_is_refused():
    for data in (["a", None], pd.Series(["a"]), np.array([1])):
        with pytest.raises(DataTypeError, match="for categorical data"):
            stored(data)
    with pytest.raises(DataTypeError, match="text, numbers or bools"):
        stored(pd.Categorical(pd.to_datetime(["2020-01-01"])))
    with pytest.raises(DataTypeError, match="is null"):
        stored(pa.DictionaryArray.from_arrays([0, 1], ["a", None]))


@pytest.mark.parametrize("attribute", ["x", {"values": 3}, {"values": ["a", "a"]}])
def test_damaged_attributes_are_refused(attribute):
    a = stored(pd.Categorical(["a"]))
    a.attrs["categories"] = attribute
    with pytest.raises(DataTypeError, match="categories"):
        a.to_pandas()


def test_codes_out_of_range_are_refused():
    a = stored(pd.Categorical(["a", "b"]))
    a[0] = 7
    for read in (a.to_pandas, a.to_arrow, a.to_polars):
        with pytest.raises(DataTypeError, match="a code is outside 0 to 1"):
            read()


def test_without_being_asked_for_values_are_stored():
    group = zarr.group({})
    a = nullable.create_array(group, "x", data=pd.Categorical(LABELS))
    assert a[:].tolist() == LABELS
    assert nullable.open_array(group, "x").categories is None
