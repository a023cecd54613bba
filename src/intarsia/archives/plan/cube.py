"""The cube that files make: its axes after the commit, the position of every file, and which file shows what.

The regions of a file are boxes of the cube, for some variables, that it shows: files with different variables
may share a place. They are rows of a region table, in which the member is the number of a file and the last
axis counts variables. Where files overlap, `overlap=` says which of them is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, product
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.dataset import END_STEPS, Dataset
from intarsia.archives.ledger import Ledger
from intarsia.archives.plan.axis_union import (
    GrownAxis,
    append_axis,
    nested_list_axis,
    sort_direction,
    spans,
    uncovered,
    union_axis,
)
from intarsia.archives.plan.coordinates import ConcatCoordinate, concat_values, labels
from intarsia.archives.plan.reconcile import MAX_SPANS
from intarsia.errors import IngestError, advice, argument
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import Ints, RegionTable, Row

if TYPE_CHECKING:
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable
    from intarsia.archives.plan.compatibility import IngestRules


class WholeDatasetNeededError(Exception):
    """Only the end of a dataset was read, but the files do not go after it."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A new file, and where it is in the cube."""

    file: ParsedFile

    number: int
    """Its number in the ledger after the commit."""

    positions: tuple[Ints, ...]
    """Where each of its steps is, for every dimension."""

    @property
    def modified(self) -> float | None:
        """When it was last changed, in seconds since 1970, if its store says so."""
        time = self.file.identity.modified
        return None if time is None else time.timestamp()

    @property
    def box(self) -> Box:
        """The smallest box of the cube around it."""
        return Box.of((int(own.min()), int(own.max()) + 1) for own in self.positions)

    def regions(self, variables: Ints) -> list[Row]:
        """Everything that it has of some variables, as regions."""
        own = [spans(steps) for steps in (*self.positions, variables)]
        boxes = (Box.of((span.start, span.stop) for span in each) for each in product(*own))
        return [Row(self.number, box, (0,) * len(own)) for box in boxes]


