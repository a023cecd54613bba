"""`preprocess=`: what a function makes of a file without its data is what xarray makes of the file itself."""

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import h5py
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError, ReadError
from tests.archives.files import netcdf
from tests.archives.plan.test_reconcile import FORMATS, day, save

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def wide(first):
    """A file with more than one wants: names, a level, a grid that is too large, a mask without time."""
    ds = day(first).expand_dims(level=[10.0, 20.0, 30.0], axis=1).rename(lat="latitude", v="tas")
    area = ("latitude", "lon"), np.arange(24.0).reshape(4, 6)
    ds["tas"] = ds.tas.copy(data=ds.tas.values + np.arange(3, dtype=ds.tas.dtype)[None, :, None, None])
    return ds.assign(area=area, junk=ds.tas * 0).assign_attrs(history=f"made {first}")


STEPS = {
    "names": lambda f: f.rename({"latitude": "lat", "tas": "v"}),
    "one level": lambda f: f.isel(level=1),
    "the last level": lambda f: f.isel(level=-1),
    "a part": lambda f: f.isel(latitude=slice(1, 3), lon=slice(2, None), level=slice(0, 2)),
    "backwards": lambda f: f.isel(latitude=slice(None, None, -1), lon=slice(4, 0, -1)),
    "every other": lambda f: f.isel(lon=slice(None, None, 2)),
    "chosen ones": lambda f: f.isel(lon=[5, 0, 1, 3]),
    "a part of a part": lambda f: f.isel(lon=slice(1, 6)).isel(lon=slice(1, None, 2)),
    "a part of time": lambda f: f.isel(time=[1]),
    "transposed": lambda f: f.transpose("lon", "latitude", ...),
    "all at once": lambda f: (
        f.rename(latitude="lat").isel(level=0, lon=slice(1, 4)).transpose(..., "lon", "lat")
    ),
}  # fmt: skip


def dropping(step):
    return lambda file: step(file.drop_vars("junk"))


@pytest.mark.parametrize("kind", STEPS)
def test_what_is_seen_of_files_is_what_xarray_sees(tmp_path, kind):
    paths = [save(wide(first), tmp_path / str(first), "netcdf4") for first in (0, 2, 4)]
    step = dropping(STEPS[kind])
    report = intarsia.ingest(paths, "memory://", concat_dim="time", preprocess=step, copy="never")
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
    expected = xr.concat(
        [step(wide(first)) for first in (0, 2, 4)], "time", data_vars="minimal", combine_attrs="override"
    )
    expected = expected.transpose(*found.area.dims, ...) if "level" not in kind else expected
    assert found.keys() == expected.keys()
    for name in expected.variables:
        if name == "level" and name not in found.dims:
            assert found[name].values.item() == expected[name].values.item()
            continue
        np.testing.assert_array_equal(
            found[name].transpose(*expected[name].dims), expected[name], err_msg=name
        )
    for name in report.repository and ("v" if "v" in found else "tas",):
        assert not intarsia.verify(intarsia.open(report.repository, name))


@pytest.mark.parametrize("kind", ["chosen ones", "a part of time", "all at once"])
def test_what_is_seen_of_files_is_the_same_in_one_ingest_or_many(tmp_path, kind):
    paths = [save(wide(first), tmp_path / str(first), "netcdf4") for first in (0, 2, 4)]
    options = {"concat_dim": "time", "preprocess": dropping(STEPS[kind]), "copy": "never"}
    whole = intarsia.ingest(paths, "memory://", **options).repository
    repo = "memory://"
    for i in (1, 0, 2):
        repo = intarsia.ingest(paths[i], repo, **options).repository
    found, again = (xr.open_dataset(each, engine="intarsia", decode_times=False) for each in (whole, repo))
    xr.testing.assert_equal(again.transpose(*found.sizes), found.transpose(*found.sizes))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_metadata(tmp_path, form):
    paths = [save(wide(first), tmp_path / str(first), form) for first in (0, 2)]
    step = dropping(STEPS["all at once"])
    report = intarsia.ingest(paths, "memory://", combine="by_coords", preprocess=step, copy="never")
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
    expected = xr.concat([step(wide(first)) for first in (0, 2)], "time", data_vars="minimal")
    np.testing.assert_array_equal(found.tas.transpose(*expected.tas.dims), expected.tas)
    np.testing.assert_array_equal(found.area.transpose(*expected.area.dims), expected.area)


def test_the_dimensions_follow_the_order_of_the_first_file(tmp_path):
    path = save(wide(0), tmp_path / "0", "netcdf4")
    report = intarsia.ingest(
        path, "memory://", concat_dim="time", preprocess=lambda f: f.transpose("lon", "time", ...)
    )
    assert intarsia.open(report.repository, "tas").dimension_names == ("lon", "time", "level", "latitude")


