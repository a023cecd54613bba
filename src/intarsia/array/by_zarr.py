"""Reading a part through zarr itself: for data types, codecs and grids that the engine does not do."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from intarsia.array.box import grown
from intarsia.array.memory import Values, points_of
from intarsia.array.work import AxisPieces, outer_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    import zarr

    from intarsia.array.plan import AxisSelector, Part
    from intarsia.array.source import ZarrSource

__all__ = ["culprit", "read_part"]

COPIES = 3
"""How often zarr holds what it reads: encoded, decoded chunk by chunk, and as the result."""


def read_part(source: ZarrSource, part: Part, out: Values, *, points: bool, window: int) -> None:
    """Read one part of a plan into the output, in pieces that take no more memory than the window."""
    member = source.array
    grain = source.stored_grain
    if grain is None or not part.source:
        pieces: Iterator[Part] = iter((part,))
    elif points:
        pieces = _point_pieces(part, grain, member.dtype.itemsize, window // COPIES)
    else:
        pieces = _outer_pieces(part, grain, member.dtype.itemsize, window // COPIES)
    for piece in pieces:
        if points:
            coordinates: Any = piece.source
            out[piece.target] = points_of(member, coordinates)
        elif (
            source.is_plain
            and isinstance(out, np.ndarray)
            and piece.target
            and all(isinstance(selector, slice) for selector in piece.target)
        ):
            place = default_buffer_prototype().nd_buffer.from_numpy_array(out[piece.target])
            inside: Any = piece.source
            member.get_basic_selection(inside, out=place)
        else:
            out[outer_index(piece.target, out.shape)] = _read_outer(member, piece.source)


def _read_outer(member: zarr.Array[Any], source: Any) -> Any:
    if all(isinstance(selector, slice) for selector in source):
        return member.get_basic_selection(source or ...)
    return member.get_orthogonal_selection(source)


def _outer_pieces(part: Part, grain: tuple[int, ...], itemsize: int, most_bytes: int) -> Iterator[Part]:
    """The part cut at chunk borders into pieces that zarr can read at a time."""
    size = grown(
        grain, [_extent(s, g) for s, g in zip(part.source, grain, strict=True)], itemsize, most_bytes
    )
    axes = [AxisPieces(*axis) for axis in zip(part.source, part.target, size, strict=True)]
    for place in product(*(range(len(axis.chunk)) for axis in axes)):
        moved = [
            _moved(axis.inside[i], axis.chunk[i] * n) for axis, i, n in zip(axes, place, size, strict=True)
        ]
        target = tuple(axis.target[i] for axis, i in zip(axes, place, strict=True))
        yield replace(part, source=tuple(moved), target=target)


def _extent(selector: AxisSelector, grain: int) -> int:
    """How many chunks an axis of the part reaches over."""
    if isinstance(selector, slice):
        return int((selector.stop - 1) // grain - selector.start // grain + 1)
    return int(selector.max() // grain - selector.min() // grain + 1)


def _moved(selector: AxisSelector, offset: int) -> AxisSelector:
    if isinstance(selector, slice):
        return slice(selector.start + offset, selector.stop + offset, selector.step)
    return selector + offset


def _point_pieces(part: Part, grain: tuple[int, ...], itemsize: int, most_bytes: int) -> Iterator[Part]:
    """The points by the chunks they lie in, as many chunks at a time as fit."""
    coordinates: Any = part.source
    places: Any = part.target[0]
    order = np.lexsort([c // n for c, n in zip(reversed(coordinates), reversed(grain), strict=True)])
    owner = np.stack([c[order] // n for c, n in zip(coordinates, grain, strict=True)])
    changes = np.flatnonzero((owner[:, 1:] != owner[:, :-1]).any(axis=0)) + 1
    together = max(1, most_bytes // max(1, itemsize * int(np.prod(grain))))
    for group in np.split(order, changes[together - 1 :: together]):
        yield replace(part, source=tuple(c[group] for c in coordinates), target=(places[group],))


def culprit(source: ZarrSource, part: Part) -> tuple[int, ...] | None:
    """Which chunk of the part fails, found by reading them one by one; only after a read has failed."""
    if source.stored_grain is None:
        return None
    member = source.array
    sizes = member.chunks
    for index in product(*(_chunks_of(s, size) for s, size in zip(part.source, sizes, strict=True))):
        box = tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, sizes, strict=True))
        try:
            member.get_basic_selection(box or ...)
        except Exception:
            return index
    return None


def _chunks_of(selector: AxisSelector, size: int) -> list[int]:
    if isinstance(selector, slice):
        return list(range(selector.start // size, (selector.stop - 1) // size + 1))
    found: list[int] = np.unique(selector // size).tolist()
    return found
