"""Virtual chunk containers: which URL prefixes a repository may read chunks from, as narrow as possible.

Icechunk only reads a virtual chunk if a container in the repository's configuration says how, and if the
person who opened the repository authorised that container.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import icechunk

from intarsia.versions.access import Allowed, allowed, containers_of, current, with_access
from intarsia.versions.repository import RepositoryLike, open_repository

MOST_CONTAINERS = 16
"""Sources in more directories than this get containers for the directories above."""


def directories(urls: Iterable[str]) -> set[str]:
    """The directories of the sources, as URL prefixes.

    If one needs percent-encoding, the directory above replaces it: Icechunk does not match such prefixes.
    """
    prefixes = set()
    for url in urls:
        prefix = url.rsplit("/", 1)[0] + "/"
        while quote(unquote(prefix), safe=":/") != prefix or "%" in prefix:
            prefix = _parent(prefix)
        prefixes.add(prefix)
    return prefixes


def _parent(prefix: str) -> str:
    return prefix.rstrip("/").rsplit("/", 1)[0] + "/"


def _depth(prefix: str) -> int:
    path = prefix.split("://", 1)[1].strip("/")
    return path.count("/") + bool(path)


def _collapsed(prefixes: set[str]) -> set[str]:
    return {a for a in prefixes if not any(a != b and a.startswith(b) for b in prefixes)}


def prefixes(urls: Iterable[str], known: Iterable[str] = ()) -> set[str]:
    """Prefixes that cover the sources: known ones, otherwise their directories.

    If there are many directories, the deepest are wider_type to the ones above, but never to a whole disk or
    host.

    >>> sorted(prefixes(["file:///data/2002/1.nc", "file:///data/2003/1.nc"]))
    ['file:///data/2002/', 'file:///data/2003/']
    >>> prefixes([f"file:///data/{year}/1.nc" for year in range(2002, 2030)])
    {'file:///data/'}
    """
    kept = set(known)
    needed = _collapsed({d for d in directories(urls) if not any(d.startswith(k) for k in kept)})
    while len(needed) > MOST_CONTAINERS:
        deepest = max(_depth(prefix) for prefix in needed)
        if deepest <= 1:
            break
        needed = _collapsed({_parent(p) if _depth(p) == deepest else p for p in needed})
    return needed


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
    return allowed(open_repository(store), True if prefixes is None else prefixes, storage_options)


def with_containers(
    repo: icechunk.Repository, referenced: Iterable[str], named: Iterable[str], options: Mapping[str, Any],
    more: Callable[[icechunk.RepositoryConfig], bool] = lambda config: False,
) -> tuple[icechunk.Repository, tuple[str, ...]]:  # fmt: skip
    """The repository with containers for its references, authorised for these and for the named files.

    Also returns the prefixes. Containers of other sources are not authorised: the caller did not name them.
    The configuration is saved only if it changed, and keeps everything else; `more` may change more of it,
    and says whether it did.
    """
    repo, files, sources = current(repo), list(referenced), list(named)
    known = set(containers_of(repo))
    fresh = prefixes(inside(files, sources), known)
    used = fresh | {k for k in known if any(url.startswith(k) for url in (*files, *sources))}
    changed = more(repo.config)
    if not (changed or fresh) and used <= set(repo.authorized_virtual_container_prefixes):
        return repo, tuple(sorted(used))
    return with_access(repo, fresh, used, options, more if changed else None), tuple(sorted(used))


def inside(files: Iterable[str], sources: Iterable[str]) -> set[str]:
    """The files; for a source that is a directory, such as a Zarr store, the directory itself.

    >>> sorted(inside(["file:///a.zarr/v/c/0/0", "file:///a.zarr/v/c/0/1", "file:///b.nc"],
    ...               ["file:///a.zarr", "file:///b.nc"]))
    ['file:///a.zarr/', 'file:///b.nc']
    """
    stores = {source.rstrip("/") for source in sources}
    found = set()
    for file in files:
        above = file
        while "/" in above.split("://", 1)[-1] and above not in stores:
            above = above.rsplit("/", 1)[0]
        found.add(f"{above}/" if above in stores and above != file else file)
    return found
