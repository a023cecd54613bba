"""What is left to zarr itself: parts with data types, codecs or grids that our engine does not support."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import sync
from intarsia.engine.chunk_plan import AxisCuts, outer_index
from intarsia.engine.fetch import check_links
from intarsia.engine.put import held_for
from intarsia.engine.request import moved
from intarsia.manifest.box import grown
from intarsia.manifest.coercion import Values, points_of, put
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.member_source import Source, ZarrSource
    from intarsia.engine.plan import AxisSelector, Part
    from intarsia.manifest.packing import Packing


COPIES = 3
"""How many copies zarr holds of what it reads: encoded, decoded chunk by chunk, and as the result."""


def read_part_by_zarr(
    source: ZarrSource,
    part: Part,
    out: Values,
    *,
    points: bool,
    window: int,
    packing: Packing | None = None,
) -> None:
    """Read one part of a plan into the output, in pieces that take no more memory than the window."""
    member, out = source.guarded, part.onto(out)
    if not source.are_links_checked:
        check_links(member.store, member.path)
        source.are_links_checked = True
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
            put(out, piece.target, points_of(member, coordinates), packing)
        elif (
            source.is_plain
            and packing is None
            and isinstance(out, np.ndarray)
            and piece.target
            and all(isinstance(selector, slice) for selector in piece.target)
        ):
            place = default_buffer_prototype().nd_buffer.from_numpy_array(out[piece.target])
            inside: Any = piece.source
            member.get_basic_selection(inside, out=place)
        else:
            put(out, outer_index(piece.target, out.shape), _read_outer(member, piece.source), packing)


def _read_outer(member: zarr.Array[Any], source: Any) -> Any:
    if all(isinstance(selector, slice) for selector in source):
        return member.get_basic_selection(source or ...)
    return member.get_orthogonal_selection(source)


def _outer_pieces(part: Part, grain: tuple[int, ...], itemsize: int, most_bytes: int) -> Iterator[Part]:
    """The part cut at chunk borders into pieces that zarr can read at a time."""
    size = grown(
        grain, [_extent(s, g) for s, g in zip(part.source, grain, strict=True)], itemsize, most_bytes
    )
    axes = [AxisCuts(*axis) for axis in zip(part.source, part.target, size, strict=True)]
    for place in product(*(range(len(axis.chunk)) for axis in axes)):
        cut = list(zip(axes, place, size, strict=True))
        source = tuple(moved(axis.inside[i], axis.chunk[i] * n) for axis, i, n in cut)
        yield replace(part, source=source, target=tuple(axis.target[i] for axis, i, _ in cut))


def _extent(selector: AxisSelector, grain: int) -> int:
    """How many chunks the part spans along an axis."""
    if isinstance(selector, slice):
        return int((selector.stop - 1) // grain - selector.start // grain + 1)
    return int(selector.max() // grain - selector.min() // grain + 1)


def _point_pieces(part: Part, grain: tuple[int, ...], itemsize: int, most_bytes: int) -> Iterator[Part]:
    """The points, grouped by their chunks, with as many chunks at a time as fit."""
    coordinates: Any = part.source
    places: Any = part.target[0]
    order = np.lexsort([c // n for c, n in zip(reversed(coordinates), reversed(grain), strict=True)])
    owner = np.stack([c[order] // n for c, n in zip(coordinates, grain, strict=True)])
    changes = np.flatnonzero((owner[:, 1:] != owner[:, :-1]).any(axis=0)) + 1
    together = max(1, most_bytes // max(1, itemsize * int(np.prod(grain))))
    for group in np.split(order, changes[together - 1 :: together]):
        yield replace(part, source=tuple(c[group] for c in coordinates), target=(places[group],))


def culprit(source: ZarrSource, part: Part) -> tuple[int, ...] | None:
    """Which chunk of the part fails, found by reading them one by one; only used after a failed read."""
    if source.stored_grain is None:
        return None
    member = source.guarded
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
    chunks: list[int] = np.unique(selector // size).tolist()
    return chunks


def write_part_by_zarr(source: Source, part: Part, values: Values, *, points: bool) -> None:
    """Write what `part.target` selects from the values to where `part.source` says in the member."""
    member: Any = source.array
    check_store(member.store)
    part = _last_of_each(part, member.shape, points)
    with held_for(source, part, points=points), at_rest():
        if points:
            member.set_coordinate_selection(part.source, values[part.target])
            return
        chosen = values[outer_index(part.target, values.shape)]
        if all(isinstance(selector, slice) for selector in part.source):
            member.set_basic_selection(part.source or ..., chosen)
        else:
            member.set_orthogonal_selection(part.source, chosen)


_writing: ContextVar[object] = ContextVar("writing")


@contextmanager
def at_rest() -> Iterator[None]:
    """Make sure that the store is at rest when an error of the writes inside is caught.

    zarr raises the first failure, and its other tasks run on. They are known by their context, which is a
    copy of the context that started them.

    >>> with at_rest():
    ...     pass
    """
    mark = object()
    token = _writing.set(mark)
    try:
        yield
    except Exception:
        sync(_ended(mark))
        raise
    finally:
        _writing.reset(token)


async def _ended(mark: object) -> None:
    """Wait until no task with this mark runs, nor any that it has started since."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    while running := [task for task in others if task.get_context().get(_writing) is mark]:
        await asyncio.wait(running)
        others = asyncio.all_tasks() - {asyncio.current_task()}


def _last_of_each(part: Part, shape: tuple[int, ...], points: bool) -> Part:
    """The part without elements that a later one overwrites, as in NumPy; zarr's shards mix up the order."""
    if points and part.source:
        coordinates: Any = part.source
        places: Any = part.target[0]
        flat = np.ravel_multi_index(coordinates, shape)
        _, from_end = np.unique(flat[::-1], return_index=True)
        if from_end.size == flat.size:
            return part
        kept = flat.size - 1 - from_end
        return replace(part, source=tuple(c[kept] for c in coordinates), target=(places[kept],))
    axes: list[tuple[Any, Any]] = []
    for inside, target in zip(part.source, part.target, strict=False):
        if not isinstance(inside, slice) and not isinstance(target, slice):
            last = np.append(inside[1:] != inside[:-1], True)  # a plan gives indices in ascending order
            axes.append((inside[last], target[last]))
        else:
            axes.append((inside, target))
    return replace(part, source=tuple(i for i, _ in axes), target=tuple(t for _, t in axes)) if axes else part
