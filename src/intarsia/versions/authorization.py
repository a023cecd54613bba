"""Authorization: which source files a repository may read.

Nobody may read the files that a repository refers to until the person who opens it says so.

A repository names the places of its sources in virtual chunk containers: URL prefixes with a way to reach
them. Icechunk only reads below one through a handle that is authorised for it. A handle cannot be changed, so
authorising more gives another one. What a handle was authorised for is remembered here, so that one that was
opened before its repository had containers finds the one that knows them. The engine gets it too, so that it
can read sources without Icechunk.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

import icechunk

from intarsia._icechunk import IcechunkStore, safe_store
from intarsia.engine.fetch.virtual import Container, SourceAccess
from intarsia.errors import IngestError, RepositoryError
from intarsia.versions.storage_options import (
    FILE,
    S3_SETTINGS,
    S3_STORES,
    SECRETS,
    container_at,
    credentials,
    direct_container,
    headers_of,
    s3_options,
    scheme_of,
    source_options,
)

type Allowed = bool | str | Iterable[str] | Mapping[str, Mapping[str, Any]] | None
"""What a repository may read: all that it names (`True`), what is below some URL prefixes, or below prefixes
with their own storage options."""


type Containers = Mapping[str, icechunk.VirtualChunkContainer]
"""How to reach sources, by URL prefix."""

type ConfigChange = Callable[[icechunk.RepositoryConfig], bool]
"""Changes the configuration of a repository, and says whether it did."""


@dataclass
class _Grants:
    """What one handle on a repository is authorised for."""

    options: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The storage options of every prefix."""

    everything: Mapping[str, Any] | None = None
    """The options for everything that the repository names, if it may read all of it."""

    successor: icechunk.Repository | None = None
    """A handle on the same repository that may read more."""

    repository: Container | None = None
    """The files of the repository, if they lie in an object store that can be read without Icechunk."""


_grants: WeakKeyDictionary[icechunk.Repository, _Grants] = WeakKeyDictionary()


def _grants_of(repo: icechunk.Repository) -> _Grants:
    """What a handle is authorised for, to begin those of another handle with."""
    known, prefixes = _grants.get(repo, _Grants()), repo.authorized_virtual_container_prefixes
    return replace(known, options={each: known.options.get(each, {}) for each in prefixes}, successor=None)


def remember_location(repo: icechunk.Repository, url: str, options: Mapping[str, Any]) -> None:
    """Remember how a repository on S3 was opened, so that its files can be read without Icechunk."""
    container = direct_container(url.rstrip("/") + "/", s3_options(options))
    if container is not None:
        _grants.setdefault(repo, _Grants()).repository = container


def store_of(session: icechunk.Session, repo: icechunk.Repository) -> IcechunkStore:
    """The store of a session of a repository, which may read without Icechunk what the handle may read.

    Files on this machine need no credentials. For other sources, those must have been given to intarsia.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> store_of(repo.readonly_session("main"), repo).shared.access.containers
    {}
    """
    store: IcechunkStore = safe_store(session.store)
    grants, containers = _grants.get(repo, _Grants()), {}
    authorized = repo.authorized_virtual_container_prefixes
    declared = (session.config.virtual_chunk_containers or {}) if authorized else {}
    for prefix in authorized & declared.keys():
        scheme = scheme_of(prefix)
        if not prefix.endswith("/") or (prefix not in grants.options and scheme != "file"):
            continue
        own: Mapping[str, Any] = grants.options.get(prefix, {})
        settings: Any = declared[prefix].store
        if scheme == "s3":
            if not isinstance(settings, S3_STORES):
                continue
            secrets = {name: own[name] for name in SECRETS["s3"] if own.get(name)}
            own = {name: getattr(settings[0], name) for name in S3_SETTINGS} | secrets
        container = direct_container(prefix, own)
        if container is not None:
            containers[prefix] = container
    store.shared.access = SourceAccess(containers, grants.repository)
    return store


def containers_of(repo: icechunk.Repository) -> dict[str, icechunk.VirtualChunkContainer]:
    """The current containers of a repository, no matter when the handle was opened.

    >>> containers_of(icechunk.Repository.create(icechunk.in_memory_storage()))
    {}
    """
    saved = icechunk.Repository.fetch_config(repo.storage)
    written = {} if saved is None else saved.virtual_chunk_containers
    return {**(written or {}), **(repo.config.virtual_chunk_containers or {})}


