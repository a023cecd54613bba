"""Where two manifests of one logical array send the same element to different places."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from intarsia.array.manifest import Manifest
    from intarsia.array.table import Box, Ints, RegionTable, Row

__all__ = ["Rerouted", "keeps_routing", "rerouted", "rows_of"]


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


def keeps_routing(before: Manifest, after: Manifest, row: Row) -> bool:
    """Whether everything that a region of `before` shows is shown by `after`, from the same place.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> array.add_region([(0, 4)], codecs=["gzip"], data=[1, 2, 3, 4])
    >>> before, row = array.manifest, array.manifest.regions.row(0)
    >>> array.append([5, 6], codecs=["zstd"])
    >>> keeps_routing(before, array.manifest, row)
    True
    >>> array.recode([(2, 4)], codecs=["zstd"])
    >>> keeps_routing(before, array.manifest, row)
    False
    """
    if before.chunk_shape != after.chunk_shape or before.data_type != after.data_type:
        return False
    shown, shows = before.elements(row.box), after.elements(row.box)
    if any(a > b for a, b in zip(shown.stop, shows.stop, strict=True)):
        return False
    name, covered = before.members[row.member], 0
    for i in after.regions.touching(row.box).tolist():
        other = after.regions.row(i)
        if after.members[other.member] != name or _offset(other) != _offset(row):
            return False
        shared = other.box.intersect(row.box)
        covered += prod(shared.shape) if shared is not None else 0
    return covered == prod(row.box.shape)


def _offset(row: Row) -> tuple[int, ...]:
    return tuple(m - a for m, a in zip(row.member_start, row.box.start, strict=True))


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
            same = before.members[other.member] == after.members[row.member]
            shared = other.box.intersect(row.box)
            if shared is not None and not (same and _offset(other) == _offset(row)):
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


def _keys(manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    table: RegionTable = manifest.regions
    places = np.ascontiguousarray(np.concatenate([table.start, table.stop, table.member_start], axis=1))
    for position, place in zip(table.member.tolist(), places, strict=True):
        yield manifest.members[position], place.tobytes()
