"""Making room in a region table: gaps opened and closed along an axis, a finer lattice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from intarsia.array.table import RegionTable

if TYPE_CHECKING:
    from intarsia.array.manifest import Manifest

__all__ = ["closed", "opened", "refined"]


def opened(table: RegionTable, axis: int, at: int, length: int) -> RegionTable:
    """The table with `length` free cells at `at`; regions across it are split, those after it move up.

    >>> from intarsia.array.table import Box, Row
    >>> table = opened(RegionTable.from_rows([Row(0, Box((0,), (4,)), (0,))], 1), 0, 3, 2)
    >>> [(table.row(i).box, table.row(i).member_start) for i in range(2)]
    [(Box(start=(0,), stop=(3,)), (0,)), (Box(start=(5,), stop=(6,)), (3,))]
    """
    across = np.flatnonzero((table.start[:, axis] < at) & (table.stop[:, axis] > at))
    upper = table.take(across)
    upper_start, upper_member = upper.start.copy(), upper.member_start.copy()
    upper_member[:, axis] += at - upper_start[:, axis]
    upper_start[:, axis] = at
    stop = table.stop.copy()
    stop[across, axis] = at
    split = replace(table, stop=stop).joined(replace(upper, start=upper_start, member_start=upper_member))
    return _moved(split, axis, at, length)


def closed(table: RegionTable, axis: int, start: int, stop: int) -> RegionTable:
    """The table without the cells from `start` to `stop`; regions after them move down.

    >>> from intarsia.array.table import Box, Row
    >>> table = closed(RegionTable.from_rows([Row(0, Box((0,), (4,)), (0,))], 1), 0, 1, 3)
    >>> [(table.row(i).box, table.row(i).member_start) for i in range(2)]
    [(Box(start=(0,), stop=(1,)), (0,)), (Box(start=(1,), stop=(2,)), (3,))]
    """
    table = opened(opened(table, axis, start, 0), axis, stop, 0)
    inside = (table.start[:, axis] >= start) & (table.stop[:, axis] <= stop)
    return _moved(table.take(np.flatnonzero(~inside)), axis, stop, start - stop)


def _moved(table: RegionTable, axis: int, at: int, by: int) -> RegionTable:
    after = table.start[:, axis] >= at
    start, stop = table.start.copy(), table.stop.copy()
    start[after, axis] += by
    stop[after, axis] += by
    return replace(table, start=start, stop=stop)


def refined(manifest: Manifest, chunk_shape: tuple[int, ...]) -> Manifest:
    """The same regions on a finer lattice, whose chunks divide the old ones.

    >>> from intarsia.array.manifest import Manifest
    >>> refined(Manifest.empty((10,), (4,), "u1"), (2,)).chunk_shape
    (2,)
    """
    factor = np.array(manifest.chunk_shape, dtype=np.int64) // np.array(chunk_shape, dtype=np.int64)
    finer = replace(manifest, chunk_shape=chunk_shape)
    table = manifest.regions
    return replace(
        finer,
        regions=RegionTable(
            table.member,
            table.start * factor,
            np.minimum(table.stop * factor, np.array(finer.lattice, dtype=np.int64)),
            table.member_start * factor,
        ),
    )
