"""Creating, opening, appending, recoding: what each does to values, members and stored bytes."""

import pickle

import icechunk
import numpy as np
import pytest
import tensorstore
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ScaleOffset, ShardingCodec, ZstdCodec

import intarsia
from tests.logical.stores import memory, stored


@pytest.fixture(params=["memory", "local", "icechunk"])
def store(request, tmp_path):
    """A writable store of each kind."""
    if request.param == "memory":
        yield memory()
    elif request.param == "local":
        yield zarr.storage.LocalStore(tmp_path / "store")
    else:
        repository = icechunk.Repository.create(icechunk.in_memory_storage())
        yield repository.writable_session("main").store


def filled(store=None, rows=1000):
    """The two-region array of the design: blosc-zstd above, gzip below."""
    array = intarsia.create(
        memory() if store is None else store,
        "a",
        shape=(rows, 1000),
        chunks=(100, 100),
        dtype="float32",
        dimension_names=("y", "x"),
    )
    data = np.random.default_rng(0).normal(size=array.shape).astype("float32")
    half = rows // 2
    array.add_region(((0, half), (0, 1000)), codecs=[BloscCodec(cname="zstd")], data=data[:half])
    array.add_region(((half, rows), (0, 1000)), codecs=[GzipCodec(level=1)], data=data[half:])
    return array, data


def test_reads_span_regions_on_every_kind_of_store(store):
    array, data = filled(store)
    np.testing.assert_array_equal(array[450:550, ::7], data[450:550, ::7])
    np.testing.assert_array_equal(np.asarray(intarsia.open(store, "a")), data)


def test_a_zip_store_is_read(tmp_path):
    local = zarr.storage.LocalStore(tmp_path / "store")
    _, data = filled(local)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as archive:
        for key, value in stored(local).items():
            zarr.core.sync.sync(archive.set(key, zarr.core.buffer.cpu.Buffer.from_bytes(value)))
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="r") as archive:
        np.testing.assert_array_equal(intarsia.open(archive, "a")[400:600], data[400:600])


def test_each_member_is_a_plain_zarr_array_that_tensorstore_reads(tmp_path):
    array, data = filled(tmp_path / "store")
    for region in array.regions:
        expected = data[tuple(slice(a, b) for a, b in region.bounds)]
        plain = zarr.open_array(tmp_path / "store" / "a" / region.name, mode="r")
        np.testing.assert_array_equal(plain[...], expected)
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(tmp_path / "store" / "a" / region.name)},
        }
        np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), expected)


def test_a_group_may_stand_for_its_store(tmp_path):
    root = zarr.create_group(tmp_path / "store")
    dataset = root.create_group("dataset")
    intarsia.create(dataset, "a", shape=(4,), chunks=(2,), dtype="u1").append([5], codecs=["gzip"])
    assert intarsia.open(root, "dataset/a").shape == (5,)
    assert intarsia.open(tmp_path / "store", "dataset/a")[4] == 5


def test_every_daily_append_of_a_season_goes_into_one_member():
    array = intarsia.create({}, "a", shape=(0, 3), chunks=(7, 3), dtype="i4")
    for day in range(92):
        array.append(np.full((1, 3), day, dtype="i4"), codecs=["gzip"])
    assert len(array.members) == len(array.regions) == 1
    np.testing.assert_array_equal(array[:, 1], np.arange(92))


def test_append_fills_the_partial_last_chunk_in_its_own_member_first():
    store = memory()
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(6), codecs=["gzip"])
    first = array.regions[0].name
    array.append(np.arange(6, 15), codecs=["zstd"])
    assert [region.bounds for region in array.regions] == [((0, 8),), ((8, 15),)]
    assert array.regions[0].name == first
    np.testing.assert_array_equal(array.members[first][...], np.arange(8))
    np.testing.assert_array_equal(array[...], np.arange(15))


def test_append_without_merge_keeps_regions_apart():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="i4")
    for _ in range(3):
        array.append([1, 2], codecs=["gzip"], merge=False)
    assert len(array.members) == 3
    array.append([3, 4])
    assert len(array.members) == 3, "without codecs, the data is encoded like the region before it"


def test_append_with_other_chunks_or_codecs_starts_a_region():
    array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="f4")
    array.append(np.zeros((2, 4)), codecs=["gzip"])
    array.append(np.ones((2, 4)), codecs=["gzip"], chunks=(2, 2))
    array.append(np.ones((2, 4)), codecs=[GzipCodec(level=1)], chunks=(2, 2))
    array.append(np.ones((2, 4)), chunks=(2, 2))
    assert [region.chunks for region in array.regions] == [(2, 4), (2, 2), (2, 2)]


