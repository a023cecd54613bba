"""The cube that files make: its axes after the commit, the place of every file, and which file shows what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.dataset import END_STEPS, Dataset
from intarsia.archives.ledger import Ledger, is_moved, prefixes_of_move
from intarsia.archives.plan.axis_union import (
    GrownAxis,
    Span,
    appended,
    boxes,
    nested,
    spans,
    uncovered,
    union,
)
from intarsia.archives.plan.coordinates import ConcatCoordinate, concat, labels
from intarsia.archives.plan.member_allocation import shift_boxes
from intarsia.archives.plan.overlaps import Claims, Overlap, free_claims, make_claims, resolve_overlaps
from intarsia.errors import IngestError
from intarsia.manifest.region_table import RegionTable

if TYPE_CHECKING:
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable
    from intarsia.manifest.box import Box


class WholeDatasetNeededError(Exception):
    """Only the end of a dataset was read, but the files do not go after it."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A new file in its place."""

    file: ParsedFile

    number: int
    """Its number in the ledger after the commit."""

    spans: tuple[tuple[Span, ...], ...]
    """Where its steps are, for every dimension."""

    positions: tuple[np.ndarray[Any, np.dtype[np.int64]], ...]
    """The same, step by step."""

    @property
    def start(self) -> int:
        """Its first step along the first dimension."""
        return min(span.start for span in self.spans[0])

    @property
    def steps(self) -> int:
        """How many steps it has there."""
        return len(self.positions[0])


