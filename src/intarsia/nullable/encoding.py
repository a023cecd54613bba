"""The two parts of a chunk of nullable data, its mask and its values, and the codecs of each.

A chunk consists of two lengths, the encoded mask and the encoded values. Each part has a chain of codecs,
nested in the `optional` codec. Unlike zarr's own chains, it checks what it can before a nested codec
allocates anything, and says which codec failed on which part.
"""

import asyncio
import struct
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.core.buffer import Buffer, NDBuffer

from intarsia._compat import ArraySpec, codec_supports_sync, evolve_codecs, stages
from intarsia.codecs.compressors import check_count, decode, decoded_bounds, unknown_bound
from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkDecodeError, has_panicked

HEADER = struct.Struct("<QQ")
"""The lengths of the encoded mask and the encoded data, in bytes."""


def join_parts(mask: Buffer, data: Buffer | None, spec: ArraySpec) -> Buffer:
    """The two encoded parts as one chunk."""
    header = HEADER.pack(len(mask), 0 if data is None else len(data))
    parts = [np.frombuffer(header, dtype=np.uint8), mask.as_numpy_array()]
    if data is not None:
        parts.append(data.as_numpy_array())
    return spec.prototype.buffer.from_array_like(np.concatenate(parts))


def split_parts(chunk_data: Buffer) -> tuple[np.ndarray[Any, Any], int]:
    """The chunk without its header, and where the mask ends. Nothing is allocated until this is checked."""
    raw = chunk_data.as_numpy_array()
    if raw.size < HEADER.size:
        raise ChunkDecodeError(
            f"codec 'optional': {raw.size} bytes{named_chunk()}, but the header alone needs {HEADER.size}"
        )
    mask_length, data_length = HEADER.unpack_from(raw)
    if mask_length + data_length != raw.size - HEADER.size:
        raise ChunkDecodeError(
            f"codec 'optional': the header{named_chunk()} says {mask_length} bytes of mask and {data_length} "
            f"of data, but {raw.size - HEADER.size} follow"
        )
    return raw[HEADER.size :], mask_length


def check_mask(mask: NDBuffer) -> tuple[np.ndarray[Any, Any], int]:
    """The mask as bools, and how many are true; bytes other than 0 and 1 would be miscounted."""
    present = mask.as_numpy_array()
    octets = present.view(np.uint8)
    if present.size and octets.max() > 1:
        raise ChunkDecodeError(
            f"codec 'optional': the mask{named_chunk()} holds bytes that are neither true nor false"
        )
    return present, int(np.count_nonzero(present))


