"""The plan of an ingest: everything that a commit will contain, decided before anything is written.

`plan_ingest` leaves out files that do not fit, gives the others their places, and plans every array: which
files back it, how, and where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import PACKING, CFDecoding
from intarsia.archives.plan.attribute_merging import OVERRIDE, WHOLE, AttributeMerger, is_same
from intarsia.archives.plan.axis_union import Span, spans
from intarsia.archives.plan.compatibility import Expectations, IngestRules
from intarsia.archives.plan.coordinates import PlainArray, assemble_coordinate, expand_scalars, quoted
from intarsia.archives.plan.cube import (
    Cube,
    FilePosition,
    RefusedFilesError,
    WholeDatasetNeededError,
    concat_coordinate,
    concat_variables,
    place_files,
)
from intarsia.archives.plan.encodings import GDAL_CODECS, ChunkSet, SourceEncoding, chunk_sets_of
from intarsia.archives.plan.lint_findings import DriftNotes
from intarsia.archives.plan.reconcile import wider_type
from intarsia.display import codecs_text
from intarsia.errors import IngestError, argument
from intarsia.manifest.box import Box, chunk_grid
from intarsia.manifest.data_types import is_nullable, values_dtype
from intarsia.manifest.document import new_name
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.view import MemberAxis, View

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.ledger import Ledger
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, ParseRequest
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.region_table import Ints


@dataclass(slots=True)
class IngestPlan:
    """Everything that a commit will contain."""

    dataset: Dataset
    """What exists already."""

    cube: Cube
    """The axes, and where files are on them."""

    arrays: dict[str, ArrayPlan]
    plain: dict[str, PlainArray]
    """Coordinates along the axes; and new variables without such an axis."""

    ledger: Ledger
    """The sources after the commit; members are filled in when they are written."""

    attrs: dict[str, dict[str, Any]]
    """Attributes that are new or changed, by variable; an empty name stands for the dataset."""

    refused: dict[str, str]
    """Files that are not taken, and why."""

    left_out: dict[str, str]
    """Variables that are not taken, and why."""

    notes: DriftNotes
    """How files differ that are taken; it knows the group that they are in."""

    unchanged: set[str] = field(default_factory=set)
    """Files that the dataset already has, with the same content."""

    @property
    def adds_files(self) -> bool:
        """Whether there are new files."""
        return bool(self.cube.file_positions)

    @property
    def contributions(self) -> Iterator[Contribution]:
        """What files contribute to all arrays."""
        return (each for array in self.arrays.values() for each in array.contributions)

    def locations(self) -> set[str]:
        """All locations that references will point to."""
        return {
            url
            for each in self.contributions
            if each.variable.ranges is not None
            for url in each.variable.ranges.urls()
        }

    def copied(self) -> int:
        """How many bytes of data are copied, before compression."""
        return sum(each.copied for each in self.contributions)

    def copy_reasons(self) -> dict[str, str]:
        """For each file that is partly copied: what is copied, and why."""
        reasons: dict[str, dict[str, None]] = {}
        for each in self.contributions:
            if reason := each.variable.reason:
                reasons.setdefault(each.file.url, {})[f"{each.part!r} copied: {reason}"] = None
        return {url: "; ".join(texts) for url, texts in reasons.items()}

    def note_what_gdal_cannot_read(self) -> None:
        """Note the variables that GDAL cannot decode, even through `to_kerchunk`."""
        for each in self.contributions:
            codecs = [*each.chunks.encoding.filters, *each.chunks.encoding.codecs]
            unknown = [codec for codec in codecs if codec["name"] not in GDAL_CODECS]
            if unknown:
                done = "GDAL cannot read it; other programs can"
                self.notes.add("GDAL", each.part, codecs_text(unknown), done, each.file.url)

    def combine_attrs(self, combined: AttributeMerger) -> None:
        """Give everything the attributes that the rule makes of the files' attributes."""
        for array in self.arrays.values():
            array.attrs = combined.applied(array.name, array.attrs)
        for name, each in self.plain.items():
            self.plain[name] = replace(each, attrs=combined.applied(name, each.attrs))
        is_new = self.dataset.is_new
        known = {WHOLE: self.attrs[WHOLE]} if is_new else dict(self.dataset.all_attrs())
        self.attrs = {
            name: self.plain[name].attrs if name in self.plain else combined.applied(name, attrs)
            for name, attrs in known.items()
        }
        self.ledger.dropped_attrs = combined.dropped()


