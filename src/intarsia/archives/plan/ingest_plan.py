"""What a commit does to one logical array: which files back it, how, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import PACKING, Decoding, clean
from intarsia.archives.plan.axis_union import Span, through
from intarsia.archives.plan.compatibility import Expected, Rules
from intarsia.archives.plan.encodings import ChunkSet, chunk_sets_of
from intarsia.archives.plan.reconcile import Conversion, widened
from intarsia.errors import IngestError
from intarsia.manifest.box import Box, chunk_grid
from intarsia.manifest.coercion import is_nullable, values_dtype

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.ingest_arguments import Stack
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable
    from intarsia.archives.plan.cube import Cube, Placed
    from intarsia.manifest.packing import Packing


@dataclass(slots=True)
class Contribution:
    """What one file contributes to one logical array."""

    file: ParsedFile
    variable: ParsedVariable

    axes: tuple[int | None, ...]
    """For every axis of the file's variable: the axis of the array; None if the array has none."""

    spans: tuple[tuple[Span, ...], ...]
    """Where its elements are, on every axis of the array."""

    shown: list[Box] | None
    """The boxes of the array that it shows; None if it shows everything it has."""

    decoding: Decoding
    """How its numbers become values…"""

    packing: Packing | None
    """… and what the manifest says about it; None if they are values, or if filters unpack them."""

    chunk_sets: list[ChunkSet]
    """How its chunks are backed."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for contributions with equal encoding and packing."""
        return self.variable.name, self.packing, *(chunks.encoding.digest for chunks in self.chunk_sets)

    @property
    def copied(self) -> int:
        """How many of its bytes are copied, before compression."""
        ranges, variable = self.variable.ranges, self.variable
        if ranges is not None and not any(chunks.by_copy for chunks in self.chunk_sets):
            return sum(map(len, ranges.inlined.values()))
        return prod(variable.shape) * variable.dtype.itemsize if self.chunk_sets else 0

    def parts(self, chunk_set: ChunkSet) -> Iterator[tuple[Span, ...]]:
        """What some of its chunks show: for each region, one span for every axis of the array."""
        chunks, shape = chunk_set.encoding.chunks, self.variable.shape
        for box in chunk_set.boxes:
            if self.shown is None and box.shape == chunk_grid(shape, chunks):  # as almost always
                yield from product(*self.spans)
                continue
            choices = list(self.spans)
            for k, (axis, a, b, c, n) in enumerate(
                zip(self.axes, box.start, box.stop, chunks, shape, strict=True)
            ):
                low, high = a * c, min(b * c, n)
                if axis is None and not low <= self.variable.dropped_index(k) < high:
                    choices = [()]
                    break
                if axis is not None:
                    found = (span.of_file(low, high) for span in self.spans[axis])
                    choices[axis] = tuple(span for span in found if span is not None)
            for combination in product(*choices):
                if self.shown is None:
                    yield combination
                    continue
                for limits in self.shown:
                    cut = [s.cut(a, b) for s, (a, b) in zip(combination, limits.bounds, strict=True)]
                    left = tuple(span for span in cut if span is not None)
                    if len(left) == len(cut):
                        yield left


