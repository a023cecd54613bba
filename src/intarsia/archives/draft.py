"""The draft of an ingest: everything that a commit will contain, decided before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from intarsia.archives.cf import PACKING, Decoding
from intarsia.archives.coordinates import Insertion, Joined, Segment, arrange, join, labels
from intarsia.archives.dataset import Dataset, Expected, Ledger, Rules, widened
from intarsia.archives.encodings import ChunkSet, chunk_sets_of
from intarsia.archives.ingest_report import Run, Runs
from intarsia.archives.parsed import ParsedFile, ParsedVariable, Want
from intarsia.array.values import is_nullable, values_dtype
from intarsia.errors import IngestError
from intarsia.packing import Packing


@dataclass(slots=True)
class Contribution:
    """What one file contributes to one logical array."""

    file: ParsedFile
    variable: ParsedVariable

    start: int
    """First step along the axis, as it will be."""

    decoding: Decoding
    """How its numbers become values…"""

    packing: Packing | None
    """… and what the manifest says of it; None if they are values, or filters unpack them."""

    chunk_sets: list[ChunkSet]
    """How its chunks are backed."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for contributions of equal encoding and packing."""
        return self.packing, *(chunks.encoding.digest for chunks in self.chunk_sets)


@dataclass(slots=True)
class ArrayDraft:
    """What happens to one logical array."""

    name: str
    """Its name in the dataset."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    """As it will be."""

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

    contributions: list[Contribution]
    """In the order of the axis."""

    nulls: bool = False
    """Whether its values may be null."""


@dataclass(slots=True)
class Draft:
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

    arrays: dict[str, ArrayDraft]
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

    def locations(self) -> set[str]:
        """Every location that a reference will point to."""
        return {
            url
            for array in self.arrays.values()
            for each in array.contributions
            if each.variable.ranges is not None and not all(chunks.by_copy for chunks in each.chunk_sets)
            for url in each.variable.ranges.urls()
        }

    def copy_reasons(self) -> dict[str, str]:
        """Of files of which something is copied: what, and why."""
        reasons: dict[str, dict[str, None]] = {}
        for name, array in self.arrays.items():
            for each in array.contributions:
                for reason in filter(None, (chunks.encoding.copy_reason for chunks in each.chunk_sets)):
                    reasons.setdefault(each.file.url, {})[f"{name!r} copied: {reason}"] = None
        return {url: "; ".join(texts) for url, texts in reasons.items()}

    def woven(self, joined: Joined) -> np.ndarray[Any, Any]:
        """All values of a coordinate, as they will be."""
        axis = joined.dims.index(self.dim)
        if joined.before is None:
            return np.concatenate(joined.parts, axis=axis)
        old = joined.before
        for start, stop in self.removed:  # the last ones first, so that the others keep their places
            old = np.delete(old, slice(start, stop), axis=axis)
        threads: list[np.ndarray[Any, Any]] = []
        taken = fresh = 0  # steps of the old ones and of the new ones that are woven in
        for part, (_, start, length) in zip(joined.parts, self.placed, strict=True):
            assert part.shape[axis] == length
            threads += [np.take(old, range(taken, start - fresh), axis=axis), part]
            taken, fresh = start - fresh, fresh + length
        threads.append(np.take(old, range(taken, old.shape[axis]), axis=axis))
        return np.concatenate(threads, axis=axis)

    def runs(self) -> Runs:
        """The table of runs of equal encoding."""
        joined = self.joined.get(self.dim)
        # the new steps only, one file after the other: the old ones between them are in no run
        names = None if joined is None else labels(np.concatenate(joined.parts), joined.attrs)
        firsts = np.cumsum([0, *(length for *_, length in self.placed)]).tolist()
        offsets = {file.url: first for (file, *_), first in zip(self.placed, firsts, strict=False)}
        rows: list[Run] = []
        for array in self.arrays.values():
            last: tuple[Any, ...] | None = None
            for each in array.contributions:
                if not each.chunk_sets:  # an axis of length 0
                    continue
                first, steps = offsets[each.file.url], each.variable.shape[array.axis]
                ends = str(each.start), str(each.start + steps - 1)
                if names is not None:
                    ends = names[first], names[first + steps - 1]
                if each.key == last and rows[-1].stop == each.start:
                    stop, files = each.start + steps, rows[-1].files + 1
                    rows[-1] = replace(rows[-1], stop=stop, last=ends[1], files=files)
                else:
                    rows.append(_run(array, each, steps, ends))
                last = each.key
        return Runs(tuple(rows))


def _run(array: ArrayDraft, contribution: Contribution, steps: int, ends: tuple[str, str]) -> Run:
    main, *others = (chunks.encoding for chunks in contribution.chunk_sets)
    codecs, decoding = main.short_codecs, contribution.decoding
    if others:
        codecs += f" (some chunks: {', '.join(sorted({other.short_codecs for other in others}))})"
    return Run(
        array.name, contribution.start, contribution.start + steps, *ends, 1, main.chunks, codecs,
        str(decoding.numbers), str(decoding), main.copy_reason,
    )  # fmt: skip


def make_draft(
    files: Sequence[ParsedFile], dataset: Dataset, want: Want, rules: Rules, replaced: Mapping[str, int]
) -> Draft:
    """Decide everything about these files; `replaced` gives the ledger's entries of those that are in it."""
    dim = want.concat_dim
    if dataset.concat_dim and dataset.concat_dim != dim:
        raise IngestError(f"the dataset grows along {dataset.concat_dim!r}, not along {dim!r}")
    expected = Expected(dim, rules, dataset, want.variables)
    refused: dict[str, str] = {}
    fitting = []
    for file in files:
        try:
            problem = _steps_problem(file, dim) or expected.problem(file)
        except IngestError as error:
            problem = str(error)
        if problem:
            refused[file.url] = problem
        else:
            fitting.append(file)
    gone = sorted(replaced[file.url] for file in fitting if file.url in replaced)
    kept = [i for i in range(len(dataset.ledger.locations)) if i not in set(gone)]
    axis = _join(dim, fitting, dataset)
    new = [
        Segment(file.url, None if axis is None else axis.parts[i], file.steps(dim))
        for i, file in enumerate(fitting)
    ]
    old = _segments(dataset.ledger, kept, None if axis is None else axis.before)
    insertions, overlapping = arrange(old, new, dim, {} if axis is None else axis.attrs)
    refused |= {fitting[i].url: reason for i, reason in overlapping.items()}
    undone = [file for i, file in enumerate(fitting) if i in overlapping and file.url in replaced]
    if undone:  # what cannot take its place must not lose it
        rest = [file for file in files if file not in undone]
        draft = make_draft(rest, dataset, want, rules, replaced)
        draft.refused |= {file.url: refused[file.url] for file in undone}
        return draft
    return _assemble(fitting, insertions, gone, kept, dataset, rules, expected, refused)


