"""Fused views: zarr, xarray and every reader of keys see ordinary arrays, with the values of logical ones."""

import json
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import intarsia
from intarsia.interop.fused_view import ArrayView
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from tests.conftest import PIPELINES
from tests.grids import dear
from tests.interop.datasets import stored_in_parts, weather
from tests.logical import backings, strategies
from tests.logical.places import PLACES, moved
from tests.logical.stores import memory, stored

PROTOTYPE = default_buffer_prototype()


def listed(store, prefix=None):
    async def collect():
        return sorted([key async for key in (store.list() if prefix is None else store.list_prefix(prefix))])

    return sync(collect())


def names(store, prefix):
    async def collect():
        return sorted([name async for name in store.list_dir(prefix)])

    return sync(collect())


def get(store, key, part=None):
    found = sync(store.get(key, PROTOTYPE, part))
    return None if found is None else found.to_bytes()


def two_codecs(store, path="t", **options):
    """A logical array of 7 by 3 in two encodings, and its values."""
    values = np.arange(21, dtype="f4").reshape(7, 3)
    options = {"chunks": (2, 2), "dtype": "f4", "dimension_names": ["y", "x"]} | options
    array = intarsia.create(store, path, shape=(0, 3), **options)
    array.append(values[:4], codecs=["gzip"])
    array.append(values[4:], codecs=["zstd"])
    return array, values


@dear
@given(strategies.arrays(), st.sampled_from(sorted(PIPELINES)), st.data())
def test_every_selection_equals_numpy_under_every_pipeline(case, pipeline, data):
    array, model = case
    selection = tuple(data.draw(strategies.axis_slices(n, negative_steps=False)) for n in model.shape)
    with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
        view = intarsia.fused_view(array)
        assert type(view) is zarr.Array
        assert (view.shape, view.dtype, view.chunks) == (array.shape, array.dtype, array.chunks)
        np.testing.assert_array_equal(view[...], model)
        np.testing.assert_array_equal(view[selection], model[selection])


@dear
@given(backings.arrays())
def test_packed_and_turned_regions_are_values_in_a_view(case):
    array, model = case
    view = intarsia.fused_view(array)
    assert (view.shape, view.dtype, view.chunks) == (model.shape, model.dtype, array.chunks)
    np.testing.assert_array_equal(view[...], model)


@dear
@given(strategies.arrays(), st.data())
def test_the_keys_and_bytes_are_those_that_zarr_would_have_stored(case, data):
    array, model = case
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in model.shape) if data.draw(st.booleans()) else None
    plain = memory()
    ordinary = zarr.create_array(
        plain,
        shape=model.shape,
        chunks=chunks or array.chunks,
        dtype=model.dtype,
        fill_value=array.fill_value,
        compressors=GzipCodec(),
    )
    ordinary[...] = model
    view = intarsia.fused_view(array, codecs=["gzip"], chunks=chunks)
    expected, found = stored(plain), stored(view.store)
    assert json.loads(found.pop("zarr.json")) == json.loads(expected.pop("zarr.json"))
    # gzip writes the time of day into every chunk
    seen = {k: found[k][:4] + found[k][8:] for k in found.keys() & expected.keys()}
    assert seen == {k: v[:4] + v[8:] for k, v in expected.items()}
    for key in found.keys() - expected.keys():  # regions hold nothing but the fill value there
        index = map(int, key.split("/")[1:])
        box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, view.chunks, strict=True))
        np.testing.assert_array_equal(model[box], np.full_like(model[box], array.fill_value))