@dataclass(slots=True)
class ArrayDraft:
    """What happens to one logical array."""

    name: str
    """Its name in the dataset."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    """Its shape after the commit."""

    growing: tuple[int, ...]
    """The axes along which the dataset grows, in the order of its dimensions."""

    dtype: np.dtype[Any]
    """The type of its values."""

    fill_value: Any
    """What holes read as."""

    attrs: dict[str, Any]
    """The attributes of a new array."""

    lattice: tuple[int, ...]
    """The lattice of a new array; that of an existing array is made finer if necessary."""

    contributions: list[Contribution]
    """What files contribute, in the order of the axes."""

    parts: dict[str, int | None]
    """The file variables that it shows, and where on its first axis if several are stacked there."""

    nulls: bool = False
    """Whether its values may be null."""

    new_members: list[str] = field(default_factory=list)
    """The names of new members: if the contributions are placed again, they get the same names."""

    def box(self, cell: Box, part: str) -> Box:
        """A box of the cube as a box of the array, for one of its variables."""
        bounds = [(0, n) for n in self.shape]
        for axis, ends in zip(self.growing, cell.bounds, strict=True):
            bounds[axis] = ends
        step = self.parts[part]
        if step is not None:
            bounds[0] = step, step + 1
        return Box.of(bounds)


def drafted_array(
    name: str, stack: Stack | None, cube: Cube, rules: Rules, dataset: Dataset, expected: Expected
) -> ArrayDraft:
    """How one variable of the new files, or a stack of several, is backed."""
    parts: dict[str, int | None] = {name: None} if stack is None else dict(stack.parts)
    given = [
        (placed, part, placed.file.variables[part])
        for part in parts
        for placed in cube.placed
        if part in placed.file.variables and placed.file.variables[part].role == "data"
    ]
    logical = dataset.logical_groups.get(name)
    nulls = rules.nulls if logical is None else is_nullable(logical.manifest.data_type)
    decodings = [_decoding(*each, nulls, expected) for each in given]
    known = next(expected.data[part] for part in parts if part in expected.data)
    dims, sizes = known.dims, known.sizes | cube.sizes
    if stack is not None:
        dims, sizes = (stack.dim, *dims), {**sizes, stack.dim: len(parts)}
    shape, growing = tuple(sizes[dim] for dim in dims), tuple(dims.index(dim) for dim in cube.dims)
    if logical is not None:
        manifest = logical.manifest
        dtype, fill, lattice = values_dtype(manifest.data_type), manifest.fill_value, manifest.chunk_shape
        wider = _wider(name, dtype, nulls, rules, decodings)
        if wider is not None:
            are_whole, dtype = dtype.kind in "iu" and wider.kind == "f", wider
            fill = wider.type(np.nan if are_whole else fill)  # no whole number means "missing"
    else:
        declared = known.dtype if stack is None else None
        dtype = rules.dtypes.get(name) or declared or _common_type(decodings)
        nulls = nulls and dtype.kind in "biuf"
        fill = dtype.type(np.nan) if dtype.kind in "fc" and not nulls else None
        lattice = _lattice(dims, shape, growing, [variable for *_, variable in given])
    whole = tuple((Span(0, size),) for size in shape)
    named = sorted(given, key=lambda each: each[0].number)
    same = [each for each in named if _conversion(*each, expected) is None]
    attrs = _attributes(same) if same else _attributes(named) | {"units": known.units}
    if rules.schema is not None and name in rules.schema.file.variables:
        attrs = {k: v for k, v in rules.schema.file.variables[name].attrs.items() if k not in PACKING}
    draft = ArrayDraft(name, dims, shape, growing, dtype, fill, attrs, lattice, [], parts, nulls)
    for (placed, part, variable), decoding in zip(given, decodings, strict=True):
        axes, places = _places(placed, variable, dims, whole, cube, expected)
        step = parts[part]
        if step is not None:
            places = ((Span(step, 1),), *places[1:])
        cells = cube.shown(placed, part)
        shown = None if cells is None else [draft.box(cell, part) for cell in cells]
        chunk_sets = chunk_sets_of(variable, decoding, dtype, rules.copy)
        packing = decoding.packing_in(dtype)
        draft.contributions.append(
            Contribution(placed.file, variable, axes, places, shown, decoding, packing, chunk_sets)
        )
        if len(chunk_sets) > 1:  # regions then end within the file, at the borders of its chunks
            grains = {
                axis: 1 if dim in variable.picks else c
                for axis, dim, c in zip(axes, variable.dims, variable.chunks, strict=True)
                if axis not in growing
            }
            lattice = tuple(gcd(c, grains.get(d, 0)) for d, c in enumerate(lattice))
        if placed.file.url in expected.turned or variable.picks:
            lattice = _aligned(lattice, places, shape)
    draft.lattice = lattice
    return draft


def _wider(
    name: str, dtype: np.dtype[Any], nulls: bool, rules: Rules, decodings: Sequence[Decoding]
) -> np.dtype[Any] | None:
    """The new type of an existing array, if it changes."""
    asked = rules.dtypes.get(name)
    if asked is None:
        return None if nulls else widened(dtype, {decoding.values for decoding in decodings})
    if asked == dtype:
        return None
    if nulls or widened(dtype, [asked]) != asked:
        raise IngestError(
            f"{name!r} is {dtype} in the dataset and cannot become {asked}, as dtype= asks: existing arrays "
            "can only become wider"
        )
    return asked


def _conversion(placed: Placed, part: str, _: ParsedVariable, expected: Expected) -> Conversion | None:
    return expected.conversions.get(placed.file.url, {}).get(part)


def _decoding(
    placed: Placed, part: str, variable: ParsedVariable, nulls: bool, expected: Expected
) -> Decoding:
    """How the numbers of a file's variable become values, in the units of the dataset."""
    decoding = Decoding.of(variable.dtype, variable.attrs, nulls=nulls)
    conversion = _conversion(placed, part, variable, expected)
    return decoding if conversion is None else decoding.converted(conversion)


