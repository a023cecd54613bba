"""What was ingested already: the ledger of the sources, and the dataset that it stands in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.array.attributes import UNLIMITED_KEY, with_floats
from intarsia.array.document import MANIFEST_KEY
from intarsia.array.hierarchy import LEDGER, open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.table import RegionTable
from intarsia.errors import IngestError

DOCUMENT = "document"
"""Name of the array in it: JSON, as bytes."""

MOST_MEMBERS = 1_000
"""Encodings of a variable that are remembered; if one returns after more others, it gets a new member."""

VERSION = 2
DESCRIPTION = "the sources of this dataset, what each shows of it, and the member of every encoding"


@dataclass
class Ledger:
    """The sources, which part of the dataset each shows, and the member of every encoding.

    It stands in a group beside the arrays, so that a later call knows which files are new.
    """

    dims: tuple[str, ...] = ()
    """The dimensions along which the dataset grows."""

    locations: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What identifies the content that each had."""

    moments: list[float | None] = field(default_factory=list)
    """When each was changed last, in seconds since 1970; None where its store does not say."""

    variables: list[str] = field(default_factory=list)
    """What the sources hold."""

    claims: RegionTable = field(default_factory=lambda: RegionTable.from_rows([], 1))
    """What each shows: sources by number, boxes of the axes; the last axis counts variables."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    dropped_attrs: dict[str, list[str]] = field(default_factory=dict)
    """Attributes in which sources contradict one another, by variable; those of the dataset by ""."""

    stacked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For every variable that is stacked: the array, and the step of its first axis."""

    def array_of(self, variable: str) -> str:
        """The array that shows a variable."""
        return self.stacked[variable][0] if variable in self.stacked else variable

    @classmethod
    def read(cls, group: zarr.Group) -> Ledger:
        """The ledger of a dataset; an empty one if it has none."""
        if LEDGER not in group:
            return cls()
        node: Any = group[LEDGER]
        version = node.attrs.get("version")
        if version not in (1, VERSION):
            raise IngestError(
                f"the ledger of {group.store_path} has version {version}, which this intarsia does not read"
            )
        document = json.loads(np.asarray(node[DOCUMENT][...]).tobytes())
        if version == 1:
            return cls._from_version_1(str(node.attrs["concat_dim"]), document)
        dims = tuple(node.attrs["concat_dims"])
        listed, rank = document.pop("claims"), len(dims) + 1
        file, *ends = (np.array(listed[name], dtype=np.int64) for name in ("file", "start", "stop"))
        start, stop = (each.reshape(len(file), rank) for each in ends)
        return cls(dims, **document, claims=RegionTable.of(file, start, stop, np.zeros_like(start)))

    @classmethod
    def _from_version_1(cls, dim: str, document: dict[str, Any]) -> Ledger:
        """What was written when sources lay one behind the other, on one axis."""
        locations, lengths, members = (document[key] for key in ("locations", "lengths", "members"))
        ends = np.cumsum([0, *lengths], dtype=np.int64)
        variables = np.zeros(len(lengths), dtype=np.int64)
        start = np.stack([ends[:-1], variables], axis=1)
        stop = np.stack([ends[1:], variables + max(len(members), 1)], axis=1)
        table = RegionTable.of(np.arange(len(lengths)), start, stop, np.zeros_like(start))
        moments: list[float | None] = [None] * len(locations)
        return cls((dim,), locations, document["contents"], moments, list(members), table, members)

    def shown(self, number: int) -> set[str]:
        """The variables of which a source shows something."""
        rows = np.flatnonzero(self.claims.member == number)
        ends = zip(self.claims.start[rows, -1].tolist(), self.claims.stop[rows, -1].tolist(), strict=True)
        return {name for a, b in ends for name in self.variables[a:b]}

    def write(self, group: zarr.Group) -> None:
        """Put the ledger in its place."""
        claims = self.claims
        document = {
            "locations": self.locations,
            "contents": self.contents,
            "moments": self.moments,
            "variables": self.variables,
            "claims": {
                "file": claims.member.tolist(),
                "start": claims.start.tolist(),
                "stop": claims.stop.tolist(),
            },
            "stacked": self.stacked,
            "members": {
                name: dict(list(known.items())[-MOST_MEMBERS:]) for name, known in self.members.items()
            },
        }
        if self.dropped_attrs:
            document["dropped_attrs"] = self.dropped_attrs
        node = group.require_group(LEDGER)
        node.attrs.put({"version": VERSION, "concat_dims": list(self.dims), "description": DESCRIPTION})
        data = np.frombuffer(json.dumps(document, separators=(",", ":")).encode(), dtype=np.uint8)
        array = node.create_array(
            DOCUMENT, shape=data.shape, dtype=data.dtype, chunks=data.shape, fill_value=0,
            compressors=ZstdCodec(level=3), overwrite=True,
        )  # fmt: skip
        array[...] = data


@dataclass
class Dataset:
    """A dataset in a repository: what is there already; nothing, for a new one."""

    ledger: Ledger = field(default_factory=Ledger)
    """Its sources."""

    logical_groups: dict[str, LogicalGroup] = field(default_factory=dict)
    """Its logical arrays."""

    plain: dict[str, Any] = field(default_factory=dict)
    """Its coordinates and other loaded arrays."""

    group_attrs: dict[str, Any] = field(default_factory=dict)
    """The attributes of the group that it is."""

    groups: set[str] = field(default_factory=set)
    """Names of other groups, such as datasets below this one."""

    @property
    def is_new(self) -> bool:
        return not self.ledger.locations

    @classmethod
    def read(cls, store: Any, path: str) -> Dataset:
        """The dataset at a path of a store."""
        group = _group(store, path)
        if group is None:
            return cls()
        dataset = cls(Ledger.read(group), group_attrs=_own_attributes(group))
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                dataset.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                dataset.logical_groups[name] = LogicalGroup.load(child)
            else:
                dataset.groups.add(name)
        return dataset

    @staticmethod
    def read_ledger(store: Any, path: str) -> Ledger:
        """Only the ledger of the dataset."""
        group = _group(store, path)
        return Ledger() if group is None else Ledger.read(group)

    def all_attrs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The attributes of everything in it, by name; those of the dataset itself by an empty one."""
        yield "", with_floats(self.group_attrs)
        for name, logical in self.logical_groups.items():
            yield name, with_floats(dict(logical.group.attrs))
        for name in self.plain:
            yield name, with_floats(self.attrs(name))

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """The stored values of a plain array."""
        return np.asarray(self.plain[name][...])

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of a plain array's axes."""
        return tuple(str(dim) for dim in self.plain[name].metadata.dimension_names or ())

    def attrs(self, name: str) -> dict[str, Any]:
        """The attributes of a plain array."""
        array: zarr.Array[Any] = self.plain[name]
        attrs: dict[str, Any] = dict(array.metadata.attributes)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], array.dtype)
        return attrs


def _own_attributes(group: zarr.Group) -> dict[str, Any]:
    """What files said of the dataset."""
    return {key: value for key, value in group.attrs.items() if key != UNLIMITED_KEY}


def _group(store: Any, path: str) -> zarr.Group | None:
    try:
        group = open_group(store, path, "r" if getattr(store, "read_only", False) else "r+")
    except FileNotFoundError:
        return None
    except ValueError as error:  # an array stands there
        raise IngestError(f"{path!r} is an array: a dataset needs a group of its own") from error
    if MANIFEST_KEY in group.attrs:
        raise IngestError(
            f"{path!r} is a logical array itself; a dataset is a group that holds some.\n"
            "  Choose another group: intarsia.ingest(…, group='name')"
        )
    return group
