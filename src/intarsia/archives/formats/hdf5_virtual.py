"""How a virtual dataset of HDF5 is made: which boxes of it are which boxes of other datasets.

A mapping has two selections with the same number of elements, one of the virtual dataset and one of a source:
the first of one is the first of the other, and so on, in the order of C. On every axis, a selection consists
of runs of equal length. If axes correspond to each other, the mapping is a set of boxes. Other mappings, such
as one of a row to a square, and those of single points, are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from intarsia.archives.parsed_file import ParsedVariable, VariablePart
from intarsia.archives.plan.axis_union import Span
from intarsia.archives.plan.encodings import boxes_of
from intarsia.manifest.box import Box

NOTHING, POINTS, HYPERSLABS, EVERYTHING = range(4)
"""Kinds of selections, by their numbers in HDF5."""

UNLIMITED = (1 << 64) - 1
"""A number of runs, or the length of one, that grows with the source."""

MAX_BOXES = 1 << 16
"""The most boxes that a virtual dataset is taken apart into: each becomes a region."""

OWN_FILE = "."
"""The name under which a virtual dataset refers to datasets in its own file."""


SERIES = "%b"
"""Stands for a number in the name of a file or dataset: HDF5 then shows as many of them as there are."""


class MappingError(ValueError):
    """A mapping is not one of boxes."""


class Runs(NamedTuple):
    """What is selected on one axis: `number` runs of `block` elements that begin `stride` apart.

    >>> frames = Runs(2, 4, UNLIMITED, 1)
    >>> frames.at(1), frames.before(11)
    (6, 3)
    """

    start: int
    stride: int
    number: int
    block: int

    @property
    def is_unlimited(self) -> bool:
        """Whether it ends only with the axis."""
        return UNLIMITED in (self.number, self.block)

    @property
    def length(self) -> int:
        """How many elements are selected."""
        return self.number * self.block

    @property
    def step(self) -> int:
        """How many elements follow one another without a gap."""
        return UNLIMITED if self.number == 1 or self.stride == self.block else self.block

    def at(self, index: int) -> int:
        """Where one of the elements is on the axis."""
        runs, rest = divmod(index, self.step)
        return self.start + runs * self.stride + rest

    def before(self, extent: int) -> int:
        """How many elements there are on an axis of this length."""
        if extent <= self.start or self.block == UNLIMITED:
            return max(0, extent - self.start)
        runs, rest = divmod(extent - self.start, self.stride)
        return min(runs * self.block + min(rest, self.block), self.length)


def runs_of(space: Any, shape: Sequence[int]) -> list[Runs] | None:
    """What a data space selects on each axis of a dataset; None if it selects nothing."""
    kind = space.get_select_type()
    if kind == NOTHING:
        return None
    if kind == EVERYTHING:
        return [Runs(0, 1, 1, n) for n in shape]
    if kind == POINTS or not space.is_regular_hyperslab():
        raise MappingError("selects single points, or boxes that are not alike")
    selected = zip(*space.get_regular_hyperslab(), strict=True)
    return [Runs(*map(int, each)) for each in selected]


def is_unlimited(space: Any) -> bool:
    """Whether a selection grows with the source."""
    is_regular = space.get_select_type() == HYPERSLABS and space.is_regular_hyperslab()
    return is_regular and any(runs.is_unlimited for runs in runs_of(space, ()) or ())


def correspondence(
    stored: ParsedVariable, virtual: Sequence[Runs], source: Sequence[Runs]
) -> list[VariablePart]:
    """How two selections correspond, as a part of a virtual dataset; nothing if they are empty.

    Its axes have their numbers in the virtual dataset for names.

    >>> grid = ParsedVariable("x", "data", ("", ""), (8, 6), {}, np.dtype("f4"))
    >>> (column,) = correspondence(grid, [Runs(0, 1, 1, 8)], [Runs(0, 1, 1, 8), Runs(5, 1, 1, 1)])
    >>> column.stored.dims, column.stored.picks, column.places
    (('0', '/1'), {'/1': 5}, {'0': (Span(start=0, length=8, first=0, stride=1),)})
    """
    if len(source) != len(stored.shape):
        raise MappingError(f"selects on {len(source)} axes: it has the shape {stored.shape}")
    sizes, growth = [], 0
    for runs, n in zip(source, stored.shape, strict=True):
        size = runs.before(n) if runs.is_unlimited else runs.length
        if size and runs.at(size - 1) >= n:
            raise MappingError(f"selects more than there is: it has the shape {stored.shape}")
        growth = size if runs.is_unlimited else growth
        sizes.append(size)
    counts = [growth if runs.is_unlimited else runs.length for runs in virtual]
    if 0 in counts:
        return []
    pairs = dict(enumerate(range(len(counts))))
    if counts != sizes:
        wide = [[axis for axis, n in enumerate(each) if n != 1] for each in (sizes, counts)]
        if [sizes[axis] for axis in wide[0]] != [counts[axis] for axis in wide[1]]:
            raise MappingError(f"maps {'x'.join(map(str, sizes))} elements to {'x'.join(map(str, counts))}")
        pairs = dict(zip(*wide, strict=True))
    places: list[tuple[Span, ...]] = [(Span(runs.at(0), 1),) for runs in virtual]
    for own, axis in pairs.items():
        places[axis] = _spans(virtual[axis], source[own], counts[axis])
    dims = tuple(str(pairs[own]) if own in pairs else f"/{own}" for own in range(len(source)))
    picks = {f"/{own}": runs.at(0) for own, runs in enumerate(source) if own not in pairs}
    named = {str(axis): spans for axis, spans in enumerate(places)}
    return [VariablePart(replace(stored, dims=dims, picks=picks), named)]


def _spans(virtual: Runs, source: Runs, count: int) -> tuple[Span, ...]:
    if count > MAX_BOXES * min(virtual.step, source.step):
        raise MappingError(f"consists of more than {MAX_BOXES} boxes")
    borders = {0, count, *range(virtual.step, count, virtual.step), *range(source.step, count, source.step)}
    return tuple(Span(virtual.at(a), b - a, source.at(a)) for a, b in pairwise(sorted(borders)))


def find_holes(variable: ParsedVariable, parts: Sequence[VariablePart]) -> list[Box]:
    """The boxes of a variable that none of its parts covers; raises `MappingError` if some parts overlap."""
    borders = []
    for dim, n in zip(variable.dims, variable.shape, strict=True):
        spans = [span for each in parts for span in each.places[dim]]
        borders.append(np.unique([0, n, *(end for span in spans for end in (span.start, span.stop))]))
    cells = [len(ends) - 1 for ends in borders]
    if math.prod(cells) > MAX_BOXES:
        raise MappingError(f"consists of more than {MAX_BOXES} boxes")
    covered = np.zeros(cells, dtype=np.int64)
    for each in parts:
        own = []
        for dim, ends in zip(variable.dims, borders, strict=True):
            steps = np.searchsorted(ends, [(span.start, span.stop) for span in each.places[dim]])
            own.append(np.concatenate([np.arange(a, b) for a, b in steps]))
        covered[np.ix_(*own)] += 1
    if (covered > 1).any():
        raise MappingError("has parts that overlap")
    holes = boxes_of(covered == 0)
    bounds = [[(ends[a], ends[b]) for ends, (a, b) in zip(borders, box.bounds, strict=True)] for box in holes]
    return [Box.of((int(a), int(b)) for a, b in each) for each in bounds]
