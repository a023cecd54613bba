"""The draft of an ingest: everything that a commit will contain, decided before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from intarsia.archives.cf import PACKING
from intarsia.archives.ingest_arguments import known_stacks
from intarsia.archives.plan.attribute_merging import OVERRIDE, WHOLE, Combining
from intarsia.archives.plan.compatibility import Expected, Rules
from intarsia.archives.plan.coordinates import Assembled, assemble, spread
from intarsia.archives.plan.cube import (
    Cube,
    Placed,
    WholeNeededError,
    joined_coordinate,
    joined_variables,
    place,
)
from intarsia.archives.plan.ingest_plan import ArrayDraft, drafted_array
from intarsia.errors import IngestError

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.ledger import Ledger
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, Want


@dataclass(slots=True)
class Draft:
    """Everything that a commit will contain."""

    cube: Cube
    """The axes, and where files are on them."""

    arrays: dict[str, ArrayDraft]
    joined: dict[str, Assembled]
    """Coordinates along the axes."""

    static: dict[str, ParsedVariable]
    """New coordinates and other variables without such an axis."""

    ledger: Ledger
    """The sources after the commit; members are filled in when they are written."""

    attrs: dict[str, dict[str, Any]]
    """Attributes that are new or changed, by variable; an empty name stands for the dataset."""

    refused: dict[str, str]
    """Files that are not taken, and why."""

    left_out: dict[str, str]
    """Variables that are not taken, and why."""

    @property
    def placed(self) -> list[Placed]:
        """The new files, in the order of the axes."""
        return self.cube.placed

    def locations(self) -> set[str]:
        """All locations that references will point to."""
        return {
            url
            for array in self.arrays.values()
            for each in array.contributions
            if each.variable.ranges is not None and not all(chunks.by_copy for chunks in each.chunk_sets)
            for url in each.variable.ranges.urls()
        }

    def copied(self) -> int:
        """How many bytes of data are copied, before compression."""
        return sum(each.copied for array in self.arrays.values() for each in array.contributions)

    def copy_reasons(self) -> dict[str, str]:
        """For each file that is partly copied: what is copied, and why."""
        reasons: dict[str, dict[str, None]] = {}
        for name, array in self.arrays.items():
            for each in array.contributions:
                for reason in filter(None, (chunks.encoding.copy_reason for chunks in each.chunk_sets)):
                    reasons.setdefault(each.file.url, {})[f"{name!r} copied: {reason}"] = None
        return {url: "; ".join(texts) for url, texts in reasons.items()}

    def combine_attrs(self, combined: Combining, dataset: Dataset) -> None:
        """Give everything the attributes that the rule makes of the files' attributes."""
        for array in self.arrays.values():
            array.attrs = {
                key: value
                for key, value in combined.applied(array.name, array.attrs).items()
                if key not in PACKING
            }
        for name, each in self.joined.items():
            self.joined[name] = replace(each, attrs=combined.applied(name, each.attrs))
        for name, variable in self.static.items():
            self.static[name] = replace(variable, attrs=combined.applied(name, variable.attrs))
        known = {WHOLE: self.attrs[WHOLE]} if dataset.is_new else dict(dataset.all_attrs())
        self.attrs = {
            name: self.joined[name].attrs if name in self.joined else combined.applied(name, attrs)
            for name, attrs in known.items()
        }
        self.ledger.dropped_attrs = combined.dropped()


def make_draft(
    files: Sequence[ParsedFile], dataset: Dataset, want: Want, rules: Rules, entries: Mapping[str, int],
    extending: Sequence[ParsedFile] = (),
) -> Draft:  # fmt: skip
    """Decide everything about these files; `entries` gives the ledger entries of those already in it.

    Of these, `files` are replaced, and those in `extending` show new variables.
    """
    dims, known = want.dims, dataset.ledger.dims
    if known and dims and set(known) != set(dims):  # no dimensions: no file was parsed that could tell
        raise IngestError(f"the dataset grows along {_listed(known)}, not along {_listed(dims)}")
    dims = known or dims
    expected = Expected(dims, rules, dataset, want.variables)
    if rules.schema is not None:
        expected.declare(rules.schema)
    refused: dict[str, str] = {}
    fitting = []
    more = {file.url: entries[file.url] for file in extending}
    for file in (*files, *extending):
        try:
            problem = _steps_problem(file, dims) or expected.problem(file, extends=file.url in more)
        except IngestError as error:
            problem = str(error)
        if problem:
            refused[file.url] = problem
        else:
            fitting.append(file)
    spread(fitting, dataset, dims, expected.dropped)
    replaced = entries.keys() - more.keys()
    gone = [entries[file.url] for file in fitting if file.url in replaced]
    cube = place(fitting, dataset, dims, gone, list(expected.data), rules.placing, more)
    refused |= cube.refused
    undone = {file.url for file in fitting if file.url in cube.refused and file.url in replaced}
    if undone:  # a file that cannot be replaced must keep its place
        rest = [file for file in files if file.url not in undone]
        draft = make_draft(rest, dataset, want, rules, entries, extending)
        draft.refused |= {url: refused[url] for url in undone}
        return draft
    return _assembled(cube, dataset, rules, expected, refused)


