"""Every kind of source, read by the program that it belongs to and by us."""

import base64
import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

import intarsia
from intarsia.archives.parse import format_of, parse_all
from intarsia.archives.parsed_file import ParseRequest
from intarsia.archives.source_files import Sources, url_of
from intarsia.errors import ForkedProcessError, IngestError
from tests.archives.files import hdf5, netcdf


def ingested(tmp_path, files, dim="time", name="sst", **options):
    report = intarsia.ingest(files, tmp_path / "repository", concat_dim=dim, **options)
    return report, intarsia.open(report.repository, name)


@pytest.mark.parametrize(
    "version", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4_CLASSIC"]
)
@pytest.mark.parametrize("unlimited", [True, False], ids=["records", "fixed"])
def test_netcdf_of_every_version(tmp_path, version, unlimited):
    attrs = {"scale_factor": np.float32(0.01), "add_offset": np.float32(20)}
    files = [tmp_path / f"{day}.nc" for day in (0, 3)]
    for path, day in zip(files, (0, 3), strict=True):
        netcdf(path, day, steps=3, kind="i2", fill=5, attrs=attrs, version=version, unlimited=unlimited)
    _, sst = ingested(tmp_path, files, copy="never")
    with xr.open_mfdataset(files, engine="netcdf4") as dataset:
        assert sst.dtype == dataset.sst.dtype == np.float32
        assert np.array_equal(np.isnan(sst[...]), np.isnan(dataset.sst.values))
        assert np.nanmax(np.abs(sst[...] - dataset.sst.values)) <= np.spacing(np.float32(21))