def plan_ingest(
    files: Sequence[ParsedFile], dataset: Dataset, request: ParseRequest, rules: IngestRules, *,
    again: Sequence[ParsedFile] = (), replaces: bool = False, removed: Sequence[int] = (),
) -> IngestPlan:  # fmt: skip
    """Decide everything about new files, for a new dataset or one that exists, and about files that go.

    With `replaces`, files that the dataset has are replaced; otherwise they are unchanged. Those in `again`
    are there, and show variables that the dataset does not have. `removed` are entries of the ledger.
    """
    dims, known = request.dims, dataset.ledger.dims
    if known and dims and set(known) != set(dims):  # no dimensions: no file was parsed that could tell
        raise IngestError(f"the dataset grows along {quoted(known)}, not along {quoted(dims)}")
    dims = known or dims
    entries = {url: i for i, url in enumerate(dataset.ledger.locations)}
    unchanged = set() if replaces else {file.url for file in files if file.url in entries}
    more = _with_new_variables(again, dataset, entries)
    extended = {file.url: entries[file.url] for file in more}
    expectations = Expectations(dims, rules, dataset, request.variables)
    if rules.schema is not None:
        expectations.declare(rules.schema)
    refused: dict[str, str] = {}
    fitting = []
    for file in (*(file for file in files if file.url not in unchanged), *more):
        try:
            _check_steps(file, dims)
            expectations.add(file, extends=file.url in extended)
        except IngestError as error:
            refused[file.url] = str(error)
        else:
            fitting.append(file)
    expand_scalars(fitting, dataset, dims, expectations.dropped)
    while True:
        replaced = [entries[file.url] for file in fitting if file.url in entries.keys() - extended]
        gone, names = sorted((*removed, *replaced)), list(expectations.names)
        try:
            cube = place_files(fitting, dataset, dims, gone, names, rules, extended)
            break
        except RefusedFilesError as error:  # the axes are different without these
            refused |= error.problems
            fitting = [file for file in fitting if file.url not in refused]
    notes = DriftNotes(above=request.group if request.whole_tree else "")
    plan = _make_plan(cube, dataset, rules, expectations, refused, notes)
    plan.unchanged = unchanged
    return plan


def _with_new_variables(
    files: Sequence[ParsedFile], dataset: Dataset, entries: Mapping[str, int]
) -> list[ParsedFile]:
    """Files of the dataset with the data that it does not show yet; those without any are left out."""
    found = []
    for file in (file for file in files if file.url in entries):
        shown = dataset.ledger.shown(entries[file.url])
        new = {name: v for name, v in file.variables.items() if v.role != "data" or name not in shown}
        if any(v.role == "data" for v in new.values()):
            found.append(replace(file, variables=new))
    return found


def _check_steps(file: ParsedFile, dims: Sequence[str]) -> None:
    for dim in dims:
        steps, lengths = file.steps(dim), file.lengths(dim)
        if not lengths and not file.left_out:
            raise IngestError(f"it has no variable that fits along {dim!r}")
        if steps == 0:
            raise IngestError(f"it has no step along {dim!r}{file.left_out_text}")
        for name, length in lengths.items():
            if length > steps:
                raise IngestError(
                    f"{name!r} has {length} steps along {dim!r}, but its coordinate has {steps}"
                )


