"""Datasets into repositories and back: what xarray's own tests ask of a backend, where it applies."""

import threading

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import intarsia
import intarsia.interop.xarray
from intarsia.logical.attributes import UNLIMITED_KEY
from tests.interop.datasets import CODECS, stored_in_parts, weather


def round_trip(dataset, **options):
    store = zarr.storage.MemoryStore()
    save = {key: options.pop(key) for key in ("encoding", "unlimited_dims", "codecs") if key in options}
    intarsia.from_xarray(dataset, store, **save)
    return xr.open_dataset(store, engine="intarsia", **options)


def check(dataset, **options):
    with round_trip(dataset, **options) as actual:
        xr.testing.assert_identical(actual.load(), dataset)
        for name in dataset.variables:
            assert actual[name].dtype == dataset[name].dtype
        return actual


# Round trips


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_every_numeric_type_comes_back(dtype):
    check(xr.Dataset({"v": (("x", "y"), np.arange(12).reshape(3, 4).astype(dtype))}))


def test_big_endian_values_come_back_as_numbers():
    actual = round_trip(xr.Dataset({"v": ("x", np.array([1.5, 2.5], ">f4"))}))
    assert actual["v"].dtype == "f4"
    assert actual["v"].values.tolist() == [1.5, 2.5]


def test_missing_values_come_back():
    check(xr.Dataset({"v": ("x", [1.0, np.nan, 3.0]), "w": ("x", np.array([np.nan] * 3, "f4"))}))


def test_attributes_come_back():
    attributes = {
        "text": "a",
        "number": 1,
        "float": 1.5,
        "list": [1, 2],
        "array": np.arange(3),
        "numpy": np.int32(7),
    }
    dataset = xr.Dataset({"v": ("x", [1, 2], attributes)}, attrs={"title": "all", "history": ["a", "b"]})
    actual = round_trip(dataset)
    assert actual.attrs == dataset.attrs
    assert actual["v"].attrs == attributes | {"array": [0, 1, 2], "numpy": 7}


def test_scalars_and_empty_arrays_come_back():
    check(
        xr.Dataset(
            {
                "scalar": ((), 3.5),
                "none": (("x", "nothing"), np.empty((2, 0))),
                "text": ((), "word"),
            }
        )
    )


def test_an_empty_dataset_comes_back():
    check(xr.Dataset(attrs={"title": "nothing"}))


@pytest.mark.filterwarnings("ignore:The data type .NullTerminatedBytes")  # zarr's, for fixed-length bytes
@pytest.mark.parametrize(
    "values",
    [
        ["a", "bcd", "äöü"],
        np.array([b"ab", b"c"]),
        pytest.param(
            np.array(["ab", "c"], "T"),
            marks=pytest.mark.skipif(xr.__version__ < "2026.9", reason="older xarray makes them U"),
        ),
    ],
)
def test_strings_come_back(values):
    check(xr.Dataset({"v": ("x", values)}, {"x": np.arange(len(values))}))


