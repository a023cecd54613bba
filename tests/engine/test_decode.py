"""A chunk decoded by the engine equals the chunk decoded by zarr, wherever it goes."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    CastValue,
    Crc32cCodec,
    GzipCodec,
    ScaleOffset,
    TransposeCodec,
    ZstdCodec,
)
from zarr.storage import MemoryStore

from intarsia.codecs import PackBitsCodec, PadCodec, ShuffleCodec
from intarsia.engine.chunk_codecs import Scratch
from intarsia.engine.prepared_member import EngineMember, PreparedMember

SHAPE = (4, 6)
DTYPES = ["bool", "int8", "uint16", ">i4", "float32", "float64", "complex64", "M8[s]", "m8[ns]", "U3"]
COMPRESSORS = {
    "none": [],
    "zstd": [ZstdCodec()],
    "gzip": [GzipCodec()],
    "blosc": [BloscCodec()],
    "checked": [ZstdCodec(), Crc32cCodec()],
    "crc32c": [Crc32cCodec()],
    "padded": [PadCodec(location="start", nbytes=3), GzipCodec()],
    "shuffled": [ShuffleCodec(element_size=1), ZstdCodec()],
}


def values(dtype):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind in "SU":
        return rng.integers(0, 99999, SHAPE).astype(str).astype(dtype)
    return rng.integers(-99, 99, SHAPE).astype(dtype)


def source(dtype, codecs, data=None):
    data = values(dtype) if data is None else data
    array = zarr.create(store=MemoryStore(), shape=SHAPE, chunks=SHAPE, dtype=dtype, codecs=codecs, path="m")
    array[...] = data
    return PreparedMember.of("m", array), data


def bytes_of(found):
    return found.array.store_path.store._store_dict["m/c/0/0"].to_bytes()


@pytest.mark.parametrize("compressor", sorted(COMPRESSORS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_data_type_byte_order_and_compressor(dtype, compressor):
    for endian in ("little", "big"):
        equals_zarr(dtype, compressor, endian, [])
        equals_zarr(dtype, compressor, endian, [TransposeCodec(order=(1, 0))])


def equals_zarr(dtype, compressor, endian, first):
    found, data = source(dtype, [*first, BytesCodec(endian=endian), *COMPRESSORS[compressor]])
    assert isinstance(found, EngineMember)
    encoded, scratch = bytes_of(found), Scratch()
    whole = np.zeros_like(data)
    found.decoder.place(encoded, whole, (slice(0, 4), slice(0, 6)), None, scratch)
    np.testing.assert_array_equal(whole, found.array[...])
    wide = np.zeros((6, 9), dtype=data.dtype)
    found.decoder.place(encoded, wide, (slice(1, 5), slice(2, 8)), None, scratch)
    np.testing.assert_array_equal(wide[1:5, 2:8], data)
    assert not wide[5].view("u1").any()
    part = np.zeros((2, 3), dtype=data.dtype)
    inside = (slice(1, 4, 2), slice(0, 6, 2))
    found.decoder.place(encoded, part, (slice(None), slice(None)), inside, scratch)
    np.testing.assert_array_equal(part, data[1:4:2, ::2])


def test_the_output_is_written_directly_where_the_chunk_lies_in_one_piece():
    found, _ = source("float32", [BytesCodec(), ZstdCodec()])
    assert found.decoder.is_direct

    class NoScratch:
        def bytes_for(self, nbytes):
            raise AssertionError("decoded into a buffer first")

    out = np.zeros((8, 6), dtype="f4")
    found.decoder.place(bytes_of(found), out, (slice(4, 8), slice(0, 6)), None, NoScratch())
    np.testing.assert_array_equal(out[4:], found.array[...])
    big, _ = source("float32", [BytesCodec(endian="big"), ZstdCodec()])
    assert not big.decoder.is_direct


def test_filters_that_change_the_data_type():
    codecs = [
        ScaleOffset(offset=10.0, scale=2.0),
        CastValue(data_type="int16", rounding="nearest-even"),
        BytesCodec(),
        ZstdCodec(),
    ]
    data = np.arange(24.0).reshape(SHAPE) / 2
    found, _ = source("float64", codecs, data)
    out = np.empty(SHAPE)
    found.decoder.place(bytes_of(found), out, (slice(None), slice(None)), None, Scratch())
    np.testing.assert_array_equal(out, found.array[...])


def test_filters_get_aligned_memory():
    codecs = [
        CastValue(data_type="int16", rounding="nearest-even"),
        BytesCodec(),
        PadCodec(location="start", nbytes=3),
    ]
    found, data = source("float64", codecs, np.arange(24.0).reshape(SHAPE))
    out = np.empty(SHAPE)
    found.decoder.place(bytes_of(found), out, (slice(None), slice(None)), None, Scratch())
    np.testing.assert_array_equal(out, data)


def test_an_array_to_bytes_codec_of_its_own():
    found, data = source("bool", [PackBitsCodec(), ZstdCodec()], values("int8") % 2 == 0)
    out = np.zeros(SHAPE, dtype=bool)
    found.decoder.place(bytes_of(found), out, (slice(None), slice(None)), None, Scratch())
    np.testing.assert_array_equal(out, data)
    assert not found.decoder.is_direct


@given(st.sampled_from(sorted(COMPRESSORS)), st.integers(0, 200), st.booleans())
def test_a_chunk_of_another_length_is_an_error(compressor, nbytes, straight):
    found, _ = source("float32", [BytesCodec(), *COMPRESSORS[compressor]])
    other, data = source("uint8", [BytesCodec(), *COMPRESSORS[compressor]])
    raw = zarr.create(
        store=MemoryStore(), shape=(nbytes,), chunks=(max(nbytes, 1),), dtype="u1", path="m",
        codecs=[BytesCodec(), *COMPRESSORS[compressor]], config={"write_empty_chunks": True},
    )  # fmt: skip
    raw[...] = np.arange(nbytes) % 7
    if nbytes in (0, 96):
        return
    encoded = raw.store_path.store._store_dict["m/c/0"].to_bytes()
    out = np.zeros(SHAPE, dtype="f4")
    inside = None if straight else (slice(0, 4), slice(0, 6))
    with pytest.raises((ValueError, RuntimeError)):
        found.decoder.place(encoded, out, (slice(0, 4), slice(0, 6)), inside, Scratch())
    assert data is not other


def test_one_scratch_serves_chunks_of_different_sizes():
    scratch = Scratch()
    for dtype in ("uint8", "float64", "int16", "float64"):
        found, data = source(dtype, [BytesCodec(), ZstdCodec()])
        out = np.zeros((4, 12), dtype=dtype)
        found.decoder.place(bytes_of(found), out, (slice(0, 4), slice(3, 9)), None, scratch)
        np.testing.assert_array_equal(out[:, 3:9], data)
