"""Small chunks are decoded together and copied row by row; what comes out is the same as one by one."""

import functools
import gzip
import tracemalloc

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.core.buffer import cpu
from zarr.storage import LocalStore, MemoryStore

import intarsia
from intarsia.codecs import compressors
from intarsia.engine import chunk_codecs

COMPRESSORS = {
    "raw": None,
    "zstd": ZstdCodec(level=1),
    "checked": ZstdCodec(level=1, checksum=True),
    "gzip": GzipCodec(level=1),
    "blosc": BloscCodec(cname="lz4"),
    "crc32c": Crc32cCodec(),  # one by one
}
SHAPE, CHUNKS = (37, 61), (5, 7)


@pytest.fixture(params=["in one call", "one by one", "without batches"], autouse=True)
def way(request, monkeypatch):
    """However few chunks there are; as larger ones; and with a python-zstandard that cannot."""
    if request.param == "without batches":
        monkeypatch.setattr(chunk_codecs, "HAS_BATCHES", False)
        monkeypatch.setattr(compressors, "HAS_BATCHES", False)
    elif request.param == "one by one":
        monkeypatch.setattr(chunk_codecs, "LARGEST_TOGETHER", 0)
    else:
        monkeypatch.setattr(chunk_codecs, "WORTH_ONE_CALL", 1)
    return request.param


@functools.cache
def stored(kind, shards, dtype, endian):
    values = np.random.default_rng(1).integers(0, 50, SHAPE).astype(dtype)
    values[10:20, 14:28] = 0  # chunks that are not stored
    array = zarr.create_array(
        MemoryStore(), data=values, chunks=CHUNKS, shards=(10, 14) if shards else None,
        compressors=COMPRESSORS[kind], serializer=BytesCodec(endian=endian),
        fill_value=0, config={"write_empty_chunks": False},
    )  # fmt: skip
    return array, values


def slices(length):
    return st.slices(length).filter(lambda s: len(range(*s.indices(length))) > 0)


entries = [st.one_of(slices(n), st.lists(st.integers(0, n - 1), min_size=1, max_size=9)) for n in SHAPE]


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("kind", COMPRESSORS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is the same for all examples
@given(st.tuples(*entries), st.sampled_from([("f4", "little"), ("i4", "big"), ("u1", "little")]))
def test_any_selection_of_many_chunks(way, kind, shards, selection, dtype):
    array, values = stored(kind, shards, *dtype)
    reader = intarsia.reader(array)
    np.testing.assert_array_equal(reader.oindex[selection], values[np.ix_(*(
        np.arange(n)[entry] for entry, n in zip(selection, SHAPE, strict=True)
    ))])  # fmt: skip
    np.testing.assert_array_equal(reader[...], values)


@pytest.mark.parametrize(
    ("shape", "chunks"), [((5000,), (7,)), ((9, 10, 11), (2, 3, 4)), ((3, 4, 5, 6), (1, 2, 2, 4))]
)
@pytest.mark.parametrize("kind", ["raw", "zstd"])
def test_any_number_of_axes(way, tmp_path, kind, shape, chunks):
    values = np.random.default_rng(0).integers(0, 99, shape).astype("i2")
    array = zarr.create_array(LocalStore(tmp_path), data=values, chunks=chunks, compressors=COMPRESSORS[kind])
    reader = intarsia.reader(array)
    for selection in (..., np.s_[1:], np.s_[..., ::-1], np.s_[..., 1:-1], np.s_[..., ::3], np.s_[::-2, ...]):
        np.testing.assert_array_equal(reader[selection], values[selection])


@pytest.mark.parametrize("kind", ["raw", "zstd"])
def test_packed_numbers_and_views(way, kind):
    """Regions whose packings differ, and one whose axes are turned round."""
    numbers = np.random.default_rng(0).integers(0, 99, (20, 30)).astype("i2")
    array = intarsia.create({}, "a", shape=(20, 60), chunks=(4, 5), dtype="f8")
    for k, scale in enumerate((0.5, 0.25)):
        packing = intarsia.Packing("int16", scale=np.float64(scale))
        codecs = [c for c in [BytesCodec(), COMPRESSORS[kind]] if c is not None]
        array.add_region([(0, 20), (30 * k, 30 * k + 30)], codecs=codecs, packing=packing)
        array[:, 30 * k : 30 * k + 30] = numbers * scale
    expected = np.concatenate([numbers * 0.5, numbers * 0.25], axis=1)
    for selection in (..., np.s_[3:17, 4:51], np.s_[::3, ::-7]):
        np.testing.assert_array_equal(array[selection], expected[selection])


def damaged(kind, change):
    """An array with one chunk that is not as it was."""
    store = MemoryStore()
    values = np.random.default_rng(0).integers(0, 9, (100, 100)).astype("f4")
    array = zarr.create_array(store, data=values, chunks=(10, 10), compressors=COMPRESSORS[kind])
    store._store_dict["c/6/3"] = cpu.Buffer.from_bytes(change(store._store_dict["c/6/3"].to_bytes()))
    return intarsia.reader(array), values


def flip(data):
    return data[:-3] + bytes([data[-3] ^ 0xFF]) + data[-2:]


@pytest.mark.parametrize("kind", ["raw", "zstd", "checked", "gzip", "blosc"])
@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data[:3], lambda data: b"", lambda d: d * 2]
)
def test_the_damaged_one_among_many_is_named(way, kind, change):
    if kind == "blosc" and len(change(b"ab")) > 2:
        pytest.skip("blosc says itself how long its data is, and what follows is no part of it")
    reader, _ = damaged(kind, change)
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(6, 3\)"):
        reader[...]


@pytest.mark.parametrize("kind", ["checked", "gzip"])
def test_a_wrong_checksum_among_many_is_an_error(way, kind):
    reader, _ = damaged(kind, flip)
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(6, 3\)"):
        reader[...]


def test_chunks_that_others_wrote_lie_between(way):
    """Two frames, a frame that does not say its size, several members of gzip."""

    def two_frames(data):
        content = zstd.decompress(data)
        return zstd.compress(content[:100]) + zstd.compress(content[100:])

    def two_members(data):
        content = gzip.decompress(data)
        return gzip.compress(content[:100]) + gzip.compress(content[100:]) + bytes(5)

    for kind, change in (("zstd", two_frames), ("gzip", two_members)):
        reader, values = damaged(kind, change)
        np.testing.assert_array_equal(reader[...], values)


@pytest.mark.parametrize("kind", ["raw", "zstd"])
def test_chunks_that_claim_to_be_long_are_not_all_read_before_one_is_refused(way, tmp_path, kind):
    array = zarr.create_array(
        LocalStore(tmp_path), data=np.ones((100, 100), "f4"), chunks=(10, 10), compressors=COMPRESSORS[kind]
    )
    for path in tmp_path.rglob("c/*/*"):
        path.write_bytes(bytes(4 << 20))
    reader = intarsia.reader(array)
    tracemalloc.start()
    try:
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0, 0\)"):
            reader[...]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
