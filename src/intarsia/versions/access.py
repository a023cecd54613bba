"""Access to storage: one vocabulary of options, which source files a repository may read, and with which
credentials.

Repositories and source files take options of the same names, wherever they are. Nobody may read the files
that a repository refers to until the person who opens it says so.

A repository names the places of its sources in virtual chunk containers: URL prefixes with a way to reach
them. Icechunk only reads below one through a handle that is authorised for it. A handle cannot be changed, so
authorising more gives another one. What a handle was authorised for is remembered here, so that one that was
opened before its repository had containers finds the one that knows them. The engine gets it too, so that it
can read sources without Icechunk: credentials come only from here, never out of Icechunk's objects.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

import icechunk

from intarsia._icechunk import IcechunkStore, safe_store
from intarsia.engine.fetch.virtual import Container, SourceAccess
from intarsia.errors import IngestError, RepositoryError
from intarsia.extras import is_installed
from intarsia.versions.locking import commit_lock

S3_OPTIONS = (
    "access_key_id", "allow_http", "anonymous", "endpoint_url", "expires_after", "force_path_style",
    "get_credentials", "headers", "network_stream_timeout_seconds", "region", "requester_pays",
    "secret_access_key", "session_token",
)  # fmt: skip
GS_OPTIONS = (
    "allow_http", "anonymous", "application_credentials", "bearer_token", "endpoint_url", "get_credentials",
    "headers", "service_account_file", "service_account_key",
)  # fmt: skip
AZ_OPTIONS = (
    "access_key", "account", "allow_http", "anonymous", "bearer_token", "endpoint_url", "sas_token",
)  # fmt: skip
HTTP_OPTIONS = ("allow_http", "bearer_token", "headers")

TAKEN: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "memory": (),
    "s3": S3_OPTIONS,
    "gs": GS_OPTIONS,
    "az": AZ_OPTIONS,
    "http": HTTP_OPTIONS,
    "https": HTTP_OPTIONS,
}
"""The options of every scheme."""

OF_REPOSITORIES = ("expires_after", "get_credentials", "network_stream_timeout_seconds")
"""Options that only Icechunk uses."""

OF_SOURCES = ("client_options", "retry_config")
"""Options of obstore, which reads source files, that keep their names here."""

SPELLINGS = {
    "account_key": "access_key",
    "account_name": "account",
    "endpoint": "endpoint_url",
    "request_payer": "requester_pays",
    "service_account": "service_account_file",
    "service_account_path": "service_account_file",
    "skip_signature": "anonymous",
    "token": "bearer_token",
}
"""obstore's names, which are accepted too."""

ELSEWHERE = {
    "anon": "anonymous",
    "client_kwargs": "endpoint_url",
    "key": "access_key_id",
    "secret": "secret_access_key",
}
"""The names of options in fsspec, for messages."""

OWNERS = ("aws_", "google_", "azure_", "azure_storage_")
"""The prefixes that obstore's names may have."""


