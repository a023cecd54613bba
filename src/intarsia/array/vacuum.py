"""Removing what an interrupted change left behind in a logical array's group."""

from __future__ import annotations

from typing import Any

from intarsia.array.frame import Frame, open_group
from intarsia.array.logical import LogicalArray
from intarsia.array.manifest import MANIFEST_KEY
from intarsia.array.verify import children, referenced

__all__ = ["vacuum"]


def vacuum(target: Any, path: str = "", *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove arrays inside logical arrays that no region refers to; returns their paths.

    Takes an array, or a store (or group) and a path, below which every logical array is visited. Do not run
    it on a store without transactions while somebody writes there: a member that is being written is not
    referred to yet. `dry_run=True` only lists.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> array = intarsia.create(store, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> _ = array.group.create_array("m-forgotten", shape=(4,), dtype="f4")
    >>> intarsia.vacuum(store)
    ('a/m-forgotten',)
    """
    mode = "r" if dry_run else "r+"
    group = (
        open_group(target.group, "", mode)
        if isinstance(target, LogicalArray)
        else open_group(target, path, mode)
    )
    if MANIFEST_KEY in group.metadata.attributes:
        frame = Frame.load(group)
        if not dry_run:
            frame.check_writable()
        removed = sorted(set(children(group)) - referenced(frame))
        for name in removed if not dry_run else ():
            frame.discard(name)
        return tuple(f"{group.path}/{name}".lstrip("/") for name in removed)
    return tuple(found for _, child in sorted(group.groups()) for found in vacuum(child, dry_run=dry_run))
