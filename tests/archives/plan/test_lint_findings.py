"""What lint says about archives: every kind of drift, what is done about it, and which option takes it."""

import warnings

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives import from_attribute
from intarsia.archives.plan.lint_findings import refusals
from tests.archives.files import netcdf
from tests.archives.plan.test_cube import tile
from tests.archives.plan.test_reconcile import REFUSED, TAKEN, day, save

TOLD = {
    "latitudes reversed": {("order", "lat", "reversed")},
    "longitudes from -180 instead of 0": {("order", "lon", "in 2 pieces")},
    "axes transposed": {("axes", "v", "(lon, lat, time) instead of (time, lat, lon)")},
    "transposed, reversed, rolled": {
        ("axes", "v", "(lat, time, lon) instead of (time, lat, lon)"),
        ("order", "lat", "reversed"),
        ("order", "lon", "in 2 pieces"),
    },
    "an axis of length 1 more": {("axes", "v", "(time, height, lat, lon) instead of (time, lat, lon)")},
    "float64": {
        ("stored type", "v", "float64 instead of float32"),
        ("data type", "v", "float32"),  # of the first file: the array becomes wider
    },
    "packed as int16": {
        ("stored type", "v", "int16 instead of float32"),
        ("packing", "v", "* 0.5 + 280 instead of none"),
    },
    "other units": {
        ("units", "v", "'degC' instead of 'K'"),
        ("packing", "v", "* 1 + 273.15 instead of none"),
    },
    "times counted in other units": {
        ("time units", "time", "'hours since 1999-12-31' instead of 'days since 2000-01-01'")
    },
    "a calendar of the same days": {("calendar", "time", "'proleptic_gregorian' instead of 'standard'")},
    "times in no order": {("order", "time", "reversed")},
    "coordinates of another type": {("coordinate type", "lat", "float32 instead of float64")},
    "float noise in coordinates": {("noise", "lat", "up to 3.55e-15 apart")},
    "coordinates that differ a little": {("noise", "lat", "up to 0.001 apart")},
    "renamed": {("name", "v", "called 'tas'")},
    "a variable more": {
        ("left out", "w", "the dataset does not have it, but 1.nc does (add_variables=True adds it)")
    },
    "a time that is no dimension": {("dimension", "time", "there is no 'time'")},
}
TAKERS = {
    "another calendar": (),
    "other units": ("convert_units", "units"),
    "a variable less": ("rename", "missing"),
    "coordinates that differ a little": ("tolerance",),
    "another grid": ("concat_dim", "group"),
    "another size": ("concat_dim", "group"),
    "a name that is taken": ("rename",),
    "the same days": ("overlap",),
}
ENCODED = ("chunks", "codecs")