def test_remote_files_are_not_parsed_in_forked_processes():
    """The threads that remote stores need do not survive a fork: it would hang."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        with pytest.raises(ForkedProcessError, match="spawn"):
            next(parse_all(["s3://bucket/a.nc"], Sources(), ParseRequest("time"), engine=pool))
        assert not pool._processes


def zarr_store(path, first, zarr_format, **options):
    data = np.random.default_rng(first).normal(280, 5, (4, 6, 8)).astype("f4")
    data[0, 0, 0] = np.nan
    times = xr.date_range("2002-06-01", periods=10, unit="s")[first : first + 4]
    dataset = xr.Dataset({"sst": (("time", "lat", "lon"), data)}, {"time": times})
    dataset.to_zarr(
        path, zarr_format=zarr_format, consolidated=False, encoding={"sst": options} if options else {}
    )
    return data


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_of_both_versions(tmp_path, zarr_format):
    options = {
        "dtype": "i2",
        "scale_factor": 0.01,
        "add_offset": 273.0,
        "_FillValue": -999,
        "chunks": (2, 3, 8),
    }
    paths = [tmp_path / f"{first}.zarr" for first in (0, 4)]
    for path, first in zip(paths, (0, 4), strict=True):
        zarr_store(path, first, zarr_format, **options)
    _, sst = ingested(tmp_path, paths, copy="never")
    with xr.open_mfdataset(paths, engine="zarr", consolidated=False) as dataset:
        assert sst.dtype == dataset.sst.dtype
        assert np.array_equal(np.isnan(sst[...]), np.isnan(dataset.sst.values))
        assert np.nanmax(np.abs(sst[...] - dataset.sst.values)) < 1e-12
    assert len(sst.members) == 1


def test_sharded_zarr(tmp_path):
    data = np.arange(4 * 48, dtype="f8").reshape(4, 6, 8)
    group = zarr.create_group(tmp_path / "0.zarr")
    array = group.create_array(
        "sst",
        shape=data.shape,
        chunks=(1, 3, 4),
        shards=(2, 6, 8),
        dtype="f8",
        dimension_names=("time", "lat", "lon"),
    )
    array[...] = data
    _, sst = ingested(tmp_path, [tmp_path / "0.zarr"], copy="never")
    assert np.array_equal(sst[...], data)


def kerchunk_of(path):
    """References to a NetCDF file, as kerchunk writes them."""
    from kerchunk.hdf import SingleHdf5ToZarr

    with path.open("rb") as file:
        return SingleHdf5ToZarr(file, str(path), inline_threshold=20).translate()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_kerchunk_references(tmp_path):
    files = [tmp_path / f"{day}.nc" for day in range(2)]
    for day, path in enumerate(files):
        netcdf(
            path, day, kind="i2", attrs={"scale_factor": 0.5, "add_offset": 270.0}, fill=-1, chunks=(1, 3, 4)
        )
        path.with_suffix(".json").write_text(json.dumps(kerchunk_of(path)))
    _, sst = ingested(tmp_path, sorted(tmp_path.glob("*.json")), copy="never")
    with xr.open_mfdataset(files) as dataset:
        assert np.array_equal(sst[...], dataset.sst.values, equal_nan=True)
    later = files[1].stat().st_mtime + 5
    os.utime(files[1], (later, later))
    with pytest.raises(intarsia.errors.ReadError, match=r"1\.nc"):  # the file behind the references changed
        sst[...]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_the_fill_value_of_kerchunk_references_means_missing(tmp_path):
    values = netcdf(tmp_path / "0.nc", 0)
    document = kerchunk_of(tmp_path / "0.nc")
    array = json.loads(document["refs"]["sst/.zarray"])
    array["fill_value"] = float(values[0, 1, 2])
    document["refs"]["sst/.zarray"] = json.dumps(array)
    (tmp_path / "0.json").write_text(json.dumps(document))
    _, sst = ingested(tmp_path, tmp_path / "0.json", copy="never")
    assert np.array_equal(sst[...], np.where(values == values[0, 1, 2], np.nan, values), equal_nan=True)


def test_tiff_pictures_become_steps_of_a_new_axis(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 5000, (3, 96, 128)).astype("u2")
    layouts = ({"compression": "deflate"}, {"compression": None}, {"compression": "deflate", "predictor": 2})
    for day, (picture, layout) in enumerate(zip(pictures, layouts, strict=True)):
        tifffile.imwrite(tmp_path / f"2002060{day + 1}.tif", picture, tile=(32, 64), **layout)

    def date(url):
        text = re.search(r"(\d{4})(\d{2})(\d{2})\.tif", url)
        return np.datetime64("-".join(text.groups()))

    report, band = ingested(tmp_path, tmp_path / "*.tif", name="0", coordinate=date)
    assert band.dimension_names == ("time", "y", "x")
    assert np.array_equal(band[...], pictures)
    assert not any(file.reason for file in report.files)
    time = zarr.open_array(report.repository.readonly_session("main").store, path="time", mode="r")
    assert time.attrs["units"] == "nanoseconds since 1970-01-01"
    assert time[...].astype("M8[ns]").astype("M8[D]").tolist() == [
        np.datetime64(f"2002-06-0{day}").item() for day in (1, 2, 3)
    ]


def n5_dataset(path, data, block, compression):
    """An N5 dataset, block by block, as its specification says: column-major, truncated at the edge."""
    import bz2
    import gzip
    import lzma
    import zlib

    packed, kind = {
        "raw": (bytes, {"type": "raw"}),
        "gzip": (gzip.compress, {"type": "gzip"}),
        "zlib": (zlib.compress, {"type": "gzip", "useZlib": True}),
        "zlib-1": (partial(zlib.compress, level=1), {"type": "gzip", "level": 1, "useZlib": True}),
        "bzip2": (bz2.compress, {"type": "bzip2", "blockSize": 9}),
        "xz": (lzma.compress, {"type": "xz", "preset": 6}),
        "xz-0": (partial(lzma.compress, preset=0), {"type": "xz", "preset": 0}),
    }[compression]
    path.mkdir(parents=True)
    attributes = {
        "dimensions": list(data.shape), "blockSize": list(block), "dataType": str(data.dtype),
        "compression": kind, "axes": ["x", "y", "t"],
    }  # fmt: skip
    (path / "attributes.json").write_text(json.dumps(attributes))
    for index in np.ndindex(*(-(-n // b) for n, b in zip(data.shape, block, strict=True))):
        chunk = data[tuple(slice(i * b, (i + 1) * b) for i, b in zip(index, block, strict=True))]
        header = np.array([0, 3], ">u2").tobytes() + np.array(chunk.shape, ">u4").tobytes()
        body = chunk.astype(data.dtype.newbyteorder(">")).tobytes("F")
        target = path.joinpath(*map(str, index))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(header + packed(body))


@pytest.mark.filterwarnings("ignore:Endian.big is deprecated")  # in zarr-n5
@pytest.mark.parametrize("compression", ["raw", "gzip", "zlib", "zlib-1", "bzip2", "xz", "xz-0"])
def test_n5_containers(tmp_path, compression):
    data = np.random.default_rng(1).integers(0, 60000, (10, 7, 6)).astype("uint16")
    for part in range(2):
        root = tmp_path / f"{part}.n5"
        n5_dataset(root / "sst", data[..., 3 * part : 3 * part + 3], (4, 4, 3), compression)
        (root / "attributes.json").write_text('{"n5": "4.0.0"}')
    _, sst = ingested(tmp_path, [tmp_path / "0.n5", tmp_path / "1.n5"], dim="t", copy="never")
    assert sst.dimension_names == ("x", "y", "t")
    assert np.array_equal(sst[...], data)
    assert len(sst.members) == 1


def test_files_with_and_without_the_axis_are_one_array(tmp_path):
    def with_axis(file, shape):
        yield file.create_dataset("sst", data=np.full(shape, 1.0, "f4"), chunks=shape)

    hdf5(tmp_path / "0.h5", 0, with_axis)
    with xr.Dataset({"sst": (("lat", "lon"), np.full((6, 8), 2, "f4"))}, {"time": 1.0}) as dataset:
        dataset.time.attrs["units"] = "days since 2002-06-01"
        dataset.to_netcdf(tmp_path / "1.nc", encoding={"sst": {"_FillValue": None}})
    _, sst = ingested(tmp_path, [tmp_path / "0.h5", tmp_path / "1.nc"])
    assert sst[:, 0, 0].tolist() == [1, 2]


def test_any_virtualizarr_parser_can_be_given(tmp_path):
    from virtualizarr.parsers import NetCDF3Parser

    values = netcdf(tmp_path / "0.nc", 0, version="NETCDF3_CLASSIC")
    _, sst = ingested(tmp_path, [tmp_path / "0.nc"], parser=NetCDF3Parser())
    assert np.array_equal(sst[...], values)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"not a data file at all", "none of HDF5, NetCDF"),
        (b"CDF\x01trunc", "truncated|header"),
        (b"{}", "KerchunkParser cannot find 'refs' in it"),
        (b'{"refs": []}', "KerchunkParser cannot read it"),
        (b'{"refs": {".zgroup": "{}", "v/.zarray": "{}"}}', "cannot find '_ARRAY_DIMENSIONS' in it"),
        (b"II*\0\x08\0\0\0", "."),
        (b"\x89HDF\r\n\x1a\n" + bytes(10), "."),
    ],
)
def test_what_cannot_be_parsed_says_why(tmp_path, content, reason):
    (tmp_path / "bad.nc").write_bytes(content)
    with pytest.raises(IngestError, match=rf"bad\.nc: .*({reason})"):
        ingested(tmp_path, [tmp_path / "bad.nc"])


DEEP = "a value that is 900 lists in one another"


def _made_deep(document, *where):
    """The text of a document with a deep attribute at a place in it."""
    inner = document
    for key in where:
        inner = inner[key]
    inner["history"] = DEEP
    return json.dumps(document).replace(json.dumps(DEEP), "[" * 900 + "]" * 900)


@pytest.mark.filterwarnings("ignore:Endian.big is deprecated")  # in zarr-n5
@pytest.mark.parametrize(
    ("kind", "document", "where", "words"),
    [
        (2, ".zattrs", (), "its attribute 'history' is nested more than 100 deep"),
        (2, "sst/.zattrs", (), "its attribute 'history' of the variable 'sst' is nested"),
        (3, "zarr.json", ("attributes",), "its attribute 'history' is nested"),
        (3, "sst/zarr.json", ("attributes",), "its attribute 'history' of the variable 'sst' is nested"),
        ("n5", "sst/attributes.json", (), "its attribute 'history' of the variable 'sst' is nested"),
    ],
)
def test_attributes_without_a_bottom_are_refused_in_words(tmp_path, kind, document, where, words):
    place = tmp_path / "a.zarr"
    if kind == "n5":
        n5_dataset(place / "sst", np.ones((4, 4, 2), "u2"), (4, 4, 2), "raw")
        (place / "attributes.json").write_text('{"n5": "4.0.0"}')
    else:
        zarr_store(place, 0, kind)
    known = json.loads((place / document).read_text())
    (place / document).write_text(_made_deep(known, *where))
    with pytest.raises(IngestError, match=rf"a\.zarr: {words}"):
        intarsia.ingest(place, "memory://", concat_dim="t" if kind == "n5" else "time")


@pytest.mark.filterwarnings("ignore:Endian.big is deprecated")  # in zarr-n5
def test_chunks_longer_than_can_be_counted_are_refused_with_the_file(tmp_path):
    place = tmp_path / "a.n5" / "sst"
    n5_dataset(place, np.ones((4, 4, 2), "u2"), (4, 4, 2), "raw")
    known = json.loads((place / "attributes.json").read_text()) | {"blockSize": [10**30, 4, 2]}
    (place / "attributes.json").write_text(json.dumps(known))
    with pytest.raises(IngestError, match=rf"sst: the variable 'sst' has a length of {10**30}"):
        intarsia.ingest(place, "memory://", concat_dim="t")


def test_attributes_that_are_nested_like_any_other_are_kept(tmp_path):
    zarr_store(tmp_path / "a.zarr", 0, 3)
    given = {"a": [[1, 2], {"b": [3, {"c": "d"}]}]}
    zarr.open_group(tmp_path / "a.zarr").attrs["history"] = given
    report, _ = ingested(tmp_path, tmp_path / "a.zarr")
    dataset = xr.open_dataset(report.repository, engine="intarsia")
    assert dataset.attrs["history"] == given


@pytest.mark.parametrize("content", ["[]", "{", "{}"])
def test_a_zarr_document_that_is_none_says_so(tmp_path, content):
    (tmp_path / "bad.zarr").mkdir()
    (tmp_path / "bad.zarr/zarr.json").write_text(content)
    with pytest.raises(IngestError, match=r"bad\.zarr: .*Parser cannot (read it|find 'node_type' in it)"):
        ingested(tmp_path, [tmp_path / "bad.zarr"])


def test_a_directory_of_something_else_says_what_it_holds(tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing/readme.txt").write_text("hello")
    with pytest.raises(IngestError, match=r"neither Zarr nor N5 .*readme\.txt"):
        ingested(tmp_path, [tmp_path / "thing"])


def test_an_hdf5_file_behind_a_user_block_is_recognised(tmp_path):
    def build(file, shape):
        yield file.create_dataset("sst", data=np.ones(shape, "f4"), chunks=shape)

    import h5py

    hdf5(tmp_path / "0.h5", 0, build)
    with h5py.File(tmp_path / "1.h5", "w", userblock_size=512) as file:
        file["time"] = [1.0]
    assert format_of(url_of(tmp_path / "1.h5"), Sources(), ParseRequest(())).name == "hdf5"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("v/5.0", r"KerchunkParser cannot read it: one of its arrays has a chunk outside of its shape"),
        ("v/0", r"the reference 'v/0' does not name a chunk of an array with 2 axes"),
    ],
)
def test_references_to_chunks_that_an_array_does_not_have_are_refused(tmp_path, key, words):
    array = {"zarr_format": 2, "shape": [2, 6], "chunks": [1, 3], "dtype": "<f4", "order": "C"}
    array |= {"compressor": None, "filters": None, "fill_value": None}
    (tmp_path / "raw").write_bytes(np.arange(3, dtype="f4").tobytes())
    references = {
        ".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(array),
        "v/.zattrs": '{"_ARRAY_DIMENSIONS": ["time", "x"]}', key: [f"file://{tmp_path}/raw", 0, 12],
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "refs": references}))
    with pytest.raises(IngestError, match=rf"a\.json: {words}"):
        intarsia.ingest(tmp_path / "a.json", tmp_path / "r", concat_dim="time")


@pytest.mark.filterwarnings("ignore:Endian.big is deprecated")  # in zarr-n5
def test_n5_that_holds_no_numbers_is_refused(tmp_path):
    n5_dataset(tmp_path / "a.n5", np.ones((4, 4, 2), "u2"), (4, 4, 2), "raw")
    path = tmp_path / "a.n5" / "attributes.json"
    path.write_text(path.read_text().replace("uint16", "object"))
    with pytest.raises(
        IngestError, match=r"a\.n5: its data type 'object' is not supported, only numbers are"
    ):
        intarsia.ingest(tmp_path / "a.n5", tmp_path / "r", concat_dim="t")


def test_references_to_several_files_may_have_chunks_of_their_own(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(bytes([ord(name)] * 4))
    document = {"zarr_format": 2, "shape": [12], "chunks": [4], "dtype": "|u1", "fill_value": None}
    document |= {"compressor": None, "filters": None, "order": "C"}
    refs = {
        ".zgroup": '{"zarr_format":2}',
        "x/.zarray": json.dumps(document),
        "x/.zattrs": '{"_ARRAY_DIMENSIONS":["n"]}',
        "x/0": [f"file://{tmp_path}/a", 0, 4],
        "x/1": "base64:" + base64.b64encode(b"here").decode(),
        "x/2": [f"file://{tmp_path}/b", 0, 4],
    }
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    report = intarsia.ingest(tmp_path / "refs.json", "memory://", concat_dim="n")
    assert intarsia.open(report.repository, "x")[...].tobytes() == b"aaaaherebbbb"
