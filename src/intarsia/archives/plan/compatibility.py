"""What every file is compared with: the dataset as it is, or the first file of a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.archives.cf import CFDecoding, json_attributes
from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, is_grid_mapping, with_names_of
from intarsia.archives.plan import reconcile
from intarsia.archives.plan.attribute_merging import REFUSING, AttributeMerger
from intarsia.archives.plan.axis_union import spans
from intarsia.archives.plan.coordinates import are_comparable, calendar_of, has_time_units, same_values
from intarsia.archives.plan.reconcile import units_of
from intarsia.errors import IngestError, argument
from intarsia.manifest.data_types import is_nullable, values_dtype

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.ingest_arguments import StackedVariables
    from intarsia.archives.plan.schema import Schema
    from intarsia.manifest.region_table import Ints


@dataclass(frozen=True, slots=True)
class IngestRules:
    """How strictly files are checked, and what becomes of them."""

    copy: str = "needed"
    """Which data is copied: `needed`, `all` or `never`."""

    missing: str = "raise"
    """What to do if a file lacks a variable: `raise` refuses the file, `fill` leaves a hole."""

    add_variables: bool = False
    """Whether to add variables that begin later, or that the dataset did not take."""

    units: str = "equal"
    """Whether the units of a variable must be `equal` in all files; `ignore` trusts you."""

    convert_units: bool = False
    """Whether units that differ by a factor and an offset are converted."""

    dtypes: Mapping[str, np.dtype[Any]] = field(default_factory=dict)
    """The requested data types."""

    nulls: bool = False
    """Whether missing values of new arrays become null; an existing array stays as it is."""

    combine_attrs: Any = "override"
    """What happens to attributes that differ between files: a rule of xarray's, or a function."""

    schema: Schema | None = None
    """What the caller declared; files are checked against it."""

    overlap: str = "refuse"
    """Which file wins if files overlap; `refuse` takes no overlapping file."""

    tolerance: float | None = None
    """How far apart coordinates may be and still be equal; None for a few steps of their type."""

    file_order: bool = False
    """Whether steps stay in the order of the files if a coordinate has a value more than once."""

    indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The places of files in nested lists, by URL."""

    stacks: Mapping[str, StackedVariables] = field(default_factory=dict)
    """Which variables are stacked into one array."""


@dataclass(slots=True)
class ExpectedVariable:
    """A data variable as the dataset has it."""

    dims: tuple[str, ...]
    sizes: dict[str, int]
    """The sizes of all axes except those that grow from file to file."""

    units: str | None
    """Its units, empty if it has none; None if any are allowed."""

    dtype: np.dtype[Any] | None
    """Its data type, if already decided."""

    source: str
    """The file or dataset that this comes from."""

    nulls: bool = False
    """Whether its values may be null."""

    is_declared: bool = False
    """Whether its data type was declared, so that nothing widens it."""

    seen: np.dtype[Any] | None = None
    """The type that holds the values of all files so far, until its data type is decided."""


class ExpectedCoordinate(NamedTuple):
    """A coordinate, or another variable that is not data, as files are expected to have it."""

    variable: ParsedVariable
    source: str
    """The file or dataset that this comes from."""


class Expectations:
    """Collects what the dataset is like, and refuses files that do not fit, with an `IngestError`."""

    def __init__(
        self, dims: tuple[str, ...], rules: IngestRules, dataset: Dataset, variables: tuple[str, ...] | None
    ) -> None:
        self.dims, self.rules = dims, rules
        self.data: dict[str, ExpectedVariable] = {}
        self.concat: dict[str, ExpectedCoordinate] = {}
        """Coordinates along the dimensions that grow."""
        self.static: dict[str, ExpectedCoordinate] = {}
        """Variables that are the same in all files."""
        self.requested = variables
        self.has_variables = not dataset.is_new
        self.attributes: AttributeMerger | None = None
        if rules.combine_attrs in REFUSING:
            self.attributes = AttributeMerger(rules.combine_attrs, dataset, rules.stacks)
        self.dropped: dict[str, str] = {}
        self.notes: dict[str, list[tuple[str, str, str, str]]] = {}
        """How files differ although they fit, by URL: kind, variable, how, and what is done about it."""
        self.unreadable: set[str] = set()
        """Variables that a file has in a form that cannot be read: they do not become missing values."""
        self.turned: dict[str, dict[str, Ints]] = {}
        """Where the steps of axes are that are in another order than expected, by URL and dimension."""
        self.converted: set[tuple[str, str]] = set()
        """What is converted to the dataset's units, by URL and variable."""
        self._decodings: dict[tuple[str, str], CFDecoding] = {}
        for name, logical in dataset.logical_groups.items():
            manifest = logical.manifest
            dims = tuple(str(each) for each in manifest.dimension_names or ())
            if not set(self.dims) <= set(dims):
                continue
            sizes, units = self._fixed(dims, manifest.shape), units_of(logical.group.attrs)
            dtype, nulls = values_dtype(manifest.data_type), is_nullable(manifest.data_type)
            self.data[name] = ExpectedVariable(dims, sizes, units, dtype, "the dataset", nulls)
            parts = [part for part, stack in rules.stacks.items() if stack.array == name]
            if parts:
                self._unstack(self.data.pop(name), parts)
        for name in dataset.plain:
            grows = bool(set(self.dims) & set(dataset.dims(name)))
            known = ExpectedCoordinate(dataset.variable(name, "concat" if grows else "static"), "the dataset")
            (self.concat if grows else self.static)[name] = known

    def declare(self, schema: Schema) -> None:
        """Process what was declared, in place of the first file; the dataset, if there is one, has to fit."""
        try:
            self.add(schema.file, extends=True)
        except IngestError as error:
            raise IngestError(f"the schema cannot be met: {error}") from None
        for name, dtype in schema.dtypes.items():
            if (known := self.data.get(name)) is None:
                continue
            if known.dtype not in (None, dtype):
                raise IngestError(
                    f"the schema says that {name!r} is {dtype}; in the dataset it is {known.dtype}"
                )
            self.data[name] = replace(known, dtype=dtype, is_declared=True)

    def _unstack(self, known: ExpectedVariable, parts: Sequence[str]) -> None:
        """What is expected of stacked variables; each may have units of its own."""
        dim = self.rules.stacks[parts[0]].dim
        if known.sizes.get(dim) != len(parts):
            raise IngestError(f"the dataset does not stack {len(parts)} variables along {dim!r}")
        dims = tuple(each for each in known.dims if each != dim)
        sizes = {each: n for each, n in known.sizes.items() if each != dim}
        for part in parts:
            self.data[part] = replace(known, dims=dims, sizes=sizes, units=None)

    def _check_stacks(self, data: Mapping[str, ParsedVariable]) -> None:
        """Refuse variables of a file that have different axes from those that they are stacked with."""
        firsts: dict[str, ParsedVariable] = {}
        for name, variable in data.items() if self.rules.stacks else ():
            stack = self.rules.stacks.get(name)
            first = variable if stack is None else firsts.setdefault(stack.array, variable)
            if variable.sizes != first.sizes:
                own, other = (_axes(each.sizes, each.sizes.values()) for each in (variable, first))
                raise IngestError(
                    f"{name!r} has the axes {own}, but {first.name!r}, with which it is stacked, has {other}"
                )

    def _sibling(self, name: str) -> ExpectedVariable | None:
        """A variable that is stacked with this one."""
        stack = self.rules.stacks.get(name)
        found = (self.data.get(part) for part in (stack.parts if stack is not None else ()))
        return next((known for known in found if known is not None), None)

    def _fixed(self, dims: Iterable[str], shape: Iterable[int]) -> dict[str, int]:
        return {dim: n for dim, n in zip(dims, shape, strict=True) if dim not in self.dims}

    def _along(self) -> str:
        return " and ".join(map(repr, self.dims))

    def add(self, file: ParsedFile, extends: bool = False) -> None:
        """Make a file that fits part of what is expected.

        A file that `extends` the dataset is already there, and holds only the parts that are new.
        """
        self._rename_invented(file)
        for dim in file.new_dims:
            self._note(file, "dimension", dim, f"there is no {dim!r}", "it is one step of it")
        data = {name: v for name, v in file.variables.items() if v.role == "data"}
        if not data and not self.data:
            raise IngestError(f"it has no variable along {self._along()}{file.left_out_text}")
        self._check_unreadable(file, data)
        if not extends and self.rules.missing != "fill":
            self._check_missing(data)
        self._check_units(file)
        self._check_grid(file)
        self._check_stacks(data)
        if self.attributes is not None:
            self.attributes.check(file)
        for name, variable in data.items():
            if name in self.data or self._takes(name):
                self._check_variable(name, variable, file)
        self._learn(file, data)

    def _note(self, file: ParsedFile, kind: str, variable: str, what: str, done: str) -> None:
        self.notes.setdefault(file.url, []).append((kind, variable, what, done))

    def _rename_invented(self, file: ParsedFile) -> None:
        """Give axes without names the names of the dataset: they depend on everything else in a file."""
        for name, variable in file.variables.items():
            other = self.static.get(name) or self.concat.get(name)
            dims = () if other is None else other.variable.dims
            with_names_of(variable, self.data[name].dims if name in self.data else dims, self.dims)

    def _takes(self, name: str) -> bool:
        """Whether a variable that was not seen before becomes part of the dataset."""
        if name in self.unreadable:
            return False
        known = not self.data or self.rules.missing == "fill" or name in (self.requested or ())
        return known or self.rules.add_variables or self._sibling(name) is not None

    def _check_unreadable(self, file: ParsedFile, data: Mapping[str, ParsedVariable]) -> None:
        """Refuse a file that has a variable of the dataset in a form that cannot be read."""
        for name, why in file.left_out.items():
            stack = self.rules.stacks.get(name)
            is_part = stack is not None and not data.keys().isdisjoint(stack.parts)
            if is_part or name in self.data or name in self.concat or name in (self.requested or ()):
                raise IngestError(f"its variable {name!r} cannot be read: {why}")

    def _check_missing(self, data: Mapping[str, ParsedVariable]) -> None:
        expected = [*self.data, *(name for name in self.requested or () if name not in self.static)]
        absent = sorted({name for name in expected if name not in data})
        if absent:
            raise IngestError(
                f"it has no variable {', '.join(map(repr, absent))} along {self._along()} "
                f"({argument('rename')} finds it under another name; {argument('missing', 'fill')} would "
                "leave a hole there)"
            )

    def _check_units(self, file: ParsedFile) -> None:
        """Refuse other units and calendars of coordinates; if requested, units are converted."""
        for name, variable in list(file.variables.items()):
            own, is_time = units_of(variable.attrs), has_time_units(variable.attrs)
            if variable.role == "concat" and name in self.concat:
                known, source = self.concat[name]
                units = units_of(known.attrs)
                if is_time and has_time_units(known.attrs):
                    calendar, theirs = calendar_of(variable.attrs), calendar_of(known.attrs)
                    if not are_comparable((calendar, theirs)):
                        raise IngestError(
                            f"its {name!r} uses the calendar {calendar!r}, but that of {source} "
                            f"uses {theirs!r}: a dataset has one calendar"
                        )
                    if calendar != theirs:
                        text = f"{calendar!r} instead of {theirs!r}"
                        self._note(file, "calendar", name, text, "the days are the same")
                    if own != units:
                        text = f"{own!r} instead of {units!r}"
                        self._note(file, "time units", name, text, "converted to the same units")
                elif own != units:
                    text = f"its {name!r} has the units {own!r}, but that of {source} has {units!r}"
                    option = reconcile.conversion_option(own, units)
                    if not self.rules.convert_units:
                        raise IngestError(f"{text} ({option})" if option else text)
                    try:
                        reconcile.convert_coordinate(file, name, units)
                    except IngestError as error:
                        raise IngestError(f"{text}: {error}") from error
            elif self.rules.convert_units and variable.role == "static" and name in self.static:
                units = units_of(self.static[name].variable.attrs)
                if own != units:
                    with suppress(IngestError):  # the values may be equal anyway; if not, they are refused
                        reconcile.convert_coordinate(file, name, units)

    def _check_grid(self, file: ParsedFile) -> None:
        """Refuse coordinates that should be the same everywhere, but differ; turned axes are noted."""
        axes = {dim for v in file.variables.values() if v.role == "data" for dim in v.sizes}
        named = (str(variable.attrs.get("coordinates", "")) for variable in file.variables.values())
        listed = {name for names in named for name in names.split()}
        static = {
            name: variable
            for name, variable in file.variables.items()
            if variable.role == "static" and name in self.static and variable.values is not None
        }
        circular = {name for name, variable in static.items() if reconcile.is_longitude(name, variable.attrs)}
        circular |= {str(static[name].attrs.get("bounds")) for name in circular}
        turned: dict[str, Ints] = {}
        # axes first: other variables along them are turned with them
        for name, variable in sorted(static.items(), key=lambda item: item[0] not in axes):
            known, source = self.static[name]
            if not turned and variable.dims == known.dims and same_values(variable.loaded, known.loaded):
                continue
            if variable.dims == known.dims == (name,) and name in axes:
                circle, tolerance = name in circular, self.rules.tolerance
                positions = reconcile.indices_in_expected(variable.loaded, known.loaded, tolerance, circle)
                if positions is not None and len(spans(positions)) <= reconcile.MAX_SPANS:
                    if not np.array_equal(positions, np.arange(len(positions))):
                        turned[name] = positions
                    self._note_noise(file, name, variable.loaded, known.loaded)
                    continue
            elif self._same(variable, known, turned, name in circular):
                continue
            if name in axes or (name in listed and variable.dims):
                own, units = units_of(variable.attrs), units_of(known.attrs)
                text = reconcile.difference(variable.loaded, known.loaded)
                if own != units:
                    text += f"; its units are {own!r} instead of {units!r}"
                    option = reconcile.conversion_option(own, units)
                    if option and not self.rules.convert_units:
                        text += f" ({option})"
                elif not text.endswith("accepts it)") and name in axes:
                    text += (
                        f" (to concatenate files along it, name {name!r} in {argument('concat_dim')}; "
                        f"{argument('group', ...)} puts files on another grid beside the others)"
                    )
                raise IngestError(f"its {name!r} differs from that of {source}: {text}")
            self.dropped[name] = (
                f"it has no dimension {self._along()}, and differs between {source} and {file.url}"
            )
        if turned:
            self.turned[file.url] = turned

    def _note_noise(self, file: ParsedFile, name: str, own: Any, known: Any) -> None:
        """Note how coordinates differ that count as equal."""
        if own.dtype != known.dtype:
            text = f"{own.dtype} instead of {known.dtype}"
            self._note(file, "coordinate type", name, text, "counts as equal")
        if own.dtype.kind in "iuf" and known.dtype.kind in "iuf":
            apart = float(np.abs(own.astype(np.float64) - known.astype(np.float64)).max(initial=0))
            if 0 < apart < float(np.abs(np.diff(known)).min(initial=np.inf)) / 2:  # otherwise it is turned
                self._note(file, "noise", name, f"up to {apart:.3g} apart", "counts as equal")

    def _same(
        self, variable: ParsedVariable, known: ParsedVariable, turned: Mapping[str, Ints], circle: bool
    ) -> bool:
        """Whether a variable is the expected one when its axes are turned."""
        seen = reconcile.align_axes(variable.loaded, variable.dims, known.dims, turned)
        if seen is not None and reconcile.values_are_close(seen, known.loaded, self.rules.tolerance, circle):
            return True
        # Only the attributes of a grid mapping count: its value means nothing.
        return is_grid_mapping(known.attrs) and json_attributes(variable.attrs) == json_attributes(
            known.attrs
        )

    def _check_variable(self, name: str, variable: ParsedVariable, file: ParsedFile) -> None:
        if variable.name != name:
            done = f"ingested under this name ({argument('rename')})"
            self._note(file, "name", name, f"called {variable.name!r}", done)
        if self.rules.copy == "never" and variable.reason:
            raise IngestError(f"{name!r}: {variable.reason}, and {argument('copy', 'never')} was requested")
        decoding = self.decode(file.url, name, variable)
        known = self.data.get(name)
        if known is None:
            known = self._sibling(name)
            if known is None:
                return
            known = replace(known, units=None, dtype=None)
        if not self._fits(variable, known):
            expected = _axes(known.dims, [known.sizes.get(dim, -1) for dim in known.dims])
            own = _axes(variable.sizes, variable.sizes.values())
            raise IngestError(f"{name!r} has the axes {own}, but {known.source} has {expected}")
        units, target = units_of(variable.attrs), known.units
        if target is not None and units != target:
            ignore, done = argument("units", "ignore"), "converted on reading"
            text = f"{name!r} has the units {units!r}, but {known.source} has {target!r}"
            if self.rules.units == "ignore":
                done = f"kept as they are ({ignore})"
            elif self.rules.convert_units:
                try:
                    decoding = decoding.converted(reconcile.conversion(units, target))
                except IngestError as error:
                    raise IngestError(f"{text}: {error}") from error
                self._decodings[file.url, name] = decoding
                self.converted.add((file.url, name))
            else:
                convert = reconcile.conversion_option(units, target)
                raise IngestError(
                    f"{text} ({convert + ', ' if convert else ''}{ignore} keeps the numbers as they are)"
                )
            self._note(file, "units", name, f"{units!r} instead of {target!r}", done)
        if name in self.rules.dtypes and decoding.values.kind in "iuf":
            return  # values are rounded
        dtype = known.dtype or known.seen
        fixed = known.is_declared or (known.nulls and known.dtype is not None)
        if dtype is not None:
            reconcile.check_type(name, decoding.values, dtype, known.source, fixed=fixed)

    def decode(self, url: str, name: str, variable: ParsedVariable) -> CFDecoding:
        """How the numbers of a file's variable become values, in the units of the dataset."""
        if (url, name) not in self._decodings:
            known = self.data.get(name) or self._sibling(name)
            nulls = self.rules.nulls if known is None else known.nulls
            self._decodings[url, name] = CFDecoding.of(variable.dtype, variable.attrs, nulls=nulls)
        return self._decodings[url, name]

    def _fits(self, variable: ParsedVariable, known: ExpectedVariable) -> bool:
        """Whether a variable has the same axes, in any order; those of length 1 may be there or not."""
        own = variable.sizes
        if tuple(own) == known.dims and self._fixed(own, own.values()) == known.sizes:
            return True
        extra = [n for dim, n in own.items() if dim not in known.dims]
        fixed = {dim: own.get(dim, 1) for dim in known.sizes}
        return set(self.dims) <= own.keys() and all(n == 1 for n in extra) and fixed == known.sizes

    def _learn(self, file: ParsedFile, data: Mapping[str, ParsedVariable]) -> None:
        for name, variable in data.items():
            if name not in self.data and (self._takes(name) or not self.has_variables):
                own, nulls = variable.sizes, self.rules.nulls
                sizes, units = self._fixed(own, own.values()), units_of(variable.attrs)
                self.data[name] = ExpectedVariable(tuple(own), sizes, units, None, file.url, nulls)
            elif name not in self.data and name not in self.unreadable:
                text = (
                    f"the dataset does not have it, but {file.url} does "
                    f"({argument('add_variables', True)} adds it)"
                )
                self.dropped.setdefault(name, text)
            expected = self.data.get(name)
            if expected is not None and expected.dtype is None:
                kind = self.decode(file.url, name, variable).values
                expected.seen = kind if expected.seen is None else np.result_type(expected.seen, kind)
        self.has_variables = True
        self.unreadable |= file.left_out.keys()
        if self.attributes is not None:
            self.attributes.add(file)
        for name, variable in file.variables.items():
            if variable.role == "static" and variable.values is not None:
                self.static.setdefault(name, ExpectedCoordinate(variable, file.url))
            elif variable.role == "concat":
                self.concat.setdefault(name, ExpectedCoordinate(variable, file.url))


def _axes(dims: Iterable[str], shape: Iterable[int]) -> str:
    return "(" + ", ".join(f"{d}={n if n >= 0 else '…'}" for d, n in zip(dims, shape, strict=True)) + ")"
