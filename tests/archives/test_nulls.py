"""Missing values as nulls: masked by netCDF4, null for us."""

import netCDF4
import numpy as np
import pytest

import intarsia
from tests.archives.files import netcdf


def masked(path):
    with netCDF4.Dataset(path) as file:
        return np.ma.asarray(file["sst"][:])


def ingested(tmp_path, files, **options):
    report = intarsia.ingest(files, tmp_path / "r", concat_dim="time", nulls=True, **options)
    return report, intarsia.open(report.repository, "sst")


@pytest.mark.parametrize("copy", ["never", "all"])
def test_integers_stay_integers_and_what_is_missing_is_null(tmp_path, copy):
    paths = [tmp_path / f"{day}.nc" for day in range(3)]
    netcdf(paths[0], 0, kind="i2", fill=7)
    netcdf(paths[1], 1, kind="i2", attrs={"missing_value": np.array([1, 2, 3], "i2")})
    netcdf(paths[2], 2, kind="i4")
    _, sst = ingested(tmp_path, paths, copy=copy)
    values = sst[...]
    assert values.dtype == np.int32
    for day, path in enumerate(paths):
        theirs = masked(path)[0]
        assert np.array_equal(np.ma.getmaskarray(values[day]), np.ma.getmaskarray(theirs))
        assert np.ma.allequal(values[day], theirs)


def test_packed_and_plain_floats(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(3)]
    netcdf(paths[0], 0, kind="i2", fill=7, attrs={"scale_factor": 0.5, "add_offset": 100.0})
    floats = np.full((1, 6, 8), 4.5, "f8")
    floats[0, 0, 0], floats[0, 0, 1] = np.nan, -9999
    netcdf(paths[1], 1, kind="f8", values=floats, fill=-9999)
    netcdf(paths[2], 2, kind="f4")
    _, sst = ingested(tmp_path, paths, copy="never")
    values = sst[...]
    for day, path in enumerate(paths):
        theirs = masked(path)[0]
        if day != 1:
            assert np.array_equal(np.ma.getmaskarray(values[day]), np.ma.getmaskarray(theirs))
            assert np.ma.allclose(values[day], theirs)
    assert np.isnan(values[1].data[0, 0])  # NaN was there and stays
    assert not values[1].mask[0, 0]
    assert values[1].mask[0, 1]
    assert sst.members  # none of them copied


def test_signs_are_those_of_the_file(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(2)]
    values = np.full((1, 6, 8), -3)
    netcdf(paths[0], 0, kind="i1", values=values, attrs={"_Unsigned": "true"})
    netcdf(paths[1], 1, kind="i1", values=values, attrs={"_Unsigned": "true"}, fill=5)
    _, sst = ingested(tmp_path, paths, copy="never")
    assert sst.dtype == np.uint8
    assert (np.ma.getdata(sst[...]) == 253).all()


def test_chunks_that_were_never_written_are_null_where_their_fill_value_is(tmp_path):
    from tests.archives.files import hdf5

    def build(file, shape):
        data = file.create_dataset("sst", shape, "i2", chunks=(1, 3, 8), fillvalue=-1, compression="gzip")
        data.attrs["_FillValue"] = np.int16(-1)
        data[0, 3:] = 5
        yield data

    hdf5(tmp_path / "0.h5", 0, build)
    _, sst = ingested(tmp_path, [tmp_path / "0.h5"])
    assert sst[0, :3].mask.all()
    assert sst[0, 3:].tolist() == [[5] * 8] * 3


def test_later_files_keep_to_what_the_dataset_is(tmp_path):
    netcdf(tmp_path / "0.nc", 0, kind="i2", fill=7)
    netcdf(tmp_path / "1.nc", 1, kind="i2", fill=8)
    ingested(tmp_path, [tmp_path / "0.nc"])
    report = intarsia.ingest(tmp_path / "1.nc", tmp_path / "r", concat_dim="time")
    values = intarsia.open(report.repository, "sst")[1]
    assert np.array_equal(np.ma.getmaskarray(values), np.ma.getmaskarray(masked(tmp_path / "1.nc")[0]))
    netcdf(tmp_path / "2.nc", 2, kind="i2", fill=8)
    plain = intarsia.ingest(tmp_path / "0.nc", tmp_path / "plain", concat_dim="time")
    report = intarsia.ingest(tmp_path / "2.nc", plain.repository, concat_dim="time", nulls=True)
    assert intarsia.open(report.repository, "sst").dtype == np.float32
