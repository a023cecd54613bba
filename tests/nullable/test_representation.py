"""The Python types of selections: an `na_object` for strings, and arrays of other libraries."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from intarsia.errors import DataTypeError
from intarsia.nullable import UNSET, as_nullable, create_array, open_array

STRINGS = ["x", None, "z"]


@pytest.mark.parametrize(("na_object", "name"), [(None, "None"), (np.nan, "numpy.nan"), (pd.NA, "pandas.NA")])
def test_an_array_of_strings_comes_back_as_it_was_written(na_object, name, tmp_path, pipeline):
    text = np.array(["x", na_object, "z"], dtype=np.dtypes.StringDType(na_object=na_object))
    create_array(tmp_path, data=text)
    document = json.loads((tmp_path / "zarr.json").read_text())
    assert document["attributes"] == {"intarsia_na_object": name}
    assert "na_object" not in json.dumps(document["data_type"])
    read = open_array(tmp_path)[:]
    assert read.dtype.na_object is na_object or read.dtype.na_object != read.dtype.na_object
    assert [x is na_object or x for x in read.tolist()] == ["x", True, "z"]
    assert open_array(tmp_path)[1] is na_object or name == "numpy.nan"


def test_the_choice_at_run_time_goes_first(tmp_path):
    create_array(tmp_path, data=STRINGS, na_object=np.nan)
    assert open_array(tmp_path, na_object=None)[:].tolist() == STRINGS
    marker = object()
    assert open_array(tmp_path, na_object=marker)[1] is marker


def test_without_a_choice_strings_are_masked_arrays(tmp_path):
    array = create_array(tmp_path, data=STRINGS)
    assert array.na_object is UNSET
    assert isinstance(array[:], np.ma.MaskedArray)
    assert array[:].tolist() == STRINGS
    assert array[1] is np.ma.masked
    assert array[0] == "x"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda path: create_array(path, "b", data=STRINGS, na_object="N/A"),
        lambda path: open_array(path, "a", na_object="N/A"),
        lambda path: create_array(
            path, "b", data=np.array(["x", "N/A"], dtype=np.dtypes.StringDType(na_object="N/A"))
        ),
    ],
)
def test_a_string_is_refused_with_the_reason(attempt, tmp_path):
    create_array(tmp_path, "a", data=STRINGS)
    with pytest.raises(DataTypeError, match="'N/A' is a string: NumPy treats such a null as that text"):
        attempt(tmp_path)
    assert not (tmp_path / "b/zarr.json").exists()


def test_only_strings_have_one(tmp_path):
    with pytest.raises(DataTypeError, match="na_object is for strings"):
        create_array(tmp_path, data=[1, None], na_object=None)
    create_array(tmp_path, data=[1, None])
    with pytest.raises(DataTypeError, match="na_object is for strings"):
        open_array(tmp_path, na_object=None)


def test_only_three_can_be_kept():
    with pytest.raises(DataTypeError, match="cannot be stored as an attribute"):
        create_array({}, data=STRINGS, na_object=object())
    array = create_array({}, data=STRINGS, attributes={"intarsia_na_object": "nil"})
    with pytest.raises(DataTypeError, match="the attribute 'intarsia_na_object' is 'nil'"):
        array[:]


def test_the_attribute_is_read_for_strings_alone():
    attributes = {"intarsia_na_object": "nil"}
    assert create_array({}, data=[1, None], attributes=attributes)[:].tolist() == [1, None]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pandas.Series", pd.Series),
        ("pd.DataFrame", pd.Series),
        ("polars.Series", pl.Series),
        ("pa.Array", pa.Array),
    ],
)
def test_an_attribute_may_name_the_library(name, kind, tmp_path):
    def create(path, **options):
        create_array(tmp_path / path, attributes={"py_array_representation": name}, **options)
        return open_array(tmp_path / path)

    a = create("a", data=[1, None, 3])
    assert isinstance(a[1:], kind)
    assert as_nullable(a[1:]).tolist() == [None, 3]
    assert a[0] == 1
    assert a.read_nullable().tolist() == [1, None, 3]
    a[1:] = a[:2]
    assert a.read_nullable().tolist() == [1, 1, None]
    for data in (np.array([1j]), np.array(["NaT"], "M8[s]")):  # not to be had there, or not apart from null
        assert isinstance(create(data.dtype.kind, data=data)[:], np.ma.MaskedArray)
    cube = create("cube", data=np.zeros((1, 1, 1)))[:]
    assert isinstance(cube, np.ma.MaskedArray if kind is pd.Series else kind)


def test_an_attribute_may_name_strings_or_masked_arrays():
    def read(data, name, **options):
        attributes = {"py_array_representation": name}
        return create_array({}, data=data, attributes=attributes, **options)[:]

    text = "np.typing.NDArray[np.dtypes.StringDType(na_object={})]"
    assert np.isnan(read(["a", None], text.format("np.nan")).dtype.na_object)
    assert read(["a", None], text.format("None")).dtype.na_object is None
    assert read(["a", None], text.format("pd.NA")).dtype.na_object is pd.NA
    assert read(["a", None], text.format("np.nan"), na_object=None).dtype.na_object is None
    for name in ("np.ma.MaskedArray", "torch.Tensor", 3, text.format("'x'"), text.format("np.nan")):
        assert isinstance(read([1, None], name), np.ma.MaskedArray)
