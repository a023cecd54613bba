"""Coordinates along axes that grow, put together from all files: what none of them has is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.coordinates import same_values
from intarsia.archives.parsed import is_grid_mapping

if TYPE_CHECKING:
    from intarsia.archives.coordinates import Joined
    from intarsia.archives.cube import Cube, Placed
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.parsed import ParsedFile, ParsedVariable
    from intarsia.array.table import Ints


@dataclass(frozen=True, slots=True)
class Assembled:
    """One coordinate, as it will be."""

    dims: tuple[str, ...]
    attrs: dict[str, Any]
    values: np.ndarray[Any, Any]

    axis: int
    """The axis that grows, or the first of several."""

    kept: int | None = None
    """How many steps along it need not be written again; None if all do."""


def assemble(name: str, joined: Joined, cube: Cube, having: Sequence[Placed]) -> tuple[Assembled, str]:
    """The values of a coordinate over the files that have it; and what is wrong where they contradict."""
    axes = {axis.dim: axis for axis in cube.axes}
    growing = [d for d, dim in enumerate(joined.dims) if dim in axes]
    first = axes[joined.dims[growing[0]]]
    before, kept = joined.before, None
    attrs: Mapping[str, Any] = joined.attrs
    if name == first.dim and first.values is not None:
        # the axis was made of files in another order, so that it may count in other units
        values, attrs, problem = first.values, first.attrs, ""
    else:
        values, problem = _Mosaic(joined, cube, having).values()
    if before is not None and len(growing) == 1 and first.appends and not joined.rewritten:
        kept = before.shape[growing[0]] if values.dtype == before.dtype else None
    return Assembled(joined.dims, dict(attrs), values, growing[0], kept), problem


class _Mosaic:
    """An array that is filled piece by piece, and knows where it is filled."""

    def __init__(self, joined: Joined, cube: Cube, having: Sequence[Placed]) -> None:
        self._joined, self._cube, self._having = joined, cube, having
        self._numbers = {dim: k for k, dim in enumerate(cube.dims)}
        sample = joined.parts[0] if joined.parts else joined.before
        assert sample is not None
        shape = [
            cube.axes[self._numbers[dim]].length if dim in self._numbers else n
            for dim, n in zip(joined.dims, sample.shape, strict=True)
        ]
        self._values = np.zeros(shape, dtype=sample.dtype)
        self._filled = np.zeros(shape, dtype=bool)

    def values(self) -> tuple[np.ndarray[Any, Any], str]:
        """The whole, and what is wrong where pieces contradict each other."""
        joined, before = self._joined, self._joined.before
        fixed = [d for d, dim in enumerate(joined.dims) if dim not in self._numbers]
        if before is not None:
            self._put(before, [self._kept(d, n) for d, n in enumerate(before.shape)])
        if self._put_all_at_once():
            return self._with_holes(), ""
        problem = ""
        for placed, part in zip(self._having, joined.parts, strict=True):
            if any(part.shape[d] != self._values.shape[d] for d in fixed):
                return self._values, f"{placed.file.url} has it in another shape"
            steps = [
                placed.positions[self._numbers[dim]][:n] if dim in self._numbers else np.arange(n)
                for dim, n in zip(joined.dims, part.shape, strict=True)
            ]
            if not self._put(part, steps):
                problem = f"files differ in it where they lie in the same place (such as {placed.file.url})"
        return self._with_holes(), problem

    def _kept(self, d: int, n: int) -> Ints:
        number = self._numbers.get(self._joined.dims[d])
        return np.arange(n) if number is None else self._cube.axes[number].kept()

    def _put(self, part: np.ndarray[Any, Any], steps: list[Ints]) -> bool:
        """Fill in what is free; whether the rest is as it was."""
        goes = [each >= 0 for each in steps]
        if not all(each.all() for each in goes):
            part, steps = part[np.ix_(*goes)], [each[keep] for each, keep in zip(steps, goes, strict=True)]
        where = np.ix_(*steps)
        there = self._filled[where]
        if not there.any():
            self._values[where], self._filled[where] = part, True
            return True
        same = same_values(self._values[where][there], part[there])
        self._values[where] = np.where(there, self._values[where], part)
        self._filled[where] = True
        return same

    def _put_all_at_once(self) -> bool:
        """Thousands of files on one axis, none in the place of another."""
        joined = self._joined
        if len(self._numbers) > 1 or not joined.parts:
            return False
        (dim,) = self._numbers
        d = joined.dims.index(dim)
        cross = {part.shape[:d] + part.shape[d + 1 :] for part in joined.parts}
        steps = np.concatenate(
            [p.positions[0][: part.shape[d]] for p, part in zip(self._having, joined.parts, strict=True)]
        )
        if len(cross) > 1 or len(np.unique(steps)) < len(steps):
            return False
        shape = self._values.shape
        if cross != {shape[:d] + shape[d + 1 :]}:
            return False
        whole = [np.arange(n) for n in shape]
        whole[d] = steps
        return self._put(np.concatenate(joined.parts, axis=d), whole)

    def _with_holes(self) -> np.ndarray[Any, Any]:
        """The values, with what is missing where no file has any."""
        values, free = self._values, ~self._filled
        if not free.any() or isinstance(values.dtype, np.dtypes.StringDType):
            return values
        if "_FillValue" in self._joined.attrs:
            values[free] = self._joined.attrs["_FillValue"]
            return values
        if values.dtype.kind in "biu":  # as xarray does it
            values = values.astype(np.float64)
        values[free] = np.nan
        return values


def spread(
    files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], dropped: dict[str, str]
) -> None:
    """Give scalars that differ between files a value for every step: they become coordinates, as in xarray.

    Along several dimensions nobody knows which of them a scalar belongs to: there it stays left out.
    """
    if len(dims) != 1:
        return
    (dim,) = dims
    names = {name for name in dropped if any(_is_scalar(file.variables.get(name)) for file in files)}
    names |= {name for name in dataset.plain if name not in dims and dataset.dims(name) == (dim,)}
    for name in names:
        for file in files:
            variable = file.variables.get(name)
            if variable is None or not _is_scalar(variable):
                continue
            steps = file.steps(dim)
            variable.role, variable.dims, variable.shape = "joined", (dim,), (steps,)
            variable.values = np.repeat(variable.loaded.reshape(1), steps)
            dropped.pop(name, None)


def _is_scalar(variable: ParsedVariable | None) -> bool:
    """Whether this is one number or text; a grid mapping is not, whatever its value."""
    if variable is None or variable.role != "static" or variable.values is None:
        return False
    return not variable.dims and variable.dtype.kind in "iufT" and not is_grid_mapping(variable.attrs)