def emptied(dataset: Dataset, gone: Sequence[int]) -> Draft:
    """The dataset without some of the ledger's entries."""
    ledger, rules = dataset.ledger, Rules(stacks=known_stacks(dataset))
    if set(ledger.claims.member.tolist()) <= set(gone):
        raise IngestError("no other file shows anything, so nothing would be left: delete the group instead")
    expected = Expected(ledger.dims, rules, dataset, None)
    cube = place((), dataset, ledger.dims, gone, ledger.variables, rules.placing)
    return _assembled(cube, dataset, rules, expected, {})


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))


def _steps_problem(file: ParsedFile, dims: Sequence[str]) -> str:
    for dim in dims:
        steps = file.steps(dim)
        if steps == 0 and not file.lengths(dim) and not file.left_out:
            return f"it has no variable that fits along {dim!r}"
        if steps == 0:
            return f"it has no step along {dim!r}{file.words_of_left_out}"
        lengths = file.lengths(dim)
        longer = next((name for name, length in lengths.items() if length > steps), None)
        if longer is not None:
            return f"{longer!r} has {lengths[longer]} steps along {dim!r}, but its coordinate has {steps}"
    return ""


def _assembled(
    cube: Cube, dataset: Dataset, rules: Rules, expected: Expected, refused: dict[str, str]
) -> Draft:
    named = sorted(cube.placed, key=lambda each: each.number)  # attributes go by name, not by place
    files = [each.file for each in named]
    names = dict.fromkeys(name for file in files for name, v in file.variables.items() if v.role == "joined")
    if files or any(axis.removed for axis in cube.axes):  # what the files lack also changes with the axes
        names |= dict.fromkeys(name for name in dataset.plain if set(dataset.dims(name)) & set(cube.dims))
    joined: dict[str, Assembled] = {}
    left_out = {name: reason for file in reversed(files) for name, reason in file.left_out.items()}
    left_out |= expected.dropped
    for name in names:
        if name in expected.unreadable and name not in dataset.plain:
            continue
        variables, lacking = joined_variables(name, files)
        if name in cube.dims and cube.axes[cube.dims.index(name)].values is None:
            left_out[name] = "not every file has it"
            continue
        if dataset.origin and (name not in dataset.plain or not dataset.plain[name].ndim):
            raise WholeNeededError
        absent = {file.url for file in lacking}
        having = [each for each in named if each.file.url not in absent]
        try:
            coordinate, refusal = joined_coordinate(name, variables, dataset, cube), ""
        except IngestError as error:
            if name not in dataset.plain:
                left_out[name] = str(error)
                continue
            coordinate, having, refusal = joined_coordinate(name, (), dataset, cube), [], str(error)
        joined[name], conflict = assemble(name, coordinate, cube, having)
        conflict = refusal or conflict
        if dataset.origin and joined[name].kept is None:
            raise WholeNeededError
        if conflict:
            left_out[name] = conflict
            if dataset.is_new:
                del joined[name]
    held = {name for file in files for name, variable in file.variables.items() if variable.role == "data"}
    stacks = {
        stack.array: stack
        for name, stack in rules.stacks.items()
        if name in held or stack.array in dataset.logical_groups
    }
    stacked = {name: (stack.array, stack.parts[name]) for name, stack in rules.stacks.items() if name in held}
    labels_of = {stack.dim: stack.coordinate(dataset) for stack in stacks.values()}
    owners = {name: rules.stacks[name].array if name in rules.stacks else name for name in expected.data}
    arrays = dict.fromkeys(
        array for name, array in owners.items() if name in held or array in dataset.logical_groups
    )
    combined = Combining(rules.combine_attrs, dataset, rules.stacks)
    declared = [] if rules.schema is None else [rules.schema.file]
    for file in declared:
        combined.add(file)
    for file in sorted(files, key=lambda file: file.url in expected.conversions):  # the array's units first
        combined.add(file)
    static = {
        name: variable
        for file in reversed([*declared, *files])
        for name, variable in file.variables.items()
        if variable.role == "static" and name not in dataset.plain and name not in expected.dropped
    }
    for name, known in expected.static.items():  # what files are turned to match, whichever comes first
        if name in static and known.variable is not None:
            static[name] = known.variable
    draft = Draft(
        cube,
        arrays={
            name: drafted_array(name, stacks.get(name), cube, rules, dataset, expected) for name in arrays
        },
        joined=joined,
        static=static | {dim: variable for dim, variable in labels_of.items() if variable is not None},
        ledger=replace(cube.ledger(dataset.ledger), stacked=dataset.ledger.stacked | stacked),
        attrs={WHOLE: dict([*declared, *files][0].attrs)} if files and dataset.is_new else {},
        refused=refused,
        left_out=left_out,
    )
    if rules.combine_attrs != OVERRIDE and files:
        draft.combine_attrs(combined, dataset)
    return draft
