"""Inputs that broke ingest once: taken, or refused in words that name the file; never a bare exception."""

import re

import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError


def write(path, values, coordinate, units="days since 2000-01-01", name="time", **more):
    """A file with a variable `v` along one dimension; more variables as (dims, values)."""
    ds = xr.Dataset({"v": (name, np.asarray(values, "f4"))}, {name: (name, coordinate, {"units": units})})
    for each, (dims, data) in more.items():
        ds[each] = (dims, data)
    ds.to_netcdf(path)
    return path


def opened(report):
    return xr.open_dataset(report.repository, engine="intarsia", decode_times=False).load()


def test_if_every_file_is_refused_nothing_happens(tmp_path):
    write(tmp_path / "a.nc", [1, 2], [5, 5])
    (tmp_path / "b.nc").write_bytes(b"nonsense")
    for options in ({}, {"dry_run": True}):
        report = intarsia.ingest(
            tmp_path / "*.nc", tmp_path / "r", concat_dim="time", errors="skip", **options
        )
        assert report.summary == "nothing added: 2 failed"
    (tmp_path / "a.nc").write_bytes(b"nonsense, too")
    report = intarsia.archives.lint(tmp_path / "*.nc")  # which looks for dimensions first
    for file in report.failed:
        assert re.search(
            r"none of HDF5, .*: it starts with b'nonsense' \(a parser of VirtualiZarr", file.reason
        )
    with pytest.raises(IngestError, match="2 of 2 files cannot be ingested") as caught:
        intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    assert "ingests the others" not in str(caught.value)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "units", ["months since 0000-01-01", "hour since 0000-01-01 00:00:00", "day as %Y%m%d"]
)
def test_times_that_nobody_can_decode_are_numbers(tmp_path, units):
    for i in range(2):
        write(tmp_path / f"{i}.nc", [i], [366.0 * i], units)
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    assert opened(report).time.values.tolist() == [0, 366]
    assert [run.files for run in report.runs] == [2]


def test_times_that_cannot_be_compared_are_refused_in_words(tmp_path):
    write(tmp_path / "0.nc", [0], [0.0], "months since 0000-01-01")
    write(tmp_path / "1.nc", [1], [7.0], "hour since 0000-01-01 00:00:00")
    with pytest.raises(IngestError, match=r"the coordinate 'time' has the units .* which cannot be compared"):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")


def test_times_that_are_missing_are_numbers_unless_others_mark_them_otherwise(tmp_path):
    for name, times in (("0.nc", [0.0, 1.0]), ("1.nc", [7.0, -999.0])):
        write(tmp_path / name, [1, 2], times)
    with netCDF4.Dataset(tmp_path / "1.nc", "a") as file:
        file["time"].missing_value = -999.0
    report = intarsia.ingest(tmp_path / "1.nc", "memory://", concat_dim="time")
    assert opened(report).v.values.tolist() == [1, 2]  # an axis that falls
    with pytest.raises(IngestError, match=r"holds them all exactly, or some are missing \(coordinate="):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    report = intarsia.ingest(
        tmp_path / "*.nc",
        "memory://",
        concat_dim="time",
        coordinate=lambda url: [2 * int(url[-4]), 2 * int(url[-4]) + 1],
    )
    assert opened(report).v.values.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("daily", [False, True])
def test_one_file_whose_times_cannot_be_compared_does_not_stop_the_others(tmp_path, daily):
    units = [
        "days since 2000-01-01",
        "hours since 2000-01-01",
        "months since 0000-01-01",
        "nonsense since today",
    ]
    for i, each in enumerate(units):
        write(tmp_path / f"{i}.nc", [i], [48.0 if i else 1.0], each)
    options = {"concat_dim": "time", "errors": "skip"}
    if daily:
        repo, reports = "memory://", []
        for i in range(4):
            reports.append(intarsia.ingest(tmp_path / f"{i}.nc", repo, **options))
            repo = reports[-1].repository
        files = [file for report in reports for file in report.files]
    else:
        report = intarsia.ingest(tmp_path / "*.nc", "memory://", **options)
        files, repo = report.files, report.repository
    assert [file.status for file in files] == ["added", "added", "failed", "failed"]
    assert "which cannot be compared" in files[2].reason
    assert opened(intarsia.ingest(tmp_path / "0.nc", repo, **options)).time.values.tolist() == [1, 2]


def test_texts_and_numbers_do_not_make_an_axis(tmp_path):
    write(tmp_path / "0.nc", [0], [0.0], "m", name="station")
    xr.Dataset({"v": ("station", [1.0])}, {"station": np.array(["Bonn"])}).to_netcdf(tmp_path / "1.nc")
    report = intarsia.ingest(
        tmp_path / "*.nc", "memory://", concat_dim="station", errors="skip", units="ignore"
    )
    assert [file.status for file in report.files] == ["added", "failed"]
    assert "station" in report.failed[0].reason


def test_coordinates_beside_the_axis_that_cannot_be_compared_are_left_out(tmp_path):
    def write(i, units):
        coords = {"x": [i], "start": ("x", [1.0 * i], {"units": units})}
        xr.Dataset({"v": ("x", [1.0 * i])}, coords).to_netcdf(tmp_path / f"{i}.nc")

    write(0, "days since 2000-01-01")
    write(1, "months since 0000-01-01")
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="x")
    assert "cannot be compared" in report.left_out["start"]
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="x")
    report = intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="x")
    assert "cannot be compared" in report.left_out["start"]
    found = opened(report)
    assert found.v.values.tolist() == [0, 1]
    assert found.start.values[0] == 0


