"""Which part of which member holds what a file contributes, and the regions that show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import Box, chunk_grid
from intarsia.manifest.document import new_name
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.view import MemberAxis, View

if TYPE_CHECKING:
    from intarsia.archives.plan.axis_union import Span
    from intarsia.archives.plan.encodings import ChunkSet, SourceEncoding
    from intarsia.archives.plan.ingest_plan import ArrayPlan, Contribution


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

    def put(self, contribution: Contribution, chunk_set: ChunkSet) -> None:
        """Give a contribution the next steps, at a chunk border: its chunks become chunks of the member."""
        own, axis, start = contribution.variable.shape, self.axis, self.shape[self.axis]
        chunk = self.encoding.chunks[axis]
        self.shape = [max(a, b) for a, b in zip(self.shape, own, strict=True)]
        self.shape[axis] = start + -(-own[axis] // chunk) * chunk
        self.allocations.append(Allocation(contribution, chunk_set, start))

    def regions(self, array: ArrayPlan) -> Iterator[NewRegion]:
        """The regions of an array that show what is put into the member."""
        for allocation in self.allocations:
            contribution = allocation.contribution
            plain = contribution.variable.dims == array.dims
            for spans in contribution.parts(allocation.chunk_set):
                place, offsets = [0] * len(array.dims), [0] * len(contribution.axes)
                for k, axis in enumerate(contribution.axes):
                    if axis is None:
                        offsets[k] = contribution.variable.dropped_index(k)
                        continue
                    span, cell = spans[axis], array.lattice[axis]
                    first = span.first + (allocation.start if k == self.axis else 0)
                    if span.stride > 0:  # the view says what the lattice cannot
                        place[axis], offsets[k] = divmod(first, cell)
                    elif cell == 1:
                        place[axis], offsets[k] = FARTHEST_PLACE - first, FARTHEST_PLACE
                    else:
                        offsets[k] = first
                box = Box.of((span.start, span.stop) for span in spans).in_units(array.lattice)
                straight = plain and not any(offsets) and all(span.stride > 0 for span in spans)
                view = None if straight else _view(contribution.axes, offsets, spans)
                yield NewRegion(box, self.name, tuple(place), contribution.packing, view)


def _view(axes: Sequence[int | None], offsets: Sequence[int], spans: Sequence[Span]) -> View:
    """How a region sees the axes of a file if they are not those of the array."""
    seen = (
        MemberAxis(None, offset) if axis is None else MemberAxis(axis, offset, spans[axis].stride)
        for axis, offset in zip(axes, offsets, strict=True)
    )
    return View(len(spans), tuple(seen))


def allocate_members(array: ArrayPlan, known: Mapping[str, str], logical: LogicalArrayHandle | None) -> None:
    """Put every contribution to an array into the member of its encoding, or into the next if that is full.

    `known` are the names of members, by the digests of encodings that they can hold; a new array has none.
    """
    names = set() if logical is None else set(logical.manifest.members)
    array.encodings = {digest: name for digest, name in known.items() if name in names}
    for contribution in array.contributions:
        for chunk_set in contribution.chunk_sets:
            member = _find_member(array, contribution, chunk_set, logical)
            array.members[member.name] = member
            member.put(contribution, chunk_set)


def _find_member(
    array: ArrayPlan, contribution: Contribution, chunk_set: ChunkSet, logical: LogicalArrayHandle | None
) -> GrowingMember:
    """The member for some chunks of a file; the array is told what it can hold."""
    encoding, dims, known = chunk_set.encoding, contribution.variable.dims, array.encodings
    # members have the axes of their files: another order of axes needs another member
    turned = "" if dims == array.dims else " " + ",".join(dims)
    digest, without_fill = encoding.digest + turned, encoding.digest_without_fill + turned
    # What is read where no chunk is stored matters only to files that lack a chunk.
    candidates = (digest, without_fill) if chunk_set.complete else (digest,)
    digest = next((each for each in candidates if each in known), digest)
    axis = next((dims.index(d) for a in array.growing if (d := array.dims[a]) in dims), 0)
    name = known.get(digest)
    member = None if name is None else array.members.get(name)
    if member is None and name is not None and logical is not None:  # begun in an earlier commit
        shape = list(logical.members[name].shape)
        shape[axis] = -(-shape[axis] // encoding.chunks[axis]) * encoding.chunks[axis]
        member = GrowingMember(name, encoding, dims, axis, shape, is_new=False)
    if member is None or member.is_full:
        shape = list(contribution.variable.shape)
        shape[axis] = 0
        member = GrowingMember(new_name(), encoding, dims, axis, shape, is_new=True)
    other = known.pop(without_fill, None)  # the latest come last
    known[without_fill] = member.name if other in (None, name) else other
    known.pop(digest, None)
    known[digest] = member.name
    return member
