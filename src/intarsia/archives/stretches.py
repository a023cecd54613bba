"""Where contributions go: stretches of members, one after the other, and the regions that show them."""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from intarsia.archives.draft import ArrayDraft, Contribution
from intarsia.archives.encodings import ChunkSet, SourceEncoding
from intarsia.array.box import Box
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.manifest import Manifest
from intarsia.array.member import new_name
from intarsia.array.packings import Packings
from intarsia.array.table import NONE, RegionTable, Row
from intarsia.packing import Packing


@dataclass(slots=True)
class Stretch:
    """What chunks of one file take of a member: steps that no others use."""

    contribution: Contribution
    chunk_set: ChunkSet

    start: int
    """First step of the contribution in the member: a multiple of the member's chunk."""


@dataclass(slots=True)
class GrowingMember:
    """A member and what is put into it."""

    name: str
    encoding: SourceEncoding

    steps: int
    """How many steps it holds, what is put into it included."""

    is_new: bool
    """Whether it has to be created."""

    stretches: list[Stretch] = field(default_factory=list)
    """What is put into it."""

    def shape(self, array: ArrayDraft) -> tuple[int, ...]:
        """Its shape, as it will be: that of the array, with whole chunks along the axis."""
        chunk = self.encoding.chunks[array.axis]
        steps = -(-self.steps // chunk) * chunk
        return array.shape[: array.axis] + (steps,) + array.shape[array.axis + 1 :]


class Stretches:
    """Gives every contribution to one array a stretch of a member: as few members as there are encodings."""

    def __init__(self, array: ArrayDraft, known: Mapping[str, str], logical: LogicalGroup) -> None:
        self.members: dict[str, GrowingMember] = {}
        """Members that something is put into, by name."""

        self.used: dict[str, str] = {}
        """Their names, by the digests of encodings that they can hold."""

        self._array, self._logical = array, logical
        self._known = {digest: name for digest, name in known.items() if name in logical.manifest.members}
        self._rows: list[tuple[str, Box, tuple[int, ...], Packing | None]] = []
        for contribution in array.contributions:
            for chunk_set in contribution.chunk_sets:
                self._put(contribution, chunk_set)

    def _member(self, chunk_set: ChunkSet) -> GrowingMember:
        encoding = chunk_set.encoding
        digest, without_fill = encoding.digest, encoding.digest_without_fill
        # What reads where no chunk is stored matters only to files that left one out.
        candidates = (digest, without_fill) if chunk_set.complete else (digest,)
        known = ChainMap(self.used, self._known)
        digest = next((each for each in candidates if each in known), digest)
        name = known.get(digest) or new_name()
        if name not in self.members:
            is_new = digest not in known
            steps = 0 if is_new else self._logical.members[name].shape[self._array.axis]
            self.members[name] = GrowingMember(name, encoding, steps, is_new)
        self.used[digest] = name
        self.used.setdefault(without_fill, known.get(without_fill, name))
        return self.members[name]

    def _put(self, contribution: Contribution, chunk_set: ChunkSet) -> None:
        axis, variable = self._array.axis, contribution.variable
        member, chunks = self._member(chunk_set), chunk_set.encoding.chunks
        # at the border of a chunk, so that every chunk of the file is one of the member
        start = -(-member.steps // chunks[axis]) * chunks[axis]
        member.stretches.append(Stretch(contribution, chunk_set, start))
        member.steps = start + variable.shape[axis]
        for box in chunk_set.boxes:
            first = [a * c for a, c in zip(box.start, chunks, strict=True)]
            last = [min(b * c, n) for b, c, n in zip(box.stop, chunks, variable.shape, strict=True)]
            inside = list(first)
            inside[axis] += start
            first[axis] += contribution.start
            last[axis] += contribution.start
            shown = Box(tuple(first), tuple(last))
            self._rows.append((member.name, shown, tuple(inside), contribution.packing))

    def table(self, manifest: Manifest) -> tuple[RegionTable, tuple[str, ...], Packings]:
        """The new regions on the array's lattice; and the members and packings that they refer to."""
        names = dict.fromkeys((*manifest.members, *(name for name, *_ in self._rows)))
        position = {name: i for i, name in enumerate(names)}
        packed = [packing for *_, packing in self._rows if packing is not None]
        packings, listed = manifest.packings.with_(packed)
        numbers = iter(listed)
        lattice = self._array.lattice
        rows = [
            Row(
                position[name], box.in_units(lattice), Box(inside, inside).in_units(lattice).start,
                NONE if packing is None else next(numbers),
            )
            for name, box, inside, packing in self._rows
        ]  # fmt: skip
        return RegionTable.from_rows(rows, len(lattice)), tuple(names), packings


def with_gap(table: RegionTable, axis: int, at: int, length: int) -> RegionTable:
    """The table with `length` free cells at `at`; regions across it are split, those after it move up."""
    across = np.flatnonzero((table.start[:, axis] < at) & (table.stop[:, axis] > at))
    upper = table.take(across)
    upper_start, upper_member = upper.start.copy(), upper.member_start.copy()
    # the upper half begins as many cells further in its member as the lower half is long
    upper_member[:, axis] += at - upper_start[:, axis]
    upper_start[:, axis] = at
    stop = table.stop.copy()
    stop[across, axis] = at
    split = replace(table, stop=stop).joined(replace(upper, start=upper_start, member_start=upper_member))
    return _moved(split, axis, at, length)


def without_cells(table: RegionTable, axis: int, start: int, stop: int) -> RegionTable:
    """The table without the cells from `start` to `stop`; regions after them move down."""
    # gaps of no cells only split: then every region lies inside or outside
    table = with_gap(with_gap(table, axis, start, 0), axis, stop, 0)
    inside = (table.start[:, axis] >= start) & (table.stop[:, axis] <= stop)
    return _moved(table.take(np.flatnonzero(~inside)), axis, stop, start - stop)


def _moved(table: RegionTable, axis: int, at: int, by: int) -> RegionTable:
    after = table.start[:, axis] >= at
    start, stop = table.start.copy(), table.stop.copy()
    start[after, axis] += by
    stop[after, axis] += by
    return replace(table, start=start, stop=stop)


def refined(manifest: Manifest, chunk_shape: tuple[int, ...]) -> Manifest:
    """The same regions on a finer lattice, whose chunks divide the old ones."""
    factor = np.array(manifest.chunk_shape, dtype=np.int64) // np.array(chunk_shape, dtype=np.int64)
    finer = replace(manifest, chunk_shape=chunk_shape)
    table = manifest.regions
    # the end of the array may cut the last chunk off: it then holds fewer of the finer ones
    stop = np.minimum(table.stop * factor, np.array(finer.lattice, dtype=np.int64))
    return replace(
        finer,
        regions=replace(
            table, start=table.start * factor, stop=stop, member_start=table.member_start * factor
        ),
    )


def merged(table: RegionTable, axis: int) -> RegionTable:
    """The table with neighbours along an axis joined where one member continues from one to the next."""
    if len(table) < 2:
        return table
    cross = [d for d in range(table.ndim) if d != axis]
    # Regions do not overlap: sorted by the axis last, those that can be joined stand one after the other.
    ordered = table.take(np.lexsort([table.start[:, axis], *table.start[:, cross].T[::-1]]))
    shift = ordered.member_start - ordered.start  # where a member continues, it does not change
    same = (ordered.member[1:] == ordered.member[:-1]) & (shift[1:] == shift[:-1]).all(axis=1)
    same &= ordered.start[1:, axis] == ordered.stop[:-1, axis]
    for numbers in (ordered.packing, ordered.view, ordered.layer):
        same &= numbers[1:] == numbers[:-1]
    for column in (ordered.start[:, cross], ordered.stop[:, cross]):
        same &= (column[1:] == column[:-1]).all(axis=1)
    firsts = np.flatnonzero(np.concatenate([[True], ~same]))
    lasts = np.append(firsts[1:], len(ordered)) - 1
    kept = ordered.take(firsts)
    stop = kept.stop.copy()
    stop[:, axis] = ordered.stop[lasts, axis]
    return replace(kept, stop=stop).take(np.argsort(kept.start[:, axis], kind="stable"))
