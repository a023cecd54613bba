"""The one way for data to get into a logical array: reserve room, fill it, commit.

To reserve is to make members, or to let them grow; readers do not see this yet. The reservation is filled by
this process, by a cluster, or by a copy in another encoding. To commit is to write the manifest that shows
the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from intarsia._compat import store_supports_sync_io, sync
from intarsia.codecs.runtime_options import NO_OPTIONS, RuntimeOptions
from intarsia.engine.write import write_box
from intarsia.errors import AlignmentError, BoundsError, NoRegionError, OverlapError, ShapeError
from intarsia.logical.encoding import Encoding
from intarsia.manifest.box import BoundsLike, Box, element_bounds
from intarsia.manifest.data_types import Values, broadcast
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.packing import Packing
from intarsia.manifest.region_table import Row
from intarsia.manifest.view import View

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest


def lattice_box(manifest: Manifest, bounds: BoundsLike | None) -> Box:
    """Element bounds as a box of logical chunks, by default all of them; an error unless they lie on the
    lattice and in the array.

    >>> from intarsia.manifest.manifest import Manifest
    >>> lattice_box(Manifest.empty((250,), (100,), "i4"), [(100, 250)])
    Box(start=(1,), stop=(3,))
    """
    box = Box.of(element_bounds(... if bounds is None else bounds, manifest.shape))
    columns = list(zip(box.start, box.stop, manifest.shape, manifest.chunk_shape, strict=True))
    if any(not 0 <= a < b <= n for a, b, n, _ in columns):
        raise BoundsError(
            f"the bounds {box.text()} are empty or outside the array, whose shape is {manifest.shape}"
        )
    if any(a % c or (b % c and b != n) for a, b, n, c in columns):
        nearest = manifest.elements(manifest.cells(box))
        raise AlignmentError(
            f"the bounds {box.text()} are not aligned to the logical chunks of "
            f"{manifest.chunk_shape}.\n  The nearest aligned bounds around them are {nearest.text()}"
        )
    return manifest.cells(box)


def check_shape(shape: tuple[int, ...], expected: tuple[int, ...], what: str) -> None:
    """Refuse data that would not fill its room, or not fit into it."""
    if tuple(shape) != expected:
        raise ShapeError(f"the data has shape {tuple(shape)}, but {what} needs the shape {expected}")


def check_free(manifest: Manifest, box: Box) -> None:
    """Refuse a box of logical chunks that overlaps regions."""
    if (rows := manifest.regions.touching(box)).size:
        both = manifest.regions.row(int(rows[0])).box, box
        named = " and ".join(manifest.elements(each).text() for each in both)
        raise OverlapError(
            f"the regions {named} overlap.\n  Choose a free box, drop what is there first (arr.drop_region), "
            "or change its encoding (arr.recode)"
        )


@dataclass(frozen=True, slots=True)
class DataPiece:
    """Where a box of the data goes.

    >>> DataPiece("m-1", Box((4,), (8,)), Box((0,), (4,))).select(Box((5,), (7,))).target
    Box(start=(1,), stop=(3,))
    """

    member: str
    """The name of the member."""

    source: Box
    """Which elements of the data."""

    place: Box
    """Where in the member, or in the view of it, in elements; of the same shape."""

    packing: Packing | None = None
    """How the values become the member's numbers."""

    view: View | None = None
    """How the region sees the member."""

    @classmethod
    def of(cls, manifest: Manifest, row: Row, source: Box) -> DataPiece:
        """Elements that a region backs, and where they are in its member."""
        place, packing = source.shifted(manifest.member_shift(row)), manifest.packing_of(row)
        return cls(manifest.members[row.member], source, place, packing, manifest.view_of(row))

    @property
    def target(self) -> Box:
        """Where in the member, in elements."""
        return self.place if self.view is None else self.view.member_box(self.place)

    def select(self, source: Box) -> DataPiece:
        """The part of the piece for a box of the data."""
        place = source.seen_from(self.source.start).shifted(self.place.start)
        return replace(self, source=source, place=place)

    def grid(self, chunk: Sequence[int]) -> list[tuple[int, int]]:
        """The grid of a member's chunks on every axis of the data: the piece's offset within its first chunk,
        and the chunk size.

        >>> DataPiece("m-1", Box((4,), (8,)), Box((2,), (6,))).grid((5,))
        [(2, 5)]
        """
        grid = [(size, 0) for size in chunk] if self.view is None else self.view.grid(chunk)
        return [(start - border, size) for start, (size, border) in zip(self.place.start, grid, strict=True)]

    def stored(self, values: Values) -> Values:
        """The values of the piece, or the one value, as the member stores them.

        Values that the packing cannot hold are refused, and named by their position in the data.

        >>> from intarsia import Packing
        >>> piece = DataPiece("m-1", Box((4,), (6,)), Box((0,), (2,)), Packing("int8", scale=0.5))
        >>> piece.stored([1.5, 100])
        Traceback (most recent call last):
        ...
        intarsia.errors.PackingError: int8 * 0.5: cannot hold 100.0 (at [5]): ...
        """
        if self.packing is not None:
            values = self.packing.encode(values, self.source.start)
        if self.view is None or not getattr(values, "ndim", 0):
            return values
        return self.view.unseen(broadcast(values, self.source.shape))