def test_append_on_another_axis():
    array = intarsia.create({}, "a", shape=(5, 0), chunks=(2, 3), dtype="i4")
    data = np.arange(50).reshape(5, 10)
    array.append(data[:, :4], axis=1, codecs=["gzip"])
    array.append(data[:, 4:], axis=-1, codecs=["zstd"])
    np.testing.assert_array_equal(array[...], data)
    assert len(array.regions) == 2


def test_recode_splits_regions_and_leaves_other_members_untouched():
    store = memory()
    array, data = filled(store)
    before = stored(store)
    first, second = (region.name for region in array.regions)
    array.recode(((400, 600), (200, 700)), codecs=[ZstdCodec(level=3)])
    np.testing.assert_array_equal(array[...], data)
    after = stored(store)
    for key, value in before.items():
        if f"/{first}/" in key or f"/{second}/" in key:
            assert after[key] == value, key
    assert array.region_at((450, 300)).codec_names == "zstd"
    assert array.region_at((450, 100)).name == first
    assert {region.name for region in array.regions} == {first, second, array.region_at((450, 300)).name}


def test_recode_of_everything_frees_the_old_members():
    store = memory()
    array, data = filled(store)
    old = set(array.members)
    array.recode(codecs=[ZstdCodec()], chunks=(50, 500), shards=(500, 1000))
    np.testing.assert_array_equal(array[...], data)
    assert len(array.regions) == 1
    assert array.regions[0].chunks == (50, 500)
    assert not [key for key in stored(store) if any(name in key for name in old)]


def test_recode_keeps_holes():
    array = intarsia.create({}, "a", shape=(6,), chunks=(2,), dtype="i4", fill_value=9)
    array.add_region([(0, 2)], codecs=[], data=[1, 2])
    array.add_region([(4, 6)], codecs=[], data=[5, 6])
    array.recode([(0, 6)], codecs=["gzip"])
    assert array[...].tolist() == [1, 2, 9, 9, 5, 6]
    assert len(array.members) == 1
    assert array.region_at((2,)) is None


def test_packed_integers_become_floats_through_the_members_own_filters():
    array = intarsia.create({}, "a", shape=(0,), chunks=(4,), dtype="float64")
    packed = [
        ScaleOffset(scale=10.0, offset=0.0),
        {
            "name": "cast_value",
            "configuration": {"data_type": "int16", "rounding": "nearest-even", "out_of_range": "clamp"},
        },
        BytesCodec(),
    ]
    array.append([1.5, 2.5, -3.5, 4.0], codecs=packed)
    assert array[...].tolist() == [1.5, 2.5, -3.5, 4.0]
    assert array.regions[-1].nbytes_stored == 8


def test_members_may_be_sharded_and_have_their_own_fill_value():
    array = intarsia.create({}, "a", shape=(8, 8), chunks=(4, 4), dtype="i4", fill_value=1)
    array.add_region(((0, 4), (0, 8)), codecs=["zstd"], chunks=(2, 2), shards=(4, 4), fill_value=7)
    inner = ShardingCodec(chunk_shape=(2, 4), codecs=[BytesCodec(), GzipCodec()])
    array.add_region(((4, 8), (0, 4)), codecs=[inner], data=np.full((4, 4), 5))
    expected = np.full((8, 8), 1)
    expected[:4], expected[4:, :4] = 7, 5
    np.testing.assert_array_equal(array[...], expected)


def test_an_existing_array_becomes_a_region_without_a_copy():
    array = intarsia.create({}, "a", shape=(6,), chunks=(2,), dtype="i4")
    made = array.group.create_array("m-given", shape=(10,), chunks=(5,), dtype="i4")
    made[:] = np.arange(10)
    array.add_region([(0, 4)], member="m-given", member_start=(2,))
    array.add_region([(4, 6)], member="m-given")
    assert array[...].tolist() == [2, 3, 4, 5, 0, 1]


@pytest.mark.parametrize("dtype", ["bool", "complex64", "datetime64[s]", "timedelta64[ms]", ">f4", "float16"])
def test_other_data_types(dtype):
    array = intarsia.create({}, "a", shape=(0,), chunks=(3,), dtype=dtype)
    data = np.arange(7).astype(dtype)
    array.append(data[:4], codecs=["gzip"])
    array.append(data[4:], codecs=["zstd"])
    np.testing.assert_array_equal(array[...], data)
    assert array.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_strings():
    array = intarsia.create({}, "a", shape=(0,), chunks=(3,), dtype=str)
    array.append(np.array(["a", "bc"], dtype=np.dtypes.StringDType()))
    array.append(np.array(["def"], dtype=np.dtypes.StringDType()), merge=False)
    assert array[...].tolist() == ["a", "bc", "def"]