def test_coordinates_without_a_dimension_come_back_as_coordinates():
    grid = np.arange(6.0).reshape(2, 3)
    check(
        xr.Dataset(
            {"v": (("y", "x"), grid)},
            {"lon": (("y", "x"), grid), "lat": (("y", "x"), -grid), "run": ((), 7), "x": [1, 2, 3]},
        )
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_come_back(unit):
    times = np.array(["2000-01-01", "2000-01-01T12:00", "NaT"], f"M8[{unit}]")
    dataset = xr.Dataset({"t": ("x", times), "d": ("x", times - times[0])}, {"time": ("time", times[:2])})
    with round_trip(dataset, decode_timedelta=True) as actual:
        xr.testing.assert_equal(actual.load(), dataset)


def test_time_encodings_are_kept():
    times = xr.date_range("2000-01-01", periods=3, freq="h")
    dataset = xr.Dataset({"v": ("time", [1.0, 2, 3])}, {"time": times})
    dataset["time"].encoding = {
        "units": "hours since 1970-01-01",
        "calendar": "proleptic_gregorian",
        "dtype": "i4",
    }
    actual = check(dataset)
    assert actual["time"].encoding["units"] == "hours since 1970-01-01"
    assert actual["time"].encoding["dtype"] == np.dtype("i4")


def test_cftime_comes_back():
    pytest.importorskip("cftime")
    times = xr.date_range("2000-02-28", periods=4, calendar="noleap", use_cftime=True)
    check(xr.Dataset({"v": ("time", np.arange(4.0))}, {"time": times}))


def test_packed_values_are_unpacked_exactly_once():
    values = np.array([10.0, 20.5, np.nan, 30.25])
    packing = {"dtype": "i2", "scale_factor": 0.25, "add_offset": 10.0, "_FillValue": -999}
    store = {}
    intarsia.from_xarray(xr.Dataset({"v": ("x", values)}), store, encoding={"v": packing})
    assert intarsia.open(store, "v")[...].tolist() == [0, 42, -999, 81]
    opened = xr.open_dataset(store, engine="intarsia")
    np.testing.assert_array_equal(opened["v"], values)
    kept = {key: opened["v"].encoding[key] for key in packing}
    assert kept == packing | {"dtype": np.dtype("i2")}
    raw = xr.open_dataset(store, engine="intarsia", mask_and_scale=False)["v"]
    assert raw.values.tolist() == [0, 42, -999, 81]
    assert raw.attrs["scale_factor"] == 0.25
    again = xr.open_dataset(store, engine="intarsia", decode_cf=False)["v"]
    assert again.dtype == "i2"


def test_none_means_no_fill_value():
    dataset = xr.Dataset({"v": ("x", np.array([1.5, np.nan]))}, {"x": [0.5, 1.5]})
    actual = check(dataset, encoding={name: {"_FillValue": None} for name in ("v", "x")})
    assert all("_FillValue" not in actual[name].encoding for name in ("v", "x"))


def test_a_float_fill_value_in_an_attribute_masks():
    dataset = xr.Dataset({"v": ("x", np.array([1.0, np.nan], "f4"))})
    actual = check(dataset, encoding={"v": {"_FillValue": np.float32(-9999.5)}})
    assert actual["v"].encoding["_FillValue"] == -9999.5


def test_encodings_of_other_formats_do_not_get_in_the_way(tmp_path):
    dataset = weather()
    dataset.to_netcdf(tmp_path / "weather.nc", encoding={"t": {"zlib": True, "chunksizes": (3, 7, 5)}})
    with xr.open_dataset(tmp_path / "weather.nc") as source:
        check(source.load())


UNKNOWN = [{"scale_facter": 0.01}, {"zlib": True}, {"chunksizes": (1, 4)}, {"dtype": "f4", "units": "K"}]


@pytest.mark.parametrize("encoding", UNKNOWN)
@pytest.mark.parametrize("name", ["v", "x"])
def test_keys_of_an_encoding_that_nobody_knows_are_refused_as_in_xarray(name, encoding):
    values = np.arange(12.0).reshape(3, 4)
    dataset = xr.Dataset({"a": ("x", np.ones(4)), "v": (("t", "x"), values)}, {"x": np.arange(4.0)})
    store = {}
    with pytest.raises(ValueError, match="unexpected encoding parameters"):
        dataset.to_zarr({}, encoding={name: encoding})
    with pytest.raises(ValueError, match="unexpected encoding parameters"):
        intarsia.from_xarray(dataset, store, encoding={name: encoding})
    assert list(zarr.open_group(store, mode="r").members()) == []
    intarsia.from_xarray(dataset, store)
    with pytest.raises(ValueError, match=f"encoding of '{name}'"):
        intarsia.from_xarray(dataset, store, append_dim="x", encoding={name: encoding})


@pytest.mark.parametrize(
    ("encoding", "codecs"),
    [
        ({"chunks": (1, 4)}, None),
        ({"chunks": 2, "compressors": None}, []),
        ({"compressors": {"name": "gzip", "configuration": {"level": 1}}}, ["gzip"]),
        ({"compressors": [zarr.codecs.Crc32cCodec()], "chunks": (3, 2), "shards": (3, 4)}, ["crc32c"]),
        ({"serializer": zarr.codecs.BytesCodec(endian="big"), "compressors": ()}, []),
    ],
)
def test_an_encoding_says_how_chunks_are_stored_as_in_xarray(encoding, codecs):
    dataset = xr.Dataset({"v": (("t", "x"), np.arange(12.0).reshape(3, 4))})
    store, plain = {}, {}
    intarsia.from_xarray(dataset, store, encoding={"v": encoding})
    dataset.to_zarr(plain, encoding={"v": encoding}, consolidated=False)
    (member,), expected = intarsia.open(store, "v").members.values(), zarr.open_array(plain, path="v")
    assert (member.chunks, member.shards) == (expected.chunks, expected.shards)
    assert member.metadata.codecs == expected.metadata.codecs
    if codecs is not None:
        assert [codec.to_dict()["name"] for codec in member.compressors] == codecs
    xr.testing.assert_identical(xr.open_dataset(store, engine="intarsia").load(), dataset)


def test_an_encoding_of_appended_data_is_used_or_refused():
    dataset = xr.Dataset({"v": (("t", "x"), np.ones((2, 4)))}, {"t": [0, 1]})
    store = {}
    how = {
        "v": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1, "compressors": None, "fill_value": -1}
    }
    for _ in range(2):
        dataset.intarsia.append_to(store, "t", encoding=how)
    more = {"v": {"compressors": zarr.codecs.GzipCodec(), "chunks": (1, 2)}}
    dataset.intarsia.append_to(store, "t", encoding=more)
    *_, last = intarsia.open(store, "v").members.values()
    assert (last.chunks, [codec.to_dict()["name"] for codec in last.compressors]) == ((1, 2), ["gzip"])
    for refused in ({"v": {"scale_factor": 0.1}}, {"v": {"fill_value": 7}}, {"t": {"chunks": (5,)}}):
        with pytest.raises(ValueError, match=r"scale_factor|cannot be changed"):
            dataset.intarsia.append_to(store, "t", encoding=refused)
    assert (xr.open_dataset(store, engine="intarsia")["v"] == 1).all()
    assert intarsia.open(store, "v").shape == (6, 4)


