"""The manifest of a logical array: what it is, how it is stored in a group's attributes, how it is checked.

The format is specified in docs/spec/manifest.md.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.dtype import parse_dtype

from intarsia import schemas
from intarsia.array.box import Box, chunk_grid
from intarsia.array.table import Ints, RegionTable, Row
from intarsia.array.values import data_type_of, is_nullable, values_dtype
from intarsia.casting import cast
from intarsia.errors import DataTypeError, ManifestError, ManifestVersionError, ShapeError
from intarsia.words import one_line

if TYPE_CHECKING:
    import zarr
    from zarr.dtype import ZDType

__all__ = [
    "CONVENTION",
    "CONVENTIONS_KEY",
    "INLINE_REGIONS",
    "MANIFEST_KEY",
    "NAME",
    "VERSION",
    "Manifest",
    "sizes_of",
]

MANIFEST_KEY = "intarsia"
CONVENTIONS_KEY = "zarr_conventions"
VERSION = 1
INLINE_REGIONS = 5_000
"""Above this many regions, the table moves out of the attributes into an array."""

CONVENTION = {
    "uuid": "6ad1d1a8-53a4-4d1f-9f0e-3c6f0b8e2a5c",
    "schema_url": "https://raw.githubusercontent.com/intarsia/intarsia/v1/src/intarsia/schemas/manifest.schema.json",
    "spec_url": "https://github.com/intarsia/intarsia/blob/v1/docs/spec/manifest.md",
    "name": MANIFEST_KEY,
    "description": "One logical array assembled from several Zarr arrays, each with its own encoding.",
}

NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,255}\Z")
COLUMNS = ("member", "start", "stop", "member_start")
MOST_ELEMENTS = 1 << 62
"""Positions of elements are computed with 64 bits, and this leaves room for a sum."""
MOST_REGIONS = 10_000_000
"""A table that claims more than this is not even read."""
SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class Manifest:
    """What a logical array is made of.

    >>> manifest = Manifest.empty((1000, 1000), (100, 100), "float32")
    >>> manifest.lattice, manifest.generation
    ((10, 10), 0)
    """

    generation: int
    """Raised by every change."""

    shape: tuple[int, ...]
    """Of the logical array, in elements."""

    chunk_shape: tuple[int, ...]
    """The lattice that regions align to."""

    data_type: ZDType[Any, Any]
    """What every member decodes to."""

    fill_value: Any
    """What reads where no region is."""

    dimension_names: tuple[str | None, ...] | None
    """A name or None for each axis."""

    members: tuple[str, ...]
    """Names of the backing arrays."""

    regions: RegionTable
    """Which box is backed by which member."""

    @classmethod
    def empty(
        cls,
        shape: tuple[int, ...],
        chunk_shape: tuple[int, ...],
        data_type: Any,
        fill_value: Any = None,
        dimension_names: tuple[str | None, ...] | None = None,
    ) -> Manifest:
        """A manifest without regions."""
        # As a reader will find it: a byte order is how a member stores values, not what they are.
        stored: Any = data_type_of(data_type).to_json(zarr_format=3)
        zdtype = parse_dtype(stored, zarr_format=3)
        fill = zdtype.default_scalar() if fill_value is None else _fill_value(zdtype, fill_value)
        table = RegionTable.from_rows([], len(shape))
        return cls(0, shape, chunk_shape, zdtype, fill, dimension_names, (), table)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def lattice(self) -> tuple[int, ...]:
        """Number of logical chunks on each axis."""
        return chunk_grid(self.shape, self.chunk_shape)

    def elements(self, box: Box) -> Box:
        """A box of logical chunks in elements, cut at the array's edge.

        >>> Manifest.empty((250,), (100,), "i4").elements(Box((1,), (3,)))
        Box(start=(100,), stop=(250,))
        """
        stop = tuple(map(min, self._times_chunk(box.stop), self.shape))
        return Box(self._times_chunk(box.start), stop)

    def cells(self, elements: Box) -> Box:
        """The logical chunks that a box of elements lies in.

        >>> Manifest.empty((250,), (100,), "i4").cells(Box((120,), (250,)))
        Box(start=(1,), stop=(3,))
        """
        return elements.in_units(self.chunk_shape)

    def member_shift(self, row: Row) -> tuple[int, ...]:
        """What to add to an element of a region to get its place in the member.

        >>> Manifest.empty((250,), (100,), "i4").member_shift(Row(0, Box((1,), (3,)), (0,)))
        (-100,)
        """
        return self._times_chunk(row.shift)

    def in_member(self, row: Row) -> Box:
        """The box of its member that a region shows, in elements.

        >>> Manifest.empty((250,), (100,), "i4").in_member(Row(0, Box((1,), (3,)), (0,)))
        Box(start=(0,), stop=(150,))
        """
        return self.elements(row.box).shifted(self.member_shift(row))

    def _times_chunk(self, cells: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i * c for i, c in zip(cells, self.chunk_shape, strict=True))

    def region_bounds(self) -> tuple[Ints, Ints]:
        """First and last (excluded) element of every region."""
        chunk = np.array(self.chunk_shape, dtype=np.int64)
        start = self.regions.start * chunk
        return start, np.minimum(self.regions.stop * chunk, np.array(self.shape, dtype=np.int64))

    def member_starts(self) -> Ints:
        """Where every region starts in its member, in elements."""
        return self.regions.member_start * np.array(self.chunk_shape, dtype=np.int64)

    def changed(
        self, *, regions: RegionTable, members: tuple[str, ...] | None = None, **fields: Any
    ) -> Manifest:
        """The next generation, with these regions; members that no region refers to are left out."""
        names = self.members if members is None else members
        used, position = np.unique(regions.member, return_inverse=True)
        renumbered = RegionTable(
            position.reshape(-1).astype(np.int64), regions.start, regions.stop, regions.member_start
        )
        kept = tuple(names[i] for i in used.tolist())
        return replace(self, generation=self.generation + 1, members=kept, regions=renumbered, **fields)

    def same_routing(self, other: Manifest) -> bool:
        """Whether both send every element to the same place; generation apart, they are equal."""
        return replace(self, generation=0) == replace(other, generation=0)

    def check(self) -> None:
        """Raise what a reader of this manifest would raise."""
        Manifest.from_json(self._document("table"), self.regions.packed())

    def is_told_by(self, metadata: bytes) -> bool:
        """Whether a group's metadata document tells of this manifest, and not of a later or another one."""
        try:
            document = json.loads(metadata)["attributes"][MANIFEST_KEY]
            told = document["generation"], document["members"], document["shape"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        return bool(told == (self.generation, list(self.members), list(self.shape)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest):
            return NotImplemented
        return self._document(None) == other._document(None) and self.regions == other.regions

    __hash__ = None  # type: ignore[assignment]  # compared by what may change

    def _document(self, regions: object) -> dict[str, Any]:
        return {
            "version": VERSION,
            "generation": self.generation,
            "shape": list(self.shape),
            "chunk_shape": list(self.chunk_shape),
            "data_type": self.data_type.to_json(zarr_format=3),
            "fill_value": self.data_type.to_json_scalar(self.fill_value, zarr_format=3),
            "dimension_names": None if self.dimension_names is None else list(self.dimension_names),
            "members": list(self.members),
            "regions": regions,
        }

    def to_json(self, table_name: str | None = None) -> dict[str, Any]:
        """The manifest as it stands in the attributes; the regions inside, or in the array `table_name`.

        >>> Manifest.empty((4,), (2,), "u1").to_json()["regions"]["start"]
        []
        """
        if table_name is not None:
            return self._document(table_name)
        return self._document({name: getattr(self.regions, name).tolist() for name in COLUMNS})

    @classmethod
    def from_json(cls, document: object, table: Ints | zarr.Array[Any] | None = None) -> Manifest:
        """The manifest behind the attribute, checked; `table` holds the regions where it names a table.

        A table that lies in a store is read once its shape was found to be possible.

        >>> Manifest.from_json({"version": 2})
        Traceback (most recent call last):
        ...
        intarsia.errors.ManifestVersionError: the manifest has version 2, and this is intarsia ...
        """
        problems = _problems_of_fields(document)
        if problems:
            raise ManifestError(problems)
        assert isinstance(document, Mapping)
        regions, problems = _parse_regions(document, table)
        try:
            data_type = parse_dtype(document["data_type"], zarr_format=3)
            fill_value = data_type.from_json_scalar(document["fill_value"], zarr_format=3)
        except Exception as error:  # whatever data types raise over what is not theirs
            problems.append(f"data_type, fill_value: {one_line(error)}")
        if problems:
            raise ManifestError(problems)
        names = document["dimension_names"]
        manifest = cls(
            generation=document["generation"],
            shape=tuple(document["shape"]),
            chunk_shape=tuple(document["chunk_shape"]),
            data_type=data_type,
            fill_value=fill_value,
            dimension_names=None if names is None else tuple(names),
            members=tuple(document["members"]),
            regions=regions,
        )
        problems = manifest._problems_of_regions()
        if problems:
            raise ManifestError(problems)
        return manifest

    def _problems_of_regions(self) -> list[str]:
        """Everything that is wrong with the region table, found on whole columns."""
        table, found = self.regions, []
        if not len(table):
            return [f"members: {len(self.members)} listed, but there is no region"] if self.members else []
        outside = np.flatnonzero((table.member < 0) | (table.member >= len(self.members)))
        if outside.size:
            found.append(_rows("member", outside, f"refers past the list of {len(self.members)} members"))
        elif np.unique(table.member).size != len(self.members):
            unused = sorted(set(range(len(self.members))) - set(np.unique(table.member).tolist()))
            found.append(f"members[{unused[0]}] ({self.members[unused[0]]}) is used by no region")
        if bool((table.start < 0).any() or (table.member_start < 0).any()):
            low = np.flatnonzero((table.start < 0).any(axis=1) | (table.member_start < 0).any(axis=1))
            found.append(_rows("start", low, "is negative"))
        empty = np.flatnonzero((table.stop <= table.start).any(axis=1))
        if empty.size:
            found.append(_rows("stop", empty, "is not above start"))
        beyond = np.flatnonzero((table.stop > np.array(self.lattice, dtype=np.int64)).any(axis=1))
        if beyond.size:
            found.append(_rows("stop", beyond, f"lies beyond the {self.lattice} logical chunks of the array"))
        reach = MOST_ELEMENTS // np.array(self.chunk_shape, dtype=np.int64)
        far = np.flatnonzero((table.member_start > reach - (table.stop - table.start)).any(axis=1))
        if far.size:
            found.append(_rows("member_start", far, "lies further out than any member reaches"))
        if not found and (pair := table.overlap()) is not None:
            found.append(f"regions: row {pair[0]} and row {pair[1]} overlap")
        return found


def sizes_of(value: Any, what: str) -> tuple[int, ...]:
    """A shape as people give it: a whole number, or one for each axis.

    >>> sizes_of(4, "shape"), sizes_of(np.array([2, 3]), "shape")
    ((4,), (2, 3))
    >>> sizes_of((4.7,), "shape")
    Traceback (most recent call last):
    ...
    intarsia.errors.ShapeError: shape (4.7,): give a whole number for each axis
    """
    try:
        return tuple(operator.index(n) for n in value) if np.iterable(value) else (operator.index(value),)
    except TypeError:
        raise ShapeError(f"{what} {value!r}: give a whole number for each axis") from None


def _fill_value(data_type: ZDType[Any, Any], value: Any) -> Any:
    """The fill value in the array's data type; refused if it is another one there."""
    with np.errstate(over="ignore"):
        fill = data_type.cast_scalar(value)
    given, kind = np.asarray(value), values_dtype(data_type).kind
    if is_nullable(data_type) or given.ndim or given.dtype.kind not in "biufcU":
        return fill
    if kind in "biu" and given.dtype.kind != "U" and fill != value:  # 3.0 is a fine integer, 3.7 is none
        raise DataTypeError(f"the fill value {value!r} would become {fill!r}, which is another one")
    if (kind in "fc" and given.dtype.kind != "U") or kind == given.dtype.kind == "U":
        cast(given, values_dtype(data_type), what="fill values")
    return fill


def _rows(column: str, rows: Ints, what: str) -> str:
    more = f" (and {rows.size - 1} more rows)" if rows.size > 1 else ""
    return f"regions.{column}: row {rows[0]} {what}{more}"


def _problems_of_fields(document: object) -> list[str]:
    """Everything wrong with the fields but the region table, whose columns are checked as arrays."""
    if not isinstance(document, Mapping):
        return [f"the attribute {MANIFEST_KEY!r} holds {type(document).__name__}, not an object"]
    version = document.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and version != VERSION:
        raise ManifestVersionError(version, VERSION)
    fields = dict(document)
    regions, members = fields.get("regions"), fields.get("members")
    if isinstance(regions, Mapping):
        fields["regions"] = {
            key: [] if isinstance(column, list) else column for key, column in regions.items()
        }
    if isinstance(members, list):
        fields["members"] = []
    found = schemas.problems("manifest", fields)
    # To JSON Schema 8.0 is an integer; to whoever counts with it, it is not.
    numbers = [("generation", fields.get("generation"))]
    for name in ("shape", "chunk_shape"):
        if isinstance(fields.get(name), list):
            numbers += [(f"{name}[{i}]", value) for i, value in enumerate(fields[name])]
    found += [f"{name}: {value!r} is not an integer" for name, value in numbers if isinstance(value, float)]
    if isinstance(regions, str) and not NAME.match(regions):
        found.append(f"regions: {regions!r} is not a name of one path segment")
    if isinstance(members, list):
        bad = [i for i, name in enumerate(members) if not (isinstance(name, str) and NAME.match(name))]
        found += [f"members[{i}]: {members[i]!r} is not a name of one path segment" for i in bad]
        if not bad and len(set(members)) != len(members):
            found.append("members: a name is listed twice")
    if not found:
        ndim = len(fields["shape"])
        if len(fields["chunk_shape"]) != ndim:
            found.append(f"chunk_shape: {len(fields['chunk_shape'])} axes, but shape has {ndim}")
        if fields["dimension_names"] is not None and len(fields["dimension_names"]) != ndim:
            found.append(f"dimension_names: {len(fields['dimension_names'])} axes, but shape has {ndim}")
        if max(prod(fields["shape"]), *fields["shape"], *fields["chunk_shape"], 0) >= MOST_ELEMENTS:
            found.append(
                f"shape, chunk_shape: {fields['shape']} in chunks of {fields['chunk_shape']} has "
                "more elements than can be counted"
            )
    return found[:SHOWN_PROBLEMS]


def _read_table(document: Mapping[str, Any], table: Any) -> Ints:
    """The rows of the array beside the members; its shape is checked before it is read."""
    width, name = 1 + 3 * len(document["shape"]), document["regions"]
    if table is None or table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != width:
        what = "is missing" if table is None else f"is {table.dtype} of shape {table.shape}"
        raise ManifestError([f"regions: the table {name!r} {what}; expected int64 with {width} columns"])
    cells = prod(chunk_grid(document["shape"], document["chunk_shape"]))
    if table.shape[0] > min(cells, MOST_REGIONS):
        raise ManifestError(
            [f"regions: the table {name!r} has {table.shape[0]} rows, but there is room for {cells} regions"]
            if cells <= MOST_REGIONS
            else [f"regions: the table {name!r} has {table.shape[0]} rows; {MOST_REGIONS} are the most"]
        )
    try:
        rows: Ints = np.asarray(table[...])
    except Exception as error:
        raise ManifestError([f"regions: the table {name!r} cannot be read: {error}"]) from error
    return rows


def _parse_regions(document: Mapping[str, Any], table: Any) -> tuple[RegionTable, list[str]]:
    """The region table from its columns in the attributes, or from the array beside the members."""
    regions, ndim = document["regions"], len(document["shape"])
    nothing = RegionTable.from_rows([], ndim)
    if isinstance(regions, str):
        return RegionTable.unpacked(_read_table(document, table)), []
    columns: dict[str, Ints] = {}
    problems = []
    count = len(regions["member"])
    for name in COLUMNS:
        expected = (count,) if name == "member" else (count, ndim)
        try:
            values = np.array(regions[name])
        except (ValueError, RecursionError):  # rows of different lengths, or nested without end
            problems.append(f"regions.{name}: rows of different lengths")
            continue
        if values.size == 0 and len(regions[name]) == count and ndim * count == 0:
            values = values.reshape(expected).astype(np.int64)
        if values.dtype.kind != "i" or values.shape != expected:
            problems.append(
                f"regions.{name}: expected integers of shape {expected}, "
                f"got {values.dtype} of shape {values.shape}"
            )
            continue
        columns[name] = values.astype(np.int64, copy=False)
    return (nothing, problems) if problems else (RegionTable(**columns), [])
