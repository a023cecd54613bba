"""What messages about other programs' data suggest, in their own words, is done and helps."""

import re

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.errors import IntarsiaError
from tests.suggestions import follow

VALUES = np.arange(40).reshape(8, 5)


@pytest.fixture
def repo(tmp_path):
    return intarsia.open_repository(tmp_path / "r", create=True)


@pytest.fixture
def arr(tmp_path):
    array = intarsia.create(tmp_path / "s", "a", shape=(8, 5), chunks=(4, 5), dtype="int64")
    array.add_region(((0, 8), (0, 5)), codecs=["gzip"], data=VALUES)
    return array


@pytest.fixture
def plain(tmp_path):
    return zarr.create_array(tmp_path / "plain", name="p", data=VALUES, chunks=(4, 5))


def test_an_export_into_a_repository(arr, repo, tmp_path):
    with pytest.raises(IntarsiaError) as error:
        intarsia.export(arr, repo)
    with intarsia.transaction(repo) as tx:
        follow(error, "intarsia.export(source, tx.store)", source=arr, tx=tx)
    np.testing.assert_array_equal(zarr.open_array(repo.readonly_session("main").store)[...], VALUES)
    follow(error, "intarsia.convert")(tmp_path / "s", tmp_path / "new")
    np.testing.assert_array_equal(intarsia.open(tmp_path / "new", "a")[...], VALUES)


def test_an_export_over_something(arr, tmp_path):
    intarsia.export(arr, tmp_path / "out.zarr")
    with pytest.raises(IntarsiaError, match="replace it with overwrite=True"):
        intarsia.export(arr, tmp_path / "out.zarr")
    arr[:] = 1
    intarsia.export(arr, tmp_path / "out.zarr", overwrite=True)
    assert (zarr.open_array(tmp_path / "out.zarr")[...] == 1).all()


def test_dask_blocks_for_a_box_of_nothing(repo):
    data = da.from_array(VALUES, chunks=(4, 5))
    bounds, store = ((0, 8), (0, 5)), repo
    with pytest.raises(IntarsiaError) as error:
        intarsia.store_dask(data, store, "a", bounds=bounds)
    names = {"path": "a", "shape": (8, 5), "chunks": (4, 5), "dtype": "int64"}
    with intarsia.transaction(repo) as tx:
        follow(error, "intarsia.create(store, path, shape=…, chunks=…, dtype=…)", store=tx.store, **names)
    intarsia.store_dask(data, store, "a", bounds=bounds)
    np.testing.assert_array_equal(intarsia.open(repo, "a")[...], VALUES)


@pytest.mark.parametrize(
    ("options", "length"), [({"axis": 0}, 16), ({"bounds": ((0, 8), (0, 5))}, 8), ({"overwrite": True}, 8)]
)
def test_dask_blocks_for_an_array_that_is_there(repo, options, length):
    data = da.from_array(VALUES, chunks=(4, 5))
    intarsia.store_dask(data, repo, "a")
    with pytest.raises(FileExistsError, match=r"axis=… .* bounds=… .* overwrite=True"):
        intarsia.store_dask(data + 1, repo, "a")
    intarsia.store_dask(data + 1, repo, "a", **options)
    found = intarsia.open(repo, "a")
    assert len(found) == length
    np.testing.assert_array_equal(found[-8:], VALUES + 1)


def test_what_is_no_dask_array_with_known_blocks(repo):
    with pytest.raises((IntarsiaError, TypeError)) as error:
        intarsia.store_dask(VALUES, repo, "a")
    intarsia.store_dask(follow(error, "dask.array.from_array", dask=dask)(VALUES), repo, "a")
    array = da.from_array(np.arange(6), chunks=3)
    array = array[array % 2 == 0]
    with pytest.raises((IntarsiaError, ValueError)) as error:
        intarsia.store_dask(array, repo, "b")
    follow(error, "array.compute_chunk_sizes()", array=array)
    intarsia.store_dask(array, repo, "b", chunks=(2,))
    assert intarsia.open(repo, "b")[...].tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    "encoding", [{"chunks": (2, 5)}, {"packing": intarsia.Packing("int16", scale=2, values="float64")}]
)
def test_regions_that_cannot_be_fused(tmp_path, monkeypatch, encoding):
    monkeypatch.chdir(tmp_path)
    arr = intarsia.create(tmp_path / "s", "a", shape=(8, 5), chunks=(4, 5), dtype="float64")
    arr.add_region(((0, 8), (0, 5)), codecs=["gzip"], data=2.0 * VALUES, **encoding)
    with pytest.raises(IntarsiaError) as error:
        intarsia.fuse(arr, tmp_path / "fused")
    follow(error, "intarsia.export(array, 'plain.zarr')", array=arr)
    np.testing.assert_array_equal(zarr.open_array("plain.zarr")[...], 2 * VALUES)
    (code,) = re.findall(r"arr\.recode\(.*\)", str(error.value))
    follow(error, code, arr=arr, bounds=((0, 8), (0, 5)), codecs=["gzip"])
    np.testing.assert_array_equal(intarsia.fuse(arr, tmp_path / "fused")[...], 2 * VALUES)