@dataclass(frozen=True)
class NestedCodecs:
    """The codecs of one part of a chunk."""

    part: str
    """The name of the part in errors: mask or data."""

    codecs: tuple[Codec, ...]
    """The chain, as in zarr.json."""

    @cached_property
    def _stages(self) -> tuple[tuple[ArrayArrayCodec, ...], ArrayBytesCodec, tuple[BytesBytesCodec, ...]]:
        return stages(self.codecs)

    @cached_property
    def synchronous(self) -> bool:
        """Whether all of the codecs can be called without an event loop."""
        return all(codec_supports_sync(codec) for codec in self.codecs)

    def only(self, codec_class: type[Codec]) -> Any:
        """The codec, if the chain is a single codec of that class; else None."""
        return self.codecs[0] if len(self.codecs) == 1 and type(self.codecs[0]) is codec_class else None

    def evolve(self, spec: ArraySpec) -> tuple[Codec, ...]:
        """The codecs, completed for data of `spec`."""
        return evolve_codecs(self.codecs, spec)

    def validate(self, spec: ArraySpec, chunk_grid: Any) -> None:
        """Let each codec check whether it can work on data of `spec`."""
        for codec in self.codecs:
            codec.validate(shape=spec.shape, dtype=spec.dtype, chunk_grid=chunk_grid)
            spec = codec.resolve_metadata(spec)

    def _specs(self, spec: ArraySpec) -> tuple[list[ArraySpec], ArraySpec]:
        """What each array -> array codec gets, and what the array -> bytes codec gets."""
        before = []
        for codec in self._stages[0]:
            before.append(spec)
            spec = codec.resolve_metadata(spec)
        return before, spec

    # Encoding and decoding are written once, as coroutines. Unless they must wait for nested codecs that
    # need an event loop, they never pause, and `run_now` runs them without one.

    async def encode(self, data: NDBuffer, spec: ArraySpec, *, wait: bool) -> Buffer:
        """The encoded part."""
        arrays, serializer, compressors = self._stages
        before, spec_bytes = self._specs(spec)
        steps: list[tuple[Any, ArraySpec]] = [*zip(arrays, before, strict=True)]
        steps += [(codec, spec_bytes) for codec in (serializer, *compressors)]
        encoded: Any = data
        for codec, codec_spec in steps:
            if wait:
                encoded = await codec._encode_single(encoded, codec_spec)
            else:
                encoded = codec._encode_sync(encoded, codec_spec)
        part: Buffer = encoded
        return part

    async def decode(self, data: Buffer, spec: ArraySpec, *, wait: bool) -> NDBuffer:
        """The decoded part, in the shape that `spec` gives."""
        arrays, serializer, compressors = self._stages
        before, spec_bytes = self._specs(spec)
        to_bytes: tuple[Codec, ...] = (serializer, *compressors)
        if all(codec.is_fixed_size for codec in to_bytes):
            self._check_size(len(data), to_bytes, spec_bytes)
        decoded: Any = data
        bounds = decoded_bounds(to_bytes, spec_bytes)
        unknown = unknown_bound(spec_bytes, len(data))  # by the stored size, however it was compressed
        for compressor, bound in zip(reversed(compressors), reversed(bounds), strict=True):
            most = unknown if bound is None else bound
            decoded = await self._decode_with(_Bounded(compressor, most), decoded, spec_bytes, wait)
        if serializer.is_fixed_size:
            self._check_size(len(decoded), (serializer,), spec_bytes)
            decoded = _align(decoded, spec_bytes)
        else:
            self._check_count(serializer, decoded, prod(spec_bytes.shape))
        decoded = await self._decode_with(serializer, decoded, spec_bytes, wait)
        for codec, codec_spec in zip(reversed(arrays), reversed(before), strict=True):
            decoded = await self._decode_with(codec, decoded, codec_spec, wait)
        if decoded.shape != spec.shape:
            raise ChunkDecodeError(
                f"codec 'optional': the {self.part} part{named_chunk()} has shape {decoded.shape}, "
                f"but {spec.shape} is expected"
            )
        part: NDBuffer = decoded
        return part

    async def _decode_with(self, codec: Any, data: Any, spec: ArraySpec, wait: bool) -> Any:
        """The data that one codec decodes; an error about damage names the codec and the part."""
        try:
            return await codec._decode_single(data, spec) if wait else codec._decode_sync(data, spec)
        except BaseException as error:
            passes = not isinstance(error, Exception) and not has_panicked(error)
            if passes or isinstance(error, ChunkDecodeError):
                raise
            name = codec.to_dict().get("name", type(codec).__name__)
            raise ChunkDecodeError(
                f"codec 'optional': the {self.part} part{named_chunk()} is damaged: {name}: "
                f"{error or type(error).__name__}"
            ) from error

    def _check_size(self, nbytes: int, codecs: tuple[Codec, ...], spec: ArraySpec) -> None:
        expected = prod(spec.shape) * spec.dtype.to_native_dtype().itemsize
        for codec in codecs:
            expected = codec.compute_encoded_size(expected, spec)
        if nbytes != expected:
            raise ChunkDecodeError(
                f"codec 'optional': the {self.part} part{named_chunk()} has {nbytes} bytes, "
                f"but {prod(spec.shape)} elements of {spec.dtype.to_native_dtype()} need {expected}"
            )

    def _check_count(self, serializer: Codec, data: Buffer, expected: int) -> None:
        try:
            check_count(serializer, data, expected)
        except ValueError as error:
            raise ChunkDecodeError(
                f"codec 'optional': the {self.part} part{named_chunk()} is damaged: {error}"
            ) from None


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A bytes -> bytes codec that must not return more bytes than allowed."""

    codec: Any
    most: int

    def _decode_sync(self, data: Buffer, spec: ArraySpec) -> Buffer:
        return decode(self.codec, data, spec, self.most)

    async def _decode_single(self, data: Buffer, spec: ArraySpec) -> Buffer:
        if codec_supports_sync(self.codec):
            return await asyncio.to_thread(self._decode_sync, data, spec)
        decoded: Buffer = await self.codec._decode_single(data, spec)
        return decoded

    def to_dict(self) -> Any:
        return self.codec.to_dict()


def run_now[T](steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never pauses."""
    try:
        steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    steps.close()
    raise RuntimeError("a codec that should work synchronously awaits an event loop")


def _align(data: Buffer, spec: ArraySpec) -> Buffer:
    """`data`, copied if it is not aligned for its elements: a part may start anywhere in its chunk."""
    raw = data.as_numpy_array()
    alignment = spec.dtype.to_native_dtype().alignment
    return data if raw.ctypes.data % alignment == 0 else type(data).from_array_like(raw.copy())
