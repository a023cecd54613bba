"""Less than a chunk: the piece of it that holds all that is wanted, where the codecs can give that alone.

Such a piece is what lies in one stretch of the chunk's bytes: single indices along the first axes, a range
along the next one, and all of the rest. Chunks without a compressor are read so far; of chunks of blosc only
the blocks are decompressed that the piece lies in.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from intarsia.array.table import Ints

WORTH_A_PIECE = 64 << 10
"""Smaller chunks are read and decompressed as fast as a part of them."""

LARGEST_PART = 2
"""A piece is at most one of so many parts of its chunk; else the whole chunk is read."""


class ChunkPiece(NamedTuple):
    """A stretch of a chunk, and what is wanted of it."""

    first: int
    """The first element, counted in C order."""

    shape: tuple[int, ...]
    """The elements of the stretch, as an array."""

    inside: tuple[Any, ...]
    """What is wanted of that."""

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


def piece_of(inside: tuple[Any, ...], shape: tuple[int, ...]) -> ChunkPiece | None:
    """The piece that a selection in a chunk lies in, by selectors that NumPy takes; None if it is too large.

    >>> piece_of((slice(3, 4), slice(2, 5, 2), slice(0, 7)), (8, 8, 7))
    ChunkPiece(first=182, shape=(1, 3, 7), inside=(slice(0, 1, None), slice(0, 3, 2), slice(0, 7, None)))
    >>> piece_of((slice(0, 6), slice(0, 1)), (8, 8)) is None
    True
    """
    first, moved = 0, list(inside)
    for axis, selector in enumerate(inside):
        start, stop = bounds(selector)
        stride = prod(shape[axis + 1 :])
        first += start * stride
        moved[axis] = _moved(selector, start)
        if stop - start > 1 or axis == len(inside) - 1:
            kept = (1,) * axis + (stop - start, *shape[axis + 1 :])
            return ChunkPiece(first, kept, tuple(moved)) if prod(kept) * LARGEST_PART <= prod(shape) else None
    return None


def bounds(selector: Any) -> tuple[int, int]:
    """The first index that a selector takes of a chunk, and the one after the last.

    >>> bounds(np.array([5, 2])), bounds(slice(1, 8, 3))
    ((2, 6), (1, 8))
    """
    if isinstance(selector, slice):
        return selector.start, selector.stop
    return int(selector.min()), int(selector.max()) + 1


def _moved(selector: Any, start: int) -> Any:
    if isinstance(selector, slice):
        return slice(0, selector.stop - start, selector.step)
    return selector - start


def stretches(starts: Ints, extents: Ints, shape: tuple[int, ...]) -> tuple[Ints, Ints]:
    """First element and number of elements of the pieces of many chunks; of large ones, the whole chunk's.

    A row for each chunk and a column for each axis: where the selection begins, and how far it reaches.

    >>> stretches(np.array([[3, 2, 0], [0, 0, 0]]), np.array([[1, 3, 7], [6, 1, 1]]), (8, 8, 7))
    (array([182,   0]), array([ 21, 448]))
    """
    strides = np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], dtype=np.int64)
    several = extents > 1
    several[:, -1] = True
    axis = several.argmax(axis=1)
    # Of the axes behind that one, everything is in the piece.
    used = np.arange(len(shape)) <= axis[:, None]
    first = (starts * strides * used).sum(axis=1)
    count = np.take_along_axis(extents, axis[:, None], axis=1)[:, 0] * strides[axis]
    small = count * LARGEST_PART <= prod(shape)
    return np.where(small, first, 0), np.where(small, count, prod(shape))
