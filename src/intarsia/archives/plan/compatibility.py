"""What every file is compared with: the dataset as it is, or the first file of a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.archives.cf import CFDecoding, json_attributes, units_of
from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, Role, is_grid_mapping, with_names_of
from intarsia.archives.plan import reconcile
from intarsia.archives.plan.attribute_merging import REFUSING, AttributeMerger, Rule
from intarsia.archives.plan.axis_union import spans
from intarsia.archives.plan.coordinates import DATASET, calendar_of, has_time_units, quoted, same_values
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

    combine_attrs: Rule = "override"
    """What happens to attributes that differ between files: a rule of xarray's."""

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
    """Which variables are stacked, by array."""


@dataclass(frozen=True, slots=True)
class ExpectedVariable:
    """A data variable as the dataset has it, or several that are stacked into one array."""

    dims: tuple[str, ...]
    sizes: dict[str, int]
    """The sizes of all axes except those that grow from file to file."""

    dtype: np.dtype[Any]
    """The data type of its values in `source`."""

    source: str
    """The file or dataset that this comes from."""

    nulls: bool = False
    """Whether its values may be null."""

    is_fixed: bool = False
    """Whether nothing widens its data type."""

    stack: dict[str, int] = field(default_factory=dict)
    """The first axis of the array and its length, if variables are stacked along it."""


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
        self.stacked = dict(dataset.ledger.stacked)
        """For every stacked variable: the array, and the step of its first axis."""
        for array, named in rules.stacks.items():
            named.check(array, dataset)
            self.stacked |= {part: (array, step) for step, part in enumerate(named.parts)}
        self.names: dict[str, None] = {}
        """The data variables that files are expected to have."""
        self.data: dict[str, ExpectedVariable] = {}
        """What is expected of them, by array."""
        self.units: dict[str, str] = {}
        """The units of variables, empty if they have none; any are allowed for those that are not here."""
        self.coordinates: dict[tuple[Role, str], ExpectedCoordinate] = {}
        """Coordinates along the dimensions that grow, and variables that are the same in all files."""
        self.requested = variables or ()
        self.attributes: AttributeMerger | None = None
        if rules.combine_attrs in REFUSING:
            self.attributes = AttributeMerger(rules.combine_attrs, dataset, self.array_of)
        self.dropped: dict[str, str] = {}
        self.notes: dict[str, list[tuple[str, str, str, str]]] = {}
        """How files differ although they fit, by URL: kind, variable, how, and what is done about it."""
        self.unreadable: set[str] = set()
        """Variables that a file has in a form that cannot be read: they do not become missing values."""
        self.turned: dict[str, dict[str, Ints]] = {}
        """Where the steps of axes are that are in another order than expected, by URL and dimension."""
        self.converted: set[tuple[str, str]] = set()
        """What is converted to the dataset's units, by URL and variable."""
        self.decodings: dict[tuple[str, str], CFDecoding] = {}
        """How numbers become values, in the units of the dataset, by URL and variable."""
        for name, logical in dataset.logical_groups.items():
            manifest = logical.manifest
            own = tuple(str(each) for each in manifest.dimension_names or ())
            if not set(dims) <= set(own):
                continue
            parts = [part for part, (array, _) in self.stacked.items() if array == name]
            sizes = dict(zip(own, manifest.shape, strict=True))
            stack = {own[0]: sizes[own[0]]} if parts else {}
            sizes = {dim: n for dim, n in sizes.items() if dim not in (*dims, *stack)}
            dtype, nulls = values_dtype(manifest.data_type), is_nullable(manifest.data_type)
            inner = own[len(stack) :]
            self.data[name] = ExpectedVariable(inner, sizes, dtype, DATASET, nulls, nulls, stack)
            given = rules.stacks.get(name)
            self.names |= dict.fromkeys((parts or [name]) if given is None else given.parts)
            if not parts:  # those of a stack may differ in their units
                self.units[name] = units_of(logical.group.attrs)
        for name in dataset.plain:
            role: Role = "concat" if set(dims) & set(dataset.dims(name)) else "static"
            self.coordinates[role, name] = ExpectedCoordinate(dataset.variable(name, role), DATASET)

    def array_of(self, name: str) -> str:
        """The array that shows a variable."""
        return self.stacked[name][0] if name in self.stacked else name

    def declare(self, schema: Schema) -> None:
        """Process what was declared, in place of the first file; the dataset, if there is one, has to fit."""
        try:
            self.add(schema.file, extends=True)
        except IngestError as error:
            raise IngestError(f"the schema cannot be met: {error}") from None
        for name, dtype in schema.dtypes.items():
            known = self.data.get(name)
            if known is None:
                continue
            if known.source == DATASET and known.dtype != dtype:
                raise IngestError(
                    f"the schema says that {name!r} is {dtype}; in the dataset it is {known.dtype}"
                )
            self.data[name] = replace(known, dtype=dtype, is_fixed=True)

    def add(self, file: ParsedFile, extends: bool = False) -> None:
        """Make a file that fits part of what is expected.

        A file that `extends` the dataset is already there, and holds only the parts that are new.
        """
        self._rename_invented(file)
        for dim in file.new_dims:
            self._note(file, "dimension", dim, f"there is no {dim!r}", "it is one step of it")
        data = {name: v for name, v in file.variables.items() if v.role == "data"}
        if not data and not self.data:
            raise IngestError(f"it has no variable along {quoted(self.dims)}{file.left_out_text}")
        self._check_unreadable(file, data)
        if not extends and self.rules.missing != "fill":
            self._check_missing(data)
        self._check_units(file)
        self._check_grid(file)
        if self.attributes is not None:
            self.attributes.check(file)
        learned, taken = dict(self.data), [name for name in data if self._takes(name)]
        for name in taken:
            array = self.array_of(name)
            learned[array] = self._check_variable(name, data[name], file, learned.get(array))
        self.data = learned
        self._learn(file, data, taken)

    def _note(self, file: ParsedFile, kind: str, variable: str, what: str, done: str) -> None:
        self.notes.setdefault(file.url, []).append((kind, variable, what, done))

    def _rename_invented(self, file: ParsedFile) -> None:
        """Give axes without names the names of the dataset: they depend on everything else in a file."""
        for name, variable in file.variables.items():
            other = self.coordinates.get(("static", name)) or self.coordinates.get(("concat", name))
            dims = () if other is None else other.variable.dims
            known = self.data.get(self.array_of(name))
            with_names_of(variable, dims if known is None else known.dims, self.dims)

    def _takes(self, name: str) -> bool:
        """Whether a variable is part of the dataset, or becomes one."""
        is_first = not self.data or self.array_of(name) in self.data
        wanted = is_first or name in self.requested or self.rules.missing == "fill"
        return name in self.names or (name not in self.unreadable and (wanted or self.rules.add_variables))

    def _check_unreadable(self, file: ParsedFile, data: Mapping[str, ParsedVariable]) -> None:
        """Refuse a file that has a variable of the dataset in a form that cannot be read."""
        arrays = {*self.data, *map(self.array_of, data)}
        for name, why in file.left_out.items():
            is_known = self.array_of(name) in arrays or ("concat", name) in self.coordinates
            if is_known or name in self.requested:
                raise IngestError(f"its variable {name!r} cannot be read: {why}")

    def _check_missing(self, data: Mapping[str, ParsedVariable]) -> None:
        named = (name for name in self.requested if ("static", name) not in self.coordinates)
        expected = [*self.names, *named]
        absent = sorted({name for name in expected if name not in data})
        if absent:
            raise IngestError(
                f"it has no variable {', '.join(map(repr, absent))} along {quoted(self.dims)} "
                f"({argument('rename')} finds it under another name; {argument('missing', 'fill')} would "
                "leave a hole there)"
            )

    def _check_units(self, file: ParsedFile) -> None:
        """Refuse other units and calendars of coordinates; if requested, units are converted."""
        for name, variable in list(file.variables.items()):
            if (variable.role, name) not in self.coordinates:
                continue
            known, source = self.coordinates[variable.role, name]
            own, units = units_of(variable.attrs), units_of(known.attrs)
            if variable.role == "concat":
                if has_time_units(variable.attrs) and has_time_units(known.attrs):
                    calendars = (calendar_of(each.attrs) for each in (variable, known))
                    for kind, ours, theirs in (("calendar", *calendars), ("time units", own, units)):
                        if ours != theirs:
                            text = f"{ours!r} instead of {theirs!r}"
                            self._note(file, kind, name, text, "the times are the same")
                elif own != units:
                    text = f"its {name!r} has the units {own!r}, but that of {source} has {units!r}"
                    self._conversion(text, own, units)
                    reconcile.convert_coordinate(file, name, units)
            elif self.rules.convert_units and own != units:
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
            if variable.role == "static" and ("static", name) in self.coordinates
        }
        circular = {name for name, variable in static.items() if reconcile.is_longitude(name, variable.attrs)}
        circular |= {str(static[name].attrs.get("bounds")) for name in circular}
        turned: dict[str, Ints] = {}
        # axes first: other variables along them are turned with them
        for name, variable in sorted(static.items(), key=lambda item: item[0] not in axes):
            known, source = self.coordinates["static", name]
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
                text = f"its {name!r} differs from that of {source}: "
                text += reconcile.difference(variable.loaded, known.loaded)
                if own != units:
                    self._conversion(f"{text}; its units are {own!r} instead of {units!r}", own, units)
                elif not text.endswith("accepts it)") and name in axes:
                    text += (
                        f" (to concatenate files along it, name {name!r} in {argument('concat_dim')}; "
                        f"{argument('group', ...)} puts files on another grid beside the others)"
                    )
                raise IngestError(text)
            self.dropped[name] = (
                f"it has no dimension {quoted(self.dims)}, and differs between {source} and {file.url}"
            )
        if turned:
            self.turned[file.url] = turned

    def _note_noise(self, file: ParsedFile, name: str, own: Any, known: Any) -> None:
        """Note how coordinates differ that count as equal."""
        if own.dtype != known.dtype:
            text = f"{own.dtype} instead of {known.dtype}"
            self._note(file, "coordinate type", name, text, "counts as equal")
        if own.dtype.kind in "iuf" and known.dtype.kind in "iuf":
            apart = float(np.abs(own.astype("f8") - known).max(initial=0))
            if 0 < apart < np.abs(np.diff(known)).min(initial=np.inf) / 2:  # otherwise it is turned
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

    def _check_variable(
        self, name: str, variable: ParsedVariable, file: ParsedFile, known: ExpectedVariable | None
    ) -> ExpectedVariable:
        """Refuse a data variable that does not fit; returns what is expected of the next."""
        if variable.name != name:
            done = f"ingested under this name ({argument('rename')})"
            self._note(file, "name", name, f"called {variable.name!r}", done)
        if self.rules.copy == "never" and variable.reason:
            raise IngestError(f"{name!r}: {variable.reason}, and {argument('copy', 'never')} was requested")
        own, nulls = variable.sizes, self.rules.nulls if known is None else known.nulls
        decoding = CFDecoding.of(variable.dtype, variable.attrs, nulls=nulls)
        if known is None:
            sizes = {dim: n for dim, n in own.items() if dim not in self.dims}
            stack = self.rules.stacks.get(self.array_of(name))
            above = {} if stack is None else {stack.dim: len(stack.parts)}
            source = file.url if stack is None else f"{name!r} of {file.url}"
            known = ExpectedVariable(tuple(own), sizes, decoding.values, source, nulls, stack=above)
        elif not self._fits(own, known):
            expected = _axes({dim: known.sizes.get(dim, -1) for dim in known.dims})
            raise IngestError(f"{name!r} has the axes {_axes(own)}, but {known.source} has {expected}")
        units = units_of(variable.attrs)
        if units != self.units.get(name, units):
            decoding = self._in_units(name, decoding, file, units, known.source)
        self.decodings[file.url, name] = decoding
        is_rounded = name in self.rules.dtypes and decoding.values.kind in "iuf"
        if decoding.values != known.dtype and not is_rounded:
            reconcile.check_type(name, decoding.values, known.dtype, known.source, fixed=known.is_fixed)
        return known

    def _in_units(
        self, name: str, decoding: CFDecoding, file: ParsedFile, units: str, source: str
    ) -> CFDecoding:
        """How numbers in other units become values, if that is allowed."""
        ignore, done, target = argument("units", "ignore"), "converted on reading", self.units[name]
        if self.rules.units == "ignore":
            done = f"kept as they are ({ignore})"
        else:
            text = f"{name!r} has the units {units!r}, but {source} has {target!r}"
            option = f"{ignore} keeps the numbers as they are"
            decoding = decoding.converted(self._conversion(text, units, target, option))
            self.converted.add((file.url, name))
        self._note(file, "units", name, f"{units!r} instead of {target!r}", done)
        return decoding

    def _conversion(self, text: str, own: str, target: str, *others: str) -> reconcile.Conversion:
        """How units are converted, if they can be and may be; `others` are other options, in words."""
        if not self.rules.convert_units:
            options = [each for each in (reconcile.conversion_option(own, target), *others) if each]
            raise IngestError(text + (f" ({', '.join(options)})" if options else ""))
        try:
            return reconcile.conversion(own, target)
        except IngestError as error:
            raise IngestError(f"{text}: {error}") from error

    def _fits(self, own: Mapping[str, int], known: ExpectedVariable) -> bool:
        """Whether a variable has the same axes, in any order; those of length 1 may be there or not."""
        extra = [n for dim, n in own.items() if dim not in known.dims]
        fixed = {dim: own.get(dim, 1) for dim in known.sizes}
        return set(self.dims) <= own.keys() and all(n == 1 for n in extra) and fixed == known.sizes

    def _learn(self, file: ParsedFile, data: Mapping[str, ParsedVariable], taken: Sequence[str]) -> None:
        for name in taken:
            if name not in self.names:
                self.units[name], self.names[name] = units_of(data[name].attrs), None
        for name in data:
            if name not in self.names and name not in self.unreadable:
                option = argument("add_variables", True)
                text = f"the dataset does not have it, but {file.url} does ({option} adds it)"
                self.dropped.setdefault(name, text)
        self.unreadable |= file.left_out.keys()
        if self.attributes is not None:
            self.attributes.add(file)
        for name, variable in file.variables.items():
            if variable.role != "data":
                self.coordinates.setdefault((variable.role, name), ExpectedCoordinate(variable, file.url))


def _axes(sizes: Mapping[str, int]) -> str:
    return "(" + ", ".join(f"{dim}={n if n >= 0 else '…'}" for dim, n in sizes.items()) + ")"
