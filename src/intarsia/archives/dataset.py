"""A dataset in a repository: what is there already, and what every file is held against.

That is the dataset as it is, or the first file of a new one. Its ledger says which files went into it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from intarsia.archives.cf import Decoding, clean, decoded_fill_attribute
from intarsia.archives.coordinates import calendar_of, counts_time, same_values
from intarsia.archives.parsed import ParsedFile, ParsedVariable
from intarsia.array.document import MANIFEST_KEY
from intarsia.array.hierarchy import open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.values import is_nullable, values_dtype
from intarsia.errors import IngestError

LEDGER = "intarsia-sources"
"""Name of the group; a variable of that name cannot be ingested."""

DOCUMENT = "document"
"""Name of the array in it: JSON, as bytes."""

MOST_MEMBERS = 1_000
"""Encodings of a variable that are remembered; if one returns after more others, it gets a new member."""

VERSION = 1
DESCRIPTION = "the sources of this dataset in the order of its axis, and the member of every encoding"


@dataclass
class Ledger:
    """The sources in the order of the axis, and the member of every encoding.

    It stands in a group beside the arrays, so that a later call knows which files are new.
    """

    locations: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What identifies the content that each had."""

    lengths: list[int] = field(default_factory=list)
    """How many steps each contributes."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    @property
    def starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """First step of each source."""
        return np.cumsum([0, *self.lengths], dtype=np.int64)[:-1]

    @property
    def total(self) -> int:
        return sum(self.lengths)

    def rearranged(self, kept: Iterable[int], placed: Iterable[tuple[ParsedFile, int, int]]) -> "Ledger":
        """The sources in the order of the axis as it will be: new ones in their places, kept ones between.

        New ones come with their first step and number of steps, in the order of the axis.
        """
        stays = [(self.locations[i], self.contents[i], self.lengths[i]) for i in reversed(list(kept))]
        entries: list[tuple[str, str, int]] = []
        at = 0
        for file, start, length in placed:
            while at < start:
                entries.append(stays.pop())
                at += entries[-1][2]
            entries.append((file.url, file.identity.text, length))
            at += length
        entries += reversed(stays)
        members = {name: dict(known) for name, known in self.members.items()}
        return Ledger([e[0] for e in entries], [e[1] for e in entries], [e[2] for e in entries], members)

    @classmethod
    def read(cls, group: zarr.Group) -> Self:
        """The ledger of a dataset; an empty one if it has none."""
        if LEDGER not in group:
            return cls()
        node: Any = group[LEDGER]
        version = node.attrs.get("version")
        if version != VERSION:
            raise IngestError(
                f"the ledger of {group.store_path} has version {version}, which this intarsia does not read"
            )
        document = json.loads(np.asarray(node[DOCUMENT][...]).tobytes())
        return cls(*(document[key] for key in ("locations", "contents", "lengths", "members")))

    def write(self, group: zarr.Group, concat_dim: str) -> None:
        """Put the ledger in its place."""
        document = {
            "locations": self.locations,
            "contents": self.contents,
            "lengths": self.lengths,
            "members": {
                name: dict(list(known.items())[-MOST_MEMBERS:]) for name, known in self.members.items()
            },
        }
        node = group.require_group(LEDGER)
        node.attrs.put({"version": VERSION, "concat_dim": concat_dim, "description": DESCRIPTION})
        data = np.frombuffer(json.dumps(document, separators=(",", ":")).encode(), dtype=np.uint8)
        array = node.create_array(
            DOCUMENT, shape=data.shape, dtype=data.dtype, chunks=data.shape, fill_value=0,
            compressors=ZstdCodec(level=3), overwrite=True,
        )  # fmt: skip
        array[...] = data


@dataclass
class Dataset:
    """A dataset in a repository: what is there already; nothing, for a new one."""

    ledger: Ledger = field(default_factory=Ledger)
    """Its sources."""

    logical_groups: dict[str, LogicalGroup] = field(default_factory=dict)
    """Its logical arrays."""

    plain: dict[str, Any] = field(default_factory=dict)
    """Its coordinates and other loaded arrays."""

    concat_dim: str = ""
    """The dimension that it grows along."""

    @property
    def is_new(self) -> bool:
        return not self.ledger.locations

    @classmethod
    def read(cls, store: Any, path: str) -> Self:
        """The dataset at a path of a store."""
        group = _group(store, path)
        if group is None:
            return cls()
        dataset = cls(Ledger.read(group))
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                dataset.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                dataset.logical_groups[name] = LogicalGroup.load(child)
            elif name == LEDGER:
                dataset.concat_dim = str(child.attrs.get("concat_dim", ""))
        return dataset

    @staticmethod
    def read_ledger(store: Any, path: str) -> Ledger:
        """Only the ledger of the dataset."""
        group = _group(store, path)
        return Ledger() if group is None else Ledger.read(group)

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """The stored values of a plain array."""
        return np.asarray(self.plain[name][...])

    def attrs(self, name: str) -> dict[str, Any]:
        """The attributes of a plain array."""
        array: zarr.Array[Any] = self.plain[name]
        attrs: dict[str, Any] = dict(array.metadata.attributes)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], array.dtype)
        return attrs


def _group(store: Any, path: str) -> zarr.Group | None:
    try:
        group = open_group(store, path, "r" if getattr(store, "read_only", False) else "r+")
    except FileNotFoundError:
        return None
    except ValueError as error:  # an array stands there
        raise IngestError(f"{path!r} is an array: a dataset needs a group of its own") from error
    if MANIFEST_KEY in group.attrs:
        raise IngestError(
            f"{path!r} is a logical array itself; a dataset is a group that holds some.\n"
            "  Choose another group: intarsia.ingest(…, group='name')"
        )
    return group


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict to be."""

    copy: str = "needed"
    """`needed`, `all` or `never`."""

    missing: str = "raise"
    """What a variable means that a file lacks: `raise` refuses the file, `fill` leaves a hole."""

    units: str = "equal"
    """Whether the units of a variable must be `equal` in all files; `ignore` trusts you."""

    dtypes: Mapping[str, np.dtype[Any]] = field(default_factory=dict)
    """Data types that were asked for."""

    nulls: bool = False
    """Whether missing values of new arrays become null; an array that is there keeps its own way."""