def _steps_problem(file: ParsedFile, dim: str) -> str:
    steps = file.steps(dim)
    if steps == 0:
        return f"it has no step along {dim!r}"
    lengths = file.lengths(dim)
    longer = next((name for name, length in lengths.items() if length > steps), None)
    if longer is not None:
        return f"{longer!r} has {lengths[longer]} steps along {dim!r}, but its coordinate has {steps}"
    return ""


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


def _segments(ledger: Ledger, kept: Sequence[int], values: np.ndarray[Any, Any] | None) -> list[Segment]:
    """The sources that stay, with their coordinates among `values`."""
    segments = []
    for i in kept:
        start, length = ledger.starts[i], ledger.lengths[i]
        own = None if values is None else values[start : start + length]
        segments.append(Segment(ledger.locations[i], own, length))
    return segments


def _assemble(
    fitting: Sequence[ParsedFile],
    insertions: Sequence[Insertion],
    gone: Sequence[int],
    kept: Sequence[int],
    dataset: Dataset,
    rules: Rules,
    expected: Expected,
    refused: dict[str, str],
) -> Draft:
    ledger, dim = dataset.ledger, expected.dim
    openings: dict[int, int] = {}
    placed, shift = [], 0
    for insertion in insertions:
        openings[insertion.at] = openings.get(insertion.at, 0) + insertion.length
        placed.append((fitting[insertion.file], insertion.at + shift, insertion.length))
        shift += insertion.length
    files = [file for file, *_ in placed]
    length = sum(ledger.lengths[i] for i in kept) + shift
    names = dict.fromkeys(name for file in files for name, v in file.variables.items() if v.role == "joined")
    joined = {name: j for name in names if (j := _join(name, files, dataset)) is not None}
    left_out = {name: reason for file in reversed(files) for name, reason in file.left_out.items()}
    left_out |= expected.dropped
    left_out |= {name: "not every file has it" for name in names if name not in joined}
    return Draft(
        dim,
        removed=[(int(ledger.starts[i]), int(ledger.starts[i]) + ledger.lengths[i]) for i in reversed(gone)],
        openings=sorted(openings.items(), reverse=True),
        length=length,
        placed=placed,
        arrays={name: _array(name, placed, length, dim, rules, dataset) for name in expected.data},
        joined=joined,
        static={
            name: variable
            for file in reversed(files)
            for name, variable in file.variables.items()
            if variable.role == "static" and name not in dataset.plain and name not in expected.dropped
        },
        ledger=ledger.rearranged(kept, placed),
        attrs=dict(files[0].attrs) if files else {},
        refused=refused,
        left_out=left_out,
    )


