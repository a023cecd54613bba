"""Every option that a refusal or a left-out variable suggests is tried, and gives what it promises."""

import os
import re
import warnings

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives import from_name, ingestion
from intarsia.errors import IngestError, IntarsiaError, ReadError
from tests.archives.plan.test_reconcile import coordinate, day, in_celsius, save
from tests.archives.test_permissions import references
from tests.suggestions import follow

OPTION = re.compile(r"\b([a-z_]+)=('[^']*'|True|[\d.]+(?:e-?\d+)?|\{[^}]*\}|\[[^\]]*\])")


def suggested(text):
    """The options in a message, as arguments; what the caller has to fill in is `...`."""
    return {name: eval(value.replace("…", "...")) for name, value in OPTION.findall(text)}


def opened(report):
    return xr.open_dataset(report.repository, engine="intarsia", decode_times=False).load()


@pytest.fixture
def two(tmp_path):
    """Makes two files, and returns what `lint` says about the second, and a function that ingests both."""

    def make(drift, first=None, **options):
        first = day(0) if first is None else first
        files = [save(first, tmp_path / "0", "netcdf4"), save(drift(day(2)), tmp_path / "1", "netcdf4")]
        options = {"concat_dim": "time"} | options

        def ingest(**more):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of parsers
                return intarsia.ingest(files, "memory://", **options | more)

        report = intarsia.archives.lint(files, **options)
        (failed,) = report.failed or [None]
        if failed is not None:
            with pytest.raises(IngestError, match=r"errors='skip' ingests the others"):
                ingest()
            assert opened(ingest(errors="skip")).sizes["time"] == 2
        return failed.reason if failed else report.left_out, ingest

    return make


def both(ds):
    return xr.concat([day(0), ds], "time").v.values


def test_units(two):
    reason, ingest = two(in_celsius)
    options = suggested(reason)
    assert options == {"convert_units": True, "units": "ignore"}
    np.testing.assert_allclose(opened(ingest(convert_units=True)).v, both(day(2)), rtol=3e-7)
    np.testing.assert_array_equal(opened(ingest(units="ignore")).v, both(in_celsius(day(2))))


def test_units_that_cannot_be_converted(two):
    reason, ingest = two(lambda ds: ds.assign(v=ds.v.assign_attrs(units="m")))
    assert suggested(reason) == {"units": "ignore"}
    np.testing.assert_array_equal(opened(ingest(units="ignore")).v, both(day(2)))


def test_units_of_coordinates(two):
    km = {"units": "km"}
    first = day(0).assign_coords(lat=day(0).lat.assign_attrs(km))
    reason, ingest = two(
        lambda ds: ds.assign_coords(lat=("lat", ds.lat.values * 1000, {"units": "m"})), first=first
    )
    assert suggested(reason) == {"convert_units": True}
    found = opened(ingest(convert_units=True))
    assert found.lat.values.tolist() == first.lat.values.tolist()
    np.testing.assert_array_equal(found.v, both(day(2)))
    other = two(lambda ds: ds.assign_coords(lat=("lat", ds.lat.values * 2, {"units": "K"})), first=first)
    assert suggested(other[0]) == {}
    assert "concat_dim" not in other[0]


@pytest.mark.parametrize("apart", [1e-3, 1.0049e-3, 9.996e-3, 0.123449])
def test_tolerance(two, apart):
    reason, ingest = two(lambda ds: coordinate(ds, "lat", ds.lat.values + [0, 0, apart, 0]))
    options = suggested(reason)
    assert options.keys() == {"tolerance"}
    found = opened(ingest(**options))
    assert found.lat.values.tolist() == day(0).lat.values.tolist()
    np.testing.assert_array_equal(found.v, both(day(2)))


def test_a_variable_under_another_name(two):
    reason, ingest = two(lambda ds: ds.rename(v="tas"))
    assert "rename= finds it under another name" in reason
    assert suggested(reason) == {"missing": "fill"}
    np.testing.assert_array_equal(opened(ingest(rename={"tas": "v"})).v, both(day(2)))
    found = opened(ingest(missing="fill"))
    assert np.isnan(found.v.values[2:]).all()
    np.testing.assert_array_equal(found.v[:2], day(0).v)