@pytest.mark.parametrize(
    ("encoding", "option", "match"),
    [
        ({"compressors": None}, {"codecs": ["gzip"]}, "codecs"),
        ({"write_empty_chunks": True}, {}, "write_empty_chunks"),
        ({"shards": "auto"}, {}, "whole number for each axis"),
    ],
)
def test_an_encoding_that_cannot_be_used_is_refused_and_leaves_nothing(encoding, option, match):
    dataset = xr.Dataset({"a": ("x", np.ones(2)), "v": (("t", "x"), np.ones((3, 2)))})
    store = {}
    with pytest.raises(ValueError, match=match):
        intarsia.from_xarray(dataset, store, encoding={"v": encoding}, **option)
    assert list(zarr.open_group(store, mode="r").members()) == []


def test_what_described_a_dimension_that_was_selected_away_is_left_out(tmp_path):
    dataset = xr.Dataset({"v": (("time", "x"), np.ones((2, 3)))}, {"time": [0, 1]})
    dataset.to_netcdf(tmp_path / "a.nc", unlimited_dims=["time"])
    dataset.to_zarr(tmp_path / "a.zarr", encoding={"v": {"chunks": (1, 3)}}, consolidated=False)
    opened = xr.open_dataset(tmp_path / "a.nc"), xr.open_zarr(tmp_path / "a.zarr", consolidated=False)
    for source in opened:
        check(source.isel(time=0).load())
        source.close()


def test_unlimited_dimensions_are_remembered():
    dataset = xr.Dataset({"v": ("y", np.arange(10.0))})
    assert round_trip(dataset, unlimited_dims=["y"]).encoding["unlimited_dims"] == {"y"}
    dataset.encoding = {"unlimited_dims": ["y"]}
    actual = check(dataset)
    assert actual.encoding["unlimited_dims"] == {"y"}
    assert UNLIMITED_KEY not in actual.attrs


