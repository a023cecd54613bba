"""The groups of a hierarchy: opening one, which of them are logical arrays, and what is below them."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import icechunk
import zarr
from zarr.abc.store import Store
from zarr.errors import NodeNotFoundError
from zarr.storage import StorePath

from intarsia._compat import start_event_loop, sync
from intarsia._icechunk import safe_store
from intarsia.display import one_line, place_text
from intarsia.engine.fetch.store import read_key
from intarsia.errors import (
    IntarsiaError,
    ManifestError,
    MetadataError,
    MissingArrayError,
    NotLogicalArrayError,
    ReadOnlyError,
    advice,
)
from intarsia.manifest.document import MANIFEST_KEY
from intarsia.parallel import check_store

MEMBER_NAME = re.compile(r"[mt]-[0-9a-f]{32}\Z")
"""The names that `new_name` makes, for parts of a logical array."""


LEDGER = "intarsia-sources"
"""The name of the group in which an ingested dataset keeps what is known about its sources; no user data."""


AnyStore = (Store, StorePath, dict, str, os.PathLike)
"""What zarr takes as a store."""


def session_store(place: Any) -> Any:
    """The store of an Icechunk session, or of something that has one, like a transaction; else the place."""
    is_session = isinstance(getattr(place, "session", place), icechunk.Session)
    return place.store if is_session and not isinstance(place, icechunk.IcechunkStore) else place


def open_group(store: Any, path: str, mode: Any, *, zarr_format: Any = 3) -> zarr.Group:
    """The group at `path` in anything that zarr takes as a store, or in another group."""
    store, path = _in_store(store, path)
    check_store(store)
    start_event_loop()
    form: Any = {"zarr_format": zarr_format, "use_consolidated": False}
    try:
        return zarr.open_group(store, path=path or None, mode=mode, **form)
    except MISUNDERSTOOD as error:
        if isinstance(error, IntarsiaError) or not isinstance(store, AnyStore):
            raise
        raise ManifestError([_metadata_problem(f"of {path or '/'!r}", error)]) from error
    except ValueError as error:
        if isinstance(error, IntarsiaError) or "read-only" not in str(error):
            raise
        raise ReadOnlyError(f"the store of {path or '/'!r} can only be read: {one_line(error)}") from error


def _in_store(store: Any, path: str) -> tuple[Any, str]:
    """A path in a group as one in its store; in anything else, it stays as it is."""
    if not isinstance(store, zarr.Group):
        return safe_store(store), path
    return safe_store(store.store_path.store), joined_path(store.path, path)


MISUNDERSTOOD = (
    RecursionError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    UnicodeDecodeError,
    json.JSONDecodeError,
)
"""What zarr raises for metadata that makes no sense, besides other `ValueError`."""


def _metadata_problem(where: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"the metadata {where} is nested too deeply to be read"
    return f"the metadata {where} cannot be understood: {type(error).__name__}: {one_line(error)}"


def open_node(store: Any, path: str) -> zarr.Array[Any] | zarr.Group:
    """The array or group at `path`, for reading; raises `MetadataError` if its metadata makes no sense."""
    store, path = _in_store(store, path)
    check_store(store)
    place = f"{path or '/'!r} of {place_text(store)}"
    start_event_loop()
    try:
        return zarr.open(store, path=path or None, mode="r")
    except FileNotFoundError as error:
        raise MissingArrayError(
            f"there is no Zarr array or group at {place}{why_missing(store, error)}"
        ) from error
    except (*MISUNDERSTOOD, ValueError) as error:
        if not isinstance(store, AnyStore):
            raise  # what was passed in is not a store
        if "Protocol not known" in str(error):
            raise MissingArrayError(f"there is nothing at {place}: {one_line(error)}") from error
        raise MetadataError(_metadata_problem(f"at {place}", error)) from error


def why_missing(store: Any, error: Exception) -> str:
    """What there is instead of a node that zarr does not find; empty if there is a store without it.

    >>> why_missing({}, FileNotFoundError("nowhere does not exist"))
    ': nowhere does not exist'
    """
    if not isinstance(error, NodeNotFoundError):
        return f": {one_line(error)}"
    if not isinstance(store, str | os.PathLike) or "://" in os.fspath(store) or is_plain_zarr(store):
        return ""
    name = os.fspath(store)
    if os.path.isfile(store) and zipfile.is_zipfile(store):
        return f": {name} is a zip file.\n  Open it with zarr: zarr.storage.ZipStore({name!r}, mode='r')"
    what = "file" if os.path.isfile(store) else "directory"
    how = advice("intarsia.ingest(files, store)", "intarsia ingest")
    return f": {name} is a {what}, not a store.\n  To open files as arrays: {how}"


def is_plain_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a local directory is a plain Zarr store, of format 3 or 2.

    >>> is_plain_zarr("somewhere/else")
    False
    """
    return any(os.path.isfile(os.path.join(path, name)) for name in ("zarr.json", ".zgroup", ".zarray"))


EMPTY = "the store is empty: nothing has been written to it yet, not even a Zarr group"
"""The message for a place without a root."""


