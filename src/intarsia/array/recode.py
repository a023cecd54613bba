"""Encoding a box anew: its values are copied into a new member, block by block, here or on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from intarsia.array.box import BLOCK_BYTES, Box, blocks
from intarsia.array.edit import lattice_box
from intarsia.array.encode import write_box
from intarsia.array.frame import Frame, clean_up, open_group
from intarsia.array.member import grain
from intarsia.array.plan import request
from intarsia.array.read import read_request
from intarsia.array.reserve import Piece
from intarsia.array.source import Source
from intarsia.array.table import RegionTable, Row
from intarsia.errors import NoRegionError
from intarsia.parallel import spread
from intarsia.progress import silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia.array.manifest import Manifest
    from intarsia.array.member import AnyArray, Encoding
    from intarsia.codecs.runtime import Luggage
    from intarsia.parallel import Client
    from intarsia.progress import Progress

__all__ = ["attach_recoded", "recode", "recoded_member"]

type Bounds = Sequence[tuple[int, int]]

TASK_BYTES = 16 << 20
"""A task on a cluster copies whole chunks of about this size: many tasks for the workers to share."""


def recode(
    frame: Frame,
    bounds: Bounds,
    encoding: Encoding,
    *,
    client: Client | None = None,
    progress: Progress = silent,
) -> None:
    """Copy a box into a new member of another encoding; regions that it cuts are split."""
    frame.begin_edit()
    attach_recoded(frame, bounds, recoded_member(frame, bounds, encoding, client=client, progress=progress))


def attach_recoded(frame: Frame, bounds: Bounds, name: str) -> None:
    """Show a member, made by `recoded_member`, in the place of what it was copied from."""
    manifest = frame.manifest
    box, parts = _parts_to_recode(frame, bounds)
    rows = [Row(len(manifest.members), part, part.seen_from(box.start).start) for part in parts]
    table = manifest.regions.without(box).joined(RegionTable.from_rows(rows, manifest.ndim))
    frame.commit(manifest.changed(regions=table, members=(*manifest.members, name)))


def recoded_member(
    frame: Frame,
    bounds: Bounds,
    encoding: Encoding,
    *,
    client: Client | None = None,
    progress: Progress = silent,
) -> str:
    """A new member that holds the values of a box; no region refers to it yet."""
    box, parts = _parts_to_recode(frame, bounds)
    origin = frame.manifest.elements(box)
    name, member = frame.create_member(origin.shape, encoding)
    options = encoding.other_options
    copy = _Copy(frame.group.path, frame.manifest, name, frame.luggage(name, options))
    try:
        tasks = _tasks(frame, parts, origin.start, member, BLOCK_BYTES if client is None else TASK_BYTES)
        if client is not None:
            spread(client, frame.group.store, copy, tasks, progress)
        else:
            progress(0, len(tasks))
            for done, task in enumerate(tasks, 1):
                copy.into(frame, frame.target(name, options), task)
                progress(done, len(tasks))
    except BaseException as error:
        clean_up(frame.group.store, error, lambda: frame.discard(name))
        raise
    return name


def _parts_to_recode(frame: Frame, bounds: Bounds) -> tuple[Box, list[Box]]:
    """The box, and what regions cover of it: all of it as one part, or a part for each region."""
    table = frame.manifest.regions
    box = lattice_box(frame.manifest, bounds)
    shared = [table.row(i).box.intersect(box) for i in table.touching(box).tolist()]
    parts = [part for part in shared if part is not None]
    if not parts:
        raise NoRegionError(f"no region lies in {frame.bounds_text(box)}: there is nothing to recode")
    return box, [box] if sum(prod(part.shape) for part in parts) == prod(box.shape) else parts


def _tasks(
    frame: Frame, parts: list[Box], origin: tuple[int, ...], member: AnyArray, most_bytes: int
) -> list[list[Piece]]:
    """The parts cut into blocks of whole chunks of the new member: no chunk belongs to two tasks."""
    step = next(blocks(Box.sized(member.shape), grain(member), member.dtype.itemsize, most_bytes)).shape
    tasks: dict[tuple[int, ...], list[Piece]] = {}
    for part in parts:
        source = frame.manifest.elements(part)
        piece = Piece(member.basename, source, source.seen_from(origin))
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
        frame = Frame(open_group(store, self.path, "r+"), self.manifest)
        member = self.luggage.on(frame.members.child(self.member))
        self.into(frame, Source(self.member, member), task)

    def into(self, frame: Frame, target: Source, task: list[Piece]) -> None:
        for piece in task:
            values = read_request(frame, request(frame.manifest.shape, piece.source.slices, "basic"))
            write_box(target, piece.target, values)
