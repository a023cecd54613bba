"""A plain Zarr dataset opened by our engine is the one that xarray's own engine opens."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

pytestmark = pytest.mark.filterwarnings(
    "ignore:Consolidated metadata is currently not part:UserWarning",
    "ignore:Numcodecs codecs are not in the Zarr version 3 specification:UserWarning",
    "ignore::zarr.errors.UnstableSpecificationWarning",
)


def dataset():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 8)).astype("f4")
    values[2, 3] = np.nan
    made = xr.Dataset(
        {
            "t": (("time", "x"), values, {"units": "K", "valid_max": 3.5}),
            "packed": (("time", "x"), rng.integers(0, 50, (6, 8)) / 4.0),
            "n": ("x", np.arange(8, dtype="i2")),
            "flag": ("x", np.arange(8) % 2 == 0),
            "name": ("x", np.array([f"s{i}" for i in range(8)], dtype="U3")),
            "scalar": ((), np.float64(2.5)),
            "nothing": (("none",), np.empty(0, "f8")),
        },
        coords={
            "time": pd.date_range("2020-01-01", periods=6),
            "x": np.linspace(0, 1, 8),
            "lon": (("time", "x"), rng.random((6, 8)), {"long_name": "longitude"}),
        },
        attrs={"title": "a dataset", "numbers": [1, 2]},
    )
    made["packed"].encoding = {"dtype": "i2", "scale_factor": 0.25, "add_offset": 1.0, "_FillValue": -1}
    made["t"].encoding = {"chunks": (2, 3)}
    return made


def identical(one, other):
    """Also in what `assert_identical` does not look at."""
    xr.testing.assert_identical(one, other)
    assert set(one.coords) == set(other.coords)
    for name, variable in one.variables.items():
        theirs = other.variables[name]
        assert variable.dtype == theirs.dtype, name
        assert variable.dims == theirs.dims
        assert variable.encoding.keys() == theirs.encoding.keys(), name
        for key, value in variable.encoding.items():
            np.testing.assert_equal(value, theirs.encoding[key], err_msg=f"{name}: {key}")
    assert one.attrs == other.attrs


@pytest.mark.parametrize("decode_cf", [True, False])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_values_attributes_encoding_and_coordinates_are_those_of_xarrays_engine(
    tmp_path, zarr_format, decode_cf
):
    dataset().to_zarr(tmp_path, zarr_format=zarr_format, consolidated=False)
    ours = xr.open_dataset(tmp_path, engine="intarsia", decode_cf=decode_cf)
    theirs = xr.open_dataset(tmp_path, engine="zarr", consolidated=False, decode_cf=decode_cf)
    assert not ours["t"].variable._in_memory
    identical(ours, theirs)


@pytest.mark.skipif(xr.__version__ < "2026.9", reason="the engine of older xarray has no uneven chunks")
def test_shards_and_chunks_of_different_shapes(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        group = zarr.create_group(tmp_path)
        for name, options in {
            "sharded": {"chunks": (2, 2), "shards": (4, 4)},
            "uneven": {"chunks": [[1, 3, 2], [4, 2]]},
        }.items():
            array = group.create_array(
                name, shape=(6, 6), dtype="i4", dimension_names=["y", "x"], fill_value=7, **options
            )
            array[:5] = np.arange(30).reshape(5, 6)
        ours = xr.open_dataset(tmp_path, engine="intarsia")
        identical(ours, xr.open_dataset(tmp_path, engine="zarr", consolidated=False))
        chunked = xr.open_dataset(tmp_path, engine="intarsia", chunks={}, drop_variables="sharded")
        assert chunked["uneven"].chunks == ((1, 3, 2), (4, 2))


def test_groups_of_format_2_are_a_tree(tmp_path):
    dataset().to_zarr(tmp_path, zarr_format=2, consolidated=False)
    dataset().to_zarr(tmp_path, group="below", zarr_format=2, consolidated=False)
    tree = xr.open_datatree(tmp_path, engine="intarsia")
    theirs = xr.open_datatree(tmp_path, engine="zarr", consolidated=False)
    xr.testing.assert_identical(tree.load(), theirs.load())


def test_plain_arrays_are_read_by_the_engine(tmp_path, monkeypatch):
    dataset().to_zarr(tmp_path, zarr_format=3, consolidated=False)

    def refuse(*_, **__):
        raise AssertionError("zarr reads")

    opened = xr.open_dataset(tmp_path, engine="intarsia")
    monkeypatch.setattr(zarr.Array, "get_basic_selection", refuse)
    monkeypatch.setattr(zarr.Array, "get_orthogonal_selection", refuse)
    chosen = {"time": [4, 1], "x": slice(None, None, -2)}
    np.testing.assert_array_equal(opened["t"].isel(chosen), dataset()["t"].isel(chosen))
