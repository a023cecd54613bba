"""What an array should look like as it grows: its policy, kept among its attributes.

A policy says which replicas there should be, and how new data is encoded in the end. Reading the array does
not need it; `refresh_replicas` and `intarsia.maintain` carry it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from intarsia.codecs import parse_codecs
from intarsia.display import one_line
from intarsia.errors import PolicyError
from intarsia.logical.members import Encoding, create_member
from intarsia.manifest.box import Box, sizes_of
from intarsia.manifest.coercion import serializer_of
from intarsia.manifest.document import POLICY_KEY

if TYPE_CHECKING:
    from zarr.dtype import ZDType

    from intarsia.logical.logical_state import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest

ENDLESS = 1 << 61
"""The end of a box that grows with the array; further than any array reaches."""

AFTER = re.compile(r"\s*(\d+)\s*(?:chunks?)?\s*\Z")


@dataclass(frozen=True)
class EncodingPolicy:
    """How part of an array should be encoded, and when.

    >>> EncodingPolicy.from_fields({"codecs": ["zstd"], "after": "30 chunks"}, "recode").after
    30
    """

    codecs: tuple[Any, ...] | None = None
    """The codecs, as in zarr.json; None means zarr's own choice."""

    chunks: tuple[int, ...] | None = None
    """The member's chunk shape; None means the logical one."""

    shards: tuple[int, ...] | None = None
    """The member's shard shape, if it is to be sharded."""

    packing: str | None = "keep"
    """Whether packed regions stay packed: "keep", or None."""

    after: int = 1
    """How many logical chunks must be due, along the axis on which the array grows."""

    axis: int = 0
    """The axis on which the array grows."""

    @classmethod
    def from_fields(
        cls, fields: Mapping[str, Any], what: str, data_type: ZDType[Any, Any] | None = None, **more: Any
    ) -> Any:
        """The policy from its fields; refused if it is not one.

        A codec list without a serializer gets the one for `data_type`; lists that are stored have one.
        """
        known = {"codecs", "chunks", "shards", "packing", "after", "axis", *more}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise PolicyError(
                f"{what}={dict(fields)!r}: {unknown[0]!r} is unknown; there are {', '.join(sorted(known))}"
            )
        after = fields.get("after", 1)
        counted = AFTER.match(str(after))
        if counted is None or isinstance(after, bool) or int(counted[1]) < 1:
            raise PolicyError(f"{what}: after={after!r}: give a number of logical chunks: '30 chunks'")
        packing = fields.get("packing", "keep")
        if packing not in ("keep", None):
            raise PolicyError(f'{what}: packing={packing!r}: give "keep" or None')
        codecs = fields.get("codecs")
        sizes = {
            name: None if fields.get(name) is None else sizes_of(fields[name], name)
            for name in ("chunks", "shards")
        }
        serializer = None if data_type is None else serializer_of(data_type)
        listed = (
            None if codecs is None else tuple(codec.to_dict() for codec in parse_codecs(codecs, serializer))
        )
        axis = int(fields.get("axis", 0))
        return cls(listed, **sizes, packing=packing, after=int(counted[1]), axis=axis, **more)

    @property
    def encoding(self) -> Encoding:
        """The encoding for new members."""
        keeps = self.packing == "keep"
        return Encoding(self.codecs, self.chunks, self.shards, keep_packing=keeps)

    def check(self, manifest: Manifest, what: str) -> None:
        """Refuse a policy that cannot be carried out for an array."""
        if not 0 <= self.axis < max(manifest.ndim, 1):
            raise PolicyError(f"{what}: axis={self.axis}: the array has {manifest.ndim} axes")
        try:
            create_member({}, None, manifest, manifest.shape, replace(self.encoding, keep_packing=False))
        except Exception as error:  # anything that zarr and codecs may raise
            raise PolicyError(f"{what}: {one_line(error)}") from error

    def to_json(self) -> dict[str, Any]:
        """As it stands in the attributes."""
        sizes = {
            name: None if (v := getattr(self, name)) is None else list(v) for name in ("chunks", "shards")
        }
        codecs = None if self.codecs is None else list(self.codecs)
        return {"codecs": codecs, **sizes, "packing": self.packing, "after": self.after, "axis": self.axis}


