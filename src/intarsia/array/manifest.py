"""The manifest of a logical array: what it is, how it is stored in a group's attributes, how it is checked.

The format is specified in docs/spec/manifest.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.dtype import parse_dtype

from intarsia import schemas
from intarsia.array.memory import data_type_of
from intarsia.array.table import Box, Ints, RegionTable
from intarsia.errors import ManifestError, ManifestVersionError

if TYPE_CHECKING:
    from zarr.dtype import ZDType

__all__ = ["CONVENTION", "CONVENTIONS_KEY", "INLINE_REGIONS", "MANIFEST_KEY", "VERSION", "Manifest"]

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
MOST_CELLS_ON_AN_AXIS = 1 << 62
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
        zdtype = data_type_of(data_type)
        fill = zdtype.default_scalar() if fill_value is None else zdtype.cast_scalar(fill_value)
        table = RegionTable.from_rows([], len(shape))
        return cls(0, shape, chunk_shape, zdtype, fill, dimension_names, (), table)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def lattice(self) -> tuple[int, ...]:
        """Number of logical chunks on each axis."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunk_shape, strict=True))

    def elements(self, box: Box) -> Box:
        """A box of logical chunks in elements, cut at the array's edge.

        >>> Manifest.empty((250,), (100,), "i4").elements(Box((1,), (3,)))
        Box(start=(100,), stop=(250,))
        """
        start = tuple(a * chunk for a, chunk in zip(box.start, self.chunk_shape, strict=True))
        stop = tuple(min(b * c, n) for b, c, n in zip(box.stop, self.chunk_shape, self.shape, strict=True))
        return Box(start, stop)

    def region_bounds(self) -> tuple[Ints, Ints]:
        """First and last (excluded) element of every region."""
        chunk = np.array(self.chunk_shape, dtype=np.int64)
        start = self.regions.start * chunk
        return start, np.minimum(self.regions.stop * chunk, np.array(self.shape, dtype=np.int64))

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
    def from_json(cls, document: object, table: Ints | None = None) -> Manifest:
        """The manifest behind the attribute, checked; `table` holds the regions where it names a table.

        >>> Manifest.from_json({"version": 2})
        Traceback (most recent call last):
        ...
        intarsia.errors.ManifestVersionError: the manifest has version 2, and this is intarsia ...
        """
        problems = _problems_of_fields(document)
        if problems:
            raise ManifestError(problems)
        assert isinstance(document, Mapping)
        ndim = len(document["shape"])
        regions, problems = _parse_regions(document["regions"], table, ndim)
        try:
            data_type = parse_dtype(document["data_type"], zarr_format=3)
            fill_value = data_type.from_json_scalar(document["fill_value"], zarr_format=3)
        except (ValueError, TypeError, KeyError) as error:
            problems.append(f"data_type, fill_value: {error}")
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
        if not found and (pair := table.overlap()) is not None:
            found.append(f"regions: row {pair[0]} and row {pair[1]} overlap")
        return found


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
        if prod(fields["shape"]) >= MOST_CELLS_ON_AN_AXIS:
            found.append(f"shape: {fields['shape']} holds more elements than can be counted")
    return found[:SHOWN_PROBLEMS]


def _parse_regions(regions: Any, table: Ints | None, ndim: int) -> tuple[RegionTable, list[str]]:
    """The region table from its columns in the attributes, or from the array beside the members."""
    nothing = RegionTable.from_rows([], ndim)
    if isinstance(regions, str):
        if table is None or table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != 1 + 3 * ndim:
            what = "is missing" if table is None else f"is {table.dtype} of shape {table.shape}"
            return nothing, [
                f"regions: the table {regions!r} {what}; expected int64 with {1 + 3 * ndim} columns"
            ]
        return RegionTable.unpacked(table), []
    columns: dict[str, Ints] = {}
    problems = []
    count = len(regions["member"])
    for name in COLUMNS:
        expected = (count,) if name == "member" else (count, ndim)
        try:
            values = np.array(regions[name])
        except ValueError:  # rows of different lengths
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
