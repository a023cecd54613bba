"""The JSON spec: TensorStore itself opens members in their places, and reads what NumPy has."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorstore
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import HTTPStore, LocalStore, S3Store
from zarr.storage import FsspecStore, ObjectStore, ZipStore

import intarsia
from intarsia.interop.tensorstore import kvstore_of
from intarsia.manifest.box import Box
from tests.grids import dear
from tests.http_files import serving
from tests.logical import backings
from tests.logical.strategies import axis_slices, tilings

DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
CODECS = [["gzip"], ["zstd", "crc32c"], [], [{"name": "blosc", "configuration": {"cname": "lz4"}}]]


def opened(array):
    """What TensorStore makes of the spec, through JSON text as it would be kept or sent."""
    spec = json.loads(json.dumps(intarsia.tensorstore_spec(array)))
    return tensorstore.open(spec).result()


def values_of(array):
    return opened(array).read().result()


@st.composite
def local_arrays(draw, folder):
    """A logical array in files, with holes, after some edits, and its values."""
    shape = tuple(draw(st.lists(st.integers(0, 8), max_size=3)))
    chunks = tuple(draw(st.integers(1, 4)) for _ in shape)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    fill = dtype.type(draw(st.integers(0, 1)))
    array = intarsia.create(folder, "a", shape=shape, chunks=chunks, dtype=dtype, fill_value=fill)
    model = np.full(shape, fill, dtype=dtype)
    if not all(shape):
        return array, model
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    for tile in draw(tilings(Box((0,) * len(shape), array.manifest.lattice))):
        if draw(st.integers(0, 4)) == 0:
            continue
        box = array.manifest.elements(tile)
        index = tuple(slice(a, b) for a, b in zip(*box, strict=True))
        inner = tuple(draw(st.integers(1, 5)) for _ in shape) if draw(st.booleans()) else None
        shards = tuple(2 * n for n in inner) if inner and draw(st.booleans()) else None
        data = rng.integers(0, 3, model[index].shape).astype(dtype)
        bounds = tuple(zip(*box, strict=True))
        array.add_region(bounds, data=data, codecs=draw(st.sampled_from(CODECS)), chunks=inner, shards=shards)
        model[index] = data
    for edit in draw(st.lists(st.sampled_from(["recode", "drop"]), max_size=2)):
        cells = [sorted(draw(st.tuples(*[st.integers(0, n)] * 2))) for n in array.manifest.lattice]
        box = Box(tuple(a for a, _ in cells), tuple(b for _, b in cells))
        if not array.manifest.regions.touching(box).size:
            continue
        bounds = tuple(zip(*array.manifest.elements(box), strict=True))
        if edit == "recode":  # regions that it cuts start somewhere inside their members then
            array.recode(bounds, codecs=draw(st.sampled_from(CODECS)))
        else:
            array.drop_region(bounds)
            model[tuple(slice(a, b) for a, b in bounds)] = fill
    return array, model


@dear
@given(st.data())
def test_random_layouts_equal_numpy(data):
    with tempfile.TemporaryDirectory() as folder:
        array, model = data.draw(local_arrays(folder))
        np.testing.assert_array_equal(array[...], model)
        seen = opened(array)
        assert seen.shape == model.shape
        assert seen.dtype.numpy_dtype == model.dtype
        np.testing.assert_array_equal(seen.read().result(), model)
        selection = tuple(
            slice(*data.draw(axis_slices(n, negative_steps=False)).indices(n)[:2]) for n in model.shape
        )
        if all(s.start <= s.stop for s in selection):
            np.testing.assert_array_equal(seen[selection].read().result(), model[selection])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_data_type_and_its_holes(dtype, tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(9,), chunks=(4,), dtype=dtype, fill_value=1)
    array.add_region([(4, 8)], data=np.array([0, 1, 1, 0]).astype(dtype), codecs=["gzip"])
    seen = values_of(array)
    assert seen.dtype == array.dtype
    np.testing.assert_array_equal(seen, array[...])


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("float32", np.nan),
        ("float64", -np.inf),
        ("float64", -0.0),
        ("complex64", complex(np.nan, 2)),
        ("uint64", 2**64 - 1),
        ("int64", -(2**63)),
        ("bool", True),
    ],
)
def test_fill_values_that_json_has_no_number_for(dtype, fill, tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(3,), chunks=(2,), dtype=dtype, fill_value=fill)
    assert values_of(array).tobytes() == array[...].tobytes()
    array.add_region([(0, 2)], codecs=["gzip"], fill_value=1)
    np.testing.assert_array_equal(values_of(array), array[...])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
@pytest.mark.parametrize("covered", [False, True])
def test_shapes_with_nothing_in_them(shape, covered, tmp_path):
    array = intarsia.create(tmp_path, "a", shape=shape, chunks=(2,) * len(shape), dtype="i4", fill_value=5)
    if covered and not shape:
        array.add_region((), data=7, codecs=["gzip"])
    np.testing.assert_array_equal(values_of(array), array[...])


def test_many_regions_in_one_read(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0, 3), chunks=(2, 2), dtype="i4")
    values = np.arange(240 * 3).reshape(240, 3)
    for i in range(120):
        array.append(values[2 * i : 2 * i + 2], codecs=CODECS[i % len(CODECS)], merge=False)
    assert len(intarsia.tensorstore_spec(array)["layers"]) == 120
    np.testing.assert_array_equal(values_of(array), values)


def test_a_region_that_was_cut_starts_inside_its_member(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0, 5), chunks=(2, 2), dtype="f4")
    values = np.arange(55, dtype="f4").reshape(11, 5)
    array.append(values, codecs=["gzip"], chunks=(3, 4))
    array.recode([(4, 6), (0, 5)], codecs=["zstd"], chunks=(1, 5))
    assert max(region.member_start for region in array.regions) == (3, 0)
    np.testing.assert_array_equal(values_of(array), values)


@dear
@given(st.data())
def test_views_are_index_transforms(data):
    with tempfile.TemporaryDirectory() as folder:
        array, model = data.draw(backings.arrays(packings=[None], store=folder))
        seen = opened(array)
        np.testing.assert_array_equal(seen.read().result(), model)
        selection = tuple(
            slice(*data.draw(axis_slices(n, negative_steps=False)).indices(n)[:2]) for n in model.shape
        )
        if all(s.start <= s.stop for s in selection):
            np.testing.assert_array_equal(seen[selection].read().result(), model[selection])


def test_a_turned_region_that_was_cut_and_starts_inside_its_member(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(3, 8), chunks=(1, 2), dtype="i4", fill_value=-1)
    member = array.group.create_array("m", shape=(12,), chunks=(5,), dtype="i4")
    member[...] = np.arange(12)
    flipped = intarsia.View.identity(1).flip(0, length=12).expand(0)
    array.add_region([(1, 2), (0, 8)], member="m", view=flipped, member_start=(0, 2))
    array.drop_region([(1, 2), (2, 4)])
    assert array[1].tolist() == [9, 8, -1, -1, 5, 4, 3, 2]
    np.testing.assert_array_equal(values_of(array), array[...])


def test_packed_regions_are_refused_with_the_reason(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(8,), chunks=(2,), dtype="f8")
    array.add_region([(0, 4)], data=np.ones(4), codecs=["gzip"])
    array.add_region([(4, 8)], data=np.ones(4), packing={"stored": "int16", "scale": 0.5})
    with pytest.raises(
        intarsia.errors.UnreachableMembersError, match=r"region \[4:8\] is packed \(int16 \* 0\.5\)"
    ):
        intarsia.tensorstore_spec(array)
    array.recode(((4, 8),), codecs=["zstd"], packing=None)
    np.testing.assert_array_equal(values_of(array), array[...])


def test_dimensions_keep_their_names(tmp_path):
    for i, names in enumerate([("y", "x"), ("y", None), None]):
        array = intarsia.create(
            tmp_path, f"a{i}", shape=(4, 2), chunks=(2, 2), dtype="u1", dimension_names=names
        )
        array.add_region([(0, 2), (0, 2)], data=[[1, 2], [3, 4]], codecs=["gzip"])
        seen = opened(array)
        assert seen.domain.labels == tuple(name or "" for name in names or ("", ""))
        np.testing.assert_array_equal(seen.read().result(), array[...])
        if names == ("y", "x"):
            np.testing.assert_array_equal(seen[tensorstore.d["x"][1]].read().result(), array[:, 1])


def filled(store, path="g/a"):
    array = intarsia.create(store, path, shape=(9, 4), chunks=(2, 4), dtype="f4")
    array.add_region([(0, 4), (0, 4)], data=np.arange(16).reshape(4, 4), codecs=["gzip"])
    array.add_region([(6, 9), (0, 4)], data=np.arange(12).reshape(3, 4), codecs=["zstd"])
    return array


def test_relative_paths_and_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    array = filled(Path("a b%20ü.zarr"))
    expected, spec = array[...], intarsia.tensorstore_spec(array)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), expected)


def test_zip_files(tmp_path):
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        _copy(filled(tmp_path / "files").store, store)
    with ZipStore(tmp_path / "a.zip") as store:
        array = intarsia.open(store, "g/a")
        np.testing.assert_array_equal(values_of(array), array[...])


def _copy(source, target):
    from zarr.core.buffer import cpu
    from zarr.core.sync import sync

    from tests.logical.stores import stored

    for key, value in stored(source).items():
        sync(target.set(key, cpu.Buffer.from_bytes(value)))


def test_web_servers(tmp_path):
    filled(tmp_path / "deep" / "files")
    with serving(tmp_path) as url:
        store = ObjectStore(HTTPStore.from_url(f"{url}/deep/files", client_options={"allow_http": True}))
        array = intarsia.open(store, "g/a")
        np.testing.assert_array_equal(values_of(array), array[...])


def test_local_files_through_other_stores(tmp_path):
    expected = filled(tmp_path)[...]
    for store in (ObjectStore(LocalStore(tmp_path)), FsspecStore.from_url(f"file://{tmp_path}")):
        np.testing.assert_array_equal(values_of(intarsia.open(store, "g/a")), expected)


def test_buckets_with_the_credentials_of_the_environment(moto_server, monkeypatch):
    bucket, prefix = moto_server.new_location().removeprefix("s3://").split("/", 1)
    options = moto_server.options
    place = {"endpoint": options["endpoint_url"], "region": options["region"]}
    keys = {name: options[name] for name in ("access_key_id", "secret_access_key")}
    client = {"allow_http": True}
    array = filled(ObjectStore(S3Store(bucket, prefix=prefix, client_options=client, **place, **keys)))
    spec = intarsia.tensorstore_spec(array)
    assert not any(secret in json.dumps(spec) for secret in keys.values())
    for name, value in keys.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    np.testing.assert_array_equal(values_of(array), array[...])
    anonymous = ObjectStore(S3Store(bucket, prefix=prefix, skip_signature=True, **place))
    assert kvstore_of(anonymous, "m")["aws_credentials"] == {"type": "anonymous"}


class Spoken:
    """A file system of fsspec, as far as it says where it is."""

    async_impl = asynchronous = True

    def __init__(self, *protocol, **fields):
        self.protocol = protocol
        vars(self).update(fields)


@pytest.mark.parametrize(
    ("fs", "path", "expected"),
    [
        (
            Spoken("s3", "s3a", endpoint_url="http://127.0.0.1:1", anon=True, client_kwargs={}),
            "bucket/a",
            {
                "driver": "s3",
                "bucket": "bucket",
                "path": "a/m/",
                "endpoint": "http://127.0.0.1:1",
                "aws_credentials": {"type": "anonymous"},
            },
        ),
        (
            Spoken("s3", client_kwargs={"region_name": "eu-1"}, key="K", secret="S"),
            "bucket",
            {"driver": "s3", "bucket": "bucket", "path": "m/", "aws_region": "eu-1"},
        ),
        (Spoken("gs", "gcs"), "bucket/a b", {"driver": "gcs", "bucket": "bucket", "path": "a b/m/"}),
        (
            Spoken("http", "https"),
            "https://example.org/a",
            {"driver": "http", "base_url": "https://example.org", "path": "/a/m/"},
        ),
    ],
)
def test_what_file_systems_say_of_themselves(fs, path, expected):
    found = kvstore_of(FsspecStore(fs, path=path), "m")
    assert found == expected or tensorstore.KvStore.Spec(found) == tensorstore.KvStore.Spec(expected)


def test_members_that_tensorstore_cannot_reach_are_refused_with_a_way_out():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="x") as tx:
        filled(tx.store)
    for array, kind in ((intarsia.open(repo, "g/a"), "IcechunkStore"), (filled({}), "MemoryStore")):
        with pytest.raises(intarsia.errors.UnreachableMembersError, match=rf"{kind}[\s\S]*intarsia\.serve"):
            intarsia.tensorstore_spec(array)
        with intarsia.serve(array) as server:  # as the message says
            seen = tensorstore.open({"driver": "zarr3", "kvstore": server.url}).result()
            np.testing.assert_array_equal(seen.read().result(), array[...])


def test_codecs_and_data_types_that_tensorstore_does_not_know_are_refused(tmp_path):
    array = filled(tmp_path)
    array.recode([(0, 2), (0, 4)], codecs=[{"name": "conditional", "configuration": {"codecs": []}}])
    with pytest.raises(ValueError, match="is not registered"):
        tensorstore.open(intarsia.tensorstore_spec(array)).result().read().result()
    array.recode([(0, 2), (0, 4)], codecs=["gzip"])
    np.testing.assert_array_equal(values_of(array), array[...])
    for dtype in ("str", "optional[int8]", "M8[s]"):
        other = intarsia.create(tmp_path, dtype[:3], shape=(2,), chunks=(2,), dtype=dtype)
        with pytest.raises(intarsia.errors.UnreachableMembersError, match="data type"):
            intarsia.tensorstore_spec(other)


def test_a_member_that_is_gone_is_an_error(tmp_path):
    array = filled(tmp_path)
    spec = intarsia.tensorstore_spec(array)
    (tmp_path / "g" / "a" / array.regions[0].name / "zarr.json").unlink()
    with pytest.raises(ValueError, match="NOT_FOUND"):
        tensorstore.open(spec).result()[:4].read().result()
    with pytest.raises(intarsia.errors.MissingMemberError):
        intarsia.tensorstore_spec(intarsia.open(tmp_path, "g/a"))
