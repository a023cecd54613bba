"""Replicas of a logical array, and its policy: what it should look like as it grows.

To make a replica, the values of a box are copied from layer 0 into a new member, as in a recode, but the
manifest then shows both. A policy, kept among the attributes, says which replicas there should be, and how
new data is encoded in the end. Reading the array does not need it; `refresh_replicas` and `intarsia.maintain`
carry it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, json, structs

from intarsia.codecs import parse_codecs
from intarsia.display import one_line
from intarsia.errors import BoundsError, PolicyError
from intarsia.logical.encoding import Encoding, choose_codecs, create_member, serializer_of
from intarsia.logical.recode import copy_values, reserve_recode
from intarsia.logical.staging import Reservation, lattice_box
from intarsia.manifest.box import BoundsLike, Box, chunk_grid, parse_shape, tile_in_blocks
from intarsia.manifest.document import POLICY_KEY
from intarsia.manifest.region_table import MAX_LAYERS, RegionTable, Row
from intarsia.manifest.typed_json import decode
from intarsia.progress import Progress, silent

if TYPE_CHECKING:
    from zarr.dtype import ZDType

    from intarsia.logical.logical_array import LogicalArray
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest
    from intarsia.parallel import Client


PIECE_BYTES = 1 << 30
"""A replica is made in pieces of about this size, each a commit, so that finished pieces stay."""

ENDLESS = 1 << 61
"""The end of a box that grows with the array; further than any array reaches."""

AFTER = re.compile(r"\s*(\d+)\s*(?:chunks?)?\s*\Z")


class EncodingPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How part of an array should be encoded, and when; as in the attributes.

    >>> EncodingPolicy(codecs=({"name": "bytes"}, {"name": "zstd"}), after=30).encoding.keep_packing
    True
    """

    codecs: tuple[Any, ...] | None = None
    """The codecs, as in zarr.json; None means zarr's own choice."""

    chunks: tuple[int, ...] | None = None
    """The member's chunk shape; None means the logical one."""

    shards: tuple[int, ...] | None = None
    """The member's shard shape, if it is to be sharded."""

    packing: Literal["keep"] | None = "keep"
    """Whether packed regions stay packed: "keep", or None."""

    after: Annotated[int, Meta(ge=1)] = 1
    """How many logical chunks must be due, along the axis on which the array grows."""

    axis: int = 0
    """The axis on which the array grows."""

    @property
    def encoding(self) -> Encoding:
        """The encoding for new members."""
        return Encoding(self.codecs, self.chunks, self.shards, keep_packing=self.packing == "keep")

    def check(self, manifest: Manifest, what: str) -> None:
        """Refuse a policy that cannot be carried out for an array."""
        if not 0 <= self.axis < max(manifest.ndim, 1):
            raise PolicyError(f"{what}: axis={self.axis}: the array has {manifest.ndim} axes")
        try:
            create_member({}, None, manifest, manifest.shape, replace(self.encoding, keep_packing=False))
        except Exception as error:  # anything that zarr and codecs may raise
            raise PolicyError(f"{what}: {one_line(error)}") from error


