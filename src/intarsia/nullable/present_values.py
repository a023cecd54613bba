"""Codecs of zarr that also work in front of `optional`, where they leave nulls alone.

zarr's `scale_offset`, `cast_value` and numcodecs codecs work unchanged as `data_codecs`, which see present
values only. In front of `optional` they see nullable data, which zarr's own classes refuse. The classes here
work on the present values; for any other data type they turn themselves into zarr's own.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from zarr.codecs import CastValue, ScaleOffset, numcodecs
from zarr.core.buffer import NDBuffer
from zarr.dtype import ZDType

from intarsia._compat import ArraySpec
from intarsia.codecs import base
from intarsia.errors import CodecConfigurationError
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, to_nullable
from intarsia.nullable.dtype import OptionalDType
from intarsia.nullable.elements import scatter, unwrap
from intarsia.nullable.nullable_values import NullableValues


class _OnPresentValues(base.SynchronousArrayCodec):
    """Lets an element-wise codec of zarr work on data with nulls."""

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Any:
        evolved: Any = super().evolve_from_array_spec(array_spec)
        codec: Any = type(self) if isinstance(array_spec.dtype, OptionalDType) else type(self).__bases__[1]
        return evolved if type(evolved) is codec else codec.from_dict(evolved.to_dict())

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        if isinstance(dtype, OptionalDType):
            dtype = dtype.innermost
        super().validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        dtype = chunk_spec.dtype
        if not isinstance(dtype, OptionalDType):
            return super().resolve_metadata(chunk_spec)
        value, missing = unwrap(chunk_spec.fill_value, dtype.depth)
        inner = _inner_spec(chunk_spec, (), dtype.innermost.default_scalar() if missing else value)
        if missing:
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
        nullable = to_nullable(chunk_data, dtype.depth)
        present = nullable.missing == 0
        source = nullable.values[present]
        spec = _inner_spec(chunk_spec, source.shape, dtype.innermost.default_scalar())
        result_dtype = (self._encoded_type(spec) if encoding else spec.dtype).to_native_dtype()
        result: np.ndarray[Any, Any] = np.empty(0, dtype=result_dtype)  # not every codec takes an empty array
        if source.size:
            result = work(NullableNDBuffer(source), spec).as_numpy_array()
        if result.dtype != result_dtype and result.dtype.itemsize == result_dtype.itemsize:
            result = result.view(result_dtype)  # numcodecs leaves the bits of some floats as integers
        values = scatter(result, present)
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
"""The classes of this module by codec name."""


def on_present_values(codec: Any) -> Any:
    """`codec`, or the class of this module that replaces it in front of the `optional` codec."""
    if isinstance(codec, numcodecs.PackBits):
        raise CodecConfigurationError(
            f"codec {codec.codec_name!r} packs eight elements into a byte, so nulls would lose their place: "
            "put it among the data_codecs"
        )
    for replacement in ON_PRESENT_VALUES.values():
        zarrs_own: Any = replacement.__bases__[1]
        if type(codec) is zarrs_own:
            return replacement.from_dict(codec.to_dict())
    return codec


def _inner_spec(spec: ArraySpec, shape: tuple[int, ...], fill: Any) -> ArraySpec:
    dtype = spec.dtype
    assert isinstance(dtype, OptionalDType)
    return replace(spec, shape=shape, dtype=dtype.innermost, fill_value=fill)
