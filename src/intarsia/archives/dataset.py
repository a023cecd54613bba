"""A dataset in a repository as ingest finds it: logical arrays, plain coordinate arrays, the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.archives.ledger import LEDGER, Ledger
from intarsia.array.frame import Frame, open_group
from intarsia.array.manifest import MANIFEST_KEY
from intarsia.errors import IngestError

__all__ = ["Dataset"]


@dataclass
class Dataset:
    """What is there already; nothing, for a new one.

    >>> Dataset.read({}, "").is_new
    True
    """

    ledger: Ledger = field(default_factory=Ledger)
    """Its sources."""

    frames: dict[str, Frame] = field(default_factory=dict)
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
        found = cls(Ledger.read(group))
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                found.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                found.frames[name] = Frame.load(child)
            elif name == LEDGER:
                found.concat_dim = str(child.attrs.get("concat_dim", ""))
        return found

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