def test_several_variables_under_other_names(two):
    first = day(0).assign(p=day(0).v.assign_attrs(units="hPa"))
    reason, ingest = two(
        lambda ds: ds.rename(v="tas").assign(slp=ds.v.assign_attrs(units="hPa")), first=first
    )
    assert "it has no variable 'p', 'v'" in reason
    found = opened(ingest(rename={"tas": "v", "slp": "p"}))
    np.testing.assert_array_equal(found.v, both(day(2)))
    np.testing.assert_array_equal(found.p, both(day(2)))


def test_a_variable_that_is_not_there(two):
    reason, ingest = two(lambda ds: ds, first=day(0).assign(w=day(0).v.isel(lat=0, drop=True)))
    assert suggested(reason) == {"missing": "fill"}
    assert np.isnan(opened(ingest(missing="fill")).w.values[2:]).all()


def test_a_new_variable(two):
    left_out, ingest = two(lambda ds: ds.assign(w=ds.v * 2))
    assert suggested(left_out["w"]) == {"add_variables": True}
    np.testing.assert_array_equal(opened(ingest(add_variables=True)).w[2:], day(2).v * 2)


@pytest.mark.parametrize("grid", [[-15.0, 5, 25, 45], [50.0, 60, 70]])
def test_another_grid(two, grid, tmp_path):
    reason, ingest = two(lambda ds: coordinate(ds.isel(lat=slice(len(grid))), "lat", grid))
    assert "name 'lat' in concat_dim=" in reason
    found = opened(ingest(concat_dim=["time", "lat"]))
    np.testing.assert_array_equal(found.v.sel(lat=grid)[2:], day(2).v[:, : len(grid)])
    assert "group= puts files on another grid beside the others" in reason
    both_grids = ingest(errors="skip").repository
    report = intarsia.ingest(tmp_path / "1.nc", both_grids, concat_dim="time", group="other")
    np.testing.assert_array_equal(intarsia.open(report.repository, "other/v")[...], day(2).v[:, : len(grid)])
    np.testing.assert_array_equal(intarsia.open(report.repository, "v")[...], day(0).v)


def test_a_grid_between_the_points_of_another(tmp_path):
    files = []
    for number, step in enumerate((1.0, 0.5)):
        axes = {dim: np.arange(0, 66, step) for dim in ("y", "x")} | {"t": [number]}
        values = np.full((1, len(axes["y"]), len(axes["x"])), step)
        xr.Dataset({"v": (("t", "y", "x"), values)}, axes).to_netcdf(tmp_path / f"{number}.nc")
        files.append(tmp_path / f"{number}.nc")
    for first in ([], files[:1]):
        repo = (
            intarsia.ingest(first, tmp_path / "r", concat_dim=["t", "y", "x"]).repository
            if first
            else "memory://"
        )
        with pytest.raises(IngestError, match=r"between its 'y' and 'x', so one array .* its own \(group=\)"):
            intarsia.ingest(files[len(first) :], repo, concat_dim=["t", "y", "x"])
    report = intarsia.ingest(files[1:], repo, concat_dim="t", group="fine")
    assert intarsia.open(report.repository, "fine/v").shape == (1, 132, 132)


def test_values_that_no_type_holds_together(two):
    reason, ingest = two(lambda ds: ds.assign(v=ds.v > 280))
    assert "preprocess=" in reason
    assert suggested(reason) == {"missing": "fill"}

    def renamed(ds):
        return ds.rename(v="is_warm") if ds.v.dtype != "f4" else ds

    found = opened(ingest(preprocess=renamed, missing="fill"))
    np.testing.assert_array_equal(found.v[:2], day(0).v)
    np.testing.assert_array_equal(found.is_warm[2:], day(2).v > 280)


def test_values_that_the_declared_type_cannot_hold(two):
    reason, ingest = two(lambda ds: ds.astype("f8") * np.pi, schema=day(0))
    options = suggested(reason)
    assert options == {"dtype": {"v": "float32"}}
    found = opened(ingest(**options))
    np.testing.assert_array_equal(found.v[2:], (day(2).v.astype("f8") * np.pi).astype("f4"))


