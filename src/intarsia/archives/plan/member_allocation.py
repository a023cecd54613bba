"""Which part of which member holds what a file contributes, and the regions that show it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from intarsia.logical.logical_state import LogicalArrayHandle
from intarsia.manifest.box import Box, chunk_grid
from intarsia.manifest.document import new_name
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import NONE, RegionTable, Row
from intarsia.manifest.view import MemberAxis, View

if TYPE_CHECKING:
    from intarsia.archives.plan.axis_union import Span
    from intarsia.archives.plan.encodings import ChunkSet, SourceEncoding
    from intarsia.archives.plan.ingest_plan import ArrayPlan, Contribution
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.packing_columns import Packings


FARTHEST_PLACE = 1 << 40
"""Views that count downwards begin here if the lattice is 1, so that they all share one view."""

FULL = 1 << 18
"""How many chunks fill a member: what follows in the same encoding goes into another one. Nothing is added to
a full member, so its references can be in one large manifest (`splitting`): three to five megabytes, which a
reader of one chunk has to read."""


@dataclass(slots=True)
class Allocation:
    """The part of a member that chunks of one file take: steps that no other chunks use."""

    contribution: Contribution
    chunk_set: ChunkSet

    start: int
    """The first step of the contribution in the member: a multiple of the member's chunk."""