@dataclass
class Cube:
    """Everything about places that a commit will contain."""

    axes: tuple[GrownAxis, ...]
    file_positions: list[FilePosition]
    """The new files, in the order of the axes."""

    file_regions: RegionTable
    """Which file shows what: files that stay, then new ones."""

    overlapping: set[int]
    """Files that show less than they have, or that take a place from others."""

    variables: list[str]
    """What the last axis of the regions counts."""

    removed_regions: RegionTable
    """What the files that go showed, on the new axes."""

    kept_entries: list[int]
    """Ledger entries that stay."""

    @cached_property
    def dims(self) -> tuple[str, ...]:
        return tuple(axis.dim for axis in self.axes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The length of every axis after the commit."""
        return {axis.dim: axis.length for axis in self.axes}

    @property
    def loses_steps(self) -> bool:
        """Whether any step of an axis goes."""
        return any(bool((axis.existing_positions < 0).any()) for axis in self.axes)

    def shown(self, file: FilePosition, variable: str) -> list[Box]:
        """The boxes of the cube in which a new file shows what it has of a variable."""
        if file.number not in self.overlapping:
            return [Box.sized(self.sizes.values())]
        own = self.file_regions.select(self.file_regions.member == file.number)
        return _boxes_of(own, self.variables.index(variable))

    def holes(self, variable: str) -> list[Box]:
        """The boxes of the cube that files showed before and that now belong to others, or to none."""
        if variable not in self.variables:
            return []
        number = self.variables.index(variable)
        winners = [each.number for each in self.file_positions if each.number in self.overlapping]
        new = self.file_regions.select(np.isin(self.file_regions.member, winners))
        return _boxes_of(self.removed_regions, number) + _boxes_of(new, number)

    def ledger(self, old: Ledger) -> Ledger:
        """The sources after the commit; members are filled in when they are written."""
        kept = self.kept_entries
        new = sorted(self.file_positions, key=lambda each: each.number)
        new = [each for each in new if each.number >= old.unread_files + len(kept)]
        return replace(
            old,
            dims=self.dims,
            locations=[old.locations[i] for i in kept] + [each.file.url for each in new],
            contents=[old.contents[i] for i in kept] + [each.file.identity.entry for each in new],
            modified_times=[old.modified_times[i] for i in kept] + [each.modified for each in new],
            variables=self.variables,
            file_regions=self.file_regions,
            members={name: dict(known) for name, known in old.members.items()},
        )


def _boxes_of(regions: RegionTable, variable: int) -> list[Box]:
    """What regions show of a variable, as boxes of the cube."""
    own = regions.select((regions.start[:, -1] <= variable) & (variable < regions.stop[:, -1]))
    ends = zip(own.start[:, :-1].tolist(), own.stop[:, :-1].tolist(), strict=True)
    return [Box(tuple(start), tuple(stop)) for start, stop in ends]


def resolve_overlaps(
    old: RegionTable, new: RegionTable, policy: str, modified_times: Mapping[int, float | None]
) -> tuple[RegionTable, dict[int, int], set[int]]:
    """The regions of existing and new files, where the policy says which file wins.

    Also, the files that are not taken, with the file that is in the same place; and those that show less than
    they have, or that take a place from others. With `refuse`, a new file that overlaps another is not taken.
    Otherwise the file wins that came first, or last, or that was changed last; the other shows the rest of
    what it has.

    >>> old = RegionTable.from_rows([Row(0, Box((0, 0), (4, 1)), (0, 0))], 2)
    >>> new = RegionTable.from_rows([Row(1, Box((2, 0), (6, 1)), (0, 0))], 2)
    >>> resolve_overlaps(old, new, "refuse", {})[1]
    {1: 0}
    >>> [resolve_overlaps(old, new, policy, {})[0].start[:, 0].tolist() for policy in ("first", "last")]
    [[0, 4], [2, 0]]
    """
    everything = old.concat(new)
    if everything.overlap() is None:
        return everything, {}, set()
    numbers = list(dict.fromkeys(everything.member.tolist()))
    if policy in ("last", "newest"):
        numbers.reverse()
    if policy == "newest":  # of equally old files, the later one
        numbers.sort(key=lambda number: np.inf if (time := modified_times[number]) is None else -time)
    there = set(old.member.tolist())
    takes = np.zeros(len(everything), dtype=bool)
    rows: list[Row] = []
    refused, overlapping = {}, set()
    for number in numbers:  # every file shows what no file before it has
        own = np.flatnonzero(everything.member == number).tolist()
        left: list[Row] = []
        for row in map(everything.row, own):
            touched = everything.touching(row.box)
            winners = everything.select(touched[takes[touched]])
            if len(winners) and policy == "refuse" and number not in there:
                refused[number] = int(winners.member[0])
                break
            if len(winners):
                overlapping |= {number, *winners.member.tolist()}
            left += [row._replace(box=part) for part in winners.free(row.box)]
        if number not in refused:
            takes[own] = True
            rows += left
    return RegionTable.from_rows(rows, everything.ndim), refused, overlapping


def place_files(
    files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], removed: Sequence[int],
    variables: Sequence[str], rules: IngestRules, known: Mapping[str, int],
) -> Cube:  # fmt: skip
    """The places of these files; the ledger entries in `removed` free their places.

    `known` gives the entries of files that stay but will show more than before. Raises `RefusedFilesError`
    for files that have no place beside the others.
    """
    ledger = dataset.ledger
    kept_entries = np.delete(np.arange(len(ledger.locations)), removed)
    numbers = np.full(len(ledger.locations), -1, dtype=np.int64)
    numbers[kept_entries] = np.arange(len(kept_entries))
    old = ledger.file_regions if ledger.dims else RegionTable.from_rows([], len(dims) + 1)
    old = replace(old, member=numbers[old.member])
    stays, leaves = (old.select(np.flatnonzero(each)) for each in (old.member >= 0, old.member < 0))
    names = {name: i for i, name in enumerate(dict.fromkeys([*ledger.variables, *variables]))}
    axes = [_axis(k, files, dataset, dims, old, stays, rules) for k in range(len(dims))]
    for i, file in enumerate(files):
        _check_pieces(file.url, axes, [axis.positions[i] for axis in axes])
    there = [axis.existing_positions for axis in axes]
    _check_pieces("the dataset", axes, [each[each >= 0] for each in there])
    for k, steps in enumerate(there):
        stays, leaves = stays.move(k, steps), leaves.move(k, steps)
    file_positions: list[FilePosition] = []
    rows: list[Row] = []
    overlapping: set[int] = set()
    fresh = count(ledger.unread_files + len(kept_entries))
    for i, file in enumerate(files):
        is_known = file.url in known
        number = int(numbers[known[file.url]]) if is_known else next(fresh)
        position = FilePosition(file, number, tuple(axis.positions[i] for axis in axes))
        data = [names[name] for name, v in file.variables.items() if v.role == "data" and name in names]
        regions = position.regions(np.array(sorted(data), dtype=np.int64))
        if is_known:  # other files keep what they show
            left = [row._replace(box=part) for row in regions for part in stays.free(row.box)]
            if left != regions:
                overlapping.add(number)
            if not left:
                continue
            regions = left
        file_positions.append(position)
        rows += regions
    modified_times = dict(enumerate(ledger.modified_times[i] for i in kept_entries))
    modified_times |= {each.number: each.modified for each in file_positions}
    new = RegionTable.from_rows(rows, len(axes) + 1)
    file_regions, overlaps, more = resolve_overlaps(stays, new, rules.overlap, modified_times)
    file_positions.sort(key=lambda each: each.box.start)
    cube = Cube(
        tuple(axes), file_positions, file_regions, overlapping | more, list(names), leaves,
        kept_entries.tolist(),
    )  # fmt: skip
    refused = [each for each in file_positions if each.number in overlaps]
    _refuse({each.file.url: _overlap_text(each, overlaps[each.number], cube, ledger) for each in refused})
    return cube


class RefusedFilesError(Exception):
    """Files that cannot be placed beside the others, and why."""

    def __init__(self, problems: dict[str, str]) -> None:
        self.problems = problems


def _refuse(problems: dict[str, str]) -> None:
    if problems:
        raise RefusedFilesError(problems)


def _axis(
    k: int, files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], old: RegionTable,
    stays: RegionTable, rules: IngestRules,
) -> GrownAxis:  # fmt: skip
    """A dimension with the steps of these files."""
    dim = dims[k]
    length = int(old.stop[:, k].max()) if len(old) else 0
    removed = uncovered(length, stays.start[:, k], stays.stop[:, k])
    lengths = [file.steps(dim) for file in files]
    variables = concat_variables(dim, files)
    lacking = [file.url for file in files if file.url not in variables]
    if lacking and dim in dataset.plain:
        text = f"it has no coordinate {dim!r}, but the dataset does ({_gives_coordinate(dim)})"
        raise RefusedFilesError(dict.fromkeys(lacking, text))
    if not lacking and (dim in dataset.plain or (variables and dataset.is_new)):
        try:
            coordinate = concat_coordinate(dim, list(variables.values()), dataset)
        except IngestError:
            raise RefusedFilesError(_incompatible_files(dim, variables, dataset)) from None
        parts = coordinate.parts
        before = parts[0][:0] if coordinate.before is None else np.delete(coordinate.before, removed)
        is_unordered = len(before) > 1 and not sort_direction(before)
        in_file_order = (
            rules.file_order
            and len(dims) == 1
            and (is_unordered or any(_repeated_values(part).size for part in parts))
        )
        _refuse(_value_problems(dim, files, coordinate, may_repeat=in_file_order))
        if in_file_order or not parts:
            axis = append_axis(dim, len(before), lengths, np.concatenate([before, *parts]))
        else:
            axis = union_axis(dim, before, parts, rules.tolerance, dataset.origin)
        axis.count_removed(removed)
        axis.attrs, axis.rewritten = coordinate.attrs, coordinate.rewritten
        if dataset.origin and (in_file_order or not axis.goes_behind(END_STEPS)):
            raise WholeDatasetNeededError
        if rules.tolerance:
            text = f"steps of its {dim} are closer together than {argument('tolerance', rules.tolerance)}"
            positions = zip(files, axis.positions, strict=True)
            _refuse({file.url: text for file, steps in positions if len(np.unique(steps)) < len(steps)})
        return axis
    if len(dims) == 1 or not files:
        axis = append_axis(dim, length - len(removed), lengths)
        axis.count_removed(removed)
        return axis
    option = _gives_coordinate(dim)
    text = f"it has no coordinate {dim!r} ({option}; or pass nested lists, one level per dimension)"
    bare = [file for file in files if len(rules.indices.get(file.url, ())) != len(dims)]
    _refuse({file.url: text for file in bare})
    text = f"{dim!r} has no coordinate, so its place is unknown ({option})"
    _refuse({file.url: text for file in files if length})
    return nested_list_axis(dim, [rules.indices[file.url][k] for file in files], lengths)


def _gives_coordinate(dim: str) -> str:
    return f"{argument('dims', {dim: ...})} gives it one"


def concat_variables(name: str, files: Sequence[ParsedFile]) -> dict[str, ParsedVariable]:
    """A coordinate along the dimensions in every file that has it, by URL."""
    found = ((file.url, file.variables.get(name)) for file in files)
    return {url: each for url, each in found if each is not None and each.role == "concat"}


def concat_coordinate(
    name: str, variables: Sequence[ParsedVariable], dataset: Dataset, cube: Cube | None = None
) -> ConcatCoordinate:
    """A coordinate over all files and the dataset, in one encoding."""
    if name not in dataset.plain:
        return concat_values(name, variables)
    values, attrs = dataset.values(name), dataset.attrs(name)
    if not variables:
        return ConcatCoordinate(dataset.dims(name), attrs, values, (), rewritten=False)
    if not values.ndim and cube is not None:  # until now it was the same in all files
        values = np.repeat(values.reshape(1), len(cube.axes[0].existing_positions))
        return replace(concat_values(name, variables, (values, attrs)), rewritten=True)
    return concat_values(name, variables, (values, attrs))


def _incompatible_files(
    dim: str, variables: Mapping[str, ParsedVariable], dataset: Dataset
) -> dict[str, str]:
    """The files whose coordinate is incompatible with that of the dataset and of all files before them."""
    problems: dict[str, str] = {}
    taken: list[ParsedVariable] = []
    for url, variable in variables.items():
        try:
            concat_coordinate(dim, [*taken, variable], dataset)
            taken.append(variable)
        except IngestError as error:
            problems[url] = str(error)
    return problems


def _value_problems(
    dim: str, files: Sequence[ParsedFile], coordinate: ConcatCoordinate, *, may_repeat: bool
) -> dict[str, str]:
    """What is wrong with the coordinates of individual files."""
    problems = {}
    for file, values in zip(files, coordinate.parts, strict=True):
        if values.ndim != 1:
            problems[file.url] = f"its {dim} has {values.ndim} axes: a coordinate has only one"
        elif values.dtype.kind in "fc" and bool(np.isnan(values).any()):
            problems[file.url] = f"its {dim} holds missing values"
        elif not may_repeat and len(repeated := _repeated_values(values)):
            (text,) = labels(repeated[:1], coordinate.attrs)
            problems[file.url] = (
                f"its {dim} holds {text} more than once "
                f"({argument('combine', 'nested')} takes all steps in the order of the files)"
            )
    return problems


def _repeated_values(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values that occur more than once."""
    distinct, counts = np.unique(values, return_counts=True)
    again: np.ndarray[Any, Any] = distinct[counts > 1]
    return again


def _check_pieces(who: str, axes: Sequence[GrownAxis], positions: Sequence[Ints]) -> None:
    """Raises `IngestError` for points of a plane between which others lie: each would be a region."""
    pieces = [int(np.count_nonzero(np.abs(np.diff(own)) != 1)) + 1 for own in positions]
    cut = [repr(axis.dim) for axis, count in zip(axes, pieces, strict=True) if count > MAX_SPANS]
    if len(cut) > 1:
        raise IngestError(
            f"{who}: other files have points between its {' and '.join(cut)}, so one array would hold it "
            f"point by point. Ingest each grid into a group of its own ({argument('group', ...)})"
        )


def _overlap_text(own: FilePosition, other: int, cube: Cube, ledger: Ledger) -> str:
    theirs = cube.file_regions.select(cube.file_regions.member == other)
    ends = zip(theirs.start.min(axis=0).tolist(), theirs.stop.max(axis=0).tolist(), strict=True)
    there = [axis.text(*each) for axis, each in zip(cube.axes, ends, strict=False)]
    here = [axis.text(*each) for axis, each in zip(cube.axes, own.box.bounds, strict=True)]
    new = (each.file.url for each in cube.file_positions if each.number == other)
    known = ledger.locations[cube.kept_entries[other]] if other < len(cube.kept_entries) else next(new)
    relocate = advice("intarsia.archives.relocate", "intarsia relocate")
    named = (f"{axis.dim} {text}" for axis, text in zip(cube.axes, here, strict=True))
    decided = f", {argument('order_by')} names a variable to decide instead" if here == there[:1] else ""
    return (
        f"its {', '.join(named)} overlaps that of {known} ({', '.join(there)}; "
        f"{argument('overlap', 'first')}, 'last' or 'newest' says which of them is shown{decided}; "
        f"if the file was only moved, {relocate} updates its references)"
    )