def not_logical(store: Any, path: str, otherwise: str) -> NotLogicalArrayError:
    """The error for a place without a logical array: there is plain Zarr, or else what `otherwise` says."""
    try:
        node = open_node(store, path)
    except (IntarsiaError, OSError, ValueError, TypeError):
        return NotLogicalArrayError(otherwise)
    kind = "array" if isinstance(node, zarr.Array) else "group"
    return NotLogicalArrayError(
        f"there is no logical array at {path or '/'!r}, but a plain Zarr {kind} of format "
        f"{node.metadata.zarr_format}.\n  A plain Zarr array is read with "
        "intarsia.reader(store, path); intarsia.convert makes it a logical array",
        command="To read it: intarsia read. To make it a logical array: intarsia convert STORE NEW_STORE",
    )


def is_logical(node: Any) -> bool:
    """Whether a node of a hierarchy is a logical array."""
    return isinstance(node, zarr.Group) and MANIFEST_KEY in node.metadata.attributes


def is_any_array(node: zarr.Array[Any] | zarr.Group) -> bool:
    """Whether a node of a hierarchy is an array, plain or logical."""
    return isinstance(node, zarr.Array) or is_logical(node)


type Damaged = dict[str, list[str]]
"""Paths of nodes that cannot be opened, and what is wrong with each."""


def groups_below(
    group: zarr.Group, *, inside_arrays: bool = False, damaged: Damaged | None = None
) -> Iterator[zarr.Group]:
    """The group and every group below it, by name; see `nodes_below`."""
    yield group
    for _, node in nodes_below(group, inside_arrays=inside_arrays, damaged=damaged):
        if isinstance(node, zarr.Group):
            yield node


def nodes_below(
    group: zarr.Group, *, inside_arrays: bool = False, damaged: Damaged | None = None
) -> Iterator[tuple[str, zarr.Array[Any] | zarr.Group]]:
    """Every array and group below a group, by path; groups come before what they hold.

    The groups that users keep inside a logical array are visited only on request, and intarsia's own never. A
    child that cannot be opened is an error; with `damaged`, it becomes an entry there, and the others are
    visited.

    >>> group = zarr.create_group({})
    >>> _ = group.create_array("a/x", shape=4, dtype="u1")
    >>> [path for path, _ in nodes_below(group)]
    ['a', 'a/x']
    """
    children = _children(group, damaged)
    if is_logical(group):  # without opening its members, of which there may be thousands
        names = [name for name in names_below(group) if not MEMBER_NAME.match(name)] if inside_arrays else ()
        mode = "r" if group.store.read_only else "r+"
        children = ((n, open_group(group, n, mode)) for n in names if node_type(group, n) == "group")
    for name, node in children:
        if name != LEDGER and not MEMBER_NAME.match(name):
            yield name, node
            if isinstance(node, zarr.Group):
                below = nodes_below(node, inside_arrays=inside_arrays, damaged=damaged)
                yield from ((f"{name}/{path}", child) for path, child in below)


def _children(
    group: zarr.Group, damaged: Damaged | None
) -> Iterator[tuple[str, zarr.Array[Any] | zarr.Group]]:
    """The nodes right below a group, by name; those whose metadata makes no sense are named."""
    try:
        yield from sorted(group.members(), key=itemgetter(0))
        return
    except (*MISUNDERSTOOD, ValueError):  # also for a name that zarr does not take
        pass
    for name in names_below(group):
        path = f"{group.path}/{name}".lstrip("/")
        try:
            if node_type(group, name) is not None:
                yield name, open_node(group.store, path)
        except ValueError as error:
            if damaged is None:
                raise MetadataError(
                    f"zarr cannot open {path!r}: {one_line(error)}\n"
                    "  Rename or repair it, or name a single array"
                ) from error
            damaged[path] = [one_line(error)]


def logical_paths(
    group: zarr.Group, *, inside_arrays: bool = False, damaged: Damaged | None = None
) -> list[str]:
    """The paths of the logical arrays at and below a group."""
    below = groups_below(group, inside_arrays=inside_arrays, damaged=damaged)
    return sorted(child.path for child in below if is_logical(child))


def logical_arrays(store: Any, path: str = "", *, inside_arrays: bool = False) -> list[str]:
    """The paths of all logical arrays in a store, or below a path in it; those inside others only on request.

    >>> import intarsia
    >>> store = zarr.storage.MemoryStore()
    >>> for name in ("b", "a/x"):
    ...     _ = intarsia.create(store, name, shape=(4,), chunks=(2,), dtype="f4")
    >>> logical_arrays(store)
    ['a/x', 'b']
    """
    try:
        return logical_paths(open_group(store, path, "r"), inside_arrays=inside_arrays)
    except (FileNotFoundError, ValueError) as error:
        nothing = f"there is no Zarr group at {path!r}{why_missing(store, error)}" if path else EMPTY
        raise not_logical(store, path, nothing) from error


def names_below(group: zarr.Group) -> list[str]:
    """The names right below a group, whatever they are; none if a store cannot list."""
    store = group.store

    async def collect() -> list[str]:
        return [name async for name in store.list_dir(group.path)]

    return sorted(sync(collect())) if store.supports_listing else []


def node_type(group: zarr.Group, name: str) -> str | None:
    """What a child says that it is; None if it says nothing, as after an incomplete removal."""
    document = read_key(group.store, f"{group.path}/{name}/zarr.json".lstrip("/"))
    if document is None:
        return None
    try:
        return str(json.loads(document)["node_type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "damaged"


def joined_path(*parts: str) -> str:
    """A path of groups.

    >>> joined_path("", "PRODUCT/", "DETAILS")
    'PRODUCT/DETAILS'
    """
    return "/".join(part.strip("/") for part in parts if part.strip("/"))