def test_what_xarray_writes_to_zarr_opens_here_and_the_plain_arrays_there(tmp_path):
    dataset = weather()
    dataset.to_zarr(tmp_path / "theirs.zarr", zarr_format=3, consolidated=False)
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "theirs.zarr", engine="intarsia").load(), dataset)
    intarsia.from_xarray(dataset, str(tmp_path / "ours.zarr"))
    coordinates = xr.open_zarr(tmp_path / "ours.zarr", consolidated=False)
    xr.testing.assert_identical(coordinates.load(), dataset.drop_vars(["t", "n"]))


def test_a_member_opens_in_xarray_by_itself(tmp_path):
    dataset = weather()
    intarsia.from_xarray(dataset, str(tmp_path / "ours.zarr"))
    (name,) = intarsia.open(tmp_path / "ours.zarr", "t").members
    member = xr.open_zarr(tmp_path / "ours.zarr", group="t", consolidated=False)[name]
    assert member.dims == ("time", "lat", "lon")
    np.testing.assert_array_equal(member, dataset["t"])


# What becomes what


def test_each_variable_gets_its_codecs_chunks_and_lattice():
    store = {}
    intarsia.from_xarray(
        weather(),
        store,
        codecs={"t": ["gzip"], "n": []},
        encoding={"t": {"chunks": (4, 7, 5)}},
        lattice={"t": (2, 7, 5)},
    )
    t, n = intarsia.open(store, "t"), intarsia.open(store, "n")
    assert (t.regions[0].codec_names, t.regions[0].chunks, t.chunks) == ("gzip", (4, 7, 5), (2, 7, 5))
    assert n.regions[0].codec_names == "raw"
    assert isinstance(zarr.open(store, path="lat"), zarr.Array)


def test_codecs_auto_looks_at_the_data():
    store = {}
    intarsia.from_xarray(weather(), store, codecs="auto")
    assert intarsia.open(store, "n").regions[0].codecs


def test_a_data_array_and_a_tree_are_written_too():
    store, dataset = {}, weather()
    intarsia.from_xarray(dataset["t"], store, "one")
    opened = xr.open_dataset(store, engine="intarsia", group="one")
    xr.testing.assert_identical(opened["t"].load(), dataset["t"])
    tree = xr.DataTree.from_dict({"/": dataset[["n"]], "/below": dataset[["t"]]})
    intarsia.from_xarray(tree, store, "two", codecs={"t": ["zstd"]})
    assert intarsia.open(store, "two/below/t").regions[0].codec_names == "zstd"
    with pytest.raises(ValueError, match="has no name"):
        intarsia.from_xarray(dataset["t"].rename(None), store)
    with pytest.raises(TypeError, match="not an xarray Dataset"):
        intarsia.from_xarray(np.ones(3), store)