def authorized_handle(
    repo: icechunk.Repository,
    prefixes: Allowed,
    storage_options: Mapping[str, Any] | None = None,
    shared: str = "",
) -> icechunk.Repository:
    """A handle on the repository that may read its sources below these prefixes, and all it could before.

    The options are for sources below the URL prefix `shared`, and for no others.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> authorized_handle(repo, True).authorized_virtual_container_prefixes
    set()
    """
    if prefixes is None or prefixes is False:
        return repo
    options = source_options(storage_options) if not shared else dict(storage_options or {})
    existing = containers_of(repo)
    grants = _grants_of(repo)
    for prefix, own in _choose_containers(prefixes, existing).items():
        grants.options[prefix] = {**(options if prefix.startswith(shared) else {}), **own}
    if prefixes is True:
        grants.everything = options
    return _reopen(repo, existing, grants)


def _choose_containers(prefixes: Allowed, existing: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The containers that are meant, each with its own options."""
    if prefixes is True:
        return {prefix: {} for prefix in existing}
    listed: Any = [prefixes] if isinstance(prefixes, str) else prefixes
    named = listed if isinstance(listed, Mapping) else dict.fromkeys(listed)
    chosen: dict[str, Mapping[str, Any]] = {}
    for prefix, own in named.items():
        text = prefix if "://" in prefix else FILE + prefix
        text = text if text.endswith("/") else text + "/"
        below = [each for each in existing if each.startswith(text)]
        if not below:
            raise IngestError(
                f"the repository has no virtual chunk container for {text}.\n"
                f"  It has {', '.join(sorted(existing)) or 'none'}"
            )
        chosen |= dict.fromkeys(below, source_options(own))
    return chosen


def _reopen(repo: icechunk.Repository, containers: Containers, grants: _Grants) -> icechunk.Repository:
    config = _config_with(repo, containers, grants, secrets=True)
    opened = repo.reopen(config=config, authorize_virtual_chunk_access=credentials(grants.options))
    _grants[opened] = grants
    return opened


def _config_with(
    repo: icechunk.Repository, containers: Containers, grants: _Grants, *, secrets: bool
) -> icechunk.RepositoryConfig:
    """The configuration with these containers, and with the tokens of the caller only if `secrets`."""
    config = repo.config
    for prefix, container in containers.items():
        own = grants.options.get(prefix, {})
        if scheme_of(prefix) in ("http", "https") and headers_of(own):
            container = container_at(prefix, own, secrets=secrets)
        config.set_virtual_chunk_container(container)
    return config


def with_current_containers(repo: icechunk.Repository) -> icechunk.Repository:
    """The handle, or the one that knows the containers added since it was opened.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> with_current_containers(repo) is repo
    True
    """
    while (grants := _grants.get(repo)) is not None:
        if grants.successor is None:
            if grants.everything is None or set(containers_of(repo)) <= set(grants.options):
                break
            grants.successor = authorized_handle(repo, True, grants.everything)
        repo = grants.successor
    return repo


def reopen_without_cache(repo: icechunk.Repository) -> icechunk.Repository:
    """Another handle that may read the same, which frees what Icechunk keeps in memory for the old one.

    That is every manifest that was read or written, up to fifteen million references. `reopen` would keep
    them. A handle whose credentials are not known here is returned as it is.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> reopen_without_cache(repo) is repo
    True
    """
    grants = _grants.get(repo, _Grants())
    if not grants.options or grants.options.keys() < repo.authorized_virtual_container_prefixes:
        return repo
    opened = icechunk.Repository.open(repo.storage, repo.config, credentials(grants.options))
    _grants[opened] = replace(grants, successor=None)
    return opened


MAX_TRIES = 20
"""How often to retry saving a configuration that others save at the same time."""


MAX_CONTAINERS = 16
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


def _without_nested(prefixes: set[str]) -> set[str]:
    return {a for a in prefixes if not any(a != b and a.startswith(b) for b in prefixes)}


def covering_prefixes(urls: Iterable[str], existing: Iterable[str] = ()) -> set[str]:
    """Prefixes that cover the sources: existing ones, otherwise their directories.

    If there are many directories, the deepest are widened to the ones above, but never to a whole disk or
    host.

    >>> sorted(covering_prefixes(["file:///data/2002/1.nc", "file:///data/2003/1.nc"]))
    ['file:///data/2002/', 'file:///data/2003/']
    >>> covering_prefixes([f"file:///data/{year}/1.nc" for year in range(2002, 2030)])
    {'file:///data/'}
    """
    covered = set(existing)
    needed = _without_nested({d for d in directories(urls) if not any(d.startswith(k) for k in covered)})
    while len(needed) > MAX_CONTAINERS:
        deepest = max(_depth(prefix) for prefix in needed)
        if deepest <= 1:
            break
        needed = _without_nested({_parent(p) if _depth(p) == deepest else p for p in needed})
    return needed


def _source_of_each(files: Iterable[str], sources: Iterable[str]) -> set[str]:
    """The files; for a source that is a directory, such as a Zarr store, the directory itself.

    >>> sorted(_source_of_each(["file:///a.zarr/v/c/0/0", "file:///a.zarr/v/c/0/1", "file:///b.nc"],
    ...                        ["file:///a.zarr", "file:///b.nc"]))
    ['file:///a.zarr/', 'file:///b.nc']
    """
    places = ["", *sorted(f"{source.rstrip('/')}/" for source in sources)]
    nearest = ((file, places[bisect_right(places, file) - 1]) for file in files)
    return {place if place and file.startswith(place) else file for file, place in nearest}


def with_containers(
    repo: icechunk.Repository, referenced: Iterable[str], named: Iterable[str], options: Mapping[str, Any],
    more: ConfigChange = lambda _: False,
) -> tuple[icechunk.Repository, tuple[str, ...]]:  # fmt: skip
    """The repository with containers for its references, authorised for these and for the named files.

    Also returns the prefixes. Containers of other sources are not authorised: the caller did not name them.
    The configuration is saved only if it changed, and keeps everything else, including what others have saved
    since; `more` may change more of it, and says whether it did. Tokens are not stored.
    """
    repo, files, sources = with_current_containers(repo), list(referenced), list(named)
    existing = set(containers_of(repo))
    fresh = covering_prefixes(_source_of_each(files, sources), existing)
    used = fresh | {k for k in existing if any(url.startswith(k) for url in (*files, *sources))}
    if not (fresh or more(repo.config)) and used <= repo.authorized_virtual_container_prefixes:
        return repo, tuple(sorted(used))
    added = {prefix: container_at(prefix, options, secrets=False) for prefix in fresh}
    opened = _with_more(repo, added, dict.fromkeys(used, options), more)
    return opened, tuple(sorted(used))


def _with_more(
    repo: icechunk.Repository,
    added: Containers,
    granted: Mapping[str, Mapping[str, Any]],
    more: ConfigChange = lambda _: False,
) -> icechunk.Repository:
    """The successor of a handle: with containers that are saved, and authorised for these prefixes too."""
    from intarsia.versions.locking import commit_lock  # readers do not need it

    saved = repo
    if added or more(repo.config):
        for _ in range(MAX_TRIES):
            # Icechunk keeps it beside the list of snapshots: on a local disk, saving it is like a commit.
            with commit_lock(repo), suppress(icechunk.ConflictError):  # somebody else saved at the same time
                existing = {**containers_of(repo), **added}
                config = _config_with(repo, existing, _grants_of(repo), secrets=False)
                more(config)
                saved = repo.reopen(config=config)
                saved.save_config()
            if added.keys() <= containers_of(repo).keys():  # nobody has saved without them since
                break
        else:
            raise RepositoryError(
                "other writers kept changing the configuration of the repository, so its new containers "
                f"could not be saved: {', '.join(sorted(added))}"
            )
    grants = _grants_of(repo)
    grants.options |= granted
    opened = _reopen(saved, {**containers_of(repo), **added}, grants)
    _grants.setdefault(repo, _Grants()).successor = opened
    return opened


def with_containers_of(repo: icechunk.Repository, other: icechunk.Repository) -> icechunk.Repository:
    """A repository with the containers of another one, which may read below them what the other may.

    Containers are copied as they are saved, so without tokens.

    >>> one, other = (icechunk.Repository.create(icechunk.in_memory_storage()) for _ in range(2))
    >>> with_containers_of(one, other) is one
    True
    """
    repo = with_current_containers(repo)
    existing, saved = containers_of(repo), icechunk.Repository.fetch_config(other.storage)
    named = {} if saved is None else saved.virtual_chunk_containers or {}
    added = {prefix: container for prefix, container in named.items() if prefix not in existing}
    after = {**existing, **added}
    # Credentials for a prefix must not go to another server that has the same name there.
    same = {prefix for prefix, container in named.items() if after[prefix] == container}
    granted = other.authorized_virtual_container_prefixes & same
    granted -= repo.authorized_virtual_container_prefixes
    if not added and not granted:
        return repo
    others = _grants.get(other, _Grants())
    return _with_more(repo, added, {prefix: others.options.get(prefix, {}) for prefix in granted})
