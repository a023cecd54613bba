"""The table of thousands of regions: an array beside the members. What has not changed stays as it is.

In a store with transactions, rows are changed in place, so that an append costs only what it adds. Elsewhere,
a reader could see a mix of old and new rows; there, a changed table is a new array.

Regions after all others are added without reading those (`TableEnd`). Nothing can overlap: new regions begin
where the array ended, and the last ones at most grow beyond that end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import icechunk
import numpy as np
import zarr
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec

from intarsia.manifest.document import new_name
from intarsia.manifest.packing_columns import NO_PACKINGS, Packings
from intarsia.manifest.region_table import NONE, Ints, RegionTable

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.manifest.manifest import Manifest, MoreRegions


ROWS_PER_CHUNK = 1 << 11
"""An append rewrites the last chunk: some kilobytes. A million regions take 500 chunks."""


INLINE_IN_TRANSACTIONS = 500
"""At most this many regions are kept in the attributes if a table can be changed in place: every snapshot
contains all attributes, and they are parsed whenever anything is opened."""


def most_inline(store: Any, usual: int) -> int:
    """How many regions may be kept in the attributes; more go into a table."""
    return min(usual, INLINE_IN_TRANSACTIONS) if isinstance(store, icechunk.IcechunkStore) else usual


def store_table(place: StorePath, columns: Ints, known: zarr.Array[Any] | None, before: Ints) -> str:
    """Store the columns of a table in a new array, or in the one that holds `before`; returns its name."""
    if known is not None and can_change(known, columns.shape[1]):
        change_rows(known, before, columns)
        return known.path.rpartition("/")[2]
    name = new_name("t")
    table = zarr.create_array(
        place,
        name=name,
        shape=columns.shape,
        dtype=columns.dtype,
        chunks=(ROWS_PER_CHUNK, columns.shape[1]),
        filters=[TransposeCodec(order=(1, 0))],  # numbers in a column are alike
        serializer=BytesCodec(endian="little"),
        compressors=ZstdCodec(level=3),
        fill_value=0,
    )
    table[...] = columns
    return name


def can_change(table: zarr.Array[Any], width: int) -> bool:
    """Whether rows of a table may be changed in place: in a transaction, and in small chunks."""
    transactional = isinstance(table.store, icechunk.IcechunkStore)
    return transactional and table.shape[1] == width and table.chunks[0] <= ROWS_PER_CHUNK


def change_rows(table: zarr.Array[Any], before: Ints, columns: Ints) -> None:
    """Make a table that holds `before` hold these columns; chunks without a difference stay."""
    if len(columns) != len(before):
        table.resize(columns.shape)
    both, chunk = min(len(before), len(columns)), table.chunks[0]
    differs = np.concatenate(
        [(before[:both] != columns[:both]).any(axis=1), np.ones(len(columns) - both, dtype=bool)]
    )
    chunks = np.unique(np.flatnonzero(differs) // chunk)
    for run in np.split(chunks, np.flatnonzero(np.diff(chunks) > 1) + 1):
        if run.size:
            rows = slice(int(run[0]) * chunk, (int(run[-1]) + 1) * chunk)
            table[rows] = columns[rows]


FACTORS = 3
"""Columns at the end of a row: the kind, scale and offset of the packing with the row's number."""