@dataclass
class Cube:
    """Everything about places that a commit will contain."""

    axes: tuple[GrownAxis, ...]
    placed_files: list[PlacedFile]
    """The new files, in the order of the axes."""

    claims: Claims
    """Which file shows what: files that stay, then new ones, by number; the last axis counts variables."""

    variables: list[str]
    """What the last axis of the claims counts."""

    before: RegionTable
    """What the files that stay show before new ones come, on the new axes."""

    gone: RegionTable
    """What the replaced files showed, on the new axes."""

    kept: list[int]
    """Ledger entries that stay."""

    refused: dict[str, str] = field(default_factory=dict)
    """Files that overlap others or cannot be placed, and why."""

    origin: int = 0
    """Where on the dataset's axis the part that was read begins."""

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(axis.dim for axis in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The length of every axis after the commit."""
        return {axis.dim: axis.length for axis in self.axes}

    def shown(self, file: PlacedFile, variable: str) -> list[Box] | None:
        """The boxes of the cube that a new file shows of a variable; None if it shows everything it has."""
        if file.number not in self.claims.cut:
            return None
        return self.claims.boxes(file.number, self.variables.index(variable))

    def freed(self, variable: str) -> list[Box]:
        """The boxes of the cube that replaced files showed and that still exist."""
        if variable not in self.variables:
            return []
        number = self.variables.index(variable)
        old = Claims(replace(self.gone, member=np.zeros_like(self.gone.member)))
        return old.boxes(0, number)

    def lost(self, variable: str) -> list[Box]:
        """The boxes of the cube that files lose to new, overlapping ones."""
        if variable not in self.variables:
            return []
        winners = [
            each.number
            for each in self.placed_files
            if each.number in self.claims.cut and variable in each.file.variables
        ]
        number = self.variables.index(variable)
        start, stop = self.before.start, self.before.stop
        return [
            box
            for winner in winners
            for box in self.claims.boxes(winner, number)
            if bool(((start < (*box.stop, number + 1)) & (stop > (*box.start, number))).all(axis=1).any())
        ]

    def ledger(self, old: Ledger) -> Ledger:
        """The sources after the commit; members are filled in when they are written."""
        new = sorted(self.placed_files, key=lambda each: each.number)
        new = [each for each in new if each.number >= len(self.kept)]
        moments = [each.file.identity.modified for each in new]
        members = {name: dict(known) for name, known in old.members.items()}
        claims = shift_boxes(self.claims.table, 0, self.origin)
        return replace(
            old,
            dims=self.dims,
            locations=[old.locations[i] for i in self.kept] + [each.file.url for each in new],
            contents=[old.contents[i] for i in self.kept] + [each.file.identity.entry for each in new],
            moments=[old.moments[i] for i in self.kept]
            + [None if moment is None else moment.timestamp() for moment in moments],
            variables=self.variables,
            claims=claims,
            members=members,
        )


@dataclass(frozen=True, slots=True)
class PlacingRules:
    """How places are found."""

    overlap: str = "refuse"
    """Which file wins if files overlap; `refuse` takes no overlapping file."""

    tolerance: float | None = None
    """How far apart coordinates may be and still be equal; None for a few steps of their type."""

    indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Places in nested lists, by URL."""


def place_files(
    files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], gone: Iterable[int],
    variables: Sequence[str], rules: PlacingRules, known: Mapping[str, int] | None = None,
) -> Cube:  # fmt: skip
    """The places of these files; the ledger entries in `gone` free their places.

    `known` gives the entries of files that stay but will show more than before.
    """
    ledger, absent = dataset.ledger, sorted(gone)
    kept = [i for i in range(len(ledger.locations)) if i not in set(absent)]
    old = ledger.claims if ledger.dims else RegionTable.from_rows([], len(dims) + 1)
    leaves = np.isin(old.member, absent)
    numbers = np.full(len(ledger.locations) + 1, -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    stays = old.select(np.flatnonzero(~leaves))
    stays = replace(stays, member=numbers[stays.member])
    free = old.select(np.flatnonzero(leaves))
    names = list(dict.fromkeys([*ledger.variables, *variables]))
    refused: dict[str, str] = {}
    taken = list(files)
    while True:
        axes, problems = _axes(taken, dataset, dims, old, stays, rules)
        if not problems:
            entries = {url: int(numbers[i]) for url, i in (known or {}).items()}
            cube = _make_cube(taken, axes, stays, names, free, kept, ledger, rules, entries)
            problems = {
                each.file.url: _overlap_text(each.file, cube.claims.refused[each.number], cube, ledger)
                for each in cube.placed_files
                if each.number in cube.claims.refused
            }
        if not problems:
            cube.refused, cube.origin = refused, dataset.origin
            return cube
        refused |= problems  # the axes are different without these
        taken = [file for file in taken if file.url not in problems]


def _axes(
    files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], old: RegionTable,
    stays: RegionTable, rules: PlacingRules,
) -> tuple[tuple[GrownAxis, ...], dict[str, str]]:  # fmt: skip
    """The new axes, or what is wrong with individual files."""
    axes: list[GrownAxis] = []
    for k, dim in enumerate(dims):
        length = int(old.stop[:, k].max()) if len(old) else 0
        removed = uncovered(length, stays.start[:, k], stays.stop[:, k])
        lengths = [file.steps(dim) for file in files]
        problems: dict[str, str] = {}
        variables, lacking = concat_variables(dim, files)
        if lacking and dim in dataset.plain:
            return (), {
                file.url: f"it has no coordinate {dim!r}, but the dataset does ({_advice(dim)})"
                for file in lacking
            }
        if not lacking and (dim in dataset.plain or (variables and dataset.is_new)):
            try:
                coordinate = concat_coordinate(dim, variables, dataset)
            except IngestError:
                return (), _incompatible_files(dim, files, variables, dataset)
            problems = _value_problems(dim, files, coordinate)
            if problems:
                return (), problems
            axis = union(dim, coordinate.before, coordinate.parts, removed, rules.tolerance)
            axis.attrs, axis.rewritten = coordinate.attrs, coordinate.rewritten
            if dataset.origin and not axis.goes_behind(END_STEPS):
                raise WholeDatasetNeededError
            if rules.tolerance:
                problems = {
                    file.url: f"steps of its {dim} are closer together than tolerance={rules.tolerance}"
                    for file, steps in zip(files, axis.positions, strict=True)
                    if len(np.unique(steps)) < len(steps)
                }
        elif len(dims) == 1 or not files:
            axis = appended(dim, length, lengths, removed)
        else:
            problems = _index_problems(dim, files, length, rules, dims)
            if not problems:
                axis = nested(dim, [rules.indices[file.url][k] for file in files], lengths)
        if problems:
            return (), problems
        axes.append(axis)
    return tuple(axes), {}


