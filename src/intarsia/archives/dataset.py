"""A dataset in a repository as it is before files are added: its ledger, arrays and coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.archives.ledger import Ledger, entries_of, read_ledger
from intarsia.archives.parsed_file import ParsedVariable, Role
from intarsia.engine.zarr_fallback import read_by_zarr
from intarsia.errors import IngestError
from intarsia.logical.attributes import UNLIMITED_KEY, with_floats
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.document import MANIFEST_KEY

END_STEPS = 2
"""How many steps of an axis are read if files go after it: they tell whether it rises or falls."""


@dataclass
class Dataset:
    """A dataset in a repository: what exists already; nothing for a new one."""

    ledger: Ledger = field(default_factory=Ledger)
    """Its sources."""

    logical_groups: dict[str, LogicalArrayHandle] = field(default_factory=dict)
    """Its logical arrays."""

    plain: dict[str, Any] = field(default_factory=dict)
    """Its coordinates and other loaded arrays."""

    group_attrs: dict[str, Any] = field(default_factory=dict)
    """The attributes of its group: what files said about the dataset."""

    groups: set[str] = field(default_factory=set)
    """Names of other groups, such as datasets below this one."""

    origin: int = 0
    """How many steps along the growing dimension were not read: this dataset begins after them."""

    _values: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        return not self.ledger.count

    @classmethod
    def read(cls, store: Any, path: str) -> Dataset:
        """The dataset at a path of a store."""
        group = dataset_group(store, path)
        if group is None:
            return cls()
        return cls.of(group, read_ledger(group))

    @classmethod
    def of(cls, group: zarr.Group, ledger: Ledger | None = None, *, later: bool = False) -> Dataset:
        """The dataset that a group holds; with `later`, tables of regions are read when they are needed."""
        own = {key: value for key, value in group.attrs.items() if key != UNLIMITED_KEY}
        dataset = cls(ledger or Ledger(), group_attrs=own)
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                dataset.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                dataset.logical_groups[name] = LogicalArrayHandle.load(child, later=later)
            else:
                dataset.groups.add(name)
        return dataset

    @classmethod
    def read_end(cls, store: Any, path: str, urls: Sequence[str]) -> Dataset | None:
        """The end of the dataset: all that files after it need, whatever comes before.

        None if files are not placed by a coordinate along one dimension, or some of these `urls` are known.
        """
        group = dataset_group(store, path)
        ledger = read_ledger(group, rows=False)
        if group is None or len(ledger.dims) != 1 or not ledger.unread_files or entries_of(group, urls):
            return None
        dataset, dim = cls.of(group, ledger, later=True), ledger.dims[0]
        axis = dataset.plain.get(dim)
        if axis is None or axis.ndim != 1 or axis.shape[0] <= END_STEPS:
            return None
        length: int = axis.shape[0]
        for name, array in dataset.plain.items():
            if dict(zip(dataset.dims(name), array.shape, strict=False)).get(dim, length) != length:
                return None
        for manifest in (logical.manifest for logical in dataset.logical_groups.values()):
            lengths = zip(manifest.shape, manifest.chunk_shape, strict=True)
            by_name = dict(zip(manifest.dimension_names or (), lengths, strict=False))
            if by_name.get(dim, (length, 1)) != (length, 1):
                return None
        dataset.origin = length - END_STEPS
        return dataset

    def all_attrs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The attributes of everything in it, by name; an empty name stands for the dataset itself."""
        yield "", with_floats(self.group_attrs)
        for name, logical in self.logical_groups.items():
            yield name, with_floats(dict(logical.group.attrs))
        for name in self.plain:
            yield name, with_floats(self.attrs(name))

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """The stored values of a plain array, from the origin on; they are read once."""
        if name not in self._values:
            where = [slice(self.origin if dim in self.ledger.dims else 0, None) for dim in self.dims(name)]
            self._values[name] = read_by_zarr(self.plain[name], tuple(where))
        return self._values[name]

    def variable(self, name: str, role: Role) -> ParsedVariable:
        """A plain array as if a file had it; only a static one is loaded."""
        array = self.plain[name]
        values = self.values(name) if role == "static" else None
        return ParsedVariable(
            name, role, self.dims(name), array.shape, self.attrs(name), array.dtype, values=values
        )

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of a plain array's axes."""
        return tuple(map(str, self.plain[name].metadata.dimension_names or ()))

    def attrs(self, name: str) -> dict[str, Any]:
        """The attributes of a plain array."""
        array: zarr.Array[Any] = self.plain[name]
        attrs: dict[str, Any] = dict(array.metadata.attributes)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], array.dtype)
        return attrs


def dataset_group(store: Any, path: str) -> zarr.Group | None:
    """The group of a dataset; None if there is nothing at this path."""
    try:
        group = open_group(store, path, "r" if getattr(store, "read_only", False) else "r+")
    except FileNotFoundError:
        return None
    except ValueError as error:  # there is an array at this path
        raise IngestError(f"{path!r} is an array: a dataset needs a group of its own") from error
    if MANIFEST_KEY in group.attrs:
        raise IngestError(
            f"{path!r} is itself a logical array; a dataset is a group that holds logical arrays.\n"
            "  Choose another group: intarsia.ingest(…, group='name')",
            command="Choose another group: --group NAME",
        )
    return group
