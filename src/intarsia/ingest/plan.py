"""The plan of an ingest: everything is decided here, and nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import IngestError
from intarsia.ingest.arrange import Segment, arrange
from intarsia.ingest.cf import PACKING, Packing
from intarsia.ingest.joins import Joined, join, labels
from intarsia.ingest.ledger import Ledger
from intarsia.ingest.pieces import Piece, pieces_of
from intarsia.ingest.reference import Reference, Rules
from intarsia.ingest.report import Run, Runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from intarsia.ingest.dataset import Dataset
    from intarsia.ingest.parsed import ParsedFile, ParsedVariable, Want

__all__ = ["ArrayPlan", "Plan", "Share", "make_plan"]


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
    """What its members decode to."""

    fill_value: Any
    """What holes read as."""

    attrs: dict[str, Any]
    """Its attributes, for a new one."""

    lattice: tuple[int, ...]
    """The lattice of a new one; an existing one is made finer where that is needed."""

    shares: list[Share]
    """In the order of the axis."""


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


def make_plan(
    files: Sequence[ParsedFile],
    dataset: Dataset,
    want: Want,
    rules: Rules,
    replaced: Mapping[str, int] | None = None,
) -> Plan:
    """Decide everything about these files; `replaced` gives the ledger's entries of those that are in it."""
    dim = want.concat_dim
    if dataset.concat_dim and dataset.concat_dim != dim:
        raise IngestError(f"the dataset grows along {dataset.concat_dim!r}, not along {dim!r}")
    reference = Reference(dim, rules, dataset, want.variables)
    refused: dict[str, str] = {}
    fitting = []
    for file in files:
        try:
            problem = _no_steps(file, dim) or reference.problem(file)
        except IngestError as error:
            problem = str(error)
        if problem:
            refused[file.url] = problem
        else:
            fitting.append(file)
    gone = sorted((replaced or {})[file.url] for file in fitting if file.url in (replaced or {}))
    axis = _join(dim, fitting, dataset)
    kept = _kept(dataset.ledger, gone)
    old = _segments(dataset, kept, axis)
    new = [
        Segment(file.url, None if axis is None else axis.parts[i], _steps(file, dim))
        for i, file in enumerate(fitting)
    ]
    placements, overlapping = arrange(old, new, dim, {} if axis is None else axis.attrs)
    refused |= {fitting[i].url: reason for i, reason in overlapping.items()}
    undone = [file for i, file in enumerate(fitting) if i in overlapping and file.url in (replaced or {})]
    if undone:  # what cannot take its place must not lose it
        rest = [file for file in files if file not in undone]
        plan = make_plan(rest, dataset, want, rules, replaced)
        plan.refused |= {file.url: refused[file.url] for file in undone}
        return plan
    return _assemble(fitting, placements, gone, kept, dataset, dim, rules, reference, refused)


def _no_steps(file: ParsedFile, dim: str) -> str:
    return f"it has no step along {dim!r}" if _steps(file, dim) == 0 else ""


def _steps(file: ParsedFile, dim: str) -> int:
    for variable in file.variables.values():
        if variable.role != "static" and dim in variable.dims:
            return variable.shape[variable.axis(dim)]
    return 0


def _join(name: str, files: Sequence[ParsedFile], dataset: Dataset) -> Joined | None:
    """A coordinate over all files; None if a file has none."""
    variables = [file.variables.get(name) for file in files]
    if not variables or any(variable is None or variable.role != "joined" for variable in variables):
        if name in dataset.plain and files:
            lacking = next(f.url for f, v in zip(files, variables, strict=True) if v is None)
            raise IngestError(f"{lacking} has no coordinate {name!r}, but the dataset does")
        return None
    if not dataset.is_new and name not in dataset.plain:
        return None
    before = None if dataset.is_new else (dataset.values(name), dataset.attrs(name))
    return join(name, [variable for variable in variables if variable is not None], before)


def _kept(ledger: Ledger, gone: Sequence[int]) -> list[int]:
    return [i for i in range(len(ledger.locations)) if i not in set(gone)]


def _segments(dataset: Dataset, kept: Sequence[int], axis: Joined | None) -> list[Segment]:
    ledger, starts = dataset.ledger, dataset.ledger.starts
    values = None if axis is None else axis.before
    return [
        Segment(
            ledger.locations[i],
            None if values is None else values[starts[i] : starts[i] + ledger.lengths[i]],
            ledger.lengths[i],
        )
        for i in kept
    ]