def _advice(dim: str) -> str:
    return f"dims={{{dim!r}: …}} gives it one"


def _index_problems(
    dim: str, files: Sequence[ParsedFile], before: int, rules: PlacingRules, dims: Sequence[str]
) -> dict[str, str]:
    """Why nested lists do not say where files go along a dimension without a coordinate."""
    advice = _advice(dim)
    bare = [file for file in files if len(rules.indices.get(file.url, ())) != len(dims)]
    words = f"it has no coordinate {dim!r} ({advice}; or pass nested lists, one level per dimension)"
    if not bare and before:
        bare, words = list(files), f"{dim!r} has no coordinate, so its place is unknown ({advice})"
    return {file.url: words for file in bare}


def concat_variables(name: str, files: Sequence[ParsedFile]) -> tuple[list[ParsedVariable], list[ParsedFile]]:
    """A coordinate in every file that has it, and the files that lack it."""
    found, absent = [], []
    for file in files:
        variable = file.variables.get(name)
        if variable is None or variable.role != "concat":
            absent.append(file)
        else:
            found.append(variable)
    return found, absent


def concat_coordinate(
    name: str, variables: Sequence[ParsedVariable], dataset: Dataset, cube: Cube | None = None
) -> ConcatCoordinate:
    """A coordinate over all files and the dataset, in one encoding."""
    if name not in dataset.plain:
        return concat(name, variables)
    values, attrs = dataset.values(name), dataset.attrs(name)
    if not variables:
        return ConcatCoordinate(dataset.dims(name), attrs, values, (), rewritten=False)
    if not values.ndim and cube is not None:  # until now it was the same in all files
        values = np.repeat(values.reshape(1), len(cube.axes[0].kept()))
        return replace(concat(name, variables, (values, attrs)), rewritten=True)
    return concat(name, variables, (values, attrs))


def _incompatible_files(
    dim: str, files: Sequence[ParsedFile], variables: Sequence[ParsedVariable], dataset: Dataset
) -> dict[str, str]:
    """The files whose coordinate is incompatible with that of the dataset, or of the first file."""
    problems: dict[str, str] = {}
    taken: list[ParsedVariable] = []
    for file, variable in zip(files, variables, strict=True):
        try:
            concat_coordinate(dim, [*taken, variable], dataset)
            taken = [*taken, variable][:1]
        except IngestError as error:
            problems[file.url] = str(error)
    if problems:
        return problems
    taken = []  # each of them is compatible with the first, but not all of them together
    for file, variable in zip(files, variables, strict=True):
        try:
            concat_coordinate(dim, [*taken, variable], dataset)
            taken.append(variable)
        except IngestError as error:
            problems[file.url] = str(error)
    return problems


def _value_problems(dim: str, files: Sequence[ParsedFile], coordinate: ConcatCoordinate) -> dict[str, str]:
    """What is wrong with the coordinates of individual files."""
    problems = {}
    for file, values in zip(files, coordinate.parts, strict=True):
        if values.ndim != 1:
            problems[file.url] = f"its {dim} has {values.ndim} axes: a coordinate has only one"
        elif values.dtype.kind in "fc" and bool(np.isnan(values).any()):
            problems[file.url] = f"its {dim} holds missing values"
        elif len(values) > 1 and not bool((values[1:] > values[:-1]).all()):
            ranked = np.sort(values)
            twice = np.flatnonzero(ranked[1:] == ranked[:-1])
            if twice.size:
                (text,) = labels(ranked[twice[:1]], coordinate.attrs)
                problems[file.url] = f"its {dim} holds {text} more than once"
    return problems


