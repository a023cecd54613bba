"""Codecs that see nulls themselves, in front of `optional` or instead of it.

`intarsia.sentinel` reads files that mark missing values by a special number. zarr's `scale_offset`,
`cast_value` and numcodecs codecs work unchanged as `data_codecs`, which see present values only. In front of
`optional` they see nullable data, which zarr's own classes refuse; ours work on the present values. For any
other data type they turn themselves into zarr's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from zarr.abc.codec import ArrayArrayCodec
from zarr.codecs import BytesCodec, CastValue, ScaleOffset, numcodecs
from zarr.core.buffer import NDBuffer
from zarr.core.metadata.v3 import ChunkGridMetadata
from zarr.dtype import ZDType

from intarsia._compat import JSON, ArraySpec, codec_supports_sync
from intarsia.codecs import base
from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkEncodeError, CodecConfigurationError
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, gather, nullable_of
from intarsia.nullable.dtype import OptionalDType
from intarsia.nullable.elements import NULL, Some, spread
from intarsia.nullable.values import NullableValues

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
        listed = tuple(values)
        base.check_configuration(NAME, {"values": list(listed)})
        nested = base.parse_codecs([*codecs, BytesCodec()])[:-1]  # refuses all but array -> array codecs
        object.__setattr__(self, "values", listed)
        object.__setattr__(self, "codecs", nested)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        return cls(**base.read_configuration(NAME, data))

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
        """The input of every nested codec, and at the end the output of the last."""
        inner = _inner(chunk_spec.dtype)
        fill = chunk_spec.fill_value
        plain = fill.value if isinstance(fill, Some) else self._scalars(inner)[0]
        specs = [replace(chunk_spec, dtype=inner, fill_value=plain)]
        for codec in self.codecs:
            specs.append(codec.resolve_metadata(specs[-1]))
        return specs

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        return self._specs(chunk_spec)[-1]

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        for codec, spec in zip(self.codecs, self._specs(chunk_spec), strict=False):
            input_byte_length = codec.compute_encoded_size(input_byte_length, spec)
        return input_byte_length

    def _decode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        specs = self._specs(chunk_spec)
        for codec, spec in zip(reversed(self.codecs), reversed(specs[:-1]), strict=True):
            chunk_array = _synchronous(codec)._decode_sync(chunk_array, spec)
        inner = specs[0].dtype
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
        specs = self._specs(chunk_spec)
        inner = specs[0].dtype
        data = nullable_of(chunk_array, 1)
        clash = self._is_sentinel(data.values, inner) & ~data.is_null()
        if clash.any():
            at = tuple(int(i) for i in np.argwhere(clash)[0])
            raise ChunkEncodeError(
                f"codec {NAME!r}: the value {data.values[at]} at {at}{named_chunk()} would mean null, "
                "so it cannot be stored"
            )
        filled = data.filled(self._scalars(inner)[0])
        encoded: NDBuffer = chunk_spec.prototype.nd_buffer.from_ndarray_like(filled)
        for codec, spec in zip(self.codecs, specs, strict=False):
            encoded = _synchronous(codec)._encode_sync(encoded, spec)
        return encoded


def _synchronous(codec: ArrayArrayCodec) -> Any:
    """All of zarr's array -> array codecs work without an event loop; those of others may not."""
    if not codec_supports_sync(codec):
        raise CodecConfigurationError(f"codec {NAME!r}: codecs: {type(codec).__name__} needs an event loop")
    return codec


def _inner(dtype: ZDType[Any, Any]) -> ZDType[Any, Any]:
    if not isinstance(dtype, OptionalDType) or isinstance(dtype.inner, OptionalDType):
        raise CodecConfigurationError(f"codec {NAME!r} encodes optional data of one level, not {dtype}")
    return dtype.inner


