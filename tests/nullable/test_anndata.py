"""Nullable columns written by anndata."""

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr

from intarsia.errors import DataTypeError
from intarsia.nullable import create_array, from_anndata

pytestmark = [pytest.mark.filterwarnings("ignore")]  # what anndata itself does with zarr

COLUMNS = {
    "count": pd.array([3, None, 5], dtype="Int32"),
    "big": pd.array([2**63, None, 5], dtype="UInt64"),
    "flag": pd.array([True, None, False], dtype="boolean"),
    "name": pd.array(["a", None, ""], dtype="string"),
    "nan name": pd.array(["a", None, ""], dtype="str"),
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    path = tmp_path_factory.mktemp("anndata") / "cells.zarr"
    obs = pd.DataFrame({**COLUMNS, "plain": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
    with anndata.settings.override(allow_write_nullable_strings=True, zarr_write_format=3):
        anndata.AnnData(X=np.zeros((3, 1)), obs=obs).write_zarr(path, convert_strings_to_categoricals=False)
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_read_as_anndata_reads_them(column, cells):
    ours = from_anndata(cells, f"obs/{column}")
    theirs = anndata.read_zarr(cells).obs[column]
    assert ours.is_null().tolist() == theirs.isna().tolist() == [False, True, False]
    assert ours.values[[0, 2]].tolist() == theirs.iloc[[0, 2]].tolist()
    array = create_array({}, data=ours)
    assert array.read_nullable().equals(ours)


def test_groups(cells):
    group = zarr.open_group(cells, mode="r")
    assert from_anndata(group["obs/count"]).tolist() == [3, None, 5]
    assert from_anndata(group, "obs/count").values.dtype == np.dtype("int32")


def test_what_is_not_nullable_is_refused(cells):
    with pytest.raises(DataTypeError, match="encoding 'array'; nullable are nullable-integer"):
        from_anndata(cells, "obs/plain")
    group = zarr.group({}, attributes={"encoding-type": "nullable-integer"})
    group.create_array("values", data=np.arange(3))
    group.create_array("mask", data=np.zeros(2, dtype=bool))
    with pytest.raises(DataTypeError, match="a mask of"):
        from_anndata(group)