@dataclass
class Reservation:
    """Members with room for data, and the manifest that shows them.

    If one piece finds no room, the pieces before it give theirs back.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> from intarsia.logical.encoding import Encoding
    >>> reservation = reserve_region(array._logical, Box((0,), (2,)), Encoding())
    >>> with reservation.shown_when_filled():
    ...     reservation.fill(lambda source: 7)
    >>> array[...].tolist()
    [7, 7, 7, 7]
    """

    logical: LogicalArrayHandle
    """The array that the data goes into."""

    origin: tuple[int, ...] | None = None
    """Where in the array the data starts; None for its corner."""

    pieces: list[DataPiece] = field(default_factory=list)
    """What goes where; no element occurs twice."""

    manifest: Manifest | None = None
    """The manifest to commit when every piece is written; None if the layout stays."""

    new_members: list[str] = field(default_factory=list)
    """New members, to be discarded if the writing fails."""

    grown: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Members that were made larger, with the previous shape of each."""

    options: dict[str, RuntimeOptions] = field(default_factory=dict)
    """Run-time options for writing into members, if their codecs do not have them."""

    numbers: LogicalArrayHandle | None = None
    """For a copy of stored numbers: the array as these numbers."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes to set together with the manifest."""

    exact: bool = False
    """Whether a copy that would not be read back unchanged is refused."""

    def in_new_member(self, elements: Box, encoding: Encoding, *fresh: Box) -> str:
        """Reserve a member for a box of elements, of which the data fills the boxes `fresh`, by default all.

        Returns the name of the member.
        """
        with self.discarded_on_failure():
            name, _ = self.logical.create_member(elements.shape, encoding)
        self.new_members.append(name)
        self.options[name] = encoding.other_options
        packing = encoding.packing if self.numbers is None else None  # they are packed already
        for box in fresh or (elements,):
            self._add(DataPiece(name, box, box.seen_from(elements.start), packing))
        return name

    def in_member(self, piece: DataPiece, options: RuntimeOptions = NO_OPTIONS) -> None:
        """Reserve elements that a region of this or the next manifest backs; its member may grow."""
        with self.discarded_on_failure():
            member = self.logical.members[piece.member]
            before, needed = member.shape, tuple(map(max, member.shape, piece.target.stop))
            if needed != before:
                member.resize(needed)
                self.grown.setdefault(piece.member, before)
        self.options[piece.member] = options
        self._add(piece)

    def _add(self, piece: DataPiece) -> None:
        if self.origin is not None:
            piece = replace(piece, source=piece.source.seen_from(self.origin))
        self.pieces.append(piece)

    def fill(self, data: Callable[[Box], Any]) -> None:
        """Write every piece in this process; `data` returns the values, or the one value, of a box."""
        for piece in self.pieces:
            target = self.logical.target(piece.member, self.options.get(piece.member, NO_OPTIONS))
            write_box(target, piece.target, piece.stored(data(piece.source)))

    def commit(self) -> None:
        """Show the data, now that all of it is there."""
        if self.manifest is not None:
            self.logical.commit(self.manifest, self.attributes)

    def discard(self) -> None:
        """Undo the reservation, as the data will not come."""
        self.logical.discard(*self.new_members)
        for name, shape in self.grown.items():
            self.logical.members[name].resize(shape)

    @contextmanager
    def shown_when_filled(self) -> Iterator[None]:
        """Fill the reservation inside; then it is committed, or discarded if anything fails."""
        with self.discarded_on_failure():
            yield
        self.commit()

    @contextmanager
    def discarded_on_failure(self) -> Iterator[None]:
        """Fill the reservation inside; it is discarded if anything fails."""
        try:
            yield
        except BaseException as error:
            clean_up(self.logical.group.store, error, self.discard)
            raise


