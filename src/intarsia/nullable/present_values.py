"""Codecs of zarr that also work in front of `optional`, where they leave nulls alone.

zarr's `scale_offset`, `cast_value` and numcodecs codecs work unchanged as `data_codecs`, which see present
values only. In front of `optional` they see nullable data, which zarr's own classes refuse. There they are
wrapped, and get the present values; for any other data type the wrapper turns into zarr's own codec.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from zarr.abc.codec import ArrayArrayCodec
from zarr.codecs import CastValue, ScaleOffset, numcodecs
from zarr.core.buffer import NDBuffer
from zarr.dtype import ZDType

from intarsia._compat import JSON, ArraySpec
from intarsia.codecs import base
from intarsia.errors import CodecConfigurationError
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, to_nullable
from intarsia.nullable.dtype import OptionalDType
from intarsia.nullable.elements import scatter, unwrap
from intarsia.nullable.nullable_values import NullableValues

ELEMENTWISE: Final[dict[str, type[ArrayArrayCodec]]] = {
    "scale_offset": ScaleOffset,
    "cast_value": CastValue,
    "numcodecs.astype": numcodecs.AsType,
    "numcodecs.bitround": numcodecs.BitRound,
    "numcodecs.delta": numcodecs.Delta,
    "numcodecs.fixedscaleoffset": numcodecs.FixedScaleOffset,
    "numcodecs.quantize": numcodecs.Quantize,
}
"""The codecs that work so, by name. `delta` goes from one present value to the next."""


@dataclass(frozen=True)
class OnPresentValues(base.SynchronousArrayCodec):
    """An element-wise codec of zarr that gets the present values of data with nulls.

    >>> OnPresentValues.from_dict({"name": "scale_offset", "configuration": {"scale": 2}}).codec
    ScaleOffset(offset=0, scale=2)
    """

    codec: Any
    """The codec of zarr."""

    @property
    def is_fixed_size(self) -> bool:  # type: ignore[override]  # zarr's classes have an attribute, or none
        return getattr(self.codec, "is_fixed_size", False)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        return cls(ELEMENTWISE[str(data["name"])].from_dict(data))

    def to_dict(self) -> dict[str, JSON]:
        document: dict[str, JSON] = self.codec.to_dict()
        return document

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Any:
        if not isinstance(array_spec.dtype, OptionalDType):
            return self.codec.evolve_from_array_spec(array_spec)
        return replace(self, codec=self.codec.evolve_from_array_spec(_inner_spec(array_spec)))

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        inner = dtype.innermost if isinstance(dtype, OptionalDType) else dtype
        self.codec.validate(shape=shape, dtype=inner, chunk_grid=chunk_grid)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        size: int = self.codec.compute_encoded_size(input_byte_length, _inner_spec(chunk_spec))
        return size

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        dtype = chunk_spec.dtype
        if not isinstance(dtype, OptionalDType):
            plain: ArraySpec = self.codec.resolve_metadata(chunk_spec)
            return plain
        inner, fill = _inner_spec(chunk_spec), chunk_spec.fill_value
        value, missing = unwrap(fill, dtype.depth)
        if not missing:
            inner = self.codec.resolve_metadata(replace(inner, fill_value=value))
            fill = dtype.cast_scalar(inner.fill_value)
        encoded = inner.dtype if not missing else self._encoded_type(inner)
        return replace(chunk_spec, dtype=dtype.with_innermost(encoded), fill_value=fill)

    def _encoded_type(self, inner: ArraySpec) -> ZDType[Any, Any]:
        """The data type that values become. zarr's own two would also encode a fill value, which may fail."""
        zarrs_own = isinstance(self.codec, ScaleOffset | CastValue)
        resolved: Any = self.codec if zarrs_own else self.codec.resolve_metadata(inner)
        encoded: ZDType[Any, Any] = getattr(resolved, "dtype", inner.dtype)
        return encoded

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        encoded = self._encoded_type(_inner_spec(chunk_spec))
        return _on_present(self.codec._encode_sync, chunk_data, chunk_spec, encoded)

    def _decode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return _on_present(self.codec._decode_sync, chunk_data, chunk_spec, _inner_spec(chunk_spec).dtype)


def _on_present(
    work: Any, chunk_data: NDBuffer, chunk_spec: ArraySpec, result_type: ZDType[Any, Any]
) -> NDBuffer:
    dtype = chunk_spec.dtype
    if not isinstance(dtype, OptionalDType):
        plain: NDBuffer = work(chunk_data, chunk_spec)
        return plain
    nullable = to_nullable(chunk_data, dtype.depth)
    present = nullable.missing == 0
    source, result_dtype = nullable.values[present], result_type.to_native_dtype()
    result: np.ndarray[Any, Any] = np.empty(0, dtype=result_dtype)  # not every codec takes an empty array
    if source.size:
        spec = replace(_inner_spec(chunk_spec), shape=source.shape)
        result = work(NullableNDBuffer(source), spec).as_numpy_array()
    if result.dtype != result_dtype and result.dtype.itemsize == result_dtype.itemsize:
        result = result.view(result_dtype)  # numcodecs leaves the bits of some floats as integers
    return OptionalNDBuffer(NullableValues(scatter(result, present), nullable.missing, dtype.depth))


def on_present_values(codec: Any) -> Any:
    """`codec`, or what takes its place in front of the `optional` codec."""
    if isinstance(codec, numcodecs.PackBits):
        raise CodecConfigurationError(
            f"codec {codec.codec_name!r} packs eight elements into a byte, so nulls would lose their place: "
            "put it among the data_codecs"
        )
    return OnPresentValues(codec) if type(codec) in ELEMENTWISE.values() else codec


def _inner_spec(spec: ArraySpec) -> ArraySpec:
    """The spec for the present values, with a fill value that is one."""
    dtype = spec.dtype
    if not isinstance(dtype, OptionalDType):
        return spec
    return replace(spec, dtype=dtype.innermost, fill_value=dtype.innermost.default_scalar())
