"""Exported arrays are what they were, read by zarr alone; memory is bounded; nothing half-written stays."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.interop import node_copies
from tests.logical.stores import memory


def mixed(store, path="t", rows=40):
    array = intarsia.create(
        store, path, shape=(0, 30), chunks=(10, 30), dtype="f4", fill_value=-1, dimension_names=("time", "x"),
        attributes={"units": "K"},
    )  # fmt: skip
    values = np.arange(rows * 30, dtype="f4").reshape(rows, 30)
    array.append(values[: rows // 2], codecs=["gzip"])
    array.append(values[rows // 2 :], codecs=["zstd"], chunks=(5, 30))
    return array, values


def test_values_names_attributes_and_fill_value_are_kept(tmp_path):
    array, values = mixed(memory())
    array.drop_region(np.s_[10:20])
    z = intarsia.export(array, tmp_path / "plain.zarr")
    assert isinstance(z, zarr.Array)
    plain = zarr.open_array(tmp_path / "plain.zarr", mode="r")
    values[10:20] = -1
    np.testing.assert_array_equal(plain[...], values)
    assert plain.fill_value == -1
    assert plain.metadata.dimension_names == ("time", "x")
    assert dict(plain.attrs) == {"units": "K"}
    assert not (tmp_path / "plain.zarr/c/2").exists()  # a hole is stored nowhere


def test_an_array_that_is_encoded_alike_keeps_its_encoding_and_others_may_be_asked_for(tmp_path):
    array = intarsia.create(memory(), "t", shape=(0, 8), chunks=(4, 8), dtype="i4")
    array.append(np.ones((8, 8), "i4"), codecs=["crc32c"], chunks=(2, 8), shards=(4, 8))
    z = intarsia.export(array, tmp_path / "a.zarr")
    assert (z.chunks, z.shards, [type(c).__name__ for c in z.compressors]) == (
        (2, 8),
        (4, 8),
        ["Crc32cCodec"],
    )
    z = intarsia.export(array, tmp_path / "b.zarr", codecs=["gzip"], chunks=(8, 4))
    assert (z.chunks, z.shards, type(z.compressors[0]).__name__) == ((8, 4), None, "GzipCodec")
    assert z[...].tolist() == array[...].tolist()


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("string", ["a", "", "é"]),
        ("variable_length_bytes", [b"a", b"", b"xyz"]),
        ("bool", [True, False, True]),
        ("datetime64[s]", np.array(["2020-01-01", "NaT", "1970-01-01"], "datetime64[s]")),
        ("complex64", [1j, 2, 3]),
        ("optional[int16]", np.ma.masked_array([1, 2, 3], [False, True, False], "i2")),
    ],
)
def test_every_data_type_is_exported(dtype, values):
    array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype=dtype)
    array.append(values)
    z = intarsia.export(array, memory())
    got = intarsia.nullable.open_array(z.store)[...] if dtype.startswith("optional") else z[...]
    assert got.tolist() == array[...].tolist()


def test_packed_and_turned_regions_are_unpacked():
    array = intarsia.create({}, "a", shape=(4, 3), chunks=(2, 3), dtype="f4")
    array.add_region(np.s_[:2], data=np.ones((2, 3)), packing={"stored": "i2", "scale": 0.5})
    array.group.create_array("m", data=np.arange(6, dtype="f4").reshape(3, 2))
    array.add_region(np.s_[2:], member="m", view=intarsia.View.identity(2).transpose(1, 0))
    z = intarsia.export(array, memory())
    assert z.dtype == "f4"
    np.testing.assert_array_equal(z[...], array[...])


def test_a_dataset_that_was_ingested_opens_in_xarray_without_intarsia(tmp_path):
    for day in range(3):
        data = xr.Dataset(
            {"sst": (("time", "x"), np.full((1, 4), day, "f4"), {"units": "K"})},
            {"time": [day], "x": range(4)},
        )
        data.sst.encoding = {"dtype": "i2", "scale_factor": 0.01 * (day + 1), "_FillValue": -1}
        data.to_netcdf(tmp_path / f"{day}.nc", engine="h5netcdf")
    report = intarsia.ingest(f"{tmp_path}/*.nc", tmp_path / "repo", concat_dim="time")
    intarsia.export(report.repository, tmp_path / "plain.zarr")
    with (
        xr.open_zarr(tmp_path / "plain.zarr", consolidated=False) as plain,
        xr.open_dataset(report.repository, engine="intarsia") as own,
    ):
        xr.testing.assert_allclose(plain.load(), own.load())
        assert set(plain.variables) == {"sst", "time", "x"}
        assert plain.sst.attrs["units"] == "K"


def test_formats_two_and_three_and_old_versions_are_exported(tmp_path):
    old = zarr.create_array(
        tmp_path / "old.zarr", data=np.arange(6, dtype=">i2").reshape(2, 3), chunks=(1, 3), zarr_format=2,
        attributes={"_ARRAY_DIMENSIONS": ["y", "x"], "a": 1}, fill_value=None,
    )  # fmt: skip
    z = intarsia.export(tmp_path / "old.zarr", tmp_path / "new.zarr")
    assert (z.metadata.zarr_format, z.metadata.dimension_names, dict(z.attrs)) == (3, ("y", "x"), {"a": 1})
    assert (z.chunks, z[...].tolist()) == ((1, 3), old[...].tolist())
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("g/t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2])
    intarsia.append(repo, "g/t", [3, 4])
    assert intarsia.export(repo, memory(), source_path="g/t", snapshot_id=tx.snapshot_id)[...].tolist() == [
        1,
        2,
    ]
    group = intarsia.export(repo, memory(), "h", source_path="g")
    assert (group.path, group["t"][...].tolist()) == ("h", [1, 2, 3, 4])


def test_what_is_there_is_kept_unless_it_may_go(tmp_path):
    array, values = mixed(tmp_path / "own.zarr")
    zarr.create_array(tmp_path / "there.zarr", data=np.zeros(3))
    with pytest.raises(intarsia.errors.OverwriteError, match="overwrite=True"):
        intarsia.export(array, tmp_path / "there.zarr")
    assert zarr.open_array(tmp_path / "there.zarr", mode="r").shape == (3,)
    assert intarsia.export(array, tmp_path / "there.zarr", overwrite=True).shape == values.shape
    for place, to in (
        (tmp_path / "own.zarr", ""),
        (tmp_path / "own.zarr", "t"),
        (tmp_path / "own.zarr", "t/x"),
    ):
        with pytest.raises(intarsia.errors.OverwriteError, match="into itself"):
            intarsia.export(array, place, to, overwrite=True)
    np.testing.assert_array_equal(intarsia.open(tmp_path / "own.zarr", "t")[...], values)


@pytest.mark.parametrize("target", ["repository", "a*.zarr"])
def test_places_that_cannot_be_meant_are_refused(target, tmp_path):
    array, _ = mixed({})
    place = tmp_path / target
    if target == "repository":
        intarsia.open_repository(place, create=True)
    with pytest.raises(ValueError, match=r"transaction|pattern of names"):
        intarsia.export(array, place)
    with pytest.raises(intarsia.errors.MissingArrayError, match="no Zarr array or group"):
        intarsia.export(tmp_path / "nowhere.zarr", tmp_path / "new.zarr")


def test_a_failure_leaves_nothing_behind(tmp_path):
    mixed(tmp_path / "own.zarr")
    (chunk, *_) = sorted((tmp_path / "own.zarr").rglob("c/1/0"))
    chunk.write_bytes(b"damaged")
    with pytest.raises(intarsia.errors.ReadError):
        intarsia.export(intarsia.open(tmp_path / "own.zarr", "t"), tmp_path / "plain.zarr")
    assert not list((tmp_path / "plain.zarr").rglob("*.json"))


def test_memory_does_not_grow_with_the_array(tmp_path, monkeypatch):
    import functools

    monkeypatch.setattr(
        node_copies, "tile_in_blocks", functools.partial(node_copies.tile_in_blocks, most_bytes=1 << 18)
    )
    array = intarsia.create(tmp_path / "own.zarr", "t", shape=(0, 1024), chunks=(16, 1024), dtype="f8")
    for _ in range(16):
        array.append(np.random.default_rng(0).random((256, 1024)), codecs=[])  # 2 MiB each
    array = intarsia.open(tmp_path / "own.zarr", "t").with_config(window_bytes=1 << 18)
    tracemalloc.start()
    try:
        intarsia.export(array, tmp_path / "plain.zarr")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 4


def test_progress_counts_bytes_over_all_arrays():
    store = memory()
    mixed(store, "a")
    mixed(store, "b")
    seen = []
    intarsia.export(store, memory(), progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 9600)
    assert seen[-1] == (9600, 9600)
    assert seen == sorted(seen)


@given(st.lists(st.integers(0, 7), min_size=0, max_size=3), st.data())
def test_any_shape_and_chunks(shape, data):
    chunks = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    array = intarsia.create({}, "t", shape=shape, chunks=chunks, dtype="i2", fill_value=3)
    values = np.arange(np.prod(shape, dtype=int), dtype="i2").reshape(shape)
    if values.size:
        array.add_region(..., data=values) if shape else array.add_region((), data=values)
    z = intarsia.export(array, memory())
    np.testing.assert_array_equal(z[...], array[...])
    assert intarsia.export(z, memory(), "x/y").shape == tuple(shape)
