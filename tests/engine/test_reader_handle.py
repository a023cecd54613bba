"""A reader as a handle: every store, threads, processes, pickles, dask; arrays that change or go away."""

import asyncio
import json
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import dask
import numpy as np
import obstore.store
import pytest
import zarr
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, ZipStore

import intarsia
from intarsia.engine.reader import SingleArrayHandle
from intarsia.errors import (
    BoundsError,
    DataTypeError,
    MetadataError,
    NotLogicalArrayError,
    ReadError,
    ReadOnlyError,
    WritableSessionError,
)
from tests.logical.places import PLACES
from tests.logical.stores import stored

VALUES = np.arange(2000).reshape(40, 50)


def written(store=None, **options):
    settings = {"shape": (40, 50), "chunks": (8, 8), "dtype": "int32", "name": "a"} | options
    array = zarr.create_array(MemoryStore() if store is None else store, **settings)
    array[...] = VALUES
    return array


def corners(reader):
    """For other processes, which can be sent a function of a module."""
    return reader[::39, ::49].tolist()


CORNERS = VALUES[::39, ::49].tolist()


@pytest.mark.parametrize("shards", [None, (16, 16)])
@pytest.mark.parametrize("place", sorted(set(PLACES) - {"icechunk S3"}))
def test_every_store(place, shards, tmp_path):
    array = written(shards=shards, attributes={"units": "K"})
    with PLACES[place](stored(array.store), tmp_path) as store:
        reader = intarsia.reader(store, "a")
        np.testing.assert_array_equal(reader[...], VALUES)
        np.testing.assert_array_equal(reader[3::7, [5, 1]], VALUES[3::7][:, [5, 1]])
        assert dict(reader.attrs) == {"units": "K"}
        assert (reader.chunks, reader.shards) == ((8, 8), shards)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_stores_of_other_packages(tmp_path, zarr_format):
    array = written(LocalStore(tmp_path), zarr_format=zarr_format)
    by_fsspec = FsspecStore.from_url(f"file://{tmp_path}")
    by_obstore = ObjectStore(obstore.store.LocalStore(str(tmp_path)), read_only=True)
    for store in (str(tmp_path), by_fsspec, by_obstore, array.store):
        reader = intarsia.reader(store, "a")
        np.testing.assert_array_equal(reader[::-3, 7], VALUES[::-3, 7])
        assert "zarr itself" not in intarsia.explain(reader).parts[0].fetcher


def test_a_zip_file_by_its_path(tmp_path):
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        written(store)
    with ZipStore(tmp_path / "a.zip", mode="r") as store:
        np.testing.assert_array_equal(intarsia.reader(store, "a")[...], VALUES)


def test_a_group_is_a_dict_of_readers_by_path():
    store = MemoryStore()
    written(store)
    written(store, name="below/b", zarr_format=3)
    intarsia.create(store, "below/logical", shape=(0,), chunks=(2,), dtype="u1").append([1, 2])
    readers = intarsia.reader(store)
    assert sorted(readers) == ["a", "below/b", "below/logical"]
    assert isinstance(readers["below/logical"], intarsia.LogicalArray)
    np.testing.assert_array_equal(readers["below/b"][...], VALUES)
    group = zarr.open_group(store, path="below", mode="r")
    assert sorted(intarsia.reader(group)) == ["b", "logical"]
    assert intarsia.reader(group, "b").path == "below/b"


def test_versions_of_a_repository(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="first") as first:
        written(first.store, chunks=(40, 50))  # large enough for a file
    with intarsia.transaction(repo, message="second") as tx:
        zarr.open_array(tx.store, path="a")[...] = 0
    assert not intarsia.reader(repo, "a")[...].any()
    before = intarsia.reader(tmp_path / "repo", "a", snapshot_id=first.snapshot_id)
    np.testing.assert_array_equal(before[...], VALUES)
    assert intarsia.explain(before).parts[0].fetcher == "Icechunk, chunk files"


def test_what_is_no_array_is_said():
    with pytest.raises(FileNotFoundError):
        intarsia.reader(MemoryStore(), "nothing/here")
    with pytest.raises(TypeError, match="is an array: there is nothing at 'b' below it"):
        intarsia.reader(written(), "b")
    with pytest.raises(NotLogicalArrayError, match=r"is read with intarsia.reader\(store, path\)"):
        intarsia.open(written().store, "a")
    with pytest.raises(TypeError, match="only an Icechunk repository takes"):
        intarsia.reader(written(), tag="v1")