def source_options(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options for source files, each by its one name.

    >>> source_options({"skip_signature": True, "aws_region": "eu-central-1"})
    {'anonymous': True, 'region': 'eu-central-1'}
    >>> source_options({"anon": True})
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: sources take no option 'anon'; did you mean 'anonymous'?
      Their options: access_key, access_key_id, account, allow_http, anonymous, ...
    """
    known = sorted({name for names in TAKEN.values() for name in names} - set(OF_REPOSITORIES)) + [
        *OF_SOURCES
    ]
    options: dict[str, Any] = {}
    for key, value in (arguments or {}).items():
        name = key
        for owner in OWNERS:
            name = name.removeprefix(owner)
        if name == "virtual_hosted_style_request":
            name, value = "force_path_style", not value
        name = SPELLINGS.get(name, name)
        if name not in known:
            raise IngestError(unknown_option("sources take", key, known, "Their"))
        options[name] = value
    return options


def check_options(where: str, scheme: str, options: Iterable[str]) -> None:
    """Refuse options that the storage of a scheme does not have.

    >>> check_options("data/store", "file", {"region": "eu-central-1"})
    Traceback (most recent call last):
    ...
    TypeError: 'data/store' takes no option 'region'; its options: none
    """
    known = TAKEN[scheme]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(unknown_option(f"{where!r} takes", unknown[0], known, "Its"))


def unknown_option(who: str, name: str, known: Iterable[str], whose: str) -> str:
    """What to say about an option that does not exist: the nearest one that does, and all of them."""
    names = list(known)
    near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in names else get_close_matches(name, names, 1, 0.7)
    if near:
        return f"{who} no option {name!r}; did you mean {near[0]!r}?\n  {whose} options: {', '.join(names)}"
    return f"{who} no option {name!r}; {whose.lower()} options: {', '.join(names) or 'none'}"


def of_scheme(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """Those options that mean something to the storage of a scheme.

    >>> of_scheme({"region": "eu-central-1", "bearer_token": "secret"}, "https")
    {'bearer_token': 'secret'}
    """
    return {name: value for name, value in options.items() if name in TAKEN[scheme] and value is not None}


def headers_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The headers of every request: those that were given, and the token.

    >>> headers_of({"bearer_token": "secret"})
    {'authorization': 'Bearer secret'}
    """
    token = options.get("bearer_token")
    return dict(options.get("headers") or {}) | ({"authorization": f"Bearer {token}"} if token else {})


def allows_http(options: Mapping[str, Any]) -> bool:
    """Whether encryption is unnecessary, by the options or by the endpoint's URL."""
    plain = str(options.get("endpoint_url") or "").startswith("http://")
    return bool(options.get("allow_http", plain))


def for_obstore(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """The options for sources of a scheme, in the terms of the library that reads them.

    >>> for_obstore({"anonymous": True, "endpoint_url": "http://127.0.0.1:9000"}, "s3")
    {'skip_signature': True, 'endpoint': 'http://127.0.0.1:9000', 'client_options': {'allow_http': True}}
    """
    names = {
        "access_key": "account_key", "account": "account_name", "anonymous": "skip_signature",
        "endpoint_url": "endpoint", "requester_pays": "request_payer",
        "service_account_file": "service_account",
    }  # fmt: skip
    own = of_scheme(options, scheme)
    # A user who gives an http URL knows that nothing is encrypted.
    client: dict[str, Any] = {"allow_http": True} if scheme == "http" or allows_http(own) else {}
    headers = headers_of(own if scheme != "az" else {})
    client |= ({"default_headers": headers} if headers else {}) | dict(options.get("client_options") or {})
    arguments: dict[str, Any] = {}
    for name, value in own.items():
        if name == "force_path_style":
            arguments["virtual_hosted_style_request"] = not value
        elif name == "bearer_token" and scheme == "az":
            arguments["token"] = value
        elif name == "bearer_token" and scheme == "gs":
            arguments["skip_signature"] = True  # the header is enough
        elif name not in ("allow_http", "headers", "bearer_token"):
            arguments[names.get(name, name)] = value
    if "retry_config" in options:
        arguments["retry_config"] = options["retry_config"]
    return arguments | ({"client_options": client} if client else {})


type Allowed = bool | str | Iterable[str] | Mapping[str, Mapping[str, Any]] | None
"""What a repository may read: all that it names (`True`), what is below some URL prefixes, or below prefixes
with their own storage options."""

FILE = "file://"

SECRETS = {
    "s3": ("access_key_id", "anonymous", "secret_access_key", "session_token"),
    "gs": (
        "anonymous", "application_credentials", "bearer_token", "service_account_file", "service_account_key",
    ),
    "az": ("access_key", "anonymous", "bearer_token", "sas_token"),
}  # fmt: skip
"""Options that identify the caller; they are never stored."""


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


def scheme_of(url: str) -> str:
    """The scheme of a URL."""
    return url.split("://", 1)[0]


def container_at(
    prefix: str, options: Mapping[str, Any], *, secrets: bool = True
) -> icechunk.VirtualChunkContainer:
    """How to reach what is below a prefix. Without `secrets`, it may be stored in a repository."""
    scheme = scheme_of(prefix)
    own: dict[str, Any] = {} if scheme == "file" else of_scheme(options, scheme)
    endpoint = own.get("endpoint_url")
    plain = allows_http(own)
    store: Any
    if scheme == "file":
        store = icechunk.local_filesystem_store(unquote(prefix.removeprefix(FILE)))
    elif scheme == "s3":
        store = icechunk.s3_store(
            region=own.get("region"),
            endpoint_url=endpoint,
            allow_http=plain,
            anonymous=bool(own.get("anonymous")),
            s3_compatible=endpoint is not None,
            force_path_style=bool(own.get("force_path_style", endpoint is not None)),
            requester_pays=bool(own.get("requester_pays")),
        )
    elif scheme == "gs":
        store = icechunk.gcs_store(cloud_config(own, "google_base_url"))
    elif scheme == "az":
        store = icechunk.storage.azure_store(account=own.get("account") or "", config=cloud_config(own))
    else:
        headers = headers_of(own) if secrets else {}
        transport = {"allow_http": "true"} if plain or scheme == "http" else None
        store = icechunk.http_store(transport, headers or None)
    return icechunk.VirtualChunkContainer(prefix, store)


def cloud_config(options: Mapping[str, Any], endpoint: str = "endpoint") -> dict[str, str] | None:
    """Where the storage of gs:// or az:// is, if not at its provider."""
    url = options.get("endpoint_url")
    if url is None:
        return None
    return {endpoint: str(url), "allow_http": str(allows_http(options)).lower()}


def credentials(prefix: str, options: Mapping[str, Any]) -> Any:
    """What authorises reading below a prefix; without options, the environment decides."""
    scheme = scheme_of(prefix)
    if scheme == "file":
        return icechunk.credentials.LocalFileSystemAccess
    if scheme in ("http", "https"):
        return icechunk.credentials.HttpAccess
    own = {name: value for name, value in of_scheme(options, scheme).items() if name in SECRETS[scheme]}
    if scheme == "gs":
        gcs: Any = icechunk.gcs_credentials(**own)
        return icechunk.Credentials.Gcs(gcs)
    if scheme == "az":
        azure: Any = icechunk.azure_credentials(**own)
        return icechunk.Credentials.Azure(azure)
    if own.get("anonymous"):
        return icechunk.Credentials.S3(icechunk.s3_credentials(anonymous=True))
    return icechunk.Credentials.S3(icechunk.s3_credentials(**own or {"from_env": True}))


TIMEOUTS = {"timeout": "60s", "connect_timeout": "5s"}

RETRIES: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "base": 2,
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
    },
}
"""As for repositories: a server that is down should be noticed soon."""

