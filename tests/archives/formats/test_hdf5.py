"""HDF5: what VirtualiZarr's parser leaves out, each read right; h5py and netCDF4 are the referees."""

import ctypes
import zlib
from functools import partial
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from virtualizarr.parsers import HDFParser

import intarsia
from intarsia.archives.formats.hdf5 import HDF5
from intarsia.archives.parsed_file import ParseRequest
from intarsia.archives.source_files import Sources, url_of
from intarsia.errors import IngestError
from tests.archives.files import hdf5, netcdf


def ingested(tmp_path, files, **options):
    report = intarsia.ingest(files, tmp_path / "repository", concat_dim="time", **options)
    return report, intarsia.open(report.repository, "sst")


def skipping_some_filters(path, first, masks, shape=(1, 6, 8), chunks=(1, 3, 4)):
    """A file of shuffled and deflated chunks, of which some skipped one filter or both."""
    values = np.random.default_rng(first).integers(0, 9, shape).astype("<i4")

    def build(file, shape):
        data = file.create_dataset("sst", shape, "<i4", chunks=chunks, shuffle=True, compression="gzip")
        for i, (a, b) in enumerate(np.ndindex(2, 2)):
            chunk = np.ascontiguousarray(values[:, 3 * a : 3 * a + 3, 4 * b : 4 * b + 4])
            encoded = chunk.tobytes()
            if not masks[i] & 1:
                encoded = np.frombuffer(encoded, "u1").reshape(-1, 4).T.tobytes()
            if not masks[i] & 2:
                encoded = zlib.compress(encoded)
            data.id.write_direct_chunk((0, 3 * a, 4 * b), encoded, masks[i])
        yield data

    hdf5(path, first, build)
    with h5py.File(path) as file:
        assert np.array_equal(file["sst"][...], values)  # HDF5 itself reads them so
    return values


def test_chunks_that_skipped_a_filter_are_read_right(tmp_path):
    values = [
        skipping_some_filters(tmp_path / "0.h5", 0, (0, 0, 0, 0)),
        skipping_some_filters(tmp_path / "1.h5", 1, (0, 2, 3, 1)),
        skipping_some_filters(tmp_path / "2.h5", 2, (2, 2, 2, 2)),
        skipping_some_filters(tmp_path / "3.h5", 3, (0, 0, 2, 0)),
    ]
    report, sst = ingested(tmp_path, sorted(tmp_path.glob("*.h5")), copy="never")
    assert np.array_equal(sst[...], np.concatenate(values))
    assert len(sst.members) == 4  # as many as there are filter masks
    assert {run.codecs for run in report.runs} == {"shuffle+zlib-4", "shuffle", "zlib-4", "raw"}
    assert sst.chunks == (1, 3, 4)


def leaving_edges_bare(path, filters, libver, shape=(2, 5, 7), chunks=(1, 4, 4)):
    """A file whose partial chunks skip all filters, which h5py reads but has no word to write."""
    (library,) = Path(h5py.__file__).parent.with_suffix(".libs").glob("libhdf5-*")
    set_options = ctypes.CDLL(str(library)).H5Pset_chunk_opts
    set_options.argtypes = [ctypes.c_int64, ctypes.c_uint]
    values = np.random.default_rng(1).normal(size=shape).astype("<f4")
    with h5py.File(path, "w", libver=libver, userblock_size=512) as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(chunks)
        for each in filters:
            getattr(plist, f"set_{each}")(*([4] if each == "deflate" else []))
        assert set_options(plist.id, 2) >= 0  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS
        space = h5py.h5s.create_simple(shape)
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"sst", h5py.h5t.IEEE_F32LE, space, plist))
        dataset[...] = values
        dataset.attrs["long"] = "so long that the header goes on elsewhere" * 20
    return values


@pytest.mark.skipif(
    not list(Path(h5py.__file__).parent.with_suffix(".libs").glob("libhdf5-*")),
    reason="this h5py brings no HDF5 library of its own",
)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("filters", [["deflate"], ["shuffle"], ["shuffle", "deflate"]], ids=str)
def test_partial_chunks_that_skip_all_filters_are_read_right(tmp_path, filters, libver):
    values = leaving_edges_bare(tmp_path / "0.h5", filters, libver)
    report = intarsia.ingest(tmp_path / "0.h5", "memory://", concat_dim="phony_dim_0", copy="never")
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], values)
    assert len(sst.members) == 2


