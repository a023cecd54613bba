"""Arrays of any format become logical arrays with the same values, in one commit, in a good encoding; what is
misspelt on the way, or something else, is said so."""

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from tests.logical.stores import memory


def repository():
    return intarsia.open_repository("memory://", create=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("inside", ["", "group/temperature"])
def test_formats_two_and_three_in_a_group_or_alone(zarr_format, inside, tmp_path):
    values = np.round(np.random.default_rng(0).random((40, 50)), 1).astype("f4")
    extra = {"dimension_names": ("y", "x")} if zarr_format == 3 else {}
    attributes = {"units": "K"} | ({} if extra else {"_ARRAY_DIMENSIONS": ["y", "x"]})
    place = tmp_path / "temperature.zarr"
    if inside:
        zarr.create_group(place, zarr_format=zarr_format)
    zarr.create_array(
        place, name=inside or None, data=values, chunks=(20, 25), fill_value=7, zarr_format=zarr_format,
        attributes=attributes, **extra,
    )  # fmt: skip
    repo = repository()
    array = intarsia.convert(place, repo, source_path=inside, objective="size")
    assert array.path == "temperature"
    np.testing.assert_array_equal(array[...], values)
    assert (array.chunks, array.fill_value, array.dimension_names) == ((20, 25), 7, ("y", "x"))
    assert dict(array.attrs) == {"units": "K"}
    assert array.regions[0].nbytes_stored < values.nbytes / 2  # the advised codecs
    assert len(intarsia.history(repo, "temperature")) == 1
    assert intarsia.verify(repo) == ()


def test_codecs_and_chunks_are_kept_or_given():
    z = zarr.create_array(
        memory(),
        data=np.arange(64).reshape(8, 8),
        chunks=(2, 4),
        shards=(4, 8),
        compressors=zarr.codecs.GzipCodec(),
    )
    kept = intarsia.convert(z, memory(), "a", codecs=None)
    assert (kept.chunks, kept.members[kept.regions[0].name].shards) == ((2, 4), (4, 8))
    assert kept.regions[0].codec_names == "gzip"
    other = intarsia.convert(z, memory(), "a", codecs="zstd", chunks=(8, 8))
    assert (other.chunks, other.regions[0].chunks, other.regions[0].codec_names) == ((8, 8), (8, 8), "zstd")
    assert other.members[other.regions[0].name].shards is None
    for array in (kept, other):
        np.testing.assert_array_equal(array[...], z[...])


def test_a_group_becomes_a_dataset_that_xarray_opens(tmp_path):
    data = xr.Dataset(
        {"t": (("time", "x"), np.arange(12.0).reshape(3, 4))},
        {"time": [0, 1, 2], "x": np.arange(4.0)},
        {"a": 1},
    )
    data.to_zarr(tmp_path / "old.zarr", zarr_format=2, consolidated=False)
    repo = repository()
    made = intarsia.convert(tmp_path / "old.zarr", repo, "set")
    assert sorted(made) == ["set/t"]
    with xr.open_dataset(repo, engine="intarsia", group="set") as opened:
        xr.testing.assert_identical(opened.load(), data)


def test_texts_nulls_and_logical_arrays_are_converted():
    texts = zarr.create_array({}, data=np.array(["a", "bb"], dtype="T"), chunks=1)
    assert intarsia.convert(texts, memory(), "t")[...].tolist() == ["a", "bb"]
    nulls = intarsia.nullable.create_array({}, shape=3, dtype="i2", chunks=2)
    nulls[...] = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    assert intarsia.convert(nulls, memory(), "n")[...].tolist() == [1, None, 3]
    logical = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="u1")
    logical.append([1, 2, 3], codecs=["gzip"])
    logical.append([4], codecs=["zstd"])
    assert len(intarsia.convert(logical, memory(), "b").regions) == 1


def test_refusals_write_nothing(tmp_path):
    store = memory()
    z = zarr.create_array({}, data=np.arange(4))
    intarsia.convert(z, store, "a")
    with pytest.raises(intarsia.errors.OverwriteError, match="already"):
        intarsia.convert(z, store, "a")
    with pytest.raises(intarsia.errors.ShapeError, match="no name of its own"):
        intarsia.convert(z, store)
    with pytest.raises(intarsia.errors.CodecConfigurationError, match="did you mean 'gzip'"):
        intarsia.convert(z, store, "b", codecs=["gzp"])
    assert sorted(zarr.open_group(store, mode="r").keys()) == ["a"]
    with pytest.raises(ValueError, match="pattern of names"):
        intarsia.convert(z, str(tmp_path / "*.zarr"), "a")


@given(st.lists(st.integers(0, 6), min_size=0, max_size=3), st.data())
def test_any_shape(shape, data):
    chunks = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    values = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    z = zarr.create_array({}, shape=shape, chunks=chunks, dtype="i4")
    z[...] = values
    array = intarsia.convert(z, memory(), "a", codecs=["zstd"])
    np.testing.assert_array_equal(array[...], values)
    assert array.chunks == chunks


def test_a_misspelt_dimension_or_variable_is_named_with_the_nearest(tmp_path):
    for day in range(2):
        data = xr.Dataset({"sst": (("time", "x"), np.full((1, 4), day, "f4"))}, {"time": [day]})
        data.to_netcdf(tmp_path / f"{day}.nc", engine="h5netcdf")
    for options, words in (
        ({"concat_dim": "Time"}, r"no dimension 'Time': did you mean 'time'\? There are"),
        ({"concat_dim": "time", "variables": ["stt"]}, r"no variable 'stt': did you mean 'sst'\?"),
    ):
        with pytest.raises(intarsia.errors.IngestError, match=words):
            intarsia.ingest(f"{tmp_path}/*.nc", repository(), **options)


def test_a_plain_array_alone_is_told_from_other_things(tmp_path):
    zarr.create_array(tmp_path / "new.zarr", data=np.arange(6).reshape(2, 3), chunks=(1, 3))
    zarr.create_array(tmp_path / "old.zarr", data=np.arange(6), zarr_format=2)
    xr.Dataset({"new": ("dim_0", np.arange(6))}).to_netcdf(tmp_path / "new.nc")
    report = intarsia.ingest(tmp_path / "new.nc", repository(), concat_dim="dim_0")
    for name in ("new.zarr", "old.zarr"):
        with pytest.raises(intarsia.errors.NotLogicalArrayError, match=r"intarsia\.convert"):
            intarsia.open(tmp_path / name)
        with pytest.raises(intarsia.errors.RepositoryNotFoundError, match="is a plain Zarr store"):
            intarsia.open_repository(tmp_path / name)
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match=r"no Zarr group at .nowhere."):
        xr.open_dataset(report.repository, engine="intarsia", group="nowhere")
    prefix, *_ = intarsia.archives.containers(report.repository)
    granted = intarsia.archives.authorize(report.repository, prefix)  # one prefix is no list of characters
    assert prefix in granted.authorized_virtual_container_prefixes
    with pytest.raises(intarsia.errors.ReadOnlyError, match=r"intarsia\.transaction"):
        intarsia.open(granted, "new")[0] = 1
