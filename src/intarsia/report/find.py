"""Which logical arrays a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.array.frame import open_group
from intarsia.array.manifest import MANIFEST_KEY
from intarsia.errors import NotLogicalArrayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import zarr

__all__ = ["logical_arrays"]


def logical_arrays(store: Any, path: str = "") -> list[str]:
    """Paths of all logical arrays in a store, or below a path of it.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> for name in ("b", "a/x"):
    ...     _ = intarsia.create(store, name, shape=(4,), chunks=(2,), dtype="f4")
    >>> logical_arrays(store)
    ['a/x', 'b']
    """
    try:
        group = open_group(store, path, "r")
    except (FileNotFoundError, ValueError) as error:
        raise NotLogicalArrayError(f"there is no Zarr group at {path or '/'}: {error}") from error
    return sorted(_below(group))


def _below(group: zarr.Group) -> Iterator[str]:
    """What is inside a logical array is its own business."""
    if MANIFEST_KEY in group.metadata.attributes:
        yield group.path
        return
    for _, child in group.groups():
        yield from _below(child)