ENVIRONMENT_KEYS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}

S3_SETTINGS = ("allow_http", "anonymous", "endpoint_url", "force_path_style", "region", "requester_pays")
"""What the container of a bucket says about it."""

S3_STORES: Any = (icechunk.ObjectStoreConfig.S3, icechunk.ObjectStoreConfig.S3Compatible)


def direct_container(prefix: str, options: Mapping[str, Any]) -> Container | None:
    """How to read below a prefix without Icechunk, as these options say; None leaves it to Icechunk.

    That is where obstore might understand them differently, or would mix in the environment.
    """
    scheme, own = scheme_of(prefix), dict(options)
    if scheme == "file":
        return Container(prefix)
    if not is_installed("obstore") or (
        scheme != "s3" and (scheme not in ("http", "https") or headers_of(own))
    ):
        return None
    if scheme == "s3":
        endpoint = own.get("endpoint_url")
        if own.get("region") is None or (endpoint is not None and not own.get("force_path_style")):
            return None
        if endpoint is None and any(name.startswith("AWS_ENDPOINT") for name in os.environ):
            return None
        keys = _keys(own)
        if keys is None or set(own) & {*OF_REPOSITORIES, "headers"}:
            return None
        own = {name: own[name] for name in S3_SETTINGS if own.get(name) is not None} | keys
    arguments = for_obstore(own, scheme)
    client = {"allow_http": False} | TIMEOUTS | arguments.get("client_options", {})
    return Container(prefix, arguments | {"client_options": client, "retry_config": RETRIES})


