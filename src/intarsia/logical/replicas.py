"""Replicas of a logical array: added, dropped, and restored where writes have cut them.

The values of a box are copied from layer 0 into a new member, as in a recode, but the manifest then shows
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from intarsia.errors import BoundsError, NoRegionError, PolicyError
from intarsia.logical.policy import EncodingPolicy, Policy, ReplicaPolicy, growing
from intarsia.logical.recode import copy_values, reserve_copy
from intarsia.logical.staging import Reservation, lattice_box
from intarsia.manifest.box import BoundsLike, Box, blocks
from intarsia.manifest.region_table import MOST_LAYERS, RegionTable
from intarsia.progress import Progress, silent

if TYPE_CHECKING:
    from intarsia.logical.logical_state import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest
    from intarsia.parallel import Client


PIECE_BYTES = 1 << 30
"""A replica is made in pieces of about this size, each a commit, so that finished pieces stay."""


def plan_replica(
    logical: LogicalArrayHandle, bounds: BoundsLike | None, fields: dict[str, Any], layer: int | None = None
) -> tuple[ReplicaPolicy, Box]:
    """The layer of a replica, everything that it should hold, and the logical chunks to begin with.

    A layer with the same encoding takes one more box; otherwise it is a new one.
    """
    manifest, policy = logical.manifest, Policy.of(logical)
    whole = Box.sized(manifest.shape)
    if bounds is None and not prod(manifest.shape):
        raise NoRegionError(
            "the array holds nothing yet, so there is nothing to replicate.\n"
            "  Say what to replicate as it grows: arr.set_policy(replica={…})"
        )
    box = lattice_box(manifest, whole.bounds if bounds is None else bounds)
    if not manifest.regions.touching(box).size:
        raise NoRegionError(f"no region lies in {logical.bounds_text(box)}: there is nothing to replicate")
    # A box that reaches the array's end on an axis grows there only if it is all of the array.
    elements = growing(manifest.elements(box), manifest.shape)
    fresh: ReplicaPolicy = ReplicaPolicy.from_fields(
        fields, "replica", manifest.data_type, layer=layer or 0, boxes=(elements,)
    )
    fresh.check(manifest, "replica")
    alike = [one for one in policy.replicas if one.is_like(fresh) and layer in (None, one.layer)]
    if alike:
        return replace(alike[0].also(elements), after=fresh.after, axis=fresh.axis), box
    used = {*manifest.layers, *(one.layer for one in policy.replicas)}
    if layer is not None and (layer in used or not 0 < layer < MOST_LAYERS):
        raise BoundsError(
            f"layer {layer}: it already holds a replica with another encoding, or is not a layer that can "
            f"exist; layers are numbered from 1 to {MOST_LAYERS - 1}.\n  Leave it out to use a free one"
        )
    free = next((number for number in range(1, MOST_LAYERS) if number not in used), None)
    if free is None:
        raise BoundsError(f"the array has {len(used)} layers and cannot have more: drop a replica first")
    return replace(fresh, layer=layer or free), box


def reserve_replica(
    logical: LogicalArrayHandle, box: Box, replica: ReplicaPolicy, *, ready: str | None = None
) -> Reservation:
    """Room for the values of a box of logical chunks in a new member, which is shown beside those it has.

    What the layer had there before is replaced. If `ready`, the array of this name already holds the values.
    """
    policy = Policy.of(logical).with_replica(replica)
    room = reserve_copy(logical, [box], replica.encoding, layer=replica.layer, ready=ready)
    room.attributes, room.exact = policy.attributes, True
    return room


def add_replica(
    logical: LogicalArrayHandle,
    bounds: BoundsLike | None,
    fields: dict[str, Any],
    *,
    layer: int | None = None,
    client: Client | None = None,
    progress: Progress = silent,
) -> int:
    """Store a box again, in another layout; returns the number of its layer."""
    logical.begin_edit()
    replica, box = plan_replica(logical, bounds, fields, layer)
    _fill(logical, box, replica, client, progress)
    return replica.layer


def _fill(
    logical: LogicalArrayHandle, box: Box, replica: ReplicaPolicy, client: Client | None, progress: Progress
) -> None:
    room = reserve_replica(logical, box, replica)
    with room.shown_when_filled():
        copy_values(room, client=client, progress=progress)


def drop_replica(logical: LogicalArrayHandle, bounds: BoundsLike | None, layer: int | None) -> None:
    """Cut a box out of one replica or all of them, and out of what they should hold."""
    logical.begin_edit()
    manifest, policy = logical.manifest, Policy.of(logical)
    known = {*manifest.layers[1:], *(one.layer for one in policy.replicas)}
    if not known or (layer is not None and layer not in known):
        which = "no replicas" if layer is None else f"no replica in layer {layer}"
        raise BoundsError(f"the array has {which}; its layers are {sorted({0, *known})}")
    box = None if bounds is None else lattice_box(manifest, bounds)
    elements = None if box is None else growing(manifest.elements(box), manifest.shape)
    for one in policy.replicas:
        if layer in (None, one.layer):
            policy = policy.with_replica(one.subtract(elements))
    chosen = Box.sized(manifest.lattice) if box is None else box
    left = RegionTable.from_rows([], manifest.ndim)
    for number, table in manifest.replicas.by_layer().items():
        left = left.concat(table.subtract(chosen) if layer in (None, number) else table)
    logical.commit(manifest.changed(regions=manifest.regions, replicas=left), policy.attributes)


def gaps(manifest: Manifest, replica: ReplicaPolicy, *, least: int = 1) -> Iterator[Box]:
    """What a replica lacks, as boxes of logical chunks that make up whole chunks of its own.

    Only boxes of at least `least` logical chunks along the axis on which the array grows.
    """
    table = manifest.replicas.by_layer().get(replica.layer, RegionTable.from_rows([], manifest.ndim))
    for target in replica.target_boxes(manifest):
        for gap in table.free(target):
            rows = manifest.regions.touching(gap)
            if rows.size and gap.shape and gap.shape[replica.axis] >= least:
                yield _whole_chunks(manifest, replica, gap, target)
            elif rows.size and not gap.shape:
                yield gap


def _whole_chunks(manifest: Manifest, replica: ReplicaPolicy, gap: Box, target: Box) -> Box:
    """A box and what is needed around it to fill whole chunks of the replica: otherwise they would get
    smaller and smaller at the end of a growing array."""
    chunk, lattice = replica.shards or replica.chunks or manifest.chunk_shape, manifest.chunk_shape
    start = [a * c // size * size // c for a, c, size in zip(gap.start, lattice, chunk, strict=True)]
    stop = [-(-(-(-b * c // size) * size) // c) for b, c, size in zip(gap.stop, lattice, chunk, strict=True)]
    return Box(tuple(map(max, start, target.start)), tuple(map(min, stop, target.stop)))


def piece_of(manifest: Manifest, replica: ReplicaPolicy, box: Box) -> Box:
    """The first part of a box that is worth its own commit: whole chunks of the replica."""
    chunk = replica.shards or replica.chunks or manifest.chunk_shape
    lattice = manifest.chunk_shape
    # In logical chunks, rounded up: pieces have to begin where logical chunks do.
    unit = tuple(max(1, -(-size // c)) for size, c in zip(chunk, lattice, strict=True))
    cell = prod(lattice) * manifest.data_type.to_native_dtype().itemsize
    seen = Box.sized(box.shape)
    first = next(blocks(seen, unit, cell, PIECE_BYTES), seen)
    return first.shifted(box.start)


def refresh_replicas(
    logical: LogicalArrayHandle, *, client: Client | None = None, progress: Progress = silent
) -> int:
    """Restore everything that replicas lack; returns how many boxes that was."""
    logical.begin_edit()
    count = 0
    while True:
        found = next(
            ((one, gap) for one in Policy.of(logical).replicas for gap in gaps(logical.manifest, one)), None
        )
        if found is None:
            return count
        replica, gap = found
        _fill(logical, gap, replica, client, progress)
        count += 1


def set_policy(logical: LogicalArrayHandle, replica: Any, recode: Any, *, names: frozenset[str]) -> None:
    """Say what the array should look like; nothing is built."""
    logical.begin_edit()
    manifest, policy = logical.manifest, Policy.of(logical)
    if "recode" in names:
        chosen = None if recode is None else _encoding_policy(manifest, recode)
        policy = replace(policy, recode=chosen)
    if "replica" in names:
        if replica is None:
            policy = replace(policy, replicas=())
        else:
            policy = policy.with_replica(_replica_policy(logical, policy, replica))
    logical.group = logical.group.update_attributes(
        {**dict(logical.group.metadata.attributes), **policy.attributes}
    )


def _encoding_policy(manifest: Manifest, fields: Any) -> EncodingPolicy:
    chosen: EncodingPolicy = EncodingPolicy.from_fields(fields, "recode", manifest.data_type)
    chosen.check(manifest, "recode")
    return chosen


def _replica_policy(logical: LogicalArrayHandle, policy: Policy, fields: Any) -> ReplicaPolicy:
    """The replica that the fields describe: of everything, or of the `bounds` among them."""
    manifest, encoding = logical.manifest, dict(fields)
    layer, bounds = encoding.pop("layer", None), encoding.pop("bounds", None)
    whole = growing(Box.sized(manifest.shape), manifest.shape)
    elements = whole if bounds is None else manifest.elements(lattice_box(manifest, bounds))
    new_policy: ReplicaPolicy = ReplicaPolicy.from_fields(
        encoding, "replica", manifest.data_type, layer=layer or 0, boxes=(elements,)
    )
    new_policy.check(manifest, "replica")
    if layer is None:
        alike = next((one for one in policy.replicas if one.is_like(new_policy)), None)
        used = {*manifest.layers, *(one.layer for one in policy.replicas)}
        free = next((n for n in range(1, MOST_LAYERS) if n not in used), None)
        layer = alike.layer if alike is not None else free
    if not isinstance(layer, int) or not 0 < layer < MOST_LAYERS:
        raise PolicyError(f"replica: layer={layer!r}: layers are numbered from 1 to {MOST_LAYERS - 1}")
    return replace(new_policy, layer=layer)
