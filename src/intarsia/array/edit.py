"""Changing the layout of a logical array: add, recode, drop, resize (append.py has the rest).

Every function checks first, then writes members, then commits the new manifest.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.box import Box
from intarsia.array.encode import write_box
from intarsia.array.frame import clean_up
from intarsia.array.manifest import NAME, sizes_of
from intarsia.array.member import member_problem, needed_shape
from intarsia.array.table import RegionTable, Row
from intarsia.array.write import as_values
from intarsia.codecs.runtime import NO_OPTIONS, Options
from intarsia.errors import (
    AlignmentError,
    BoundsError,
    DataTypeError,
    MemberError,
    NoRegionError,
    OverlapError,
    ShapeError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr

    from intarsia.array.frame import Frame
    from intarsia.array.manifest import Manifest
    from intarsia.casting import Casting
from intarsia.array.member import Encoding

__all__ = [
    "add_region",
    "check_shape",
    "drop_region",
    "lattice_box",
    "resize",
    "write_into_member",
]

type Bounds = Sequence[tuple[int, int]]


def lattice_box(manifest: Manifest, bounds: Bounds) -> Box:
    """Element bounds as a box of logical chunks; refused unless they lie on the lattice and in the array.

    >>> from intarsia.array.manifest import Manifest
    >>> lattice_box(Manifest.empty((250,), (100,), "i4"), [(100, 250)])
    Box(start=(1,), stop=(3,))
    """
    try:
        pairs = [tuple(operator.index(edge) for edge in pair) for pair in bounds]
    except TypeError:  # slices, single numbers, floats
        pairs = []
    if len(pairs) != manifest.ndim or any(len(pair) != 2 for pair in pairs):
        axes = "axis" if manifest.ndim == 1 else "axes"
        raise ShapeError(
            f"bounds {bounds!r}: give a pair of integers (start, stop) for each of the {manifest.ndim} {axes}"
        )
    asked = Box.of((a, b) for a, b in pairs)
    columns = list(zip(asked.start, asked.stop, manifest.shape, manifest.chunk_shape, strict=True))
    if any(not 0 <= a < b <= n for a, b, n, _ in columns):
        raise BoundsError(
            f"the bounds {asked.text()} are empty or outside the array, whose shape is {manifest.shape}"
        )
    if any(a % c or (b % c and b != n) for a, b, n, c in columns):
        nearest = manifest.elements(manifest.cells(asked))
        raise AlignmentError(
            f"the bounds {asked.text()} are not aligned to the logical chunks of "
            f"{manifest.chunk_shape}.\n  The nearest aligned bounds around them are {nearest.text()}"
        )
    return manifest.cells(asked)


def check_shape(values: np.ndarray[Any, Any], expected: tuple[int, ...], what: str) -> None:
    if values.shape != expected:
        raise ShapeError(f"the data has shape {values.shape}, but {what} has shape {expected}")


def _new_member(
    frame: Frame, shape: tuple[int, ...], values: np.ndarray[Any, Any] | None, encoding: Encoding
) -> tuple[str, zarr.Array[Any]]:
    """A member of this shape holding `values`; nothing is left behind if that fails."""
    name, member = frame.create_member(shape, encoding)
    if values is not None:
        try:
            write_box(frame.target(name, encoding.other_options), Box.sized(shape), values)
        except BaseException as error:
            clean_up(frame.group.store, error, lambda: frame.discard(name))
            raise
    return name, member


def add_region(
    frame: Frame,
    bounds: Bounds,
    encoding: Encoding,
    *,
    data: Any = None,
    member: str | None = None,
    member_start: tuple[int, ...] | None = None,
    casting: Casting = "same_kind",
) -> None:
    """Back a free box by a new member, or by one that exists already."""
    frame.begin_edit()
    manifest = frame.manifest
    box = lattice_box(manifest, bounds)
    taken = manifest.regions.touching(box)
    if taken.size:
        named = ", ".join(frame.region_text(manifest.regions.row(i)) for i in taken[:6].tolist())
        raise OverlapError(
            f"the bounds {frame.bounds_text(box)} overlap {taken.size} regions: {named}.\n"
            "  Choose a free box, drop them first (arr.drop_region), or change their encoding (arr.recode)"
        )
    names = manifest.members
    if member is None:
        shape = manifest.elements(box).shape
        values = None if data is None else as_values(manifest, data, casting)
        if values is not None:
            check_shape(values, shape, f"the region {frame.bounds_text(box)}")
        name, _ = _new_member(frame, shape, values, encoding)
        row = Row(len(names), box, (0,) * manifest.ndim)
        names = (*names, name)
    else:
        row, names = _adopted(frame, box, member, member_start)
    table = manifest.regions.joined(RegionTable.from_rows([row], manifest.ndim))
    frame.commit(manifest.changed(regions=table, members=names))


def _adopted(
    frame: Frame, box: Box, name: str, member_start: tuple[int, ...] | None
) -> tuple[Row, tuple[str, ...]]:
    """A row backed by an array that stands in the group already."""
    manifest = frame.manifest
    elements = sizes_of((0,) * manifest.ndim if member_start is None else member_start, "member_start")
    if len(elements) != manifest.ndim or min(elements, default=0) < 0:
        raise ShapeError(f"member_start {elements} does not have {manifest.ndim} places of at least 0")
    if not NAME.match(name):
        raise MemberError(
            f"the array {name!r} cannot be a member: a member's name is one path segment of letters, digits, "
            "'.', '_' and '-', so that every store and every reader can spell it"
        )
    if any(a % c for a, c in zip(elements, manifest.chunk_shape, strict=True)):
        raise AlignmentError(
            f"member_start {elements} is not aligned to the logical chunks of {manifest.chunk_shape}"
        )
    known = name in manifest.members
    position = manifest.members.index(name) if known else len(manifest.members)
    starts = tuple(a // c for a, c in zip(elements, manifest.chunk_shape, strict=True))
    row = Row(position, box, starts)
    member = frame.members[name] if known else frame.members.child(name)
    problem = member_problem(member, manifest, needed_shape(manifest, row))
    if problem:
        error = DataTypeError if "decodes to" in problem else MemberError
        raise error(f"the array {name!r} cannot back {frame.bounds_text(box)}: {problem}")
    frame.members.adopt(name, member)
    return row, manifest.members if known else (*manifest.members, name)


def drop_region(frame: Frame, bounds: Bounds) -> None:
    """Make a box a hole; regions that it touches are cropped or dropped."""
    frame.begin_edit()
    manifest = frame.manifest
    box = lattice_box(manifest, bounds)
    if not manifest.regions.touching(box).size:
        raise NoRegionError(f"no region lies in {frame.bounds_text(box)}: there is nothing to drop")
    frame.commit(manifest.changed(regions=manifest.regions.without(box)))


def resize(frame: Frame, shape: Sequence[int], options: Options = NO_OPTIONS) -> None:
    """Give the array another shape; what is cut off is gone, what is new is a hole."""
    frame.begin_edit()
    manifest = frame.manifest
    new_shape = sizes_of(shape, "the shape")
    if len(new_shape) != manifest.ndim or min(new_shape, default=0) < 0:
        raise ShapeError(f"the shape {new_shape} does not have {manifest.ndim} sizes of at least 0")
    if new_shape == manifest.shape:
        return
    resized = replace(manifest, shape=new_shape)
    replace(resized, members=(), regions=RegionTable.from_rows([], manifest.ndim)).check()
    table = manifest.regions
    lattice = np.array(resized.lattice, dtype=np.int64)
    kept = np.flatnonzero((table.start < lattice).all(axis=1))
    table = table.take(kept)
    table = replace(table, stop=np.minimum(table.stop, lattice))
    cropped = replace(resized, regions=table)
    for i in _uncovering_rows(manifest, cropped):
        row = cropped.regions.row(i)
        old, new = manifest.elements(row.box), cropped.elements(row.box)
        for piece in new.without(old):
            write_into_member(frame, cropped, row, piece, manifest.fill_value, options)
    frame.commit(manifest.changed(regions=table, shape=new_shape))


def _uncovering_rows(before: Manifest, after: Manifest) -> list[int]:
    """Rows of `after` that show more elements of their last, partial chunks than `before` did."""
    chunk = np.array(before.chunk_shape, dtype=np.int64)
    edge = after.regions.stop * chunk
    shown = np.minimum(edge, np.array(before.shape, dtype=np.int64))
    shows = np.minimum(edge, np.array(after.shape, dtype=np.int64))
    return [int(i) for i in np.flatnonzero((shows > shown).any(axis=1))]


def write_into_member(
    frame: Frame, manifest: Manifest, row: Row, box: Box, value: Any, options: Options
) -> None:
    """Write a box of elements of a region, growing its member where needed."""
    name = frame.manifest.members[row.member]
    member = frame.members[name]
    place = box.shifted(manifest.member_shift(row))
    needed = tuple(map(max, member.shape, place.stop))
    before = member.shape
    if needed != before:
        member.resize(needed)
    try:
        write_box(frame.target(name, options), place, value)
    except Exception:
        if needed != before:
            member.resize(before)
        raise
