"""The user's attributes of a logical array: the group's, without those of the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from intarsia._compat import sync
from intarsia.manifest.document import CONVENTIONS_KEY, MANIFEST_KEY, POLICY_KEY

if TYPE_CHECKING:
    from intarsia.logical.logical_array_handle import LogicalArrayHandle


RESERVED = frozenset((MANIFEST_KEY, CONVENTIONS_KEY, POLICY_KEY))

UNLIMITED_KEY = "intarsia_unlimited_dims"
"""The attribute of a dataset's group that names the dimensions that grow."""

DIMENSIONS_KEY = "_ARRAY_DIMENSIONS"
"""The attribute where xarray keeps dimension names in Zarr v2, which has no place for them."""

NONFINITE_KEY = "intarsia_nonfinite"
"""Names the attributes in which "NaN", "Infinity" and "-Infinity" stand for numbers that JSON lacks."""


def with_floats(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as they were before JSON: texts that stand for numbers become numbers again.

    >>> with_floats({"valid_max": "Infinity", "comment": "NaN", "intarsia_nonfinite": ["valid_max"]})
    {'valid_max': inf, 'comment': 'NaN'}
    """
    names = attributes.get(NONFINITE_KEY, ())
    return {
        key: _number(value) if key in names else value
        for key, value in attributes.items()
        if key != NONFINITE_KEY
    }


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(each) for each in value]
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


class Attributes(MutableMapping[str, Any]):
    """Attributes as a dict; changes are written at once.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4", attributes={"units": "K"})
    >>> array.attrs["units"] = "degC"
    >>> dict(array.attrs)
    {'units': 'degC'}
    """

    def __init__(self, logical: LogicalArrayHandle) -> None:
        self._logical = logical

    def __getitem__(self, key: str) -> Any:
        if key in RESERVED:
            raise KeyError(key)
        return self._logical.group.metadata.attributes[key]

    def __iter__(self) -> Iterator[str]:
        return iter([key for key in self._logical.group.metadata.attributes if key not in RESERVED])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *args: Any, **fields: Any) -> None:
        """Set several at once, in one write."""
        changes = dict(*args, **fields)
        reserved = RESERVED & changes.keys()
        if reserved:
            raise KeyError(f"the attribute {min(reserved)!r} belongs to intarsia and cannot be set")
        self._put(lambda attributes: attributes | changes)

    def __delitem__(self, key: str) -> None:
        self[key]  # a KeyError unless it is there
        self._put(lambda attributes: {name: attributes[name] for name in attributes if name != key})

    def _put(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._logical.begin_edit()
        group = self._logical.group
        # a new group: other ways change the attributes in memory before they are checked or written
        changing = group.update_attributes_async(change(dict(group.metadata.attributes)))
        self._logical.group = sync(changing)

    def __repr__(self) -> str:
        return repr(dict(self))
