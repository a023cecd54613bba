"""Walking over a large box in blocks that are whole chunks and fit in memory."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

from intarsia.array.table import Box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BLOCK_BYTES", "blocks", "grown"]

BLOCK_BYTES = 64 << 20
"""A block grows by whole chunks up to this size; one chunk is the least."""


def grown(grain: tuple[int, ...], chunks: Sequence[int], itemsize: int, most_bytes: int) -> tuple[int, ...]:
    """A block of whole chunks, as large as `most_bytes` allows; last axes first, one chunk at least.

    >>> grown((2, 4), [10, 3], 1, 64)
    (4, 12)
    """
    step, budget = list(grain), most_bytes // max(itemsize * prod(grain), 1)
    for axis in reversed(range(len(grain))):
        times = max(1, min(budget, chunks[axis]))
        step[axis] *= times
        budget //= times
    return tuple(step)


def blocks(box: Box, grain: tuple[int, ...], itemsize: int, most_bytes: int = BLOCK_BYTES) -> Iterator[Box]:
    """Boxes that tile `box`, each made of whole chunks of shape `grain` (but for the edges).

    >>> [block.shape for block in blocks(Box((0, 0), (5, 4)), (2, 4), 1, most_bytes=16)]
    [(4, 4), (1, 4)]
    """
    step = grown(grain, box.in_units(grain).shape, itemsize, most_bytes)
    ranges = [range(a // s * s, b, s) for a, b, s in zip(box.start, box.stop, step, strict=True)]
    for corner in product(*ranges):
        block = Box.sized(step, corner).intersect(box)
        if block is not None:
            yield block