@dataclass(slots=True)
class GrowingMember:
    """A member and what is put into it, one file after another along one axis."""

    name: str
    encoding: SourceEncoding

    dims: tuple[str, ...]
    """Its axes, as in the files."""

    axis: int
    """The axis that grows from file to file."""

    shape: list[int]
    """Its new shape: whole chunks along the axis; on other axes, as long as the longest file."""

    is_new: bool
    """Whether it has to be created."""

    allocations: list[Allocation] = field(default_factory=list)
    """What is put into it."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes into it."""
        return prod(chunk_grid(tuple(self.shape), self.encoding.chunks)) >= FULL

    def put(self, contribution: Contribution, chunk_set: ChunkSet) -> Allocation:
        """Give a contribution the next steps, at a chunk border: its chunks become chunks of the member."""
        own, axis, start = contribution.variable.shape, self.axis, self.shape[self.axis]
        chunk = self.encoding.chunks[axis]
        self.shape = [max(a, b) for a, b in zip(self.shape, own, strict=True)]
        self.shape[axis] = start + -(-own[axis] // chunk) * chunk
        self.allocations.append(Allocation(contribution, chunk_set, start))
        return self.allocations[-1]


class MemberAllocator:
    """Puts every contribution to one array into the member of its encoding, or into the next if that is full.

    A new array has no group yet.
    """

    def __init__(
        self, array: ArrayPlan, known: Mapping[str, str], logical: LogicalArrayHandle | None
    ) -> None:
        self.members: dict[str, GrowingMember] = {}
        """Members that something is put into, by name."""

        self.used: dict[str, str] = {}
        """Their names, by the digests of encodings that they can hold."""

        self._array, self._logical = array, logical
        names = set() if logical is None else set(logical.manifest.members)
        self._known = {digest: name for digest, name in known.items() if name in names}
        self._allocations: list[tuple[GrowingMember, Allocation]] = []
        for contribution in array.contributions:
            for chunk_set in contribution.chunk_sets:
                member = self._member(contribution, chunk_set)
                self._allocations.append((member, member.put(contribution, chunk_set)))

    @property
    def full(self) -> list[str]:
        """Members that these contributions fill."""
        return [member.name for member in self.members.values() if member.is_full]

    def _new_name(self) -> str:
        """The name of another new member."""
        names, number = self._array.new_members, sum(each.is_new for each in self.members.values())
        if number == len(names):
            names.append(new_name())
        return names[number]

    def _member(self, contribution: Contribution, chunk_set: ChunkSet) -> GrowingMember:
        encoding, array, dims = chunk_set.encoding, self._array, contribution.variable.dims
        # members have the axes of their files: another order of axes needs another member
        turned = "" if dims == array.dims else " " + ",".join(dims)
        digest, without_fill = encoding.digest + turned, encoding.digest_without_fill + turned
        # What is read where no chunk is stored matters only to files that lack a chunk.
        candidates = (digest, without_fill) if chunk_set.complete else (digest,)
        known = ChainMap(self.used, self._known)
        digest = next((each for each in candidates if each in known), digest)
        axis = next((dims.index(d) for a in array.growing if (d := array.dims[a]) in dims), 0)
        before = known.get(digest)
        member = None if before is None else self._begun(before, encoding, dims, axis)
        if member is None or member.is_full:
            shape = list(contribution.variable.shape)
            shape[axis] = 0
            member = GrowingMember(self._new_name(), encoding, dims, axis, shape, is_new=True)
        self.members[member.name] = member
        held = known.get(without_fill)
        self.used[without_fill] = member.name if held in (None, before) else held
        self.used[digest] = member.name
        return member

    def _begun(self, name: str, encoding: SourceEncoding, dims: tuple[str, ...], axis: int) -> GrowingMember:
        """A member that something was put into, now or in an earlier commit."""
        if name in self.members or self._logical is None:
            return self.members[name]
        shape = list(self._logical.members[name].shape)
        shape[axis] = -(-shape[axis] // encoding.chunks[axis]) * encoding.chunks[axis]
        return GrowingMember(name, encoding, dims, axis, shape, is_new=False)

    def _regions(
        self, member: GrowingMember, allocation: Allocation
    ) -> Iterator[tuple[str, Box, tuple[int, ...], Packing | None, View | None]]:
        """The regions that show one allocation."""
        contribution, array = allocation.contribution, self._array
        plain = contribution.variable.dims == array.dims
        for spans in contribution.parts(allocation.chunk_set):
            place, offsets = [0] * len(array.dims), [0] * len(contribution.axes)
            for k, axis in enumerate(contribution.axes):
                if axis is None:
                    offsets[k] = contribution.variable.dropped_index(k)
                    continue
                span, cell = spans[axis], array.lattice[axis]
                first = span.first + (allocation.start if k == member.axis else 0)
                if span.stride > 0:  # the view says what the lattice cannot
                    place[axis], offsets[k] = divmod(first, cell)
                elif cell == 1:
                    place[axis], offsets[k] = FARTHEST_PLACE - first, FARTHEST_PLACE
                else:
                    offsets[k] = first
            box = Box.of([(span.start, span.start + span.length) for span in spans])
            straight = plain and not any(offsets) and all(span.stride > 0 for span in spans)
            view = None if straight else _view(contribution.axes, offsets, spans)
            shown = box.in_units(array.lattice)
            yield member.name, shown, tuple(place), contribution.packing, view

    def table(self, manifest: Manifest) -> tuple[RegionTable, tuple[str, ...], Packings, tuple[View, ...]]:
        """The new regions on the array's lattice; and the members, packings and views that they refer to."""
        shown = [each for pair in self._allocations for each in self._regions(*pair)]
        names = dict.fromkeys((*manifest.members, *(name for name, *_ in shown)))
        position = {name: i for i, name in enumerate(names)}
        packed = [packing for *_, packing, _ in shown if packing is not None]
        packings, listed = manifest.packings.with_(packed)
        numbers = iter(listed)
        views = {view: i for i, view in enumerate(manifest.views)}
        rows = [
            Row(
                position[name], box, inside, NONE if packing is None else next(numbers),
                NONE if view is None else views.setdefault(view, len(views)),
            )
            for name, box, inside, packing, view in shown
        ]  # fmt: skip
        return RegionTable.from_rows(rows, manifest.ndim), tuple(names), packings, tuple(views)


def _view(axes: Sequence[int | None], offsets: Sequence[int], spans: Sequence[Span]) -> View:
    """How a region sees the axes of a file if they are not those of the array."""
    seen = (
        MemberAxis(None) if axis is None else MemberAxis(axis, offset, spans[axis].stride)
        for axis, offset in zip(axes, offsets, strict=True)
    )
    return View(len(spans), tuple(seen))


def insert_gap(table: RegionTable, axis: int, at: int, length: int) -> RegionTable:
    """The table with `length` free cells at `at`; regions across it are split, those after it move up."""
    across = np.flatnonzero((table.start[:, axis] < at) & (table.stop[:, axis] > at))
    upper = table.select(across)
    upper_start, upper_member = upper.start.copy(), upper.member_start.copy()
    # the upper half starts later in its member, by the length of the lower half
    upper_member[:, axis] += at - upper_start[:, axis]
    upper_start[:, axis] = at
    stop = table.stop.copy()
    stop[across, axis] = at
    split = replace(table, stop=stop).concat(replace(upper, start=upper_start, member_start=upper_member))
    return _moved(split, axis, at, length)


def remove_cells(table: RegionTable, axis: int, start: int, stop: int) -> RegionTable:
    """The table without the cells from `start` to `stop`; regions after them move down."""
    # gaps of no cells only split: then every region is inside or outside
    table = insert_gap(insert_gap(table, axis, start, 0), axis, stop, 0)
    inside = (table.start[:, axis] >= start) & (table.stop[:, axis] <= stop)
    return _moved(table.select(np.flatnonzero(~inside)), axis, stop, start - stop)


def _moved(table: RegionTable, axis: int, at: int, by: int) -> RegionTable:
    after = table.start[:, axis] >= at
    start, stop = table.start.copy(), table.stop.copy()
    start[after, axis] += by
    stop[after, axis] += by
    return replace(table, start=start, stop=stop)


def shift_boxes(table: RegionTable, axis: int, by: int) -> RegionTable:
    """The table with all boxes moved along an axis."""
    return _moved(table, axis, 0, by) if by else table


def refine(manifest: Manifest, chunk_shape: tuple[int, ...]) -> Manifest:
    """The same regions on a finer lattice, whose chunks divide the old ones."""
    factor = np.array(manifest.chunk_shape, dtype=np.int64) // np.array(chunk_shape, dtype=np.int64)
    finer = replace(manifest, chunk_shape=chunk_shape)

    def refine(table: RegionTable) -> RegionTable:
        # the end of the array may cut the last chunk off: then it holds fewer of the finer chunks
        stop = np.minimum(table.stop * factor, np.array(finer.lattice, dtype=np.int64))
        starts = {"start": table.start * factor, "member_start": table.member_start * factor}
        return replace(table, stop=stop, **starts)

    replicas = refine(manifest.replicas) if len(manifest.replicas) else manifest.replicas
    return replace(finer, regions=refine(manifest.regions), replicas=replicas)


def merge_neighbours(table: RegionTable, axis: int) -> RegionTable:
    """The table with neighbours along an axis merged if one member continues from one to the next."""
    if len(table) < 2:
        return table
    cross = [d for d in range(table.ndim) if d != axis]
    # Regions do not overlap: sorted by the axis last, those that can be merged are neighbours.
    ordered = table.select(np.lexsort([table.start[:, axis], *table.start[:, cross].T[::-1]]))
    shift = ordered.member_start - ordered.start  # this stays the same where a member continues
    same = (ordered.member[1:] == ordered.member[:-1]) & (shift[1:] == shift[:-1]).all(axis=1)
    same &= ordered.start[1:, axis] == ordered.stop[:-1, axis]
    for numbers in (ordered.packing, ordered.view, ordered.layer):
        same &= numbers[1:] == numbers[:-1]
    for column in (ordered.start[:, cross], ordered.stop[:, cross]):
        same &= (column[1:] == column[:-1]).all(axis=1)
    firsts = np.flatnonzero(np.concatenate([[True], ~same]))
    lasts = np.append(firsts[1:], len(ordered)) - 1
    kept = ordered.select(firsts)
    stop = kept.stop.copy()
    stop[:, axis] = ordered.stop[lasts, axis]
    return replace(kept, stop=stop).select(np.argsort(kept.start[:, axis], kind="stable"))
