"""Files whose values have other types: numbers go together as in xarray, other kinds are refused by name."""

import itertools

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["u1", "i2", "i4"], marks=pytest.mark.torture),
        pytest.param(["i2", "f4", "f8"], marks=pytest.mark.torture),
        ["i4", "f4", "u1"],
        ["f8", "i8"],
    ],
)
def test_numbers_of_any_type_go_together_in_any_order_as_in_xarray(tmp_path, kinds):
    paths = [tmp_path / f"{i}.nc" for i in range(len(kinds))]
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        ds = xr.Dataset({"x": (("time", "y"), np.full((1, 2), 7 * i, kind))}, {"time": [2 * i]})
        ds.to_netcdf(path, encoding={"x": {"_FillValue": None}})
    expected = xr.concat([xr.open_dataset(path) for path in paths], "time")
    for order in itertools.permutations(paths):
        repo = "memory://"
        for path in order:
            report = intarsia.ingest(path, repo, concat_dim="time", copy="never")
            repo = report.repository
        whole = intarsia.ingest(order, "memory://", concat_dim="time", copy="never")
        for each in (report, whole):
            found = xr.open_dataset(each.repository, engine="intarsia").load()
            xr.testing.assert_equal(found, expected)
            assert found.x.dtype == expected.x.dtype
            holes = intarsia.open(each.repository, "x").fill_value
            assert holes == 0 if found.x.dtype.kind in "iu" else np.isnan(holes)


@pytest.mark.parametrize("other", [["a"], [True]])
def test_a_file_whose_values_are_of_another_kind_is_refused_alone(tmp_path, other):
    for i, values in enumerate(([1.5], other, [2.5])):
        xr.Dataset({"x": ("time", values)}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    one = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time", errors="skip")
    assert one.summary == "2 added, 1 failed"
    with pytest.raises(
        IngestError, match=r"1\.nc: 'x' has values of type (text|bool), but the dataset has float64"
    ):
        intarsia.ingest(tmp_path / "*.nc", one.repository, concat_dim="time")
    alone = intarsia.ingest(tmp_path / "1.nc", "memory://", concat_dim="time")
    with pytest.raises(IngestError, match=r"2\.nc: 'x' has values of type float64, .*\(rename="):
        intarsia.ingest(tmp_path / "2.nc", alone.repository, concat_dim="time")


def test_a_type_that_is_asked_for_is_what_an_array_becomes_or_refused(tmp_path):
    for i, kind in enumerate(("f4", "f8")):
        xr.Dataset({"x": ("time", np.array([0.1], kind))}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    with pytest.raises(IngestError, match="'x' is float32 in the dataset and cannot become int16"):
        intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time", dtype={"x": "i2"})
    kept = intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time", dtype={"x": "f4"})
    assert intarsia.open(kept.repository, "x")[...].tolist() == [np.float32(0.1)] * 2
    for kind in ("i2", "i8"):
        xr.Dataset({"x": ("time", np.array([2], kind))}, {"time": [2]}).to_netcdf(tmp_path / "2.nc")
        whole = intarsia.ingest(tmp_path / "2.nc", "memory://", concat_dim="time")
        wider = intarsia.ingest(tmp_path / "1.nc", whole.repository, concat_dim="time", dtype={"x": "f8"})
        assert intarsia.open(wider.repository, "x")[...].tolist() == [0.1, 2]


def test_an_array_with_nulls_does_not_become_wider(tmp_path):
    for i, kind in enumerate(("f4", "f8")):
        xr.Dataset({"x": ("time", np.array([0.1], kind))}, {"time": [i]}).to_netcdf(tmp_path / f"{i}.nc")
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", nulls=True)
    with pytest.raises(IngestError, match=r"float32 of the dataset cannot hold without loss \(dtype="):
        intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time")
