"""The table of thousands of regions: an array beside the members. What has not changed stays as it is.

In a store with transactions, rows are changed in place, so that an append costs only what it adds. Elsewhere,
a reader could see a mix of old and new rows; there, a changed table is a new array.

Regions after all others are added without reading those (`extend_table`). Nothing can overlap: new regions
begin where the array ended, and the last ones at most grow beyond that end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec

from intarsia.manifest.document import new_name
from intarsia.manifest.packing_columns import NO_PACKINGS, Packings
from intarsia.manifest.region_table import NONE, Ints, RegionTable

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.manifest.manifest import Manifest, NewRegion


ROWS_PER_CHUNK = 1 << 11
"""An append rewrites the last chunk: some kilobytes. A million regions take 500 chunks."""


INLINE_IN_TRANSACTIONS = 500
"""At most this many regions are kept in the attributes if a table can be changed in place: every snapshot
contains all attributes, and they are parsed whenever anything is opened."""


def store_table(parent: StorePath, columns: Ints, table: zarr.Array[Any] | None, before: Ints) -> str:
    """Store the columns of a table in a new array, or in the one that holds `before`; returns its name."""
    if table is not None and can_change(table, columns.shape[1]):
        change_rows(table, before, columns)
        return table.path.rpartition("/")[2]
    name = new_name("t")
    new_table = zarr.create_array(
        parent,
        name=name,
        shape=columns.shape,
        dtype=columns.dtype,
        chunks=(ROWS_PER_CHUNK, columns.shape[1]),
        filters=[TransposeCodec(order=(1, 0))],  # numbers in a column are alike
        serializer=BytesCodec(endian="little"),
        compressors=ZstdCodec(level=3),
        fill_value=0,
    )
    new_table[...] = columns
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


def extend_table(
    whole: Manifest,
    table: zarr.Array[Any] | None,
    axis: int,
    shape: tuple[int, ...],
    new: Sequence[NewRegion],
) -> dict[str, Any] | None:
    """Store regions after all others in the table of an array, without reading those; refuse anything that a
    reader would refuse.

    Returns changes to the manifest; None, and nothing is done, if the table can only be changed as a whole.
    """
    ndim, stored_packings = whole.ndim, whole.packings
    packed = bool(stored_packings.kinds) or bool(whole.views)
    own = 1 + 3 * ndim + FACTORS * packed
    width = own + FACTORS * packed
    if table is None or not can_change(table, width) or whole.chunk_shape[axis] != 1:
        return None
    first = (table.shape[0] - 1) // table.chunks[0] * table.chunks[0]
    block = np.asarray(table[first:])  # the last chunk
    regions = RegionTable.from_columns(block[:, :own], ndim)
    # Replicas of what is there stay what they are, whatever comes after.
    rows = np.flatnonzero((regions.stop[:, axis] == whole.shape[axis]) & (regions.layer == 0))
    last = regions.select(rows)
    numbers = np.unique(last.packing[last.packing != NONE])
    stored = np.asarray(table.oindex[numbers, slice(own, width)]) if numbers.size else NO_PACKINGS.rows
    # Of the last regions alone, packings are numbered from 0.
    last = replace(last, packing=np.where(last.packing == NONE, NONE, np.searchsorted(numbers, last.packing)))
    part = replace(whole, regions_and_replicas=last, packings=Packings(stored_packings.kinds, stored))
    part, fresh = part.including(new)
    packings, views = part.packings, part.views
    if not packed and (len(packings) or views):
        return None  # the table lacks the columns for them
    regions = last.concat(fresh).merge_neighbours(axis)
    part.changed(regions, shape=shape).check()
    factors = packings.rows[len(numbers) :]
    packing_count = len(stored_packings) + len(factors)
    numbers = np.concatenate([numbers, np.arange(len(stored_packings), packing_count), [NONE]])
    columns = replace(regions, packing=numbers[regions.packing]).columns()[:, :own]
    # A region is known by its start: one that is in the table already may be longer now.
    known = dict(zip(map(tuple, last.start.tolist()), rows.tolist(), strict=True))
    after = count(len(block))
    places = [known[start] if start in known else next(after) for start in map(tuple, regions.start.tolist())]
    block = np.concatenate([block, np.zeros((len(regions) - len(known), width), dtype=np.int64)])
    block[places, :own] = columns
    # A packing may belong to a row before the chunk.
    earlier = max(0, min(first - len(stored_packings), len(factors)))
    if len(factors) > earlier:
        block[len(stored_packings) + earlier - first :, own:][: len(factors) - earlier] = factors[earlier:]
    table.resize((first + len(block), width))
    table[first:] = block
    if earlier:
        table[len(stored_packings) : len(stored_packings) + earlier, own:] = factors[:earlier]
    changes: dict[str, Any] = {"shape": list(shape), "members": list(part.members)}
    if packing_count:
        changes["packings"] = packings.to_json(in_table=True) | {"count": packing_count}
    if views:
        changes["views"] = [view.to_json() for view in views]
    return changes
