"""Room for data that is written piece by piece, by whoever: members first, the manifest when all is there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.append import Addition, checked, completed, neighbour_to_grow, options_for
from intarsia.array.box import Box
from intarsia.array.edit import lattice_box
from intarsia.array.frame import clean_up
from intarsia.array.table import RegionTable, Row
from intarsia.errors import NoRegionError, OverlapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from intarsia.array.frame import Frame
    from intarsia.array.manifest import Manifest
    from intarsia.array.member import Encoding
    from intarsia.codecs.runtime import Options

__all__ = ["Piece", "Reservation", "covered", "reserve_append", "reserve_regions"]

type Bounds = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a box of the data goes.

    >>> Piece("m-1", Box((4,), (8,)), Box((0,), (4,))).cropped(Box((1,), (3,))).source
    Box(start=(5,), stop=(7,))
    """

    member: str
    """Name of the member."""

    source: Box
    """Which elements of the data."""

    target: Box
    """Where in the member, in elements; of the same shape."""

    def cropped(self, tile: Box) -> Piece:
        """The part of the piece that lies in a box of the member."""
        target = self.target.intersect(tile)
        assert target is not None
        source = target.seen_from(self.target.start).shifted(self.source.start)
        return Piece(self.member, source, target)


@dataclass(frozen=True)
class Reservation:
    """Members with room for data, and the manifest that shows them."""

    pieces: tuple[Piece, ...]
    """What goes where; no element twice."""

    manifest: Manifest
    """To be committed when every piece is written; equal to the current one if the layout stays."""

    made: tuple[str, ...] = ()
    """New members, to be discarded if the writing fails."""

    options: Mapping[str, Options] = field(default_factory=dict)
    """Run-time options to write into members that were there, where their codecs do not have them."""

    def settle(self, frame: Frame) -> None:
        """Show the data: it is all there."""
        if self.manifest is not frame.manifest:
            frame.commit(self.manifest)

    def discard(self, frame: Frame) -> None:
        """Give the room back: the data will not come."""
        frame.discard(*self.made)


def reserve_regions(
    frame: Frame, regions: Iterable[tuple[Bounds, Encoding]], origin: tuple[int, ...] | None = None
) -> Reservation:
    """New regions over free boxes; `origin` is where in the array the data starts, at first its corner."""
    manifest = frame.manifest
    boxes = [(lattice_box(manifest, bounds), encoding) for bounds, encoding in regions]
    fresh = [Row(len(manifest.members) + i, box, (0,) * manifest.ndim) for i, (box, _) in enumerate(boxes)]
    table = manifest.regions.joined(RegionTable.from_rows(fresh, manifest.ndim))
    pair = table.overlap()
    if pair is not None:
        named = " and ".join(frame.bounds_text(table.row(i).box) for i in pair)
        raise OverlapError(f"the regions {named} overlap")
    room = _Room(frame, origin=origin)
    for box, encoding in boxes:
        elements = manifest.elements(box)
        room.add(elements, elements, encoding)
    return room.reservation(manifest.changed(regions=table, members=(*manifest.members, *room.made)))


def covered(frame: Frame, bounds: Bounds) -> Reservation:
    """A box of elements that regions back already: the data replaces what is there."""
    manifest = frame.manifest
    asked = Box.of((int(a), int(b)) for a, b in bounds)
    pieces = []
    for i in manifest.regions.touching(manifest.cells(asked)).tolist():
        row = manifest.regions.row(i)
        part = manifest.elements(row.box).intersect(asked)
        if part is not None:
            pieces.append(_piece(manifest, row, part, asked.start))
    missing = prod(asked.shape) - sum(prod(piece.source.shape) for piece in pieces)
    if missing:
        raise NoRegionError(
            f"{missing} of the {prod(asked.shape)} elements of {asked.text()} lie in no region.\n"
            "  Give codecs for a new region where none is, or bounds that regions cover"
        )
    return Reservation(tuple(pieces), manifest)


def reserve_append(
    frame: Frame, shape: tuple[int, ...], encoding: Encoding, *, axis: int = 0, merge: bool = True
) -> Reservation:
    """Room for data of this shape after the end of an axis, just where `append` would put it."""
    manifest = frame.manifest
    nothing = np.broadcast_to(np.zeros((), dtype=manifest.data_type.to_native_dtype()), shape)
    addition = checked(manifest, nothing, axis)
    if addition.new == addition.old:
        return Reservation((), manifest)
    neighbour = neighbour_to_grow(frame, addition, encoding) if merge else None
    if neighbour is not None:
        return _longer(frame, addition, neighbour, encoding)
    return _beside(frame, addition, encoding)