def test_no_dimensions():
    array = intarsia.create({}, "a", shape=(), chunks=(), dtype="f8", fill_value=2.5)
    assert array[()] == 2.5
    array.add_region((), codecs=["gzip"], data=7.0)
    assert array[...] == 7.0
    array[...] = 8.0
    assert np.asarray(array).shape == ()
    assert float(array[()]) == 8.0
    array.recode((), codecs=["zstd"])
    assert array[()] == 8.0
    assert array.region_at(()).codec_names == "zstd"


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(("dtype", "value"), [("S5", b"ab"), ("U3", "é")])
def test_a_text_without_dimensions_that_is_shorter_than_its_type(dtype, value):
    store = memory()
    array = intarsia.create(store, "a", shape=(), chunks=(), dtype=dtype)
    array.add_region([], codecs=["zstd"], data=np.array(value, dtype=dtype))
    assert intarsia.open(store, "a")[...] == value
    array[...] = value[:1]
    assert intarsia.open(store, "a")[...] == value[:1]


@pytest.mark.parametrize("values", [["a\0", "bc"], np.array(["a\0", "bc"], dtype=object)])
def test_texts_are_stored_as_they_are(values):
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="string")
    array.append(values)
    assert array[...].tolist() == ["a\0", "bc"]
    array[0] = "c\0"
    assert array[0].item() == "c\0"


def test_one_long_text_is_not_paid_for_by_all():
    texts = ["x" * 1_000_000, *["a"] * 50_000]  # 200 GB in NumPy's fixed width
    array = intarsia.create({}, "a", shape=(0,), chunks=(60_000,), dtype="string")
    array.append(texts)
    assert array[1].item() == "a"


def test_conversion_to_numpy_follows_numpys_copy_rules():
    array, data = filled()
    assert np.array(array, dtype="float64").dtype == np.float64
    np.testing.assert_array_equal(np.asarray(array), data)
    with pytest.raises(ValueError, match="copy=False"):
        np.array(array, copy=False)


def test_iteration_and_length():
    array, data = filled()
    assert len(array) == 1000
    for got, expected in zip(array, data, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_handles_pickle_compare_and_are_unhashable_as_zarr_arrays_are(tmp_path):
    array, data = filled(tmp_path / "store")
    copy = pickle.loads(pickle.dumps(array.with_config(cross_region_writes=True)))
    assert copy == array
    assert copy.config.cross_region_writes
    np.testing.assert_array_equal(copy[490:510], data[490:510])
    array.append(np.zeros((100, 1000), dtype="f4"))
    assert copy != array
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)


def test_an_open_handle_keeps_its_layout_until_it_is_refreshed():
    store = memory()
    array, _ = filled(store)
    other = intarsia.open(store, "a")
    array.append(np.zeros((100, 1000), dtype="f4"), codecs=["zstd"])
    assert other.shape == (1000, 1000)
    other.refresh()
    assert other.shape == (1100, 1000)
    stale = intarsia.open(store, "a", mode="r+")
    array.append(np.zeros((100, 1000), dtype="f4"), codecs=["zstd"])
    stale.append(np.ones((100, 1000), dtype="f4"), codecs=["zstd"])
    assert stale.shape == (1300, 1000)


def test_attributes_live_beside_the_manifest():
    store = memory()
    array = intarsia.create(store, "a", shape=(2,), chunks=(2,), dtype="u1", attributes={"units": "K"})
    array.attrs["long_name"] = "temperature"
    array.append([1, 2])
    del array.attrs["units"]
    assert dict(intarsia.open(store, "a").attrs) == {"long_name": "temperature"}
    with pytest.raises(KeyError, match="belongs to intarsia"):
        array.attrs["intarsia"] = {}
    with pytest.raises(KeyError):
        array.attrs["zarr_conventions"]
    assert array.shape == (4,)


def test_the_convention_is_declared_and_others_are_kept():
    store = memory()
    array = intarsia.create(store, "a", shape=(2,), chunks=(2,), dtype="u1")
    attributes = zarr.open_group(store, path="a").attrs
    attributes["zarr_conventions"] = [*attributes["zarr_conventions"], {"uuid": "another", "name": "other"}]
    array.append([1, 2])
    names = [c["name"] for c in zarr.open_group(store, path="a").attrs["zarr_conventions"]]
    assert sorted(names) == ["intarsia", "other"]


def test_threads_read_one_handle_at_once():
    from concurrent.futures import ThreadPoolExecutor

    array, data = filled()
    with ThreadPoolExecutor(8) as pool:
        for i, got in enumerate(pool.map(lambda i: array[i * 20 : i * 20 + 90], range(40))):
            np.testing.assert_array_equal(got, data[i * 20 : i * 20 + 90])


