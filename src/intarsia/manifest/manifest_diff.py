"""Where two manifests of one logical array send the same element to different places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.manifest.box import Box
from intarsia.manifest.region_table import RegionTable, Row

if TYPE_CHECKING:
    from intarsia.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class RegionDiff:
    """A box that is backed differently in one manifest than in the one before it."""

    kind: Literal["added", "dropped", "moved"]
    """Whether a region is new there, is gone, or is now backed by another member."""

    box: Box
    """The box, in logical chunks."""

    before: Row | None
    """The region that backed it, which may be larger."""

    after: Row | None
    """The region that backs it now."""

    @property
    def layer(self) -> int:
        """The layer of the change: 0, or that of a replica."""
        row = self.after or self.before
        return 0 if row is None else row.layer


def rows_of(manifest: Manifest, names: Iterable[str]) -> Iterator[Row]:
    """The regions and replicas that these members back."""
    chosen, table = set(names), manifest.regions_and_replicas
    positions = [i for i, name in enumerate(manifest.members) if name in chosen]
    for i in np.flatnonzero(np.isin(table.member, positions)).tolist():
        yield table.row(i)


def rebacked_boxes(before: Manifest, after: Manifest, boxes: Iterable[Box]) -> list[Box]:
    """The boxes of logical chunks that `after` does not show from the same places as `before`.

    A hole is part of a box: what nothing backed must still be backed by nothing. So are replicas: a program
    that writes into a box has to know about all of them.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="u1")
    >>> array.add_region([(0, 4)], codecs=["gzip"], data=[1, 2, 3, 4])
    >>> before, left, hole = array.manifest, Box((0,), (2,)), Box((2,), (3,))
    >>> array.recode([(2, 4)], codecs=["zstd"])
    >>> rebacked_boxes(before, array.manifest, [left, hole])
    [Box(start=(0,), stop=(2,))]
    >>> array.add_region([(4, 8)], codecs=["zstd"])
    >>> rebacked_boxes(before, array.manifest, [left, hole])
    [Box(start=(0,), stop=(2,)), Box(start=(2,), stop=(3,))]
    """
    listed = list(boxes)
    if before.chunk_shape != after.chunk_shape or before.data_type != after.data_type:
        return listed
    changes = (Row(0, change.box, change.box.start) for change in region_diffs(before, after))
    moved = RegionTable.from_rows(changes, len(before.shape))
    return [box for box in listed if moved.touching(box).size or _is_cut(before, after, box)]


def _is_cut(before: Manifest, after: Manifest, box: Box) -> bool:
    shown, shows = before.elements(box), after.elements(box)
    return any(a > b for a, b in zip(shown.stop, shows.stop, strict=True))


def region_part_in_chunk(
    manifest: Manifest, row: Row, index: tuple[int, ...], size: tuple[int, ...]
) -> Box | None:
    """The part of a region that lies in one chunk of its member, in elements of the logical array.

    `size` is the shape of the member's chunks.

    >>> from intarsia.manifest.manifest import Manifest
    >>> manifest, row = Manifest.empty((9,), (3,), "u1"), Row(0, Box((1,), (3,)), (0,))
    >>> region_part_in_chunk(manifest, row, (0,), (4,)), region_part_in_chunk(manifest, row, (1,), (4,))
    (Box(start=(3,), stop=(7,)), Box(start=(7,), stop=(9,)))
    """
    chunk = manifest.from_member(row, Box.sized(size, tuple(map(mul, index, size))))
    return chunk.intersect(manifest.elements(row.box))


def region_diffs(before: Manifest, after: Manifest) -> list[RegionDiff]:
    """Every box that the two manifests back in different ways, layer by layer.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> empty = array.manifest
    >>> array.add_region([(0, 2)], codecs=["gzip"])
    >>> [(change.kind, change.box) for change in region_diffs(empty, array.manifest)]
    [('added', Box(start=(0,), stop=(1,)))]
    """
    none, changes = RegionTable.from_rows([], before.ndim), list[RegionDiff]()
    one, other = (manifest.regions_and_replicas.by_layer() for manifest in (before, after))
    for layer in sorted(one.keys() | other.keys()):
        changes += _table_diffs(before, after, one.get(layer, none), other.get(layer, none))
    return changes


def valid_replicas(before: Manifest, after: Manifest) -> RegionTable:
    """What is left of the replicas of `before` where `after` shows in layer 0 what they are replicas of.

    If regions are backed differently, or are longer or shorter, they may show other values.
    """
    replicas = before.replicas
    if before.data_type != after.data_type or before.chunk_shape != after.chunk_shape:
        return replicas.select(slice(0))
    cut = [change.box for change in _table_diffs(before, after, before.regions, after.regions)]
    everywhere = [(0, max(pair)) for pair in zip(before.lattice, after.lattice, strict=True)]
    for axis, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)):
        if old != new:  # the last logical chunk has more elements than before, or fewer
            last = min(old, new) // before.chunk_shape[axis]
            cut.append(Box.of(everywhere).with_axis(axis, last, max(last + 1, everywhere[axis][1])))
    return replicas.subtract(*cut)


def _table_diffs(
    before: Manifest, after: Manifest, old: RegionTable, new: RegionTable
) -> Iterator[RegionDiff]:
    """Every box that two tables back differently; within each table, no two regions overlap."""
    old_keys, new_keys = set(_keys(before, old)), set(_keys(after, new))
    for i, key in enumerate(_keys(after, new)):
        if key in old_keys:
            continue
        row = new.row(i)
        for other, shared in old.parts(row.box):
            if other.shift != row.shift or _backing(before, other) != _backing(after, row):
                yield RegionDiff("moved", shared, other, row)
        for box in old.free(row.box):
            yield RegionDiff("added", box, None, row)
    for i, key in enumerate(_keys(before, old)):
        if key not in new_keys:
            row = old.row(i)
            for box in new.free(row.box):
                yield RegionDiff("dropped", box, row, None)


def _keys(manifest: Manifest, table: RegionTable) -> Iterator[tuple[Any, ...]]:
    all_bounds = np.ascontiguousarray(np.concatenate([table.start, table.stop, table.member_start], axis=1))
    # `NONE` is -1, and so means the last entry.
    packings, views = (*manifest.packings.keys, None), (*manifest.views, None)
    numbers = zip(table.member.tolist(), table.packing.tolist(), table.view.tolist(), strict=True)
    for (member, packing, view), bounds in zip(numbers, all_bounds, strict=True):
        yield manifest.members[member], packings[packing], views[view], bounds.tobytes()


def _backing(manifest: Manifest, row: Row) -> tuple[Any, ...]:
    """What backs a region, wherever it begins: the member, its packing and the view of it."""
    return manifest.members[row.member], manifest.packing_of(row), manifest.view_of(row)
