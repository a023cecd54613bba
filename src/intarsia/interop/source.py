"""What people hand to xarray, as a Zarr group: a repository, a session, a store, a group, a path or a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import zarr

from intarsia._icechunk import safe_store
from intarsia.array import LogicalArray
from intarsia.array.hierarchy import open_group
from intarsia.errors import NotLogicalArrayError
from intarsia.versions.open import as_repository, session_at
from intarsia.versions.transaction import Transaction

if TYPE_CHECKING:
    import datetime

__all__ = ["group_of", "is_repository_path", "store_of", "variable_name"]


def store_of(
    source: Any,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> Any:
    """The store (or group) behind a source, at the version that was asked for."""
    versioned = any(asked is not None for asked in (branch, tag, snapshot_id, as_of))
    repo = as_repository(source)
    if repo is not None:
        return safe_store(
            session_at(repo, branch=branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of).store
        )
    if versioned:
        raise TypeError(
            "branch, tag, snapshot_id and as_of need an Icechunk repository, and this is "
            f"{source if isinstance(source, str | os.PathLike) else type(source).__name__!r}"
        )
    if isinstance(source, icechunk.Session | Transaction):
        return safe_store(source.store)
    return os.fspath(source) if isinstance(source, os.PathLike) else safe_store(source)


def group_of(source: Any, path: str = "", **version: Any) -> zarr.Group:
    """The group at `path`, opened for reading."""
    if isinstance(source, LogicalArray) and not path:
        return source.group
    store = store_of(source, **version)
    try:
        return open_group(store, path.strip("/"), "r")
    except (FileNotFoundError, zarr.errors.ContainsArrayError) as error:
        raise NotLogicalArrayError(
            f"there is no Zarr group at {path or '/'!r} of {store}: {error}"
        ) from error


def is_repository_path(path: str | os.PathLike[str]) -> bool:
    """Whether a local directory is an Icechunk repository.

    >>> is_repository_path("somewhere/else.zarr")
    False
    """
    folder = Path(path)
    known = (folder / "repo").is_file() or (folder / "refs").is_dir()
    return known and (folder / "snapshots").is_dir()


def variable_name(path: str) -> str:
    """The name of the variable at a path: its last segment.

    >>> variable_name("ocean/temperature"), variable_name("")
    ('temperature', 'array')
    """
    return path.rpartition("/")[2] or "array"
