"""Removing what an interrupted change left behind in a logical array's group.

Only what has a name of our making (`m-` or `t-` and 32 hexadecimal digits), is an array or the rest of one,
and stands in no manifest counts as left behind. Whatever else users keep below a logical array is theirs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zarr.storage import LocalStore

from intarsia._compat import sync
from intarsia.array.frame import Frame, open_group
from intarsia.array.hierarchy import OURS, groups_below, is_logical, names_below, node_type
from intarsia.array.logical import LogicalArray
from intarsia.array.manifest import MANIFEST_KEY
from intarsia.errors import ReadOnlyError
from intarsia.words import place_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import zarr

__all__ = ["leftovers", "vacuum"]

UNFINISHED = re.compile(r".*\.[0-9a-f]{32}\.partial\Z")
"""Files that zarr's LocalStore writes before it gives them their name."""


def vacuum(target: Any, path: str = "", *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove members and tables inside logical arrays that no region refers to; returns their paths.

    Takes an array, or a store (or group) and a path, below which every logical array is visited. Do not run
    it on a store without transactions while somebody writes there: a member that is being written is not
    referred to yet. `dry_run=True` only lists. Arrays and groups that intarsia did not make are left alone.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> array = intarsia.create(store, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> _ = array.group.create_array("mine", shape=(4,), dtype="f4")
    >>> _ = array.group.create_array("m-0123456789abcdef0123456789abcdef", shape=(4,), dtype="f4")
    >>> intarsia.vacuum(store, dry_run=True)
    ('a/m-0123456789abcdef0123456789abcdef',)
    >>> _ = intarsia.vacuum(store)
    >>> sorted(array.group)
    ['mine']
    """
    mode = "r" if dry_run else "r+"
    group = (
        open_group(target.group, "", mode)
        if isinstance(target, LogicalArray)
        else open_group(target, path, mode)
    )
    removed: list[str] = []
    for logical in filter(is_logical, groups_below(group, inside_arrays=True)):
        frame = Frame.load(logical)
        remains = leftovers(frame)
        if remains and not dry_run:
            _remove(frame, remains)
        removed += (f"{logical.path}/{name}".lstrip("/") for name in remains)
    return tuple(removed)


def _remove(frame: Frame, remains: list[str]) -> None:
    frame.check_writable()
    store = frame.group.store
    if not store.supports_deletes:
        raise ReadOnlyError(
            f"{place_text(frame.group.store_path)} is in a {type(store).__name__}, from which nothing can be "
            "removed.\n  Copy what is needed into another one"
        )
    for name in remains:
        if OURS.match(name):
            frame.discard(name)
        else:
            sync((frame.group.store_path / name).delete())


def leftovers(frame: Frame) -> list[str]:
    """What is left behind in a logical array's group: names of arrays, and paths of files never finished."""
    group = frame.group
    document: Any = group.metadata.attributes[MANIFEST_KEY]
    needed = {*frame.manifest.members, document["regions"] if isinstance(document["regions"], str) else ""}
    found = [
        name
        for name in names_below(group)
        if OURS.match(name) and name not in needed and node_type(group, name) in ("array", None)
    ]
    return found + sorted(_unfinished(group, needed))


def _unfinished(group: zarr.Group, needed: set[str]) -> Iterator[str]:
    """Files that a writer in this group, or in what the manifest needs, was killed over."""
    if not isinstance(group.store, LocalStore):
        return
    root = Path(group.store.root) / group.path
    yield from (file.name for file in root.glob("zarr.*.partial") if UNFINISHED.match(file.name))
    for name in needed - {""}:
        for file in (root / name).rglob("*.partial"):
            if UNFINISHED.match(file.name):
                yield file.relative_to(root).as_posix()
