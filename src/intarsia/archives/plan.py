"""What an ingest will do, as data: decided in planning.py, written by write.py, shown as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.joins import Joined, labels
from intarsia.archives.report import Run, Runs

if TYPE_CHECKING:
    from intarsia.archives.ledger import Ledger
    from intarsia.archives.parsed import ParsedFile, ParsedVariable
    from intarsia.archives.pieces import Piece

__all__ = ["ArrayPlan", "Plan", "Share"]


@dataclass(slots=True)
class Share:
    """One file's part of one logical array."""

    file: ParsedFile
    """The file."""

    variable: ParsedVariable
    """Its variable."""

    start: int
    """First step along the axis, as it will be."""

    pieces: list[Piece]
    """How its chunks are backed."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for shares of equal encoding."""
        return tuple(piece.encoding.digest for piece in self.pieces)


@dataclass(slots=True)
class ArrayPlan:
    """What happens to one logical array."""

    name: str
    """Its name in the dataset."""

    dims: tuple[str, ...]
    """Names of its axes."""

    shape: tuple[int, ...]
    """Its shape, as it will be."""

    axis: int
    """The concatenation axis."""

    dtype: np.dtype[Any]
    """Type of its values."""

    fill_value: Any
    """What holes read as."""

    attrs: dict[str, Any]
    """Its attributes, for a new one."""

    lattice: tuple[int, ...]
    """The lattice of a new one; an existing one is made finer where that is needed."""

    shares: list[Share]
    """In the order of the axis."""

    nulls: bool = False
    """Whether its values may be null."""


@dataclass(slots=True)
class Plan:
    """Everything that a commit will contain."""

    dim: str
    """The concatenation dimension."""

    removed: list[tuple[int, int]]
    """Steps of the axis, as it is, that are replaced; last first."""

    openings: list[tuple[int, int]]
    """Where steps go in (counted after the removals) and how many; last first."""

    length: int
    """Length of the axis, as it will be."""

    placed: list[tuple[ParsedFile, int, int]]
    """The new files with their first step and number of steps, in the order of the axis."""

    arrays: dict[str, ArrayPlan]
    """By name."""

    joined: dict[str, Joined]
    """Coordinates along the axis."""

    static: dict[str, ParsedVariable]
    """Coordinates and other variables that are new and have no such axis."""

    ledger: Ledger
    """The sources, as they will be; members are filled in by whoever writes."""

    attrs: dict[str, Any]
    """Attributes of a new dataset."""

    refused: dict[str, str]
    """Files that are not taken, and why."""

    left_out: dict[str, str]
    """Variables that are not taken, and why."""

    @property
    def appends(self) -> bool:
        """Whether everything new lies after what is there."""
        return not self.removed and all(at >= self.length - length for at, length in self.openings)

    def woven(self, joined: Joined) -> np.ndarray[Any, Any]:
        """All values of a coordinate, as they will be."""
        axis = joined.dims.index(self.dim)
        pieces = [] if joined.before is None else [joined.before]
        for start, stop in self.removed:
            pieces = [np.delete(pieces[0], slice(start, stop), axis=axis)]
        fresh = list(zip(joined.parts, self.placed, strict=True))
        if not pieces:
            return np.concatenate([part for part, _ in fresh], axis=axis)
        found: list[np.ndarray[Any, Any]] = []
        taken = 0
        for part, (_, start, length) in fresh:
            old = start - sum(p.shape[axis] for p in found)
            found += [np.take(pieces[0], range(taken, taken + old), axis=axis), part]
            taken += old
            assert part.shape[axis] == length
        found.append(np.take(pieces[0], range(taken, pieces[0].shape[axis]), axis=axis))
        return np.concatenate(found, axis=axis)

    def runs(self) -> Runs:
        """The table of runs of equal encoding."""
        joined = self.joined.get(self.dim)
        names: list[str] | None = None
        if joined is not None:
            values = np.concatenate(joined.parts) if joined.parts else np.empty(0)
            names = labels(values, joined.attrs)
        offsets = dict(
            zip(
                (id(file) for file, _, _ in self.placed),
                np.cumsum([0, *(n for *_, n in self.placed)]),
                strict=False,
            )
        )
        rows: list[Run] = []
        for array in self.arrays.values():
            last: tuple[str, ...] | None = None
            for share in array.shares:
                if not share.pieces:  # an axis of length 0
                    continue
                first = int(offsets[id(share.file)])
                steps = share.variable.shape[array.axis]
                ends = (
                    (names[first], names[first + steps - 1])
                    if names
                    else (str(share.start), str(share.start + steps - 1))
                )
                if share.key == last and rows[-1].stop == share.start:
                    rows[-1] = replace(
                        rows[-1], stop=share.start + steps, last=ends[1], files=rows[-1].files + 1
                    )
                else:
                    rows.append(_run(array, share, steps, ends))
                last = share.key
        return Runs(tuple(rows))


def _run(array: ArrayPlan, share: Share, steps: int, ends: tuple[str, str]) -> Run:
    main = share.pieces[0].encoding
    others = sorted({piece.encoding.short_codecs for piece in share.pieces[1:]})
    codecs = main.short_codecs + (f" (some chunks: {', '.join(others)})" if others else "")
    return Run(
        array.name, share.start, share.start + steps, *ends, 1, main.chunks, codecs, str(main.packing.stored),
        str(main.packing), main.copy_reason,
    )  # fmt: skip