@pytest.mark.parametrize(
    "codecs",
    [
        None,
        [],
        ["gzip", "crc32c"],
        [TransposeCodec(order=(1, 0)), ZstdCodec()],
        [BytesCodec(endian="big")],
        [ShardingCodec(chunk_shape=(1, 2), codecs=[BytesCodec(), ZstdCodec()])],
        [
            intarsia.codecs.ConditionalCodec(
                codecs=[GzipCodec()], decision=lambda chunk_index: chunk_index[0] % 2
            )
        ],
    ],
    ids=["default", "none", "gzip", "transpose", "big endian", "shards", "conditional"],
)
def test_the_codecs_of_a_view_are_chosen(codecs, pipeline):
    array, values = two_codecs(memory())
    view = intarsia.fused_view(array, codecs=codecs)
    np.testing.assert_array_equal(view[...], values)
    np.testing.assert_array_equal(view[3:6, 1], values[3:6, 1])
    shown = [codec["name"] for codec in view.metadata.to_dict()["codecs"]]
    if codecs is None:
        assert shown == ["bytes", "zstd"]
    if codecs == []:
        assert shown == ["bytes"]


@pytest.mark.parametrize("place", PLACES)
def test_every_kind_of_store_can_be_looked_at(place, tmp_path):
    array, values = two_codecs(memory())
    with moved(array, place, tmp_path) as other:
        np.testing.assert_array_equal(intarsia.fused_view(other)[...], values)
        group = intarsia.fused_view(other.store)
        assert [name for name, _ in group.members(max_depth=None)] == ["t"]
        keys = [f"t/c/{i}/{j}" for i in range(4) for j in range(2)]
        assert listed(group.store) == sorted([*keys, "t/zarr.json", "zarr.json"])


def made_tree(folder):
    """Groups, plain arrays and logical arrays; something of Zarr v2, and something that is not Zarr."""
    two_codecs(folder, "a/t", fill_value=1)
    zarr.create_array(folder, name="a/plain", shape=(4,), chunks=(2,), dtype="i4")[:] = 5
    zarr.create_array(folder / "old", shape=(4,), chunks=(2,), dtype="i4", zarr_format=2)[:] = 6
    zarr.open_group(folder, mode="a").attrs["title"] = "a tree"
    (folder / "notes.txt").write_text("not for others")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "key").write_text("not for others")


def test_groups_plain_arrays_and_attributes_are_as_they_are(tmp_path):
    made_tree(tmp_path)
    view = intarsia.fused_view(tmp_path)
    assert dict(view.attrs) == {"title": "a tree"}
    assert sorted(name for name, _ in view["a"].members()) == ["plain", "t"]
    assert view["a/plain"][...].tolist() == [5] * 4
    assert zarr.open_array(view.store, path="old", zarr_format=2, mode="r")[...].tolist() == [6] * 4
    for key in ("a/plain/zarr.json", "a/plain/c/1", "a/zarr.json", "zarr.json", "old/.zarray", "old/0"):
        assert get(view.store, key) == (tmp_path / key).read_bytes()


def test_listing_shows_exactly_the_keys_that_can_be_read(tmp_path):
    made_tree(tmp_path)
    store = intarsia.fused_view(tmp_path).store
    keys = listed(store)
    member = intarsia.open(tmp_path, "a/t").regions[0].name
    hidden = [f"a/t/{member}/zarr.json", f"a/t/{member}/c/0/0", "notes.txt", ".hidden/key", "a/t/c/4/0"]
    assert all(get(store, key) is not None and sync(store.exists(key)) for key in keys)
    assert not any(get(store, key) is not None or sync(store.exists(key)) for key in hidden)
    assert not {"notes.txt", ".hidden/key"} & set(keys)
    assert not any("m-" in key for key in keys)
    folders = {"", *("/".join(key.split("/")[:n]) for key in keys for n in range(1, key.count("/") + 1))}
    for folder in folders:
        start = f"{folder}/" if folder else ""
        below = [key for key in keys if key.startswith(start)]
        assert names(store, folder) == sorted({key[len(start) :].split("/")[0] for key in below})
        assert listed(store, start) == below
        assert not sync(store.is_empty(folder))
    assert listed(store, "a/t/c/1") == ["a/t/c/1/0", "a/t/c/1/1"]
    assert sync(store.is_empty("nothing"))


@given(strategies.arrays(max_ndim=3))
def test_directories_of_an_array_hold_the_names_of_its_keys(case):
    store = intarsia.fused_view(case[0]).store
    keys = listed(store)
    for folder in {"/".join(key.split("/")[:n]) for key in keys for n in range(key.count("/") + 1)}:
        start = f"{folder}/" if folder else ""
        below = {key[len(start) :].split("/")[0] for key in keys if key.startswith(start)}
        assert names(store, folder) == sorted(below)