def test_it_only_reads():
    reader = intarsia.reader(written())
    for write in (reader.__setitem__, reader.oindex.__setitem__, reader.vindex.__setitem__):
        with pytest.raises(ReadOnlyError, match="a reader only reads"):
            write(([0], [0]), 1)
    with pytest.raises(TypeError, match="'cross_region_writes' is not a setting of a reader"):
        reader.with_config(cross_region_writes=True)


def test_settings_keep_the_values():
    reader = intarsia.reader(written())
    careful = reader.with_config(threads=1, window_bytes=1)
    np.testing.assert_array_equal(careful[...], VALUES)
    assert [row.tolist() for row in reader] == VALUES.tolist()
    np.testing.assert_array_equal(np.asarray(reader, dtype="f8"), VALUES)
    assert (len(reader), reader.size, reader.nbytes) == (40, 2000, 8000)


def test_many_threads_share_a_reader(tmp_path):
    reader = intarsia.reader(written(LocalStore(tmp_path)))
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda i: reader[i % 40 :: 3], range(64)):
            assert got.base is None or got.flags.writeable
        assert set(map(str, pool.map(corners, [reader] * 16))) == {str(CORNERS)}


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes(tmp_path, method):
    reader = intarsia.reader(written(LocalStore(tmp_path)))
    assert corners(reader) == CORNERS
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(corners, reader).result() == CORNERS


