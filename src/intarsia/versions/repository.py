"""Opening Icechunk repositories, wherever they are."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from typing import Any

import icechunk

from intarsia._compat import storage_path, storage_text
from intarsia.errors import ReadOnlyError, RepositoryError
from intarsia.parallel import check_process
from intarsia.versions.failures import explained
from intarsia.versions.locking import directory_of, lock_file, locked
from intarsia.versions.storage import Location

__all__ = ["RepositoryLike", "describe", "open_repository"]

LOG_ENTRIES = 100
"""Entries of Icechunk's log of operations in the file that every commit writes anew; it would keep 1,000."""

type RepositoryLike = str | os.PathLike[str] | icechunk.Repository


def open_repository(
    location: RepositoryLike,
    *,
    create: bool = False,
    config: icechunk.RepositoryConfig | None = None,
    authorize_virtual_chunk_access: dict[str, Any] | None = None,
    **options: Any,
) -> icechunk.Repository:
    """Open an Icechunk repository; with `create`, make it if it is not there.

    `location` is a path, `file://`, `s3://bucket/prefix`, `memory://` (with a name, shared within the
    process), `http(s)://` for reading, or an `icechunk.Repository`, which is returned as it is. Options of
    `s3://`: `endpoint_url`, `region`, `access_key_id`, `secret_access_key`, `session_token`, `anonymous` and
    the others of `icechunk.s3_storage`; without them the AWS environment variables count.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> intarsia.open_repository(repo) is repo
    True
    """
    check_process()
    if isinstance(location, icechunk.Repository):
        if options or config is not None or authorize_virtual_chunk_access is not None:
            raise TypeError("a repository that is open already takes no options; use its reopen method")
        with suppress(RepositoryError, icechunk.IcechunkError):
            directory_of(
                location
            )  # the sooner it is looked for, the likelier a relative path still leads there
        return location
    place = Location.parse(location, options)
    if create and not place.writable:
        raise ReadOnlyError(f"{place.text} can only be read: no repository can be created over HTTP")
    if create or place.settings is not None:
        defaults = icechunk.RepositoryConfig(
            storage=place.settings, num_updates_per_repo_info_file=LOG_ENTRIES if create else None
        )
        config = defaults if config is None else defaults.merge(config)
    arguments: dict[str, Any] = {
        "config": config,
        "authorize_virtual_chunk_access": authorize_virtual_chunk_access,
    }
    with explained(place.text):
        if place.path is None:
            opener = icechunk.Repository.open_or_create if create else icechunk.Repository.open
            return opener(place.storage, **arguments)
        if not create or icechunk.Repository.exists(place.storage):
            return icechunk.Repository.open(place.storage, **arguments)
        try:
            place.path.mkdir(parents=True, exist_ok=True)
            foreign = not lock_file(place.path).exists() and any(place.path.iterdir())
        except OSError as error:
            raise RepositoryError(f"cannot create a repository at {place.text}: {error}") from error
        # Two processes may want to be the first; in a directory with other things in it, neither will be.
        with nullcontext() if foreign else locked(place.path):
            return icechunk.Repository.open_or_create(place.storage, **arguments)


def describe(repo: icechunk.Repository) -> str:
    """A repository as messages name it.

    >>> describe(open_repository("memory://", create=True))
    'the repository in memory'
    """
    path = storage_path(repo.storage)
    return path if path is not None else storage_text(repo.storage)