class ReplicaPolicy(EncodingPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica that should exist: its number, its encoding, and what it holds.

    >>> ReplicaPolicy(chunks=(8, 2), layer=1, bounds=(((0, None), (0, 10)),)).boxes[0].stop[1]
    10
    """

    layer: int
    """The number of the layer."""

    bounds: tuple[tuple[tuple[int, int | None], ...], ...]
    """The boxes of elements that it holds; where an end is None, it moves with that of the array."""

    @property
    def boxes(self) -> list[Box]:
        """The boxes, of which those that move end at `ENDLESS`."""
        return [Box.of((a, ENDLESS if b is None else b) for a, b in bounds) for bounds in self.bounds]

    def chunk_shape(self, manifest: Manifest) -> tuple[int, ...]:
        """The shape of its objects in the store: shards, or chunks if there are none."""
        return self.shards or self.chunks or manifest.chunk_shape

    def with_boxes(self, boxes: Iterable[Box]) -> ReplicaPolicy:
        """The same for other boxes."""
        bounds = tuple(tuple((a, None if b >= ENDLESS else b) for a, b in box.bounds) for box in boxes)
        return structs.replace(self, bounds=bounds)

    def subtract(self, elements: Box) -> ReplicaPolicy:
        """The same without a box."""
        return self.with_boxes(part for box in self.boxes for part in box.subtract(elements))

    def also(self, elements: Box) -> ReplicaPolicy:
        """The same with one more box."""
        # Those it has stay whole, since chunks of the replica do not reach beyond a box.
        held = RegionTable.from_rows([Row(0, box, box.start) for box in self.boxes], len(elements.start))
        return self.with_boxes([*self.boxes, *held.free(elements)])


def parse_policy[P: EncodingPolicy](
    kind: type[P],
    fields: Mapping[str, Any],
    what: str,
    data_type: ZDType[Any, Any],
    **more: Any,
) -> P:
    """A policy from what users say; a codec list without a serializer gets the one for `data_type`."""
    document = {**fields, **more}
    counted = AFTER.match(str(document.get("after", 1)))
    if counted is not None:
        document["after"] = int(counted[1])
    for name in ("chunks", "shards"):
        if document.get(name) is not None:
            document[name] = parse_shape(document[name], name)
    codecs = document.pop("codecs", None)
    if codecs is not None:
        codecs = tuple(codec.to_dict() for codec in parse_codecs(codecs, serializer_of(data_type)))
    policy: P = decode(document, kind, lambda problem: PolicyError(f"{what}={dict(fields)!r}: {problem}"))
    return structs.replace(policy, codecs=codecs)  # as they are, with their run-time options


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that an array should look like.

    >>> Policy().to_json()
    {'replicas': []}
    """

    replicas: tuple[ReplicaPolicy, ...] = ()
    """One for each layer."""

    recode: EncodingPolicy | None = None
    """How regions of layer 0 that were written in haste should be encoded; None leaves them alone."""

    @classmethod
    def of(cls, logical: LogicalArrayHandle) -> Policy:
        """The policy of an array; an empty one if it has none."""
        where = f"the attribute {POLICY_KEY!r} of {logical.group.path!r} does not hold a policy"
        document: Any = logical.group.metadata.attributes.get(POLICY_KEY) or {}
        policy: Policy = decode(document, Policy, lambda problem: PolicyError(f"{where}: {problem}"))
        return policy

    def to_json(self) -> dict[str, Any]:
        """As it stands in the attributes."""
        document = json.decode(json.encode(self))
        return {name: value for name, value in document.items() if value is not None}

    @property
    def attributes(self) -> dict[str, Any]:
        """The attribute that holds it."""
        return {POLICY_KEY: self.to_json()}

    def layers(self, manifest: Manifest) -> set[int]:
        """The layers that there are or should be."""
        return {*manifest.layers, *(one.layer for one in self.replicas)}

    def with_replica(self, replica: ReplicaPolicy) -> Policy:
        """The same with the policy of one layer replaced; an empty one is left out."""
        others = [one for one in self.replicas if one.layer != replica.layer]
        listed = [*others, replica] if replica.bounds else others
        return structs.replace(self, replicas=tuple(sorted(listed, key=lambda one: one.layer)))


def extend_with_array(elements: Box, shape: Sequence[int]) -> Box:
    """A box of elements; if it is all of an array, it grows with it.

    >>> extend_with_array(Box((0,), (4,)), (4,)).stop[0] == ENDLESS, extend_with_array(Box((0,), (2,)), (4,))
    (True, Box(start=(0,), stop=(2,)))
    """
    ndim = len(elements.start)
    return Box((0,) * ndim, (ENDLESS,) * ndim) if elements == Box.sized(shape) else elements


def plan_replica(
    array: LogicalArray, bounds: BoundsLike | None, fields: dict[str, Any], layer: int | None
) -> tuple[ReplicaPolicy, Box]:
    """The layer of a replica, everything that it should hold, and the logical chunks to begin with.

    A layer with the same encoding takes one more box; otherwise it is a new one.
    """
    logical = array._logical
    manifest, policy = logical.manifest, Policy.of(logical)
    box = Box.sized(manifest.lattice) if bounds is None else lattice_box(manifest, bounds)
    bounds = manifest.elements(box).bounds
    fields = fields | {"codecs": choose_codecs(fields["codecs"], array, bounds, fields["packing"])}
    fresh, alike = _replica_policy(manifest, policy, fields, box, layer)
    if alike is not None:
        return structs.replace(alike.also(fresh.boxes[0]), after=fresh.after, axis=fresh.axis), box
    if fresh.layer in policy.layers(manifest):
        raise BoundsError(
            f"layer {fresh.layer}: it already holds a replica with another encoding.\n"
            "  Leave it out to use a free one"
        )
    return fresh, box


def _replica_policy(
    manifest: Manifest, policy: Policy, fields: Mapping[str, Any], box: Box, layer: int | None
) -> tuple[ReplicaPolicy, ReplicaPolicy | None]:
    """The policy of a replica with these fields, and the existing one with the same encoding, if any."""
    # A box that reaches the array's end on an axis grows there only if it is all of the array.
    grows = extend_with_array(manifest.elements(box), manifest.shape)
    fresh = parse_policy(ReplicaPolicy, fields, "replica", manifest.data_type, layer=0, bounds=())
    fresh = fresh.with_boxes([grows])
    fresh.check(manifest, "replica")
    same = (one for one in policy.replicas if one.encoding == fresh.encoding and layer in (None, one.layer))
    alike, used = next(same, None), policy.layers(manifest)
    if layer is None:
        layer = alike.layer if alike else next(n for n in range(1, MAX_LAYERS + 1) if n not in used)
    if not isinstance(layer, int) or not 0 < layer < MAX_LAYERS:
        raise BoundsError(
            f"layer {layer!r}: layers are numbered from 1 to {MAX_LAYERS - 1}, and there are {len(used)}"
        )
    return structs.replace(fresh, layer=layer), alike


def reserve_replica(
    logical: LogicalArrayHandle, box: Box, replica: ReplicaPolicy, *, ready: str | None = None
) -> Reservation:
    """Room for the values of a box of logical chunks in a new member, which is shown beside those it has.

    What the layer had there before is replaced. If `ready`, the array of this name already holds the values.
    """
    policy = Policy.of(logical).with_replica(replica)
    reservation = reserve_recode(logical, box, replica.encoding, layer=replica.layer, ready=ready)
    reservation.attributes, reservation.exact = policy.attributes, True
    return reservation


def make_replica(
    logical: LogicalArrayHandle, box: Box, replica: ReplicaPolicy, client: Client | None, progress: Progress
) -> None:
    """Copy a box of logical chunks into its layer, and show it there."""
    reservation = reserve_replica(logical, box, replica)
    with reservation.shown_when_filled():
        copy_values(reservation, client=client, progress=progress)


def drop_replica(logical: LogicalArrayHandle, bounds: BoundsLike | None, layer: int | None) -> None:
    """Cut a box out of one replica or all of them, and out of what they should hold."""
    logical.begin_edit()
    manifest, policy = logical.manifest, Policy.of(logical)
    layers = policy.layers(manifest)
    if layers == {0} or layer == 0 or layer not in {None, *layers}:
        which = "no replicas" if layer is None else f"no replica in layer {layer}"
        raise BoundsError(f"the array has {which}; its layers are {sorted(layers)}")
    box = Box.sized(manifest.lattice) if bounds is None else lattice_box(manifest, bounds)
    elements = extend_with_array(manifest.elements(box), manifest.shape)
    for one in policy.replicas:
        if layer in (None, one.layer):
            policy = policy.with_replica(one.subtract(elements))
    for number in manifest.layers[1:]:
        if layer in (None, number):
            manifest = manifest.replace_boxes([box], layer=number)
    logical.commit(manifest, policy.attributes)


def missing_boxes(manifest: Manifest, replica: ReplicaPolicy, *, least: int = 1) -> Iterator[Box]:
    """What a replica lacks, as boxes of logical chunks that make up whole chunks of its own.

    Only boxes of at least `least` logical chunks along the axis on which the array grows.
    """
    table = manifest.replicas.by_layer().get(replica.layer, RegionTable.from_rows([], manifest.ndim))
    inside = [box.intersect(Box.sized(manifest.shape)) for box in replica.boxes]
    for target in [manifest.cells(box) for box in inside if box is not None]:
        for missing in table.free(target):
            is_long = not missing.shape or missing.shape[replica.axis] >= least
            if is_long and manifest.regions.touching(missing).size:
                # With what is needed around it to fill whole chunks of the replica: otherwise they would get
                # smaller and smaller at the end of a growing array.
                chunk = replica.chunk_shape(manifest)
                whole = manifest.elements(missing).in_units(chunk).in_elements(chunk)
                yield manifest.cells(whole).intersect(target) or missing


def next_box_to_copy(manifest: Manifest, replica: ReplicaPolicy, box: Box) -> Box:
    """The first part of a box that is worth its own commit: whole chunks of the replica."""
    # In logical chunks, rounded up: pieces have to begin where logical chunks do.
    unit = chunk_grid(replica.chunk_shape(manifest), manifest.chunk_shape)
    cell = prod(manifest.chunk_shape) * manifest.data_type.to_native_dtype().itemsize
    return next(tile_in_blocks(Box.sized(box.shape), unit, cell, PIECE_BYTES)).shifted(box.start)


def refresh_replicas(
    logical: LogicalArrayHandle, *, client: Client | None = None, progress: Progress = silent
) -> int:
    """Restore everything that replicas lack; returns how many boxes that was."""
    logical.begin_edit()
    count = 0
    while lacking := [
        (one, box) for one in Policy.of(logical).replicas for box in missing_boxes(logical.manifest, one)
    ]:
        replica, box = lacking[0]
        make_replica(logical, box, replica, client, progress)
        count += 1
    return count


def set_policy(logical: LogicalArrayHandle, policy: Mapping[str, Any]) -> None:
    """Say what the array should look like; nothing is built."""
    unknown = sorted(set(policy) - {"replica", "recode"})
    if unknown or not policy:
        raise PolicyError(f"set_policy({', '.join(unknown)}): give replica={{…}}, recode={{…}}, or both")
    logical.begin_edit()
    manifest, chosen = logical.manifest, Policy.of(logical)
    if "recode" in policy:
        recode = None
        if policy["recode"] is not None:
            recode = parse_policy(EncodingPolicy, policy["recode"], "recode", manifest.data_type)
            recode.check(manifest, "recode")
        chosen = structs.replace(chosen, recode=recode)
    if "replica" in policy and policy["replica"] is None:
        chosen = structs.replace(chosen, replicas=())
    elif "replica" in policy:
        fields = dict(policy["replica"])
        layer, bounds = fields.pop("layer", None), fields.pop("bounds", None)
        box = Box.sized(manifest.lattice) if bounds is None else lattice_box(manifest, bounds)
        chosen = chosen.with_replica(_replica_policy(manifest, chosen, fields, box, layer)[0])
    logical.group = logical.group.update_attributes(chosen.attributes)