def _keys(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The caller's keys, or those in the environment; None if they are not complete."""
    if options.get("anonymous"):
        return {"anonymous": True}
    keys = {name: options[name] for name in ENVIRONMENT_KEYS if options.get(name)}
    environment = {name: os.environ.get(variable) for name, variable in ENVIRONMENT_KEYS.items()}
    if not keys:
        keys = {name: value for name, value in environment.items() if value}
    elif "session_token" not in keys and environment["session_token"]:
        return None  # obstore would take somebody else's token
    return keys if {"access_key_id", "secret_access_key"} <= keys.keys() else None


def s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of S3 and its relatives; missing ones come from the environment, as in other AWS programs.

    >>> s3_options({"endpoint_url": "http://127.0.0.1:9000", "region": "us-east-1"})["force_path_style"]
    True
    """
    own, environment = dict(options), os.environ
    found = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = own.setdefault("endpoint_url", found)
    own.setdefault("region", environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"))
    if endpoint is not None:
        # Servers other than AWS have no host name per bucket, and often no certificate.
        own.setdefault("force_path_style", True)
        own.setdefault("allow_http", endpoint.startswith("http://"))
        own["region"] = own["region"] or "us-east-1"
    return own


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


def allowed(
    repo: icechunk.Repository,
    prefixes: Allowed,
    storage_options: Mapping[str, Any] | None = None,
    shared: str = "",
) -> icechunk.Repository:
    """A handle on the repository that may read its sources below these prefixes, and all it could before.

    The options are for sources below the URL prefix `shared`, and for no others.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> allowed(repo, True).authorized_virtual_container_prefixes
    set()
    """
    if prefixes is None or prefixes is False:
        return repo
    options = source_options(storage_options) if not shared else dict(storage_options or {})
    known = containers_of(repo)
    before = _grants.get(repo, _Grants())
    chosen = {prefix: before.options.get(prefix, {}) for prefix in repo.authorized_virtual_container_prefixes}
    chosen |= {
        prefix: {**(options if prefix.startswith(shared) else {}), **own}
        for prefix, own in _chosen(prefixes, known).items()
    }
    everything = options if prefixes is True else before.everything
    return _reopened(repo, known, replace(before, options=chosen, everything=everything, successor=None))


def _chosen(prefixes: Allowed, known: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The containers that are meant, each with its own options."""
    named: dict[str, Mapping[str, Any]]
    if isinstance(prefixes, bool) or prefixes is None:
        return {prefix: {} for prefix in known if prefixes}
    if isinstance(prefixes, Mapping):
        named = {prefix: source_options(own) for prefix, own in prefixes.items()}
    else:
        named = {prefix: {} for prefix in ([prefixes] if isinstance(prefixes, str) else prefixes)}
    chosen: dict[str, Mapping[str, Any]] = {}
    for prefix, own in named.items():
        text = prefix if "://" in prefix else FILE + prefix
        text = text if text.endswith("/") else text + "/"
        below = {each: own for each in known if each.startswith(text)}
        if not below:
            raise IngestError(
                f"the repository has no virtual chunk container for {text}.\n"
                f"  It has {', '.join(sorted(known)) or 'none'}"
            )
        chosen |= below
    return chosen


def _reopened(
    repo: icechunk.Repository,
    known: Mapping[str, icechunk.VirtualChunkContainer],
    grants: _Grants,
    more: Callable[[icechunk.RepositoryConfig], bool] | None = None,
) -> icechunk.Repository:
    config = repo.config
    if more is not None:
        more(config)
    for prefix, container in known.items():
        secret = _is_secret(prefix, grants)
        config.set_virtual_chunk_container(
            container_at(prefix, grants.options[prefix]) if secret else container
        )
    access = {prefix: credentials(prefix, own) for prefix, own in sorted(grants.options.items())}
    opened = repo.reopen(config=config, authorize_virtual_chunk_access=access)
    _grants[opened] = grants
    return opened


def current(repo: icechunk.Repository) -> icechunk.Repository:
    """The handle, or the one that knows the containers added since it was opened.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> current(repo) is repo
    True
    """
    while (grants := _grants.get(repo)) is not None:
        if grants.successor is None:
            if grants.everything is None or set(containers_of(repo)) <= set(grants.options):
                break
            grants.successor = allowed(repo, True, grants.everything)
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
    access = {prefix: credentials(prefix, own) for prefix, own in sorted(grants.options.items())}
    opened = icechunk.Repository.open(repo.storage, config=repo.config, authorize_virtual_chunk_access=access)
    _grants[opened] = replace(grants, successor=None)
    return opened


MAX_TRIES = 20
"""How often to retry saving a configuration that others save at the same time."""


def _save(
    repo: icechunk.Repository,
    added: Mapping[str, icechunk.VirtualChunkContainer],
    grants: _Grants,
    more: Callable[[icechunk.RepositoryConfig], bool] | None,
) -> None:
    """Write new containers into the configuration of the repository."""
    for _ in range(MAX_TRIES if added or more else 0):
        config = repo.config
        if more is not None:
            more(config)
        for prefix, container in {**containers_of(repo), **added}.items():
            secret = prefix in grants.options and prefix not in added and _is_secret(prefix, grants)
            config.set_virtual_chunk_container(
                container_at(prefix, grants.options[prefix], secrets=False) if secret else container
            )
        # Icechunk keeps it beside the list of snapshots: on a local file system, saving it is like a commit.
        with commit_lock(repo), suppress(icechunk.ConflictError):  # somebody else saved at the same time
            repo.reopen(config=config).save_config()
        saved = icechunk.Repository.fetch_config(repo.storage)
        if saved is not None and set(added) <= set(saved.virtual_chunk_containers or {}):
            return
    if added:
        raise RepositoryError(
            "other writers kept changing the configuration of the repository, so its new containers could "
            f"not be saved: {', '.join(sorted(added))}"
        )


def _is_secret(prefix: str, grants: _Grants) -> bool:
    """Whether reaching what is below a prefix takes a token."""
    return scheme_of(prefix) in ("http", "https") and bool(headers_of(grants.options.get(prefix, {})))


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


def _collapsed(prefixes: set[str]) -> set[str]:
    return {a for a in prefixes if not any(a != b and a.startswith(b) for b in prefixes)}


def prefixes(urls: Iterable[str], known: Iterable[str] = ()) -> set[str]:
    """Prefixes that cover the sources: known ones, otherwise their directories.

    If there are many directories, the deepest are widened to the ones above, but never to a whole disk or
    host.

    >>> sorted(prefixes(["file:///data/2002/1.nc", "file:///data/2003/1.nc"]))
    ['file:///data/2002/', 'file:///data/2003/']
    >>> prefixes([f"file:///data/{year}/1.nc" for year in range(2002, 2030)])
    {'file:///data/'}
    """
    kept = set(known)
    needed = _collapsed({d for d in directories(urls) if not any(d.startswith(k) for k in kept)})
    while len(needed) > MAX_CONTAINERS:
        deepest = max(_depth(prefix) for prefix in needed)
        if deepest <= 1:
            break
        needed = _collapsed({_parent(p) if _depth(p) == deepest else p for p in needed})
    return needed


def _source_of_each(files: Iterable[str], sources: Iterable[str]) -> set[str]:
    """The files; for a source that is a directory, such as a Zarr store, the directory itself.

    >>> sorted(_source_of_each(["file:///a.zarr/v/c/0/0", "file:///a.zarr/v/c/0/1", "file:///b.nc"],
    ...                        ["file:///a.zarr", "file:///b.nc"]))
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


def with_containers(
    repo: icechunk.Repository, referenced: Iterable[str], named: Iterable[str], options: Mapping[str, Any],
    more: Callable[[icechunk.RepositoryConfig], bool] = lambda config: False,
) -> tuple[icechunk.Repository, tuple[str, ...]]:  # fmt: skip
    """The repository with containers for its references, authorised for these and for the named files.

    Also returns the prefixes. Containers of other sources are not authorised: the caller did not name them.
    The configuration is saved only if it changed, and keeps everything else, including what others have saved
    since; `more` may change more of it, and says whether it did. Tokens are not stored.
    """
    repo, files, sources = current(repo), list(referenced), list(named)
    known = set(containers_of(repo))
    fresh = prefixes(_source_of_each(files, sources), known)
    used = fresh | {k for k in known if any(url.startswith(k) for url in (*files, *sources))}
    authorized = set(repo.authorized_virtual_container_prefixes)
    changed = more(repo.config)
    if not (changed or fresh) and used <= authorized:
        return repo, tuple(sorted(used))
    before, change = _grants.get(repo, _Grants()), more if changed else None
    added = {prefix: container_at(prefix, options, secrets=False) for prefix in fresh}
    _save(repo, added, before, change)
    chosen = {prefix: before.options.get(prefix, {}) for prefix in authorized} | dict.fromkeys(used, options)
    grants = replace(before, options=chosen, successor=None)
    opened = _reopened(repo, {**containers_of(repo), **added}, grants, change)
    _grants.setdefault(repo, before).successor = opened
    return opened, tuple(sorted(used))
