"""Appending to a logical array: first the partial last chunk, then a new region, or a longer one."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codecs.runtime_options import RuntimeOptions, with_codecs
from intarsia.display import names_text
from intarsia.errors import BoundsError
from intarsia.logical.encoding import (
    Encoding,
    codecs_of_any_size,
    encoding_like,
    encoding_of,
    planned_metadata,
)
from intarsia.logical.recode import recode
from intarsia.logical.staging import DataPiece, Reservation, check_shape
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import Values, holds_nulls, is_nullable
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.region_table import NONE, Row

if TYPE_CHECKING:
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest
    from intarsia.manifest.packing import Packing


FLOATS_ROUND = 4
"""Units in the last place by which packing and unpacking may change a value that still counts as equal."""

NO_CHOICE = Encoding()
"""An encoding of which the caller has said nothing."""


@dataclass(frozen=True)
class AppendPlan:
    """Data that goes after the end of an axis: where each part of it goes, and how it is stored.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(5,), chunks=(2,), dtype="i4")
    >>> plan = AppendPlan.of(array._logical, (4,), axis=0)
    >>> plan.grown.shape, plan.new_chunks
    ((9,), Box(start=(3,), stop=(5,)))
    """

    logical: LogicalArrayHandle
    """The array."""

    before: Manifest
    """Its manifest before the append."""

    axis: int
    """The axis, counted from the front."""

    length: int
    """The length of the data on its axis."""

    encoding: Encoding = NO_CHOICE
    """What the caller says about how it is stored."""

    values: Values | None = None
    """The data, or one value for all of it; None if it is not in memory, so nothing is known of it."""

    @classmethod
    def of(
        cls,
        logical: LogicalArrayHandle,
        shape: tuple[int, ...],
        axis: int | str,
        encoding: Encoding = NO_CHOICE,
        values: Values | None = None,
    ) -> AppendPlan:
        """The plan for data of this shape; refused if it does not fit the array."""
        manifest = logical.manifest
        old, axis = manifest.shape, axis_number(manifest, axis)
        whole = (*old[:axis], *shape[axis : axis + 1], *old[axis + 1 :])
        check_shape(shape, whole, f"data to append along axis {axis}")
        return cls(logical, manifest, axis, shape[axis], encoding, values)

    @cached_property
    def grown(self) -> Manifest:
        """The manifest with the new shape, but the old regions."""
        shape = list(self.before.shape)
        shape[self.axis] += self.length
        return replace(self.before, shape=tuple(shape))

    @cached_property
    def data(self) -> Box:
        """The elements of the grown array that the data fills."""
        start = [0] * self.before.ndim
        start[self.axis] = self.before.shape[self.axis]
        return Box(tuple(start), self.grown.shape)

    @cached_property
    def last(self) -> Row | None:
        """The one region that reaches the end of the axis over its whole cross-section, if there is one."""
        lattice, table, axis = self.before.lattice, self.before.regions, self.axis
        rows = np.flatnonzero(table.stop[:, axis] == lattice[axis])
        if len(rows) != 1:
            return None
        row = table.row(int(rows[0]))
        across = Box.sized(lattice).with_axis(axis, row.box.start[axis], lattice[axis])
        return row if row.box == across else None

    @cached_property
    def new_chunks(self) -> Box:
        """The logical chunks that are wholly new; the data may begin in a partial one before them."""
        lattice = self.grown.lattice
        first = -(-self.data.start[self.axis] // self.before.chunk_shape[self.axis])
        return Box.sized(lattice).with_axis(self.axis, first, lattice[self.axis])

    @cached_property
    def new_chunks_shape(self) -> tuple[int, ...] | None:
        """The shape of the data in wholly new logical chunks; None if there are none."""
        return self.grown.elements(self.new_chunks).shape if all(self.new_chunks.shape) else None

    @cached_property
    def partial(self) -> Box | None:
        """The logical chunks that already have some elements, and get more, if there are any."""
        start = self.data.start[self.axis] // self.before.chunk_shape[self.axis]
        stop = self.new_chunks.start[self.axis]
        box = self.new_chunks.with_axis(self.axis, start, stop)
        return box if start < stop and all(box.shape) and self.length else None

    @cached_property
    def partial_last_regions(self) -> list[tuple[Row, Box]]:
        """The regions that have the partial last chunk, and the part of it that they have."""
        return [] if self.partial is None else self.before.regions.parts(self.partial)

    def fresh(self, box: Box) -> Box:
        """The elements of a box of logical chunks that the data fills."""
        elements = self.grown.elements(box)
        return Box(tuple(map(max, elements.start, self.data.start)), elements.stop)

    @cached_property
    def new_encoding(self) -> Encoding:
        """The encoding of a new region: what the caller left open is taken from the previous region."""
        if self.last is None:
            return replace(self.encoding, keep_packing=False)
        return encoding_like(self.logical, self.last, self.encoding)

    def with_open_end(self, ulps: int = FLOATS_ROUND) -> AppendPlan:
        """The plan, after making sure that the data can continue in the partial last chunk.

        If a region's member cannot take it, because it is packed or seen from the other end, the region's
        part of that chunk is copied to a member of plain values, together with all others and what lies
        between them. Packing may change values by `ulps` units in the last place.
        """
        closed = [(row, part) for row, part in self.partial_last_regions if not self._takes(row, part, ulps)]
        if not closed:
            return self
        encoding = encoding_like(self.logical, closed[0][0], Encoding(options=self.encoding.options))
        encoding = replace(encoding, codecs=codecs_of_any_size(encoding.codecs or ()))  # which lose nothing
        recode(self.logical, Box.around([part for _, part in closed]), encoding)
        return replace(self, before=self.logical.manifest)

    def _takes(self, row: Row, part: Box | None = None, ulps: int = FLOATS_ROUND) -> bool:
        """Whether a region's member can take more values at the end of the axis, and they stay what they are.

        These are the values for a part of the partial last chunk, by default all of them. A caller that asks
        for the region's packing also accepts its rounding; other values are packed only if they change by no
        more than the rounding of floats.
        """
        view, packing = self.before.view_of(row), self.before.packing_of(row)
        if view is not None and not any((a.source, a.stride) == (self.axis, 1) for a in view.axes):
            return False
        if packing is None or self.encoding.keep_packing or self.encoding.packing == packing:
            return True
        values: Any = self.values
        if part is not None and np.ndim(values):
            values = values[self.fresh(part).seen_from(self.data.start).slices]
        return values is not None and packing.holds(values, ulps)

    def _is_like(self, row: Row) -> bool:
        """Whether the member of the last region can hold the data, with its nulls, and is encoded as
        requested."""
        encoding, member = self.encoding, self.logical.member_of(row)
        if holds_nulls(self.values) and not is_nullable(member.metadata.dtype):
            return False
        if encoding.packing is not None and encoding.packing != self.before.packing_of(row):
            return False
        if (encoding.codecs, encoding.chunks, encoding.shards) == (None, None, None):
            return True
        if row.view != NONE:
            return False
        planned = planned_metadata(self.before, member.shape, self.new_encoding)
        return encoding_of(planned) == encoding_of(member.metadata)

    def reserve_growth(self) -> Reservation | None:
        """Room in the member of the last region, which becomes longer; None unless it may simply grow."""
        before, grown, axis, row = self.before, self.grown, self.axis, self.last
        if row is None or not self.length or not (self._is_like(row) and self._takes(row)):
            return None
        end = grown.lattice[axis]
        longer = row.box.with_axis(axis, row.box.start[axis], end)
        piece = DataPiece.of(grown, row, self.fresh(longer))
        if grown.is_shown(piece.target, besides=row):
            return None
        reservation = Reservation(self.logical, self.data.start)
        reservation.in_member(piece, self._options_for(row))
        stop = before.regions.stop.copy()
        stop[(before.regions.start == row.box.start).all(axis=1), axis] = end
        reservation.manifest = before.changed(replace(before.regions, stop=stop), shape=grown.shape)
        return reservation

    def reserve(self, *, ready: str | None = None, packing: Packing | None = None) -> Reservation:
        """Room in the partial last chunk if regions have it, and in new members for new chunks.

        If `ready`, the array of this name in the group already holds the new chunks, with this packing: the
        reservation is for the part before them.
        """
        reservation = Reservation(self.logical, self.data.start)
        if not self.length:
            return reservation
        plan = self.with_open_end()
        before, grown, new, boxes = plan.before, plan.grown, list[NewRegion](), list[tuple[Box, Encoding]]()
        holes = [] if plan.partial is None else before.regions.free(plan.partial)
        if holes:  # a hole that becomes part of a region still reads as the array's fill value
            chosen = plan.new_encoding
            if chosen.packing is not None and not chosen.packing.holds(before.fill_value):
                chosen = replace(chosen, codecs=None, packing=None)
            boxes += [(box, chosen) for box in holes]
        if ready is None and all(plan.new_chunks.shape):
            boxes.append((plan.new_chunks, plan.new_encoding))
        for box, encoded in boxes:
            name = reservation.in_new_member(grown.elements(box), encoded, plan.fresh(box))
            new.append(NewRegion(box, name, packing=encoded.packing))
        if ready is not None:
            new.append(NewRegion(plan.new_chunks, ready, packing=packing))
        for row, part in plan.partial_last_regions:
            reservation.in_member(DataPiece.of(grown, row, plan.fresh(part)), plan._options_for(row))
        reservation.manifest = before.replace_boxes([], new, shape=grown.shape)
        return reservation

    def _options_for(self, row: Row) -> RuntimeOptions:
        """The options with which to write into an existing member.

        If the codecs of the call are those of the member, they write, with their own options; otherwise their
        decision is better than none.
        """
        encoding = self.encoding
        if encoding.codecs is None:
            return encoding.options
        if take_over_codecs(self.logical, row, encoding):
            return encoding.other_options
        return encoding.options.over(RuntimeOptions(default=encoding.own_options.decision))


def axis_number(manifest: Manifest, axis: int | str) -> int:
    """An axis by its number or its dimension name, counted from the front.

    >>> from intarsia.manifest.manifest import Manifest
    >>> manifest = Manifest.empty((5, 5), (2, 2), "i4", dimension_names=("y", "x"))
    >>> axis_number(manifest, "x"), axis_number(manifest, -2)
    (1, 0)
    """
    names, ndim = manifest.dimension_names or (), manifest.ndim
    if isinstance(axis, str) and axis not in names:
        named = [name for name in names if name is not None]
        raise BoundsError(f"no axis of the array is called {axis!r}: {names_text(axis, named)}")
    number = names.index(axis) if isinstance(axis, str) else operator.index(axis)
    if not -ndim <= number < ndim:
        raise BoundsError(f"axis {number} is out of bounds for an array of {ndim} dimensions")
    return number % ndim


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