def test_chunks_are_where_regions_are():
    array = intarsia.create({}, "a", shape=(12,), chunks=(2,), dtype="f4", fill_value=0)
    array.add_region([(0, 4)], data=[0, 0, 1, 1], codecs=["gzip"])
    array.add_region([(4, 6)], data=[-0.0, -0.0], codecs=["gzip"])
    array.add_region([(6, 8)], codecs=["gzip"], fill_value=7)
    array.add_region([(8, 10)], codecs=["gzip"])
    view = intarsia.fused_view(array)
    assert listed(view.store, "c") == [f"c/{i}" for i in range(5)]
    assert view.nchunks_initialized == 5
    assert np.signbit(view[4:6]).all()
    assert view[...].tolist() == [0, 0, 1, 1, 0, 0, 7, 7, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", [FileNotFoundError, KeyError])
def test_no_error_looks_like_a_missing_chunk(kind, monkeypatch):
    array, _ = two_codecs(memory())
    view = intarsia.fused_view(array)

    def fail(*_):
        raise kind("gone")

    monkeypatch.setattr("intarsia.interop.fused_view.read_request", fail)
    with pytest.raises(intarsia.errors.ReadError, match=r"cannot read chunk c/\d/\d: .*gone"):
        view[...]


@pytest.mark.parametrize("codecs", [None, [ShardingCodec(chunk_shape=(1, 2))]], ids=["zstd", "shards"])
def test_parts_of_values(codecs):
    array, _ = two_codecs(memory())
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="x") as tx:
        two_codecs(tx.store)
    for source in (array.store, repo):
        store = intarsia.fused_view(source, codecs=codecs).store
        for key in ("t/zarr.json", "t/c/0/0", "zarr.json"):
            whole = get(store, key)
            parts = {
                RangeByteRequest(2, 7): whole[2:7],
                RangeByteRequest(3, 10**6): whole[3:],
                OffsetByteRequest(5): whole[5:],
                SuffixByteRequest(4): whole[-4:],
                SuffixByteRequest(10**6): whole,
            }
            for part, expected in parts.items():
                assert get(store, key, part) == expected
            found = sync(store.get_partial_values(PROTOTYPE, [(key, part) for part in parts]))
            assert [piece.to_bytes() for piece in found] == list(parts.values())
            assert sync(store.getsize(key)) == len(whole)
        assert get(store, "t/c/9/9", SuffixByteRequest(4)) is None
        with pytest.raises(FileNotFoundError):
            sync(store.getsize("t/c/9/9"))


@pytest.mark.parametrize(
    "key", ["c/00/0", "c/+0/0", "c/0", "c/0/0/0", "c/0/2", "c/-1/0", "c/\u0660/0", "c/0/", "c", "C/0/0", ""]
)
def test_only_keys_as_zarr_spells_them_are_chunks(key):
    array, _ = two_codecs(memory())
    assert get(intarsia.fused_view(array).store, key) is None


def test_nothing_can_be_written():
    array, _ = two_codecs(memory())
    before = stored(array.store)
    view = intarsia.fused_view(array)
    group = intarsia.fused_view(array.store)
    for attempt in (
        lambda: view.__setitem__(slice(0, 1), 5),
        lambda: view.resize((9, 3)),
        lambda: view.attrs.update({"a": 1}),
        lambda: group.create_array("new", shape=(1,), dtype="u1"),
        lambda: group.__delitem__("t"),
        lambda: zarr.open_array(view.store, mode="r+"),
        lambda: view.store.with_read_only(False),
        lambda: sync(view.store.set("c/0/0", PROTOTYPE.buffer.from_bytes(b"x"))),
        lambda: sync(view.store.delete("c/0/0")),
        lambda: sync(view.store.clear()),
    ):
        with pytest.raises((ValueError, NotImplementedError)):
            attempt()
    with pytest.raises(intarsia.errors.ReadOnlyError, match="is read-only"):
        view[0, 0] = 5
    assert stored(array.store) == before


