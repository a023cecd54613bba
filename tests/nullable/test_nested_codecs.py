"""The nested chains, and what they check first."""

import numpy as np
import pytest
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import Int16

from intarsia.errors import ChunkDecodeError
from intarsia.nullable.codec import decode_part, encode_part

CHAIN = (TransposeCodec(order=(1, 0)), BytesCodec(endian="big"), GzipCodec(), Crc32cCodec())


def spec(shape=(2, 3)):
    return ArraySpec(shape, Int16(), np.int16(0), ArrayConfig.from_dict({}), default_buffer_prototype())


def encoded(codecs):
    data = default_buffer_prototype().nd_buffer.from_ndarray_like(np.arange(6, dtype="i2").reshape(2, 3))
    return encode_part("data", codecs, data, spec())


def decoded(codecs, raw, shape=(2, 3)):
    return decode_part("data", codecs, raw, spec(shape))


def test_a_chain_decodes_what_it_encodes():
    assert decoded(CHAIN, encoded(CHAIN)).as_numpy_array().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_size_is_checked_after_decompression():
    packed = (BytesCodec(), GzipCodec())
    with pytest.raises(ChunkDecodeError, match=r"data part: codec 'bytes' cannot decode.*size 6 into shape"):
        decoded(packed, encoded(packed), (2, 4))


def test_a_damaged_checksum_is_a_damaged_part():
    codecs = (BytesCodec(), Crc32cCodec())
    raw = encoded(codecs).as_numpy_array().copy()
    raw[0] ^= 1
    with pytest.raises(ChunkDecodeError, match="data part: codec 'crc32c' cannot decode"):
        decoded(codecs, default_buffer_prototype().buffer.from_array_like(raw))
