"""Where two manifests of one logical array send the same element to different places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.array.box import Box
from intarsia.array.table import RegionTable, Row

if TYPE_CHECKING:
    from intarsia.array.manifest import Manifest
    from intarsia.array.table import Ints


@dataclass(frozen=True, slots=True)
class Rerouted:
    """A box that one manifest backs in another way than the one before it."""

    kind: Literal["added", "dropped", "moved"]
    """Whether a region is new there, is gone, or another member backs it now."""

    box: Box
    """In logical chunks."""

    before: Row | None
    """The region that backed it, which may be larger."""

    after: Row | None
    """The region that backs it now."""


def rows_of(manifest: Manifest, names: Iterable[str]) -> Iterator[Row]:
    """The regions that these members back."""
    wanted = set(names)
    positions = [i for i, name in enumerate(manifest.members) if name in wanted]
    for i in np.flatnonzero(np.isin(manifest.regions.member, positions)).tolist():
        yield manifest.regions.row(i)


def disturbed(before: Manifest, after: Manifest, boxes: Iterable[Box]) -> list[Box]:
    """The boxes of logical chunks that `after` does not show from the same places as `before`.

    A hole is part of a box: what nothing backed must still be backed by nothing.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="u1")
    >>> array.add_region([(0, 4)], codecs=["gzip"], data=[1, 2, 3, 4])
    >>> before, left, hole = array.manifest, Box((0,), (2,)), Box((2,), (3,))
    >>> array.recode([(2, 4)], codecs=["zstd"])
    >>> disturbed(before, array.manifest, [left, hole])
    [Box(start=(0,), stop=(2,))]
    >>> array.add_region([(4, 8)], codecs=["zstd"])
    >>> disturbed(before, array.manifest, [left, hole])
    [Box(start=(0,), stop=(2,)), Box(start=(2,), stop=(3,))]
    """
    wanted = list(boxes)
    if before.chunk_shape != after.chunk_shape or before.data_type != after.data_type:
        return wanted
    changes = (Row(0, change.box, change.box.start) for change in rerouted(before, after))
    moved = RegionTable.from_rows(changes, len(before.shape))
    return [box for box in wanted if moved.touching(box).size or _is_cut(before, after, box)]


def keeps_routing(before: Manifest, after: Manifest, row: Row) -> bool:
    """Whether everything that a region of `before` shows is shown by `after`, from the same place."""
    return not disturbed(before, after, [row.box])


def _is_cut(before: Manifest, after: Manifest, box: Box) -> bool:
    shown, shows = before.elements(box), after.elements(box)
    return any(a > b for a, b in zip(shown.stop, shows.stop, strict=True))


def shown_in(manifest: Manifest, row: Row, index: tuple[int, ...], size: tuple[int, ...]) -> Box | None:
    """What of a region lies in one chunk of its member, in elements of the logical array.

    `size` is the shape of the member's chunks.

    >>> from intarsia.array.manifest import Manifest
    >>> manifest, row = Manifest.empty((9,), (3,), "u1"), Row(0, Box((1,), (3,)), (0,))
    >>> shown_in(manifest, row, (0,), (4,)), shown_in(manifest, row, (1,), (4,))
    (Box(start=(3,), stop=(7,)), Box(start=(7,), stop=(9,)))
    """
    corner = tuple(i * n for i, n in zip(index, size, strict=True))
    chunk = manifest.from_member(row, Box.sized(size, corner))
    return chunk.intersect(manifest.elements(row.box))


def rerouted(before: Manifest, after: Manifest) -> list[Rerouted]:
    """Every box that the two manifests back in different ways.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> empty = array.manifest
    >>> array.add_region([(0, 2)], codecs=["gzip"])
    >>> [(change.kind, change.box) for change in rerouted(empty, array.manifest)]
    [('added', Box(start=(0,), stop=(1,)))]
    """
    old, new = _differing(before, after), _differing(after, before)
    changes = []
    for i in new.tolist():
        row = after.regions.row(i)
        for j in before.regions.touching(row.box).tolist():
            other = before.regions.row(j)
            same = _backing(before, other) == _backing(after, row)
            shared = other.box.intersect(row.box)
            if shared is not None and not (same and other.shift == row.shift):
                changes.append(Rerouted("moved", shared, other, row))
        changes += [Rerouted("added", box, None, row) for box in before.regions.free(row.box)]
    for i in old.tolist():
        row = before.regions.row(i)
        changes += [Rerouted("dropped", box, row, None) for box in after.regions.free(row.box)]
    return changes


def _differing(one: Manifest, other: Manifest) -> Ints:
    """Rows of one manifest that do not stand in the other as they are."""
    known = set(_keys(other))
    return np.array([i for i, key in enumerate(_keys(one)) if key not in known], dtype=np.int64)


def _keys(manifest: Manifest) -> Iterator[tuple[Any, ...]]:
    table: RegionTable = manifest.regions
    places = np.ascontiguousarray(np.concatenate([table.start, table.stop, table.member_start], axis=1))
    # `NONE` is -1, and so stands for the last entry.
    packings, views = (*manifest.packings.keys, None), (*manifest.views, None)
    numbers = zip(table.member.tolist(), table.packing.tolist(), table.view.tolist(), strict=True)
    for (member, packing, view), place in zip(numbers, places, strict=True):
        yield manifest.members[member], packings[packing], views[view], place.tobytes()


def _backing(manifest: Manifest, row: Row) -> tuple[Any, ...]:
    """What stands behind a region, wherever it begins: the member, its packing and the view of it."""
    return manifest.members[row.member], manifest.packing_of(row), manifest.view_of(row)