def test_dask_arrays_are_computed_where_they_are_written():
    store, dataset = zarr.storage.MemoryStore(), weather()
    seen = []
    intarsia.from_xarray(
        dataset.chunk(time=5), store, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[0] == (0, 8)
    assert seen[-1] == (8, 8)
    xr.testing.assert_identical(xr.open_dataset(store, engine="intarsia").load(), dataset)
    assert intarsia.open(store, "t").chunks == (5, 7, 5)


# Appending


def test_appending_grows_what_has_the_dimension_and_keeps_the_rest():
    store, dataset = zarr.storage.MemoryStore(), weather()
    stored_in_parts(dataset, store)
    opened = xr.open_dataset(store, engine="intarsia")
    xr.testing.assert_identical(opened.load(), dataset)
    assert [region.codec_names for region in intarsia.open(store, "t").regions] == ["gzip", "zstd", "raw"]
    assert zarr.open_array(store, path="time").chunks == (1024,)
    assert opened.encoding["unlimited_dims"] == {"time"}


def test_appended_values_take_the_stored_encoding():
    store = {}
    packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    first = xr.Dataset({"v": ("time", [1.0, 2.0])}, {"time": pd.date_range("2000-01-01", periods=2)})
    later = xr.Dataset({"v": ("time", [np.nan, 3.5])}, {"time": pd.date_range("2000-01-03", periods=2)})
    intarsia.from_xarray(first, store, encoding={"v": packing, "time": {"units": "days since 1990-01-01"}})
    intarsia.from_xarray(later, store, append_dim="time")
    assert intarsia.open(store, "v")[...].tolist() == [2, 4, -1, 7]
    opened = xr.open_dataset(store, engine="intarsia")
    xr.testing.assert_identical(opened.load(), xr.concat([first, later], "time"))


@pytest.mark.filterwarnings("ignore:Times can't be serialized faithfully")  # xarray takes other units
def test_times_that_the_stored_units_cannot_hold_are_refused_and_nothing_changes():
    store = zarr.storage.MemoryStore()
    first = xr.Dataset({"v": ("time", [1.0, 2.0])}, {"time": pd.date_range("2000-01-01", periods=2)})
    intarsia.from_xarray(first, store)
    later = xr.Dataset({"v": ("time", [3.0])}, {"time": pd.to_datetime(["2000-01-03T06:00"])})
    with pytest.raises(ValueError, match="'time' can only be stored with units = 'hours since 2000-01-01'"):
        intarsia.from_xarray(later, store, append_dim="time")
    xr.testing.assert_identical(xr.open_dataset(store, engine="intarsia").load(), first)


def test_dimensions_in_another_order_are_put_in_the_stored_one():
    store, dataset = {}, weather()
    intarsia.from_xarray(dataset[{"time": slice(5)}], store)
    intarsia.from_xarray(
        dataset[{"time": slice(5, None)}].transpose("lon", "lat", "time"), store, append_dim="time"
    )
    xr.testing.assert_identical(xr.open_dataset(store, engine="intarsia").load(), dataset)


def test_what_would_not_make_one_dataset_is_refused_before_anything_is_written():
    store, dataset = zarr.storage.MemoryStore(), weather()
    intarsia.from_xarray(dataset, store)
    more = dataset.assign_coords(time=dataset["time"] + np.timedelta64(17, "D"))
    before = dict(store._store_dict)
    for changed, message in (
        (more.drop_vars("n"), "only one of the dataset and the group has 'n'"),
        (more.assign(new=("time", np.arange(17))), "only one of the dataset and the group has 'new'"),
        (more.isel(lat=slice(3)).drop_vars("lat"), r"'t' has {.*'lat': 3.*}, but only {.*'lat': 7.*} fits"),
        (more.assign_coords(lat=more["lat"] + 1), "coordinate 'lat' differs"),
        (more.assign(n=more["t"]), r"'n' has {.*} fits after the stored one"),
        (more.assign(n=more["n"] + 0.5), "cannot hold them all"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            intarsia.from_xarray(changed, store, append_dim="time")
        assert store._store_dict.keys() == before.keys()
        assert xr.open_dataset(store, engine="intarsia").sizes["time"] == 17
    with pytest.raises(intarsia.errors.ShapeError, match="'depth' is not a dimension"):
        intarsia.from_xarray(more, store, append_dim="depth")


def test_a_dataset_is_not_overwritten_unless_asked():
    store, dataset = zarr.storage.MemoryStore(), weather()
    intarsia.from_xarray(dataset, store, codecs=["gzip"])
    with pytest.raises(FileExistsError, match="already has lat, lon, n, t, time"):
        intarsia.from_xarray(dataset, store)
    intarsia.from_xarray(dataset + 1, store, codecs=["zstd"], overwrite=True)
    xr.testing.assert_equal(xr.open_dataset(store, engine="intarsia").load(), dataset + 1)
    assert intarsia.open(store, "t").regions[0].codec_names == "zstd"
    intarsia.from_xarray(dataset[{"time": slice(3), "lat": [0]}], store, overwrite=True)
    smaller = xr.open_dataset(store, engine="intarsia").load()
    xr.testing.assert_identical(smaller, dataset[{"time": slice(3), "lat": [0]}])


def test_names_that_nobody_has_are_refused():
    with pytest.raises(KeyError, match="'temperature', which the dataset lacks"):
        intarsia.from_xarray(weather(), {}, codecs={"temperature": ["gzip"]})
    with pytest.raises(ValueError, match="cannot be the name"):
        intarsia.from_xarray(xr.Dataset({"a/b": ("x", [1])}), {})
    with pytest.raises(intarsia.errors.ShapeError, match="unlimited_dims"):
        intarsia.from_xarray(weather(), {}, unlimited_dims=["depth"])
    with pytest.raises(ValueError, match="unexpected encoding"):
        intarsia.from_xarray(weather(), {}, encoding={"lat": {"zlib": True}})


def test_a_plain_array_has_the_encoding_that_xarray_gives_it():
    store, dataset = zarr.storage.MemoryStore(), weather()
    intarsia.from_xarray(dataset, store)
    ours = xr.open_dataset(store, engine="intarsia", decode_cf=False)["time"].encoding
    theirs = xr.open_zarr(store, decode_cf=False, consolidated=False, chunks=None)["time"].encoding
    assert ours == theirs


# Repositories


def test_a_dataset_is_one_commit(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    snapshot = intarsia.from_xarray(weather(), repo, message="all of it", metadata={"by": "test"})
    tip = next(iter(repo.ancestry(branch="main")))
    assert (tip.id, tip.message) == (snapshot, "all of it")
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_a_dataset_that_fails_halfway_leaves_nothing(tmp_path):
    def fail(block):
        raise RuntimeError("no more data")

    dataset = weather().chunk(time=5)
    dataset["n"].data = dataset["n"].data.map_blocks(fail, meta=np.empty((0, 0), "i8"))
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with pytest.raises(RuntimeError, match="no more data"):
        intarsia.from_xarray(dataset, repo)
    assert len(list(repo.ancestry(branch="main"))) == 1
    store = zarr.storage.MemoryStore()
    with pytest.raises(RuntimeError, match="no more data"):
        intarsia.from_xarray(dataset, store)
    assert set(store._store_dict) == {"zarr.json"}


def test_appends_of_datasets_at_the_same_time_are_all_kept(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    days = [
        xr.Dataset({"v": (("time", "x"), np.full((2, 3), i))}, {"time": [2 * i, 2 * i + 1]}) for i in range(5)
    ]
    intarsia.from_xarray(days[0], repo)
    start = threading.Barrier(4)
    failures = []

    def append(day, codecs):
        start.wait()
        try:
            intarsia.from_xarray(day, repo, append_dim="time", codecs=codecs)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=append, args=pair) for pair in zip(days[1:], CODECS, strict=False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    opened = xr.open_dataset(repo, engine="intarsia").load()
    assert sorted(opened["time"].values.tolist()) == list(range(10))
    assert (opened["v"].values == (opened["time"].values // 2)[:, None]).all()
    assert intarsia.verify(intarsia.open(repo, "v")) == ()


def test_sources_that_variables_share_are_computed_once():
    calls = []

    def count(block):
        calls.append(1)
        return block

    base = da.ones((8, 4), chunks=(2, 4)).map_blocks(count, meta=np.empty((0, 0)))
    dataset = xr.Dataset({"double": (("x", "y"), base * 2), "half": (("x", "y"), base / 2)})
    intarsia.from_xarray(dataset, zarr.storage.MemoryStore())
    assert len(calls) == 4


@pytest.mark.parametrize("chunks", [None, {"t": 4}], ids=["NumPy", "dask"])
def test_variables_are_written_with_the_options_of_the_call(chunks, tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    dataset = xr.Dataset({"v": (("t", "x"), np.ones((8, 64), "f4"))})
    codecs = {"v": [intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision="compress_if_smaller")]}
    if chunks is not None:
        dataset = dataset.chunk(chunks)
    intarsia.from_xarray(
        dataset, repo, "d", codecs=codecs, encoding={"v": {"chunks": (4, 64)}}, unlimited_dims=["t"]
    )
    for _ in range(2):
        intarsia.from_xarray(dataset, repo, "d", append_dim="t", codecs=codecs)
    (member,) = intarsia.open(repo, "d/v").members.values()
    assert intarsia.codecs.masks(member).ravel().tolist() == [1] * 6
