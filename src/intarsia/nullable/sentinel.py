"""The codec `intarsia.sentinel`, for files that mark missing values by a special number."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from zarr.abc.codec import ArrayArrayCodec
from zarr.codecs import BytesCodec
from zarr.core.buffer import NDBuffer
from zarr.core.metadata.v3 import ChunkGridMetadata
from zarr.dtype import ZDType

from intarsia._compat import JSON, ArraySpec, codec_specs
from intarsia.codecs import base
from intarsia.codecs.configuration import check_configuration, read_configuration
from intarsia.codecs.context import named_chunk
from intarsia.codecs.nested import decode_with, encode_with
from intarsia.errors import ChunkEncodeError, CodecConfigurationError
from intarsia.nullable.buffer import OptionalNDBuffer, to_nullable
from intarsia.nullable.dtype import OptionalDType
from intarsia.nullable.elements import Some
from intarsia.nullable.nullable_values import NullableValues

NAME = "intarsia.sentinel"


@dataclass(frozen=True)
class SentinelCodec(base.ChunkNamingCodec, base.SynchronousArrayCodec):
    """array -> array: nulls become the first of `values`, and any of `values` becomes null.

    The data type `optional` becomes its inner type, which `codecs` encode further. (They are nested because
    zarr asks every codec in a list whether it can encode the array's own data type.) A present value that
    equals a sentinel cannot be encoded.

    >>> import zarr
    >>> from intarsia.nullable import optional_dtype
    >>> z = zarr.create_array(
    ...     {}, shape=3, dtype=optional_dtype("int16"), filters=SentinelCodec(values=[-999]),
    ...     serializer=zarr.codecs.BytesCodec(),
    ... )
    >>> z[:] = np.ma.masked_equal([5, 6, 7], 6)
    >>> z[:]
    NullableValues([5, NULL, 7], dtype=int16)
    """

    is_fixed_size = True
    values: tuple[Any, ...]
    """The special values, written like a fill value in zarr.json: numbers, or "NaN"."""

    codecs: tuple[ArrayArrayCodec, ...] = ()
    """The array -> array codecs that encode the values further; they know nothing of nulls."""

    def __init__(self, *, values: Iterable[Any], codecs: Iterable[base.CodecLike] = ()) -> None:
        values = tuple(values)
        check_configuration(NAME, {"values": list(values)})
        nested = base.parse_codecs([*codecs, BytesCodec()])[:-1]  # refuses all but array -> array codecs
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "codecs", nested)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        return cls(**read_configuration(NAME, data))

    def to_dict(self) -> dict[str, JSON]:
        parts: Any = {"values": list(self.values)}
        if self.codecs:
            parts["codecs"] = [codec.to_dict() for codec in self.codecs]
        return {"name": NAME, "configuration": parts}

    def validate(
        self, *, shape: tuple[int, ...], dtype: ZDType[Any, Any], chunk_grid: ChunkGridMetadata
    ) -> None:
        inner = _inner(dtype)
        self._scalars(inner)
        for codec in self.codecs:
            codec.validate(shape=shape, dtype=inner, chunk_grid=chunk_grid)

    def _scalars(self, inner: ZDType[Any, Any]) -> list[Any]:
        try:
            return [inner.from_json_scalar(value, zarr_format=3) for value in self.values]
        except (TypeError, ValueError, OverflowError) as error:
            raise CodecConfigurationError(f"codec {NAME!r}: values: {error}") from error

    def _specs(self, chunk_spec: ArraySpec) -> list[ArraySpec]:
        """The input of every nested codec, and the output of the last."""
        inner = _inner(chunk_spec.dtype)
        fill = chunk_spec.fill_value
        plain = fill.value if isinstance(fill, Some) else self._scalars(inner)[0]
        return codec_specs((*self.codecs, BytesCodec()), replace(chunk_spec, dtype=inner, fill_value=plain))

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        return self._specs(chunk_spec)[-1]

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        for codec, spec in zip(self.codecs, self._specs(chunk_spec), strict=False):
            input_byte_length = codec.compute_encoded_size(input_byte_length, spec)
        return input_byte_length

    def _decode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        specs = self._specs(chunk_spec)[:-1]
        for codec, spec in zip(reversed(self.codecs), reversed(specs), strict=True):
            chunk_array = decode_with(codec, chunk_array, spec)
        inner = _inner(chunk_spec.dtype)
        values = chunk_array.as_numpy_array().astype(inner.to_native_dtype(), copy=False)
        return OptionalNDBuffer(NullableValues(values, self._is_sentinel(values, inner)))

    def _is_sentinel(
        self, values: np.ndarray[Any, Any], inner: ZDType[Any, Any]
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        is_sentinel: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(values.shape, dtype=bool)
        for sentinel in self._scalars(inner):
            # NaN is not itself.
            is_sentinel |= values != values if sentinel != sentinel else values == sentinel
        return is_sentinel

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        inner = _inner(chunk_spec.dtype)
        data = to_nullable(chunk_array, 1)
        clash = self._is_sentinel(data.values, inner) & ~data.isnull()
        if clash.any():
            at = tuple(int(i) for i in np.argwhere(clash)[0])
            raise ChunkEncodeError(
                f"codec {NAME!r}: the value {data.values[at]} at {at}{named_chunk()} would mean null, "
                "so it cannot be stored"
            )
        filled = data.filled(self._scalars(inner)[0])
        encoded: NDBuffer = chunk_spec.prototype.nd_buffer.from_ndarray_like(filled)
        for codec, spec in zip(self.codecs, self._specs(chunk_spec), strict=False):
            encoded = encode_with(codec, encoded, spec)
        return encoded


def _inner(dtype: ZDType[Any, Any]) -> ZDType[Any, Any]:
    if not isinstance(dtype, OptionalDType) or isinstance(dtype.inner, OptionalDType):
        raise CodecConfigurationError(f"codec {NAME!r} encodes optional data of one level, not {dtype}")
    return dtype.inner