def test_create_refuses_to_replace_unless_told():
    store = memory()
    intarsia.create(store, "a", shape=(2,), chunks=(2,), dtype="u1").append([1, 2])
    with pytest.raises(FileExistsError):
        intarsia.create(store, "a", shape=(3,), chunks=(2,), dtype="u1")
    assert intarsia.open(store, "a").shape == (4,)
    intarsia.create(store, "a", shape=(3,), chunks=(2,), dtype="u1", overwrite=True)
    assert intarsia.open(store, "a").shape == (3,)
    assert not [key for key in stored(store) if "m-" in key]


def test_regions_keep_their_members_when_the_layout_changes():
    array, data = filled()
    first, second = array.regions
    array.recode(first.bounds, codecs=["gzip"])
    np.testing.assert_array_equal(second.member[...], data[500:])
    assert second.codec_names == "gzip"
    with pytest.raises(intarsia.errors.MissingMemberError):
        assert pickle.loads(pickle.dumps(first)).member


def test_attributes_that_could_not_be_written_are_not_there():
    array = intarsia.create(zarr.storage.MemoryStore(), "a", shape=(4,), chunks=(2,), dtype="i4")
    array.attrs["units"] = "K"
    with pytest.raises(TypeError, match="JSON"):
        array.attrs["x"] = object()
    assert dict(array.attrs) == {"units": "K"}
    array.attrs["long_name"] = "temperature"
    assert set(intarsia.open(array.store, "a").attrs) == {"units", "long_name"}


@pytest.mark.parametrize("codecs", ["zstd", {"name": "zstd"}, zarr.codecs.ZstdCodec()])
def test_one_codec_is_a_list_of_one(codecs):
    array = intarsia.create(zarr.storage.MemoryStore(), "a", shape=(0,), chunks=(2,), dtype="i4")
    array.append([1, 2], codecs=codecs)
    assert [region.codec_names for region in array.regions] == ["zstd"]


def test_a_negative_shape_is_named():
    with pytest.raises(intarsia.errors.ShapeError, match=r"shape\[0\]: -4: Expected int >= 0"):
        intarsia.create({}, "a", shape=(-4,), chunks=(2,), dtype="i4")


def test_a_byte_order_is_no_part_of_the_data_type(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(4,), dtype=">f8", fill_value=1.5)
    array.append(np.arange(8, dtype=">f8"), codecs=[{"name": "bytes", "configuration": {"endian": "big"}}])
    assert array.dtype == np.dtype("f8")
    assert array == intarsia.open(tmp_path, "a")
    assert pickle.loads(pickle.dumps(array))[...].tolist() == list(range(8))


def test_codecs_may_come_from_a_generator():
    array = intarsia.create({}, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(8), codecs=(codec for codec in ["gzip"]))
    array.append(np.arange(8), codecs=(codec for codec in ["zstd"]))
    array.recode([(0, 4)], codecs=(codec for codec in ["blosc"]))
    assert sorted(region.codec_names for region in array.regions) == ["blosc", "gzip", "zstd"]


@pytest.mark.parametrize("codecs", [["zstd"], ["gzip"]], ids=["into the last member", "into a new one"])
def test_a_failed_append_leaves_nothing_grown_and_nothing_behind(codecs, monkeypatch):
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(6), codecs=["zstd"])
    before = stored(store)
    name, calls = array.regions[0].name, []

    def fails(source, *args, **keywords):
        calls.append(source.name)
        if source.name == name:
            raise OSError("the disk is full")

    monkeypatch.setattr("intarsia.logical.staging.write_box", fails)
    with pytest.raises(OSError, match="the disk is full"):
        array.append(np.arange(10), codecs=codecs)
    assert name in calls
    assert stored(store) == before
    assert intarsia.open(store, "a")[...].tolist() == list(range(6))


def test_the_size_of_a_sparse_region_takes_what_is_stored():
    array = intarsia.create({}, "a", shape=(10**9, 4), chunks=(1, 2), dtype="u1")
    array.add_region([(0, 10**9), (0, 4)], codecs=[])
    array[7, :3] = 1
    assert array.regions[0].nbytes_stored == 4


def test_chunks_are_counted_as_in_zarr():
    array = intarsia.create({}, "a", shape=(5, 4), chunks=(2, 3), dtype="u1")
    assert array.nchunks == zarr.create_array({}, shape=(5, 4), chunks=(2, 3), dtype="u1").nchunks == 6


@pytest.mark.parametrize("name", ["metadata", "compressors", "filters", "serializer", "codecs", "shards"])
def test_what_each_region_has_of_its_own_is_named(name):
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    with pytest.raises(AttributeError, match=rf"no '{name}': each region has its own\.\n.*array\."):
        getattr(array, name)
    with pytest.raises(AttributeError, match="has no 'colour'"):
        _ = array.colour