def test_adopted_chunks_after_a_partial_one(arr, plain):
    array, source = arr, plain
    array.resize((6, 5))
    with pytest.raises(IntarsiaError) as error:
        intarsia.adopt(array.group.store, "a", source)
    follow(error, "array.append(source[...])", array=array, source=source)
    np.testing.assert_array_equal(array[6:], VALUES)


def test_a_group_to_adopt(tmp_path, plain):
    with pytest.raises(IntarsiaError, match="source_path="):
        intarsia.adopt(tmp_path / "s", "b", tmp_path / "plain")
    found = intarsia.adopt(tmp_path / "s", "b", tmp_path / "plain", source_path="p")
    np.testing.assert_array_equal(found[...], VALUES)


def test_a_dataset_that_is_there(repo):
    dataset = xr.Dataset({"v": (("time", "x"), VALUES)}, {"time": np.arange(8)})
    intarsia.from_xarray(dataset, repo)
    with pytest.raises(FileExistsError, match=r"give append_dim; to replace them, overwrite=True"):
        intarsia.from_xarray(dataset, repo)
    intarsia.from_xarray(dataset.assign_coords(time=np.arange(8, 16)), repo, append_dim="time")
    assert intarsia.open(repo, "v").shape == (16, 5)
    intarsia.from_xarray(dataset, repo, overwrite=True)
    assert intarsia.open(repo, "v").shape == (8, 5)


def test_an_array_opened_as_a_dataset(plain, tmp_path):
    with pytest.raises((IntarsiaError, ValueError)) as error:
        xr.open_dataset(tmp_path / "plain/p", engine="intarsia")
    np.testing.assert_array_equal(follow(error, "intarsia.reader")(tmp_path / "plain", "p")[...], VALUES)
    follow(error, "intarsia.convert")(tmp_path / "plain", tmp_path / "new")
    np.testing.assert_array_equal(intarsia.open(tmp_path / "new", "p")[...], VALUES)


def test_a_write_to_a_fused_view(arr, tmp_path):
    view = intarsia.fused_view(arr)
    with pytest.raises(Exception, match="a fused view is read-only") as error:
        view[:4] = 0
    code = "intarsia.open(store, path, mode='r+')"
    follow(error, code, store=tmp_path / "s", path="a")[:4] = 0
    assert (arr[:4] == 0).all()


def test_references_to_what_only_intarsia_decodes(repo, tmp_path):
    codecs = [intarsia.codecs.ConditionalCodec(codecs=["gzip"])]
    with intarsia.transaction(repo) as tx:
        array = tx.create("a", shape=(8, 5), chunks=(4, 5), dtype="int64")
        array.add_region(((0, 8), (0, 5)), codecs=codecs, data=VALUES)
    with pytest.raises(IntarsiaError) as error:
        intarsia.archives.to_kerchunk(repo, "", tmp_path / "references.json")
    follow(error, "intarsia.export")(intarsia.open(repo, "a"), tmp_path / "plain.zarr")
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "plain.zarr")[...], VALUES)


def test_another_encoding_for_blocks_in_a_region(repo):
    data, bounds = da.from_array(VALUES, chunks=(4, 5)), ((0, 8), (0, 5))
    intarsia.store_dask(data, repo, "a", codecs=["gzip"])
    with pytest.raises(IntarsiaError, match="Leave them out to write the data into these") as error:
        intarsia.store_dask(data + 1, repo, "a", bounds=bounds, codecs=["zstd"])
    intarsia.store_dask(data + 1, repo, "a", bounds=bounds)
    with intarsia.transaction(repo) as tx:
        follow(error, "arr.recode", arr=tx.open("a"))(bounds, codecs=["zstd"])
    np.testing.assert_array_equal(intarsia.open(repo, "a")[...], VALUES + 1)


def test_chunks_of_different_sizes_to_adopt(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        source = zarr.create_array(tmp_path / "uneven", shape=(8, 5), chunks=[[3, 5], [5]], dtype="int64")
        source[...] = VALUES
        with pytest.raises(IntarsiaError) as error:
            intarsia.adopt(tmp_path / "s", "b", source)
        follow(error, "intarsia.convert")(source, tmp_path / "new", "b")
    np.testing.assert_array_equal(intarsia.open(tmp_path / "new", "b")[...], VALUES)
