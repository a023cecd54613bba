"""A logical array as an xarray variable: names, attributes that apply once, nulls."""

import copy
import pickle

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import ScaleOffset

import intarsia
from intarsia import nullable
from intarsia.interop.xarray.variables import PreferredChunks
from tests.interop.datasets import CountingStore


def opened(store, **options):
    return xr.open_dataset(store, engine="intarsia", **options)


def test_axes_without_a_name_get_one_of_their_own():
    store = {}
    intarsia.create(store, "a", shape=(2, 3), chunks=(2, 3), dtype="u1", dimension_names=("time", None))
    intarsia.create(store, "b", shape=(5,), chunks=(5,), dtype="u1")
    zarr.create_array(store, name="c", shape=(4,), dtype="u1")[:] = 7
    dataset = opened(store)
    assert dataset["a"].dims == ("time", "a_dim_1")
    assert dataset["b"].dims == ("b_dim_0",)
    assert dataset["c"].dims == ("c_dim_0",)
    assert dataset["c"].values.tolist() == [7, 7, 7, 7]


def test_plain_arrays_take_negative_steps_and_empty_slices():
    store = {}
    zarr.create_array(store, name="c", shape=(4,), dtype="u1", dimension_names=["x"])[:] = np.arange(4)
    dataset = opened(store)
    assert dataset["c"][::-2].values.tolist() == [3, 1]
    assert dataset["c"][3:1].values.tolist() == []
    assert dataset["c"][1:3:-1].values.tolist() == []


def packed(store, scale):
    """Floats that one member keeps as packed integers, and another one as they are."""
    array = intarsia.create(
        store, "t", shape=(0,), chunks=(2,), dtype="f4", dimension_names=["time"],
        attributes={"units": "K", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1},
    )  # fmt: skip
    filters = [ScaleOffset(scale=scale, offset=0.0)] if scale else []
    array.append(np.array([1.0, 2.0], "f4"), codecs=["gzip"])
    array.append(np.array([3.0, -1.0], "f4"), codecs=[*filters, "zstd"])


def test_attributes_that_a_member_has_applied_already_are_not_applied_again():
    store = {}
    packed(store, 2.0)
    dataset = opened(store)
    assert dataset["t"].values.tolist() == [1.0, 2.0, 3.0, -1.0]
    assert dataset["t"].attrs == {"units": "K"}


def regions_packed_as(packing, values, *, attributes=None, shape=None, **options):
    store = {}
    array = intarsia.create(
        store, "t", shape=shape or values.shape, chunks=(2,), dtype=packing.values, dimension_names=["time"],
        attributes=attributes or {}, **options,
    )  # fmt: skip
    array.add_region([(0, 2)], data=values[:2], packing=packing)
    array.add_region([(2, 4)], data=values[2:], packing=packing)
    return store