def _make_plan(
    cube: Cube, dataset: Dataset, rules: IngestRules, expectations: Expectations, refused: dict[str, str],
    notes: DriftNotes,
) -> IngestPlan:  # fmt: skip
    named = sorted(cube.file_positions, key=lambda each: each.number)  # attributes go by name, not by place
    files = [each.file for each in named]
    declared = [] if rules.schema is None else [rules.schema.file]
    left_out = {name: reason for file in reversed(files) for name, reason in file.left_out.items()}
    left_out |= expectations.dropped
    plain, problems = _plan_coordinates(cube, named, dataset, expectations)
    array_of = expectations.array_of
    held = {array_of(name) for file in files for name, v in file.variables.items() if v.role == "data"}
    for file in files:
        for note in expectations.notes.get(file.url, ()):
            notes.add(*note, file.url)
        for name, variable in file.variables.items():
            for source in variable.absent:
                done = "the fill value is shown, as by HDF5"
                notes.add("absent source", name, f"there is no {source}", done, file.url)
    arrays = {
        name: plan_array(name, cube, rules, dataset, expectations, notes)
        for name in expectations.data
        if name in dataset.logical_groups or name in held
    }
    stacked = {part: place for part, place in expectations.stacked.items() if place[0] in arrays}
    everything = (each for file in (*declared, *files) for each in file.variables.items())
    static = {name for name, v in everything if v.role == "static"}
    static -= dataset.plain.keys() | expectations.dropped.keys()
    plain |= {
        name: PlainArray(known.dims, known.attrs, known.loaded)  # what files are turned to match
        for (role, name), (known, _) in expectations.coordinates.items()
        if role == "static" and name in static
    }
    for array, stack in rules.stacks.items():
        if array in arrays and stack.dim not in dataset.plain:
            plain[stack.dim] = PlainArray((stack.dim,), {}, stack.labels)
    plan = IngestPlan(
        dataset,
        cube,
        arrays,
        plain,
        ledger=replace(cube.ledger(dataset.ledger), stacked=dataset.ledger.stacked | stacked),
        attrs={WHOLE: dict([*declared, *files][0].attrs)} if files and dataset.is_new else {},
        refused=refused,
        left_out=left_out | problems,
        notes=notes,
    )
    _note_holes(notes, cube)
    for name, reason in plan.left_out.items():
        having = [file.url for file in files if name in file.variables or name in file.left_out]
        for url in having or [""]:
            notes.add("left out", name, reason, "not ingested", url)
    if rules.combine_attrs != OVERRIDE and files:
        combined = AttributeMerger(rules.combine_attrs, dataset, array_of)
        # files in the array's units come first
        converted = {url for url, _ in expectations.converted}
        for file in (*declared, *sorted(files, key=lambda file: file.url in converted)):
            combined.add(file)
        plan.combine_attrs(combined)
    return plan


def _note_holes(notes: DriftNotes, cube: Cube) -> None:
    """Note the places of a cube that no file covers."""
    regions, total = cube.file_regions, prod(cube.sizes.values())
    if len(cube.axes) < 2 or not cube.file_positions:
        return
    first, last = regions.start[:, -1], regions.stop[:, -1]
    cells = np.prod((regions.stop - regions.start)[:, :-1], axis=1)
    for number, name in enumerate(cube.variables):
        count = total - int(cells[(first <= number) & (number < last)].sum())
        if 0 < count < total:
            text = f"no file has {count} of {total} places along {' and '.join(cube.dims)}"
            notes.add("hole", name, text, "missing values", cube.file_positions[0].file.url)


