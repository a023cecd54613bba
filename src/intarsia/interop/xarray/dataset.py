"""A Zarr group as a dataset: logical arrays and plain arrays side by side are its variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import zarr
from xarray.backends import AbstractDataStore

from intarsia.array import LogicalArray
from intarsia.array.attributes import with_floats
from intarsia.array.hierarchy import is_logical
from intarsia.array.logical_group import LogicalGroup
from intarsia.interop.xarray.variables import plain_variables, variables_of
from intarsia.nullable.nulls import NullsChoice
from intarsia.parallel import check_travels

if TYPE_CHECKING:
    from xarray import Variable


UNLIMITED_KEY = "intarsia_unlimited_dims"
"""Attribute of a dataset's group: the dimensions that grow."""


class GroupStore(AbstractDataStore):
    """What xarray asks a backend for: the variables of one group, not decoded, and its attributes.

    A group that is itself a logical array is a dataset of that array and the coordinates beside it.
    """

    __slots__ = ("_alone", "_dropped", "_group", "_nulls", "_owns_store")

    def __init__(
        self,
        group: zarr.Group,
        drop_variables: str | Iterable[str] | None = None,
        *,
        nulls: NullsChoice | None = None,
        owns_store: bool = False,
    ) -> None:
        self._group = group
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables
        self._dropped = frozenset(dropped or ())
        self._alone = is_logical(group)
        self._nulls = nulls
        self._owns_store = owns_store

    def get_variables(self) -> dict[str, Variable]:
        """Every array of the group by name."""
        children: dict[str, Any] = (
            _with_coordinates(self._group) if self._alone else dict(self._group.members())
        )
        variables: dict[str, Variable] = {}
        for name, child in children.items():
            if name in self._dropped:
                continue
            if is_logical(child):
                variables |= variables_of(LogicalArray(LogicalGroup.load(child)), name, self._nulls)
            elif isinstance(child, zarr.Array):
                variables |= plain_variables(child, name, self._nulls)
        return variables

    def get_attrs(self) -> dict[str, Any]:
        """The dataset's own attributes."""
        if self._alone:
            return {}
        attributes = self._group.attrs.asdict()
        return with_floats({key: value for key, value in attributes.items() if key != UNLIMITED_KEY})

    def get_encoding(self) -> dict[str, Any]:
        """Which dimensions grow, where that was written down."""
        unlimited: Any = None if self._alone else self._group.attrs.get(UNLIMITED_KEY)
        return {} if unlimited is None else {"unlimited_dims": set(unlimited)}

    def close(self) -> None:
        """Close the store, if it was opened for this dataset."""
        if self._owns_store:
            self._group.store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A dataset takes this along, to be closed by it; one that travelled closes nothing.
        check_travels(self._group.store, "the dataset")
        return GroupStore, (self._group, self._dropped)


def _with_coordinates(group: zarr.Group) -> dict[str, Any]:
    """A logical array, and the arrays beside it that its dimensions or attributes name."""
    parent, _, name = group.path.rpartition("/")
    array = LogicalArray(LogicalGroup.load(group))
    arrays: dict[str, Any] = {variable_name(group.path): group}
    if not name:
        return arrays
    wanted = [dim for dim in array.dimension_names or () if dim is not None]
    wanted += str(array.attrs.get("coordinates", "")).split()
    for other in dict.fromkeys(wanted):
        if other != name and "/" not in other:
            try:
                arrays[other] = zarr.open(
                    group.store, path=f"{parent}/{other}".strip("/"), mode="r", zarr_format=3
                )
            except FileNotFoundError:
                continue
    return arrays


def variable_name(path: str) -> str:
    """The name of the variable at a path: its last segment.

    >>> variable_name("ocean/temperature"), variable_name("")
    ('temperature', 'array')
    """
    return path.rpartition("/")[2] or "array"
