"""Units that differ between files: converted on reading, as xarray and cf-units have it, or refused."""

import sys

import cf_units
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives.plan.reconcile import Conversion, conversion
from intarsia.errors import IngestError, MissingExtraError
from tests.archives.plan.test_reconcile import FORMATS, save
from tests.grids import spread

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

KINDS = {
    "float32": ("f4", {}),
    "float64": ("f8", {}),
    "float32 with gaps": ("f4", {"_FillValue": np.float32(-999)}),
    "whole numbers": ("i2", {}),
    "whole numbers with gaps": ("i2", {"missing_value": np.int16(-999)}),
    "packed": ("i2", {"scale_factor": 0.01, "add_offset": 250.0, "_FillValue": np.int16(-999)}),
    "packed in float32": ("i2", {"scale_factor": np.float32(0.01), "add_offset": np.float32(250)}),
    "scaled": ("i4", {"scale_factor": np.float32(0.5)}),
    "moved": ("i2", {"add_offset": 273.15}),
}
PAIRS = [
    ("degC", "K"),
    ("K", "degC"),
    ("degF", "K"),
    ("hPa", "Pa"),
    ("mm", "m"),
    ("percent", "1"),
    ("km h-1", "m s-1"),
]


def written(path, first, units, kind, form="netcdf4", **coords):
    dtype, attrs = KINDS[kind]
    numbers = np.random.default_rng(first).integers(1, 2000, (2, 5)).astype(dtype)
    if "gaps" in kind or kind == "packed":
        numbers[0, 1] = -999
    time = ("time", np.arange(first, first + 2), {"units": "days since 2000-01-01"})
    ds = xr.Dataset({"v": (("time", "x"), numbers, {"units": units, **attrs})}, {"time": time, **coords})
    return save(ds, path / f"{first}", form)


def by_xarray(path, wanted, form="netcdf4"):
    """What xarray decodes and cf-units converts; and how large the numbers are on the way."""
    if form == "kerchunk":
        path = path.with_suffix(".nc")
    engine = "zarr" if form.startswith("zarr") else "netcdf4"
    options = {"consolidated": False} if engine == "zarr" else {}
    with xr.open_dataset(path, engine=engine, decode_times=False, **options) as ds:
        values, own = ds.v.values, ds.v.attrs["units"]
        sizes = [np.abs(values), np.full(values.shape, abs(ds.v.encoding.get("add_offset", 0.0)))]
    found = conversion(own, wanted)
    values = values if values.dtype.kind == "f" or not found.changes else values.astype("f8")
    result = values
    if found.changes:
        result = cf_units.Unit(own).convert(values.astype("f8"), wanted).astype(values.dtype)
        sizes = [each * found.factor for each in sizes]
    largest = np.maximum.reduce([*sizes, np.abs(result), np.full(values.shape, abs(found.offset))])
    return result, np.spacing(largest.astype(values.dtype))


def assert_converted(found, paths, wanted, form="netcdf4"):
    """Equal to two steps of the type, at the largest number on the way."""
    parts = [by_xarray(path, wanted, form) for path in paths]
    dtype = np.result_type(*(values.dtype for values, _ in parts))
    assert found.dtype == dtype
    expected = np.concatenate([values.astype(dtype) for values, _ in parts])
    steps = np.concatenate([step.astype("f8") for _, step in parts])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert not (np.abs(found - expected.astype("f8")) > 2 * steps).any()


@pytest.mark.parametrize(
    ("own", "wanted", "kind"),
    [*((*pair, "packed") for pair in PAIRS), *(("degF", "K", kind) for kind in KINDS if kind != "packed")],
)
def test_units_are_converted_on_reading_and_nothing_is_copied(tmp_path, own, wanted, kind):
    paths = [
        written(tmp_path, 0, wanted, kind),
        written(tmp_path, 2, own, kind),
        written(tmp_path, 4, wanted, kind),
    ]
    options = {"concat_dim": "time", "convert_units": True, "copy": "never"}
    report = intarsia.ingest(paths, "memory://", **options)
    found = intarsia.open(report.repository, "v")
    assert found.attrs["units"] == wanted
    assert_converted(found[...], paths, wanted)
    assert not intarsia.verify(found)
    assert len(found.members) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_units_are_converted_also_in_one_ingest_for_each_file(tmp_path, kind):
    units = {0: "K", 2: "degF", 4: "K"}
    paths = {first: written(tmp_path, first, unit, kind) for first, unit in units.items()}
    repo = "memory://"
    for first in (0, 4, 2):
        options = {"concat_dim": "time", "convert_units": True, "copy": "never"}
        repo = intarsia.ingest(paths[first], repo, **options).repository
    assert_converted(intarsia.open(repo, "v")[...], paths.values(), "K")