@pytest.mark.parametrize("rule", ["no_conflicts", "identical"])
def test_attributes_that_differ(two, rule):
    reason, ingest = two(
        lambda ds: ds.assign_attrs(title="b"), day(0).assign_attrs(title="a"), combine_attrs=rule
    )
    options = suggested(reason)
    assert options == {"combine_attrs": "drop_conflicts"}
    assert "title" not in opened(ingest(**options)).attrs


def test_the_same_days(two):
    reason, ingest = two(lambda ds: coordinate(ds, "time", [0, 1]))
    assert suggested(reason) == {"overlap": "first"}
    for policy, expected in (("first", day(0)), ("last", day(2))):
        np.testing.assert_array_equal(opened(ingest(overlap=policy)).v, expected.v)
    assert opened(ingest(overlap="newest")).sizes["time"] == 2


def test_order_by_another_variable(tmp_path):
    for run in (3, 1):
        ds = xr.Dataset({"v": (("time", "x"), [[1.0 * run, 2]]), "run": ("time", [run])}, {"time": [0]})
        ds.to_netcdf(tmp_path / f"{run}.nc")
    with pytest.raises(IngestError, match="order_by= names a variable to decide instead"):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time", order_by="run")
    assert intarsia.open(report.repository, "v")[:, 0].tolist() == [1, 3]


def test_a_coordinate_that_some_files_lack(tmp_path):
    files = [save(day(0).isel(time=[0]), tmp_path / "d0", "netcdf4")]
    files.append(save(day(5).isel(time=[0]).drop_vars("time"), tmp_path / "d5", "netcdf4"))
    repo = intarsia.ingest(files[0], tmp_path / "r", concat_dim="time").repository
    with pytest.raises(IngestError) as error:
        intarsia.ingest(files, repo, concat_dim="time")
    assert suggested(str(error.value))["dims"] == {"time": ...}
    dims = {"time": from_name(r"d(\d+)")}
    report = intarsia.ingest(files, "memory://", concat_dim="time", dims=dims)
    assert opened(report).time.values.tolist() == [0, 5]


def test_a_file_that_changed(tmp_path):
    path = save(day(0), tmp_path / "0", "netcdf4")
    repo = intarsia.ingest(path, "memory://", concat_dim="time").repository
    save(day(0) + 1, tmp_path / "0", "netcdf4")
    os.utime(path, (2**32, 2**32))
    with pytest.raises(ReadError, match=r"changed since it was ingested: .* again with replace=True"):
        intarsia.open(repo, "v")[...]
    os.utime(path, (1, 1))
    with pytest.raises(IngestError) as error:
        intarsia.ingest(path, repo, concat_dim="time")
    options = suggested(str(error.value))
    assert options == {"replace": True}
    report = intarsia.ingest(path, repo, concat_dim="time", **options)
    np.testing.assert_array_equal(opened(report).v, day(0).v + 1)


def test_files_that_moved(tmp_path):
    (tmp_path / "old").mkdir()
    save(day(0), tmp_path / "old/0", "netcdf4")
    repo = intarsia.ingest(tmp_path / "old/0.nc", tmp_path / "r", concat_dim="time").repository
    os.rename(tmp_path / "old", tmp_path / "new")
    with pytest.raises(IngestError) as error:
        intarsia.ingest(tmp_path / "new/0.nc", repo, concat_dim="time")
    assert "if the file was only moved, intarsia.archives.relocate updates" in str(error.value)
    moved = intarsia.archives.relocate(repo, {tmp_path / "old": tmp_path / "new"})
    assert intarsia.ingest(tmp_path / "new/0.nc", moved.repository, concat_dim="time").summary.endswith(
        "1 unchanged"
    )
    np.testing.assert_array_equal(intarsia.open(moved.repository, "v")[...], day(0).v)


def test_groups(tmp_path):
    for i in range(2):
        path = tmp_path / f"{i}.nc"
        xr.Dataset(attrs={"title": "top"}).to_netcdf(path)
        day(2 * i).to_netcdf(path, mode="a", group="PRODUCT")
    files = sorted(tmp_path.glob("*.nc"))
    with pytest.raises(IngestError) as error:
        intarsia.ingest(files, "memory://", concat_dim="time")
    listed = re.findall(r"source_group='([^']*)'", str(error.value).split("\n")[1])
    assert "'PRODUCT' (source_group= names one to ingest" in str(error.value)
    assert listed == ["*"]
    report = intarsia.ingest(files, "memory://", concat_dim="time", source_group="PRODUCT")
    np.testing.assert_array_equal(intarsia.open(report.repository, "v")[...], both(day(2)))
    report = intarsia.ingest(files, "memory://", concat_dim="time", source_group="*")
    np.testing.assert_array_equal(intarsia.open(report.repository, "PRODUCT/v")[...], both(day(2)))


