"""zarr's memory for arrays, extended to nullable data.

One class, named in zarr's configuration, allocates all memory. `NullableNDBuffer` is zarr's own for plain
arrays; for a dtype that says "nullable" (see elements.py) it allocates an `OptionalNDBuffer`.
`install_nullable_buffer` in dtype.py configures it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
from zarr.buffer.cpu import NDBuffer
from zarr.core.buffer import NDArrayLike

from intarsia._compat import DeferredNDBuffer
from intarsia.nullable.elements import NULL, ElementType, Null, Some, element_type, placeholder
from intarsia.nullable.nullable_values import Array, NullableValues


def gather(values: Array, present: Array, count: int, out: Array | None = None) -> Array:
    """The `count` elements of `values` where `present`, in C order, as one dimension."""
    if count < values.size and values.flags.c_contiguous:
        # Three times faster than a boolean index, which walks the mask twice.
        return values.reshape(-1).take(np.flatnonzero(present), out=out, mode="clip")
    elements: Array = values.reshape(-1) if count == values.size else values[present]
    if out is None:
        return elements
    out[...] = elements
    return out


@dataclass(frozen=True, slots=True)
class CompactChunk:
    """A decoded chunk without memory for its nulls: which elements are present, and only those.

    zarr decodes a chunk and copies it into the result. Delaying the expansion until the result is known
    saves that copy.
    """

    present: Array
    """One bool per element, in the chunk's shape."""

    data: Array | NullableValues
    """The present elements, in one dimension; in nested data they may be null further in."""

    element: ElementType
    """What the expanded chunk looks like."""

    count: int
    """How many elements are present."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The chunk's shape."""
        shape: tuple[int, ...] = self.present.shape
        return shape

    def expand(self) -> NullableValues:
        """The chunk as values and `missing`."""
        if self.count == self.present.size and isinstance(self.data, np.ndarray):
            missing = np.zeros(self.shape, dtype=np.uint8)
            return NullableValues(self.data.reshape(self.shape), missing, self.element.depth)
        chunk = NullableValues.empty(self.shape, self.element)
        self.expand_into(chunk.values, chunk.missing)
        return chunk

    def expand_into(self, values: Array, missing: Array) -> None:
        """Write the chunk into memory of the same shape."""
        depth = self.element.depth
        inner = None if isinstance(self.data, np.ndarray) else self.data
        data = self.data if isinstance(self.data, np.ndarray) else self.data.values
        if self.count == self.present.size:
            values[...] = data.reshape(self.shape)
            missing[...] = 0 if inner is None else inner.missing.reshape(self.shape)
            return
        # Filling everything and overwriting the present elements is also quicker than finding the nulls.
        values[...] = placeholder(values.dtype)
        if self.count == 0:
            missing[...] = depth
            return
        values[self.present] = data
        if inner is None:
            np.logical_not(self.present, out=missing.view(np.bool_))  # one level: 1 is null, 0 is not
        else:  # null at the outermost level, or what the next level in says
            missing[...] = depth
            missing[self.present] = inner.missing


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
        if isinstance(other, Null | Some):  # the fill value of a nullable array, whose values these become
            return _all_equal(NullableValues.of(self.as_ndarray_like()), other, equal_nan)
        return super().all_equal(other, equal_nan)


class OptionalNDBuffer(DeferredNDBuffer, NullableNDBuffer):
    """The memory of nullable data: `NullableValues`, or a chunk that is decoded and not yet expanded.

    zarr's own methods reshape, convert and copy it: `NullableValues` has what they call.

    >>> from intarsia.nullable import optional_dtype
    >>> dtype = optional_dtype("int8").to_native_dtype()
    >>> buffer = NullableNDBuffer.create(shape=(2,), dtype=dtype, fill_value=Some(3))
    >>> buffer.as_ndarray_like()
    NullableValues([3, 3], dtype=int8)
    """

    _compact: CompactChunk | None = None
    _nullable: NullableValues | None = None

    def __init__(self, array: NullableValues) -> None:
        self._nullable = array

    @classmethod
    def from_compact(cls, chunk: CompactChunk) -> Self:
        """A chunk whose elements are put in place once they are read or copied into another buffer."""
        buffer = cls.__new__(cls)
        buffer._compact = chunk
        return buffer

    @property
    def nullable(self) -> NullableValues:
        """The data."""
        if self._nullable is None:
            assert self._compact is not None
            self._nullable = self._compact.expand()
            self._compact = None
        return self._nullable

    @property
    def element(self) -> ElementType:
        """The plain dtype and the depth."""
        compact = self._compact
        return self.nullable.element if compact is None else compact.element

    def as_ndarray_like(self) -> NDArrayLike:
        return cast("NDArrayLike", self.nullable)

    def as_scalar(self) -> Any:
        return self.nullable.item()

    @property
    def shape(self) -> tuple[int, ...]:
        compact = self._compact
        return self.nullable.shape if compact is None else compact.shape

    def __getitem__(self, key: Any) -> Self:
        if self._compact is not None and _is_everything(key, self._compact.shape):
            return self
        return type(self)(self.nullable[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, OptionalNDBuffer):
            compact = value._compact
            if compact is not None and compact.element == self.element and _is_box(key):
                region = self.nullable[key]
                if region.shape == compact.shape:
                    compact.expand_into(region.values, region.missing)
                    return
            value = value.nullable
        elif isinstance(value, NDBuffer):
            value = value.as_ndarray_like()
        self.nullable[key] = value

    def all_equal(self, other: Any, equal_nan: bool = True) -> bool:
        return other is not None and _all_equal(self.nullable, other, equal_nan)


def to_nullable(buffer: Any, depth: int) -> NullableValues:
    """What a buffer of any kind holds, as nullable data of `depth`."""
    if isinstance(buffer, OptionalNDBuffer):
        return buffer.nullable.at_depth(depth)
    return NullableValues.of(buffer.as_ndarray_like(), depth)


def _all_equal(data: NullableValues, scalar: Any, equal_nan: bool) -> bool:
    """Whether every element is `scalar`: the same null, or the same value to the bit."""
    value, wraps = scalar, 0
    while isinstance(value, Some):
        value, wraps = value.value, wraps + 1
    if value is NULL:
        # Plain and masked data to be written does not know the array's depth: its nulls are the outermost.
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