def _longer(frame: Frame, addition: Addition, i: int, encoding: Encoding) -> Reservation:
    """The last region grows, in its own member."""
    before, axis = addition.before, addition.axis
    row, end = before.regions.row(i), addition.lattice.stop[axis]
    fresh = addition.fresh(row.box.with_axis(axis, row.box.start[axis], end))
    piece = _piece(addition.grown, row, fresh, _origin(addition))
    options = {piece.member: options_for(frame, row, encoding)}
    _make_room(frame, piece)
    stop = before.regions.stop.copy()
    stop[i, axis] = end
    table = replace(before.regions, stop=stop)
    return Reservation((piece,), before.changed(regions=table, shape=addition.grown.shape), options=options)


def _beside(frame: Frame, addition: Addition, encoding: Encoding) -> Reservation:
    """The partial last chunk where regions have it, and new members for the rest."""
    before, axis = addition.before, addition.axis
    first_free = addition.rest.start[axis]
    pieces, boxes, options = [], [addition.rest], {}
    if addition.old % before.chunk_shape[axis]:
        slab = addition.lattice.with_axis(axis, first_free - 1, first_free)
        boxes += before.regions.free(slab)
        for i in before.regions.touching(slab).tolist():
            row = before.regions.row(i)
            shared = row.box.intersect(slab)
            assert shared is not None
            pieces.append(_piece(addition.grown, row, addition.fresh(shared), _origin(addition)))
            options[pieces[-1].member] = options_for(frame, row, encoding)
    boxes = [box for box in boxes if prod(box.shape)]
    room = _Room(frame, completed(frame, axis, encoding), _origin(addition))
    for box in boxes:
        room.add(addition.grown.elements(box), addition.fresh(box))
    for piece in pieces:
        _make_room(frame, piece)
    rows = [Row(len(before.members) + i, box, (0,) * before.ndim) for i, box in enumerate(boxes)]
    table = before.regions.joined(RegionTable.from_rows(rows, before.ndim))
    grown = before.changed(regions=table, members=(*before.members, *room.made), shape=addition.grown.shape)
    return replace(room.reservation(grown, pieces), options=options)


def _origin(addition: Addition) -> tuple[int, ...]:
    """Where the data starts in the grown array."""
    return tuple(addition.old if d == addition.axis else 0 for d in range(addition.before.ndim))


def _piece(manifest: Manifest, row: Row, part: Box, origin: tuple[int, ...]) -> Piece:
    """A box of elements that a region backs, of data that starts at `origin`."""
    target = part.shifted(manifest.member_shift(row))
    return Piece(manifest.members[row.member], part.seen_from(origin), target)


def _make_room(frame: Frame, piece: Piece) -> None:
    """Let a member grow until the piece fits."""
    member = frame.members[piece.member]
    needed = tuple(map(max, member.shape, piece.target.stop))
    if needed != member.shape:
        member.resize(needed)


class _Room:
    """New members, one after the other; all of them go again if one cannot be made."""

    def __init__(
        self, frame: Frame, encoding: Encoding | None = None, origin: tuple[int, ...] | None = None
    ) -> None:
        self._frame, self._encoding = frame, encoding
        self._origin = (0,) * frame.manifest.ndim if origin is None else origin
        self._pieces: list[Piece] = []
        self.made: tuple[str, ...] = ()

    def add(self, elements: Box, fresh: Box, encoding: Encoding | None = None) -> None:
        """A member for a box of elements, of which the data fills `fresh`."""
        chosen: Any = self._encoding if encoding is None else encoding
        try:
            name, _ = self._frame.create_member(elements.shape, chosen)
        except BaseException as error:
            clean_up(self._frame.group.store, error, lambda: self._frame.discard(*self.made))
            raise
        self.made = (*self.made, name)
        self._pieces.append(Piece(name, fresh.seen_from(self._origin), fresh.seen_from(elements.start)))

    def reservation(self, manifest: Manifest, pieces: Sequence[Piece] = ()) -> Reservation:
        return Reservation((*pieces, *self._pieces), manifest, self.made)
