"""What messages about logical arrays suggest, in their own words, is done and helps."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.errors import IntarsiaError
from tests.suggestions import follow

VALUES = np.arange(40).reshape(8, 5)
ALL = ((0, 8), (0, 5))


@pytest.fixture
def arr(tmp_path):
    """Two regions in different codecs, and a hole at the end."""
    array = intarsia.create(tmp_path / "s", "a", shape=(12, 5), chunks=(4, 5), dtype="int64")
    for start, codecs in ((0, ["gzip"]), (4, ["zstd"])):
        array.add_region(((start, start + 4), (0, 5)), codecs=codecs, data=VALUES[start : start + 4])
    return array


def test_a_write_into_a_hole(arr):
    bounds, data = ((8, 12), (0, 5)), np.ones((4, 5), int)
    with pytest.raises(IntarsiaError) as error:
        arr[8:12] = data
    follow(error, "arr.append(data, codecs=[…])", arr=arr, data=data, codecs=["gzip"])
    assert arr.shape == (16, 5)
    follow(error, "arr.add_region(bounds, codecs=[…])", arr=arr, bounds=bounds, codecs=["gzip"])
    arr[8:12] = data
    assert (arr[8:] == 1).all()


def test_a_write_across_regions(arr):
    with pytest.raises(IntarsiaError) as error:
        arr[2:6] = 0
    follow(error, "arr.with_config(cross_region_writes=True)", arr=arr)[2:6] = 0
    assert (arr[2:6] == 0).all()


def test_a_region_over_others(arr):
    bounds = ((0, 4), (0, 5))
    with pytest.raises(IntarsiaError) as error:
        arr.add_region(bounds, codecs=["zstd"])
    follow(error, "arr.recode", arr=arr)(bounds, codecs=["zstd"])
    np.testing.assert_array_equal(arr[:8], VALUES)
    follow(error, "arr.drop_region", arr=arr)(bounds)
    arr.add_region(bounds, codecs=["zstd"], data=VALUES[:4] + 1)
    np.testing.assert_array_equal(arr[:4], VALUES[:4] + 1)


def test_an_array_that_is_open_for_reading(arr, tmp_path):
    store, path = tmp_path / "s", "a"
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(store, path)[:4] = 0
    follow(error, "intarsia.open(store, path, mode='r+')", store=store, path=path)[:4] = 0
    assert (arr[:4] == 0).all()


def test_a_plain_array(tmp_path):
    store, path = tmp_path / "plain", "p"
    zarr.create_array(store, name=path, data=VALUES, chunks=(4, 5))
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(store, path)
    found = follow(error, "intarsia.reader(store, path)", store=store, path=path)
    np.testing.assert_array_equal(found[...], VALUES)
    follow(error, "intarsia.convert")(store, tmp_path / "new")
    np.testing.assert_array_equal(intarsia.open(tmp_path / "new", path)[...], VALUES)


def test_an_array_to_be_made(arr, tmp_path):
    store, names = tmp_path / "s", {"shape": (4,), "chunks": (2,), "dtype": "int8"}
    with pytest.raises(ValueError, match="mode 'w'") as error:
        intarsia.open(store, "b", mode="w")
    assert follow(error, "intarsia.create")(store, "b", **names).shape == (4,)
    with pytest.raises(IntarsiaError) as error:
        intarsia.create(store, "b", **names)
    assert "overwrite=True" in str(error.value)
    assert intarsia.create(store, "b", overwrite=True, **names | {"shape": (6,)}).shape == (6,)
    zarr.open_group(store).create_group("g")
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(store, "g")
    code = "intarsia.create(store, path, shape=…, chunks=…, dtype=…)"
    assert follow(error, code, store=store, path="g/c", **names).shape == (4,)


def test_a_replica_of_nothing(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    replica = {"chunks": (4, 2), "codecs": ["gzip"]}
    with intarsia.transaction(repo) as tx:
        arr = tx.create("a", shape=(0, 4), chunks=(2, 4), dtype="int64")
        with pytest.raises(IntarsiaError) as error:
            arr.add_replica(**replica)
        follow(error, "arr.set_policy(replica={…})", arr=arr, replica=replica)
    intarsia.append(repo, "a", np.ones((4, 4), int), codecs=["gzip"])
    intarsia.maintain(repo)
    assert len(intarsia.open(repo, "a").manifest.replicas) == 1


@pytest.mark.parametrize("kind", [str, Path])
def test_advice_about_a_path(arr, tmp_path, kind):
    path = kind(tmp_path / "s" / "a")
    with pytest.raises(IntarsiaError) as error:
        intarsia.advise(path)
    assert str(follow(error, f"intarsia.advise(intarsia.reader({str(path)!r}))"))


def test_nulls_for_a_region_without(tmp_path):
    intarsia.create(tmp_path / "s", "a", shape=(4,), chunks=(2,), dtype="optional[int64]")
    plain = zarr.create_array(tmp_path / "p", shape=(4,), chunks=(2,), dtype="int64")
    intarsia.adopt(tmp_path / "s", "a", plain)
    arr = intarsia.open(tmp_path / "s", "a", mode="r+")
    with pytest.raises(IntarsiaError) as error:
        arr[:2] = np.ma.masked_array([1, 2], [True, False])
    follow(error, "arr.recode(bounds, codecs=[…])", arr=arr, bounds=((0, 4),), codecs=["gzip"])
    arr[:2] = np.ma.masked_array([1, 2], [True, False])
    assert arr[...].mask.tolist() == [True, False, False, False]


def test_an_ambiguous_selection():
    cube = intarsia.create({}, "c", shape=(2, 3, 4), chunks=(2, 3, 4), dtype="u1", fill_value=1)
    with pytest.raises(IndexError) as error:
        cube[[0, 1], :, [0, 1]]
    assert follow(error, "array.oindex", array=cube)[[0, 1], :, [0, 1]].shape == (2, 3, 2)
    assert follow(error, "array.vindex", array=cube)[[0, 1], 0, [0, 1]].tolist() == [1, 1]


def test_codecs_where_no_member_chooses(arr):
    with pytest.raises(IntarsiaError) as error:
        intarsia.codecs.rewrite(arr)
    follow(error, "array.recode(bounds, codecs=[…])", array=arr, bounds=ALL, codecs=["blosc"])
    np.testing.assert_array_equal(arr[:8], VALUES)


def test_index_arrays_beside_a_slice(tmp_path):
    array = intarsia.create(tmp_path / "s", "a", shape=(2, 2, 2), chunks=(2, 2, 2), dtype="int64")
    array.append(np.arange(8).reshape(2, 2, 2), codecs=["gzip"])
    values, where = array[...], ([2, 3], [0, 1])
    with pytest.raises(IndexError) as error:
        array[where[0], :, where[1]]
    assert "array.oindex[...] (outer product) or array.vindex[...] (points)" in str(error.value)
    np.testing.assert_array_equal(array.oindex[where[0], :, where[1]], values[2:, :, :])
    np.testing.assert_array_equal(array.vindex[where[0], [0, 1], where[1]], values[[2, 3], [0, 1], [0, 1]])


def test_masked_values_for_an_array_without_nulls(arr, tmp_path):
    values = np.ma.masked_array(np.ones((4, 5), int), VALUES[:4] == 3)
    with pytest.raises(IntarsiaError) as error:
        arr[:4] = values
    assert '(values.filled(…)), or create the array with dtype="optional[…]"' in str(error.value)
    arr[:4] = values.filled(7)
    assert arr[0, 3] == 7
    options = {"shape": (4, 5), "chunks": (4, 5), "dtype": "optional[int64]"}
    nullable = intarsia.create(tmp_path / "s", "nullable", **options)
    nullable.add_region(((0, 4), (0, 5)), codecs=["gzip"], data=values)
    assert nullable[...].mask.sum() == 1


def test_a_packing_whose_values_do_not_fit(tmp_path):
    arr = intarsia.create(tmp_path / "s", "a", shape=(4,), chunks=(4,), dtype="float64")
    with pytest.raises(IntarsiaError, match=r"Packing\(…, values='float64'\)"):
        arr.add_region(((0, 4),), codecs=["gzip"], packing=intarsia.Packing("int16", scale=2))
    packing = intarsia.Packing("int16", scale=2, values="float64", missing=(-1,))
    arr.add_region(((0, 4),), codecs=["gzip"], packing=packing, data=[2.0, 4, 6, 8])
    assert arr[...].tolist() == [2, 4, 6, 8]


def test_a_replica_that_holds_other_values(arr):
    bounds = ((0, 8), (0, 5))
    arr.add_replica(bounds=bounds, chunks=(8, 1), codecs=["gzip"])
    (replica,) = arr.replicas
    replica.member[...] = replica.member[...] + 1
    problem, *_ = intarsia.verify(arr, deep=True)
    assert problem.advice == "drop it and make it again: arr.drop_replica(bounds), arr.add_replica(…)"
    arr.drop_replica(bounds)
    arr.add_replica(bounds=bounds, chunks=(8, 1), codecs=["gzip"])
    assert not intarsia.verify(arr, deep=True)


def test_a_member_that_is_gone(arr, tmp_path):
    name = next(iter(arr.members))
    shutil.rmtree(tmp_path / "s" / "a" / name)
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(tmp_path / "s", "a")[:8]
    assert name in str(follow(error, "intarsia.verify")(tmp_path / "s", "a"))