def test_dimensions_that_nobody_named(tmp_path):
    path = save(day(0), tmp_path / "0", "netcdf4")
    with pytest.raises(IngestError, match="concat_dim= names the dimension"):
        intarsia.ingest(path, "memory://", combine="by_coords")
    assert intarsia.ingest(path, "memory://", concat_dim="time").summary == "1 added"


def test_a_file_that_refers_to_another(tmp_path):
    (tmp_path / "archive").mkdir()
    (tmp_path / "other").write_bytes(bytes(64))
    path = references(tmp_path / "archive/refs.json", f"file://{tmp_path}/other")
    with pytest.raises(IngestError) as error:
        intarsia.ingest(path, tmp_path / "r", concat_dim="n")
    allowed = suggested(str(error.value))
    assert allowed == {"authorize": [f"file://{tmp_path}/other"]}
    report = intarsia.ingest(path, tmp_path / "r", concat_dim="n", **allowed)
    assert not intarsia.open(report.repository, "x")[...].any()
    with pytest.raises(IngestError, match="storage_options= holds the options for all files"):
        intarsia.ingest(path, "memory://", concat_dim="n", authorize={"file://": {}})
    reopened = intarsia.open_repository(tmp_path / "r")
    with pytest.raises(ReadError) as error:
        intarsia.open(reopened, "x")[...]
    repo = follow(
        error, re.search(r"intarsia\.archives\.authorize\(.*\)", str(error.value)).group(), repo=reopened
    )
    trusted = intarsia.open_repository(tmp_path / "r", **suggested(str(error.value)))
    for each in (repo, trusted, intarsia.open_repository(tmp_path / "r", authorize=True)):
        assert not intarsia.open(each, "x")[...].any()


def test_chunks_that_no_container_covers(tmp_path, monkeypatch):
    path = save(day(0), tmp_path / "0", "netcdf4")
    real = ingestion.with_containers
    monkeypatch.setattr(
        ingestion,
        "with_containers",
        lambda repo, _, __, *others: real(repo, [f"file://{tmp_path}/x/y"], (), *others),
    )
    with pytest.raises(IngestError) as error:
        intarsia.ingest(path, "memory://", concat_dim="time")
    options = suggested(str(error.value))
    assert options == {"copy": "all"}
    np.testing.assert_array_equal(
        opened(intarsia.ingest(path, "memory://", concat_dim="time", **options)).v, day(0).v
    )


def test_steps_whose_coordinate_is_missing(tmp_path):
    for number, marker in enumerate((-1, -2)):
        ds = day(0).isel(time=[0])
        time = ("time", np.array([marker if number else 3], "i4"), {"units": f"days since 200{number}-01-01"})
        ds.assign_coords(time=time).to_netcdf(
            tmp_path / f"{number}.nc", encoding={"time": {"_FillValue": np.int32(marker)}}
        )
    with pytest.raises(IngestError, match=r"coordinate= says where files belong"):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    options = {"concat_dim": "time", "coordinate": lambda url: int(url[-4])}
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", **options)
    assert opened(report).time.values.tolist() == [0, 1]


def test_dimensions_that_are_named_twice_or_not_at_all(tmp_path):
    for first in (0, 2):
        save(day(first), tmp_path / f"{first}", "netcdf4")
    with pytest.raises(IngestError) as error:
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim=["time", "time"])
    options = {"combine": "by_coords"}
    assert suggested(str(error.value).partition(";")[2]) == options
    np.testing.assert_array_equal(
        opened(intarsia.ingest(tmp_path / "*.nc", "memory://", **options)).v, both(day(2))
    )
    with pytest.raises(IngestError, match=r"dims=\{'name': …\} says which"):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim=["time", "run"], order_by="time")
    with pytest.raises(IngestError, match=r"source_group='\*' needs concat_dim="):
        intarsia.ingest(tmp_path / "*.nc", "memory://", source_group="*", combine="by_coords")