def test_virtualizarr_alone_misreads_chunks_that_skipped_a_filter(tmp_path):
    skipping_some_filters(tmp_path / "1.h5", 1, (0, 2, 3, 1))
    sources = Sources()
    url = url_of(tmp_path / "1.h5")
    sources.resolve(url)
    import zarr

    array = zarr.open_array(HDFParser()(url, sources.registry), path="sst", mode="r")
    with pytest.raises(Exception, match=r"decompress|header|inflat"):
        array[...]


def test_a_finer_lattice_is_made_when_a_later_file_needs_it(tmp_path):
    whole = skipping_some_filters(tmp_path / "0.h5", 0, (0, 0, 0, 0))
    full = np.arange(48, dtype="<i4").reshape(1, 6, 8)

    def build(file, shape):
        yield file.create_dataset("sst", data=full, chunks=(1, 6, 8), shuffle=True, compression="gzip")

    hdf5(tmp_path / "1.h5", 1, build)
    _, sst = ingested(tmp_path, [tmp_path / "1.h5"])
    assert sst.chunks == (1, 6, 8)
    values = skipping_some_filters(tmp_path / "2.h5", 2, (0, 3, 0, 0))
    _, sst = ingested(tmp_path, [tmp_path / "0.h5", tmp_path / "2.h5"])
    assert sst.chunks == (1, 3, 4)
    assert np.array_equal(sst[...], np.concatenate([whole, full, values]))


def test_data_in_the_object_header_are_copied_not_taken_for_missing(tmp_path):
    values = np.arange(48, dtype="f4").reshape(1, 6, 8)

    def build(file, shape):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(shape)
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"sst", h5py.h5t.NATIVE_FLOAT, space, plist))
        dataset[...] = values
        yield dataset

    hdf5(tmp_path / "0.h5", 0, build)
    report, sst = ingested(tmp_path, [tmp_path / "0.h5"])
    assert np.array_equal(sst[...], values)
    assert "compact" in report.files[0].reason
    hdf5(tmp_path / "1.h5", 1, build)
    with pytest.raises(IngestError, match=r"1\.h5: 'sst'.*compact.*copy='never'"):
        ingested(tmp_path, [tmp_path / "1.h5"], copy="never")


@pytest.mark.parametrize(
    "filters", [{"scaleoffset": 0}, {"compression": "szip"}], ids=["scaleoffset", "szip"]
)
def test_filters_without_a_codec_are_copied_and_the_reason_reported(tmp_path, filters):
    if filters.get("compression") == "szip" and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        pytest.skip("this HDF5 was built without szip")
    values = np.arange(48, dtype="i4").reshape(1, 6, 8)

    def build(file, shape):
        yield file.create_dataset("sst", data=values, chunks=(1, 4, 4), **filters)
        yield file.create_dataset("plain", data=values, chunks=(1, 4, 4), compression="gzip")

    hdf5(tmp_path / "0.h5", 0, build)
    report, sst = ingested(tmp_path, [tmp_path / "0.h5"])
    assert np.array_equal(sst[...], values)
    assert report.files[0].reason.startswith("'sst' copied")
    assert report.summary == "1 added; 192 B copied"
    assert "'plain'" not in report.files[0].reason


def test_copies_of_packed_numbers_decode_like_references(tmp_path):
    attrs = {"scale_factor": np.float64(0.01), "add_offset": np.float64(280)}
    netcdf(tmp_path / "0.nc", 0, kind="i2", fill=7, attrs=attrs, steps=3, chunks=(2, 6, 8))
    by_reference = ingested(tmp_path, [tmp_path / "0.nc"])[1][...]
    report = intarsia.ingest(tmp_path / "0.nc", tmp_path / "copies", concat_dim="time", copy="all")
    (tmp_path / "0.nc").unlink()  # a copy needs no source
    copy = intarsia.open(report.repository, "sst")
    assert np.array_equal(copy[...], by_reference, equal_nan=True)
    assert "copy='all'" in str(report)


@pytest.mark.parametrize("layout", ["contiguous", "never written", "partly written", "unlimited"])
def test_layouts(tmp_path, layout):
    values = np.arange(2 * 48, dtype="f8").reshape(2, 6, 8)

    def build(file, shape):
        if layout == "contiguous":
            dataset = file.create_dataset("sst", data=values)
        elif layout == "unlimited":
            dataset = file.create_dataset(
                "sst", data=values, maxshape=(None, 6, 8), chunks=(512, 6, 8), compression="gzip"
            )
        else:
            dataset = file.create_dataset(
                "sst", shape, "f8", chunks=(1, 3, 8), fillvalue=-5, compression="gzip"
            )
            if layout == "partly written":
                dataset[1, 3:] = values[1, 3:]
        yield dataset

    hdf5(tmp_path / "0.h5", 0, build, steps=2)
    hdf5(tmp_path / "1.h5", 2, build, steps=2)
    files = [tmp_path / "0.h5", tmp_path / "1.h5"]
    _, sst = ingested(tmp_path, files, copy="never")
    expected = []
    for path in files:
        with h5py.File(path) as file:
            expected.append(file["sst"][...])
    assert np.array_equal(sst[...], np.concatenate(expected))
    assert len(sst.members) == 1


