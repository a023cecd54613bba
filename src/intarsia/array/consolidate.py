"""Joining neighbouring regions of equal encoding into one member, without decoding a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from intarsia.array.chunk_copies import Move, copy_chunks
from intarsia.array.member import encoding_of, grain
from intarsia.array.table import RegionTable, Row

if TYPE_CHECKING:
    from intarsia.array.box import Box
    from intarsia.array.logical_group import LogicalGroup


def consolidate(logical: LogicalGroup) -> int:
    """Join what can be joined, axis by axis; returns how many regions there are fewer."""
    logical.begin_edit()
    count = len(logical.manifest.regions)
    for axis in range(logical.manifest.ndim):
        _join_along(logical, axis)
    return count - len(logical.manifest.regions)


def _join_along(logical: LogicalGroup, axis: int) -> None:
    """Join every run of regions along one axis, in one new generation."""
    manifest = logical.manifest
    gone: set[int] = set()
    longer: dict[int, Box] = {}
    for run in _runs(manifest.regions, axis):
        first, box = run[0], manifest.regions.row(run[0]).box
        for i in run[1:]:
            row = manifest.regions.row(i)
            base = manifest.regions.row(first)._replace(box=box)
            if _fits(logical, base, first, row, i):
                _copy_over(logical, base, row)
                box = box.with_axis(axis, box.start[axis], row.box.stop[axis])
                gone.add(i)
                longer[first] = box
            else:
                first, box = i, row.box
    if not gone:
        return
    rows = [
        (row := manifest.regions.row(i))._replace(box=longer.get(i, row.box))
        for i in range(len(manifest.regions))
        if i not in gone
    ]
    logical.commit(manifest.changed(regions=RegionTable.from_rows(rows, manifest.ndim)))


def _runs(table: RegionTable, axis: int) -> Iterator[list[int]]:
    """Rows that follow each other along an axis, without a gap and with one cross-section, two or more."""
    others = [d for d in range(table.ndim) if d != axis]
    keys = [
        table.start[:, axis],
        *(column for d in others for column in (table.stop[:, d], table.start[:, d])),
    ]
    run: list[int] = []
    for i in np.lexsort(keys).tolist() if len(table) else []:
        follows = (
            bool(run)
            and table.stop[run[-1], axis] == table.start[i, axis]
            and all(
                table.start[run[-1], d] == table.start[i, d] and table.stop[run[-1], d] == table.stop[i, d]
                for d in others
            )
        )
        if not follows:
            if len(run) > 1:
                yield run
            run = []
        run.append(i)
    if len(run) > 1:
        yield run


def _fits(logical: LogicalGroup, base: Row, i: int, row: Row, j: int) -> bool:
    """Whether region `j`, which follows region `i`, can be stored in its member, chunk for chunk."""
    if (row.packing, row.view, row.layer) != (base.packing, base.view, base.layer):
        return False
    manifest = logical.manifest
    one, other = logical.member_of(manifest.regions.row(i)), logical.member_of(manifest.regions.row(j))
    encoding = encoding_of(one)
    if encoding["chunk_grid"]["name"] != "regular" or encoding != encoding_of(other):
        return False
    wanted = row._replace(member=base.member, member_start=_place(base, row))
    here, there = manifest.in_member(row), manifest.in_member(wanted)
    for before, after, step in zip(here.start, there.start, grain(one), strict=True):
        if after < 0 or (after - before) % step:
            return False
    if _chunks(logical, one, wanted).intersect(_chunks(logical, one, base)) is not None:
        return False  # what both show would lie in one chunk
    if wanted == row:
        return True  # two windows on one member that lie side by side there, too
    return _has_room(logical, one, wanted, besides=i)


def _place(base: Row, row: Row) -> tuple[int, ...]:
    """Where in the base's member the other region would be, in logical chunks."""
    return base.cropped(row.box).member_start


def _chunks(logical: LogicalGroup, member: zarr.Array[Any], row: Row) -> Box:
    """The stored chunks of a member that a region lies in."""
    return logical.manifest.in_member(row).in_units(grain(member))


def _has_room(logical: LogicalGroup, member: zarr.Array[Any], wanted: Row, besides: int) -> bool:
    """Whether no other region shows anything of the chunks that a region would take.

    Regions that were joined elsewhere just now count, too: until the manifest changes, readers see them.
    """
    table = logical.manifest.regions
    taken = _chunks(logical, member, wanted)
    return not any(
        _chunks(logical, member, table.row(i)).intersect(taken)
        for i in np.flatnonzero(table.member == wanted.member).tolist()
        if i != besides
    )


def _copy_over(logical: LogicalGroup, base: Row, row: Row) -> None:
    """Put the chunks of a region into the base's member, right after what it shows."""
    manifest = logical.manifest
    there = row._replace(member=base.member, member_start=_place(base, row))
    if there == row:
        return
    target = logical.members[manifest.members[base.member]]
    source = logical.members[manifest.members[row.member]]
    needed = tuple(map(max, target.shape, manifest.in_member(there).stop))
    if needed != target.shape:
        target.resize(needed)
    origin, goal = _chunks(logical, source, row), _chunks(logical, target, there)
    moves = [Move(index, place) for index, place in zip(origin.indices(), goal.indices(), strict=True)]
    copy_chunks(source, target, moves)