@dataclass(slots=True)
class ExpectedVariable:
    """A data variable as the dataset has it."""

    dims: tuple[str, ...]
    cross: tuple[int, ...]
    """Sizes of all axes but the concatenation axis."""

    units: str
    """Its units; empty if it has none."""

    dtype: np.dtype[Any] | None
    """Its data type, if that is settled."""

    source: str
    """Where that was seen."""

    nulls: bool = False
    """Whether its values may be null."""


class Expected:
    """Collects what the dataset is, and says for each file what does not fit."""

    def __init__(self, dim: str, rules: Rules, dataset: Dataset, wanted: tuple[str, ...] | None) -> None:
        self.dim, self.rules = dim, rules
        self.data: dict[str, ExpectedVariable] = {}
        self.static: dict[str, tuple[np.ndarray[Any, Any], str]] = {}
        self.mappings: dict[str, dict[str, Any]] = {}
        self.wanted = wanted
        self.settled = not dataset.is_new
        self.calendars: dict[str, tuple[str, str]] = {}
        self.dropped: dict[str, str] = {}
        for name, logical in dataset.logical_groups.items():
            manifest = logical.manifest
            dims = tuple(str(each) for each in manifest.dimension_names or ())
            if dim not in dims:
                continue
            axis = dims.index(dim)
            cross = manifest.shape[:axis] + manifest.shape[axis + 1 :]
            units = str(logical.group.attrs.get("units", ""))
            dtype, nulls = values_dtype(manifest.data_type), is_nullable(manifest.data_type)
            self.data[name] = ExpectedVariable(dims, cross, units, dtype, "the dataset", nulls)
        for name, array in dataset.plain.items():
            attrs = dataset.attrs(name)
            if dim not in (array.metadata.dimension_names or ()):
                self.static[name] = (dataset.values(name), "the dataset")
                if "grid_mapping_name" in attrs:
                    self.mappings[name] = clean(attrs)
            elif counts_time(attrs):
                self.calendars[name] = (calendar_of(attrs), "the dataset")

    def problem(self, file: ParsedFile) -> str:
        """Why this file does not fit; empty if it does, and then it is part of what is expected."""
        data = {name: v for name, v in file.variables.items() if v.role == "data"}
        if not data and not self.data:
            return f"it has no variable along {self.dim!r}"
        problem = self._missing(data) or self._calendar(file) or self._grid(file)
        for name, variable in data.items():
            if not problem and (name in self.data or self._takes(name)):
                problem = self._variable(name, variable)
        if not problem:
            self._learn(file, data)
        return problem

    def _takes(self, name: str) -> bool:
        """Whether a variable that was not seen before becomes part of the dataset."""
        return not self.data or self.rules.missing == "fill" or name in (self.wanted or ())

    def _missing(self, data: Mapping[str, ParsedVariable]) -> str:
        if self.rules.missing == "fill":
            return ""
        expected = [*self.data, *(name for name in self.wanted or () if name not in self.static)]
        absent = sorted({name for name in expected if name not in data})
        if not absent:
            return ""
        return (
            f"it has no variable {', '.join(map(repr, absent))} along {self.dim!r} "
            "(missing='fill' would leave a hole there)"
        )

    def _calendar(self, file: ParsedFile) -> str:
        for name, variable in file.variables.items():
            if variable.role == "joined" and counts_time(variable.attrs) and name in self.calendars:
                calendar, source = self.calendars[name]
                own = calendar_of(variable.attrs)
                if own != calendar:
                    return (
                        f"its {name!r} counts in the calendar {own!r}, that of {source} in {calendar!r}: "
                        "a dataset has one calendar"
                    )
        return ""

    def _grid(self, file: ParsedFile) -> str:
        axes = {dim for v in file.variables.values() if v.role == "data" for dim in v.dims}
        listed = {
            name for v in file.variables.values() for name in str(v.attrs.get("coordinates", "")).split()
        }
        for name, variable in file.variables.items():
            if variable.role != "static" or name not in self.static or variable.values is None:
                continue
            values, source = self.static[name]
            if same_values(variable.values, values):
                continue
            if name in self.mappings and clean(variable.attrs) == self.mappings[name]:
                continue  # a grid mapping, whose value means nothing
            if name in axes or (name in listed and variable.dims):
                return f"its {name!r} is not that of {source}: {_difference(variable.values, values)}"
            self.dropped[name] = (
                f"it has no dimension {self.dim!r}, and differs between {source} and {file.url}"
            )
        return ""

    def _variable(self, name: str, variable: ParsedVariable) -> str:
        if self.rules.copy == "never" and variable.reason:
            return f"{name!r}: {variable.reason}; and copy='never' was asked for"
        known = self.data.get(name)
        nulls = self.rules.nulls if known is None else known.nulls
        values = Decoding.of(variable.dtype, variable.attrs, nulls=nulls).values
        if known is None:
            return ""
        if variable.dims != known.dims or variable.cross(self.dim) != known.cross:
            axis = known.dims.index(self.dim)
            expected = _axes(known.dims, (*known.cross[:axis], -1, *known.cross[axis:]))
            own = _axes(variable.dims, variable.shape)
            return f"{name!r} has the axes {own}, but {known.source} has {expected}"
        units = str(variable.attrs.get("units", ""))
        if units != known.units and self.rules.units == "equal":
            return (
                f"{name!r} has the units {units!r}, but {known.source} has {known.units!r} "
                "(units='ignore' takes the numbers as they are)"
            )
        if (
            known.dtype is not None
            and name not in self.rules.dtypes
            and not np.can_cast(values, known.dtype, "safe")
            and widened(known.dtype, [values]) is None
        ):
            return (
                f"{name!r} has values of type {values}, which the dataset's {known.dtype} cannot "
                f"hold without loss (dtype={{{name!r}: {str(known.dtype)!r}}} rounds them)"
            )
        return ""

    def _learn(self, file: ParsedFile, data: Mapping[str, ParsedVariable]) -> None:
        for name, variable in data.items():
            if name not in self.data and (self._takes(name) or not self.settled):
                dims, cross = variable.dims, variable.cross(self.dim)
                units, nulls = str(variable.attrs.get("units", "")), self.rules.nulls
                self.data[name] = ExpectedVariable(dims, cross, units, None, file.url, nulls)
            elif name not in self.data:
                self.dropped[name] = (
                    f"the dataset does not have it, but {file.url} does (missing='fill' takes it)"
                )
        self.settled = True
        for name, variable in file.variables.items():
            if variable.role == "static" and variable.values is not None:
                self.static.setdefault(name, (variable.values, file.url))
                if "grid_mapping_name" in variable.attrs:
                    self.mappings.setdefault(name, clean(variable.attrs))
            elif variable.role == "joined" and counts_time(variable.attrs):
                self.calendars.setdefault(name, (calendar_of(variable.attrs), file.url))