def test_texts_are_taken_as_they_are(tmp_path):
    texts = np.array([[["a", "bb"], ["ccc", ""]]], dtype=object)

    def build(file, shape):
        yield file.create_dataset("sst", data=texts, dtype=h5py.string_dtype(), chunks=(1, 1, 2))

    hdf5(tmp_path / "0.h5", 0, build, grid=(2, 2))
    report, sst = ingested(tmp_path, [tmp_path / "0.h5"])
    assert sst[...].tolist() == texts.tolist()
    assert "'sst' copied" in report.files[0].reason


def test_attributes_keep_their_types(tmp_path):
    netcdf(tmp_path / "0.nc", 0, kind="i2", attrs={"scale_factor": np.float32(0.01)})
    parsed = HDF5().parse(url_of(tmp_path / "0.nc"), Sources(), ParseRequest("time"))
    assert parsed.variables["sst"].attrs["scale_factor"].dtype == np.float32
    assert parsed.variables["sst"].attrs["units"] == "kelvin"
    assert set(parsed.variables) == {"time", "lat", "sst"}  # lon is a dimension, not a variable


def test_a_group_of_a_file(tmp_path):
    for day in range(2):
        with netCDF4.Dataset(tmp_path / f"{day}.nc", "w") as file:
            group = file.createGroup("PRODUCT")
            group.createDimension("time", 1)
            group.createDimension("n", 5)
            group.createVariable("time", "f8", ("time",))[:] = [day]
            for name in ("sst", "other"):
                group.createVariable(name, "f4", ("time", "n"))[:] = np.full((1, 5), day)
    _, sst = ingested(tmp_path, sorted(tmp_path.glob("*.nc")), parser=HDF5("PRODUCT"))
    assert sst[...].tolist() == [[0] * 5, [1] * 5]
    ingest = partial(
        intarsia.ingest, tmp_path / "*.nc", tmp_path / "other", concat_dim="time", variables="sst"
    )
    with pytest.raises(IngestError, match="variables= names those to take"):
        ingest(parser=HDFParser(drop_variables=["other"]))
    report = ingest(parser=HDFParser(group="PRODUCT"))
    assert list(xr.open_dataset(report.repository, engine="intarsia")) == ["sst"]
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], sst[...])


