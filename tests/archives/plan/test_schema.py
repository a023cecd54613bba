"""`schema=`: every file is judged against what was declared, by a file, a dataset or a dictionary."""

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError
from tests.archives.plan.test_reconcile import FORMATS, day, save

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def declared(kind, folder):
    """The same schema in several ways."""
    ds = day(0).assign_attrs(title="declared").assign(v=day(0).v.assign_attrs(long_name="x"))
    if kind == "file":
        return save(ds, folder / "schema", "netcdf4")
    if kind == "dataset":
        return ds
    if kind.endswith("dates"):
        return xr.decode_cf(ds) if kind.startswith("dataset") else xr.decode_cf(ds).to_dict()
    return ds.to_dict(data=False) if kind == "document" else ds.to_dict()


def odd_first(folder, form="netcdf4"):
    """The first file is the odd one: upside down, transposed, with a variable more, packed."""
    first = day(0).isel(lat=slice(None, None, -1)).transpose("lon", "lat", "time").assign(more=day(0).v)
    return [save(ds, folder / str(i), form) for i, ds in enumerate((first, day(2)))]


KINDS = ("file", "dataset", "dataset with dates", "document", "document with data", "document with dates")


@pytest.mark.parametrize("kind", KINDS)
def test_the_dataset_is_as_declared_whatever_the_first_file_is(tmp_path, kind):
    schema = declared(kind, tmp_path)
    paths = odd_first(tmp_path)
    whole = intarsia.ingest(paths, "memory://", concat_dim="time", schema=schema, copy="never")
    repo = "memory://"
    for path in paths:
        daily = intarsia.ingest(path, repo, concat_dim="time", schema=schema, copy="never")
        repo = daily.repository
    for report in (whole, daily):
        found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
        assert found.v.dims == ("time", "lat", "lon")
        assert "more" not in found
        assert found.attrs["title"] == "declared"
        assert found.v.attrs == {"units": "K", "long_name": "x"}
        expected = xr.concat([day(0), day(2)], "time")
        if kind != "document":  # which says nothing of latitudes
            np.testing.assert_array_equal(found.lat, expected.lat)
            np.testing.assert_array_equal(found.v, expected.v)
    assert "more" in whole.left_out


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_judged(tmp_path, form):
    paths = odd_first(tmp_path, form)
    report = intarsia.ingest(paths, "memory://", combine="by_coords", schema=day(0), copy="never")
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
    np.testing.assert_array_equal(found.v, xr.concat([day(0), day(2)], "time").v)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("drift", "words"),
    [
        (lambda ds: ds.assign(v=ds.v.assign_attrs(units="m")), "'v' has the units 'm', but .* has 'K'"),
        (lambda ds: ds.rename(v="w"), "it has no variable 'v'"),
        (lambda ds: ds.isel(lon=slice(5)), "(its 'lon' differs from that of|'v' has the axes)"),
        (lambda ds: ds.astype("f8"), "float64, which float32 of .* cannot hold"),
    ],
)
def test_files_that_differ_from_it_are_refused_the_first_too(tmp_path, kind, drift, words):
    if kind in ("document with data", "document with dates") and "float64" in words:
        return  # xarray names no types there
    schema = declared(kind, tmp_path)
    paths = [save(drift(day(0)), tmp_path / "0", "netcdf4"), save(day(2), tmp_path / "1", "netcdf4")]
    report = intarsia.ingest(paths, "memory://", concat_dim="time", schema=schema, errors="skip")
    assert [file.status for file in report.files] == ["failed", "added"]
    assert report.failed[0].reason
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(paths, "memory://", concat_dim="time", schema=schema)


def test_a_wider_type_may_be_declared_and_other_units(tmp_path):
    paths = [save(day(first), tmp_path / str(first), "netcdf4") for first in (0, 2)]
    document = {
        "data_vars": {"v": {"dims": ("time", "lat", "lon"), "dtype": "float64", "attrs": {"units": "degC"}}},
        "dims": {"lat": 4, "lon": 6},
    }
    report = intarsia.ingest(paths, "memory://", concat_dim="time", schema=document, convert_units=True)
    found = intarsia.open(report.repository, "v")
    assert found.dtype == np.float64
    assert found.attrs["units"] == "degC"
    np.testing.assert_allclose(found[:2], day(0).v - 273.15, atol=1e-4)


def test_what_cannot_be_a_schema_is_refused_in_words(tmp_path):
    path = save(day(0), tmp_path / "0", "netcdf4")
    repo = intarsia.ingest(path, "memory://", concat_dim="time").repository
    for schema, words in (
        (7, "schema=7: give a file, an xarray.Dataset or a dictionary"),
        ({"data_vars": {"v": 3}}, "schema: 'v' is 3; give its dims"),
        ({"data_vars": {"v": {"dims": ("time", "lat")}}}, "it does not give the length of 'lat' in 'v'"),
        (tmp_path / "nothing.nc", r"the schema .*nothing\.nc cannot be read"),
        (day(0).rename(time="t"), "the schema cannot be met"),
        (day(0).isel(lat=[0]), "the schema cannot be met: its 'lat' differs from that of the dataset"),
        (day(0).astype("f8"), "the schema says that 'v' is float64; in the dataset it is float32"),
    ):
        with pytest.raises(IngestError, match=words):
            intarsia.ingest(save(day(2), tmp_path / "2", "netcdf4"), repo, concat_dim="time", schema=schema)