@pytest.mark.parametrize("attributes", [{}, {"scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -1}])
def test_the_packing_that_all_regions_share_is_xarrays_encoding(attributes, tmp_path):
    values = np.array([3.5, np.nan, 4.0, 3.0])
    packing = intarsia.Packing("int16", scale=0.5, offset=3.0, missing=-1)
    store = regions_packed_as(packing, values, attributes={"units": "K"} | attributes, fill_value=np.nan)
    dataset = opened(store)
    np.testing.assert_array_equal(dataset["t"], values)
    assert dataset["t"].attrs == {"units": "K"}
    said = {"dtype": np.dtype("int16"), "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -1}
    assert {key: dataset["t"].encoding[key] for key in said} == said
    dataset.to_netcdf(tmp_path / "h5netcdf", engine="h5netcdf")
    dataset.to_zarr(tmp_path / "zarr", consolidated=False)
    for engine, options in (("h5netcdf", {}), ("zarr", {"consolidated": False})):
        again = xr.open_dataset(tmp_path / engine, engine=engine, **options)
        np.testing.assert_array_equal(again["t"], values)
        assert {key: again["t"].encoding[key] for key in said} == said
    intarsia.from_xarray(dataset, tmp_path / "ours")
    np.testing.assert_array_equal(opened(tmp_path / "ours")["t"], values)


def test_unsigned_numbers_keep_their_fill_value_as_it_is_stored():
    packing = intarsia.Packing("int8", scale=np.float32(0.5), missing=255, unsigned=True)
    values = np.array([100, np.nan, 0.5, 1], dtype="f4")
    store = regions_packed_as(packing, values, fill_value=np.nan, attributes={"_Unsigned": "true"})
    dataset = opened(store)
    np.testing.assert_array_equal(dataset["t"], values)
    said = dataset["t"].encoding
    assert (said["_Unsigned"], said["_FillValue"], said["dtype"]) == ("true", -1, np.dtype("int8"))
    assert said["scale_factor"].dtype == "float32"


def test_packings_that_differ_or_cannot_hold_what_is_read_are_no_encoding():
    packing = intarsia.Packing("int16", scale=0.5)
    values = np.array([0.5, 1, 1.5, 2])
    hidden = {"scale_factor", "add_offset", "_FillValue"}
    holes = regions_packed_as(packing, values, shape=(6,), fill_value=0.3, attributes={"scale_factor": 0.5})
    assert opened(holes)["t"].values.tolist() == [*values, 0.3, 0.3]
    assert not hidden & opened(holes)["t"].encoding.keys()
    store = regions_packed_as(packing, values, attributes={"scale_factor": 0.5})
    intarsia.open(store, "t", mode="r+").recode(
        ((0, 2),), codecs=["gzip"], packing={"stored": "int8", "scale": 0.25}
    )
    assert opened(store)["t"].values.tolist() == values.tolist()
    assert not hidden & opened(store)["t"].encoding.keys()
    assert opened(store)["t"].encoding["dtype"] == np.float64


def test_a_packed_array_grows_by_values():
    packing = intarsia.Packing("int16", scale=0.5, offset=3.0, missing=-1)
    values = np.array([3.5, np.nan, 4.0, 3.0])
    store = regions_packed_as(packing, values, fill_value=np.nan)
    more = xr.Dataset({"t": ("time", np.array([3.5, np.nan, 0.1]))})
    intarsia.from_xarray(more, store, append_dim="time")
    np.testing.assert_array_equal(opened(store)["t"], [*values, 3.5, np.nan, 0.1])


def test_attributes_that_nobody_has_applied_are():
    store = {}
    packed(store, None)
    assert opened(store)["t"].values[:3].tolist() == [1.5, 2.0, 2.5]
    assert np.isnan(opened(store)["t"].values[3])


@pytest.mark.parametrize("written", [-9.5, "NaN", "AAAAAAAAI8A="])
def test_a_fill_value_may_be_written_as_a_number_as_a_word_or_as_xarray_does(written):
    store = {}
    array = intarsia.create(
        store,
        "t",
        shape=(2,),
        chunks=(2,),
        dtype="f4",
        dimension_names=["x"],
        attributes={"_FillValue": written},
    )
    array.add_region(((0, 2),), codecs=[], data=np.array([1, -9.5], "f4"))
    expected = [1.0, -9.5] if written == "NaN" else [1.0, np.nan]
    np.testing.assert_array_equal(opened(store)["t"].values, expected)


def test_the_chunks_of_members_are_looked_up_when_somebody_asks():
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "t", shape=(0,), chunks=(1,), dtype="u1", dimension_names=["x"])
    array.append(np.arange(5, dtype="u1"), codecs=[], chunks=(2,))
    counting = CountingStore(store)
    preferred = opened(counting)["t"].encoding["preferred_chunks"]
    assert isinstance(preferred, PreferredChunks)
    member = f"t/{array.regions[0].name}/zarr.json"
    assert member not in counting.read
    assert len(preferred) == 1
    assert pickle.loads(pickle.dumps(preferred))["x"] == 2
    assert copy.deepcopy(preferred) is preferred
    assert dict(preferred) == {"x": 2}
    assert member in counting.read
    assert pickle.loads(pickle.dumps(preferred)) == {"x": 2}


# Nulls


@pytest.fixture
def nulls():
    store = {}
    for name, values, dtype in (("f", [1.5, None, 3.0], "float64"), ("i", [1, None, 3], "int16")):
        array = nullable.create_array(store, name=name, shape=3, chunks=2, dtype=dtype, dimension_names=["x"])
        array[:] = values
    return store


def test_nullable_logical_arrays_are_treated_like_plain_ones():
    store = {}
    array = intarsia.create(
        store, "i", shape=(0,), chunks=(2,), dtype="optional[int16]", dimension_names=["x"]
    )
    array.append([1, None, 3])
    array.append([None], codecs=["zstd"])
    np.testing.assert_array_equal(opened(store, nulls="nan")["i"], [1, np.nan, 3, np.nan])
    np.testing.assert_array_equal(opened(store, nulls="nan", chunks={})["i"], [1, np.nan, 3, np.nan])
    masked = opened(store, nulls="masked")
    assert masked["i_missing"].values.tolist() == [False, True, False, True]
    picked = {"x": xr.DataArray([3, 0], dims="p")}
    np.testing.assert_array_equal(opened(store, nulls="nan")["i"].isel(picked), [np.nan, 1])
    with pytest.raises(intarsia.errors.NullsPresentError):
        opened(store)["i"].load()


def test_nulls_become_nan_where_the_type_has_one_and_an_error_elsewhere(nulls):
    dataset = opened(nulls)
    np.testing.assert_array_equal(dataset["f"].values, [1.5, np.nan, 3.0])
    with pytest.raises(intarsia.errors.NullsPresentError, match=r"variable 'i' are null.*nulls=\"nan\""):
        dataset["i"].load()
    assert dataset["i"][[2, 0]].values.tolist() == [3, 1]


def test_nulls_become_nan_everywhere_if_asked_for(nulls):
    dataset = opened(nulls, nulls="nan")
    assert dataset["i"].dtype == "f4"
    np.testing.assert_array_equal(dataset["i"].values, [1, np.nan, 3])
    np.testing.assert_array_equal(dataset["i"].isel(x=xr.DataArray([1, 0], dims="p")), [np.nan, 1])
    np.testing.assert_array_equal(opened(nulls, nulls="nan", chunks={})["i"].compute(), [1, np.nan, 3])


def test_nulls_get_a_variable_that_tells_them_if_asked_for(nulls):
    dataset = opened(nulls, nulls="masked")
    assert dataset["i"].dtype == "i2"
    assert dataset["i_missing"].values.tolist() == [False, True, False]
    assert dataset["i"].attrs["ancillary_variables"] == "i_missing"
    assert dataset["i"].where(~dataset["i_missing"]).mean().item() == 2.0


def test_nulls_are_an_error_if_asked_for(nulls):
    with pytest.raises(intarsia.errors.NullsPresentError):
        opened(nulls, nulls="raise")["f"].load()
    with pytest.raises(intarsia.errors.DataTypeError, match="nulls='zero'"):
        opened(nulls, nulls="zero")
