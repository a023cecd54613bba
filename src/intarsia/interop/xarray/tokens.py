"""Names that dask gives to what it reads from a repository: other ones for other versions.

xarray names the blocks of a dataset after what it was opened from. A repository that was opened twice is
one object to dask, although somebody may have committed in between: two arrays of one name would be mixed up.
"""

from __future__ import annotations

import uuid
from typing import Any

import icechunk

from intarsia.array.travel import snapshot_of

__all__ = ["register_tokens"]


def register_tokens() -> None:
    """Tell dask, if it is installed, what repositories, sessions and their stores are known by."""
    try:
        from dask.base import normalize_token
    except ImportError:
        return
    normalize_token.register(icechunk.Repository, repository_token)
    normalize_token.register(icechunk.Session, lambda session: store_token(session.store))
    normalize_token.register(icechunk.IcechunkStore, store_token)


def repository_token(repo: icechunk.Repository) -> tuple[Any, ...]:
    """A repository as it is now: every branch and where it points to.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> repository_token(repo) == repository_token(repo)
    True
    """
    try:
        tips = [(branch, repo.lookup_branch(branch)) for branch in sorted(repo.list_branches())]
    except icechunk.IcechunkError:  # whoever reads from it will say what is wrong
        return "icechunk", uuid.uuid4().hex
    return "icechunk", str(repo.storage), tips


def store_token(store: icechunk.IcechunkStore) -> tuple[str, str]:
    """The snapshot of a store; something unique where values may still change.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> store_token(repo.readonly_session("main").store) == store_token(repo.readonly_session("main").store)
    True
    """
    return "icechunk", snapshot_of(store) or uuid.uuid4().hex