@dataclass(frozen=True)
class TableEnd:
    """The regions of a stored table that reach the end of the array, along one axis."""

    table: zarr.Array[Any]
    axis: int

    whole: Manifest
    """The array; its table is not read."""

    part: Manifest
    """The array with only these regions, whose packings are numbered from 0."""

    first: int
    """The first row of the table's last chunk."""

    block: Ints
    """The rows of that chunk."""

    rows: Ints
    """Which of these rows are the regions."""

    numbers: Ints
    """The packings of those regions, by their numbers in the table."""

    @classmethod
    def of(cls, whole: Manifest, table: zarr.Array[Any] | None, axis: int) -> Self | None:
        """The end of a table; None if the table can only be changed as a whole."""
        packed = bool(whole.packings.kinds) or bool(whole.views)
        width = 1 + 3 * whole.ndim + 2 * FACTORS * packed
        if table is None or not can_change(table, width) or whole.chunk_shape[axis] != 1:
            return None
        first = (table.shape[0] - 1) // table.chunks[0] * table.chunks[0]
        block = np.asarray(table[first:])
        regions = RegionTable.from_columns(block[:, : width - FACTORS * packed], whole.ndim)
        # Replicas of what is there stay what they are, whatever comes after.
        rows = np.flatnonzero((regions.stop[:, axis] == whole.shape[axis]) & (regions.layer == 0))
        last, packings = regions.select(rows), NO_PACKINGS
        numbers = np.unique(last.packing[last.packing != NONE])
        if numbers.size:
            stored = np.asarray(table.oindex[numbers, slice(width - FACTORS, width)])
            packings = Packings(whole.packings.kinds, *np.ascontiguousarray(stored.T))
        local = np.where(last.packing == NONE, NONE, np.searchsorted(numbers, last.packing))
        last = replace(last, packing=local)
        part = replace(whole, regions=last, packings=packings, replicas=regions.select(slice(0)))
        return cls(table, axis, whole, part, first, block, rows, numbers)

    def takes(self, more: MoreRegions) -> bool:
        """Whether the table has the columns that these regions need."""
        _, _, packings, views = more
        return self.block.shape[1] > 1 + 3 * self.whole.ndim or not (len(packings) or views)

    def store(self, shape: tuple[int, ...], more: MoreRegions) -> tuple[Manifest, dict[str, Any]]:
        """Store more regions, for an array with a new shape; refuse anything that a reader would refuse.

        Returns the array with only its last regions, and changes to the manifest.
        """
        (fresh, names, packings, views), known = more, self.whole.packings
        regions = self.part.regions.concat(fresh).merge_neighbours(self.axis)
        part = replace(self.part, shape=shape)
        part = part.changed(regions=regions, members=names, packings=packings, views=views)
        part.check()
        kinds = dict.fromkeys((*known.kinds, *packings.kinds))
        added = packings.select(np.arange(len(self.numbers), len(packings)))
        numbers = np.concatenate([self.numbers, np.arange(len(known), len(known) + len(added)), [NONE]])
        self._write(replace(regions, packing=numbers[regions.packing]), _factors(added, list(kinds)))
        changes: dict[str, Any] = {"shape": list(shape), "members": list(names)}
        if len(known) or len(added):
            described = replace(packings, kinds=tuple(kinds)).to_json(in_table=True)
            changes["packings"] = described | {"count": len(known) + len(added)}
        if views:
            changes["views"] = [view.to_json() for view in views]
        return part, changes

    def _write(self, regions: RegionTable, factors: Ints) -> None:
        """Put regions into their rows, and new packings into theirs."""
        table, width = self.table, self.block.shape[1]
        own = width if width == 1 + 3 * self.whole.ndim else width - FACTORS
        known = {tuple(self.block[i, 1 : 1 + self.whole.ndim].tolist()): i for i in self.rows.tolist()}
        columns, block = regions.columns()[:, :own], self.block.copy()
        places = [known.get(tuple(start)) for start in regions.start.tolist()]
        for place, row in zip(places, columns, strict=True):
            if place is not None:  # one of the last regions, which may have grown
                block[place, :own] = row
        fresh = columns[[place is None for place in places]]
        block = np.concatenate([block, np.zeros((len(fresh), width), dtype=np.int64)])
        block[len(block) - len(fresh) :, :own] = fresh
        at = len(self.whole.packings)
        earlier = max(0, min(self.first - at, len(factors)))
        if len(factors) > earlier:
            block[at + earlier - self.first :, own:][: len(factors) - earlier] = factors[earlier:]
        table.resize((self.first + len(block), width))
        table[self.first :] = block
        if earlier:
            table[at : at + earlier, own:] = factors[:earlier]


def _factors(packings: Packings, kinds: list[Any]) -> Ints:
    """The columns of packings in a table with these kinds."""
    places = np.array([kinds.index(kind) for kind in packings.kinds], dtype=np.int64)
    return np.stack([places[packings.kind], packings.scale, packings.offset], axis=1)