def _plan_coordinates(
    cube: Cube, named: Sequence[FilePosition], dataset: Dataset, expectations: Expectations
) -> tuple[dict[str, PlainArray], dict[str, str]]:
    """The coordinates along the axes after the commit; and those that are left out, and why."""
    files = [each.file for each in named]
    names = dict.fromkeys(name for file in files for name, v in file.variables.items() if v.role == "concat")
    if files or cube.loses_steps:  # what the files lack also changes with the axes
        names |= dict.fromkeys(name for name in dataset.plain if set(dataset.dims(name)) & set(cube.dims))
    axes = {axis.dim: axis for axis in cube.axes}
    coordinates: dict[str, PlainArray] = {}
    problems: dict[str, str] = {}
    for name in names:
        is_known = name in dataset.plain
        if name in expectations.unreadable and not is_known:
            continue
        if dataset.origin and (not is_known or not dataset.plain[name].ndim):
            raise WholeDatasetNeededError
        problem = ""
        if name in axes:
            found = axes[name].coordinate(dataset.plain[name].dtype if is_known else None)
            if found is None:
                problems[name] = "not every file has it"
                continue
        else:
            variables = concat_variables(name, files)
            having = [each for each in named if each.file.url in variables]
            try:
                coordinate = concat_coordinate(name, list(variables.values()), dataset, cube)
            except IngestError as error:
                problem = str(error)
                if not is_known:
                    problems[name] = problem
                    continue
                coordinate, having = concat_coordinate(name, (), dataset, cube), []
            found, conflict = assemble_coordinate(coordinate, axes, having)
            problem = problem or conflict
        if dataset.origin and found.unchanged_steps is None:
            raise WholeDatasetNeededError
        if problem:
            problems[name] = problem
        if not problem or not dataset.is_new:
            coordinates[name] = found
    return coordinates, problems


@dataclass(slots=True)
class Contribution:
    """Chunks of one file that share an encoding, and what they show of one logical array."""

    file: ParsedFile
    part: str
    """The name of its variable in the dataset."""

    variable: ParsedVariable

    axes: tuple[int | None, ...]
    """For every axis of the file's variable: the axis of the array; None if the array has none."""

    spans: tuple[tuple[Span, ...], ...]
    """Where its elements are, on every axis of the array."""

    shown: list[Box]
    """The boxes of the array in which it shows what it has."""

    decoding: CFDecoding
    """How its numbers become values…"""

    packing: Packing | None
    """… and what the manifest says about it; None if they are values, or if filters unpack them."""

    chunks: ChunkSet
    """The chunks, and how they are backed."""

    start: tuple[int, ...] = ()
    """Where it begins in its member, at a chunk border; no other chunks are there."""

    @property
    def copied(self) -> int:
        """How many of its bytes are copied, before compression."""
        ranges, variable = self.variable.ranges, self.variable
        if ranges is not None:
            return sum(map(len, ranges.inlined.values()))
        return prod(variable.shape) * variable.dtype.itemsize

    def parts(self) -> Iterator[tuple[Span, ...]]:
        """What its chunks show: for each region, one span for every axis of the array."""
        for box, limits in product(self.chunks.boxes, self.shown):
            choices = [
                [cut for span in own if (cut := span.cut(*ends)) is not None]
                for own, ends in zip(self.spans, limits.bounds, strict=True)
            ]
            for k, ends in enumerate(box.in_elements(self.chunks.encoding.chunks).bounds):
                axis = self.axes[k]
                if axis is not None:
                    found = (span.of_file(*ends) for span in choices[axis])
                    choices[axis] = [span for span in found if span is not None]
                elif not ends[0] <= self.variable.dropped_index(k) < ends[1]:
                    choices = [[]]
                    break
            yield from product(*choices)


@dataclass(slots=True)
class ArrayPlan:
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

    members: dict[str, GrowingMember] = field(default_factory=dict)
    """The members that contributions are put into, by name."""

    encodings: dict[str, str] = field(default_factory=dict)
    """The member of every known encoding, by the encoding's digest."""

    def box(self, cell: Box, part: str) -> Box:
        """A box of the cube as a box of the array, for one of its variables."""
        bounds = [(0, n) for n in self.shape]
        for axis, ends in zip(self.growing, cell.bounds, strict=True):
            bounds[axis] = ends
        step = self.parts[part]
        if step is not None:
            bounds[0] = step, step + 1
        return Box.of(bounds)


