"""The manifest of a logical array: what it is, how a group's attributes store it, how it is checked.

The format is specified in docs/spec/manifest.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr
from zarr.dtype import ZDType, parse_dtype

from intarsia.errors import ManifestError
from intarsia.manifest.box import Box, chunk_grid
from intarsia.manifest.data_types import data_type_of, fill_value_of, values_dtype
from intarsia.manifest.document import (
    COLUMNS,
    MANIFEST_KEY,
    MORE_COLUMNS,
    parse_fields,
    problems_of_names,
    problems_of_regions,
    problems_of_size,
)
from intarsia.manifest.packing_columns import NO_PACKINGS, Packings
from intarsia.manifest.region_table import NONE, Ints, RegionTable, Row

if TYPE_CHECKING:
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.view import View


INLINE_REGIONS = 5_000
"""Above this many regions, the table moves out of the attributes into an array."""

MAX_PLACES = 10_000
"""The number of regions whose place in the member is remembered."""


NO_REPLICAS = RegionTable.from_rows([], 0)
"""Those of an array that is stored once."""


class NewRegion(NamedTuple):
    """A box of logical chunks, and what is to back it."""

    box: Box
    """The box of the array."""

    member: str
    """The name of an array in the group."""

    member_start: tuple[int, ...] | None = None
    """Where the box starts in it, or in the view of it, in logical chunks; None for its beginning."""

    packing: Packing | None = None
    """How its numbers become values, if they are not values."""

    view: View | None = None
    """How the box sees it, if not as it is."""


@dataclass(frozen=True)
class Manifest:
    """What a logical array is made of.

    >>> manifest = Manifest.empty((1000, 1000), (100, 100), "float32")
    >>> manifest.lattice, manifest.generation
    ((10, 10), 0)
    """

    generation: int
    """A number that every change of the layout raises."""

    shape: tuple[int, ...]
    """The shape of the logical array, in elements."""

    chunk_shape: tuple[int, ...]
    """The lattice that regions align to."""

    data_type: ZDType[Any, Any]
    """The data type that every member decodes to."""

    fill_value: Any
    """What holes read as."""

    dimension_names: tuple[str | None, ...] | None
    """A name, or None, for each axis."""

    members: tuple[str, ...]
    """The names of the backing arrays."""

    regions_and_replicas: RegionTable
    """Which member backs which box: the regions of layer 0, which say what the array holds, followed by the
    replicas, which hold the same values again. Rows of a plan count in this table."""

    packings: Packings = field(default_factory=lambda: NO_PACKINGS)
    """How the numbers of members become values, if they are not values themselves."""

    views: tuple[View, ...] = ()
    """How regions see their members, if not as they are."""

    _places: dict[int, tuple[Box, tuple[int, ...]]] = field(default_factory=dict, init=False, repr=False)
    """The elements of rows, and what to add to them for their place in the member; see `place_of`."""

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
        # As a reader will find it: byte order is about how a member stores values, not about what they are.
        stored: Any = data_type_of(data_type).to_json(zarr_format=3)
        zdtype = parse_dtype(stored, zarr_format=3)
        fill = zdtype.default_scalar() if fill_value is None else fill_value_of(zdtype, fill_value)
        table = RegionTable.from_rows([], len(shape))
        return cls(0, shape, chunk_shape, zdtype, fill, dimension_names, (), table)

    @cached_property
    def version(self) -> int:
        """The lowest version of the format that can express this."""
        return 1 if self.is_plain else 2

    @cached_property
    def is_plain(self) -> bool:
        """Whether every region shows its member as it is stored, and there are no replicas."""
        return not (self.packings.kinds or self.views) and self.regions is self.regions_and_replicas

    @cached_property
    def regions(self) -> RegionTable:
        """The regions of layer 0."""
        table = self.regions_and_replicas
        return table.select(slice(np.count_nonzero(table.layer == 0))) if table.layer.any() else table

    @cached_property
    def replicas(self) -> RegionTable:
        """The regions of layers 1 and above."""
        table = self.regions_and_replicas
        return NO_REPLICAS if self.regions is table else table.select(slice(len(self.regions), None))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy data type of the values; for nullable values, without their nulls."""
        return values_dtype(self.data_type)

    def place_of(self, i: int) -> tuple[Box, tuple[int, ...]]:
        """The elements of row `i` of `regions_and_replicas`, and what to add to an element for its place in
        the member; remembered for the next time.

        >>> table = RegionTable.from_rows([Row(0, Box((1,), (3,)), (0,))], ndim=1)
        >>> replace(Manifest.empty((250,), (100,), "i4"), regions_and_replicas=table).place_of(0)
        (Box(start=(100,), stop=(250,)), (-100,))
        """
        places = self._places
        place = places.get(i)
        if place is None:
            if len(places) >= MAX_PLACES:
                places.clear()
            row = self.regions_and_replicas.row(i)
            place = places[i] = self.elements(row.box), self.member_shift(row)
        return place

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers that back anything; 0 always counts.

        >>> Manifest.empty((4,), (2,), "u1").layers
        (0,)
        """
        return (0, *self.replicas.by_layer())

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @cached_property
    def lattice(self) -> tuple[int, ...]:
        """The number of logical chunks along each axis."""
        return chunk_grid(self.shape, self.chunk_shape)

    def elements(self, box: Box) -> Box:
        """A box of logical chunks in elements, cut off at the array's edge.

        >>> Manifest.empty((250,), (100,), "i4").elements(Box((1,), (3,)))
        Box(start=(100,), stop=(250,))
        """
        stop = tuple(map(min, map(mul, box.stop, self.chunk_shape), self.shape))
        return Box(tuple(map(mul, box.start, self.chunk_shape)), stop)

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
        return tuple(map(mul, row.shift, self.chunk_shape))

    def in_member(self, row: Row) -> Box:
        """The box of the member that a region shows, in elements.

        >>> Manifest.empty((250,), (100,), "i4").in_member(Row(0, Box((1,), (3,)), (0,)))
        Box(start=(0,), stop=(150,))
        """
        return self.to_member(row, self.elements(row.box))

    def to_member(self, row: Row, elements: Box) -> Box:
        """The box of the member that backs some elements of a region.

        >>> Manifest.empty((250,), (100,), "i4").to_member(Row(0, Box((1,), (3,)), (0,)), Box((120,), (130,)))
        Box(start=(20,), stop=(30,))
        """
        places, view = elements.shifted(self.member_shift(row)), self.view_of(row)
        return places if view is None else view.member_box(places)

    def from_member(self, row: Row, box: Box) -> Box:
        """The elements of the logical array that a box of a region's member corresponds to, shown or not.

        >>> Manifest.empty((250,), (100,), "i4").from_member(Row(0, Box((1,), (3,)), (0,)), Box((20,), (30,)))
        Box(start=(120,), stop=(130,))
        """
        view = self.view_of(row)
        return (box if view is None else view.places(box)).seen_from(self.member_shift(row))

    def is_shown(self, box: Box, *, besides: Row) -> bool:
        """Whether another region or replica of a region's member shows some of a box of its elements.

        >>> manifest = Manifest.empty((4,), (2,), "u1").replace_boxes([], [NewRegion(Box((0,), (1,)), "m-1")])
        >>> other = Row(0, Box((1,), (2,)), (0,))
        >>> [manifest.is_shown(Box((start,), (9,)), besides=other) for start in (1, 2)]
        [True, False]
        """
        table = self.regions_and_replicas
        other = (table.start != besides.box.start).any(axis=1) | (table.layer != besides.layer)
        rows = np.flatnonzero((table.member == besides.member) & other)
        views = table.view[rows]
        for i in rows[views != NONE].tolist():
            if self.in_member(table.row(i)).intersect(box) is not None:
                return True
        if not (views == NONE).any():  # the member may have more axes than the array, or fewer
            return False
        table = table.select(rows[views == NONE])
        start, (lower, upper) = self.member_starts(table), self.region_bounds(table)
        return bool(((start < box.stop) & (start + upper - lower > box.start)).all(axis=1).any())

    def packing_of(self, row: Row) -> Packing | None:
        """How the numbers of a region's member become values; None if they are values."""
        return None if row.packing == NONE else self.packings[row.packing]

    def stored_type(self, row: Row) -> np.dtype[Any] | None:
        """The data type of the numbers in a region's member; None if they are values."""
        packings = self.packings
        return None if row.packing == NONE else packings.kinds[packings.kind[row.packing]].stored

    def view_of(self, row: Row) -> View | None:
        """How a region sees its member; None if it sees it as it is."""
        return None if row.view == NONE else self.views[row.view]

    def region_bounds(self, table: RegionTable | None = None) -> tuple[Ints, Ints]:
        """The first and last (excluded) element of every region, or of those in another of its tables."""
        chunk, rows = np.array(self.chunk_shape, dtype=np.int64), self.regions if table is None else table
        start = rows.start * chunk
        return start, np.minimum(rows.stop * chunk, np.array(self.shape, dtype=np.int64))

    def member_starts(self, table: RegionTable | None = None) -> Ints:
        """Where every region starts in its member, in elements."""
        rows = self.regions if table is None else table
        return rows.member_start * np.array(self.chunk_shape, dtype=np.int64)

    def changed(self, table: RegionTable, *, same_values: bool = False, **fields: Any) -> Manifest:
        """The next generation, with these regions; anything that none refers to is left out.

        Existing replicas stay where nothing changes beneath them. With `same_values`, the array still holds
        the same, and the replicas are those in the table.
        """
        after = replace(self, regions_and_replicas=table, **fields)
        if not same_values and len(self.replicas):
            from intarsia.manifest.manifest_diff import valid_replicas

            after = replace(after, regions_and_replicas=after.regions.concat(valid_replicas(self, after)))
        table = after.regions_and_replicas
        members, member = _renumbered(table.member)
        packings, packing = _renumbered(table.packing)
        views, view = _renumbered(table.view)
        return replace(
            after,
            generation=self.generation + 1,
            members=tuple([after.members[i] for i in members.tolist()]),
            packings=after.packings.select(packings),
            views=tuple([after.views[i] for i in views.tolist()]),
            regions_and_replicas=replace(table, member=member, packing=packing, view=view),
        )

    def replace_boxes(
        self,
        holes: Iterable[Box],
        regions: Iterable[NewRegion] = (),
        *,
        layer: int = 0,
        same_values: bool = False,
        **fields: Any,
    ) -> Manifest:
        """The next generation: boxes of one layer are no longer backed as they were, and others are.

        With `same_values`, the array still holds the same, so that its replicas stay what they are.

        >>> manifest = Manifest.empty((4,), (2,), "u1").replace_boxes([], [NewRegion(Box((0,), (2,)), "m-1")])
        >>> manifest = manifest.replace_boxes([Box((1,), (2,))], [NewRegion(Box((1,), (2,)), "m-2")])
        >>> [(manifest.members[row.member], row.box.start) for row in map(manifest.regions.row, range(2))]
        [('m-1', (0,)), ('m-2', (1,))]
        """
        wider, fresh = self.including(regions, layer)
        table = self.regions_and_replicas.subtract(*holes, layer=layer).concat(fresh).in_layers()
        return wider.changed(table, same_values=same_values or layer > 0, **fields)

    def including(self, regions: Iterable[NewRegion], layer: int = 0) -> tuple[Manifest, RegionTable]:
        """This manifest with the members, packings and views of new regions; these as rows of its table."""
        added = list(regions)
        names = dict.fromkeys((*self.members, *(region.member for region in added)))
        positions = {name: i for i, name in enumerate(names)}
        views = {view: i for i, view in enumerate(self.views)}
        packings, numbers = self.packings.with_(region.packing for region in added)
        rows = []
        for (box, member, start, _, view), packing in zip(added, numbers, strict=True):
            seen = NONE if view is None else views.setdefault(view, len(views))
            rows.append(Row(positions[member], box, start or (0,) * len(box.start), packing, seen, layer))
        wider = replace(self, members=tuple(names), packings=packings, views=tuple(views))
        return wider, RegionTable.from_rows(rows, self.ndim)

    def refine(self, chunk_shape: tuple[int, ...]) -> Manifest:
        """The same regions, of the same generation, on a finer lattice, whose chunks divide the old ones.

        >>> Manifest.empty((5,), (4,), "u1").refine((2,)).lattice
        (3,)
        """
        if chunk_shape == self.chunk_shape:
            return self
        finer, table = replace(self, chunk_shape=chunk_shape), self.regions_and_replicas
        factor = np.array(self.chunk_shape, dtype=np.int64) // np.array(chunk_shape, dtype=np.int64)
        # the end of the array may cut the last chunk off: then it holds fewer of the finer chunks
        stop = np.minimum(table.stop * factor, np.array(finer.lattice, dtype=np.int64))
        start, member_start = table.start * factor, table.member_start * factor
        table = replace(table, start=start, stop=stop, member_start=member_start)
        return replace(finer, regions_and_replicas=table)

    def without_replicas(self, *boxes: Box) -> Manifest:
        """The next generation, with boxes of logical chunks cut out of all replicas; the manifest itself if
        no replica is there."""
        left = self.replicas.subtract(*boxes)
        return self if left is self.replicas else self.changed(self.regions.concat(left), same_values=True)

    def without_regions(self) -> Manifest:
        """The same array without regions, of the same generation."""
        nothing = RegionTable.from_rows([], self.ndim)
        return replace(self, members=(), regions_and_replicas=nothing, packings=NO_PACKINGS, views=())

    def only(self, layer: int) -> Manifest:
        """The array as if it had only one of its layers, of the same generation; for inspection only.

        >>> Manifest.empty((4,), (2,), "u1").only(0).members
        ()
        """
        if not layer and not len(self.replicas):
            return self
        table = self.regions_and_replicas.select(self.regions_and_replicas.layer == layer)
        table = replace(table, layer=np.zeros_like(table.layer))
        return replace(self.changed(table, same_values=True), generation=self.generation)

    def check(self) -> None:
        """Raise any error that a reader of this manifest would raise, if its other fields are those of one
        that was read."""
        problems = problems_of_names(self.members)
        problems = problems or [*problems_of_size(self.shape, self.chunk_shape)] or problems_of_regions(self)
        if problems:
            raise ManifestError(problems)

    def matches(self, metadata: bytes) -> bool:
        """Whether a group's metadata document holds this manifest, and not a later or another one."""
        try:
            document = json.loads(metadata)["attributes"][MANIFEST_KEY]
            stored = document["generation"], document["members"], document["shape"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        return bool(stored == (self.generation, list(self.members), list(self.shape)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest):
            return NotImplemented
        own, others = (
            (each._document(each.regions_and_replicas), each.packings, each.views) for each in (self, other)
        )
        return own == others

    __hash__ = None  # type: ignore[assignment]  # compared by fields that may change

    def _document(self, regions: object) -> dict[str, Any]:
        return {
            "version": self.version,
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
        """The manifest as it is in the attributes, with its regions inside or in the array `table_name`.

        >>> Manifest.empty((4,), (2,), "u1").to_json()["regions"]["start"]
        []
        """
        in_table, table = table_name is not None, self.regions_and_replicas
        if in_table:
            document = self._document(table_name)
        else:
            needed = [name for name, usual in MORE_COLUMNS.items() if (getattr(table, name) != usual).any()]
            document = self._document({name: getattr(table, name).tolist() for name in (*COLUMNS, *needed)})
        if self.packings.kinds:
            document["packings"] = self.packings.to_json(in_table=in_table)
        if self.views:
            document["views"] = [view.to_json() for view in self.views]
        return document

    def table(self) -> Ints:
        """The columns of the regions, and in version 2 also of the packings, as stored in an array."""
        columns = self.regions_and_replicas.columns()
        if self.version == 1:
            return columns[:, : 1 + 3 * self.ndim]
        return np.column_stack([columns, self.packings.columns(len(columns))])

    @classmethod
    def from_json(cls, document: object, table: Ints | zarr.Array[Any] | None = None) -> Manifest:
        """The manifest in an attribute, checked; `table` holds the regions if it names a table.

        A table in a store is only read if its shape is possible.

        >>> Manifest.from_json({"version": 3})
        Traceback (most recent call last):
        ...
        intarsia.errors.ManifestVersionError: the manifest has version 3, but this intarsia ...
        """
        manifest = cls(**parse_fields(document, table))
        problems = problems_of_regions(manifest)
        if problems:
            raise ManifestError(problems)
        return manifest

    @classmethod
    def described(cls, document: object, read: Callable[[], Manifest]) -> Manifest:
        """The manifest in an attribute, without its table: `read` reads that when it is needed.

        >>> manifest = Manifest.empty((4,), (2,), "u1")
        >>> Manifest.described(manifest.to_json("t-1"), lambda: manifest) == manifest
        True
        """
        return cls(**parse_fields(document, None, read))


def _renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """The numbers in use, without `NONE`, and the column with the position of each among them."""
    used, position = np.unique(numbers[numbers >= 0], return_inverse=True)
    column = np.full(numbers.shape, NONE, dtype=np.int64)
    column[numbers >= 0] = position.reshape(-1)
    return used, column
