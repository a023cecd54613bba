"""One file's share of a logical array: boxes of chunks, each with one encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.encodings import SourceEncoding, copied, depends_on_axes, referenced
from intarsia.array.table import Box
from intarsia.errors import IngestError

if TYPE_CHECKING:
    from intarsia.archives.cf import Packing
    from intarsia.archives.parsed import ParsedVariable

__all__ = ["Piece", "boxes_of", "pieces_of", "with_new_axis"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunks of one file that have one encoding."""

    encoding: SourceEncoding
    """How they are read."""

    boxes: tuple[Box, ...]
    """Which they are, as boxes of the file's chunk grid; together with the other pieces they tile it."""

    skipped: int = 0
    """The filter mask that they share."""

    by_copy: bool = False
    """Whether the numbers are copied; otherwise they are referenced."""


def boxes_of(chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Box]:
    """Few boxes that cover exactly the chosen cells of a grid.

    >>> boxes_of(np.array([[True, True, False], [True, True, False], [False, False, True]]))
    [Box(start=(0, 0), stop=(2, 2)), Box(start=(2, 2), stop=(3, 3))]
    """
    if not chosen.ndim:
        return [Box((), ())] if chosen else []
    if chosen.all():
        return [Box((0,) * chosen.ndim, chosen.shape)]
    if chosen.ndim == 1:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]])))
        return [Box((a,), (b,)) for a, b in edges.reshape(-1, 2).tolist()]
    found: list[Box] = []
    open_boxes: dict[Box, int] = {}  # boxes of the row before that still grow, and the row they began in
    for row in range(len(chosen) + 1):
        here = boxes_of(chosen[row]) if row < len(chosen) else []
        ended = [box for box in open_boxes if box not in here]
        found += [Box((open_boxes.pop(box), *box.start), (row, *box.stop)) for box in ended]
        for box in here:
            open_boxes.setdefault(box, row)
    return sorted(found)


def with_new_axis(variable: ParsedVariable, dim: str) -> None:
    """Make a variable of a file that is one step of `dim` a variable along it."""
    reason = depends_on_axes(variable) if variable.references is not None else ""
    variable.dims, variable.shape = (dim, *variable.dims), (1, *variable.shape)
    variable.chunks = (1, *variable.chunks)
    references = variable.references
    if reason:
        variable.references, variable.reason = None, reason
    elif references is not None:
        references.offsets, references.lengths = references.offsets[None], references.lengths[None]
        if references.masks is not None:
            references.masks = references.masks[None]
        if not isinstance(references.locations, str):
            references.locations = references.locations[None]
        references.inlined = {(0, *index): data for index, data in references.inlined.items()}


def pieces_of(variable: ParsedVariable, packing: Packing, logical: np.dtype[Any], copy: str) -> list[Piece]:
    """How the chunks of one file are backed: by reference, by a copy, or in parts. There may be none."""
    if 0 in variable.shape:
        return []
    grid = tuple(-(-n // c) for n, c in zip(variable.shape, variable.chunks, strict=True))
    whole = (Box((0,) * len(grid), grid),)
    references = variable.references
    by_copy = references is None or bool(references.inlined)
    if by_copy and copy == "never":
        raise IngestError(f"{variable.name!r}: {variable.reason}; and copy='never' was asked for")
    if references is None or copy == "all":
        reason = variable.reason or "copy='all' was asked for"
        return [Piece(copied(variable, packing, logical, reason), whole, by_copy=True)]
    if references.masks is None:
        return [Piece(referenced(variable, packing, logical), whole)]
    return [
        Piece(referenced(variable, packing, logical, mask), tuple(boxes_of(references.masks == mask)), mask)
        for mask in np.unique(references.masks).tolist()
    ]
