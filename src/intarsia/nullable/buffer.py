"""zarr's memory for arrays, extended to nullable data.

One class, named in zarr's configuration, allocates all memory. `NullableNDBuffer` is zarr's own for plain
arrays; for a dtype that says "nullable" (see elements.py) it allocates an `OptionalNDBuffer`.
`install_nullable_buffer` in dtype.py configures it.
"""

from collections.abc import Iterable
from typing import Any, Literal, Self, cast

import numpy.typing as npt
from zarr.buffer.cpu import NDBuffer
from zarr.core.buffer import NDArrayLike

from intarsia.nullable.elements import NULL, Null, Some, element_type
from intarsia.nullable.nullable_values import NullableValues


class _EqualToNDBuffer(type):
    """Makes a class equal to zarr's NDBuffer, and so too the buffer prototypes that name one of them.

    zarr reads the index of a shard inside a shard with the prototype of its own class, and refuses any that
    is not equal to the one in its configuration. Plain arrays must not notice which of the two that is.
    """

    def __eq__(cls, other: object) -> bool:
        return cls is other or other is NDBuffer

    def __hash__(cls) -> int:
        return hash(NDBuffer)


class NullableNDBuffer(NDBuffer, metaclass=_EqualToNDBuffer):
    """zarr's own NDBuffer, but it also knows what to allocate for nullable dtypes."""

    @classmethod
    def create(
        cls,
        *,
        shape: Iterable[int],
        dtype: npt.DTypeLike,
        order: Literal["C", "F"] = "C",
        fill_value: Any | None = None,
    ) -> Self:
        element = element_type(dtype)
        if element is None:
            return super().create(shape=shape, dtype=dtype, order=order, fill_value=fill_value)
        return cast("Self", OptionalNDBuffer(NullableValues.full(tuple(shape), fill_value, element, order)))

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "C") -> Self:
        element = element_type(dtype)
        if element is None:
            return super().empty(shape, dtype, order)
        return cast("Self", OptionalNDBuffer(NullableValues.empty(tuple(shape), element, order)))

    @classmethod
    def from_ndarray_like(cls, ndarray_like: NDArrayLike) -> Self:
        if type(ndarray_like) is NullableValues:
            return cast("Self", OptionalNDBuffer(ndarray_like))
        return cls(ndarray_like)

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        """Whether every element is `other`: the same null, or the same value to the bit."""
        if not isinstance(other, Null | Some):  # the fill value of a nullable array
            return super().all_equal(other, equal_nan)
        own: Any = self.as_ndarray_like()
        data = own if type(own) is NullableValues else NullableValues.of(own)
        value, wraps = other, 0
        while isinstance(value, Some):
            value, wraps = value.value, wraps + 1
        if value is NULL:
            # Plain and masked data does not know the depth of the array: its nulls are the outermost.
            nulls = data.isnull() if data.depth == 1 else data.missing == data.depth - wraps
            return (data.depth > 1 or wraps == 0) and bool(nulls.all())
        return not data.missing.any() and NDBuffer(data.values).all_equal(value, equal_nan)


class OptionalNDBuffer(NullableNDBuffer):
    """The memory of nullable data: `NullableValues`.

    zarr's own methods reshape, convert and copy it: `NullableValues` has what they call.

    >>> from intarsia.nullable import optional_dtype
    >>> dtype = optional_dtype("int8").to_native_dtype()
    >>> buffer = NullableNDBuffer.create(shape=(2,), dtype=dtype, fill_value=Some(3))
    >>> buffer.as_ndarray_like()
    NullableValues([3, 3], dtype=int8)
    """

    def __init__(self, array: NullableValues) -> None:
        super().__init__(cast("NDArrayLike", array))

    @property
    def nullable(self) -> NullableValues:
        """The data."""
        return cast("NullableValues", super().as_ndarray_like())  # of zarr: that of points hides it

    def as_scalar(self) -> Any:
        return self.nullable.item()

    def __getitem__(self, key: Any) -> Self:
        return type(self)(self.nullable[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.nullable[key] = value.as_ndarray_like() if isinstance(value, NDBuffer) else value


def to_nullable(buffer: Any, depth: int) -> NullableValues:
    """What a buffer of any kind holds, as nullable data of `depth`."""
    return NullableValues.of(buffer.as_ndarray_like(), depth)