def test_metadata_that_was_consolidated_does_not_show_members():
    store = memory()
    two_codecs(store, "g/t")
    zarr.create_array(store, name="g/plain", shape=(2,), dtype="u1")
    with pytest.warns(UserWarning, match="Consolidated metadata"):
        zarr.consolidate_metadata(store)
    assert any("m-" in name for name, _ in zarr.open_group(store, mode="r").members(max_depth=None))
    view = intarsia.fused_view(store)
    assert sorted(name for name, _ in view.members(max_depth=None)) == ["g", "g/plain", "g/t"]
    assert b"consolidated" not in get(view.store, "zarr.json")


def test_attributes_are_the_users_and_other_conventions_stay():
    store = memory()
    array, _ = two_codecs(store, attributes={"units": "K"})
    group = zarr.open_group(store, path="t", mode="a")
    other = {"uuid": "f0c0ffee-0000-4000-8000-000000000000", "name": "proj:"}
    group.attrs["zarr_conventions"] = [*group.attrs["zarr_conventions"], other]
    assert dict(intarsia.fused_view(store)["t"].attrs) == {"units": "K", "zarr_conventions": [other]}
    assert intarsia.fused_view(array).metadata.dimension_names == ("y", "x")


@pytest.mark.parametrize("kind", ["files", "repository"])
def test_damage_is_an_error_and_never_the_fill_value(kind, tmp_path):
    if kind == "files":
        array, values = two_codecs(tmp_path)
        files = sorted((tmp_path / "t" / array.regions[0].name / "c").rglob("*"))
        source = array.store
    else:
        repo = intarsia.open_repository(tmp_path, create=True)
        with intarsia.transaction(repo, message="x") as tx:
            array = tx.create("t", shape=(0, 3000), chunks=(2, 3000), dtype="f4")
            values = np.random.default_rng(0).random((4, 3000), "f4")
            array.append(values[:2], codecs=["gzip"])
            array.append(values[2:], codecs=["gzip"])
        files, source = sorted((tmp_path / "chunks").rglob("*")), repo
        assert len(files) == 2
    for file in files:
        if file.is_file():
            file.write_bytes(file.read_bytes()[:7])
    view = intarsia.fused_view(source, "t")
    with pytest.raises(intarsia.errors.ReadError, match="chunk"):
        view[0]
    assert view.metadata.shape == values.shape


def test_a_chunk_that_is_gone_from_a_repository_is_an_error(tmp_path):
    repo = intarsia.open_repository(tmp_path, create=True)
    with intarsia.transaction(repo, message="x") as tx:
        array = tx.create("t", shape=(0, 3000), chunks=(2, 3000), dtype="f4")
        array.append(np.random.default_rng(0).random((2, 3000), "f4"), codecs=["gzip"])
    for file in (tmp_path / "chunks").iterdir():
        file.unlink()
    view = intarsia.fused_view(tmp_path, "t")
    for look in (lambda: view[0], lambda: get(view.store, "c/0/0")):
        with pytest.raises(intarsia.errors.ReadError, match="chunk"):
            look()


