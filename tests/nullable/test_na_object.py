"""`na_object`: an attribute and a choice at run time, never part of the data type."""

import json

import numpy as np
import pandas as pd
import pytest

from intarsia.errors import DataTypeError
from intarsia.nullable import UNSET, create_array, open_array
from intarsia.nullable.na_object import from_attribute

STRINGS = ["x", None, "z"]


@pytest.mark.parametrize(("na_object", "name"), [(None, "None"), (np.nan, "numpy.nan"), (pd.NA, "pandas.NA")])
def test_an_array_of_strings_comes_back_as_it_was_written(na_object, name, tmp_path, pipeline):
    text = np.array(["x", na_object, "z"], dtype=np.dtypes.StringDType(na_object=na_object))
    create_array(tmp_path, data=text)
    document = json.loads((tmp_path / "zarr.json").read_text())
    assert document["attributes"] == {"na_object": name}
    assert "na_object" not in json.dumps(document["data_type"])
    read = open_array(tmp_path)[:]
    assert read.dtype.na_object is na_object or read.dtype.na_object != read.dtype.na_object
    assert [x is na_object or x for x in read.tolist()] == ["x", True, "z"]
    assert open_array(tmp_path)[1] is na_object or name == "numpy.nan"


def test_the_choice_at_run_time_goes_first(tmp_path):
    create_array(tmp_path, data=STRINGS, na_object=np.nan)
    assert open_array(tmp_path, na_object=None)[:].tolist() == STRINGS
    assert open_array(tmp_path).with_na_object(None).na_object is None
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
    with pytest.raises(DataTypeError, match="'N/A' is a string: NumPy takes such a null for that text"):
        attempt(tmp_path)
    assert not (tmp_path / "b/zarr.json").exists()


def test_only_strings_have_one(tmp_path):
    with pytest.raises(DataTypeError, match="na_object is for strings"):
        create_array(tmp_path, data=[1, None], na_object=None)
    array = create_array(tmp_path, data=[1, None])
    with pytest.raises(DataTypeError, match="na_object is for strings"):
        array.with_na_object(None)


def test_only_three_can_be_kept():
    with pytest.raises(DataTypeError, match="cannot be kept as an attribute"):
        create_array({}, data=STRINGS, na_object=object())
    with pytest.raises(DataTypeError, match="the attribute 'na_object' is 'nil'"):
        from_attribute("nil")
