"""What was ingested already: the sources along the concatenation axis, and the member of every encoding.

It stands in a group beside the arrays, so that a later call knows which files are new.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.codecs import ZstdCodec

from intarsia.errors import IngestError

if TYPE_CHECKING:
    import zarr

__all__ = ["LEDGER", "Ledger"]

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
    """The sources in the order of the axis.

    >>> ledger = Ledger(["a.nc", "b.nc"], ["1 x", "1 y"], [3, 4])
    >>> ledger.starts.tolist(), ledger.total
    ([0, 3], 7)
    """

    locations: list[str] = field(default_factory=list)
    """Their URLs."""

    contents: list[str] = field(default_factory=list)
    """What identifies the content that each had."""

    lengths: list[int] = field(default_factory=list)
    """How many steps each contributes."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    @property
    def starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """First step of each source."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])[:-1].astype(np.int64)

    @property
    def total(self) -> int:
        return sum(self.lengths)

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
        found = json.loads(np.asarray(node[DOCUMENT][...]).tobytes())
        return cls(found["locations"], found["contents"], found["lengths"], found["members"])

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