def grouped(path, day):
    """A file whose data are in a group two levels below the time that they go along."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",))[:] = [day]
        group = file.createGroup("PRODUCT")
        group.product = "sea"
        group.createDimension("n", 5)
        group.createVariable("sst", "f4", ("time", "n"))[:] = np.full((1, 5), day)
        deeper = group.createGroup("DETAILS")
        deeper.createVariable("error", "i2", ("time", "n"), zlib=True)[:] = np.full((1, 5), 10 * day)


def test_coordinates_of_groups_above_hold_for_those_below(tmp_path):
    for day in (1, 0):  # against the order of the names
        grouped(tmp_path / f"{1 - day}.nc", day)
    for place, name in (("PRODUCT", "sst"), ("/PRODUCT/DETAILS/", "error")):
        report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time", source_group=place)
        opened = xr.open_dataset(report.repository, engine="intarsia")
        assert opened.time.values.tolist() == [0, 1]
        with xr.open_dataset(tmp_path / "0.nc", group=place) as one:
            np.testing.assert_array_equal(opened[name][1], one[name][0])
            assert opened[name].dims == one[name].dims == ("time", "n")
            assert opened.attrs == one.attrs


def test_data_in_groups_are_told_of(tmp_path):
    grouped(tmp_path / "0.nc", 0)
    with pytest.raises(
        IngestError, match=r"0\.nc: it has no data along 'time', .*'PRODUCT', 'PRODUCT/DETAILS'"
    ):
        intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    with pytest.raises(IngestError, match=r"0\.nc: it has no group 'PRODUKT'"):
        intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", source_group="PRODUKT")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_group_of_a_zarr_hierarchy(tmp_path, zarr_format):
    values = np.arange(1.0, 7).reshape(2, 3)
    xr.Dataset({"sst": (("time", "n"), values)}, {"time": [0, 1]}, {"product": "sea"}).to_zarr(
        tmp_path / "0.zarr", group="PRODUCT", zarr_format=zarr_format, consolidated=False
    )
    with pytest.raises(IngestError, match=r"it has no data along 'time', .*'PRODUCT'"):
        intarsia.ingest(tmp_path / "0.zarr", "memory://", concat_dim="time")
    report = intarsia.ingest(tmp_path / "0.zarr", "memory://", concat_dim="time", source_group="PRODUCT")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    np.testing.assert_array_equal(opened.sst, values)
    assert opened.attrs == {"product": "sea"}
    report = intarsia.ingest(
        tmp_path / "0.zarr", "memory://", concat_dim="time", source_group="PRODUCT", copy="all"
    )
    np.testing.assert_array_equal(intarsia.open(report.repository, "sst"), values)


@pytest.mark.parametrize("scale", [np.float32, np.float64])
def test_the_type_of_the_scale_decides_as_in_xarray(tmp_path, scale):
    files = [tmp_path / f"{day}.nc" for day in range(2)]
    attrs = {"scale_factor": scale(0.01), "add_offset": scale(273.15)}
    for day, path in enumerate(files):
        netcdf(path, day, kind="i2", fill=-1, attrs=attrs)
    _, sst = ingested(tmp_path, files)
    with xr.open_mfdataset(files) as dataset:
        assert sst.dtype == dataset.sst.dtype == scale
        assert np.array_equal(sst[...], dataset.sst.values, equal_nan=True)


def test_a_dataset_without_a_data_space_is_left_out_by_name(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(4.0)
        file.create_dataset("note", data=h5py.Empty("f4"))
    report = intarsia.ingest(tmp_path / "a.h5", tmp_path / "r", concat_dim="step")
    assert "no data space" in report.left_out["note"]
    assert intarsia.open(report.repository, "x")[0].tolist() == [0, 1, 2, 3]


def test_axes_without_scales_are_named_by_size_as_h5netcdf_names_them(tmp_path):
    for k in range(2):
        with h5py.File(tmp_path / f"{k}.h5", "w") as file:
            file["image"] = np.full((4, 6), k)
            file["spectrum"] = np.arange(9.0) + k
            file["square"] = np.zeros((6, 6))
    report = intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", concat_dim="shot")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    one = xr.open_dataset(tmp_path / "1.h5", engine="h5netcdf", phony_dims="access")
    xr.testing.assert_equal(opened.isel(shot=1), one)


@pytest.mark.parametrize(("first", "second"), [(5, 10), (10, 5)])
def test_a_phony_dimension_holds_what_has_its_size(tmp_path, first, second):
    for k in range(2):
        with h5py.File(tmp_path / f"{k}.h5", "w") as file:
            file["b"] = np.arange(float(first)) + 100 * k
            file["c"] = np.arange(float(second))
    report = intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", concat_dim="phony_dim_0")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    assert opened["b"].values.tolist() == [*range(first), *range(100, 100 + first)]
    assert opened["c"].values.tolist() == [*range(second)]


def test_a_type_that_h5py_does_not_know_spoils_no_other_variable(tmp_path):
    long = h5py.h5t.IEEE_F64LE.copy()  # a float of 128 bits, as other machines have it
    long.set_size(16)
    long.set_precision(128)
    long.set_fields(127, 112, 15, 0, 112)
    long.set_ebias(16383)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.arange(3.0)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"moments", h5py.h5t.UNIX_D32LE, space)
        h5py.h5d.create(file.id, b"long", long, space)
    report = intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="n")
    for name in ("moments", "long"):
        assert "h5py cannot read its type" in report.left_out[name]
    assert intarsia.open(report.repository, "v")[...].tolist() == [[0, 1, 2]]


def test_a_file_without_variables_is_refused_in_words(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["title"] = "nothing"
        file["x"] = 1.0
    with pytest.raises(IngestError, match=r"a\.h5: it has no variable that fits along 'n'"):
        intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="n")


def test_a_variable_that_is_called_like_a_dimension_of_others_has_its_name(tmp_path):
    for i in range(2):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createDimension("x", 3)
            file.createVariable("time", "i4", ("time",))[:] = i
            file.createVariable("v", "f4", ("time", "x"))[:] = i
            file.createVariable("x", "f4", ("time",))[:] = 10 + i
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim="time", copy="never")
    assert intarsia.open(report.repository, "x")[...].tolist() == [10, 11]
    assert intarsia.open(report.repository, "v").shape == (2, 3)
