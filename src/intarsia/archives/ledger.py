"""What was ingested already: the ledger of the sources, and the dataset that it stands in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.array.document import MANIFEST_KEY
from intarsia.array.hierarchy import open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.errors import IngestError

if TYPE_CHECKING:
    from intarsia.archives.parsed import ParsedFile


LEDGER = "intarsia-sources"
"""Name of the group; a variable of that name cannot be ingested."""

DOCUMENT = "document"
"""Name of the array in it: JSON, as bytes."""

MOST_MEMBERS = 1_000
"""Encodings of a variable that are remembered; if one returns after more others, it gets a new member."""

VERSION = 1
DESCRIPTION = "the sources of this dataset in the order of its axis, and the member of every encoding"


@dataclass
class Ledger:
    """The sources in the order of the axis, and the member of every encoding.

    It stands in a group beside the arrays, so that a later call knows which files are new.
    """

    locations: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What identifies the content that each had."""

    lengths: list[int] = field(default_factory=list)
    """How many steps each contributes."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    @property
    def starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """First step of each source."""
        return np.cumsum([0, *self.lengths], dtype=np.int64)[:-1]

    @property
    def total(self) -> int:
        return sum(self.lengths)

    def rearranged(self, kept: Iterable[int], placed: Iterable[tuple[ParsedFile, int, int]]) -> Ledger:
        """The sources in the order of the axis as it will be: new ones in their places, kept ones between.

        New ones come with their first step and number of steps, in the order of the axis.
        """
        stays = [(self.locations[i], self.contents[i], self.lengths[i]) for i in reversed(list(kept))]
        entries: list[tuple[str, str, int]] = []
        at = 0
        for file, start, length in placed:
            while at < start:
                entries.append(stays.pop())
                at += entries[-1][2]
            entries.append((file.url, file.identity.text, length))
            at += length
        entries += reversed(stays)
        members = {name: dict(known) for name, known in self.members.items()}
        return Ledger([e[0] for e in entries], [e[1] for e in entries], [e[2] for e in entries], members)

    @classmethod
    def read(cls, group: zarr.Group) -> Ledger:
        """The ledger of a dataset; an empty one if it has none."""
        if LEDGER not in group:
            return cls()
        node: Any = group[LEDGER]
        version = node.attrs.get("version")
        if version != VERSION:
            raise IngestError(
                f"the ledger of {group.store_path} has version {version}, which this intarsia does not read"
            )
        document = json.loads(np.asarray(node[DOCUMENT][...]).tobytes())
        return cls(*(document[key] for key in ("locations", "contents", "lengths", "members")))

    def write(self, group: zarr.Group, concat_dim: str) -> None:
        """Put the ledger in its place."""
        document = {
            "locations": self.locations,
            "contents": self.contents,
            "lengths": self.lengths,
            "members": {
                name: dict(list(known.items())[-MOST_MEMBERS:]) for name, known in self.members.items()
            },
        }
        node = group.require_group(LEDGER)
        node.attrs.put({"version": VERSION, "concat_dim": concat_dim, "description": DESCRIPTION})
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

    concat_dim: str = ""
    """The dimension that it grows along."""

    @property
    def is_new(self) -> bool:
        return not self.ledger.locations

    @classmethod
    def read(cls, store: Any, path: str) -> Dataset:
        """The dataset at a path of a store."""
        group = _group(store, path)
        if group is None:
            return cls()
        dataset = cls(Ledger.read(group))
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                dataset.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                dataset.logical_groups[name] = LogicalGroup.load(child)
            elif name == LEDGER:
                dataset.concat_dim = str(child.attrs.get("concat_dim", ""))
        return dataset

    @staticmethod
    def read_ledger(store: Any, path: str) -> Ledger:
        """Only the ledger of the dataset."""
        group = _group(store, path)
        return Ledger() if group is None else Ledger.read(group)

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """The stored values of a plain array."""
        return np.asarray(self.plain[name][...])

    def attrs(self, name: str) -> dict[str, Any]:
        """The attributes of a plain array."""
        array: zarr.Array[Any] = self.plain[name]
        attrs: dict[str, Any] = dict(array.metadata.attributes)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], array.dtype)
        return attrs


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
