"""The `optional` codec for nullable data: it stores which elements are present, and only those.

A chunk consists of two lengths, the encoded mask and the encoded values. Each of the two parts has a chain of
codecs, nested in the `optional` codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, Self

import numpy as np
from zarr.abc.codec import ArrayBytesCodec, Codec
from zarr.codecs import BytesCodec, ShardingCodec, VLenBytesCodec, VLenUTF8Codec, ZstdCodec
from zarr.core.buffer import Buffer, NDBuffer, default_buffer_prototype
from zarr.core.metadata.v3 import ChunkGridMetadata
from zarr.dtype import Bool, VariableLengthBytes, VariableLengthUTF8, ZDType

from intarsia._compat import (
    JSON,
    ArrayConfig,
    ArraySpec,
    codec_specs,
    evolve_codecs,
    stages,
)
from intarsia.codecs import compressors
from intarsia.codecs.base import ChunkNamingCodec, CodecLike, SynchronousCodec, aligned, parse_codecs
from intarsia.codecs.configuration import read_configuration
from intarsia.codecs.context import named_chunk
from intarsia.codecs.nested import decode_with, encode_with
from intarsia.codecs.packbits import PackBitsCodec
from intarsia.errors import ChunkDecodeError, CodecConfigurationError
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, to_nullable
from intarsia.nullable.dtype import NAMES, OptionalDType, OptionalName
from intarsia.nullable.elements import NULL, Some, scatter
from intarsia.nullable.nullable_values import NullableValues

HEADER = struct.Struct("<QQ")
"""The lengths of the encoded mask and the encoded data, in bytes."""


@dataclass(frozen=True)
class NullableCodec(SynchronousCodec, ChunkNamingCodec, ArrayBytesCodec):
    """array -> bytes: the mask of present elements, then those elements, each encoded by its own codecs.

    Without `data_codecs`, creating an array picks codecs that suit the data type.

    >>> import zarr
    >>> from intarsia.nullable import optional_dtype
    >>> dtype = optional_dtype("int8")
    >>> z = zarr.create_array({}, shape=3, dtype=dtype, serializer=NullableCodec(), compressors=None)
    >>> z[:] = np.ma.masked_equal([5, 6, 7], 6)
    >>> z[:]
    NullableValues([5, NULL, 7], dtype=int8)
    """

    is_fixed_size = False
    mask_codecs: tuple[Codec, ...]
    """How the mask is encoded: one bool per element, in the chunk's shape."""

    data_codecs: tuple[Codec, ...] | None
    """How the present elements are encoded: in one dimension, in C order."""

    name: OptionalName
    """What the codec is called in zarr.json."""

    def __init__(
        self,
        *,
        mask_codecs: Iterable[CodecLike] | None = None,
        data_codecs: Iterable[CodecLike] | None = None,
        name: OptionalName = "optional",
    ) -> None:
        if name not in NAMES:
            raise CodecConfigurationError(
                f"codec 'optional': it is called {' or '.join(NAMES)}, not {name!r}"
            )
        mask = (PackBitsCodec(),) if mask_codecs is None else parse_codecs(mask_codecs)
        data = None if data_codecs is None else parse_codecs(data_codecs)
        for part, codecs in (("mask", mask), ("data", data or ())):
            if any(isinstance(codec, ShardingCodec) for codec in codecs):
                raise CodecConfigurationError(
                    f"codec 'optional': sharding_indexed cannot be among the {part}_codecs, whose data has a "
                    "different length in every chunk. Put sharding around 'optional' instead"
                )
        object.__setattr__(self, "mask_codecs", mask)
        object.__setattr__(self, "data_codecs", data)
        object.__setattr__(self, "name", name)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        name: Any = data["name"]
        return cls(name=name, **read_configuration(name, data))

    def to_dict(self) -> dict[str, JSON]:
        if self.data_codecs is None:
            raise CodecConfigurationError(
                "codec 'optional': data_codecs are unknown until the codec meets its data type: "
                "give them, or create an array with it first"
            )
        parts: Any = {
            "mask_codecs": [codec.to_dict() for codec in self.mask_codecs],
            "data_codecs": [codec.to_dict() for codec in self.data_codecs],
        }
        return {"name": self.name, "configuration": parts}

    # -- for `masks` and `rewrite`: see `intarsia.codecs.codec_path`

    @property
    def chains(self) -> dict[str, tuple[Codec, ...]]:
        """The codecs of its two parts."""
        return {"mask_codecs": self.mask_codecs, "data_codecs": self.data_codecs or ()}

    def open_parts(self, data: Buffer, spec: ArraySpec) -> dict[str, tuple[Buffer, ArraySpec]]:
        """The encoded parts of a chunk, each with the spec for its codecs; no data where all is null."""
        mask, values = _split_parts(data)
        _, count = self._decode_mask(mask, values, spec)
        parts = {"mask_codecs": (mask, _mask_spec(spec))}
        if count:
            parts["data_codecs"] = (values, _data_spec(spec, count))
        return parts

    def close_parts(self, parts: Mapping[str, Buffer], spec: ArraySpec) -> Buffer:
        """The chunk with these encoded parts."""
        return _join_parts(parts["mask_codecs"], parts.get("data_codecs"), spec)

    # -- for slotted shards: see `intarsia.shards.inner_codecs`

    frame_bytes = HEADER.size
    """The bytes of a chunk that are not in its parts."""

    def largest_parts(self, spec: ArraySpec) -> list[tuple[tuple[Codec, ...], ArraySpec]]:
        """The codecs of its parts, each with the spec for a chunk without nulls."""
        specs = (_mask_spec(spec), _data_spec(spec, prod(spec.shape)))
        return list(zip(self.chains.values(), specs, strict=True))

    # -- fitting the codecs to the data

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        data_spec = _data_spec(array_spec, prod(array_spec.shape))
        data = self.data_codecs
        if data is None:
            data = (default_serializer(data_spec.dtype, self.name),)
        return type(self)(
            mask_codecs=evolve_codecs(self.mask_codecs, _mask_spec(array_spec)),
            data_codecs=evolve_codecs(data, data_spec),
            name=self.name,
        )

    def validate(
        self, *, shape: tuple[int, ...], dtype: ZDType[Any, Any], chunk_grid: ChunkGridMetadata
    ) -> None:
        spec = ArraySpec(shape, dtype, NULL, ArrayConfig.from_dict({}), default_buffer_prototype())
        for codecs, part in self.largest_parts(spec):
            for codec, own in zip(codecs, codec_specs(codecs, part), strict=True):
                codec.validate(shape=own.shape, dtype=own.dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError("the size depends on how many elements are null")

    # -- encoding

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        dtype = _optional(chunk_spec.dtype)
        nullable = to_nullable(chunk_data, dtype.depth)
        if nullable.values.dtype != dtype.element.dtype:
            nullable = nullable.astype(dtype.to_native_dtype())
        present = np.ascontiguousarray(nullable.missing < dtype.depth)
        mask = encode_part("mask", self.mask_codecs, NullableNDBuffer(present), _mask_spec(chunk_spec))
        count = int(np.count_nonzero(present))
        if not count:
            return _join_parts(mask, None, chunk_spec)
        chosen: Any = present if count < present.size else ...
        values: Any = nullable.values[chosen].reshape(-1)
        if dtype.depth > 1:
            values = NullableValues(values, nullable.missing[chosen].reshape(-1), dtype.depth - 1)
        data = NullableNDBuffer.from_ndarray_like(values)
        encoded = encode_part("data", self.chains["data_codecs"], data, _data_spec(chunk_spec, count))
        return _join_parts(mask, encoded, chunk_spec)

    # -- decoding

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        mask, encoded = _split_parts(chunk_data)
        present, count = self._decode_mask(mask, encoded, chunk_spec)
        element = _optional(chunk_spec.dtype).element
        values, missing = np.empty(0, dtype=element.dtype), ~present
        if element.depth > 1:  # null at the outermost level, or what the next level in says
            missing = np.full(present.shape, element.depth, dtype=np.uint8)
        if count:
            data = decode_part("data", self.chains["data_codecs"], encoded, _data_spec(chunk_spec, count))
            if element.depth > 1:
                inner = to_nullable(data, element.depth - 1)
                values, missing[present] = inner.values, inner.missing
            else:
                values = data.as_numpy_array().astype(element.dtype, copy=False)
        values = values.reshape(present.shape) if count == present.size else scatter(values, present)
        return OptionalNDBuffer(NullableValues(values, missing, element.depth))

    def _decode_mask(self, mask: Buffer, data: Buffer, spec: ArraySpec) -> tuple[np.ndarray[Any, Any], int]:
        """The mask as bools, and how many are true, compared with the encoded `data` that follow it."""
        present = decode_part("mask", self.mask_codecs, mask, _mask_spec(spec)).as_numpy_array()
        if present.size and present.view(np.uint8).max() > 1:  # which would be miscounted
            raise ChunkDecodeError(
                f"codec 'optional': the mask{named_chunk()} holds bytes that are neither true nor false"
            )
        count = int(np.count_nonzero(present))
        if count == 0 and len(data):
            raise ChunkDecodeError(
                f"codec 'optional': the mask{named_chunk()} says that nothing is present, "
                f"but there are {len(data)} bytes of data"
            )
        return present, count


def encode_part(part: str, codecs: tuple[Codec, ...], data: NDBuffer, spec: ArraySpec) -> Buffer:
    """The encoded part of a chunk; `part` names it in errors: mask or data."""
    encoded: Any = data
    for codec, own in zip(codecs, codec_specs(codecs, spec), strict=True):
        encoded = encode_with(codec, encoded, own, f"codec 'optional', {part} part: ")
    result: Buffer = encoded
    return result


def decode_part(part: str, codecs: tuple[Codec, ...], data: Buffer, spec: ArraySpec) -> NDBuffer:
    """The decoded part of a chunk, in the shape that `spec` gives.

    Unlike zarr's own chains, this checks what it can before a codec allocates anything, and says which codec
    failed on which part.
    """
    where, specs = f"codec 'optional', {part} part: ", codec_specs(codecs, spec)
    inner, (_, serializer, compressed) = specs[-1], stages(codecs)
    bounds = compressors.decoded_bounds((serializer, *compressed), inner)
    unknown = compressors.unknown_bound(inner, len(data))  # by the stored size, however compressed
    limits = [unknown if bound is None else bound for bound in reversed(bounds)]
    decoded: Any = data
    for codec, own in zip(reversed(codecs), reversed(specs), strict=True):
        if codec is serializer and serializer.is_fixed_size:
            decoded = aligned(decoded, inner)
        decoded = decode_with(codec, decoded, own, limits.pop(0) if limits else None, where)
    if decoded.shape != spec.shape:
        raise ChunkDecodeError(
            f"{where}it{named_chunk()} has shape {decoded.shape}, but {spec.shape} is expected"
        )
    result: NDBuffer = decoded
    return result


def _mask_spec(spec: ArraySpec) -> ArraySpec:
    """What the codecs of the mask get: bools in the chunk's shape."""
    return replace(spec, dtype=Bool(), fill_value=np.bool_(False))


def _data_spec(spec: ArraySpec, count: int) -> ArraySpec:
    """What the codecs of the data get: `count` elements in a row."""
    dtype = _optional(spec.dtype)
    fill = spec.fill_value.value if isinstance(spec.fill_value, Some) else dtype.inner.default_scalar()
    return replace(spec, shape=(count,), dtype=dtype.inner, fill_value=fill)


def _join_parts(mask: Buffer, data: Buffer | None, spec: ArraySpec) -> Buffer:
    """The two encoded parts as one chunk."""
    header = spec.prototype.buffer.from_bytes(HEADER.pack(len(mask), 0 if data is None else len(data)))
    return header.combine([mask] if data is None else [mask, data])


def _split_parts(chunk_data: Buffer) -> tuple[Buffer, Buffer]:
    """The encoded mask and data of a chunk. Nothing is allocated until their lengths are checked."""
    follow = len(chunk_data) - HEADER.size
    if follow < 0:
        raise ChunkDecodeError(
            f"codec 'optional': {len(chunk_data)} bytes{named_chunk()}, "
            f"but the header alone needs {HEADER.size}"
        )
    mask_length, data_length = HEADER.unpack_from(chunk_data.as_numpy_array())
    if mask_length + data_length != follow:
        raise ChunkDecodeError(
            f"codec 'optional': the header{named_chunk()} says {mask_length} bytes of mask and {data_length} "
            f"of data, but {follow} follow"
        )
    mask_stop = HEADER.size + mask_length
    return chunk_data[HEADER.size : mask_stop], chunk_data[mask_stop:]


def _optional(dtype: Any) -> OptionalDType:
    if not isinstance(dtype, OptionalDType):
        raise CodecConfigurationError(
            f"codec 'optional' encodes optional data types, not {dtype}.\n"
            "  Give dtype=intarsia.nullable.optional_dtype(…), or create the array with "
            "intarsia.nullable.create_array"
        )
    return dtype


def default_serializer(inner: Any, name: OptionalName = "optional") -> ArrayBytesCodec:
    """The codec that encodes values of the data type `inner` without compressing them."""
    if isinstance(inner, OptionalDType):
        return NullableCodec(name=name)
    if isinstance(inner, VariableLengthUTF8):
        return VLenUTF8Codec()
    if isinstance(inner, VariableLengthBytes):
        return VLenBytesCodec()
    return BytesCodec(endian="little")


def optional_codec(
    data_type: OptionalDType,
    *,
    compressors: Iterable[CodecLike] | Literal["auto"] | None = "auto",
    mask_codecs: Iterable[CodecLike] | None = None,
    data_codecs: Iterable[CodecLike] | None = None,
) -> NullableCodec:
    """The `optional` codec for a data type, nested for all its levels."""
    if compressors == "auto":
        compressors = (ZstdCodec(),)
    packed = list(compressors or ())
    mask = [PackBitsCodec(), *packed] if mask_codecs is None else list(mask_codecs)
    values: list[CodecLike] = packed if data_codecs is None else list(data_codecs)
    if isinstance(data_type.inner, OptionalDType):
        inner = optional_codec(
            data_type.inner, compressors=packed, mask_codecs=mask_codecs, data_codecs=data_codecs
        )
        values = [inner]
    else:
        values = list(parse_codecs(values, default_serializer(data_type.inner, data_type.name)))
    return NullableCodec(mask_codecs=mask, data_codecs=values, name=data_type.name)