@dataclass(frozen=True)
class ReplicaPolicy(EncodingPolicy):
    """One replica that should exist: its number, its encoding, and what it holds.

    >>> ReplicaPolicy.from_fields({"chunks": (8, 2)}, "replica", layer=1, boxes=()).chunks
    (8, 2)
    """

    layer: int = 1
    """The number of the layer."""

    boxes: tuple[Box, ...] = ()
    """The boxes of elements that it holds; those that end at `ENDLESS` grow with the array."""

    def target_boxes(self, manifest: Manifest) -> list[Box]:
        """The logical chunks that the replica should hold, in the array's current state."""
        whole = Box.sized(manifest.shape)
        inside = (box.intersect(whole) for box in self.boxes)
        return [manifest.cells(box) for box in inside if box is not None]

    def subtract(self, elements: Box | None) -> ReplicaPolicy:
        """The same without a box; None means all of it."""
        left = (
            () if elements is None else tuple(part for box in self.boxes for part in box.subtract(elements))
        )
        return replace(self, boxes=tuple(left))

    def also(self, elements: Box) -> ReplicaPolicy:
        """The same with one more box."""
        parts = [elements]
        for box in self.boxes:
            parts = [left for part in parts for left in part.subtract(box)]
        return replace(self, boxes=(*self.boxes, *parts))

    def is_like(self, other: ReplicaPolicy) -> bool:
        """Whether both have one encoding, so that they can be one layer."""
        mine, theirs = EncodingPolicy.to_json(self), EncodingPolicy.to_json(other)
        return all(mine[name] == theirs[name] for name in ("codecs", "chunks", "shards", "packing"))

    def to_json(self) -> dict[str, Any]:
        """As it stands in the attributes; null is an end that moves."""
        bounds = [[[a, None if b >= ENDLESS else b] for a, b in box.bounds] for box in self.boxes]
        return {"layer": self.layer, **super().to_json(), "bounds": bounds}


@dataclass(frozen=True)
class Policy:
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
        document: Any = logical.group.metadata.attributes.get(POLICY_KEY)
        if document is None:
            return cls()
        try:
            return cls._parsed(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PolicyError(
                f"the attribute {POLICY_KEY!r} of {logical.group.path!r} does not hold a policy: "
                f"{one_line(error)}"
            ) from error

    @classmethod
    def _parsed(cls, document: Mapping[str, Any]) -> Policy:
        replicas = []
        for fields in document["replicas"]:
            encoding = {name: value for name, value in fields.items() if name not in ("layer", "bounds")}
            boxes = tuple(
                Box.of((a, ENDLESS if b is None else b) for a, b in bounds) for bounds in fields["bounds"]
            )
            replicas.append(
                ReplicaPolicy.from_fields(encoding, "replica", layer=int(fields["layer"]), boxes=boxes)
            )
        recode = document.get("recode")
        return cls(tuple(replicas), None if recode is None else EncodingPolicy.from_fields(recode, "recode"))

    def to_json(self) -> dict[str, Any]:
        """As it stands in the attributes."""
        document: dict[str, Any] = {"replicas": [replica.to_json() for replica in self.replicas]}
        return document if self.recode is None else document | {"recode": self.recode.to_json()}

    @property
    def attributes(self) -> dict[str, Any]:
        """The attribute that holds it."""
        return {POLICY_KEY: self.to_json()}

    def replica(self, layer: int) -> ReplicaPolicy | None:
        """The policy of a layer, if there is one."""
        return next((one for one in self.replicas if one.layer == layer), None)

    def with_replica(self, replica: ReplicaPolicy) -> Policy:
        """The same with the policy of one layer replaced; an empty one is left out."""
        others = [one for one in self.replicas if one.layer != replica.layer]
        listed = [*others, replica] if replica.boxes else others
        return replace(self, replicas=tuple(sorted(listed, key=lambda one: one.layer)))


def everything(ndim: int) -> Box:
    """All of an array with this many axes, as it grows."""
    return Box((0,) * ndim, (ENDLESS,) * ndim)


def growing(elements: Box, shape: Sequence[int]) -> Box:
    """A box of elements; if it is all of an array, it grows with it.

    >>> growing(Box((0,), (4,)), (4,)) == everything(1), growing(Box((0,), (2,)), (4,))
    (True, Box(start=(0,), stop=(2,)))
    """
    return everything(len(elements.start)) if elements == Box.sized(shape) else elements