def test_repeated_steps(tmp_path):
    save(coordinate(day(0), "time", [1, 1]), tmp_path / "0", "netcdf4")
    with pytest.raises(IngestError) as error:
        intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    options = suggested(str(error.value))
    assert options == {"combine": "nested"}
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", **options)
    np.testing.assert_array_equal(opened(report).v, day(0).v)


def test_dimensions_without_coordinates(tmp_path):
    for number in range(4):
        xr.Dataset({"v": (("y", "x"), [[number]])}).to_netcdf(tmp_path / f"{number}.nc")
    files, options = [tmp_path / f"{number}.nc" for number in range(4)], {"concat_dim": ["y", "x"]}
    with pytest.raises(IngestError, match=r"dims=\{'y': …\} gives it one; or pass nested lists"):
        intarsia.ingest(files, "memory://", **options)
    report = intarsia.ingest([files[:2], files[2:]], "memory://", **options)
    assert intarsia.open(report.repository, "v")[...].tolist() == [[0, 1], [2, 3]]
    dims = {"y": lambda file: int(file.url[-4]) // 2, "x": lambda file: int(file.url[-4]) % 2}
    report = intarsia.ingest(files, "memory://", dims=dims, **options)
    assert intarsia.open(report.repository, "v")[...].tolist() == [[0, 1], [2, 3]]


def test_a_group_that_is_an_array(tmp_path):
    path = save(day(0), tmp_path / "0", "netcdf4")
    repo = intarsia.ingest(path, "memory://", concat_dim="time").repository
    with pytest.raises(IngestError) as error:
        intarsia.ingest(path, repo, concat_dim="time", group="v")
    options = suggested(str(error.value))
    assert options == {"group": "name"}
    report = intarsia.ingest(path, repo, concat_dim="time", **options)
    np.testing.assert_array_equal(intarsia.open(report.repository, "name/v")[...], day(0).v)


def test_an_archive_that_cannot_be_cached(tmp_path):
    files = str(save(day(0), tmp_path / "0", "netcdf4"))
    options = {"preprocess": lambda ds: ds}
    with pytest.raises(IngestError, match=r"intarsia\.ingest\(files, 'repository', …\)"):
        xr.open_dataset(files, engine="intarsia", concat_dim="time", ingest_options=options)
    report = intarsia.ingest(files, tmp_path / "repository", concat_dim="time", **options)
    np.testing.assert_array_equal(opened(report).v, day(0).v)


def test_a_folder_that_nothing_refers_to(tmp_path):
    path = save(day(0), tmp_path / "0", "netcdf4")
    repo = intarsia.ingest(path, "memory://", concat_dim="time").repository
    with pytest.raises(IntarsiaError) as error:
        intarsia.archives.relocate(repo, {"file:///nowhere": "file:///new"})
    assert str(path) in str(follow(error, "intarsia.archives.sources(repo)", repo=repo))


def test_the_report_of_an_ingest_says_what_differed(two):
    def drift(ds):
        return in_celsius(ds).rename(v="tas").isel(lat=slice(None, None, -1))

    _, ingest = two(drift, rename={"tas": "v"}, convert_units=True)
    report = ingest()
    assert {run.variable for run in report.runs} == {"v"}
    found = {(drift.kind, drift.variable, drift.what) for drift in report.drifts}
    assert found == {
        ("packing", "v", "* 1 + 273.15 instead of none"),
        ("name", "v", "called 'tas'"),
        ("units", "v", "'degC' instead of 'K'"),
        ("order", "lat", "reversed"),
    }


def test_the_report_of_many_batches_counts_every_file_once(tmp_path):
    files = []
    for first in range(0, 12, 2):
        ds = day(first) if first < 6 else in_celsius(day(first))
        files.append(save(ds, tmp_path / f"{first:02d}", "netcdf4"))
    whole = intarsia.ingest(files, "memory://", concat_dim="time", convert_units=True)
    report = intarsia.ingest(files, "memory://", concat_dim="time", convert_units=True, batch=2)
    assert report.drifts == whole.drifts
    assert {(drift.kind, drift.files) for drift in report.drifts} == {("units", 3), ("packing", 3)}