def widened(dtype: np.dtype[Any], arriving: Iterable[np.dtype[Any]]) -> np.dtype[Any] | None:
    """The floating-point type that holds the values of `dtype` and of all `arriving` exactly, if it is wider.

    A float holds an integer exactly if the integer's bits fit into its mantissa.

    >>> widened(np.dtype("f4"), [np.dtype("f8")]), widened(np.dtype("f8"), [np.dtype("f4")])
    (dtype('float64'), None)
    """
    common = np.result_type(dtype, *arriving)
    held = [dtype, *arriving]
    if common == dtype or common.kind != "f" or any(each.kind not in "iuf" for each in held):
        return None
    whole_bits = np.finfo(common).nmant + 1  # the leading one is not stored
    exact = all(each.kind == "f" or each.itemsize * 8 <= whole_bits for each in held)
    return common if exact else None


def _axes(dims: tuple[str, ...], shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(f"{d}={n if n >= 0 else '…'}" for d, n in zip(dims, shape, strict=True)) + ")"


def _difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    if a.shape != b.shape:
        return f"shape {a.shape} instead of {b.shape}"
    if a.dtype.kind not in "iuf" or b.dtype.kind not in "iuf" or not a.size:
        return f"{a.dtype} instead of {b.dtype}" if a.dtype != b.dtype else "other values"
    return f"values from {a.min():g} to {a.max():g} instead of {b.min():g} to {b.max():g}"
