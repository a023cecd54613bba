"""Boxes of any dimension projected onto a plane or a line, put together where they are too many to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from intarsia.array.table import Ints


type Floats = np.ndarray[Any, np.dtype[np.float64]]

SMALLEST_SHARE = 1e-9
"""What is left by rounding is no share."""


@dataclass(frozen=True, eq=False, slots=True)
class Cell:
    """A box of the plane (or line), and what lies behind it along the other axes."""

    start: tuple[int, ...]
    """First element on every axis of the plane."""

    stop: tuple[int, ...]
    """Last element, excluded."""

    shares: tuple[tuple[int, float], ...]
    """How much of it each group fills: (group, share of one); what is missing to one is empty."""

    regions: Ints
    """Rows of the regions behind it."""


def plane_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """The two largest axes, in their order: the ones that a map shows.

    >>> plane_axes((365, 720, 1440)), plane_axes((10,)), plane_axes(())
    ((1, 2), (0,), ())
    """
    largest = sorted(range(len(shape)), key=lambda axis: (-shape[axis], axis))[:2]
    return tuple(sorted(largest))


def project(
    shape: Sequence[int],
    start: Ints,
    stop: Ints,
    group: Ints,
    axes: tuple[int, ...],
    most_cells: int,
) -> list[Cell]:
    """Cells that show every region on `axes`, never more than about `most_cells`.

    Regions keep their own outline as long as their projections are few and do not cross; else the plane is
    cut at their edges, and where even that is too much, into equal cells.

    >>> cells = project((4, 4), np.array([[0, 0], [2, 0]]), np.array([[2, 4], [4, 4]]), np.array([0, 1]),
    ...                 (0, 1), most_cells=100)
    >>> [(cell.start, cell.stop, cell.shares) for cell in cells]
    [((0, 0), (2, 4), ((0, 1.0),)), ((2, 0), (4, 4), ((1, 1.0),))]
    """
    if not len(start) or not prod(shape):
        return []
    chosen = list(axes)
    low, high = start[:, chosen], stop[:, chosen]
    others = [axis for axis in range(len(shape)) if axis not in axes]
    depth = np.prod(stop[:, others] - start[:, others], axis=1, dtype=np.float64)
    depth = depth / prod(shape[axis] for axis in others)
    outlines = np.unique(np.concatenate([low, high], axis=1), axis=0)
    if len(outlines) <= most_cells:
        boxes_low, boxes_high = outlines[:, : len(chosen)], outlines[:, len(chosen) :]
        if not _cross(boxes_low, boxes_high):
            return _outlined(boxes_low, boxes_high, low, high, depth, group)
    edges = [own_edges(low[:, i], high[:, i], shape[axis]) for i, axis in enumerate(chosen)]
    if prod(len(edge) - 1 for edge in edges) > most_cells:
        edges = _equal_edges([shape[axis] for axis in chosen], most_cells)
    return _gridded(edges, low, high, depth, group)


def _cross(low: Ints, high: Ints) -> bool:
    """Whether two of these boxes overlap."""
    for i in range(len(low) - 1):
        if bool(np.any(np.all((low[i + 1 :] < high[i]) & (high[i + 1 :] > low[i]), axis=1))):
            return True
    return False


def own_edges(low: Ints, high: Ints, size: int) -> Ints:
    """Where boxes begin and end on an axis, and the ends of the axis."""
    edges: Ints = np.unique(np.concatenate([low, high, [0, size]]))
    return edges


def _equal_edges(sizes: Sequence[int], most_cells: int) -> list[Ints]:
    """Edges of nearly square, nearly equal cells."""
    if len(sizes) == 1:
        counts = [min(most_cells, sizes[0])]
    else:
        tall = max(1, min(sizes[0], int((most_cells * min(2.0, max(0.5, sizes[0] / sizes[1]))) ** 0.5)))
        counts = [tall, max(1, min(sizes[1], most_cells // tall))]
    return [
        np.unique(np.linspace(0, size, count + 1).astype(np.int64))
        for size, count in zip(sizes, counts, strict=True)
    ]


def _shares(group: Ints, weight: Floats) -> tuple[tuple[int, float], ...]:
    total = np.bincount(group, weights=weight)
    return tuple((i, min(1.0, share)) for i, share in enumerate(total.tolist()) if share > SMALLEST_SHARE)


def _outlined(
    boxes_low: Ints, boxes_high: Ints, low: Ints, high: Ints, depth: Floats, group: Ints
) -> list[Cell]:
    cells = []
    for a, b in zip(boxes_low, boxes_high, strict=True):
        rows = np.flatnonzero(np.all((low == a) & (high == b), axis=1))
        shares = _shares(group[rows], depth[rows])
        cells.append(Cell(tuple(a.tolist()), tuple(b.tolist()), shares, rows))
    return cells


def overlap(edges: Ints, low: Ints, high: Ints) -> Floats:
    """Length that every region has in every interval; shape (regions, intervals)."""
    reach = np.minimum(edges[None, 1:], high[:, None]) - np.maximum(edges[None, :-1], low[:, None])
    lengths: Floats = np.clip(reach, 0, None).astype(np.float64)
    return lengths


def _gridded(edges: list[Ints], low: Ints, high: Ints, depth: Floats, group: Ints) -> list[Cell]:
    """All cells of a grid with the share of each group inside.

    The part of a region in a cell is a box: its rows times its columns, times its depth behind the plane. So
    the sums over all regions, for all cells at once, are one product of matrices for each group.
    """
    lengths = [overlap(edge, low[:, i], high[:, i]) for i, edge in enumerate(edges)]
    if len(lengths) == 1:  # a line is a plane of one row
        edges = [np.array([0, 1]), edges[0]]
        lengths = [np.ones((len(low), 1)), lengths[0]]
    rows, columns = lengths
    area = np.outer(np.diff(edges[0]), np.diff(edges[1])).astype(np.float64)
    groups = int(group.max()) + 1
    filled = np.stack(
        [(rows[group == g] * depth[group == g, None]).T @ columns[group == g] / area for g in range(groups)]
    )
    counts = (rows > 0).T.astype(np.float64) @ (columns > 0)
    cells = []
    line = low.shape[1] == 1
    for i, j in zip(*np.nonzero(counts), strict=True):
        behind = np.flatnonzero((rows[:, i] > 0) & (columns[:, j] > 0))
        first = (int(edges[0][i]), int(edges[1][j]))
        last = (int(edges[0][i + 1]), int(edges[1][j + 1]))
        shares = tuple(
            (g, min(1.0, float(filled[g, i, j]))) for g in range(groups) if filled[g, i, j] > SMALLEST_SHARE
        )
        cells.append(Cell(first[1:] if line else first, last[1:] if line else last, shares, behind))
    return cells
