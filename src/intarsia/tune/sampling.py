"""Samples of an array: a few blocks that hold about as much as can be tried."""

import os
from math import prod
from typing import Any

import numpy as np

from intarsia.array import LogicalArray
from intarsia.errors import DataTypeError
from intarsia.nullable import NullableValues

type Box = tuple[tuple[int, int], ...]

SAMPLE_BYTES = 8 << 20
"""All blocks together hold about this much."""

BLOCKS = 4
"""Taken from evenly spaced places, because the two ends of an array are rarely alike."""


def with_values(data: Any) -> Any:
    """What can be sampled; what is no array is refused, above all the path of one."""
    if isinstance(data, str | bytes | os.PathLike):
        raise DataTypeError(
            f"{data!r} is a text, not data.\n"
            f"  For the array at a path: intarsia.advise(intarsia.reader({data!r}))"
        )
    if hasattr(data, "shape") and hasattr(data, "dtype"):
        return data
    values = np.asarray(data)
    if values.dtype == object and not all(isinstance(value, bytes) for value in values.flat):
        raise DataTypeError(
            f"a {type(data).__name__} holds no values to try encodings on: give an array, "
            "such as intarsia.reader(store, path)"
        )
    return values


def blocks_of(data: Any, bounds: Box | None, chunks: tuple[int, ...] | None) -> list[np.ndarray[Any, Any]]:
    if isinstance(data, LogicalArray) and bounds is None:
        boxes = [region.bounds for region in data.regions]
        chosen = boxes[:: -(-len(boxes) // BLOCKS) or 1]
        return [block for box in chosen for block in sample(data, box, chunks)]
    return sample(data, bounds, chunks)


def is_small(chunks: tuple[int, ...], dtype: Any) -> bool:
    """Whether a whole chunk fits into a block."""
    return prod(chunks) * max(1, int(np.dtype(dtype).itemsize)) <= SAMPLE_BYTES // BLOCKS


def sample(
    data: Any, bounds: Box | None = None, chunks: tuple[int, ...] | None = None
) -> list[np.ndarray[Any, Any]]:
    """Contiguous blocks of an array, or of a box of it, evenly spaced over its first axis.

    If the values are stored in chunks that are not too large, blocks are made of whole ones.

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
    step = 1
    if chunks is not None and is_small(chunks, array.dtype):
        keep = [min(n, -(-k // c) * c) for n, k, c in zip(shape, keep, chunks, strict=True)]
        step, rows = chunks[0], min(shape[0], -(-rows // chunks[0]) * chunks[0])
    count = min(BLOCKS, max(1, shape[0] // rows))
    starts = [box[0][0] + (shape[0] - rows) * i // max(1, count - 1) // step * step for i in range(count)]
    rest = tuple(slice(a, a + n) for (a, _), n in zip(box[1:], keep[1:], strict=True))
    return [_block(array[(slice(at, at + rows), *rest)]) for at in sorted(set(starts))]


def _block(part: Any) -> Any:
    """A part as contiguous memory of its own, with its nulls if it has any."""
    if isinstance(part, np.ma.MaskedArray | NullableValues):
        return NullableValues.of(part, getattr(part, "depth", 1)).copy()
    return np.ascontiguousarray(part)
