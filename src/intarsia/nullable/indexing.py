"""Selections of nullable arrays: one index a dimension, and single elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.nullable.buffer import OptionalNDBuffer

if TYPE_CHECKING:
    from intarsia.nullable.array import NullableArray

__all__ = ["OuterIndex", "PointBuffer", "PointIndex", "points_of"]


@dataclass(frozen=True, slots=True)
class OuterIndex:
    """`array.oindex[rows, columns]`: one index a dimension.

    >>> from intarsia import nullable
    >>> a = nullable.create_array({}, data=[[1, None], [3, 4]])
    >>> a.oindex[[1, 0], [1]].tolist()
    [[4], [None]]
    """

    array: NullableArray
    """Whose elements are selected."""

    def __getitem__(self, selection: Any) -> Any:
        read = self.array.zarr_array.oindex[selection]
        return self.array._shown(self.array._made(read))

    def __setitem__(self, selection: Any, value: Any) -> None:
        self.array.zarr_array.oindex[selection] = self.array._taken(value)


@dataclass(frozen=True, slots=True)
class PointIndex:
    """`array.vindex[rows, columns]`: single elements, or those where a mask is true.

    >>> from intarsia import nullable
    >>> a = nullable.create_array({}, data=[[1, None], [3, 4]])
    >>> a.vindex[[1, 0], [1, 1]].tolist()
    [4, None]
    """

    array: NullableArray
    """Whose elements are selected."""

    def __getitem__(self, selection: Any) -> Any:
        return self.array._shown(self.array._read_points(selection))

    def __setitem__(self, selection: Any, value: Any) -> None:
        self.array._write_points(selection, self.array._taken(value))


class PointBuffer(OptionalNDBuffer):
    """Where zarr puts a selection of points. It makes a plain array of it at the end, which must not fail.

    >>> from intarsia.nullable import as_nullable
    >>> PointBuffer(as_nullable([1, None])).as_ndarray_like()
    array([0, 0], dtype=uint8)
    """

    def as_ndarray_like(self) -> Any:
        return np.broadcast_to(np.uint8(0), self.shape)


def points_of(
    selection: Any, shape: tuple[int, ...]
) -> tuple[tuple[np.ndarray[Any, Any], ...], tuple[int, ...]]:
    """Coordinates along every dimension, flat and counted from the start, and the shape of the result.

    >>> points_of(([0, -1], [2, 2]), (4, 5))
    ((array([0, 3]), array([2, 2])), (2,))
    """
    given = selection if isinstance(selection, tuple) else (selection,)
    arrays = [np.asarray(part) for part in given]
    if len(arrays) == 1 and arrays[0].dtype == np.bool_:
        if arrays[0].shape != shape:
            raise IndexError(f"the mask has the shape {arrays[0].shape}, the array {shape}")
        arrays = list(np.nonzero(arrays[0]))
    if len(arrays) != len(shape) or any(a.dtype.kind not in "iu" and a.size for a in arrays):
        raise IndexError(
            f"points are given by {len(shape)} integer arrays, or by one mask of the shape {shape}; "
            f"not by {selection!r}"
        )
    spread = np.broadcast_arrays(*arrays)
    flat = tuple(part.reshape(-1).astype(np.intp) for part in spread)
    for part, size in zip(flat, shape, strict=True):
        if part.size and (part.min() < -size or part.max() >= size):
            raise IndexError(f"an index is out of bounds for a dimension of {size}")
    wrapped = tuple(np.where(part < 0, part + size, part) for part, size in zip(flat, shape, strict=True))
    return wrapped, spread[0].shape