def _attributes(given: Sequence[tuple[Placed, str, ParsedVariable]]) -> dict[str, Any]:
    """The attributes of the first file; for stacked variables, those that they all share."""
    firsts = {part: variable.attrs for _, part, variable in reversed(given)}
    attrs, *others = list(firsts.values())[::-1] or [{}]
    same = [clean(other) for other in others]
    return {
        key: value
        for key, value in attrs.items()
        if key not in PACKING
        and all(key in other and other[key] == clean({key: value}).get(key) for other in same)
    }


def _places(
    placed: Placed, variable: ParsedVariable, dims: tuple[str, ...], whole: tuple[tuple[Span, ...], ...],
    cube: Cube, expected: Expected,
) -> tuple[tuple[int | None, ...], tuple[tuple[Span, ...], ...]]:  # fmt: skip
    """How the axes of a file's variable map to those of the array, and where its elements are on each."""
    spans = list(whole)
    for dim, places in expected.turned.get(placed.file.url, {}).items():
        if dim in dims:
            spans[dims.index(dim)] = places
    for dim, own, steps in zip(cube.dims, placed.spans, placed.positions, strict=True):
        length = variable.sizes[dim]
        if length < len(steps):  # the missing part of a shorter variable is a hole
            own = tuple(span for each in own if (span := each.of_file(0, length)) is not None)
        spans[dims.index(dim)] = own
    for dim, picked in variable.picks.items():
        if dim in dims:
            spans[dims.index(dim)] = through(spans[dims.index(dim)], np.atleast_1d(picked))
    if variable.dims == dims:
        return tuple(range(len(dims))), tuple(spans)
    return tuple(dims.index(dim) if dim in dims else None for dim in variable.dims), tuple(spans)


def _aligned(
    lattice: tuple[int, ...], spans: Sequence[Sequence[Span]], shape: Sequence[int]
) -> tuple[int, ...]:
    """A lattice on which all spans begin and end."""
    finer = []
    for cell, places, size in zip(lattice, spans, shape, strict=True):
        borders = (
            [end for span in places for end in (span.start, span.stop) if end != size] if cell > 1 else []
        )
        finer.append(gcd(cell, *borders))
    return tuple(finer)


def _common_type(decodings: Sequence[Decoding]) -> np.dtype[Any]:
    kinds = {decoding.values for decoding in decodings}
    if any(isinstance(kind, np.dtypes.StringDType) for kind in kinds):
        return np.dtypes.StringDType()
    return np.result_type(*kinds)


def _lattice(
    dims: tuple[str, ...], shape: tuple[int, ...], growing: Sequence[int], given: Sequence[ParsedVariable]
) -> tuple[int, ...]:
    """1 along axes that grow; on others, the smallest chunk if it divides all others, or the whole axis."""
    chunks = [dict(zip(variable.dims, variable.chunks, strict=True)) for variable in given]
    lattice = []
    for d, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if d in growing:
            lattice.append(1)
            continue
        grains = {min(c.get(dim, 1), max(size, 1)) for c in chunks}
        least = min(grains)
        # a chunk that spans the axis has no border inside it, so nothing has to divide it
        fits = all(grain % least == 0 or grain == size for grain in grains)
        lattice.append(least if fits else max(size, 1))
    return tuple(lattice)
