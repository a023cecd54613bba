"""A few contiguous blocks of an array, always the same ones: what encodings are tried on."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.nullable import NullableValues

if TYPE_CHECKING:
    from intarsia.array import LogicalArray

__all__ = ["sample"]

SAMPLE_BYTES = 8 << 20
"""All blocks together hold about this much."""

BLOCKS = 4
"""Taken from evenly spaced places, because the two ends of an array are rarely alike."""


def sample(data: Any, bounds: tuple[tuple[int, int], ...] | None = None) -> list[np.ndarray[Any, Any]]:
    """Contiguous blocks of an array, or of a box of it, evenly spaced over its first axis.

    >>> [block.shape for block in sample(np.zeros((10, 4)))]
    [(2, 4), (2, 4), (2, 4), (2, 4)]
    """
    array = data if hasattr(data, "shape") and hasattr(data, "dtype") else np.asarray(data)
    box = tuple((0, n) for n in array.shape) if bounds is None else bounds
    shape = [b - a for a, b in box]
    if not prod(shape):
        return []
    if not shape:
        return [_block(array[...])]
    itemsize = max(1, np.dtype(array.dtype).itemsize)
    # Trailing axes are cut only where a single row is larger than a block.
    budget = SAMPLE_BYTES // BLOCKS // itemsize
    keep = list(shape)
    for axis in range(1, len(keep)):
        while prod(keep[1:]) > budget and keep[axis] > 1:
            keep[axis] = -(-keep[axis] // 2)
    rows = max(1, min(budget // max(1, prod(keep[1:])), shape[0] // BLOCKS or 1))
    count = min(BLOCKS, max(1, shape[0] // rows))
    starts = [box[0][0] + (shape[0] - rows) * i // max(1, count - 1) for i in range(count)]
    rest = tuple(slice(a, a + n) for (a, _), n in zip(box[1:], keep[1:], strict=True))
    return [_block(array[(slice(at, at + rows), *rest)]) for at in sorted(set(starts))]


def _block(part: Any) -> Any:
    """A part as contiguous memory of its own, with its nulls if it has any."""
    if isinstance(part, np.ma.MaskedArray | NullableValues):
        return NullableValues.of(part, getattr(part, "depth", 1)).copy()
    return np.ascontiguousarray(part)


def covered_boxes(array: LogicalArray) -> list[tuple[tuple[int, int], ...]]:
    """Bounds of every region."""
    return [region.bounds for region in array.regions]
