"""zarr's `scale_offset` and `cast_value` in front of the `optional` codec: nulls stay nulls.

Among `data_codecs` they need nothing, as only present values get there. In front of `optional` they
see nullable data, which zarr's own classes refuse; these work on the present values alone. On any
other data type they turn themselves into zarr's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.codec import ArrayArrayCodec
from zarr.codecs import CastValue, ScaleOffset

from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer, nullable_of
from intarsia.nullable.compact import gather
from intarsia.nullable.dtype import OptionalDType
from intarsia.nullable.layout import beneath
from intarsia.nullable.scalars import NULL, Some
from intarsia.nullable.values import NullableValues

if TYPE_CHECKING:
    from zarr.core.buffer import NDBuffer

    from intarsia._compat import ArraySpec

__all__ = ["PresentCastValue", "PresentScaleOffset", "on_present_values"]


class _OnPresentValues(ArrayArrayCodec):
    """Gives an element-wise codec of zarr the ability to meet nulls."""

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Any:
        evolved = super().evolve_from_array_spec(array_spec)
        return evolved if isinstance(array_spec.dtype, OptionalDType) else _plain(evolved)

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
            # The default of the inner type may be out of reach for the codec, and nobody needs it.
            resolved = replace(inner, dtype=getattr(self, "dtype", inner.dtype))
            fill = chunk_spec.fill_value
        else:
            resolved = super().resolve_metadata(inner)
            fill = dtype.cast_scalar(resolved.fill_value)
        return replace(chunk_spec, dtype=dtype.with_innermost(resolved.dtype), fill_value=fill)

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer | None:
        if not isinstance(chunk_spec.dtype, OptionalDType):
            return super()._encode_sync(chunk_data, chunk_spec)  # type: ignore[misc, no-any-return]
        return self._on_present(super()._encode_sync, chunk_data, chunk_spec)  # type: ignore[misc]

    def _decode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        if not isinstance(chunk_spec.dtype, OptionalDType):
            return super()._decode_sync(chunk_data, chunk_spec)  # type: ignore[misc, no-any-return]
        return self._on_present(super()._decode_sync, chunk_data, chunk_spec)  # type: ignore[misc]

    def _on_present(self, work: Any, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        dtype = chunk_spec.dtype
        assert isinstance(dtype, OptionalDType)
        nullable = nullable_of(chunk_data, dtype.depth)
        present = nullable.missing == 0
        count = int(np.count_nonzero(present))
        taken = np.ascontiguousarray(gather(nullable.values, present, count))
        spec = _inner_spec(chunk_spec, (count,), dtype.innermost.default_scalar())
        worked = work(NullableNDBuffer(taken), spec).as_numpy_array()
        values: np.ndarray[Any, Any] = np.empty(nullable.shape, dtype=worked.dtype)
        values[...] = beneath(worked.dtype)
        values[present] = worked
        return OptionalNDBuffer(NullableValues(values, nullable.missing, dtype.depth))

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer | None:
        return self._encode_sync(chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_data, chunk_spec)


class PresentScaleOffset(_OnPresentValues, ScaleOffset):
    """`scale_offset` that leaves nulls alone.

    >>> PresentScaleOffset(offset=5, scale=10).to_dict()
    {'name': 'scale_offset', 'configuration': {'offset': 5, 'scale': 10}}
    """


class PresentCastValue(_OnPresentValues, CastValue):
    """`cast_value` that leaves nulls alone: optional[float64] becomes optional of its `data_type`.

    >>> PresentCastValue(data_type="int16").to_dict()
    {'name': 'cast_value', 'configuration': {'data_type': 'int16'}}
    """


def on_present_values(codec: Any) -> Any:
    """`codec`, as one that works in front of the `optional` codec, if it is one of zarr's two.

    >>> on_present_values(ScaleOffset(offset=1))
    PresentScaleOffset(offset=1, scale=1)
    """
    for plain, ours in ((ScaleOffset, PresentScaleOffset), (CastValue, PresentCastValue)):
        if type(codec) is plain:
            return ours.from_dict(codec.to_dict())
    return codec


def _plain(codec: Any) -> Any:
    plain = ScaleOffset if isinstance(codec, ScaleOffset) else CastValue
    return plain.from_dict(codec.to_dict())


def _inner_spec(spec: ArraySpec, shape: tuple[int, ...], fill: Any) -> ArraySpec:
    dtype = spec.dtype
    assert isinstance(dtype, OptionalDType)
    return replace(spec, shape=shape, dtype=dtype.innermost, fill_value=fill)