def reserve_region(logical: LogicalArrayHandle, box: Box, encoding: Encoding) -> Reservation:
    """A new region over a free box of logical chunks; the data begins where it does."""
    manifest = logical.manifest
    check_free(manifest, box)
    elements = manifest.elements(box)
    reservation = Reservation(logical, elements.start)
    name = reservation.in_new_member(elements, encoding)
    reservation.manifest = manifest.replace_boxes([], [NewRegion(box, name, packing=encoding.packing)])
    return reservation


def reserve_in_existing_regions(logical: LogicalArrayHandle, box: Box) -> Reservation:
    """A box of elements that regions back already: the data replaces what is there.

    Replicas of the box are removed before the data is written, whatever happens to it.
    """
    logical.cut_replicas(logical.manifest.cells(box))
    manifest = logical.manifest
    reservation = Reservation(logical, box.start)
    for row, _ in manifest.regions.parts(manifest.cells(box)):
        shared = manifest.elements(row.box).intersect(box)
        if shared is not None:
            logical.member_of(row)  # one that is too small is damaged, and must not grow
            reservation.in_member(DataPiece.of(manifest, row, shared))
    missing = prod(box.shape) - sum(prod(piece.source.shape) for piece in reservation.pieces)
    if missing:
        raise NoRegionError(
            f"{missing} of the {prod(box.shape)} elements of {box.text()} lie in no region.\n"
            "  Give codecs for a new region where there is none, or bounds that regions cover"
        )
    return reservation


def clean_up(store: Any, error: BaseException, remove: Callable[[], object]) -> None:
    """Remove what a change that ended with `error` left in a store, if the store can be used now.

    By the time a write raises an `Exception`, everything that it began has ended. Ctrl-C is raised at once,
    with writes still on their way. Icechunk may then never answer; nor is there a need to ask, as nothing was
    committed and the session is given up. Stores that our own threads write to are at rest by then. In all
    others, `intarsia.vacuum` removes what is left.

    A failure to remove is noted on the error, and does not replace it.
    """
    if not isinstance(error, Exception) and not store_supports_sync_io(store):
        return
    try:
        remove()
    except Exception as problem:  # a store that fails to write may fail at this too
        error.add_note(f"what was written could not be removed ({problem}); intarsia.vacuum removes it")


@contextmanager
def removed_on_failure(store_path: StorePath) -> Iterator[None]:
    """Write a new node inside; if that fails, everything at its place is removed again."""
    try:
        yield
    except BaseException as error:
        clean_up(store_path.store, error, lambda: sync(store_path.delete_dir()))
        raise
