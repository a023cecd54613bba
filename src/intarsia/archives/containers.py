"""Virtual chunk containers: which URL prefixes a repository may read chunks from, as narrow as possible.

Icechunk reads a virtual chunk only where a container of the repository's configuration says how, and only if
whoever opened the repository authorised that container.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import icechunk

from intarsia.archives.locations import FILE, scheme_of, source_options
from intarsia.errors import IngestError
from intarsia.versions.repository import RepositoryLike, open_repository

MOST_CONTAINERS = 16
"""Sources in more directories than this get containers for the directories above."""


def directories(urls: Iterable[str]) -> set[str]:
    """The directories of the sources, as URL prefixes.

    One that has to be percent-encoded gives the directory above: Icechunk matches no such prefix.
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
    """Prefixes that cover the sources: those that are known, or else their directories.

    Of many directories the deepest are widened to the ones above, but never to a whole disk or host.

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


def _container(prefix: str, options: Mapping[str, Any]) -> icechunk.VirtualChunkContainer:
    scheme = scheme_of(prefix)
    allow_http = bool((options.get("client_options") or {}).get("allow_http"))
    store: Any
    if scheme == "file":
        store = icechunk.local_filesystem_store(unquote(prefix.removeprefix(FILE)))
    elif scheme == "s3":
        endpoint = options.get("endpoint")
        store = icechunk.s3_store(
            region=options.get("region"),
            endpoint_url=endpoint,
            allow_http=allow_http,
            anonymous=bool(options.get("skip_signature")),
            s3_compatible=endpoint is not None,
            force_path_style=endpoint is not None and not options.get("virtual_hosted_style_request"),
        )
    elif scheme == "gs":
        store = icechunk.gcs_store()
    else:
        store = icechunk.http_store({"allow_http": "true"} if allow_http or scheme == "http" else None)
    return icechunk.VirtualChunkContainer(prefix, store)


def credentials(prefix: str, options: Mapping[str, Any]) -> Any:
    """What authorises reading below a prefix; without options, whatever the environment says."""
    scheme = scheme_of(prefix)
    if scheme == "file":
        return icechunk.credentials.LocalFileSystemAccess
    if scheme in ("http", "https"):
        return icechunk.credentials.HttpAccess
    if scheme == "gs":
        anonymous = bool(options.get("skip_signature"))
        gcs: Any = icechunk.GcsCredentials
        return icechunk.Credentials.Gcs(gcs.Anonymous() if anonymous else gcs.FromEnv())
    if options.get("skip_signature"):
        return icechunk.Credentials.S3(icechunk.s3_credentials(anonymous=True))
    key = options.get("access_key_id")
    if key is None:
        return icechunk.Credentials.S3(icechunk.s3_credentials(from_env=True))
    static = icechunk.s3_credentials(
        access_key_id=key,
        secret_access_key=options.get("secret_access_key"),
        session_token=options.get("session_token"),
    )
    return icechunk.Credentials.S3(static)


def containers(repo: RepositoryLike) -> tuple[str, ...]:
    """URL prefixes that the arrays of a repository may refer to.

    >>> import icechunk
    >>> containers(icechunk.Repository.create(icechunk.in_memory_storage()))
    ()
    """
    return tuple(sorted(open_repository(repo).config.virtual_chunk_containers or {}))


def authorize(
    repo: RepositoryLike,
    prefixes: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> icechunk.Repository:
    """A repository, open or at a path or URL, allowed to read the sources below these URL prefixes.

    A repository names the places of its sources, but whoever opens it decides whether it may read them: a
    repository from a stranger could otherwise read your files. Without prefixes it may read all of them.
    `storage_options` holds the keys of a bucket, as for `ingest`; without them the environment's are used.

    >>> import icechunk
    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> authorize(repo).authorized_virtual_container_prefixes
    set()
    """
    opened = open_repository(repo)
    known = set(containers(opened))
    prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
    chosen = known if prefixes is None else {p if p.endswith("/") else p + "/" for p in prefixes}
    if chosen - known:
        raise IngestError(
            f"the repository has no virtual chunk container for {', '.join(sorted(chosen - known))}.\n"
            f"  It has {', '.join(sorted(known)) or 'none'}"
        )
    granted = chosen | set(opened.authorized_virtual_container_prefixes)
    options = source_options(storage_options)
    return opened.reopen(authorize_virtual_chunk_access={p: credentials(p, options) for p in sorted(granted)})


def with_containers(
    repo: icechunk.Repository, referenced: Iterable[str], named: Iterable[str], options: Mapping[str, Any],
    more: Callable[[icechunk.RepositoryConfig], bool] = lambda config: False,
) -> tuple[icechunk.Repository, tuple[str, ...]]:  # fmt: skip
    """The repository with containers for what is referred to, authorised for that and for the named files.

    Also returns the prefixes. Containers of other sources are not authorised: the caller did not name them.
    The configuration is saved only if it changed, and keeps everything else; `more` may change more of it,
    and says whether it did.
    """
    listed = list(referenced)
    known = set(containers(repo))
    fresh = prefixes(listed, known)
    granted = set(repo.authorized_virtual_container_prefixes)
    used = fresh | {k for k in known if any(url.startswith(k) for url in (*listed, *named))}
    config = repo.config
    changed = more(config) or bool(fresh)
    if not changed and used <= granted:
        return repo, tuple(sorted(used))
    for prefix in sorted(fresh):
        config.set_virtual_chunk_container(_container(prefix, options))
    access = {prefix: credentials(prefix, options) for prefix in sorted(used | granted)}
    opened = repo.reopen(config=config, authorize_virtual_chunk_access=access)
    if changed:
        opened.save_config()
    return opened, tuple(sorted(used))
