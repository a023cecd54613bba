"""Changing the layout of a logical array: add, drop, resize, join (append.py and recode.py have the rest)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codecs.runtime_options import NO_OPTIONS, RuntimeOptions
from intarsia.engine.prepared_member import member_problem, object_shape
from intarsia.errors import (
    AlignmentError,
    DataTypeError,
    MemberError,
    NoRegionError,
    PackingError,
    ShapeError,
)
from intarsia.logical.append import AppendPlan
from intarsia.logical.chunk_copies import ChunkMove, copy_chunks
from intarsia.logical.encoding import Encoding, encoding_of
from intarsia.logical.staging import (
    DataPiece,
    Reservation,
    check_free,
    check_shape,
    lattice_box,
    reserve_region,
)
from intarsia.manifest.box import BoundsLike, Box, chunk_grid, parse_shape
from intarsia.manifest.data_types import Values
from intarsia.manifest.document import problems_of_names, problems_of_regions
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.packing import Packing
from intarsia.manifest.region_table import Row
from intarsia.manifest.view import View

if TYPE_CHECKING:
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest


def add_region(
    logical: LogicalArrayHandle, bounds: BoundsLike, encoding: Encoding, values: Values | None = None
) -> None:
    """Back a free box by a new member."""
    box = lattice_box(logical.manifest, bounds)
    elements = logical.manifest.elements(box)
    if values is not None:
        check_shape(values.shape, elements.shape, f"the region {elements.text()}")
    elif encoding.stored_fill(logical.manifest) is None:
        raise PackingError(
            f"{encoding.packing}: it holds neither the array's fill value nor NaN, so a region without data "
            "has no value to read as.\n  Give data, or a fill_value that it holds"
        )
    reservation = reserve_region(logical, box, encoding)
    with reservation.shown_when_filled():
        if values is not None:
            reservation.fill(lambda source: values[source.slices])


def add_existing_member(
    logical: LogicalArrayHandle,
    bounds: BoundsLike,
    name: str,
    member_start: tuple[int, ...] | None,
    packing: Packing | None,
    view: View | Mapping[str, Any] | None,
) -> None:
    """Back a free box by an array that is already in the group."""
    manifest = logical.manifest
    box = lattice_box(manifest, bounds)
    check_free(manifest, box)
    elements = parse_shape((0,) * manifest.ndim if member_start is None else member_start, "member_start")
    if len(elements) != manifest.ndim or min(elements, default=0) < 0:
        raise ShapeError(f"member_start {elements} does not have {manifest.ndim} positions of at least 0")
    if any(a % c for a, c in zip(elements, manifest.chunk_shape, strict=True)):
        raise AlignmentError(
            f"member_start {elements} is not aligned to the logical chunks of {manifest.chunk_shape}"
        )
    is_member = name in manifest.members
    if is_member and (manifest.replicas.member == manifest.members.index(name)).any():
        raise MemberError(
            f"the array {name!r} holds a replica: a write to the region would change the replica too"
        )
    starts = tuple(a // c for a, c in zip(elements, manifest.chunk_shape, strict=True))
    changed = manifest.replace_boxes([], [NewRegion(box, name, starts, packing, _parse_view(manifest, view))])
    row = changed.regions.row(len(changed.regions) - 1)  # with its number there
    problems = problems_of_names(changed.members) or problems_of_regions(changed)
    if problems:
        raise ShapeError(f"the region {manifest.elements(box).text()} is impossible: {'; '.join(problems)}")
    member = logical.members[name] if is_member else logical.members.child(name)
    problem = member_problem(member, changed, row)
    if problem:
        error = DataTypeError if "decodes to" in problem else MemberError
        raise error(f"the array {name!r} cannot back {manifest.elements(box).text()}: {problem}")
    logical.members.adopt(name, member)
    logical.commit(changed)


def _parse_view(manifest: Manifest, view: View | Mapping[str, Any] | None) -> View | None:
    """A view of an existing array; None for the identity."""
    try:
        parsed = view if view is None or isinstance(view, View) else View.from_json(view)
    except ShapeError as error:
        raise ShapeError(f"view={view!r:.200}: {error}") from None
    return None if parsed == View.identity(manifest.ndim) else parsed


def drop_region(logical: LogicalArrayHandle, bounds: BoundsLike) -> None:
    """Make a box a hole; regions that it touches are cropped or dropped."""
    logical.begin_edit()
    manifest = logical.manifest
    box = lattice_box(manifest, bounds)
    if not manifest.regions.touching(box).size:
        raise NoRegionError(f"no region lies in {manifest.elements(box).text()}: there is nothing to drop")
    logical.commit(manifest.replace_boxes([box]))


def resize(logical: LogicalArrayHandle, shape: Sequence[int], options: RuntimeOptions = NO_OPTIONS) -> None:
    """Give the array another shape; what is cut off is gone, and new parts are holes.

    A packed region whose packing cannot hold the fill value gets its last chunk copied to an unpacked member
    first.
    """
    logical.begin_edit()
    manifest = logical.manifest
    new_shape = parse_shape(shape, "the shape")
    if len(new_shape) != manifest.ndim or min(new_shape, default=0) < 0:
        raise ShapeError(f"the shape {new_shape} does not have {manifest.ndim} sizes of at least 0")
    if new_shape == manifest.shape:
        return
    replace(manifest, shape=new_shape).without_regions().check()
    for axis, (old, new) in enumerate(zip(manifest.shape, new_shape, strict=True)):
        plan = AppendPlan(
            logical, logical.manifest, axis, new - old, Encoding(options=options), manifest.fill_value
        )
        if new > old:
            plan.with_open_end(ulps=0)
    manifest = logical.manifest
    left = Box.sized(chunk_grid(new_shape, manifest.chunk_shape))
    resized = manifest.replace_boxes(Box.sized(manifest.lattice).subtract(left), shape=new_shape)
    reservation, table = Reservation(logical, manifest=resized), resized.regions
    at_the_end = (table.stop == np.array(manifest.lattice, dtype=np.int64)).any(axis=1)
    for row in map(table.row, np.flatnonzero(at_the_end).tolist()):
        # what the last, partial chunks had beyond the end of the array
        for uncovered in resized.elements(row.box).subtract(manifest.elements(row.box)):
            reservation.in_member(DataPiece.of(resized, row, uncovered), options)
    with reservation.shown_when_filled():
        reservation.fill(lambda _: manifest.fill_value)


def consolidate(logical: LogicalArrayHandle) -> int:
    """Join neighbours of equal encoding into one member, axis by axis; returns how many regions are gone.

    Replicas are joined with others of their layer. No chunk is decoded.
    """
    logical.begin_edit()
    count, generation = len(logical.manifest.regions_and_replicas), -1
    while logical.manifest.generation != generation:  # what is joined may then fit its other neighbours
        generation = logical.manifest.generation
        for axis in range(logical.manifest.ndim):
            _join_along(logical, axis)
    return count - len(logical.manifest.regions_and_replicas)


def _join_along(logical: LogicalArrayHandle, axis: int) -> None:
    """Join every run of regions along one axis, in one new generation."""
    manifest, table = logical.manifest, logical.manifest.regions_and_replicas.merge_neighbours(axis)
    joined = replace(table, stop=table.stop.copy())
    left = np.ones(len(table), dtype=bool)
    for run in table.runs(axis):
        first = run[0]
        for i in run[1:]:
            base, row = joined.row(first), table.row(i)
            moved = row._replace(member=base.member, member_start=base.crop(row.box).member_start)
            if _fits(logical, base, row, moved):
                _copy_over(logical, row, moved)
                joined.stop[first, axis] = row.box.stop[axis]
                left[i] = False
            else:
                first = i
    if np.count_nonzero(left) < len(manifest.regions_and_replicas):
        logical.commit(manifest.changed(joined.select(left).in_layers(), same_values=True))


def _fits(logical: LogicalArrayHandle, base: Row, row: Row, moved: Row) -> bool:
    """Whether a region that follows another, the base, can be moved to its member, chunk for chunk."""
    if (row.packing, row.view, row.layer) != (base.packing, base.view, base.layer):
        return False
    manifest = logical.manifest
    one, other = logical.member_of(base), logical.member_of(row)
    encoding, size = encoding_of(one.metadata), object_shape(one)
    if encoding["chunk_grid"]["name"] != "regular" or encoding != encoding_of(other.metadata):
        return False
    here, there = manifest.in_member(row), manifest.in_member(moved)
    for before, after, step in zip(here.start, there.start, size, strict=True):
        if after < 0 or (after - before) % step:
            return False
    chunks = there.in_units(size)
    if chunks.intersect(manifest.in_member(base).in_units(size)) is not None:
        return False  # the elements of both would be in one chunk
    # Regions that were just joined elsewhere count too: until the manifest changes, readers see them.
    return not manifest.is_shown(chunks.in_elements(size), besides=base)


def _copy_over(logical: LogicalArrayHandle, row: Row, moved: Row) -> None:
    """Put the chunks of a region into the member that it is moved to."""
    manifest = logical.manifest
    source, target = (logical.members[manifest.members[each.member]] for each in (row, moved))
    here, there = manifest.in_member(row), manifest.in_member(moved)
    needed = tuple(map(max, target.shape, there.stop))
    if needed != target.shape:
        target.resize(needed)
    size = object_shape(target)
    indices = zip(here.in_units(size).indices(), there.in_units(size).indices(), strict=True)
    copy_chunks(source, target, [ChunkMove(*pair) for pair in indices])
