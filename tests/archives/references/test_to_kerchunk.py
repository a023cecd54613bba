"""References of kerchunk: what programs without intarsia read from them is what intarsia reads."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.errors import IngestError, UnreachableMembersError
from tests.archives.files import hdf5, netcdf


@pytest.fixture
def archive(tmp_path):
    """Three encodings: two packings, one with other chunks, and plain floats; coordinates and a hole."""
    packed = {"scale_factor": 0.01, "add_offset": 270.0}
    netcdf(tmp_path / "0.nc", 0, steps=2, kind="i2", attrs=packed, fill=-1, chunks=(1, 6, 8))
    netcdf(tmp_path / "1.nc", 2, steps=2, kind="i2", attrs=packed, fill=-1, chunks=(1, 6, 8))
    other = {"scale_factor": 0.02, "add_offset": 270.0}
    netcdf(tmp_path / "2.nc", 4, steps=3, kind="i2", attrs=other, fill=-2, chunks=(1, 3, 4), shuffle=False)
    netcdf(tmp_path / "3.nc", 7, steps=2, kind="f4", chunks=(2, 6, 8), compression=None)
    return intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time").repository


def test_every_run_is_what_intarsia_reads(archive, tmp_path):
    pytest.importorskip("kerchunk")
    written = intarsia.archives.to_kerchunk(archive, "", tmp_path / "out/refs.json")
    assert [each.bounds for each in written] == [{"time": (0, 4)}, {"time": (4, 7)}, {"time": (7, 9)}]
    assert [each.chunks for each in written] == [4, 12, 1]
    dataset = xr.open_dataset(archive, engine="intarsia")
    for each in written:
        with xr.open_dataset(each.path, engine="kerchunk") as foreign:
            expected = dataset.isel(time=slice(*each.bounds["time"]))
            assert foreign["sst"].dims == ("time", "lat", "lon")
            np.testing.assert_allclose(foreign["sst"].values, expected["sst"].values, rtol=1e-6)
            assert foreign["time"].values.tolist() == expected["time"].values.tolist()
            assert np.array_equal(foreign["lat"], expected["lat"])
            assert foreign["sst"].attrs == expected["sst"].attrs


def test_one_run_is_one_file_with_the_name_that_was_given(tmp_path):
    netcdf(tmp_path / "a b.nc", 0)
    repo = intarsia.ingest(tmp_path / "a b.nc", tmp_path / "r", concat_dim="time").repository
    (written,) = intarsia.archives.to_kerchunk(repo, file=tmp_path / "refs.json")
    assert written.path == str(tmp_path / "refs.json")
    refs = json.loads((tmp_path / "refs.json").read_text())["refs"]
    assert refs["sst/0.0.0"][0] == str(tmp_path / "a b.nc")
    assert json.loads(refs["sst/.zarray"])["compressor"]["id"] == "zlib"


def test_what_cannot_be_expressed_is_refused_before_anything_is_written(archive, tmp_path):
    with intarsia.transaction(archive, message="another codec") as tx:
        conditional = intarsia.codecs.ConditionalCodec(codecs=[zarr.codecs.GzipCodec()])
        tx.open("sst").recode([(7, 9), (0, 6), (0, 8)], codecs=[conditional])
    with pytest.raises(UnreachableMembersError, match=r"(?s)conditional.*intarsia\.export"):
        intarsia.archives.to_kerchunk(archive, "", tmp_path / "refs.json")
    assert not list(tmp_path.glob("refs*"))
    with pytest.raises(IngestError, match="no dataset"):
        intarsia.archives.to_kerchunk(archive, "nowhere", tmp_path / "refs.json")


def test_data_that_were_copied_stand_in_the_references(tmp_path):
    pytest.importorskip("kerchunk")
    netcdf(tmp_path / "0.nc", 0)
    repo = intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time", copy="all").repository
    (written,) = intarsia.archives.to_kerchunk(repo, file=tmp_path / "refs.json")
    assert written.chunks == 0
    (tmp_path / "0.nc").unlink()
    with xr.open_dataset(written.path, engine="kerchunk") as foreign:
        assert np.array_equal(foreign["sst"], intarsia.open(repo, "sst")[...])


def test_parquet_says_the_same_as_json(archive, tmp_path):
    pytest.importorskip("pyarrow")
    reference = pytest.importorskip("fsspec.implementations.reference")
    documents = intarsia.archives.to_kerchunk(archive, "", tmp_path / "refs.json")
    tables = intarsia.archives.to_kerchunk(archive, "", tmp_path / "refs.parquet", parquet=True)
    for document, table in zip(documents, tables, strict=True):
        by_json = reference.ReferenceFileSystem(document.path)
        by_parquet = reference.ReferenceFileSystem(
            reference.LazyReferenceMapper(table.path, engine="pyarrow")
        )
        keys = [key for key in json.loads(Path(document.path).read_text())["refs"] if not key.startswith(".")]
        assert len(keys) > document.chunks
        for key in keys:
            if key.endswith((".zarray", ".zattrs")):
                assert json.loads(by_parquet.cat(key)) == json.loads(by_json.cat(key))
            else:
                assert by_parquet.cat(key) == by_json.cat(key)


def test_signs_marks_and_holes_are_those_of_the_files(tmp_path):
    with netCDF4.Dataset(tmp_path / "0.nc", "w") as file:
        for name, size in (("time", 1), ("x", 6)):
            file.createDimension(name, size)
        file.createVariable("time", "i4", ("time",))[:] = 0
        v = file.createVariable("v", "i1", ("time", "x"))
        v.set_auto_maskandscale(False)
        v[:] = [[-1, -2, -3, 4, 5, 6]]
        v.setncatts({"_Unsigned": "true", "scale_factor": np.float32(0.5)})
    xr.Dataset({"w": ("time", [1.0])}, {"time": [1]}).to_netcdf(tmp_path / "1.nc")
    options = {"concat_dim": "time", "missing": "fill", "variables": ["v", "w"], "copy": "never"}
    repo = intarsia.ingest([tmp_path / "0.nc", tmp_path / "1.nc"], "memory://", **options).repository
    parts = intarsia.archives.to_kerchunk(repo, "", tmp_path / "refs.json")
    whole = xr.open_dataset(repo, engine="intarsia")
    for part in parts:
        with xr.open_dataset(part.path, engine="kerchunk") as found:
            expected = whole.isel(time=slice(*part.bounds["time"]))
            np.testing.assert_array_equal(found.v, expected.v)
            np.testing.assert_array_equal(found.w, expected.w)
    assert whole.v.values[0].tolist() == [127.5, 127, 126.5, 2, 2.5, 3]


def test_coordinates_keep_their_fill_values(tmp_path):
    pytest.importorskip("kerchunk")
    netcdf(tmp_path / "0.nc", 0)
    with xr.open_dataset(tmp_path / "0.nc") as dataset:
        dataset.load().to_netcdf(tmp_path / "1.nc", encoding={"lat": {"_FillValue": np.float32(-1)}})
    repo = intarsia.ingest(tmp_path / "1.nc", tmp_path / "r", concat_dim="time").repository
    (written,) = intarsia.archives.to_kerchunk(repo, file=tmp_path / "refs.json")
    with (
        xr.open_dataset(written.path, engine="kerchunk") as foreign,
        xr.open_dataset(tmp_path / "1.nc") as own,
    ):
        xr.testing.assert_equal(foreign, own)
        assert foreign.lat.encoding["_FillValue"] == -1


def half_stored(folder, attrs):
    """Two files of integers that begin at zero, of which only one of two chunks is stored."""

    def build(file, shape):
        data = file.create_dataset("sst", shape=shape, dtype="i2", chunks=(1, 3, 8))
        data[:, :3] = np.arange(24).reshape(1, 3, 8)
        data.attrs.update(attrs)
        yield data

    for day in range(2):
        hdf5(folder / f"{day}.h5", day, build)
    return intarsia.ingest(folder / "*.h5", folder / "r", concat_dim="time").repository


def test_zeros_and_chunks_that_no_file_stores_are_not_missing(tmp_path):
    pytest.importorskip("kerchunk")
    repo = half_stored(tmp_path, {})
    (written,) = intarsia.archives.to_kerchunk(repo, file=tmp_path / "refs.json")
    with (
        xr.open_dataset(written.path, engine="kerchunk") as foreign,
        xr.open_dataset(repo, engine="intarsia") as own,
    ):
        xr.testing.assert_equal(foreign.load(), own.load())
        assert foreign.sst.dtype == "i2"


def test_chunks_that_are_not_stored_are_refused_if_they_would_be_missing(tmp_path):
    repo = half_stored(tmp_path, {"_FillValue": np.int16(-1)})
    with pytest.raises(UnreachableMembersError, match=r"(?s)not stored.*intarsia\.export"):
        intarsia.archives.to_kerchunk(repo, file=tmp_path / "refs.json")


GDAL = """
import sys, numpy, rasterio
for path, expected in zip(sys.argv[1::2], sys.argv[2::2]):
    with rasterio.open(f'ZARR:"{path}":/sst') as part:
        stored = part.read().astype("f8")
        values = stored * part.scales[0] + part.offsets[0]
        assert numpy.allclose(values, numpy.load(expected)), path