def test_a_member_that_is_gone_and_a_manifest_that_is_damaged_are_errors(tmp_path):
    array, _ = two_codecs(tmp_path)
    file = tmp_path / "t" / array.regions[0].name / "zarr.json"
    file.unlink()
    view = intarsia.fused_view(tmp_path)
    with pytest.raises(intarsia.errors.MissingMemberError):
        view["t"][0]
    document = json.loads((tmp_path / "t" / "zarr.json").read_text())
    document["attributes"]["intarsia"]["shape"] = None
    (tmp_path / "t" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(intarsia.errors.ManifestError):
        view["t"]
    (tmp_path / "t" / "zarr.json").write_text("{")
    with pytest.raises(intarsia.errors.MetadataError):
        view["t"]


def test_nullable_arrays_are_shown_with_their_codec():
    array = intarsia.create({}, "n", shape=(0,), chunks=(2,), dtype="optional[float64]")
    array.append([1.0, None, 3.0], codecs=["gzip"])
    array.append([None, None, None, 5.0, None], codecs=[])
    for codecs in (None, [], ["gzip"]):
        view = intarsia.fused_view(array, codecs=codecs)
        seen = intarsia.nullable.open_array(view.store)[...]
        assert seen.tolist() == [1.0, None, 3.0, None, None, None, 5.0, None]
        assert view.metadata.to_dict()["codecs"][0]["name"] == "optional"
    assert listed(view.store, "c") == ["c/0", "c/1", "c/2", "c/3"]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("str", ["a", "", "ü" * 9]),
        ("U3", ["a", "bc", "def"]),
        ("M8[s]", np.array([0, 1, "NaT"], dtype="M8[s]")),
        ("bool", [True, False, True]),
        ("c8", [1j, 2, 3]),
        (">i4", [1, 2, 3]),
    ],
)
def test_every_data_type(dtype, values):
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype=dtype)
    array.append(np.array(values, dtype=array.dtype))
    np.testing.assert_array_equal(intarsia.fused_view(array)[...], array[...])
    assert intarsia.fused_view(array)[...].tolist() == np.array(values, dtype=array.dtype).tolist()


def test_xarray_opens_a_view_as_it_opens_the_group():
    repo = intarsia.open_repository("memory://", create=True)
    stored_in_parts(weather(), repo)
    view = intarsia.fused_view(repo)
    with xr.open_zarr(view.store) as seen:
        assert seen.attrs.pop("intarsia_unlimited_dims") == ["time"]  # a group's attributes are as they are
        with xr.open_dataset(repo, engine="intarsia") as ours:
            xr.testing.assert_identical(seen.load(), ours.load())
        xr.testing.assert_equal(seen, weather())


def test_a_snapshot_stays_and_is_opened_once(monkeypatch):
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="x") as tx:
        _, values = two_codecs(tx.store)
    loads = []
    load = LogicalArrayHandle.load.__func__
    monkeypatch.setattr(
        LogicalArrayHandle,
        "load",
        classmethod(lambda cls, group: loads.append(group.path) or load(cls, group)),
    )
    view = intarsia.fused_view(repo)
    for _ in range(3):
        np.testing.assert_array_equal(view["t"][...], values)
    assert loads == ["t"]
    first = tx.snapshot_id
    intarsia.append(repo, "t", np.ones((2, 3)))
    assert view["t"].shape == (7, 3)
    assert intarsia.fused_view(repo)["t"].shape == (9, 3)
    assert intarsia.fused_view(repo, "t", snapshot_id=first).shape == (7, 3)


def test_a_store_that_changes_is_shown_as_it_is_now(tmp_path):
    array, values = two_codecs(tmp_path)
    view = intarsia.fused_view(tmp_path)
    opened = view["t"]
    np.testing.assert_array_equal(opened[...], values)
    array.recode(codecs=["zstd", "crc32c"])  # the members that were read are gone
    np.testing.assert_array_equal(opened[...], values)
    array.append(np.full((2, 3), 9), codecs=["gzip"])
    assert view["t"][-2:].tolist() == [[9.0] * 3] * 2
    array[0, 0] = 77
    assert opened[0, 0] == 77
    intarsia.create(tmp_path, "u", shape=(2,), chunks=(2,), dtype="u1")
    assert sorted(name for name, _ in view.members()) == ["t", "u"]


def test_a_layout_that_changes_during_a_read_does_not_look_like_fill_values(tmp_path, monkeypatch):
    """The members are removed after the view has looked at the manifest, and before it reads them."""
    array, values = two_codecs(tmp_path)
    view = intarsia.fused_view(tmp_path, "t")
    box_of = ArrayView.box_of

    def late(self, key):
        box = box_of(self, key)
        array.recode(codecs=["zstd"])
        return box

    monkeypatch.setattr(ArrayView, "box_of", late)
    np.testing.assert_array_equal(view[:2, :2], values[:2, :2])


