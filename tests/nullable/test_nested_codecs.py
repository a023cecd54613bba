"""The nested chains, and what they check first."""

import numpy as np
import pytest
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import Int16

from intarsia.errors import ChunkDecodeError
from intarsia.nullable.codec import NestedCodecs

CHAIN = (TransposeCodec(order=(1, 0)), BytesCodec(endian="big"), GzipCodec(), Crc32cCodec())


def spec(shape=(2, 3)):
    return ArraySpec(shape, Int16(), np.int16(0), ArrayConfig.from_dict({}), default_buffer_prototype())


def encoded(part):
    data = default_buffer_prototype().nd_buffer.from_ndarray_like(np.arange(6, dtype="i2").reshape(2, 3))
    return part.encode(data, spec())


def decoded(part, raw, shape=(2, 3)):
    return part.decode(raw, spec(shape))


def test_a_chain_decodes_what_it_encodes():
    part = NestedCodecs("data", CHAIN)
    assert decoded(part, encoded(part)).as_numpy_array().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_size_is_checked_after_decompression():
    packed = NestedCodecs("data", (BytesCodec(), GzipCodec()))
    with pytest.raises(ChunkDecodeError, match=r"data part: codec 'bytes' cannot decode.*size 6 into shape"):
        decoded(packed, encoded(packed), (2, 4))


def test_a_damaged_checksum_is_a_damaged_part():
    part = NestedCodecs("data", (BytesCodec(), Crc32cCodec()))
    raw = encoded(part).as_numpy_array().copy()
    raw[0] ^= 1
    with pytest.raises(ChunkDecodeError, match="data part: codec 'crc32c' cannot decode"):
        decoded(part, default_buffer_prototype().buffer.from_array_like(raw))
