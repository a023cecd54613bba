"""Encoding a box anew: its values are copied into a new member, block by block, here or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from intarsia.array.box import BLOCK_BYTES, Box, blocks
from intarsia.array.hierarchy import open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.member import grain
from intarsia.array.plan import request
from intarsia.array.read import read_request
from intarsia.array.reserve import Room, lattice_box
from intarsia.array.source import Source
from intarsia.array.table import RegionTable, Row
from intarsia.array.write import write_box
from intarsia.codecs.runtime import Luggage
from intarsia.errors import NoRegionError
from intarsia.parallel import Client, spread
from intarsia.progress import Progress, silent

if TYPE_CHECKING:
    from intarsia.array.manifest import Manifest
    from intarsia.array.member import AnyArray, Encoding
    from intarsia.array.reserve import Piece, Reservation


type Bounds = Sequence[tuple[int, int]]

TASK_BYTES = 16 << 20
"""A task on a cluster copies whole chunks of about this size: many tasks for the workers to share."""


def recode(
    logical: LogicalGroup,
    bounds: Bounds,
    encoding: Encoding,
    *,
    client: Client | None = None,
    progress: Progress = silent,
) -> None:
    """Copy a box into a new member of another encoding; regions that it cuts are split."""
    logical.begin_edit()
    room = reserve_recode(logical, lattice_box(logical.manifest, bounds), encoding)
    with room.shown_when_filled(logical):
        copy_values(logical, room, client=client, progress=progress)


def reserve_recode(
    logical: LogicalGroup, box: Box, encoding: Encoding | None = None, *, ready: str | None = None
) -> Reservation:
    """Room for the values of a box of logical chunks, in a new member that takes the place of those it has.

    If `ready`, the array of this name in the group holds them already.
    """
    manifest = logical.manifest
    touched = (manifest.regions.row(i).box for i in manifest.regions.touching(box).tolist())
    parts = [shared for other in touched if (shared := other.intersect(box)) is not None]
    if not parts:
        raise NoRegionError(f"no region lies in {logical.bounds_text(box)}: there is nothing to recode")
    if sum(prod(part.shape) for part in parts) == prod(box.shape):
        parts = [box]  # no hole is to be kept
    room = Room(logical)
    if ready is None:
        assert encoding is not None
        room.in_new_member(manifest.elements(box), encoding, *map(manifest.elements, parts))
    rows = [Row(len(manifest.members), part, part.seen_from(box.start).start) for part in parts]
    table = manifest.regions.without(box).joined(RegionTable.from_rows(rows, manifest.ndim))
    names = (*manifest.members, ready or room.made[0])
    return room.reserved(manifest.changed(regions=table, members=names))


def copy_values(
    logical: LogicalGroup, room: Reservation, *, client: Client | None = None, progress: Progress = silent
) -> None:
    """Fill the room for a recode with the values as they are, block by block."""
    (name,) = room.made
    options = room.options[name]
    copy = _Copy(logical.group.path, logical.manifest, name, logical.luggage(name, options))
    tasks = _tasks(room.pieces, logical.members[name], BLOCK_BYTES if client is None else TASK_BYTES)
    if client is not None:
        spread(client, logical.group.store, copy, tasks, progress)
        return
    progress(0, len(tasks))
    for done, task in enumerate(tasks, 1):
        copy.into(logical, logical.target(name, options), task)
        progress(done, len(tasks))


def _tasks(pieces: Iterable[Piece], member: AnyArray, most_bytes: int) -> list[list[Piece]]:
    """The pieces cut into blocks of whole chunks of the new member: no chunk belongs to two tasks."""
    step = next(blocks(Box.sized(member.shape), grain(member), member.dtype.itemsize, most_bytes)).shape
    tasks: dict[tuple[int, ...], list[Piece]] = {}
    for piece in pieces:
        for cell in piece.target.in_units(step).indices():
            corner = tuple(i * s for i, s in zip(cell, step, strict=True))
            tasks.setdefault(cell, []).append(piece.cropped(Box.sized(step, corner)))
    return list(tasks.values())


@dataclass(frozen=True)
class _Copy:
    """Copies the pieces of one task; travels to workers."""

    path: str
    manifest: Manifest
    member: str
    luggage: Luggage
    """Run-time options to write it with."""

    def __call__(self, store: Any, task: list[Piece]) -> None:
        logical = LogicalGroup(open_group(store, self.path, "r+"), self.manifest)
        member = self.luggage.on(logical.members.child(self.member))
        self.into(logical, Source.of(self.member, member), task)

    def into(self, logical: LogicalGroup, target: Source, task: list[Piece]) -> None:
        for piece in task:
            values = read_request(logical, request(logical.manifest.shape, piece.source.slices, "basic"))
            write_box(target, piece.target, values)