print("equal")
"""


def test_gdal_reads_every_run(archive, tmp_path):
    if find_spec("rasterio") is None:
        pytest.skip("GDAL comes with rasterio, which is not installed")
    arguments = []
    for each in intarsia.archives.to_kerchunk(archive, "", tmp_path / "refs.json"):
        np.save(f"{each.path}.npy", intarsia.open(archive, "sst")[slice(*each.bounds["time"])])
        arguments += [each.path, f"{each.path}.npy"]
    # In a process of its own: it brings libraries that others here bring, too.
    command = [sys.executable, "-W", "ignore", "-c", GDAL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr


WHICH_GDAL_READS = """
import sys, numpy, rasterio
expected = numpy.load(sys.argv[1])
for path in sys.argv[2:]:
    try:
        with rasterio.open(f'ZARR:"{path}":/sst') as part:
            assert numpy.array_equal(part.read(), expected), path
            print(path)
    except rasterio.errors.RasterioIOError:
        pass
"""

HDF5 = {"shuffle": {"compression": "gzip", "shuffle": True}, "fletcher32": {"fletcher32": True}}
FORMAT_2 = ("blosc", "zlib", "gzip", "lz4", "lzma", "zstd", "bz2", "crc32")


def test_lint_names_what_gdal_cannot_read(tmp_path):
    if find_spec("rasterio") is None:
        pytest.skip("GDAL comes with rasterio, which is not installed")
    values, named, references = np.arange(64 * 64, dtype="i4").reshape(1, 64, 64), set(), {}
    np.save(tmp_path / "values.npy", values)
    for codec in (*HDF5, *FORMAT_2):
        file = str(tmp_path / codec)
        if codec in HDF5:
            with h5py.File(file, "w") as source:
                source.create_dataset("sst", data=values, chunks=(1, 32, 32), **HDF5[codec])
                source["time"] = np.arange(1)
                source["time"].make_scale("time")
                source["sst"].dims[0].attach_scale(source["time"])
        else:
            ds = xr.Dataset({"sst": (("time", "y", "x"), values)}, {"time": np.arange(1)})
            encoding = {"chunks": (1, 32, 32), "compressors": numcodecs.get_codec({"id": codec})}
            ds.to_zarr(file, zarr_format=2, encoding={"sst": encoding}, consolidated=False)
        report = intarsia.archives.lint(file, concat_dim="time")
        named |= {codec for each in report.drifts if (each.kind, each.variable) == ("GDAL", "sst")}
        report = intarsia.ingest(file, tmp_path / f"{codec}.repository", concat_dim="time")
        (part,) = intarsia.archives.to_kerchunk(report.repository, file=f"{file}.json")
        references[part.path] = codec
    command = [sys.executable, "-W", "ignore", "-c", WHICH_GDAL_READS, tmp_path / "values.npy", *references]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert named == set(references.values()) - {references[path] for path in done.stdout.split()}
    assert named == {"fletcher32", "lz4", "bz2", "crc32"}


@pytest.mark.parametrize("codec", [zarr.codecs.BloscCodec, zarr.codecs.GzipCodec, zarr.codecs.ZstdCodec])
def test_codecs_of_format_3_have_their_names_in_format_2(tmp_path, codec):
    dataset = xr.Dataset({"sst": (("time", "x"), np.arange(12.0).reshape(2, 6))}, {"time": np.arange(2)})
    dataset.to_zarr(
        tmp_path / "a.zarr", zarr_format=3, consolidated=False, encoding={"sst": {"compressors": codec()}}
    )
    repo = intarsia.ingest(tmp_path / "a.zarr", "memory://", concat_dim="time").repository
    (written,) = intarsia.archives.to_kerchunk(repo, file=tmp_path / "refs.json")
    with xr.open_dataset(written.path, engine="kerchunk") as foreign:
        xr.testing.assert_equal(foreign.load(), dataset)