@pytest.mark.parametrize(("kind", "form"), spread(["float32", "packed"], FORMATS))
def test_every_format_has_units(tmp_path, form, kind):
    paths = [written(tmp_path, 0, "K", kind, form), written(tmp_path, 2, "degC", kind, form)]
    report = intarsia.ingest(paths, "memory://", concat_dim="time", convert_units=True, copy="never")
    assert_converted(intarsia.open(report.repository, "v")[...], paths, "K", form)


def test_the_units_are_those_of_the_first_file_whichever_comes_first_on_the_axis(tmp_path):
    paths = [written(tmp_path, 2, "degC", "float32"), written(tmp_path, 0, "K", "float32")]
    report = intarsia.ingest(paths, "memory://", concat_dim="time", convert_units=True)
    found = intarsia.open(report.repository, "v")
    assert found.attrs["units"] == "degC"
    assert_converted(found[...], paths[::-1], "degC")


def test_units_of_another_spelling_change_nothing(tmp_path):
    paths = [written(tmp_path, 0, "K", "whole numbers"), written(tmp_path, 2, "kelvin", "whole numbers")]
    report = intarsia.ingest(paths, "memory://", concat_dim="time", convert_units=True)
    found = intarsia.open(report.repository, "v")
    assert (found.dtype, len(found.regions), len(found.manifest.packings)) == (np.int16, 1, 0)


@pytest.mark.parametrize("kind", ["whole numbers with gaps", "packed", "float32"])
def test_nulls_stay_null_in_other_units(tmp_path, kind):
    paths = [written(tmp_path, 0, "K", kind), written(tmp_path, 2, "degC", kind)]
    options = {"concat_dim": "time", "convert_units": True, "nulls": True}
    report = intarsia.ingest(paths, "memory://", **options)
    found = intarsia.open(report.repository, "v")[...]
    expected = np.concatenate([by_xarray(path, "K")[0].astype("f8") for path in paths])
    np.testing.assert_array_equal(found.mask, np.isnan(expected))
    np.testing.assert_allclose(found.filled(np.nan), expected, rtol=1e-6)


