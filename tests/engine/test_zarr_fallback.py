"""What is not numbers in fixed chunks behind synchronous codecs: the same values and errors."""

import gzip
import zlib

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.buffer import cpu
from zarr.registry import register_codec
from zarr.storage import MemoryStore

import intarsia
from tests.grids import dear
from tests.logical import strategies as s
from tests.logical.codec_kinds import AsyncOnlyCodec

register_codec("test.async_only", AsyncOnlyCodec)


def flipped(shape=(12, 10)):
    store = MemoryStore()
    array = intarsia.create(store, "a", shape=shape, chunks=(4, 5), dtype="uint8")
    data = np.arange(np.prod(shape), dtype="u1").reshape(shape)
    half = ((0, 8), (0, shape[1])), ((8, shape[0]), (0, shape[1]))
    array.add_region(half[0], codecs=[AsyncOnlyCodec()], data=data[:8], chunks=(3, 4))
    array.add_region(half[1], codecs=["zstd"], data=data[8:])
    return store, array, data


@dear
@given(st.data())
def test_codecs_that_only_work_asynchronously(data):
    _, array, model = flipped()
    array = array.with_config(window_bytes=data.draw(st.sampled_from([1, 40, 1000])))
    assert intarsia.explain(array).chunks == 11
    selection = data.draw(s.basic(model.shape))
    np.testing.assert_array_equal(array[selection], model[selection])
    selection = data.draw(s.orthogonal(model.shape))
    np.testing.assert_array_equal(array.oindex[selection], s.by_numpy_orthogonal(model, selection))
    points = data.draw(s.points(model.shape))
    np.testing.assert_array_equal(array.vindex[points], model[points])


def test_they_are_written_too():
    _, array, data = flipped()
    array = array.with_config(cross_region_writes=True)
    array[2:10, 3:7] = 9
    array.vindex[[0, 11], [0, 9]] = [1, 2]
    array.oindex[[5, 1], :] = 3
    data[2:10, 3:7], data[0, 0], data[11, 9], data[[1, 5]] = 9, 1, 2, 3
    np.testing.assert_array_equal(array[...], data)


def test_a_damaged_chunk_is_named():
    store, array, _ = flipped()
    member = array.regions[0].name
    store._store_dict[f"a/{member}/c/1/2"] = cpu.Buffer.from_bytes(b"\x0d" + bytes(11))
    with pytest.raises(intarsia.errors.ReadError, match=rf"{member}, chunk \(1, 2\): chunk starts with 13"):
        array[...]
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1, 2\)"):
        array.vindex[[0, 3], [0, 8]]


def test_strings_are_read():
    array = intarsia.create({}, "a", shape=(6,), chunks=(2,), dtype=str, fill_value="none")
    array.add_region(((0, 4),), codecs=["vlen-utf8", "zstd"], data=np.array(list("abcd"), dtype=array.dtype))
    assert array[1:].tolist() == ["b", "c", "d", "none", "none"]
    assert "MemoryStore, in threads" in repr(intarsia.explain(array))
    array[1] = "β"
    assert array[:2].tolist() == ["a", "β"]


def test_missing_chunks_may_be_refused():
    with zarr.config.set({"array.read_missing_chunks": False}):
        array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
        array.add_region(((0, 4),), codecs=[])
        array[:2] = 1
        assert array[:2].tolist() == [1, 1]
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1,\)"):
            array[:]


def rectilinear(shape=(10, 8), shards=None, **options):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array({}, shape=shape, chunks=[[3, 7], [2, 2, 4]], **{"dtype": "i4"} | options)
        array[...] = np.arange(80).reshape(shape).astype(array.dtype)
    return array


@pytest.mark.parametrize("dtype", ["i4", str])
@pytest.mark.parametrize("codec", [zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec(), None])
def test_chunks_of_different_shapes(dtype, codec):
    array = rectilinear(dtype=dtype, compressors=codec)
    reader, model = intarsia.reader(array), array[...]
    assert "zarr itself: chunks of different shapes" in repr(intarsia.explain(reader))
    np.testing.assert_array_equal(reader[::-2, 1:7], model[::-2, 1:7])
    np.testing.assert_array_equal(reader.oindex[[9, 0], [3, 1]], model[[9, 0]][:, [3, 1]])
    np.testing.assert_array_equal(reader.vindex[[9, 0], [3, 1]], model[[9, 0], [3, 1]])


def test_chunks_of_different_shapes_are_not_trusted():
    array = rectilinear(compressors=zarr.codecs.GzipCodec())
    bomb = gzip.compress(bytes(100 << 20))
    array.store._store_dict["c/0/0"] = cpu.Buffer.from_bytes(bomb)
    with pytest.raises(intarsia.errors.ReadError, match="more than the 24 bytes that are allowed"):
        intarsia.reader(array)[...]


def test_filters_and_orders_of_format_2():
    delta = numcodecs.Delta(dtype="f4")
    for options in ({}, {"filters": [delta]}, {"compressors": None}, {"compressors": numcodecs.LZMA()}):
        for order in "CF":
            array = zarr.create_array(
                {}, shape=(7, 5), chunks=(3, 2), dtype="f4", order=order, zarr_format=2, **options
            )
            array[:6] = np.arange(30).reshape(6, 5)
            np.testing.assert_array_equal(intarsia.reader(array)[...], array[...])


def test_compressors_of_format_2_are_bounded():
    array = zarr.create_array({}, shape=4, dtype="f4", zarr_format=2, compressors=numcodecs.Zlib())
    array.store._store_dict["0"] = cpu.Buffer.from_bytes(zlib.compress(bytes(100 << 20)))
    with pytest.raises(intarsia.errors.ReadError, match="more than the 16 bytes that are allowed"):
        intarsia.reader(array)[...]