def member(ds):
    number = int(re.search(r"r(\d+)", ds.encoding["source"])[1])
    ds = ds.rename(v="tas").assign_coords(member=number)
    ds["tas"].attrs = {"long_name": "x"}
    return ds


def test_a_file_gets_a_coordinate_and_attributes(tmp_path):
    paths = [save(day(first), tmp_path / f"r{i}-{first}", "netcdf4") for i in range(3) for first in (0, 2)]
    options = {"concat_dim": ["member", "time"], "preprocess": member}
    report = intarsia.ingest(paths, "memory://", **options)
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False)
    assert found.member.values.tolist() == [0, 1, 2]
    assert found.tas.sizes == {"member": 3, "time": 4, "lat": 4, "lon": 6}
    assert found.tas.attrs == {"long_name": "x"}
    np.testing.assert_array_equal(found.tas[2, 2:], day(2).v)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as workers:
        other = intarsia.ingest(paths, "memory://", client=workers, **options)
    again = xr.open_dataset(other.repository, engine="intarsia", decode_times=False)
    xr.testing.assert_identical(again, found)


def test_dates_and_texts_are_coordinates(tmp_path):
    path = save(day(0).drop_vars("time").isel(time=0), tmp_path / "0", "netcdf4")

    def dated(file):
        return file.assign_coords(time=np.datetime64("2001-02-03"), place="Bonn").assign_attrs(title="t")

    report = intarsia.ingest(path, "memory://", concat_dim="time", preprocess=dated)
    found = xr.open_dataset(report.repository, engine="intarsia")
    assert found.time.values == np.datetime64("2001-02-03")
    assert found.place.values.item() == "Bonn"
    assert found.attrs["title"] == "t"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda f: f.drop_vars("nothing"), "preprocess failed: ValueError: .*'nothing'"),
        (lambda f: f.isel(x=0), "preprocess failed: ValueError: Dimensions {'x'} do not exist"),
        (lambda f: f.rename(v="lat"), "preprocess failed: ValueError: the new name 'lat' conflicts"),
        (lambda f: f.isel(lat=9), "preprocess failed: IndexError"),
        (lambda f: f.assign_coords(member=1 + 2j, x=None), "'x' has values of type object: not numbers"),
        (lambda f: f["w"], "preprocess failed: KeyError: .*'w'"),
        (lambda f: f.assign(w=f.v + 1), "preprocess failed: TypeError"),
        (lambda f: f.assign(w=("x", f.v.values[0, 0])), "preprocess: 'v' is data, which is not read for it"),
        (lambda f: 1 / 0, "preprocess failed: ZeroDivisionError: division by zero"),
        (lambda f: None, "preprocess returned None: return the dataset that should be ingested"),
        (lambda f: f.drop_vars("v"), "it has no variable along 'time'"),
    ],
)
def test_what_goes_wrong_is_said_of_the_file(tmp_path, function, words):
    path = save(day(0), tmp_path / "0", "netcdf4")
    with pytest.raises(IngestError, match=rf"0\.nc: .*{words}"):
        intarsia.ingest(path, "memory://", concat_dim="time", preprocess=function)


def test_nothing_is_changed_in_place(tmp_path):
    seen = []

    def keep(ds):
        seen.append(repr(ds))
        ds.rename(v="w").isel(lat=0).transpose("lon", ...)["w"].attrs["units"] = "no"
        assert isinstance(ds, xr.Dataset)
        assert "v" in ds
        assert ds["v"].attrs["units"] == "K"
        assert ds.attrs == {}
        assert repr(ds) == seen[-1]
        return ds

    path = save(day(0), tmp_path / "0", "netcdf4")
    report = intarsia.ingest(path, "memory://", concat_dim="time", preprocess=keep)
    np.testing.assert_array_equal(intarsia.open(report.repository, "v")[...], day(0).v)


def test_no_data_are_read_for_it(tmp_path):
    """A chunk that nobody can decode does no harm before somebody reads it."""
    path = tmp_path / "0.nc"
    netcdf(path, 0, chunks=(1, 6, 8))
    with h5py.File(path) as file:
        chunk = file["sst"].id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))
    seen = []

    def step(file):
        seen.append(dict(file.sizes))
        return file.rename(sst="t").isel(lat=slice(1, 3)).transpose("lon", ...)

    report = intarsia.ingest(path, "memory://", concat_dim="time", preprocess=step, copy="never")
    assert seen == [{"time": 1, "lat": 6, "lon": 8}]
    array = intarsia.open(report.repository, "t")
    assert array.shape == (8, 1, 2)
    with pytest.raises(ReadError):
        array[...]
