"""The region table of thousands of regions: an array beside the members. What did not change stays as it is.

Where a store has transactions, rows are changed in place, so that an append costs what it adds. Elsewhere a
reader could see some rows of before and some of after: there, a changed table is a new array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec

from intarsia.array.member import new_name

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.array.table import Ints

ROWS_PER_CHUNK = 1 << 11
"""An append writes the last chunk again: some kilobytes. A million regions are 500 chunks."""


INLINE_IN_TRANSACTIONS = 500
"""So many regions stand in the attributes at most where a table can be changed in place: every snapshot has
all attributes in it, and whoever opens anything parses them."""


def most_inline(store: Any, usual: int) -> int:
    """How many regions may stand in the attributes; more are in a table."""
    return min(usual, INLINE_IN_TRANSACTIONS) if isinstance(store, icechunk.IcechunkStore) else usual


def store_table(place: StorePath, columns: Ints, known: zarr.Array[Any] | None, before: Ints) -> str:
    """Store the columns of a table, in a new array or in the one that holds those of `before`; its name."""
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
        filters=[TransposeCodec(order=(1, 0))],  # numbers of one column are alike
        serializer=BytesCodec(endian="little"),
        compressors=ZstdCodec(level=3),
        fill_value=0,
    )
    table[...] = columns
    return name


def can_change(table: zarr.Array[Any], width: int) -> bool:
    """Whether rows of a table may be changed in place: in a transaction, and in chunks that are small."""
    transactional = isinstance(table.store, icechunk.IcechunkStore)
    return transactional and table.shape[1] == width and table.chunks[0] <= ROWS_PER_CHUNK


def change_rows(table: zarr.Array[Any], before: Ints, columns: Ints) -> None:
    """Make a table that holds `before` hold these columns; chunks in which nothing differs stay."""
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
