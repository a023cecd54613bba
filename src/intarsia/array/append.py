"""Appending to a logical array: the partial last chunk first, then a new region, or a longer one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.box import Box
from intarsia.array.edit import check_shape, write_into_member
from intarsia.array.encode import write_box
from intarsia.array.frame import clean_up
from intarsia.array.member import Encoding, create_member, encoding_of
from intarsia.array.memory import holds_nulls, is_nullable
from intarsia.array.table import RegionTable, Row
from intarsia.array.write import as_values
from intarsia.codecs.runtime import Options, with_codecs
from intarsia.errors import BoundsError, ShapeError

if TYPE_CHECKING:
    from intarsia.array.frame import Frame
    from intarsia.array.manifest import Manifest
    from intarsia.casting import Casting

__all__ = [
    "Addition",
    "append",
    "attach",
    "checked",
    "completed",
    "neighbour_to_grow",
    "options_for",
    "takes_over",
]


@dataclass(frozen=True)
class Addition:
    """Data on its way in, and the array as it will be."""

    values: np.ndarray[Any, Any]
    """What is appended, in the logical data type."""

    axis: int
    """Where, counted from the front."""

    before: Manifest
    """The array as it is."""

    grown: Manifest
    """The manifest with the new shape, but the old regions."""

    @property
    def old(self) -> int:
        """Where the data starts on its axis."""
        return self.before.shape[self.axis]

    @property
    def new(self) -> int:
        """Where it ends."""
        return self.grown.shape[self.axis]

    @property
    def lattice(self) -> Box:
        """All logical chunks of the grown array."""
        return Box.sized(self.grown.lattice)

    @property
    def rest(self) -> Box:
        """The logical chunks that are wholly new; the data may begin in a partial one before them."""
        first = -(-self.old // self.before.chunk_shape[self.axis])
        return self.lattice.with_axis(self.axis, first, self.lattice.stop[self.axis])

    def fresh(self, box: Box) -> Box:
        """The elements of a box of logical chunks that the data fills."""
        elements = self.grown.elements(box)
        return elements.with_axis(
            self.axis, max(self.old, elements.start[self.axis]), elements.stop[self.axis]
        )

    def data_in(self, elements: Box) -> np.ndarray[Any, Any]:
        """The data for a box of elements."""
        start, stop = elements.start[self.axis] - self.old, elements.stop[self.axis] - self.old
        part: np.ndarray[Any, Any] = self.values[elements.with_axis(self.axis, start, stop).slices]
        return part


def append(
    frame: Frame,
    data: Any,
    encoding: Encoding,
    *,
    axis: int = 0,
    merge: bool = True,
    casting: Casting = "same_kind",
) -> None:
    """Put data after the end of an axis."""
    frame.begin_edit()
    addition = checked(frame.manifest, as_values(frame.manifest, data, casting), axis)
    if addition.new == addition.old:
        return
    neighbour = neighbour_to_grow(frame, addition, encoding) if merge else None
    if neighbour is not None:
        _grow(frame, addition, neighbour, encoding)
    else:
        _add(frame, addition, encoding)


def checked(manifest: Manifest, values: np.ndarray[Any, Any], axis: int) -> Addition:
    if not -manifest.ndim <= axis < manifest.ndim:
        raise BoundsError(f"axis {axis} is out of bounds for an array of {manifest.ndim} dimensions")
    if values.ndim != manifest.ndim:
        raise ShapeError(f"the data has {values.ndim} dimensions, but the array has {manifest.ndim}")
    axis %= manifest.ndim
    shape = list(manifest.shape)
    shape[axis] = values.shape[axis]
    check_shape(values, tuple(shape), f"what is appended on axis {axis}")
    shape[axis] += manifest.shape[axis]
    return Addition(values, axis, manifest, replace(manifest, shape=tuple(shape)))


def _grow(frame: Frame, addition: Addition, i: int, encoding: Encoding) -> None:
    """Make the last region longer, in its own member."""
    table, axis = addition.before.regions, addition.axis
    row = table.row(i)
    end = addition.lattice.stop[axis]
    fresh = addition.fresh(row.box.with_axis(axis, row.box.start[axis], end))
    options = options_for(frame, row, encoding)
    write_into_member(frame, addition.grown, row, fresh, addition.data_in(fresh), options)
    stop = table.stop.copy()
    stop[i, axis] = end
    frame.commit(addition.before.changed(regions=replace(table, stop=stop), shape=addition.grown.shape))


def attach(frame: Frame, addition: Addition, member: str, encoding: Encoding) -> None:
    """Append data whose `rest` stands in the group already, as the array `member`."""
    _add(frame, addition, encoding, member)


def _add(frame: Frame, addition: Addition, encoding: Encoding, ready: str | None = None) -> None:
    """Fill the partial last chunk where regions have it, and put the rest into new members."""
    before, axis = addition.before, addition.axis
    first_free = addition.rest.start[axis]
    boxes = [addition.rest] if ready is None else []
    heads = []
    if addition.old % before.chunk_shape[axis]:
        slab = addition.lattice.with_axis(axis, first_free - 1, first_free)
        boxes += before.regions.free(slab)
        heads = [before.regions.row(i) for i in before.regions.touching(slab).tolist()]
    boxes = [box for box in boxes if prod(box.shape)]
    names = _new_members(frame, addition, boxes, completed(frame, axis, encoding))
    try:
        for row in heads:
            shared = row.box.intersect(slab)
            assert shared is not None
            head, options = addition.fresh(shared), options_for(frame, row, encoding)
            write_into_member(frame, addition.grown, row, head, addition.data_in(head), options)
    except BaseException as error:
        clean_up(frame.group.store, error, lambda: frame.discard(*names))
        raise
    if ready is not None:
        boxes.append(addition.rest)
        names.append(ready)
    origin = (0,) * before.ndim
    rows = [Row(len(before.members) + i, box, origin) for i, box in enumerate(boxes)]
    table = before.regions.joined(RegionTable.from_rows(rows, before.ndim))
    frame.commit(before.changed(regions=table, members=(*before.members, *names), shape=addition.grown.shape))


def options_for(frame: Frame, row: Row, encoding: Encoding) -> Options:
    """The options with which an append writes into a member that is there already.

    Where the codecs given are those of the member, they themselves write, with what they bring; elsewhere
    what they decide by is better than nothing.
    """
    if encoding.codecs is None:
        return encoding.options
    if takes_over(frame, row, encoding):
        return encoding.other_options
    return encoding.options.over(Options(default=encoding.own_options.decision))


def takes_over(frame: Frame, row: Row, encoding: Encoding) -> bool:
    """Let the codecs given write into a member from now on, with what they bring, if they are its own."""
    name = frame.manifest.members[row.member]
    member: Any = frame.members[name]
    would: Any = create_member({}, None, frame.manifest, member.shape, encoding)
    if would.metadata.to_dict()["codecs"] != member.metadata.to_dict()["codecs"]:
        return False
    frame.members.adopt(name, with_codecs(member, would.metadata.codecs))
    return True


def _new_members(frame: Frame, addition: Addition, boxes: list[Box], encoding: Encoding) -> list[str]:
    """A member for each box, holding the data; nothing is left behind if that fails."""
    made: list[str] = []
    try:
        for box in boxes:
            elements, fresh = addition.grown.elements(box), addition.fresh(box)
            name, _ = frame.create_member(elements.shape, encoding)
            made.append(name)
            target = frame.target(name, encoding.other_options)
            write_box(target, fresh.seen_from(elements.start), addition.data_in(fresh))
    except BaseException as error:
        clean_up(frame.group.store, error, lambda: frame.discard(*made))
        raise
    return made


def _last_row(frame: Frame, axis: int) -> int | None:
    """The one region that reaches the end of the axis over its whole cross-section, if there is one."""
    manifest = frame.manifest
    lattice = Box.sized(manifest.lattice)
    if not prod(lattice.shape):
        return None
    slab = lattice.with_axis(axis, manifest.lattice[axis] - 1, manifest.lattice[axis])
    rows = manifest.regions.touching(slab).tolist()
    if len(rows) != 1 or manifest.regions.row(rows[0]).box.intersect(slab) != slab:
        return None
    last: int = rows[0]
    return last


def completed(frame: Frame, axis: int, encoding: Encoding) -> Encoding:
    """What was not asked for is taken from the region before, so that a series keeps its encoding."""
    last = _last_row(frame, axis)
    if last is None or encoding.codecs is not None:
        return encoding
    member = frame.member_of(frame.manifest.regions.row(last))
    codecs: Any = member.metadata.to_dict()["codecs"]
    if codecs[0]["name"] == "sharding_indexed":
        codecs = codecs[0]["configuration"]["codecs"]
    if encoding.chunks is not None or encoding.shards is not None:
        return replace(encoding, codecs=codecs)
    fill_value = encoding.fill_value
    if fill_value is None and member.metadata.dtype == frame.manifest.data_type:
        fill_value = member.fill_value
    return Encoding(codecs, member.chunks, member.shards, fill_value, encoding.options)


def neighbour_to_grow(frame: Frame, addition: Addition, encoding: Encoding) -> int | None:
    """The last region on the axis, if it may simply grow: equal encoding, and room in its member."""
    manifest, axis, origin = addition.before, addition.axis, addition.lattice
    last = _last_row(frame, axis)
    if last is None:
        return None
    row = manifest.regions.row(last)
    if any(row.box.start[d] or row.box.stop[d] != origin.stop[d] for d in range(manifest.ndim) if d != axis):
        return None
    member = frame.member_of(row)
    if holds_nulls(addition.values) and not is_nullable(member.metadata.dtype):
        return None
    if not encoding.is_default:
        would = create_member({}, None, manifest, member.shape, completed(frame, axis, encoding))
        if encoding_of(would) != encoding_of(member):
            return None
    return last if _has_room(manifest, last, axis, origin.stop[axis]) else None


def _has_room(manifest: Manifest, i: int, axis: int, end: int) -> bool:
    """Whether no other region shows the part of the member that region `i` would grow into."""
    table, row = manifest.regions, manifest.regions.row(i)
    box = row.member_box
    start, stop = box.with_axis(axis, box.stop[axis], end + row.shift[axis])
    others = np.flatnonzero(table.member == row.member)
    others = others[others != i]
    starts = table.member_start[others]
    stops = starts + table.stop[others] - table.start[others]
    return not bool(((starts < stop) & (stops > start)).all(axis=1).any())
