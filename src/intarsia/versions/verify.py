"""Checking logical arrays in any store, and whole repositories."""

from __future__ import annotations

from typing import Any

import icechunk
from zarr.errors import GroupNotFoundError

from intarsia.array.hierarchy import logical_paths, open_group
from intarsia.array.logical import LogicalArray
from intarsia.array.upkeep import Problem
from intarsia.array.upkeep import verify as verify_array
from intarsia.errors import NotLogicalArrayError, ReadOnlyError, RepositoryError
from intarsia.versions.collect import leftovers
from intarsia.versions.repository import describe, explained
from intarsia.versions.version import Version, as_repository


def verify(
    target: Any,
    path: str = "",
    *,
    data: bool = True,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> tuple[Problem, ...]:
    """Everything that is wrong with a logical array: its manifest, its members, every stored chunk.

    Takes an array, or a store and a path, so that an array that does not open can be looked at too; or a
    repository, where every logical array below the path is checked, at the tip of `main` unless a version
    is given, and remains of interrupted writers are listed, where the storage allows it (uploads of a writer
    at work look the same). `data=False` leaves out reading the chunks. An empty result means that all is
    well.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> intarsia.verify(repo)
    ()
    """
    if isinstance(target, LogicalArray):
        return verify_array(target, path, data=data)
    if isinstance(target, icechunk.Session):
        target = target.store
    repo = as_repository(target)
    if repo is None:
        return verify_array(target, path, data=data)
    session = Version(branch, tag, snapshot_id).session(repo)
    with explained(describe(repo)):
        try:
            group = open_group(session.store, path, "r")
        except GroupNotFoundError as error:
            if path:
                raise NotLogicalArrayError(f"there is no Zarr group at {path!r}: {error}") from error
            return repository_leftovers(repo)  # nothing was ever created
        problems = [
            problem
            for inner in logical_paths(group, inside_arrays=True)
            for problem in verify_array(session.store, inner, data=data)
        ]
    return (*problems, *repository_leftovers(repo))


def repository_leftovers(repo: icechunk.Repository) -> tuple[Problem, ...]:
    """What no version refers to, as a problem that does no harm; empty if there is nothing."""
    try:
        remains = leftovers(repo)
    except (RepositoryError, ReadOnlyError):
        return ()  # storage that cannot be listed, as over HTTP
    if remains.is_empty:
        return ()
    what = f"{remains} that no version refers to"
    return (Problem("leftover", describe(repo), what, "intarsia.expire_and_collect removes them"),)