def test_coordinates_in_other_units_are_refused_and_the_others_taken(tmp_path):
    for i, units in enumerate(("m", "m", "feet")):
        write(tmp_path / f"{i}.nc", [i], [float(i)], units, name="depth")
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="depth", errors="skip")
    assert [file.status for file in report.files] == ["added", "added", "failed"]
    assert "its 'depth' has the units 'feet', but" in report.failed[0].reason


def test_a_file_without_the_coordinate_of_the_dataset_is_refused_and_the_others_taken(tmp_path):
    write(tmp_path / "0.nc", [0], [0])
    write(tmp_path / "2.nc", [2], [2])
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    with netCDF4.Dataset(tmp_path / "1.nc", "w") as file:
        file.createDimension("time", 1)
        file.createVariable("v", "f4", ("time",))[:] = 1
    report = intarsia.ingest(tmp_path / "*.nc", report.repository, concat_dim="time", errors="skip")
    assert [file.status for file in report.files] == ["unchanged", "failed", "added"]
    assert "it has no coordinate 'time', but the dataset does (dims={'time': …} gives it one)" in str(report)


def test_what_only_some_files_say_of_a_step_is_missing_elsewhere(tmp_path):
    write(tmp_path / "0.nc", [0], [0], time_flag=("time", np.array([7], "i4")))
    write(tmp_path / "1.nc", [1], [1])
    write(tmp_path / "2.nc", [2], [2], time_flag=("time", np.array([9], "i4")))
    options = {"concat_dim": "time", "load": ["time_flag"]}
    whole = intarsia.ingest(tmp_path / "*.nc", "memory://", **options)
    np.testing.assert_array_equal(opened(whole).time_flag, [7, np.nan, 9])
    for order in ((0, 1, 2), (1, 2, 0)):
        repo = "memory://"
        for i in order:
            report = intarsia.ingest(tmp_path / f"{i}.nc", repo, **options)
            repo = report.repository
        np.testing.assert_array_equal(opened(report).time_flag, [7, np.nan, 9])


def test_a_scalar_that_changes_from_file_to_file_becomes_a_coordinate(tmp_path):
    scales = [1.5, 1.5, 2.5, 1.5]
    for i, scale in enumerate(scales):
        write(tmp_path / f"{i}.nc", [0, 1], [2 * i, 2 * i + 1], calibration=((), scale), orbit=((), 7))
    paths = sorted(tmp_path.glob("*.nc"))
    whole = opened(intarsia.ingest(paths, "memory://", concat_dim="time"))
    assert whole.calibration.values.tolist() == np.repeat(scales, 2).tolist()
    assert whole.orbit.values == 7
    for order in ((0, 1, 2, 3), (2, 3, 0, 1)):
        repo = "memory://"
        for i in order:
            report = intarsia.ingest(paths[i], repo, concat_dim="time")
            assert not report.left_out
            repo = report.repository
        xr.testing.assert_equal(opened(report), whole)


def test_what_cannot_become_part_of_a_dataset_is_refused(tmp_path):
    first = write(tmp_path / "0.nc", [1], [0], w=("time", [5.0]))
    second = write(tmp_path / "1.nc", [2], [1], w=("time", [6.0]))
    repo = intarsia.ingest(first, "memory://", concat_dim="time", load="w").repository
    for options, words in (
        ({"rename": {"v": "b/c"}, "group": "g"}, "a variable named 'b/c' cannot be part of a dataset"),
        ({"group": "w"}, "'w' is an array: a dataset needs a group of its own"),
        ({"group": "v"}, "'v' is itself a logical array"),
        ({"add_variables": True}, "'w' is a plain array of the dataset: it cannot become a logical"),
        ({"dtype": {"v": "bool"}, "group": "g"}, "values of type float32 cannot become bool"),
    ):
        with pytest.raises(IngestError, match=words):
            intarsia.ingest(second, repo, concat_dim="time", **options)
    with pytest.raises(IngestError, match="pass the repository to write to"):
        intarsia.ingest(second, concat_dim="time")
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_coordinates_that_cannot_be_joined_are_left_out_and_axes_are_refused(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(2)]
    for day, name in enumerate(("a", 5)):
        xr.Dataset({"v": ("time", [day])}, {"time": [day], "name": ("time", [name])}).to_netcdf(paths[day])
    report = intarsia.ingest(paths, "memory://", concat_dim="time")
    assert report.left_out["name"].endswith(
        "has the types 'int64' and 'text': text cannot be mixed with numbers"
    )
    assert opened(report).v.values.tolist() == [0, 1]
    xr.Dataset({"v": ("time", np.ones(2, "f4"))}).to_netcdf(tmp_path / "2.nc")
    report = intarsia.ingest([tmp_path / "2.nc", paths[1]], "memory://", concat_dim="time")
    assert report.left_out["time"] == "not every file has it"
    assert opened(report).v.values.tolist() == [1, 1, 1]
    xr.Dataset({"v": ("time", [1.0])}, {"time": ["x"]}).to_netcdf(tmp_path / "3.nc")
    with pytest.raises(IngestError, match="the coordinate 'time' has the types"):
        intarsia.ingest([paths[0], tmp_path / "3.nc"], "memory://", concat_dim="time")
