"""Logical arrays in sessions: finding one where there may be none, telling one from another, forking one."""

from __future__ import annotations

import icechunk
import zarr
from zarr.errors import ContainsArrayError, GroupNotFoundError
from zarr.storage import StorePath

from intarsia._icechunk import safe_store
from intarsia.array.hierarchy import open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.manifest import Manifest
from intarsia.errors import NotLogicalArrayError


def group_at(session: icechunk.Session, path: str) -> LogicalGroup | None:
    """The logical array at `path`, to look at, or None; a damaged one is an error."""
    try:
        return LogicalGroup.load(open_group(session.store, path.strip("/"), "r"))
    except (ContainsArrayError, GroupNotFoundError, NotLogicalArrayError):
        return None


def manifest_at(session: icechunk.Session, path: str) -> Manifest | None:
    """The manifest of the logical array at `path`, or None."""
    logical = group_at(session, path)
    return None if logical is None else logical.manifest


def group_to_edit(session: icechunk.Session, path: str) -> LogicalGroup:
    """The logical array at `path` of a writable session."""
    try:
        return LogicalGroup.load(open_group(session.store, path.strip("/"), "r+"))
    except (ContainsArrayError, GroupNotFoundError) as error:
        raise NotLogicalArrayError(
            f"there is no logical array at {path!r} on this branch.\n"
            "  Create it in a transaction first: tx.create(path, shape=…, chunks=…, dtype=…)"
        ) from error


def group_in_fork(logical: LogicalGroup, fork: icechunk.ForkSession) -> LogicalGroup:
    """The same logical array in a fork that was just made of its session; nothing is read again."""
    place = StorePath(safe_store(fork.store), logical.group.path)
    return LogicalGroup(zarr.Group(zarr.AsyncGroup(logical.group.metadata, place)), logical.manifest)


def node_at(session: icechunk.Session, path: str) -> str | None:
    """Icechunk's identity of what is at a path, another one if that was made anew; None for nothing."""
    try:
        return session.get_node_id("/" + path.strip("/"))
    except icechunk.NotFoundError:
        return None


def same_node(one: icechunk.Session, other: icechunk.Session, path: str) -> bool:
    """Whether a path is there in both sessions, and one and the same node."""
    node = node_at(one, path)
    return node is not None and node == node_at(other, path)