def _array(
    name: str, placed: Sequence[tuple[ParsedFile, int, int]], length: int, dim: str, rules: Rules,
    dataset: Dataset,
) -> ArrayDraft:  # fmt: skip
    """How one variable of the new files is backed."""
    given = [
        (file, file.variables[name], start)
        for file, start, _ in placed
        if name in file.variables and file.variables[name].role == "data"
    ]
    logical = dataset.logical_groups.get(name)
    nulls = rules.nulls if logical is None else is_nullable(logical.manifest.data_type)
    decodings = [Decoding.of(variable.dtype, variable.attrs, nulls=nulls) for _, variable, _ in given]
    if logical is not None:
        manifest = logical.manifest
        dims = tuple(str(each) for each in manifest.dimension_names or ())
        axis = dims.index(dim)
        shape = manifest.shape[:axis] + (length,) + manifest.shape[axis + 1 :]
        dtype, fill, lattice = values_dtype(manifest.data_type), manifest.fill_value, manifest.chunk_shape
        wider = None if nulls or name in rules.dtypes else widened(dtype, {d.values for d in decodings})
        if wider is not None:
            dtype, fill = wider, wider.type(fill)
    else:
        first = given[0][1]
        dims, axis = first.dims, first.axis(dim)
        shape = first.shape[:axis] + (length,) + first.shape[axis + 1 :]
        dtype = rules.dtypes.get(name) or _common_type(decodings)
        nulls = nulls and dtype.kind in "biuf"
        fill = dtype.type(np.nan) if dtype.kind in "fc" and not nulls else None
        lattice = _lattice(shape, axis, [variable.chunks for _, variable, _ in given])
    contributions = [
        Contribution(
            file, variable, start, decoding, decoding.packing_in(dtype),
            chunk_sets_of(variable, decoding, dtype, rules.copy),
        )
        for (file, variable, start), decoding in zip(given, decodings, strict=True)
    ]  # fmt: skip
    for each in contributions:
        if len(each.chunk_sets) > 1:  # regions then end within the file, at the borders of its chunks
            chunks = each.variable.chunks
            lattice = tuple(c if d == axis else gcd(c, chunks[d]) for d, c in enumerate(lattice))
    attrs = {key: value for key, value in (given[0][1].attrs if given else {}).items() if key not in PACKING}
    return ArrayDraft(name, dims, shape, axis, dtype, fill, attrs, lattice, contributions, nulls)


def _common_type(decodings: Sequence[Decoding]) -> np.dtype[Any]:
    kinds = {decoding.values for decoding in decodings}
    if any(isinstance(kind, np.dtypes.StringDType) for kind in kinds):
        return np.dtypes.StringDType()
    return np.result_type(*kinds)


def _lattice(shape: tuple[int, ...], axis: int, chunks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Steps along the axis; on the others the smallest chunk that all chunks are made of, or the whole axis.

    >>> _lattice((9, 100, 100), 0, [(1, 50, 30), (3, 100, 40)])
    (1, 50, 100)
    """
    lattice = []
    for d, size in enumerate(shape):
        if d == axis:
            lattice.append(1)
            continue
        grains = {min(c[d], max(size, 1)) for c in chunks}
        least = min(grains)
        # a chunk that spans the axis has no border inside it, so nothing has to divide it
        fits = all(grain % least == 0 or grain == size for grain in grains)
        lattice.append(least if fits else max(size, 1))
    return tuple(lattice)
