"""Which sources a repository names, and letting it read them, by means of `versions/authorization.py`."""

from collections.abc import Mapping
from typing import Any

import icechunk

from intarsia.versions.authorization import Allowed, authorized_handle, containers_of
from intarsia.versions.repository import RepositoryLike, open_repository


def containers(store: RepositoryLike) -> tuple[str, ...]:
    """The URL prefixes that the arrays of a repository may refer to.

    Args:
        store: An Icechunk repository, or the path or URL of one.

    >>> import icechunk
    >>> containers(icechunk.Repository.create(icechunk.in_memory_storage()))
    ()
    """
    return tuple(sorted(containers_of(open_repository(store))))


def authorize(
    store: RepositoryLike,
    prefixes: Allowed = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> icechunk.Repository:
    """Allow a repository to read its sources below these URL prefixes, and return it.

    A repository names the places of its sources, but you decide whether it may read them: otherwise a
    repository from a stranger could read your files. Without prefixes, it may read all of its sources.
    `storage_options` holds keys, tokens and endpoints of the sources, as in `ingest`; by default they come
    from the environment. If sources in several places need their own options, give a mapping,
    `{"s3://public/": {"anonymous": True}}`. `open_repository`, `open`, `reader` and xarray take the same in
    `authorize=`.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        prefixes: The URL prefixes that may be read, such as those that
            `intarsia.archives.containers` lists; by default all of them.
        storage_options: The keys of the bucket, see above.

    >>> import icechunk
    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> authorize(repo).authorized_virtual_container_prefixes
    set()
    """
    return authorized_handle(open_repository(store), True if prefixes is None else prefixes, storage_options)