def _assemble(
    fitting: Sequence[ParsedFile],
    placements: Sequence[Any],
    gone: Sequence[int],
    kept: Sequence[int],
    dataset: Dataset,
    dim: str,
    rules: Rules,
    reference: Reference,
    refused: dict[str, str],
) -> Plan:
    ledger = dataset.ledger
    openings: dict[int, int] = {}
    placed, shift = [], 0
    for placement in placements:
        openings[placement.at] = openings.get(placement.at, 0) + placement.length
        placed.append((fitting[placement.file], placement.at + shift, placement.length))
        shift += placement.length
    files = [file for file, *_ in placed]
    removed = [(int(ledger.starts[i]), int(ledger.starts[i]) + ledger.lengths[i]) for i in reversed(gone)]
    length = sum(ledger.lengths[i] for i in kept) + shift
    names = dict.fromkeys(name for file in files for name, v in file.variables.items() if v.role == "joined")
    joined = {name: j for name in names if (j := _join(name, files, dataset)) is not None}
    dropped = dict(reference.dropped)
    static = {
        name: variable
        for file in reversed(files)
        for name, variable in file.variables.items()
        if variable.role == "static" and name not in dataset.plain and name not in dropped
    }
    plan = Plan(
        dim,
        removed,
        sorted(openings.items(), reverse=True),
        length,
        placed,
        {name: _array(name, placed, length, dim, rules, dataset) for name in reference.data},
        joined,
        static,
        _new_ledger(ledger, kept, placed, placements),
        dict(files[0].attrs) if files else {},
        refused,
        {name: reason for file in reversed(files) for name, reason in file.left_out.items()} | dropped,
    )
    plan.left_out |= {name: "not every file has it" for name in names if name not in joined}
    return plan


def _new_ledger(
    ledger: Ledger, kept: Sequence[int], placed: Sequence[Any], placements: Sequence[Any]
) -> Ledger:
    starts = np.cumsum([0, *(ledger.lengths[i] for i in kept)])
    entries = [
        (int(starts[n]), 1, ledger.locations[i], ledger.contents[i], ledger.lengths[i])
        for n, i in enumerate(kept)
    ]
    for placement, (file, _, length) in zip(placements, placed, strict=True):
        entries.append((placement.at, 0, file.url, file.identity.text, length))
    entries.sort(key=lambda entry: entry[:2])
    members = {name: dict(known) for name, known in ledger.members.items()}
    return Ledger([e[2] for e in entries], [e[3] for e in entries], [e[4] for e in entries], members)


def _array(
    name: str,
    placed: Sequence[tuple[ParsedFile, int, int]],
    length: int,
    dim: str,
    rules: Rules,
    dataset: Dataset,
) -> ArrayPlan:
    """How one variable of the new files is backed."""
    found = [
        (file, file.variables[name], start)
        for file, start, _ in placed
        if name in file.variables and file.variables[name].role == "data"
    ]
    packings = [Packing.of(variable.dtype, variable.attrs) for _, variable, _ in found]
    frame = dataset.frames.get(name)
    if frame is not None:
        manifest = frame.manifest
        dims = tuple(str(each) for each in manifest.dimension_names or ())
        axis = dims.index(dim)
        shape = manifest.shape[:axis] + (length,) + manifest.shape[axis + 1 :]
        dtype, fill, lattice = manifest.data_type.to_native_dtype(), manifest.fill_value, manifest.chunk_shape
    else:
        first = found[0][1]
        dims, axis = first.dims, first.axis(dim)
        shape = first.shape[:axis] + (length,) + first.shape[axis + 1 :]
        dtype = rules.dtypes.get(name) or _common_type(packings)
        fill = dtype.type(np.nan) if dtype.kind in "fc" else None
        lattice = _lattice(shape, axis, [variable.chunks for _, variable, _ in found])
    shares = [
        Share(file, variable, start, pieces_of(variable, packing, dtype, rules.copy))
        for (file, variable, start), packing in zip(found, packings, strict=True)
    ]
    for share in shares:
        if len(share.pieces) > 1:
            chunks = share.variable.chunks
            lattice = tuple(c if d == axis else gcd(c, chunks[d]) for d, c in enumerate(lattice))
    attrs = {key: value for key, value in (found[0][1].attrs if found else {}).items() if key not in PACKING}
    return ArrayPlan(name, dims, shape, axis, dtype, fill, attrs, lattice, shares)


def _common_type(packings: Sequence[Packing]) -> np.dtype[Any]:
    kinds = {packing.decoded for packing in packings}
    if any(isinstance(kind, np.dtypes.StringDType) for kind in kinds):
        return np.dtypes.StringDType()
    return np.result_type(*kinds)


def _lattice(shape: tuple[int, ...], axis: int, chunks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Steps along the axis; on the others the smallest chunk that all chunks are made of, or the whole axis.

    >>> _lattice((9, 100, 100), 0, [(1, 50, 30), (3, 100, 40)])
    (1, 50, 100)
    """
    found = []
    for d, size in enumerate(shape):
        if d == axis:
            found.append(1)
            continue
        grains = {min(c[d], max(size, 1)) for c in chunks}
        least = min(grains)
        fits = all(grain % least == 0 or grain == size for grain in grains)
        found.append(least if fits else max(size, 1))
    return tuple(found)
