"""zarr's memory for arrays, extended by nullable data; set process-wide when this package is imported.

zarr asks one class for all memory. `NullableNDBuffer` answers with zarr's own behaviour for plain
arrays; for a dtype that says "nullable" (see layout.py) it answers with an `OptionalNDBuffer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, cast

from zarr.buffer.cpu import NDBuffer

from intarsia.nullable.layout import Layout, layout_of
from intarsia.nullable.scalars import NULL, Null, Some
from intarsia.nullable.values import NullableValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import SupportsIndex

    import numpy as np
    import numpy.typing as npt
    from zarr.core.buffer import NDArrayLike

    from intarsia.nullable.compact import Compact

__all__ = ["NullableNDBuffer", "OptionalNDBuffer", "nullable_of"]


class NullableNDBuffer(NDBuffer):
    """zarr's own NDBuffer, which also knows what to allocate for nullable dtypes.

    >>> NullableNDBuffer.create(shape=(2,), dtype="int8").as_ndarray_like()
    array([0, 0], dtype=int8)
    """

    @classmethod
    def create(
        cls,
        *,
        shape: Iterable[int],
        dtype: npt.DTypeLike,
        order: Literal["C", "F"] = "C",
        fill_value: Any | None = None,
    ) -> Self:
        layout = layout_of(dtype)
        if layout is None:
            return super().create(shape=shape, dtype=dtype, order=order, fill_value=fill_value)
        made = NullableValues.full(tuple(shape), fill_value, layout, order)
        return cast("Self", OptionalNDBuffer(made))

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        layout = layout_of(dtype)
        if layout is None:
            return super().empty(shape, dtype, order)
        return cast("Self", OptionalNDBuffer(NullableValues.empty(tuple(shape), layout, order)))

    @classmethod
    def from_ndarray_like(cls, ndarray_like: NDArrayLike) -> Self:
        if type(ndarray_like) is NullableValues:
            return cast("Self", OptionalNDBuffer(ndarray_like))
        return cls(ndarray_like)

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        if isinstance(other, Null | Some):  # the fill value of a nullable array, whose values these become
            return _all_equal(NullableValues.of(self._data), other, equal_nan)
        return super().all_equal(other, equal_nan)


class OptionalNDBuffer(NullableNDBuffer):
    """The memory of nullable data: `NullableValues`, or a chunk just decoded and not yet expanded.

    >>> from intarsia.nullable import optional_dtype
    >>> dtype = optional_dtype("int8").to_native_dtype()
    >>> buffer = NullableNDBuffer.create(shape=(2,), dtype=dtype, fill_value=Some(3))
    >>> buffer.as_ndarray_like()
    NullableValues([3, 3], dtype=int8)
    """

    _compact: Compact | None = None
    _nullable: NullableValues | None = None

    def __init__(self, array: NullableValues) -> None:
        self._nullable = array

    @classmethod
    def from_compact(cls, chunk: Compact) -> OptionalNDBuffer:
        """A chunk whose elements are put in place when somebody looks, or into another buffer."""
        made = cls.__new__(cls)
        made._compact = chunk
        return made

    @property
    def nullable(self) -> NullableValues:
        """The data."""
        if self._nullable is None:
            assert self._compact is not None
            self._nullable = self._compact.expanded()
            self._compact = None
        return self._nullable

    @property
    def _data(self) -> Any:
        """Where zarr's own buffers look for the array of another one, and must find the nulls."""
        return self.nullable

    @_data.setter
    def _data(self, array: Any) -> None:
        self._nullable = array

    @property
    def layout(self) -> Layout:
        """The plain dtype and the depth."""
        compact = self._compact
        return self.nullable.layout if compact is None else compact.layout

    def as_ndarray_like(self) -> NDArrayLike:
        return cast("NDArrayLike", self.nullable)

    def as_numpy_array(self) -> npt.NDArray[Any]:
        return self.nullable.__array__()

    def as_scalar(self) -> Any:
        return self.nullable.item()

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.nullable.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        compact = self._compact
        return self.nullable.shape if compact is None else compact.shape

    def reshape(self, newshape: tuple[int, ...] | Literal[-1]) -> Self:
        return type(self)(self.nullable.reshape((newshape,) if newshape == -1 else newshape))

    def squeeze(self, axis: tuple[int, ...]) -> Self:
        return self.reshape(tuple(a for i, a in enumerate(self.shape) if i not in axis))

    def astype(self, dtype: npt.DTypeLike, order: Literal["K", "A", "C", "F"] = "K") -> Self:
        return type(self)(self.nullable.astype(dtype, order=order))

    def __getitem__(self, key: Any) -> Self:
        if self._compact is not None and _is_everything(key, self._compact.shape):
            return self
        return type(self)(self.nullable[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, OptionalNDBuffer):
            compact = value._compact
            if compact is not None and compact.layout == self.layout and _is_box(key):
                region = self.nullable[key]
                if region.shape == compact.shape:
                    compact.expand_into(region.values, region.missing)
                    return
            value = value.nullable
        elif isinstance(value, NDBuffer):
            value = value.as_ndarray_like()
        self.nullable[key] = value

    def __len__(self) -> int:
        return len(self.nullable)

    def __repr__(self) -> str:
        return f"<OptionalNDBuffer shape={self.shape} {self.nullable!r}>"

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        return other is not None and _all_equal(self.nullable, other, equal_nan)

    def fill(self, value: Any) -> None:
        self.nullable.fill(value)

    def copy(self) -> Self:
        return type(self)(self.nullable.copy())

    def transpose(self, axes: SupportsIndex | Sequence[SupportsIndex] | None) -> Self:
        return type(self)(self.nullable.transpose(axes))


def nullable_of(buffer: Any, depth: int) -> NullableValues:
    """What a buffer of any kind holds, as nullable data of `depth`.

    >>> nullable_of(NullableNDBuffer.create(shape=(2,), dtype="int8"), 1)
    NullableValues([0, 0], dtype=int8)
    """
    if isinstance(buffer, OptionalNDBuffer):
        return buffer.nullable.at_depth(depth)
    return NullableValues.of(buffer.as_ndarray_like(), depth)


def _all_equal(data: NullableValues, scalar: Any, equal_nan: bool) -> bool:
    """Whether every element is `scalar`: the same null, or the same value to the bit."""
    value, wraps = scalar, 0
    while isinstance(value, Some):
        value, wraps = value.value, wraps + 1
    if value is NULL:
        # Plain and masked data being written does not know the array's depth: its nulls are the outermost.
        nulls = data.is_null() if data.depth == 1 else data.missing == data.depth - wraps
        return (data.depth > 1 or wraps == 0) and bool(nulls.all())
    return not data.missing.any() and NDBuffer(data.values).all_equal(value, equal_nan)


def _is_box(key: Any) -> bool:
    return key is Ellipsis or (
        isinstance(key, tuple) and all(isinstance(part, slice) or part is Ellipsis for part in key)
    )


def _is_everything(key: Any, shape: tuple[int, ...]) -> bool:
    """Whether `key` selects a whole array of `shape` in its order."""
    if key is Ellipsis:
        return True
    return (
        isinstance(key, tuple)
        and len(key) == len(shape)
        and all(
            isinstance(part, slice) and part.indices(size) == (0, size, 1)
            for part, size in zip(key, shape, strict=True)
        )
    )
