"""Removing what is left over in logical arrays: members and tables that no manifest refers to.

They have a name of our making (`m-` or `t-` and 32 hexadecimal digits), and are arrays or the remains
of arrays. Anything else that users keep below a logical array is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zarr
from zarr.errors import ContainsArrayError
from zarr.storage import LocalStore

from intarsia._compat import sync
from intarsia.display import one_line, place_text
from intarsia.errors import ReadOnlyError
from intarsia.logical.hierarchy import (
    MEMBER_NAME,
    groups_below,
    is_logical,
    names_below,
    node_type,
    not_logical,
    open_group,
)
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.document import MANIFEST_KEY

UNFINISHED = re.compile(r".*\.[0-9a-f]{32}(-\d+)?\.partial\Z")
"""Files that zarr's LocalStore writes before it gives them their name."""


def vacuum(target: Any, path: str = "", *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove members and tables inside logical arrays that no region refers to; returns their paths.

    Takes an array, or a store (or group) and a path, and visits every logical array below it. Do not run it
    on a store without transactions while somebody writes there: nothing refers yet to a member that is being
    written. `dry_run=True` only lists. Arrays and groups that intarsia did not make are left alone.

    Args:
        target: A logical array, a store or a group.
        path: Where to look in the store.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> array = intarsia.create(store, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> _ = array.group.create_array("mine", shape=(4,), dtype="f4")
    >>> _ = array.group.create_array("m-0123456789abcdef0123456789abcdef", shape=(4,), dtype="f4")
    >>> vacuum(store, dry_run=True)
    ('a/m-0123456789abcdef0123456789abcdef',)
    >>> _ = vacuum(store)
    >>> sorted(array.group)
    ['mine']
    """
    place = target.group if isinstance(target, LogicalArray) else target
    try:
        group = open_group(place, path, "r" if dry_run else "r+")
    except ContainsArrayError as error:
        raise not_logical(place, path, one_line(error)) from error
    removed: list[str] = []
    for node in filter(is_logical, groups_below(group, inside_arrays=True)):
        logical = LogicalArrayHandle.load(node)
        unreferenced = unreferenced_members(logical)
        if unreferenced and not dry_run:
            _remove(logical, unreferenced)
        removed += (f"{node.path}/{name}".lstrip("/") for name in unreferenced)
    return tuple(removed)


def _remove(logical: LogicalArrayHandle, unreferenced: list[str]) -> None:
    logical.check_writable()
    store = logical.group.store
    if not store.supports_deletes:
        raise ReadOnlyError(
            f"{place_text(logical.group.store_path)} is in a {type(store).__name__}, which does not support "
            "removal.\n  Copy what is needed into another one"
        )
    for name in unreferenced:
        if MEMBER_NAME.match(name):
            logical.discard(name)
        else:
            sync((logical.group.store_path / name).delete())


def unreferenced_members(logical: LogicalArrayHandle) -> list[str]:
    """What nothing refers to in a logical array's group: names of arrays, and paths of unfinished files."""
    group = logical.group
    document: Any = group.metadata.attributes[MANIFEST_KEY]
    needed = {*logical.manifest.members, document["regions"] if isinstance(document["regions"], str) else ""}
    left = [
        name
        for name in names_below(group)
        if MEMBER_NAME.match(name) and name not in needed and node_type(group, name) in ("array", None)
    ]
    return left + sorted(_unfinished(group, needed))


def _unfinished(group: zarr.Group, needed: set[str]) -> Iterator[str]:
    """Unfinished files of a killed writer, in this group or in an array that the manifest needs."""
    if not isinstance(group.store, LocalStore):
        return
    root = Path(group.store.root) / group.path
    yield from (file.name for file in root.glob("zarr.*.partial") if UNFINISHED.match(file.name))
    for name in needed - {""}:
        for file in (root / name).rglob("*.partial"):
            if UNFINISHED.match(file.name):
                yield file.relative_to(root).as_posix()
