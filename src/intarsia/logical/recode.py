"""Encoding a box again: its values are copied into a new member, block by block, here or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec, VLenBytesCodec, VLenUTF8Codec

from intarsia.codecs import CodecLike, parse_codecs
from intarsia.codecs.reshape import ReshapeCodec
from intarsia.codecs.runtime_options import PicklableOptions
from intarsia.engine.config import LogicalConfig
from intarsia.engine.prepared_member import PreparedMember, object_shape
from intarsia.engine.read import read_request
from intarsia.engine.request import parse_selection
from intarsia.engine.write import write_box
from intarsia.errors import CodecConfigurationError, NoRegionError, ReadError
from intarsia.logical.encoding import Encoding, choose_codecs, keep_layout
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.staging import DataPiece, Reservation
from intarsia.manifest.box import BLOCK_BYTES, Box, block_shape, chunk_grid
from intarsia.manifest.data_types import Values, data_type_of
from intarsia.manifest.manifest import Manifest, NewRegion
from intarsia.manifest.packing_columns import NO_PACKINGS, PackingChoice, choose_packing
from intarsia.manifest.region_table import NONE
from intarsia.nullable import NullableValues
from intarsia.nullable.codec import NullableCodec
from intarsia.parallel import Client, run_on_workers
from intarsia.progress import Progress, silent

if TYPE_CHECKING:
    from intarsia.logical.logical_array import LogicalArray

EXACT_CODECS = BytesBytesCodec, BytesCodec, VLenUTF8Codec, VLenBytesCodec, TransposeCodec, ReshapeCodec
"""Codecs that return their input, bit by bit."""

TASK_BYTES = 16 << 20
"""A task on a cluster copies whole chunks of about this size: many tasks for the workers to share."""


def recode(
    logical: LogicalArrayHandle,
    box: Box,
    encoding: Encoding,
    *,
    client: Client | None = None,
    progress: Progress = silent,
) -> None:
    """Copy a box of logical chunks into a new member of another encoding; regions that it cuts are split."""
    logical.begin_edit()
    reservation = reserve_recode(logical, box, encoding)
    with reservation.shown_when_filled():
        copy_values(reservation, client=client, progress=progress)


def recode_encoding(
    array: LogicalArray,
    box: Box,
    codecs: Iterable[CodecLike] | Literal["auto"] | None,
    chunks: tuple[int, ...] | None,
    shards: tuple[int, ...] | None,
    packing: PackingChoice,
) -> Encoding:
    """The encoding for a recode of a box of logical chunks: what the caller leaves open stays as it is."""
    bounds, packed = array.manifest.elements(box).bounds, choose_packing(array.manifest, packing)
    chosen = choose_codecs(codecs, array, bounds, packed.get("packing", "keep"))
    encoding = Encoding(chosen, chunks, shards, options=array.config.options, **packed)
    return keep_layout(array._logical, box, encoding)


def reserve_recode(
    logical: LogicalArrayHandle, box: Box, encoding: Encoding, *, layer: int = 0, ready: str | None = None
) -> Reservation:
    """Room for the values of a box of logical chunks in a new member, which replaces those of its layer.

    If `ready`, the array of this name in the group already holds them. Packings are kept if all regions store
    one type: then their numbers are copied, and every region keeps its own packing.
    """
    manifest = logical.manifest
    numbers = as_stored(logical, box) if encoding.keep_packing else None
    parts = [
        (part, encoding.packing if numbers is None else manifest.packing_of(row))
        for row, part in manifest.regions.parts(box)
    ]
    if not parts:
        purpose = "recode"
        if layer:
            purpose = "replicate.\n  Say what to replicate as the array grows: arr.set_policy(replica={…})"
        raise NoRegionError(
            f"no region lies in {manifest.elements(box).text()}: there is nothing to {purpose}"
        )
    fresh = [part for part, _ in parts]
    if manifest.regions.covers(box):
        # In one go: chunks of the new member may hold elements of many parts, and would be written for each.
        fresh = [box]
        if len({packing for _, packing in parts}) == 1:
            parts = [(box, parts[0][1])]
    reservation = Reservation(logical, numbers=numbers)
    if ready is None:
        member = encoding if numbers is None else replace(encoding, packing=parts[0][1])
        ready = reservation.in_new_member(manifest.elements(box), member, *map(manifest.elements, fresh))
    new = [NewRegion(part, ready, part.seen_from(box.start).start, packing) for part, packing in parts]
    # Replicas stay what they are, unless the new encoding rounds.
    exact = encoding.packing is None and is_exact(parse_codecs(encoding.codecs or ()))
    reservation.manifest = manifest.replace_boxes([box], new, layer=layer, same_values=exact)
    return reservation


def as_stored(logical: LogicalArrayHandle, box: Box) -> PackedNumbersHandle | None:
    """The regions in a box as the numbers in their members; None unless all are packed in one type.

    Only for reading: it says nothing about the rest of the array.
    """
    manifest = logical.manifest
    table, packings = manifest.regions.select(manifest.regions.touching(box)), manifest.packings
    if not len(table) or (table.packing == NONE).any():
        return None
    stored = {packings.kinds[kind].stored for kind in np.unique(packings.kind[table.packing])}
    if len(stored) > 1:
        return None
    data_type = data_type_of(stored.pop())
    numbers = replace(
        manifest,
        data_type=data_type,
        fill_value=data_type.default_scalar(),
        regions_and_replicas=replace(table, packing=np.full(len(table), NONE, dtype=np.int64)),
        packings=NO_PACKINGS,
    )
    return PackedNumbersHandle(logical.group, numbers, logical.members.live)


def is_exact(codecs: Iterable[Any]) -> bool:
    """Whether codecs are known to return their input, bit by bit; for others it is unknown.

    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> is_exact([BytesCodec(), ZstdCodec()])
    True
    """
    return all(
        isinstance(codec, EXACT_CODECS)
        or (isinstance(codec, ShardingCodec) and is_exact(codec.codecs))
        or (isinstance(codec, NullableCodec) and is_exact(codec.data_codecs or ()))
        for codec in codecs
    )


class PackedNumbersHandle(LogicalArrayHandle):
    """The group behind a logical array, read through a manifest of what its members store."""

    def reload(self) -> None:
        """Refused: what others put there may be stored differently."""
        raise ReadError("the layout of the array was changed while its stored numbers were read")


def copy_values(
    reservation: Reservation, *, client: Client | None = None, progress: Progress = silent
) -> None:
    """Fill the reservation for a recode with the current values, block by block; steps are chunks or shards.

    With a client, steps are tasks.
    """
    logical, (name,) = reservation.logical, reservation.new_members
    options, member = reservation.options[name], logical.members[name]
    unit = object_shape(member)
    metadata: Any = member.metadata
    exact = reservation.exact and not is_exact(metadata.codecs)
    runtime = logical.runtime_options(name, options)
    source = reservation.numbers or logical
    copy = _Copy(logical.group.path, source.manifest, type(source), name, runtime, exact)
    grid, most_bytes = chunk_grid(member.shape, unit), BLOCK_BYTES if client is None else TASK_BYTES
    step = block_shape(unit, grid, max(member.dtype.itemsize, 1), most_bytes)
    tasks = _tasks(reservation.pieces, step)
    if client is not None:
        run_on_workers(client, logical.group.store, copy, tasks, progress)
        return
    steps = [sum(prod(piece.target.in_units(unit).shape) for piece in task) for task in tasks]
    progress(0, sum(steps))
    for task, done in zip(tasks, accumulate(steps), strict=True):
        copy.into(source, logical.target(name, options), task)
        progress(done, sum(steps))


def _tasks(pieces: Iterable[DataPiece], step: tuple[int, ...]) -> list[list[DataPiece]]:
    """The pieces, cut into blocks of whole chunks of the new member: no chunk belongs to two tasks."""
    tasks: dict[tuple[int, ...], list[DataPiece]] = {}
    for piece in pieces:
        data_start = piece.source.seen_from(piece.target.start).start  # a new member has no view
        for cell in piece.target.in_units(step).indices():
            tile = Box.sized(step, tuple(map(mul, cell, step))).shifted(data_start)
            if (block := tile.intersect(piece.source)) is not None:
                tasks.setdefault(cell, []).append(piece.select(block))
    return list(tasks.values())


@dataclass(frozen=True)
class _Copy:
    """Copies the pieces of one task; it is sent to workers."""

    path: str
    manifest: Manifest
    """What to copy: the array, or the numbers in its members."""
    handle: type[LogicalArrayHandle]
    """How to read it."""
    member: str
    runtime: PicklableOptions
    """The run-time options for writing."""
    exact: bool = False
    """Whether every value is read again and compared."""

    def __call__(self, store: Any, task: list[DataPiece]) -> None:
        logical = self.handle(open_group(store, self.path, "r+"), self.manifest)
        member = self.runtime.on(logical.members.child(self.member))
        self.into(logical, PreparedMember.of(self.member, member), task)

    def into(self, logical: LogicalArrayHandle, target: PreparedMember, task: list[DataPiece]) -> None:
        for piece in task:
            stored = piece.stored(read_box(logical, piece.source))
            write_box(target, piece.target, stored)
            if self.exact:
                _check_copy(target, piece, stored)


def read_box(logical: LogicalArrayHandle, box: Box, layer: int = 0) -> Values:
    """The values of a box of elements in one layer; layer 0 says what they are."""
    request = parse_selection(logical.manifest.shape, box.slices, "basic")
    return read_request(logical, request, LogicalConfig(layer=layer))


def _check_copy(target: PreparedMember, piece: DataPiece, stored: Values) -> None:
    """Refuse an encoding that does not return what was stored."""
    array: Any = target.array
    back = array[piece.target.slices]
    index = first_difference(back, stored)
    if index is not None:
        element = tuple(a + i for a, i in zip(piece.source.start, index, strict=True))
        raise CodecConfigurationError(
            f"a replica must hold the same values as the array, but with these codecs {element} would be "
            f"{back[index]!r} instead of {stored[index]!r}.\n  Choose codecs that lose nothing"
        )


def first_difference(one: Any, other: Any) -> tuple[int, ...] | None:
    """Where two arrays first hold different things; both NaN, or both null, is the same.

    >>> first_difference(np.array([1, np.nan, 3]), np.array([1, np.nan, 4]))
    (2,)
    """
    null: Any = np.False_
    nulls: Any = np.False_
    if isinstance(one, NullableValues):
        null, nulls = one.isnull(), other.isnull()
        one, other = one.values, other.values
    same = (one == other) | ((one != one) & (other != other)) | null
    different = np.argwhere(~np.asarray(same & (null == nulls)))
    return tuple(different[0].tolist()) if len(different) else None
