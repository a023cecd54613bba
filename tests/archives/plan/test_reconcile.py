"""Kinds of drift in archives, in several formats: taken and equal to what was meant, or refused in words."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives.plan.reconcile import align_axes, difference, indices_in_expected, values_are_close
from intarsia.errors import IngestError
from tests.archives.test_parse import kerchunk_of
from tests.grids import spread

FORMATS = {
    "netcdf4": "NetCDF 4", "netcdf3": "NetCDF 3", "zarr2": "Zarr 2", "zarr3": "Zarr 3", "kerchunk": "kerchunk"
}  # fmt: skip
PAGE = Path(__file__).parents[3] / "docs/how-to/one-cube-from-many-files.md"


def day(first, steps=2):
    """What every file means: a field on a grid, on some days."""
    values = np.random.default_rng(first).normal(280, 9, (steps, 4, 6)).astype("f4")
    return xr.Dataset(
        {"v": (("time", "lat", "lon"), values, {"units": "K"})},
        {
            "time": ("time", np.arange(first, first + steps), {"units": "days since 2000-01-01"}),
            "lat": ("lat", np.array([-30.0, -10.0, 10.0, 30.0]), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(6) * 60.0, {"units": "degrees_east"}),
        },
    )


def save(ds, path, form):
    """The file as a form has it; returns what to ingest."""
    chunks = {name: tuple(min(n, 3) for n in ds[name].shape) for name in ds.data_vars if ds[name].ndim}
    if form in ("netcdf4", "kerchunk"):
        path = path.with_suffix(".nc")
        ds.to_netcdf(path, encoding={name: {"chunksizes": c, "zlib": True} for name, c in chunks.items()})
    elif form == "netcdf3":
        path = path.with_suffix(".nc3")
        ds.to_netcdf(path, format="NETCDF3_64BIT", engine="netcdf4")
    else:
        path = path.with_suffix(".zarr")
        encoding = {name: {"chunks": c} for name, c in chunks.items()}
        ds.to_zarr(path, zarr_format=int(form[-1]), consolidated=False, encoding=encoding)
    if form != "kerchunk":
        return path
    path.with_suffix(".json").write_text(json.dumps(kerchunk_of(path)))
    return path.with_suffix(".json")


def rolled(ds):
    return ds.assign_coords(lon=ds.lon.copy(data=(ds.lon + 180) % 360 - 180)).sortby("lon")


def coordinate(ds, name, values):
    return ds.assign_coords({name: ds[name].copy(data=values)})


def packed(ds):
    numbers = np.rint((ds.v.values - 280) / 0.5).astype("i2")
    attrs = {"units": "K", "scale_factor": np.float32(0.5), "add_offset": np.float32(280)}
    return ds.assign(v=(ds.v.dims, numbers, attrs))


def in_celsius(ds):
    return ds.assign(v=(ds.v - np.float32(273.15)).assign_attrs(units="degC"))


def in_hours(ds):
    return ds.assign_coords(time=("time", (ds.time.values + 1) * 24, {"units": "hours since 1999-12-31"}))


def in_calendar(ds, calendar):
    return ds.assign_coords(time=ds.time.assign_attrs(calendar=calendar))


TAKEN = {
    "latitudes reversed": (lambda ds: ds.isel(lat=slice(None, None, -1)), {}),
    "longitudes from -180 instead of 0": (rolled, {}),
    "axes transposed": (lambda ds: ds.transpose("lon", "lat", "time"), {}),
    "transposed, reversed, rolled": (lambda ds: rolled(ds.isel(lat=[3, 2, 1, 0])).transpose("lat", ...), {}),
    "an axis of length 1 more": (lambda ds: ds.expand_dims("height", 1), {}),
    "float64": (lambda ds: ds.astype("f8"), {}),
    "packed as int16": (packed, {}),
    "times counted in other units": (in_hours, {}),
    "a calendar of the same days": (lambda ds: in_calendar(ds, "proleptic_gregorian"), {}),
    "times in no order": (lambda ds: ds.isel(time=[1, 0]), {}),
    "coordinates of another type": (lambda ds: coordinate(ds, "lat", ds.lat.values.astype("f4")), {}),
    "float noise in coordinates": (lambda ds: coordinate(ds, "lat", np.nextafter(ds.lat.values, 99)), {}),
    "coordinates that differ a little": (
        lambda ds: coordinate(ds, "lat", ds.lat.values + 1e-3), {"tolerance": 1e-2}
    ),
    "renamed": (
        lambda ds: ds.rename(v="tas", lat="latitude", time="t"),
        {"rename": {"tas": "v", "latitude": "lat", "t": "time"}},
    ),
    "other units": (in_celsius, {"convert_units": True}),
    "a variable more": (lambda ds: ds.assign(w=ds.v * 2), {}),
    "a time that is no dimension": (lambda ds: ds.isel(time=0), {}),
}  # fmt: skip

REFUSED = {
    "another calendar": (lambda ds: in_calendar(ds, "noleap"), "a dataset has one calendar"),
    "other units": (in_celsius, r"units 'degC', but .* has 'K' \(convert_units=True.* units='ignore'"),
    "a variable less": (lambda ds: ds.rename(v="u"), "missing='fill'"),
    "coordinates that differ a little": (
        lambda ds: coordinate(ds, "lat", ds.lat.values + [0, 0, 1e-3, 0]),
        r"its 'lat' differs from that of .*: values from -30 to 30 instead of -30 to 30; the largest "
        r"difference is 0\.001, at 2: 10\.001 instead of 10\.0 \(tolerance=0\.001 accepts it\)",
    ),
    "another grid": (lambda ds: coordinate(ds, "lat", [0, 1, 2, 3]), "name 'lat' in concat_dim="),
    "another size": (lambda ds: ds.isel(lat=slice(3)), "shape .*name 'lat' in concat_dim="),
    "a name that is taken": (lambda ds: ds.assign(tas=ds.v), "it has 'tas' and 'v', which rename= would"),
    "the same days": (lambda ds: coordinate(ds, "time", [1, 2]), "overlap='first'"),
}  # fmt: skip

NOTES = {
    "float64": "the array becomes wider",
    "coordinates that differ a little": "the message says by how much",
    "other units": '`units="ignore"` takes the numbers as they are',
    "a variable more": "without it; with `add_variables=True`, the variable too",
    "a variable less": '`missing="fill"` leaves a hole',
    "the same days": "`overlap=` says which file is shown",
    "another grid": 'or a dimension of its own: `concat_dim=["time", "lat"]`',
    "another size": "or a dimension of its own",
}


def ingested(tmp_path, form, drift, **options):
    base, other = day(0), day(2)
    files = [save(base, tmp_path / "0", form), save(drift(other), tmp_path / "1", form)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parsers
        return intarsia.ingest(files, "memory://", concat_dim="time", copy="never", **options)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "form"), spread(TAKEN, FORMATS))
def test_drift_is_taken_without_a_copy(tmp_path, kind, form):
    drift, options = TAKEN[kind]
    report = ingested(tmp_path, form, drift, **options)
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False).load()
    meant = day(2)
    if "no dimension" in kind:
        meant = meant.isel(time=[0])
    if "packed" in kind:
        numbers = packed(meant).v.values.astype("f4")
        meant = meant.assign(v=(meant.v.dims, numbers * np.float32(0.5) + np.float32(280)))
    expected = xr.concat([day(0), meant], "time")
    found = found.drop_vars(["height"], errors="ignore")
    np.testing.assert_allclose(found.v, expected.v, rtol=3e-7 if kind == "other units" else 0)
    assert found.lat.values.tolist() == expected.lat.values.tolist()
    assert found.lon.values.tolist() == expected.lon.values.tolist()
    days = found.time.values if "days" in found.time.units else found.time.values / 24
    assert days.tolist() == expected.time.values.tolist()
    assert not any(run.copied for run in report.runs)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "form"), spread(REFUSED, FORMATS))
def test_drift_is_refused_in_words(tmp_path, kind, form):
    drift, words = REFUSED[kind]
    with pytest.raises(IngestError, match=words):
        ingested(tmp_path, form, drift, rename={"tas": "v"})


def test_an_axis_of_length_1_may_come_later_or_go(tmp_path):
    first = save(day(0).expand_dims("height", 1).assign_coords(height=[2.0]), tmp_path / "0", "netcdf4")
    second = save(day(2).assign_coords(height=2.0), tmp_path / "1", "netcdf4")
    for order in ([first, second], [second, first]):
        report = intarsia.ingest(order[0], "memory://", concat_dim="time", copy="never")
        report = intarsia.ingest(order[1], report.repository, concat_dim="time", copy="never")
        found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
        assert found.height.values.reshape(-1).tolist() == [2.0]
        values = found.v.squeeze("height") if "height" in found.v.dims else found.v
        np.testing.assert_array_equal(values, xr.concat([day(0), day(2)], "time").v)
        assert not intarsia.verify(intarsia.open(report.repository, "v"))


def test_what_runs_along_a_turned_axis_is_turned_with_it(tmp_path):
    bounds = ("lat", "nv"), np.array([[-40.0, -20], [-20, 0], [0, 20], [20, 40]])
    area = ("lat", "lon"), np.arange(24.0).reshape(4, 6)
    parts = [day(first).assign_coords(lat_bnds=bounds, area=area) for first in (0, 2)]
    files = [
        save(parts[0], tmp_path / "0", "netcdf4"),
        save(rolled(parts[1].isel(lat=[3, 2, 1, 0])).transpose("lon", ...), tmp_path / "1", "netcdf4"),
    ]
    report = intarsia.ingest(files, "memory://", concat_dim="time")
    assert not report.left_out
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
    np.testing.assert_array_equal(found.area, area[1])
    np.testing.assert_array_equal(found.v, xr.concat([day(0), day(2)], "time").v)


def test_the_first_file_that_is_named_tells_the_axes_wherever_it_lies(tmp_path):
    first = save(rolled(in_hours(day(2))).isel(lat=[3, 2, 1, 0]), tmp_path / "1", "netcdf4")
    second = save(day(0), tmp_path / "0", "netcdf4")
    report = intarsia.ingest([first, second], "memory://", concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia")
    assert found.lat.values.tolist() == [30, 10, -10, -30]
    assert found.lon.values.tolist() == [-180, -120, -60, 0, 60, 120]
    assert found.time.values.astype("M8[D]").astype(str).tolist() == [f"2000-01-0{i}" for i in (1, 2, 3, 4)]
    expected = rolled(xr.concat([day(0), day(2)], "time")).isel(lat=[3, 2, 1, 0])
    np.testing.assert_array_equal(found.v, expected.v)


def test_a_roll_that_cuts_chunks_makes_the_lattice_finer(tmp_path):
    def wide(first):
        values = np.random.default_rng(first).normal(size=(2, 4, 10)).astype("f4")
        coords = {"time": [first, first + 1], "lat": np.arange(4.0), "lon": np.arange(10) * 36.0}
        return xr.Dataset({"v": (("time", "lat", "lon"), values)}, coords)

    parts = [wide(0), rolled(wide(2)), rolled(wide(4).isel(lat=[3, 2, 1, 0])), wide(6)]
    files = []
    for i, part in enumerate(parts):
        chunks = {"v": {"chunksizes": (1, 4, 4), "zlib": True}}
        files.append(tmp_path / f"{i}.nc")
        part.to_netcdf(files[-1], encoding=chunks)
    repo = "memory://"
    for i in (0, 2, 3, 1):
        report = intarsia.ingest(files[i], repo, concat_dim="time", copy="never")
        repo = report.repository
    array = intarsia.open(repo, "v")
    expected = np.concatenate([wide(first).v.values for first in (0, 2, 4, 6)])
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(array[1:7, ::-1, 3:8], expected[1:7, ::-1, 3:8])
    assert len(array.members) == 1
    assert not intarsia.verify(array)


def test_a_year_of_reversed_files_shares_a_member_and_a_view(tmp_path):
    files = []
    for first in range(0, 24, 2):
        ds = day(first) if first < 12 else day(first).isel(lat=slice(None, None, -1))
        files.append(save(ds, tmp_path / f"{first:02d}", "netcdf4"))
    report = intarsia.ingest(files, "memory://", concat_dim="time")
    array = intarsia.open(report.repository, "v")
    assert len(array.members) == len(array.manifest.views) == 1
    assert len(array.regions) == 2
    np.testing.assert_array_equal(array[...], xr.concat([day(first) for first in range(0, 24, 2)], "time").v)


def table():
    """The fates of all kinds in all formats, which the tests above have shown; `python -m` writes it."""
    head = ["a file that has …", *FORMATS.values(), ""]
    rows = [head, ["---"] * len(head)]
    for kind in TAKEN | REFUSED:
        options = TAKEN[kind][1] if kind in TAKEN else {}
        fate = "taken" if kind in TAKEN and not options else "refused"
        if options:
            fate = f"with `{next(iter(options))}=`"
        rows.append([kind, *[fate] * len(FORMATS), NOTES.get(kind, "")])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("|  |", "| |")


def documented():
    """The table as it stands in the documentation, and the page."""
    text = PAGE.read_text(encoding="utf-8")
    return re.search(r"^\| a file that has … .*\n(?:\|.*\n)+", text, re.MULTILINE)[0], text


def test_the_documentation_has_the_table():
    assert documented()[0] == table(), f"write it anew: python -m {__name__}"


def test_values_are_located_wherever_they_stand():
    expected = np.array([10.0, 20.0, 30.0])
    assert indices_in_expected(np.array([20.0, 30.0, 10.0]), expected, None).tolist() == [1, 2, 0]
    assert indices_in_expected(np.array([20.0, 30.0, 11.0]), expected, None) is None
    assert indices_in_expected(np.array([20.0, 30.0, 11.0]), expected, 2.0).tolist() == [1, 2, 0]
    assert indices_in_expected(np.array([20.0, 30.0]), expected, None) is None
    texts = np.array(["b", "a"], dtype=np.dtypes.StringDType())
    assert indices_in_expected(texts, texts[::-1], None).tolist() == [1, 0]
    lon = np.linspace(0, 359.9, 3600).astype("f4")
    west = ((lon.astype("f8") + 180) % 360 - 180).astype("f4")
    assert indices_in_expected(west, lon, None, circle=True).tolist() == list(range(3600))


def test_what_differs_is_said_in_words():
    a = np.array([1.0, 2.0, 3.0])
    assert difference(a[:2], a) == "shape (2,) instead of (3,)"
    assert "the largest difference is 5, at 1: 7.0 instead of 2.0" in difference(np.array([1.0, 7, 3]), a)
    texts = np.array(["a", "b"], dtype=np.dtypes.StringDType())
    assert difference(texts, texts[::-1]) == "other values"
    assert align_axes(np.zeros((2, 3)), ("y", "x"), ("x",), {}) is None
    assert not values_are_close(a, a[:2], None)


if __name__ == "__main__":
    written, text = documented()
    PAGE.write_text(text.replace(written, table()), encoding="utf-8")