def plan_array(
    name: str,
    cube: Cube,
    rules: IngestRules,
    dataset: Dataset,
    expectations: Expectations,
    notes: DriftNotes,
) -> ArrayPlan:
    """How one variable of the new files, or a stack of several, is backed."""
    steps = {part: step for part, (array, step) in expectations.stacked.items() if array == name}
    parts: dict[str, int | None] = {**steps} or {name: None}
    known_files = dataset.ledger.unread_files + len(cube.kept_entries)
    sources = []
    for part, position in product(parts, cube.file_positions):
        if (position.file.url, part) in expectations.decodings:
            sources.append((position, part, position.file.variables[part]))
        elif position.number >= known_files:
            notes.add("missing variable", part, f"there is no {part!r}", "a hole", position.file.url)
    logical = dataset.logical_groups.get(name)
    nulls = rules.nulls if logical is None else is_nullable(logical.manifest.data_type)
    decodings = [expectations.decodings[each.file.url, part] for each, part, _ in sources]
    known = expectations.data[name]
    dims, sizes = (*known.stack, *known.dims), known.stack | known.sizes | cube.sizes
    shape, growing = tuple(sizes[dim] for dim in dims), tuple(dims.index(dim) for dim in cube.dims)
    if logical is not None:
        manifest = logical.manifest
        dtype, fill, lattice = values_dtype(manifest.data_type), manifest.fill_value, manifest.chunk_shape
        wider = _wider(name, dtype, nulls, rules, decodings)
        if wider != dtype:
            are_whole, dtype = dtype.kind in "iu" and wider.kind == "f", wider
            fill = wider.type(np.nan if are_whole else fill)  # no whole number means "missing"
    else:
        declared = known.dtype if known.is_fixed else None
        dtype = rules.dtypes.get(name) or declared or np.result_type(*(each.values for each in decodings))
        nulls = nulls and dtype.kind in "biuf"
        fill = dtype.type(np.nan) if dtype.kind in "fc" and not nulls else None
        lattice = _lattice(dims, shape, growing, [variable for *_, variable in sources])
    by_number = sorted(sources, key=lambda each: each[0].number)
    same = [each for each in by_number if (each[0].file.url, each[1]) not in expectations.converted]
    attrs = _attributes(same or by_number)
    if by_number and not same:
        attrs["units"] = expectations.units[by_number[0][1]]
    if rules.schema is not None and name in rules.schema.file.variables:
        attrs = {k: v for k, v in rules.schema.file.variables[name].attrs.items() if k not in PACKING}
    plan = ArrayPlan(name, dims, shape, growing, dtype, fill, attrs, lattice, [], parts, nulls)
    for (position, part, variable), decoding in zip(sources, decodings, strict=True):
        url = position.file.url
        positions = dict(zip(cube.dims, position.positions, strict=True)) | expectations.turned.get(url, {})
        places = _places(plan, part, variable, positions)
        shown = [plan.box(cell, part) for cell in cube.shown(position, part)]
        if position.number in cube.overlapping:
            text = f"others lie in the same place; {'part' if shown else 'nothing'} of it is shown"
            notes.add("overlap", part, text, f"shown by {argument('overlap', rules.overlap)}", url)
        if rules.copy == "all":
            reason = variable.reason or f"{argument('copy', 'all')} was requested"
            variable = replace(variable, ranges=None, parts=(), reason=reason)
        for own, piece in variable.pieces(dims):
            axes = tuple(dims.index(dim) if dim in dims else None for dim in piece.dims)
            where = tuple(
                tuple(seen for span in spans for inner in own[dim] if (seen := span.through(inner)))
                if dim in own
                else spans
                for dim, spans in places.items()
            )
            packing = decoding.packing_in(dtype)
            sets = chunk_sets_of(piece, decoding, dtype)
            for chunks in sets:
                contribution = Contribution(
                    position.file, part, piece, axes, where, shown, decoding, packing, chunks
                )
                plan.contributions.append(contribution)
                _note_contribution(notes, plan, contribution, is_part=bool(own))
                if variable.parts or len(sets) > 1 or variable.picks or url in expectations.turned:
                    _refine_lattice(plan, contribution)
    # a new array has no members
    names = set() if logical is None else set(logical.manifest.members)
    held = dataset.ledger.members.get(name, {})
    plan.encodings = {digest: member for digest, member in held.items() if member in names}
    for contribution in plan.contributions:
        found = _find_member(plan, contribution, logical)
        plan.members[found.name] = found
        found.put(contribution)
    return plan


