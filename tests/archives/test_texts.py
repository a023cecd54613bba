"""Characters and texts of fixed length become strings, joined where files differ in them."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from tests.archives.files import hdf5
from tests.archives.plan.test_reconcile import FORMATS, save

pytestmark = pytest.mark.filterwarnings("ignore")  # of parsers and of zarr, about texts of fixed length


def stations(first, names, kind="S"):
    """Two steps at some stations; a text for every step, one for the file."""
    names = np.array(names)
    return xr.Dataset(
        {"v": (("time", "station"), np.full((2, len(names)), first, "f4"))},
        {
            "time": ("time", [first, first + 1], {"units": "days since 2000-01-01"}),
            "name": ("station", names.astype(kind), {"cf_role": "timeseries_id"}),
            "date": ("time", np.array([f"d{first}", f"day {first + 1}"]).astype(kind)),
            "kind": ((), np.array("mast").astype(kind)),
        },
    )


def as_strings(ds):
    values = {name: ds[name].values for name in ("name", "date", "kind")}
    return {
        name: (each.astype(str) if each.dtype.kind == "S" else each).tolist() for name, each in values.items()
    }


@pytest.mark.parametrize(
    ("form", "kind"),
    [*((form, "S") for form in FORMATS), *((form, "U") for form in FORMATS if form != "kerchunk")],
)
def test_texts_are_kept_and_joined_along_the_dimension(tmp_path, form, kind):
    parts = [stations(0, ["Bonn", "Oslo-Blindern"], kind), stations(2, ["Bonn", "Oslo-Blindern"], kind)]
    paths = [save(ds, tmp_path / str(i), form) for i, ds in enumerate(parts)]
    whole = intarsia.ingest(paths, "memory://", concat_dim="time")
    assert not whole.left_out
    found = xr.open_dataset(whole.repository, engine="intarsia")
    expected = xr.concat(parts, "time", data_vars="minimal", coords="minimal")
    assert as_strings(found) == as_strings(expected)
    assert found["name"].attrs == {"cf_role": "timeseries_id"}
    assert found.v.sizes == {"time": 4, "station": 2}


@pytest.mark.parametrize(("form", "kind"), [("netcdf4", "S"), ("netcdf3", "S"), ("zarr3", "U")])
def test_texts_are_the_same_by_coordinates_and_with_the_last_file_first(tmp_path, form, kind):
    parts = [stations(0, ["Bonn", "Oslo-Blindern"], kind), stations(2, ["Bonn", "Oslo-Blindern"], kind)]
    paths = [save(ds, tmp_path / str(i), form) for i, ds in enumerate(parts)]
    expected = as_strings(xr.concat(parts, "time", data_vars="minimal", coords="minimal"))
    repo = "memory://"
    for path in reversed(paths):
        repo = intarsia.ingest(path, repo, concat_dim="time").repository
    assert as_strings(xr.open_dataset(repo, engine="intarsia")) == expected
    found = intarsia.ingest(paths, "memory://", combine="by_coords").repository
    assert as_strings(xr.open_dataset(found, engine="intarsia")) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_texts_are_coordinates_along_which_files_follow(tmp_path, form):
    def write(i, names):
        ds = xr.Dataset(
            {"v": ("station", np.arange(len(names)) + 10.0 * i)}, {"station": np.array(names, "S")}
        )
        return save(ds, tmp_path / str(i), form)

    paths = [write(0, ["Bonn", "Rom"]), write(1, ["Aachen", "Oslo"])]
    report = intarsia.ingest(paths, "memory://", concat_dim="station")
    found = xr.open_dataset(report.repository, engine="intarsia")
    assert found.station.values.tolist() == ["Aachen", "Bonn", "Oslo", "Rom"]
    assert found.v.values.tolist() == [10, 0, 11, 1]


def test_a_text_that_changes_from_file_to_file_becomes_a_coordinate(tmp_path):
    paths = [
        save(
            stations(2 * i, ["Bonn"]).assign_coords(kind=((), np.bytes_(kind))), tmp_path / str(i), "netcdf4"
        )
        for i, kind in enumerate(("mast", "mast", "ship"))
    ]
    whole = intarsia.ingest(paths, "memory://", concat_dim="time")
    assert not whole.left_out
    kinds = ["mast"] * 4 + ["ship"] * 2
    assert xr.open_dataset(whole.repository, engine="intarsia")["kind"].values.tolist() == kinds
    repo = "memory://"
    for i in (2, 0, 1):
        repo = intarsia.ingest(paths[i], repo, concat_dim="time").repository
    assert xr.open_dataset(repo, engine="intarsia")["kind"].values.tolist() == kinds


def test_texts_of_hdf5_in_every_way(tmp_path):
    def build(file, shape):
        import h5py

        file["fixed"] = np.array([b"Bonn", "Z\u00fcrich".encode()])
        file["latin"] = np.array(["Z\u00fcrich".encode("latin-1")])
        file.create_dataset("any", data=["Bonn", "Z\u00fcrich"], dtype=h5py.string_dtype())
        file["empty"] = np.zeros((2, 0), "S1")
        yield file.create_dataset("sst", data=np.ones(shape, "f4"))

    hdf5(tmp_path / "a.h5", 0, build)
    report = intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia")
    assert found.fixed.values.tolist() == found["any"].values.tolist() == ["Bonn", "Z\u00fcrich"]
    assert found.latin.values.tolist() == ["Z\u00fcrich"]


def test_characters_along_an_axis_are_texts_of_their_own(tmp_path):
    for i in range(2):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 2)
            file.createVariable("time", "i4", ("time",))[:] = [2 * i, 2 * i + 1]
            file.createVariable("v", "f4", ("time",))[:] = i
            file.createVariable("flag", "S1", ("time",))[:] = np.array(["ab", "cd"][i : i + 1], "S2").view(
                "S1"
            )
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    assert xr.open_dataset(report.repository, engine="intarsia").flag.values.tolist() == list("abcd")


@pytest.mark.parametrize("kind", ["S1", "i4"])
@pytest.mark.parametrize("key", ["grid_mapping_name", "crs_wkt"])
def test_a_grid_mapping_of_characters_is_kept_for_its_attributes(tmp_path, kind, key):
    for i in range(3):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createVariable("time", "i4", ("time",))[:] = i
            file.createVariable("v", "f4", ("time",)).setncatts({"grid_mapping": "crs"})
            crs = file.createVariable("crs", kind)
            crs.setncattr(key, "latitude_longitude")
            crs[...] = "abc"[i] if kind == "S1" else i
    whole = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    repo = "memory://"
    for i in range(3):
        daily = intarsia.ingest(tmp_path / f"{i}.nc", repo, concat_dim="time")
        repo = daily.repository
        assert not daily.left_out
    for report in (whole, daily):
        assert not report.left_out
        found = xr.open_dataset(report.repository, engine="intarsia")
        assert found.crs.attrs == {key: "latitude_longitude"}
        assert found.crs.dims == ()


def test_an_axis_that_numbers_have_is_no_length_of_texts_as_in_xarray(tmp_path):
    for i in range(2):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createDimension("profile", 3)
            file.createDimension("letters", 4)
            file.createVariable("time", "i4", ("time",))[:] = i
            file.createVariable("depth", "f4", ("time", "profile"))[:] = i
            file.createVariable("flag", "S1", ("profile",))[:] = np.array([b"a", b"b", b"c"])
            name = np.array(["Alex", "Bo", "Cy"], "S4")
            file.createVariable("name", "S1", ("profile", "letters"))[:] = netCDF4.stringtochar(name)
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia")
    theirs = xr.open_dataset(tmp_path / "0.nc")
    for each in ("flag", "name"):
        assert found[each].dims == theirs[each].dims == ("profile",)
        assert found[each].values.tolist() == theirs[each].values.astype("U").tolist()
