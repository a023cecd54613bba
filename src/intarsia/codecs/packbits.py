"""The `packbits` codec: stores only the bits of every element that matter, without gaps.

Bits are numbered from the least significant, in the element and in the encoded byte alike. So packed bools
are Arrow's bitmap, and whole numbers are their little-endian bytes. A complex number is two components.
"""

from dataclasses import dataclass, fields
from math import prod
from typing import Any, Literal, Self

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.dtype.wrapper import TBaseDType, TBaseScalar, ZDType
from zarr.core.metadata.v3 import ChunkGridMetadata

from intarsia._compat import JSON
from intarsia.codecs.base import ChunkNamingCodec, SynchronousCodec
from intarsia.codecs.configuration import check_configuration, read_configuration
from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkDecodeError, CodecConfigurationError

type Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# Elements unpacked at a time, to one byte per bit; a multiple of 8, so that blocks end on whole bytes.
BLOCK = 1 << 16


@dataclass(frozen=True)
class PackBitsCodec(SynchronousCodec, ChunkNamingCodec, ArrayBytesCodec):
    """array -> bytes: bits `first_bit` to `last_bit` of every bool or number, without gaps.

    >>> import zarr
    >>> store = {}
    >>> z = zarr.create(store=store, shape=10, dtype="bool", codecs=[PackBitsCodec()])
    >>> z[:] = [True, False] * 5
    >>> store["c/0"].to_bytes()
    b'U\\x01'
    """

    is_fixed_size = True
    padding_encoding: Literal["none", "first_byte", "last_byte"] = "none"
    """Whether a byte with the number of padding bits is stored, and where."""

    first_bit: int | None = None
    """The lowest bit kept; None means 0."""

    last_bit: int | None = None
    """The highest bit kept, included; None means the data type's highest."""

    def __post_init__(self) -> None:
        for name, value in check_configuration("packbits", self._set_fields()).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        return cls(**read_configuration("packbits", data))

    def to_dict(self) -> dict[str, JSON]:
        options = self._set_fields()
        return {"name": "packbits", "configuration": options} if options else {"name": "packbits"}

    def _set_fields(self) -> dict[str, JSON]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    def validate(
        self, *, shape: tuple[int, ...], dtype: ZDType[TBaseDType, TBaseScalar], chunk_grid: ChunkGridMetadata
    ) -> None:
        self._bit_range(dtype.to_native_dtype())

    def compute_encoded_size(self, _input_byte_length: int, chunk_spec: ArraySpec) -> int:
        dtype = chunk_spec.dtype.to_native_dtype()
        first, last = self._bit_range(dtype)
        bits = prod(chunk_spec.shape) * _components(dtype) * (last - first + 1)
        return (bits + 7) // 8 + (self.padding_encoding != "none")

    def _bit_range(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """The first and last bit, both included, for elements of `dtype`."""
        if dtype.kind not in "biufc":
            raise CodecConfigurationError(
                f"codec 'packbits' packs bool and numbers, not {dtype}: use the 'bytes' codec"
            )
        width = 1 if dtype.kind == "b" else dtype.itemsize * 8 // _components(dtype)
        first = self.first_bit or 0
        last = width - 1 if self.last_bit is None else self.last_bit
        if not first <= last < width:
            raise CodecConfigurationError(
                f"codec 'packbits': bits {first} to {last} are not within the {width} bits of {dtype}"
            )
        return first, last

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        elements = np.ascontiguousarray(chunk_data.as_numpy_array()).reshape(-1)
        first, last = self._bit_range(elements.dtype)
        elements = elements.view(_integers(elements.dtype))
        packed = _pack(elements, first, last)
        if self.padding_encoding != "none":
            padding = np.array([-elements.size * (last - first + 1) % 8], dtype=np.uint8)
            parts = (padding, packed) if self.padding_encoding == "first_byte" else (packed, padding)
            packed = np.concatenate(parts)
        return chunk_spec.prototype.buffer.from_array_like(packed)

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        dtype = chunk_spec.dtype.to_native_dtype()
        first, last = self._bit_range(dtype)
        stored: Bytes = chunk_data.as_numpy_array().view(np.uint8)
        expected = self.compute_encoded_size(0, chunk_spec)
        if stored.size != expected:
            raise ChunkDecodeError(
                f"codec 'packbits': {stored.size} bytes{named_chunk()}, but {chunk_spec.shape} elements of "
                f"{last - first + 1} bits need {expected}"
            )
        count = prod(chunk_spec.shape) * _components(dtype)
        padding = -count * (last - first + 1) % 8
        if self.padding_encoding != "none":
            at_start = self.padding_encoding == "first_byte"
            stored_padding = int(stored[0 if at_start else -1])
            stored = stored[1:] if at_start else stored[:-1]
            if stored_padding != padding:
                raise ChunkDecodeError(
                    f"codec 'packbits': the data{named_chunk()} says {stored_padding} padding bits, "
                    f"but there are {padding}"
                )
        if padding and stored[-1] >> (8 - padding):
            raise ChunkDecodeError(f"codec 'packbits': the padding bits{named_chunk()} are not zero")
        elements = _unpack(stored, _integers(dtype), count, first, last).view(dtype)
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(elements.reshape(chunk_spec.shape))


def _components(dtype: np.dtype[Any]) -> int:
    """How many numbers one element holds."""
    return 2 if dtype.kind == "c" else 1


def _integers(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the components' bits: unsigned integers for floats."""
    if dtype.kind not in "fc":
        return dtype
    return np.dtype(f"{dtype.byteorder}u{dtype.itemsize // _components(dtype)}")


def _pack(elements: np.ndarray[Any, Any], first: int, last: int) -> Bytes:
    """The kept bits of `elements`, packed."""
    dtype = elements.dtype
    if dtype.kind == "b":
        return np.packbits(elements, bitorder="little")
    little = elements.astype(dtype.newbyteorder("<"), copy=False)
    blocks = [
        np.packbits(_as_bits(little[at : at + BLOCK])[:, first : last + 1], bitorder="little")
        for at in range(0, little.size, BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.empty(0, dtype=np.uint8)


def _as_bits(little: np.ndarray[Any, Any]) -> Bytes:
    """One row per element, one uint8 per bit, least significant first."""
    octets = little.view(np.uint8).reshape(little.size, little.dtype.itemsize)
    return np.unpackbits(octets, axis=1, bitorder="little")


def _unpack(packed: Bytes, dtype: np.dtype[Any], count: int, first: int, last: int) -> np.ndarray[Any, Any]:
    """`count` elements of `dtype` from their kept bits."""
    if dtype.kind == "b":
        return np.unpackbits(packed, count=count, bitorder="little").view(bool)
    little, width = dtype.newbyteorder("<"), last - first + 1
    out = np.empty(count, dtype=little)
    for at in range(0, count, BLOCK):
        size = min(BLOCK, count - at)
        block = packed[at * width // 8 : ((at + size) * width + 7) // 8]
        bits = np.unpackbits(block, count=size * width, bitorder="little").reshape(size, width)
        full = np.zeros((size, dtype.itemsize * 8), dtype=np.uint8)
        full[:, first : last + 1] = bits
        if dtype.kind == "i":
            full[:, last + 1 :] = bits[:, -1:]  # sign extension
        out[at : at + size] = np.packbits(full, axis=1, bitorder="little").reshape(-1).view(little)
    return out.astype(dtype, copy=False)