def test_snapshots_travel_and_sessions_do_not(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        inside = intarsia.reader(written(tx.store))
        np.testing.assert_array_equal(inside[...], VALUES)
        with pytest.raises(WritableSessionError, match="writable Icechunk session"):
            pickle.dumps(inside)
    again = pickle.loads(pickle.dumps(intarsia.reader(repo, "a").with_config(threads=1)))
    assert corners(again) == CORNERS
    assert again.config.threads == 1


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask(tmp_path, scheduler):
    reader = intarsia.reader(written(LocalStore(tmp_path)))
    lazy = reader.to_dask()
    assert lazy.chunks == ((8,) * 5, (8,) * 6 + (2,))
    total, mean = dask.compute(lazy.sum(), (reader * 2).mean(), scheduler=scheduler, num_workers=1)
    assert int(total) == VALUES.sum()
    assert float(mean) == VALUES.mean() * 2


def test_dask_of_shards_of_nulls_and_of_chunks_of_different_shapes():
    sharded = intarsia.reader(written(shards=(16, 16))).to_dask()
    assert sharded.chunksize == (8, 8)
    np.testing.assert_array_equal(sharded.compute(), VALUES)
    nulls = intarsia.reader(intarsia.nullable.create_array({}, data=[1, None, 3], chunks=2)).to_dask()
    assert nulls.compute().tolist() == [1, None, 3]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array({}, shape=(10,), chunks=[[3, 7]], dtype="i4")
        array[...] = np.arange(10)
        reader = intarsia.reader(array)
        assert reader.to_dask().chunks == ((3, 7),)
        assert "chunks of different shapes" in intarsia.explain(reader).parts[0].fetcher
        assert repr(reader).endswith("shape=(10,) dtype=int32 chunks=((3, 7),)>")


# Arrays that change


def test_values_are_those_of_the_store_when_they_are_read():
    array = written()
    reader = intarsia.reader(array)
    array[0, 0] = -1
    assert reader[0, 0] == -1


def test_a_longer_array_is_seen_after_refresh():
    array = written()
    reader = intarsia.reader(array)
    array.resize((60, 50))
    array[59] = 7
    assert reader.shape == (40, 50)
    reader.refresh()
    assert reader.shape == (60, 50)
    assert reader[59, 0] == 7


def test_chunks_that_are_gone_are_not_taken_for_chunks_that_were_never_written():
    array = written()
    reader = intarsia.reader(array)
    array.resize((10, 50))
    np.testing.assert_array_equal(reader[:10], VALUES[:10])
    with pytest.raises(BoundsError, match=r"the array now has the shape \(10, 50\)"):
        reader[30]
    assert reader.shape == (10, 50)


def test_an_array_that_was_rewritten_is_read_as_it_is_now():
    store = MemoryStore()
    reader = intarsia.reader(written(store))
    assert reader[39, 49] == 1999
    array = written(store, chunks=(10, 10), compressors=zarr.codecs.GzipCodec(), overwrite=True)
    array[...] = VALUES + 1
    np.testing.assert_array_equal(reader[...], VALUES + 1)
    assert reader.chunks == (10, 10)


def test_the_byte_order_in_memory_is_no_other_type():
    store = MemoryStore()
    z = zarr.create_array(store, name="a", shape=4, chunks=2, dtype=">i4")
    reader = intarsia.reader(z)
    assert reader[...].tolist() == [
        0,
        0,
        0,
        0,
    ]  # nothing is stored, so it looks whether the array is the same
    again = zarr.open_array(store, path="a")
    again.resize(6)
    again[4:] = 7
    reader.refresh()
    assert reader[...].tolist() == [0, 0, 0, 0, 7, 7]
    assert reader.dtype == z.dtype


def test_an_array_of_another_type_in_its_place_is_an_error():
    store = MemoryStore()
    reader = intarsia.reader(written(store))
    written(store, dtype="float64", chunks=(10, 10), overwrite=True)
    with pytest.raises(DataTypeError, match="was replaced by another one"):
        reader[...]


def test_an_array_that_is_gone_is_an_error(tmp_path):
    reader = intarsia.reader(written(LocalStore(tmp_path)))
    zarr.open_group(tmp_path, mode="r+")
    (tmp_path / "a" / "zarr.json").unlink()
    np.testing.assert_array_equal(reader[...], VALUES)  # nothing is missing yet
    (tmp_path / "a" / "c" / "0" / "0").unlink()
    with pytest.raises(ReadError, match=r"the array at file://.*/a is gone"):
        reader[...]


@pytest.mark.parametrize("options", [{}, {"zarr_format": 2}, {"shards": (16, 16)}])
def test_damage_is_named_with_its_chunk(tmp_path, options):
    reader = intarsia.reader(written(LocalStore(tmp_path), **options))
    name = "0.0" if options.get("zarr_format") == 2 else "c/0/0"
    (tmp_path / "a" / name).write_bytes(b"no such thing")
    with pytest.raises(ReadError, match=r"cannot read chunk \(0, 0\) of the array at file://.*/a: "):
        reader[...]
    np.testing.assert_array_equal(reader[16:], VALUES[16:])


def test_missing_chunks_cost_one_small_read_and_are_the_fill_value():
    array = zarr.create_array({}, shape=(8,), chunks=(2,), dtype="f4", fill_value=np.nan)
    array[2:4] = 1
    reader = intarsia.reader(array)
    np.testing.assert_array_equal(reader[...], array[...])
    np.testing.assert_array_equal(reader[...], array[...])


def test_reading_loads_no_room_above():
    script = (
        "import sys, zarr, intarsia\n"
        "z = zarr.create_array({}, shape=4, dtype='u1')\n"
        "intarsia.reader(z)[...]\n"
        "print([m for m in sys.modules if m.startswith(('dask', 'xarray', 'intarsia.interop'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("document", [b"[]", b"null", b"3", b"\xff", b"{", b"[" * 5000])
def test_metadata_that_makes_no_sense_is_said_with_its_place(document):
    array = written()
    array.store._store_dict["a/zarr.json"] = type(array.store._store_dict["a/zarr.json"]).from_bytes(document)
    with pytest.raises(MetadataError, match="the metadata at 'a' of memory://"):
        intarsia.reader(array.store, "a")


def test_an_axis_that_nothing_can_count_is_refused():
    array = written()
    text = array.store._store_dict["a/zarr.json"].to_bytes().decode()
    document = json.loads(text) | {"shape": [1 << 63, 1 << 63]}
    array.store._store_dict["a/zarr.json"] = type(array.store._store_dict["a/zarr.json"]).from_bytes(
        json.dumps(document).encode()
    )
    with pytest.raises(MetadataError, match=r"an axis has \d+ elements"):
        intarsia.reader(array.store, "a")


def test_an_array_that_changes_during_every_attempt_to_read_it_is_given_up(monkeypatch):
    reader = intarsia.reader(zarr.create_array(MemoryStore(), shape=4, chunks=2, dtype="u1"))
    monkeypatch.setattr(SingleArrayHandle, "is_described_by", lambda *_: False)
    monkeypatch.setattr(SingleArrayHandle, "still_backs", lambda *_: False)
    with pytest.raises(ReadError, match="was changed 100 times while it was read"):
        reader[...]
    with pytest.raises(ReadError, match="was changed 100 times while it was read"):
        asyncio.run(reader.read_async())