def test_uncommitted_changes_show_in_a_view_of_their_session():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="x") as tx:
        array, values = two_codecs(tx.store)
        view = intarsia.fused_view(tx)
        np.testing.assert_array_equal(view["t"][...], values)
        array[0, 0] = 50
        assert view["t"][0, 0] == 50
        np.testing.assert_array_equal(intarsia.fused_view(tx.session, "t")[...], array[...])
        with pytest.raises(intarsia.errors.WritableSessionError):
            pickle.dumps(view.store)


def test_a_view_travels(tmp_path):
    _, values = two_codecs(tmp_path)
    view = intarsia.fused_view(tmp_path, "t", codecs=["gzip"], chunks=(3, 3))
    there = pickle.loads(pickle.dumps(view))
    np.testing.assert_array_equal(there[...], values)
    assert there.chunks == (3, 3)
    assert there.store == view.store
    assert there.store != intarsia.fused_view(tmp_path, "t").store


def test_a_view_of_a_view_shows_the_same():
    array = intarsia.create(memory(), "g/t", shape=(0, 8), chunks=(1, 8), dtype="i4")
    values = np.arange(256 * 8, dtype="i4").reshape(256, 8)
    array.append(values, codecs=["gzip"])  # more chunks than there are threads
    inner = intarsia.fused_view(array.store, codecs=["gzip"])
    for outer in (intarsia.fused_view(inner)["g/t"], intarsia.fused_view(inner, "g/t")):
        np.testing.assert_array_equal(outer[...], values)
        assert [codec["name"] for codec in outer.metadata.to_dict()["codecs"]] == ["bytes", "gzip"]


def test_many_threads_at_once(tmp_path):
    repo = intarsia.open_repository(tmp_path, create=True)
    values = np.arange(64 * 8, dtype="i4").reshape(64, 8)
    with intarsia.transaction(repo, message="x") as tx:
        array = tx.create("t", shape=(0, 8), chunks=(1, 8), dtype="i4")
        for i in range(8):
            array.append(values[8 * i : 8 * i + 8], codecs=["gzip"] if i % 2 else [])
    view = intarsia.fused_view(repo, "t")
    with ThreadPoolExecutor(16) as pool:
        for found in pool.map(lambda _: view[...], range(32)):
            np.testing.assert_array_equal(found, values)


def test_decisions_that_read_a_view_do_not_wait_for_each_other(tmp_path):
    """More chunks at once than there are threads, each of which reads through the view."""
    script = textwrap.dedent(f"""
        import intarsia, zarr
        from zarr.codecs import BytesCodec, Crc32cCodec
        zarr.config.set({{"codec_pipeline.path": "intarsia.codecs.context.BatchedPipeline"}})
        array = intarsia.create({str(tmp_path / "plan")!r}, "a", shape=(0, 2), chunks=(1, 1), dtype="u1")
        array.append([[i % 2, 0] for i in range(64)], codecs=["gzip"])
        plan = intarsia.fused_view(array)
        decide = lambda chunk_index: int(plan[chunk_index[0]].max())
        codec = intarsia.codecs.ConditionalCodec(codecs=[Crc32cCodec()], decision=decide)
        z = zarr.create(store={{}}, shape=256, chunks=4, dtype="u1", codecs=[BytesCodec(), codec])
        z[:] = 7
        assert intarsia.codecs.masks(z).tolist() == [0, 1] * 32
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=300)


def test_what_is_not_there_and_what_makes_no_sense():
    array, _ = two_codecs(memory())
    with pytest.raises(intarsia.errors.MissingArrayError, match="'nothing'"):
        intarsia.fused_view(array.store, "nothing")
    with pytest.raises(intarsia.errors.ShapeError, match="one logical array"):
        intarsia.fused_view(array.store, chunks=(2, 2))
    with pytest.raises(intarsia.errors.ShapeError):
        intarsia.fused_view(array, chunks=(2,))
    with pytest.raises(TypeError, match="repository"):
        intarsia.fused_view(array.store, branch="main")
    with pytest.raises(intarsia.errors.CodecConfigurationError):
        intarsia.fused_view(array, codecs=["gzip", BytesCodec()])