def linted(tmp_path, drift, **options):
    files = [save(day(0), tmp_path / "0", "netcdf4"), save(drift(day(2)), tmp_path / "1", "netcdf4")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parsers
        return intarsia.archives.lint(files, concat_dim="time", **options)


@pytest.mark.parametrize("kind", TAKEN)
def test_every_drift_that_is_taken_is_told(tmp_path, kind):
    drift, options = TAKEN[kind]
    report = linted(tmp_path, drift, **options)
    told = {
        (each.kind, each.variable, each.what.replace(f"file://{tmp_path}/", ""))
        for each in report.drifts
        if each.kind not in ENCODED
    }
    assert told == TOLD[kind]
    assert not report.failed
    assert all(each.done and each.files == 1 and each.first.startswith("file:") for each in report.drifts)
    assert all(each.what in str(report) for each in report.drifts)


@pytest.mark.parametrize("kind", REFUSED)
def test_every_drift_that_is_refused_names_the_option_that_takes_it(tmp_path, kind):
    drift, _ = REFUSED[kind]
    report = linted(tmp_path, drift, rename={"tas": "v"})
    (refused,) = (each for each in report.drifts if each.refused)
    assert refused.options == TAKERS[kind]
    assert refused.what == report.failed[0].reason
    assert refused.first == report.failed[0].url


def test_files_that_are_alike_do_not_drift(tmp_path):
    for first in (0, 2):
        save(day(first), tmp_path / str(first), "netcdf4")
    report = intarsia.archives.lint(tmp_path / "*.nc")
    assert report.drifts == ()
    assert [run.files for run in report.runs] == [2]
    assert report.snapshot_id is None


def test_changes_of_encoding_are_counted(tmp_path):
    for first in range(6):
        chunks = (1, 6, 8) if first < 2 else (1, 3, 8)
        netcdf(tmp_path / f"{first}.nc", first, chunks=chunks, level=4 if first < 4 else 7)
    report = intarsia.archives.lint(tmp_path / "*.nc", concat_dim="time")
    told = {each.kind: (each.what, each.files, each.first[-4:]) for each in report.drifts}
    assert told == {
        "chunks": ("1x3x8 instead of 1x6x8", 4, "2.nc"),
        "codecs": ("shuffle+zlib-7 instead of shuffle+zlib-4", 2, "4.nc"),
    }


def test_thousands_of_packings_are_one_line(tmp_path):
    for first in range(7):
        attrs = {"scale_factor": 0.5 + first}
        netcdf(tmp_path / f"{first}.nc", first, kind="i2", chunks=(1, 6, 8), attrs=attrs)
    (drift,) = intarsia.archives.lint(tmp_path / "*.nc", concat_dim="time").drifts
    assert (drift.kind, drift.files) == ("packing", 6)
    assert drift.what.endswith("* 3.5 + 0 instead of * 0.5 + 0; … and 3 more")


def test_holes_overlaps_copies_and_missing_variables_are_told(tmp_path):
    tile(tmp_path, "a", [0, 1], [0, 1], 1)
    tile(tmp_path, "b", [1, 2], [0, 1], 2)
    tile(tmp_path, "c", [4], [5], 3, name="w")
    options = {"concat_dim": ["y", "x"], "missing": "fill", "overlap": "last", "copy": "all"}
    report = intarsia.archives.lint(tmp_path / "*.h5", **options)
    told = {(each.kind, each.variable): each for each in report.drifts}
    assert told["hole", "v"].what == "no file has 6 of 12 places along y and x"
    assert told["hole", "w"].what == "no file has 11 of 12 places along y and x"
    assert told["missing variable", "v"].files == 1
    assert told["missing variable", "w"].files == 2
    assert told["overlap", "v"].done == "shown by overlap='last'"
    assert told["copy", "v"].what == "copy='all' was requested"


def test_units_that_are_ignored_are_told(tmp_path):
    report = linted(tmp_path, lambda ds: ds.assign(v=ds.v.assign_attrs(units="degC")), units="ignore")
    (drift,) = report.drifts
    assert (drift.what, drift.done) == ("'degC' instead of 'K'", "kept as they are (units='ignore')")


def test_files_are_held_against_the_dataset_that_is_there(tmp_path):
    first = save(day(0), tmp_path / "0", "netcdf4")
    repo = intarsia.ingest(first, "memory://", concat_dim="time").repository
    second = save(day(2).isel(lat=slice(None, None, -1)), tmp_path / "1", "netcdf4")
    report = intarsia.archives.lint(second, repo, concat_dim="time")
    assert [(each.kind, each.what) for each in report.drifts] == [("order", "reversed")]
    assert (
        intarsia.archives.lint([first, second], repo).summary == "1 added, 1 unchanged"
    )  # along its own dimension
    assert intarsia.open(repo, "v").shape[0] == 2


def test_stacked_variables_and_dimensions_from_attributes(tmp_path):
    for member in range(2):
        bands = {f"b{i}": (("x",), np.full(3, float(i))) for i in range(2 if member else 1)}
        xr.Dataset(bands, attrs={"realization": member}).to_netcdf(tmp_path / f"{member}.nc")
    report = intarsia.archives.lint(
        tmp_path / "*.nc", dims={"member": from_attribute("realization")}, missing="fill",
        stack={"b": ("band", ["b0", "b1"])},
    )  # fmt: skip
    assert [(each.kind, each.variable, each.files) for each in report.drifts] == [
        ("dimension", "member", 2),
        ("missing variable", "b1", 1),
    ]


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    save(day(0), tmp_path / "0", "netcdf4")
    (tmp_path / "1.nc").write_text("nonsense")
    (tmp_path / "2.nc").write_bytes(b"")
    report = intarsia.archives.lint(tmp_path / "*.nc", concat_dim="time")
    refused = [each.what for each in report.drifts if each.refused]
    assert ["a parser of VirtualiZarr may read it" in what for what in refused] == [True, False]
    for option in ("dry_run", "message"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument .{option}"):
            intarsia.archives.lint(tmp_path / "*.nc", **{option: True})


def test_refusals_of_one_sentence_are_told_once():
    refused = {f"f{i}": f"its time {i} overlaps that of f0 (overlap='first')" for i in range(1, 4)}
    refused |= {f"g{i}": f"'v' has {i} steps along 'time', but its coordinate has 1" for i in range(2, 4)}
    found = list(refusals(refused, ("overlap", "time")))
    assert [(each.files, each.options, each.first) for each in found] == [
        (3, ("overlap",), "f1"),
        (2, (), "g2"),
    ]