VIEW = "seen through a view of the region"


def _note_contribution(notes: DriftNotes, array: ArrayPlan, each: Contribution, *, is_part: bool) -> None:
    """Note how a file differs from the array that it contributes to; the axes of a part are its own."""
    part, url, values = each.part, each.file.url, each.decoding.values
    if values != array.dtype:
        notes.add("data type", part, str(values), f"converted to {array.dtype} on reading", url)
    dims = array.dims if array.parts[part] is None else array.dims[1:]
    if each.variable.dims != dims and not is_part:
        own, theirs = (f"({', '.join(names)})" for names in (each.variable.dims, dims))
        notes.add("axes", part, f"{own} instead of {theirs}", VIEW, url)
    for axis, (dim, places) in enumerate(() if is_part else zip(array.dims, each.spans, strict=True)):
        grows, length = axis in array.growing, sum(span.length for span in places)
        if grows or len(places) != 1 or length == array.shape[axis]:
            done = "every step goes where its coordinate says" if grows else VIEW
            if len(places) > 1:
                notes.add("order", dim, f"in {len(places)} pieces", done, url)
            elif places and places[0].stride < 0:
                notes.add("order", dim, "reversed", done, url)
    if reason := each.variable.reason:
        notes.add("copy", part, reason, "its data are copied", url)


def _wider(
    name: str, dtype: np.dtype[Any], nulls: bool, rules: IngestRules, decodings: Sequence[CFDecoding]
) -> np.dtype[Any]:
    """The type of an existing array after the commit."""
    target = rules.dtypes.get(name)
    arriving = {decoding.values for decoding in decodings} if target is None else {target}
    wider = dtype if nulls or arriving <= {dtype} else wider_type(dtype, arriving)
    if target not in (None, wider):
        raise IngestError(
            f"{name!r} is {dtype} in the dataset and cannot become {target}, as {argument('dtype')} "
            "asks: existing arrays can only become wider"
        )
    return wider


def _attributes(sources: Sequence[tuple[FilePosition, str, ParsedVariable]]) -> dict[str, Any]:
    """The attributes of the first file; for stacked variables, those that they all share."""
    attrs, *others = list({part: v.attrs for _, part, v in reversed(sources)}.values())[::-1] or [{}]
    return {
        key: value
        for key, value in attrs.items()
        if key not in PACKING and all(key in other and is_same(other[key], value) for other in others)
    }


def _places(
    array: ArrayPlan, part: str, variable: ParsedVariable, positions: Mapping[str, Ints]
) -> dict[str, tuple[Span, ...]]:
    """Where the elements of a file's variable are on every axis of the array."""
    places = {}
    for dim, size in zip(array.dims, array.shape, strict=True):
        # the missing part of a shorter variable is a hole
        steps = positions.get(dim, np.arange(size))[: variable.sizes.get(dim)]
        picked = variable.picks.get(dim)
        places[dim] = spans(steps, None if picked is None else np.atleast_1d(picked))
    step = array.parts[part]
    return places if step is None else places | {array.dims[0]: (Span(step, 1),)}


def _refine_lattice(array: ArrayPlan, contribution: Contribution) -> None:
    """Give an array a lattice on which the regions of a contribution begin and end, even within a file."""
    for each in contribution.parts():
        borders = (
            [end for end in (span.start, span.stop) if end != size]
            for span, size in zip(each, array.shape, strict=True)
        )
        array.lattice = tuple(gcd(cell, *ends) for cell, ends in zip(array.lattice, borders, strict=True))


def _lattice(
    dims: tuple[str, ...], shape: tuple[int, ...], growing: Sequence[int], sources: Sequence[ParsedVariable]
) -> tuple[int, ...]:
    """1 along axes that grow; on others, the smallest chunk if it divides all others, or the whole axis."""
    chunks = [dict(zip(variable.dims, variable.chunks, strict=True)) for variable in sources]
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


FARTHEST_PLACE = 1 << 40
"""Views that count downwards begin here if the lattice is 1, so that they all share one view."""