def test_a_type_that_was_asked_for_is_kept(tmp_path):
    paths = [written(tmp_path, 0, "K", "packed"), written(tmp_path, 2, "degC", "packed")]
    report = intarsia.ingest(paths, "memory://", concat_dim="time", convert_units=True, dtype={"v": "f4"})
    found = intarsia.open(report.repository, "v")
    assert found.dtype == np.float32
    expected = np.concatenate([by_xarray(path, "K")[0] for path in paths])
    np.testing.assert_allclose(found[...], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("m", "'v' has the units 'm', but .*/0.nc has 'K': 'm' cannot be converted to 'K'"),
        ("", "'v' has the units '', but .* has 'K': '' cannot be converted to 'K'"),
        ("Kelvins of old", "'Kelvins of old' is not a unit that udunits knows"),
        ("days since 2000-01-01", "times are converted only as coordinates"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_the_others_taken(tmp_path, own, words):
    paths = [written(tmp_path, first, units, "float32") for first, units in ((0, "K"), (2, own), (4, "degC"))]
    options = {"concat_dim": "time", "convert_units": True}
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(paths, "memory://", **options)
    report = intarsia.ingest(paths, "memory://", errors="skip", **options)
    assert [file.status for file in report.files] == ["added", "failed", "added"]


def test_without_the_option_both_units_and_the_option_are_named(tmp_path):
    paths = [written(tmp_path, 0, "K", "float32"), written(tmp_path, 2, "degC", "float32")]
    words = r"has the units 'degC', but .* has 'K' \(convert_units=True converts them, units='ignore' keeps"
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(paths, "memory://", concat_dim="time")
    with pytest.raises(IngestError, match="choose"):
        intarsia.ingest(paths, "memory://", concat_dim="time", units="ignore", convert_units=True)


def test_coordinates_along_the_axis_are_converted(tmp_path):
    def write(name, depth, units):
        bounds = np.stack([np.array(depth) - 0.5, np.array(depth) + 0.5], axis=1)
        coords = {"depth": ("depth", depth, {"units": units, "bounds": "b"}), "b": (("depth", "nv"), bounds)}
        xr.Dataset({"v": ("depth", np.array(depth, "f4"))}, coords).to_netcdf(tmp_path / name)

    write("0.nc", [0.0, 100.0], "m")
    write("1.nc", [2.0, 3.0], "km")
    write("2.nc", [100000, 110000], "cm")
    with pytest.raises(
        IngestError, match=r"its 'depth' has the units 'km', .* \(convert_units=True converts"
    ):
        intarsia.ingest(tmp_path / "[01].nc", "memory://", concat_dim="depth")
    options = {"concat_dim": "depth", "convert_units": True}
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", **options)
    ds = xr.open_dataset(report.repository, engine="intarsia")
    assert ds.depth.values.tolist() == [0, 100, 1000, 1100, 2000, 3000]
    assert ds.depth.attrs["units"] == "m"
    np.testing.assert_allclose(ds.b[:, 0], [-0.5, 99.5, 999.995, 1099.995, 1500, 2500], rtol=1e-15)
    assert ds.v.values.tolist() == [0, 100, 100000, 110000, 2, 3]
    repo = "memory://"
    for i in (0, 1, 2):
        repo = intarsia.ingest(tmp_path / f"{i}.nc", repo, **options).repository
    xr.testing.assert_identical(xr.open_dataset(repo, engine="intarsia"), ds)


@pytest.mark.parametrize("by_coords", [False, True])
def test_coordinates_that_all_files_share_are_converted(tmp_path, by_coords):
    degrees = np.array([-60.0, -20.0, 20.0, 60.0, 80.0])
    north = {"x": ("x", degrees, {"units": "degrees_north"})}
    paths = [
        written(tmp_path, 0, "K", "float32", **north),
        written(tmp_path, 2, "K", "float32", x=("x", np.deg2rad(degrees)[::-1], {"units": "radian"})),
    ]
    dims = {"combine": "by_coords"} if by_coords else {"concat_dim": "time"}
    with pytest.raises(IngestError, match="radian' instead of 'degrees_north'" if not by_coords else "units"):
        intarsia.ingest(paths, "memory://", **dims)
    report = intarsia.ingest(paths, "memory://", convert_units=True, **dims)
    ds = xr.open_dataset(report.repository, engine="intarsia")
    assert ds.x.values.tolist() == degrees.tolist()
    with xr.open_dataset(paths[1]) as second:
        np.testing.assert_array_equal(ds.v[2:], second.v[:, ::-1])


def test_a_conversion_is_found_to_the_last_digit():
    assert conversion("hPa", "Pa") == Conversion(100.0, 0.0)
    assert conversion("K", "degC") == Conversion(1.0, -273.15)
    assert conversion("percent", "1") == Conversion(0.01, 0.0)
    for refused in (("dBZ", "m"), ("lg(re 1 mW)", "W")):
        with pytest.raises(IngestError):
            conversion(*refused)


def test_the_extra_is_named(tmp_path, monkeypatch):
    paths = [written(tmp_path, 0, "K", "float32"), written(tmp_path, 2, "degC", "float32")]
    conversion.cache_clear()
    monkeypatch.setitem(sys.modules, "cf_units", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\S+\[units\]'"):
        intarsia.ingest(paths, "memory://", concat_dim="time", convert_units=True)


@pytest.mark.parametrize(
    ("own", "target", "factor"),
    [
        ("m", "kg m-2", 1000),
        ("kg m-2", "mm", 1),
        ("kg m-2 s-1", "mm h-1", 3600),
        ("mm day-1", "kg m-2 s-1", 1 / 86400),
    ],
)
def test_depths_and_masses_of_water_are_converted(own, target, factor):
    found = conversion(own, target)
    assert (found.factor, found.offset) == (pytest.approx(factor, rel=1e-14), 0)


@pytest.mark.parametrize(
    ("own", "target"), [("m", "kg m-3"), ("kg m-3", "1"), ("kg m-2", "m s-1"), ("kg", "m3")]
)
def test_other_masses_are_not_those_of_water(own, target):
    with pytest.raises(IngestError, match="cannot be converted"):
        conversion(own, target)
