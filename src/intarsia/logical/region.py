"""A region as users see it: bounds, codecs, chunks and stored size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import zarr

from intarsia._compat import concurrent_map, sync
from intarsia.display import MAX_SHOWN_ROWS, Listing, Table
from intarsia.engine.accessors import provided_by_higher_package
from intarsia.errors import MemberError
from intarsia.logical.members import Members
from intarsia.manifest.box import Box
from intarsia.manifest.packing import Packing
from intarsia.manifest.region_table import Row
from intarsia.manifest.view import View

if TYPE_CHECKING:
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest


MAX_REQUESTED = 10_000
"""The most objects whose size is requested without knowing which exist."""


@dataclass(frozen=True)
class Region:
    """A box of the logical array that one box of one member backs.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4, 4), chunks=(2, 2), dtype="f4")
    >>> array.add_region(((0, 2), (0, 4)), codecs=["gzip"])
    >>> array.regions[0].bounds
    ((0, 2), (0, 4))
    """

    name: str
    """The name of the member that backs it."""

    bounds: tuple[tuple[int, int], ...]
    """The first and last (excluded) element on every axis."""

    start: tuple[int, ...]
    """The first logical chunk."""

    stop: tuple[int, ...]
    """The last logical chunk, excluded."""

    member_start: tuple[int, ...]
    """Where `start` is in the member, or in the view of it, in logical chunks."""

    packing: Packing | None
    """How the member's numbers become values; None if they are values."""

    view: View | None
    """How the region sees its member; None if it sees it as it is."""

    layer: int
    """The number of the layer: 0, or higher for a replica."""

    row: Row = field(repr=False, compare=False)
    """The row of the region in the table of its manifest."""

    _manifest: Manifest = field(repr=False, compare=False)
    _members: Members = field(repr=False, compare=False)

    @classmethod
    def of(cls, logical: LogicalArrayHandle, i: int) -> Region:
        """The region in row `i` of the table of `logical`, in which replicas come after layer 0."""
        row = logical.manifest.regions_and_replicas.row(i)
        bounds = logical.manifest.elements(row.box).bounds
        name = logical.manifest.members[row.member]
        # The manifest and members as they are now: a later change of the layout must not redirect the region.
        manifest, members = logical.manifest, logical.members
        backing = row.member_start, manifest.packing_of(row), manifest.view_of(row), row.layer
        return cls(name, bounds, row.box.start, row.box.stop, *backing, row, manifest, members)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, in elements."""
        return tuple(b - a for a, b in self.bounds)

    @property
    def member(self) -> zarr.Array[Any]:
        """The backing array."""
        from intarsia.engine.prepared_member import checked_member

        return checked_member(self._members[self.name], self._manifest, self.row)

    @property
    def codecs(self) -> tuple[Any, ...]:
        """The member's codecs."""
        codecs: tuple[Any, ...] = tuple(self.member.metadata.codecs)  # type: ignore[union-attr]  # members are v3
        return codecs

    @property
    def codec_names(self) -> str:
        """The names of the member's codecs, joined by `+`; `raw` if it has none."""
        from intarsia.engine.prepared_member import short_codecs

        return short_codecs(self.member, settings=False)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The member's own chunk shape."""
        try:
            return tuple(self.member.chunks)
        except NotImplementedError as error:
            raise MemberError(
                f"the chunks of the member {self.name!r} differ in shape, so there is no single shape.\n"
                "  region.member.read_chunk_sizes has all their sizes"
            ) from error

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The member's own shard shape; None if it has no shards."""
        shards = self.member.shards
        return None if shards is None else tuple(shards)

    @property
    def member_bounds(self) -> tuple[tuple[int, int], ...]:
        """The box of the member that backs the region, in elements."""
        return self._manifest.in_member(self.row).bounds

    def shown_from(self, box: Box) -> Box:
        """The elements of the array that a `box` of the member's elements appears as."""
        return self._manifest.from_member(self.row, box)

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        itemsize: int = self._manifest.data_type.to_native_dtype().itemsize
        return prod(self.shape) * itemsize

    @property
    def nbytes_stored(self) -> int:
        """The bytes of the stored chunks (or shards) that hold the region."""
        return stored_size(self.member, self._manifest.in_member(self.row))


class Regions(Listing[Region]):
    """All regions of an array, by position.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="u1")
    >>> array.append([1, 2, 3, 4], codecs=["gzip"])
    >>> array.regions  # doctest: +ELLIPSIS
    Region  Codecs  Chunks  Size  Stored  Ratio  Member
    [0:4]   gzip-5    (2,)   4 B    50 B  0.08x  m-...
    """

    empty = "no regions: all of the array reads as its fill value"

    def blocks(self, most: int | None = MAX_SHOWN_ROWS) -> Iterable[str | Table]:
        """The table that `intarsia regions` prints; stored sizes are measured now, for the shown regions."""
        if not self:
            return [self.empty]
        one, rows = self[0], [region.row for region in self[:most]]
        blocks: Iterable[str | Table] = provided_by_higher_package(
            "region_blocks", one._members.group, one._manifest, rows, len(self) - len(rows)
        )
        return blocks


def stored_size(member: zarr.Array[Any], elements: Box | None = None) -> int:
    """The bytes of the stored chunks (or shards) that hold a box of a member, by default all of it."""
    from intarsia.codecs.stored_chunks import stored_indices
    from intarsia.engine.prepared_member import object_shape

    box = Box.sized(member.shape) if elements is None else elements
    objects = box.in_units(object_shape(member))
    are_few = prod(objects.shape) <= MAX_REQUESTED
    indices = objects.indices() if are_few else filter(objects.holds, stored_indices(member))

    async def size(index: tuple[int, ...]) -> int:
        try:
            return await member.store.getsize(f"{member.path}/{member.metadata.encode_chunk_key(index)}")
        except FileNotFoundError:
            return 0

    limit = zarr.config.get("async.concurrency")
    return sum(sync(concurrent_map([(index,) for index in indices], size, limit)))