FULL = 1 << 18
"""How many chunks fill a member: what follows in the same encoding goes into another one. Nothing is added to
a full member, so its references can be in one large manifest (`splitting`): three to five megabytes, which a
reader of one chunk has to read."""


@dataclass(slots=True)
class GrowingMember:
    """A member and what is put into it, one file after another along one axis."""

    name: str
    encoding: SourceEncoding

    dims: tuple[str, ...]
    """Its axes, as in the files."""

    axis: int
    """The axis that grows from file to file."""

    shape: list[int]
    """Its new shape: whole chunks along the axis; on other axes, as long as the longest file."""

    is_new: bool
    """Whether it has to be created."""

    contributions: list[Contribution] = field(default_factory=list)
    """What is put into it."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes into it."""
        return prod(chunk_grid(tuple(self.shape), self.encoding.chunks)) >= FULL

    def put(self, contribution: Contribution) -> None:
        """Give a contribution the next steps, at a chunk border: its chunks become chunks of the member."""
        own, axis, start = contribution.variable.shape, self.axis, self.shape[self.axis]
        chunk = self.encoding.chunks[axis]
        self.shape = [max(a, b) for a, b in zip(self.shape, own, strict=True)]
        self.shape[axis] = start + -(-own[axis] // chunk) * chunk
        contribution.start = tuple(start if k == axis else 0 for k in range(len(own)))
        self.contributions.append(contribution)

    def regions(self, array: ArrayPlan) -> Iterator[NewRegion]:
        """The regions of an array that show what is put into the member."""
        straight = [MemberAxis(axis) for axis in range(len(array.dims))]
        for contribution in self.contributions:
            for shown in contribution.parts():
                place, axes = [0] * len(array.dims), []
                for k, axis in enumerate(contribution.axes):
                    if axis is None:
                        axes.append(MemberAxis(None, contribution.variable.dropped_index(k)))
                        continue
                    span, cell = shown[axis], array.lattice[axis]
                    offset = first = span.first + contribution.start[k]
                    if span.stride > 0:  # the view says what the lattice cannot
                        place[axis], offset = divmod(first, cell)
                    elif cell == 1:
                        place[axis], offset = FARTHEST_PLACE - first, FARTHEST_PLACE
                    axes.append(MemberAxis(axis, offset, span.stride))
                box = Box.of((span.start, span.stop) for span in shown).in_units(array.lattice)
                view = None if axes == straight else View(len(shown), tuple(axes))
                yield NewRegion(box, self.name, tuple(place), contribution.packing, view)


def _find_member(
    array: ArrayPlan, contribution: Contribution, logical: LogicalArrayHandle | None
) -> GrowingMember:
    """The member for some chunks of a file; the array is told what it can hold."""
    encoding, dims, known = contribution.chunks.encoding, contribution.variable.dims, array.encodings
    # members have the axes of their files: another order of axes needs another member
    turned = "" if dims == array.dims else " " + ",".join(dims)
    digest, without_fill = (each + turned for each in encoding.digests)
    # What is read where no chunk is stored matters only to files that lack a chunk.
    candidates = (digest, without_fill) if contribution.chunks.complete else (digest,)
    digest = next((each for each in candidates if each in known), digest)
    axis = next((dims.index(d) for a in array.growing if (d := array.dims[a]) in dims), 0)
    name = known.get(digest)
    member = None if name is None else array.members.get(name)
    if member is None and name is not None and logical is not None:  # begun in an earlier commit
        shape = list(logical.members[name].shape)
        shape[axis] = -(-shape[axis] // encoding.chunks[axis]) * encoding.chunks[axis]
        member = GrowingMember(name, encoding, dims, axis, shape, is_new=False)
    if member is None or member.is_full:
        shape = list(contribution.variable.shape)
        shape[axis] = 0
        member = GrowingMember(new_name(), encoding, dims, axis, shape, is_new=True)
    other = known.pop(without_fill, None)  # the latest come last
    known[without_fill] = member.name if other in (None, name) else other
    known.pop(digest, None)
    known[digest] = member.name
    return member
