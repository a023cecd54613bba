"""The experimental `null` data type."""

import json

import numpy as np
import pytest
import zarr

from intarsia.errors import DataTypeError
from intarsia.nullable import NULL, NullDType, create_array, open_array


@pytest.fixture
def experimental():
    with zarr.config.set({"intarsia.experimental": True}):
        yield


def test_it_needs_the_flag(tmp_path):
    with pytest.raises(DataTypeError, match=r"'null' is experimental.*\n.*intarsia\.experimental"):
        create_array(tmp_path / "a", shape=3, dtype="null")
    with zarr.config.set({"intarsia.experimental": True}):
        create_array(tmp_path / "b", shape=3, dtype="null")
    with pytest.raises(DataTypeError, match="experimental"):
        zarr.open_array(tmp_path / "b")


def test_it_is_metadata_alone(experimental, tmp_path, pipeline):
    array = create_array(
        tmp_path, shape=(10**6, 10**6), chunks=(1000, 1000), dtype="null", attributes={"k": 1}
    )
    array[:3, :3] = None
    array[5:7, 5] = [None, np.ma.masked]
    document = json.loads((tmp_path / "zarr.json").read_text())
    assert (document["data_type"], document["fill_value"]) == ("null", None)
    assert [path.name for path in tmp_path.rglob("*")] == ["zarr.json"]
    opened = open_array(tmp_path)
    assert opened[:2, :2].mask.all()
    assert opened[7, 7] is np.ma.masked
    assert opened.read_nullable((slice(0, 1), slice(0, 2))).null_count == 2


def test_it_takes_nothing_else(experimental):
    array = create_array({}, shape=3, dtype=NullDType())
    with pytest.raises(DataTypeError, match="not null"):
        array[0] = b"x"
    with pytest.raises(DataTypeError, match="not bytes"):
        array[:] = [None, 3, None]
    for value in (3, np.zeros(3)):
        with pytest.raises((TypeError, ValueError)):
            array.zarr_array[:] = value
    assert array.zarr_array.nchunks_initialized == 0
    with pytest.raises(DataTypeError, match="the fill value of an array of 'null' must be null"):
        create_array({}, shape=3, dtype="null", fill_value=3)
    with pytest.raises(DataTypeError, match="zarr_format=3"):
        NullDType().to_json(zarr_format=2)
    assert NullDType().cast_scalar(None) is NULL
