"""Codecs for tests."""

from dataclasses import dataclass
from typing import Self

from zarr.abc.codec import BytesBytesCodec


@dataclass(frozen=True)
class AsyncOnlyCodec(BytesBytesCodec):
    """Flips every bit, on an event loop alone; chunks that start with 13 are refused."""

    is_fixed_size = True

    def to_dict(self):
        return {"name": "test.async_only"}

    @classmethod
    def from_dict(cls, data) -> Self:
        return cls()

    def compute_encoded_size(self, input_byte_length, _chunk_spec):
        return input_byte_length

    async def _encode_single(self, chunk_data, chunk_spec):
        return chunk_spec.prototype.buffer.from_bytes((~chunk_data.as_numpy_array()).tobytes())

    async def _decode_single(self, chunk_data, chunk_spec):
        if chunk_data.as_numpy_array()[0] == 13:
            raise ValueError("chunk starts with 13")
        return chunk_spec.prototype.buffer.from_bytes((~chunk_data.as_numpy_array()).tobytes())
