"""Variables that begin later: left out and named, or added, also from known files; and many of them."""

import collections
import threading

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.errors import IngestError
from tests.archives.files import netcdf
from tests.archives.plan.test_reconcile import FORMATS, day, save


def opened(report):
    return xr.open_dataset(report.repository, engine="intarsia", decode_times=False)


def archive(folder, form="netcdf4"):
    """Two files of one variable, then two of two, then one of three."""
    parts = [day(2 * i) for i in range(5)]
    parts[2:] = [ds.assign(w=ds.v * 2) for ds in parts[2:]]
    parts[4] = parts[4].assign(u=ds_like(parts[4]))
    paths = [save(ds, folder / str(i), form) for i, ds in enumerate(parts)]
    return paths, xr.combine_by_coords(parts, join="outer", compat="no_conflicts", combine_attrs="override")


def ds_like(ds):
    return ds.v.astype("f8") - 1


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("form", "daily"), [*((form, False) for form in FORMATS), ("netcdf4", True), ("zarr3", True)]
)
def test_a_variable_that_begins_later_is_added_and_missing_before(tmp_path, form, daily):
    paths, expected = archive(tmp_path, form)
    repo = "memory://"
    for portion in paths if daily else [paths]:
        options = {"concat_dim": "time", "add_variables": True, "copy": "never"}
        report = intarsia.ingest(portion, repo, **options)
        repo = report.repository
    assert not report.left_out
    found = opened(report)
    for name in ("v", "w", "u"):
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype
        assert not intarsia.verify(intarsia.open(repo, name))


def test_without_the_option_it_is_left_out_and_the_option_named(tmp_path):
    paths, _ = archive(tmp_path)
    report = intarsia.ingest(paths, "memory://", concat_dim="time")
    assert report.left_out.keys() == {"w", "u"}
    assert "2.nc does (add_variables=True adds it)" in report.left_out["w"]


def test_files_that_are_known_are_parsed_again_for_what_they_lack(tmp_path):
    paths, expected = archive(tmp_path)
    options = {"concat_dim": "time", "copy": "never"}
    report = intarsia.ingest(paths[:4], "memory://", **options)
    before = intarsia.open(report.repository, "v").manifest
    report = intarsia.ingest(paths, report.repository, add_variables=True, **options)
    assert report.summary == "1 added, 2 extended, 2 unchanged"
    assert [file.status for file in report.files] == ["unchanged"] * 2 + ["extended"] * 2 + ["added"]
    found = opened(report)
    for name in ("v", "w", "u"):
        np.testing.assert_array_equal(found[name], expected[name])
        assert not intarsia.verify(intarsia.open(report.repository, name))
    assert intarsia.open(report.repository, "v").manifest.members == before.members
    again = intarsia.ingest(paths, report.repository, add_variables=True, **options)
    assert again.snapshot_id is None
    assert again.summary == "nothing to do: 5 unchanged"


def test_only_known_files_may_be_named(tmp_path):
    paths, expected = archive(tmp_path)
    report = intarsia.ingest(paths, "memory://", concat_dim="time", variables=["v"])
    assert not report.left_out
    report = intarsia.ingest(paths[2:], report.repository, concat_dim="time", add_variables=True)
    assert report.summary == "3 extended"
    np.testing.assert_array_equal(opened(report)["w"], expected["w"])
    np.testing.assert_array_equal(opened(report)["v"], expected["v"])


def test_what_was_added_is_replaced_and_extended_like_the_rest(tmp_path):
    for i in range(3):
        netcdf(tmp_path / f"{i}.nc", i, extra=("ice",))
    options = {"concat_dim": "time", "variables": ["sst"]}
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", **options)
    options = {"concat_dim": "time", "add_variables": True, "overlap": "last"}
    report = intarsia.ingest(tmp_path / "[01].nc", report.repository, **options)
    values = netcdf(tmp_path / "new.nc", 1, extra=("ice",), values=np.full((1, 6, 8), 7.0))
    report = intarsia.ingest(tmp_path / "new.nc", report.repository, **options)
    report = intarsia.ingest(tmp_path / "*.nc", report.repository, **options)
    assert report.summary == "1 extended, 3 unchanged"
    found = opened(report)
    np.testing.assert_array_equal(found.sst, found.ice)
    np.testing.assert_array_equal(found.sst[1], values[0])
    assert not np.isnan(found.ice.values).any()


def test_a_variable_of_other_axes_is_refused_also_from_known_files(tmp_path):
    netcdf(tmp_path / "0.nc", 0, extra=("ice",))
    netcdf(tmp_path / "1.nc", 1, extra=("ice",), attrs={"units": "m"})
    report = intarsia.ingest(
        tmp_path / "*.nc", "memory://", concat_dim="time", variables=["sst"], units="ignore"
    )
    with pytest.raises(IngestError, match=r"1\.nc: 'ice' has the units 'm'"):
        intarsia.ingest(tmp_path / "*.nc", report.repository, concat_dim="time", add_variables=True)


def test_what_a_variable_costs_does_not_depend_on_how_many_there_are(tmp_path):
    calls = [calls_of_ingest(tmp_path, count) for count in (1, 5, 10, 20)][1:]  # the first one imports
    assert calls[2] - calls[1] < 2.5 * (
        calls[1] - calls[0]
    )  # 2 if it is linear, 4 if all pairs are looked at


def calls_of_ingest(folder, count):
    """How many functions of Python are called to take a file of so many variables."""
    path = folder / f"{count}.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 2)
        file.createVariable("time", "f8", ("time",))[:] = [0, 1]
        for i in range(count):
            file.createVariable(f"v{i}", "f4", ("time",))[:] = i
    found = collections.Counter()

    def called(frame, event, arg):
        found[event] += 1

    threading.setprofile_all_threads(called)
    try:
        report = intarsia.ingest(path, "memory://", concat_dim="time")
        dataset = xr.open_dataset(report.repository, engine="intarsia")
    finally:
        threading.setprofile_all_threads(None)
    assert len(dataset) == count
    assert len(report.repository.config.manifest.splitting.to_dict()) == 3
    return found["call"]


def test_one_variable_may_be_named_without_a_list(tmp_path):
    netcdf(tmp_path / "0.nc", 0, extra=("ice", "wind"))
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", variables="sst", load="ice")
    with xr.open_dataset(report.repository, engine="intarsia") as dataset:
        assert set(dataset.data_vars) == {"sst", "ice"}
    group = zarr.open_group(report.repository.readonly_session("main").store, mode="r")
    assert isinstance(group["ice"], zarr.Array)
