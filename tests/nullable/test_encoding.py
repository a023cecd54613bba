"""The nested chains: both ways of calling them, and what they check first."""

import asyncio

import numpy as np
import pytest
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import Int16

from intarsia.errors import ChunkDecodeError
from intarsia.nullable.encoding import NestedCodecs, run_now

CHAIN = (TransposeCodec(order=(1, 0)), BytesCodec(endian="big"), GzipCodec(), Crc32cCodec())


def spec(shape=(2, 3)):
    return ArraySpec(shape, Int16(), np.int16(0), ArrayConfig.from_dict({}), default_buffer_prototype())


def encoded(part):
    data = default_buffer_prototype().nd_buffer.from_ndarray_like(np.arange(6, dtype="i2").reshape(2, 3))
    return run_now(part.encode(data, spec(), wait=False)), asyncio.run(part.encode(data, spec(), wait=True))


def decoded(part, raw, shape=(2, 3)):
    return run_now(part.decode(raw, spec(shape), wait=False))


def test_both_ways_of_calling_give_the_same():
    part = NestedCodecs("data", CHAIN)
    # gzip's header has the time in it; what comes out again is the same
    for raw in encoded(part):
        for read in (decoded(part, raw), asyncio.run(part.decode(raw, spec(), wait=True))):
            assert read.as_numpy_array().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_codec_that_waits_is_not_run_at_once():
    with pytest.raises(RuntimeError, match="awaits an event loop"):
        run_now(asyncio.sleep(0))


def test_the_size_is_checked_before_and_after_decompression():
    fixed = NestedCodecs("mask", (BytesCodec(), Crc32cCodec()))
    raw = encoded(fixed)[0]
    with pytest.raises(ChunkDecodeError, match="mask part has 15 bytes, but 6 elements of int16 need 16"):
        decoded(fixed, raw[0:15])
    packed = NestedCodecs("data", (BytesCodec(), GzipCodec()))
    with pytest.raises(ChunkDecodeError, match="data part has 12 bytes, but 8 elements of int16 need 16"):
        decoded(packed, encoded(packed)[0], (2, 4))


def test_a_damaged_checksum_is_a_damaged_part():
    part = NestedCodecs("data", (BytesCodec(), Crc32cCodec()))
    raw = encoded(part)[0].as_numpy_array().copy()
    raw[0] ^= 1
    with pytest.raises(ChunkDecodeError, match="the data part is damaged: crc32c"):
        decoded(part, default_buffer_prototype().buffer.from_array_like(raw))


def test_only():
    assert NestedCodecs("data", (BytesCodec(),)).only(BytesCodec) == BytesCodec()
    assert NestedCodecs("data", CHAIN).only(BytesCodec) is None
    assert NestedCodecs("data", CHAIN).synchronous