class _OnPresentValues(base.SynchronousArrayCodec):
    """Lets an element-wise codec of zarr work on data with nulls."""

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Any:
        evolved: Any = super().evolve_from_array_spec(array_spec)
        wanted: Any = type(self) if isinstance(array_spec.dtype, OptionalDType) else type(self).__bases__[1]
        return evolved if type(evolved) is wanted else wanted.from_dict(evolved.to_dict())

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        if isinstance(dtype, OptionalDType):
            dtype = dtype.innermost
        super().validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        dtype = chunk_spec.dtype
        if not isinstance(dtype, OptionalDType):
            return super().resolve_metadata(chunk_spec)
        value = chunk_spec.fill_value
        while isinstance(value, Some):
            value = value.value
        is_null = value is NULL
        inner = _inner_spec(chunk_spec, (), dtype.innermost.default_scalar() if is_null else value)
        if is_null:
            # The codec may be unable to encode the default of the inner type, and nobody needs it.
            resolved = replace(inner, dtype=self._encoded_type(inner))
            fill = chunk_spec.fill_value
        else:
            resolved = super().resolve_metadata(inner)
            fill = dtype.cast_scalar(resolved.fill_value)
        return replace(chunk_spec, dtype=dtype.with_innermost(resolved.dtype), fill_value=fill)

    def _encoded_type(self, inner: ArraySpec) -> ZDType[Any, Any]:
        """The data type that values of the inner data type become."""
        encoded: ZDType[Any, Any] = getattr(self, "dtype", inner.dtype)
        return encoded

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        encode = super()._encode_sync  # type: ignore[misc]  # of the codec that this class wraps
        return self._on_present(encode, chunk_data, chunk_spec, encoding=True)

    def _decode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        decode = super()._decode_sync  # type: ignore[misc]  # likewise
        return self._on_present(decode, chunk_data, chunk_spec, encoding=False)

    def _on_present(
        self, work: Any, chunk_data: NDBuffer, chunk_spec: ArraySpec, *, encoding: bool
    ) -> NDBuffer:
        dtype = chunk_spec.dtype
        if not isinstance(dtype, OptionalDType):
            plain: NDBuffer = work(chunk_data, chunk_spec)
            return plain
        nullable = nullable_of(chunk_data, dtype.depth)
        present = nullable.missing == 0
        count = int(np.count_nonzero(present))
        taken = np.ascontiguousarray(gather(nullable.values, present, count))
        spec = _inner_spec(chunk_spec, (count,), dtype.innermost.default_scalar())
        due = (self._encoded_type(spec) if encoding else spec.dtype).to_native_dtype()
        worked: np.ndarray[Any, Any] = np.empty(0, dtype=due)  # not every codec takes an empty array
        if count:
            worked = work(NullableNDBuffer(taken), spec).as_numpy_array()
        if worked.dtype != due and worked.dtype.itemsize == due.itemsize:
            worked = worked.view(due)  # numcodecs leaves the bits of some floats as integers
        values = spread(worked, present)
        return OptionalNDBuffer(NullableValues(values, nullable.missing, dtype.depth))


class PresentScaleOffset(_OnPresentValues, ScaleOffset):
    """`scale_offset` that leaves nulls alone."""


class PresentCastValue(_OnPresentValues, CastValue):
    """`cast_value` that leaves nulls alone: optional[float64] becomes optional of its `data_type`."""


class _OnPresentNumbers(_OnPresentValues):
    """The same for the codecs of numcodecs."""

    def _encoded_type(self, inner: ArraySpec) -> ZDType[Any, Any]:
        encoded: ZDType[Any, Any] = self.resolve_metadata(inner).dtype
        return encoded


class PresentAsType(_OnPresentNumbers, numcodecs.AsType):
    """`numcodecs.astype` that leaves nulls alone."""


class PresentBitRound(_OnPresentNumbers, numcodecs.BitRound):
    """`numcodecs.bitround` that leaves nulls alone."""


class PresentDelta(_OnPresentNumbers, numcodecs.Delta):
    """`numcodecs.delta` from one present value to the next."""


class PresentFixedScaleOffset(_OnPresentNumbers, numcodecs.FixedScaleOffset):
    """`numcodecs.fixedscaleoffset` that leaves nulls alone."""


class PresentQuantize(_OnPresentNumbers, numcodecs.Quantize):
    """`numcodecs.quantize` that leaves nulls alone."""


ON_PRESENT_VALUES: Final[dict[str, type[_OnPresentValues]]] = {
    "scale_offset": PresentScaleOffset,
    "cast_value": PresentCastValue,
    "numcodecs.astype": PresentAsType,
    "numcodecs.bitround": PresentBitRound,
    "numcodecs.delta": PresentDelta,
    "numcodecs.fixedscaleoffset": PresentFixedScaleOffset,
    "numcodecs.quantize": PresentQuantize,
}
"""Our classes by codec name."""


def on_present_values(codec: Any) -> Any:
    """`codec`, made to work in front of the `optional` codec if it is one of zarr's that can."""
    if isinstance(codec, numcodecs.PackBits):
        raise CodecConfigurationError(
            f"codec {codec.codec_name!r} packs eight elements into a byte, so nulls would lose their place: "
            "put it among the data_codecs"
        )
    for ours in ON_PRESENT_VALUES.values():
        plain: Any = ours.__bases__[1]
        if type(codec) is plain:
            return ours.from_dict(codec.to_dict())
    return codec


def _inner_spec(spec: ArraySpec, shape: tuple[int, ...], fill: Any) -> ArraySpec:
    dtype = spec.dtype
    assert isinstance(dtype, OptionalDType)
    return replace(spec, shape=shape, dtype=dtype.innermost, fill_value=fill)
