"""Appending to a logical array: first the partial last chunk, then a new region, or a longer one."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from intarsia.casting import Casting
from intarsia.codecs.runtime_options import Options, with_codecs
from intarsia.display import names_text
from intarsia.errors import BoundsError, ShapeError
from intarsia.logical.encoding import Encoding, encoding_like, encoding_of, planned_metadata
from intarsia.logical.recode import copy_to_unpacked_member
from intarsia.logical.staging import Reservation, check_shape
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import Values, as_values, holds_nulls, is_nullable
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.region_table import NONE, Row

if TYPE_CHECKING:
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest


FLOATS_ROUND = 4
"""Units in the last place by which packing and unpacking may change a value that still counts as equal."""


@dataclass(frozen=True)
class AppendPlan:
    """Where data of some shape goes after the end of an axis.

    >>> from intarsia.manifest.manifest import Manifest
    >>> plan = AppendPlan.of(Manifest.empty((5,), (2,), "i4"), (4,), axis=0)
    >>> plan.grown.shape, plan.new_chunks
    ((9,), Box(start=(3,), stop=(5,)))
    """

    axis: int
    """The axis, counted from the front."""

    before: Manifest
    """The array as it is."""

    grown: Manifest
    """The manifest with the new shape, but the old regions."""

    @classmethod
    def of(cls, manifest: Manifest, shape: tuple[int, ...], axis: int | str) -> AppendPlan:
        """The plan for data of this shape; refused if it does not fit the array."""
        axis = axis_number(manifest, axis)
        if not -manifest.ndim <= axis < manifest.ndim:
            raise BoundsError(f"axis {axis} is out of bounds for an array of {manifest.ndim} dimensions")
        if len(shape) != manifest.ndim:
            raise ShapeError(f"the data has {len(shape)} dimensions, but the array has {manifest.ndim}")
        axis %= manifest.ndim
        whole = list(manifest.shape)
        whole[axis] = shape[axis]
        check_shape(shape, tuple(whole), f"what is appended along axis {axis}")
        whole[axis] += manifest.shape[axis]
        return cls(axis, manifest, replace(manifest, shape=tuple(whole)))

    @cached_property
    def old_length(self) -> int:
        """Where the data starts on its axis."""
        return self.before.shape[self.axis]

    @cached_property
    def length(self) -> int:
        """The length of the data on its axis."""
        return self.grown.shape[self.axis] - self.old_length

    @cached_property
    def last(self) -> Row | None:
        """The one region that reaches the end of the axis over its whole cross-section, if there is one."""
        lattice, table = Box.sized(self.before.lattice), self.before.regions
        if not all(lattice.stop):
            return None
        slab = lattice.with_axis(self.axis, lattice.stop[self.axis] - 1, lattice.stop[self.axis])
        rows = [table.row(i) for i in table.touching(slab)[:2].tolist()]
        return rows[0] if len(rows) == 1 and rows[0].box.intersect(slab) == slab else None

    @cached_property
    def partial_last_regions(self) -> list[tuple[Row, Box]]:
        """The regions that have the partial last chunk, and the part of it that they have."""
        if self.partial.start[self.axis] == self.partial.stop[self.axis] or not self.length:
            return []
        table = self.before.regions
        rows = [table.row(i) for i in table.touching(self.partial).tolist()]
        return [(row, shared) for row in rows if (shared := row.box.intersect(self.partial)) is not None]

    @property
    def origin(self) -> tuple[int, ...]:
        """Where it starts in the grown array."""
        return tuple(self.old_length if d == self.axis else 0 for d in range(self.before.ndim))

    @cached_property
    def lattice(self) -> Box:
        """All logical chunks of the grown array."""
        return Box.sized(self.grown.lattice)

    @cached_property
    def new_chunks(self) -> Box:
        """The logical chunks that are wholly new; the data may begin in a partial one before them."""
        first = -(-self.old_length // self.before.chunk_shape[self.axis])
        return self.lattice.with_axis(self.axis, first, self.lattice.stop[self.axis])

    @property
    def new_chunks_shape(self) -> tuple[int, ...] | None:
        """The shape of the data in wholly new logical chunks; None if there are none."""
        return self.grown.elements(self.new_chunks).shape if prod(self.new_chunks.shape) else None

    @cached_property
    def partial(self) -> Box:
        """The logical chunks that already have some elements, and get more; an empty box if none do."""
        start = self.old_length // self.before.chunk_shape[self.axis]
        return self.lattice.with_axis(self.axis, start, self.new_chunks.start[self.axis])

    def fresh(self, box: Box) -> Box:
        """The elements of a box of logical chunks that the data fills."""
        elements = self.grown.elements(box)
        return elements.with_axis(
            self.axis, max(self.old_length, elements.start[self.axis]), elements.stop[self.axis]
        )


def axis_number(manifest: Manifest, axis: int | str) -> int:
    """An axis by its number or its dimension name.

    >>> from intarsia.manifest.manifest import Manifest
    >>> axis_number(Manifest.empty((5, 5), (2, 2), "i4", dimension_names=("y", "x")), "x")
    1
    """
    if not isinstance(axis, str):
        return operator.index(axis)
    names = manifest.dimension_names or ()
    if axis not in names:
        named = [name for name in names if name is not None]
        raise BoundsError(f"no axis of the array is called {axis!r}: {names_text(axis, named)}")
    return names.index(axis)


def append(
    logical: LogicalArrayHandle,
    data: Any,
    encoding: Encoding,
    *,
    axis: int | str = 0,
    merge: bool = True,
    casting: Casting = "same_kind",
) -> None:
    """Put data after the end of an axis."""
    logical.begin_edit()
    values = as_values(logical.manifest, data, casting, all_axes=True)
    plan = _with_open_end(logical, AppendPlan.of(logical.manifest, values.shape, axis), encoding, values)
    reservation = reserve_growth(logical, plan, encoding, values) if merge else None
    if reservation is None:
        reservation = reserve_append(logical, plan, encoding, values)
    with reservation.shown_when_filled():
        reservation.fill(lambda source: values[source.slices])


def reserve_growth(
    logical: LogicalArrayHandle, plan: AppendPlan, encoding: Encoding, values: Values | None = None
) -> Reservation | None:
    """Room in the member of the last region, which becomes longer; None unless it may simply grow.

    Without the values, it is not known whether they can be packed.
    """
    before, grown, axis = plan.before, plan.grown, plan.axis
    row, end = plan.last, grown.lattice[axis]
    if row is None or not plan.length:
        return None
    if not (_is_like(logical, row, encoding, values) and _takes(before, row, axis, encoding, values)):
        return None
    beyond = row.box.with_axis(axis, row.box.stop[axis], end)
    if all(beyond.shape):
        in_member = grown.to_member(row, grown.elements(beyond))
        if grown.is_shown(row.member, in_member, besides=row):
            return None
    reservation = Reservation(logical, plan.origin)
    fresh = plan.fresh(row.box.with_axis(axis, row.box.start[axis], end))
    reservation.in_region(grown, row, fresh, _options_for(logical, row, encoding))
    stop = before.regions.stop.copy()
    stop[(before.regions.start == row.box.start).all(axis=1), axis] = end
    reservation.manifest = before.changed(regions=replace(before.regions, stop=stop), shape=grown.shape)
    return reservation


def reserve_append(
    logical: LogicalArrayHandle,
    plan: AppendPlan,
    encoding: Encoding,
    values: Values | None = None,
    *,
    ready: str | None = None,
) -> Reservation:
    """Room in the partial last chunk if regions have it, and in new members for new chunks.

    If `ready`, the array of this name in the group already holds the new chunks, packed as `encoding` says:
    the reservation is for the part before them.
    """
    reservation = Reservation(logical, plan.origin)
    if not plan.length:
        return reservation
    plan = _with_open_end(logical, plan, encoding, values)
    before, grown, new = plan.before, plan.grown, list[NewRegion]()
    holes = before.regions.free(plan.partial) if all(plan.partial.shape) else []
    if holes or ready is None:
        chosen = complete_encoding(logical, plan, encoding)
        # A hole that becomes part of a region still reads as the array's fill value.
        at_holes = chosen if chosen.keeps(before.fill_value) else chosen.unpacked(before)
        boxes = [(box, at_holes) for box in holes]
        if ready is None and all(plan.new_chunks.shape):
            boxes.append((plan.new_chunks, chosen))
        for box, encoded in boxes:
            elements, fresh = grown.elements(box), plan.fresh(box)
            name = reservation.in_new_member(elements, encoded, fresh, packing=encoded.packing)
            new.append(NewRegion(box, name, packing=encoded.packing))
    if ready is not None:
        new.append(NewRegion(plan.new_chunks, ready, packing=encoding.packing))
    for row, shared in plan.partial_last_regions:
        reservation.in_region(grown, row, plan.fresh(shared), _options_for(logical, row, encoding))
    reservation.manifest = before.replace_boxes([], new, shape=grown.shape)
    return reservation


def reserve_new_chunks(logical: LogicalArrayHandle, plan: AppendPlan, encoding: Encoding) -> Reservation:
    """Room for the data in wholly new logical chunks, in a member that no manifest shows yet."""
    reservation = Reservation(logical, plan.origin)
    if plan.new_chunks_shape is not None:
        reservation.in_new_member(plan.grown.elements(plan.new_chunks), encoding, packing=encoding.packing)
    return reservation


def _with_open_end(
    logical: LogicalArrayHandle, plan: AppendPlan, encoding: Encoding, values: Values | None
) -> AppendPlan:
    """The plan, after making sure that the data can continue in the partial last chunk.

    If a region's member cannot take it, because it is packed or seen from the other end, the region's part of
    that chunk is copied to a member that can.
    """
    closed = []
    for row, shared in plan.partial_last_regions:
        fresh = plan.fresh(shared).seen_from(plan.origin).slices
        chosen = None if values is None else values[fresh]
        if not _takes(plan.before, row, plan.axis, encoding, chosen):
            closed.append((row, shared))
    if not closed:
        return plan
    copy_to_unpacked_member(logical, closed, encoding.options)
    return AppendPlan(plan.axis, logical.manifest, replace(logical.manifest, shape=plan.grown.shape))


def _takes(manifest: Manifest, row: Row, axis: int, encoding: Encoding, values: Values | None) -> bool:
    """Whether a region's member can take more values at the end of an axis, and they stay what they are.

    A caller that asks for the region's packing also accepts its rounding; other values are packed only if
    they change by no more than the rounding of floats.
    """
    view, packing = manifest.view_of(row), manifest.packing_of(row)
    if view is not None and not any((a.source, a.stride) == (axis, 1) for a in view.axes):
        return False
    if packing is None or encoding.keep_packing or encoding.packing == packing:
        return True
    return values is not None and packing.holds(values, FLOATS_ROUND)


def _is_like(logical: LogicalArrayHandle, row: Row, encoding: Encoding, values: Values | None) -> bool:
    """Whether data in this encoding, with its nulls, can be stored in the member of a region."""
    manifest, member = logical.manifest, logical.member_of(row)
    if holds_nulls(values) and not is_nullable(member.metadata.dtype):
        return False
    if encoding.packing is not None and encoding.packing != manifest.packing_of(row):
        return False
    if replace(encoding, packing=None, keep_packing=False).is_default:
        return True
    if row.view != NONE:
        return False
    planned = planned_metadata(manifest, member.shape, encoding_like(logical, row, encoding))
    return encoding_of(planned) == encoding_of(member.metadata)


def _options_for(logical: LogicalArrayHandle, row: Row, encoding: Encoding) -> Options:
    """The options with which an append writes into an existing member.

    If the codecs of the call are those of the member, they write, with their own options; otherwise their
    decision is better than none.
    """
    if encoding.codecs is None:
        return encoding.options
    if take_over_codecs(logical, row, encoding):
        return encoding.other_options
    return encoding.options.over(Options(default=encoding.own_options.decision))


def take_over_codecs(logical: LogicalArrayHandle, row: Row, encoding: Encoding) -> bool:
    """Let these codecs write into a member from now on, with their options, if they equal its own."""
    name = logical.manifest.members[row.member]
    member: Any = logical.members[name]
    if row.view != NONE:
        return False
    packed = replace(encoding, packing=logical.manifest.packing_of(row))
    planned = planned_metadata(logical.manifest, member.shape, packed)
    if encoding_of(planned)["codecs"] != encoding_of(member.metadata)["codecs"]:
        return False
    logical.members.adopt(name, with_codecs(member, planned.codecs))
    return True


def complete_encoding(logical: LogicalArrayHandle, plan: AppendPlan, encoding: Encoding) -> Encoding:
    """Take what the caller left open from the previous region, so that a series keeps its encoding."""
    if plan.last is None:
        return replace(encoding, keep_packing=False)
    return encoding_like(logical, plan.last, encoding)
