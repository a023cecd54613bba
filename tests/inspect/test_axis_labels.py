"""Places on an axis in words: the coordinate beside the array, dates as dates."""

import sys

import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.inspect.axis_labels import AxisLabels, texts_of


def group(**coordinates):
    store = zarr.storage.MemoryStore()
    made = zarr.open_group(store, mode="a", path="a")
    for name, (values, attributes) in coordinates.items():
        made.create_array(name, data=np.asarray(values), attributes=attributes)
    return store


def test_numbers_are_told_with_their_unit():
    store = group(lat=([10.5, 20.25], {"units": "degrees_north"}))
    labels = AxisLabels.beside(store, "a/t", "lat", 2)
    assert labels.at([1, 0]) == ["20.25", "10.5"]
    assert labels.units == "degrees_north"


@pytest.mark.parametrize(
    "units", ["days since 2000-01-01", "hours since 1999-12-31 18:00:00", "s since 2000-01-01"]
)
def test_counts_of_days_are_dates_as_xarray_has_them(units):
    counts = np.arange(0, 100, 7) * 361
    labels = AxisLabels.beside(group(time=(counts, {"units": units})), "a/t", "time", len(counts))
    decoded = xr.decode_cf(xr.Dataset({"time": ("time", counts, {"units": units})})).time.values
    told = np.array(labels.at(range(len(counts))), dtype="M8[s]")
    np.testing.assert_array_equal(told, decoded.astype("M8[s]"))
    assert labels.units == ""


def test_other_calendars_are_those_of_xarray():
    store = group(time=([59, 60], {"units": "days since 2000-01-01", "calendar": "noleap"}))
    labels = AxisLabels.beside(store, "a/t", "time", 2)
    assert labels.at([0, 1]) == ["2000-03-01 00:00:00", "2000-03-02 00:00:00"]
    assert not labels.are_dates  # that NumPy counts


def test_without_xarray_times_are_numbers(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert texts_of(np.array([1]), {"units": "days since 2000-01-01"}) == ["1"]


def test_what_is_no_coordinate_is_none():
    store = group(x=([1, 2, 3], {}), plane=(np.zeros((2, 2)), {}))
    for name in (None, "", "y", "plane", "../a/x", "..", "a/x"):
        assert AxisLabels.beside(store, "a/t", name, 3) is None, name
    assert AxisLabels.beside(store, "a/t", "x", 4) is None
    assert AxisLabels.beside(store, "t", "x", 3) is None


def test_logical_and_nullable_coordinates():
    store = group()
    time = intarsia.create(store, "a/time", shape=(0,), chunks=(2,), dtype="M8[D]")
    time.append(np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), codecs=["gzip"])
    assert AxisLabels.beside(store, "a/t", "time", 2).at([1]) == ["2020-01-02"]
    intarsia.nullable.create_array(store, name="a/station", data=["x", None])
    assert AxisLabels.beside(store, "a/t", "station", 2).at([0, 1]) == ["x", "null"]


def test_packed_coordinates_are_unpacked_and_nonsense_stays_text():
    assert texts_of(np.array([10], "i2"), {"scale_factor": 0.5, "add_offset": 1}) == ["6"]
    for units in ("days since yesterday", 7, "days since 99999999999-01-01"):
        assert texts_of(np.array([3]), {"units": units}) == ["3"]
    assert texts_of(np.array([np.nan]), {"units": "days since 2000-01-01"}) == ["NaT"]
    assert texts_of(np.array(["\x1b[31m<b>"]), {}) == ["\\x1b[31m<b>"]


@pytest.mark.parametrize("zone", ["", " UTC", "Z", " +00:00", " GMT", " -0:00"])
def test_greenwich_has_many_names(zone):
    assert texts_of(np.array([1]), {"units": f"days since 2000-01-01 12:00:00{zone}"}) == ["2000-01-02 12:00"]