def _make_cube(
    files: Sequence[ParsedFile], axes: tuple[GrownAxis, ...], stays: RegionTable, names: list[str],
    free: RegionTable, kept: list[int], ledger: Ledger, rules: PlacingRules, known: Mapping[str, int],
) -> Cube:  # fmt: skip
    for k, axis in enumerate(axes):
        stays, free = axis.moved(stays, k), axis.moved(free, k)
    numbers = {name: i for i, name in enumerate(names)}
    placed_files, rows, fresh = [], [], count(ledger.unread.files + len(kept))
    cut: set[int] = set()
    variable_numbers: dict[tuple[str, ...], Any] = {}
    for i, file in enumerate(files):
        positions = tuple(axis.positions[i] for axis in axes)
        own = tuple(spans(each) for each in positions)
        number = known[file.url] if file.url in known else next(fresh)
        placed_files.append(PlacedFile(file, number, own, positions))
        data = tuple(name for name, v in file.variables.items() if v.role == "data" and name in numbers)
        if data not in variable_numbers:
            variable_numbers[data] = np.sort(np.array([numbers[name] for name in data], dtype=np.int64))
        claims = make_claims(number, boxes(own), variable_numbers[data])
        if file.url in known:  # other files keep what they show
            left = free_claims(claims, stays)
            if left != claims:
                cut.add(number)
            if not left:
                placed_files.pop()
            claims = left
        rows += claims
    new = RegionTable.from_rows(rows, len(axes) + 1)
    moments = {k: moment for k, i in enumerate(kept) if (moment := ledger.moments[i]) is not None}
    for each in placed_files:
        if each.file.identity.modified is not None:
            moments[each.number] = each.file.identity.modified.timestamp()
    claims_of_all = resolve_overlaps(stays, new, rules.overlap, moments)
    claims_of_all.cut |= cut
    placed_files.sort(key=lambda each: tuple(min(span.start for span in one) for one in each.spans))
    return Cube(axes, placed_files, claims_of_all, names, stays, free, kept)


def _overlap_text(file: ParsedFile, overlap: Overlap, cube: Cube, ledger: Ledger) -> str:
    own = next(each for each in cube.placed_files if each.file is file)
    moved = ""
    if overlap.other < len(cube.kept):
        entry = cube.kept[overlap.other]
        url, content = ledger.locations[entry], ledger.contents[entry]
        if is_moved(file.url, file.identity, url, content):
            before, after = prefixes_of_move(url, file.url)
            moved = (
                f"if this is the same file in a new place, intarsia.archives.relocate(store, "
                f"{{{before!r}: {after!r}}}) "
                "updates its references and those of all other files; "
            )
    else:
        url = next(each.file.url for each in cube.placed_files if each.number == overlap.other)
    rows = np.flatnonzero(cube.claims.table.member == overlap.other)
    mine, theirs = [], []
    for k, axis in enumerate(cube.axes):
        low, high = min(s.start for s in own.spans[k]), max(s.stop for s in own.spans[k])
        mine.append(f"{axis.dim} {axis.text(Span(low, high - low))}")
        table = cube.claims.table
        low, high = int(table.start[rows, k].min()), int(table.stop[rows, k].max())
        theirs.append(axis.text(Span(low, high - low)))
    same = len(mine) == 1 and mine[0] == f"{cube.axes[0].dim} {theirs[0]}"
    return (
        f"its {', '.join(mine)} overlaps that of {url} ({', '.join(theirs)}; {moved}"
        "overlap='first', 'last' or 'newest' says which of them is shown"
        f"{', order_by= names a variable to decide instead' if same else ''})"
    )
