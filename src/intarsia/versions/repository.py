"""Icechunk repositories: opening one from a path or URL, and its errors in our words."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import icechunk

from intarsia._compat import storage_path, storage_text
from intarsia.display import storage_hint
from intarsia.errors import (
    ReadOnlyError,
    RepositoryError,
    RepositoryNotFoundError,
    VersionNotFoundError,
    advice,
    has_panicked,
)
from intarsia.logical.hierarchy import is_plain_zarr
from intarsia.parallel import check_process
from intarsia.versions.authorization import (
    Allowed,
    authorized_handle,
    remember_location,
    with_current_containers,
)
from intarsia.versions.storage_options import (
    SCHEME_OPTIONS,
    check_options,
    cloud_config,
    headers_of,
    s3_options,
)

LOG_ENTRIES = 20
"""Entries of Icechunk's log of operations in the file that every commit rewrites; the default is 1,000."""

# Icechunk would try ten times, up to three minutes apart; a server that is down should be known sooner.
REMOTE = icechunk.StorageSettings(
    retries=icechunk.StorageRetriesSettings(max_tries=5, initial_backoff_ms=100, max_backoff_ms=3_000),
    timeouts=icechunk.StorageTimeoutSettings(connect_timeout_ms=5_000, read_timeout_ms=60_000),
)

# Two warnings about local storage that the commit lock makes obsolete: that commits of several processes are
# not safe, and that there is no way to find a write whose acknowledgement was lost. And those about a region
# or credentials that are not there, page by page, and about a rebase that fails: the error says it once.
LOGS_FILTER = (
    "warn,icechunk_arrow_object_store=error,icechunk_storage::readback=error,aws_config=error,"
    "icechunk::session=error"
)

_memories: dict[str, icechunk.Storage] = {}

REF_NOT_FOUND = re.compile(r"ref not found `(.*)`")
"""What Icechunk says about a branch or tag that does not exist."""

CLOCK = ("invalid snapshot timestamp ordering", "update timestamp is invalid")
"""What Icechunk says about a change that, by this machine's clock, is older than the one before it."""

type RepositoryLike = str | os.PathLike[str] | icechunk.Repository


def open_repository(
    store: RepositoryLike,
    *,
    create: bool = False,
    config: icechunk.RepositoryConfig | None = None,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> icechunk.Repository:
    """Open an Icechunk repository; with `create`, make it if it does not exist.

    `store` is a path, `file://`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
    `memory://` (with a name, shared within the process), `http(s)://` for reading, or an
    `icechunk.Repository`. Options may be given by name or in `storage_options`. Those of `s3://` are
    `endpoint_url`, `region`, `access_key_id`, `secret_access_key`, `session_token`, `anonymous` and others;
    `gs://` takes `service_account_file`, `bearer_token` and `anonymous`, `az://` an `account` with
    `access_key`, `sas_token` or `bearer_token`, and `http(s)://` a `bearer_token` and `headers`. If you
    misspell a name, the error lists the right ones. Options that you do not give are taken from the
    environment variables that other programs for this storage use.

    A repository may refer to chunks in files elsewhere, for example after `intarsia.ingest`. `authorize` says
    which of them it may read: `True` for all that it names, or some URL prefixes. For places that need their
    own keys, give a mapping, `{"s3://public/": {"anonymous": True}}`; other files in the same kind of storage
    as the repository are read with its options.

    Args:
        config: An `icechunk.RepositoryConfig`.
        **options: Options of the storage, see above, by keyword.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> intarsia.open_repository(repo) is repo
    True
    """
    check_process()
    settings = {**(storage_options or {}), **options}
    shared = ""
    if isinstance(store, icechunk.Repository):
        if config is not None or (settings and not authorize):
            raise TypeError("a repository that is already open takes no options; use its reopen method")
        from intarsia.versions.locking import directory_of

        with suppress(RepositoryError, icechunk.IcechunkError):
            directory_of(store)  # the sooner it is looked up, the likelier a relative path still leads there
        repo = store
    elif isinstance(store, str | os.PathLike):
        text = os.fspath(store)
        shared = _shared_by(text) if authorize else ""
        # A place on this machine has no options: with `authorize`, they are for the sources.
        own = {} if authorize and not shared else settings
        repo = _open_at(text, own, config, create=create)
    else:
        raise TypeError(
            f"a {type(store).__name__} is not a repository: give a path, a URL or an open one.\n"
            "  Files come first, the store last"
        )
    with explain_errors(repo):
        return authorized_handle(with_current_containers(repo), authorize, settings, shared)


def _open_at(
    text: str, options: Mapping[str, Any], config: icechunk.RepositoryConfig | None, *, create: bool
) -> icechunk.Repository:
    """Open or create the repository at a path or URL."""
    if create:
        check_name(text)
    path = local_directory(text)
    scheme, where = ("file", str(path)) if path is not None else (urlsplit(text).scheme, text)
    storage = _storage(text, scheme, path, options)
    if create and scheme.startswith("http"):
        raise ReadOnlyError(f"{where} can only be read: no repository can be created over HTTP")
    if create or scheme in CLOUDS:
        defaults = icechunk.RepositoryConfig(
            storage=REMOTE if scheme in CLOUDS else None,
            num_updates_per_repo_info_file=LOG_ENTRIES if create else None,
        )
        config = defaults if config is None else defaults.merge(config)
    opener = icechunk.Repository.open_or_create if create else icechunk.Repository.open
    if path is not None and (path.is_file() or (not create and is_plain_zarr(path))):
        what = "file" if path.is_file() else "plain Zarr store"
        raise RepositoryNotFoundError(
            f"{where} is a {what}, not an Icechunk repository.\n"
            "  Files become one with intarsia.ingest(files, store); "
            "arrays are opened with intarsia.open(path, name) or intarsia.reader(path, name)",
            command="Name a repository, or a new directory",
        )
    with explain_errors(where):
        if path is None or not create or icechunk.Repository.exists(storage):
            repo = opener(storage, config)
            if scheme == "s3":
                remember_location(repo, text, options)
            return repo
        from intarsia.versions.locking import lock_directory, lock_file  # readers do not need it

        try:
            path.mkdir(parents=True, exist_ok=True)
            foreign = not lock_file(path).exists() and any(path.iterdir())
        except OSError as error:
            raise RepositoryError(f"cannot create a repository at {where}: {error}") from error
        if foreign:
            raise RepositoryError(
                f"{where} holds something else: a new Icechunk repository needs an empty directory.\n"
                "  Choose another one; functions that take files take them before the store"
            )
        with lock_directory(path):  # two processes may try to be the first
            return opener(storage, config)


WILDCARDS = "*?[]"


def check_name(location: str | os.PathLike[str]) -> None:
    """Refuse to put something new at a pattern of names, which was meant for the files.

    >>> check_name("daily/*.nc")
    Traceback (most recent call last):
    ...
    ValueError: 'daily/*.nc' is a pattern of names, so nothing new can be put there.
      Files come first, the store last
    """
    text = os.fspath(location)
    if set(WILDCARDS) & set(text) and not os.path.exists(text):
        raise ValueError(
            f"{text!r} is a pattern of names, so nothing new can be put there.\n"
            "  Files come first, the store last"
        )


def _shared_by(location: str) -> str:
    """The URL prefix of the sources that are read with the repository's options; if empty, all of them.

    A token for one web server must not be sent to another, whose name or port may begin in the same way.

    >>> "https://example.org.elsewhere/0.nc".startswith(_shared_by("https://example.org/archive"))
    False
    """
    parts = urlsplit(location)
    if "://" not in location or parts.scheme in ("file", "memory"):
        return ""
    return f"{parts.scheme}://{f'{parts.netloc}/' if parts.scheme.startswith('http') else ''}"


def describe(repo: icechunk.Repository | str) -> str:
    """The name of a repository in messages; a string is its own.

    >>> describe(open_repository("memory://", create=True))
    'the repository in memory'
    """
    if isinstance(repo, str):
        return repo
    path = storage_path(repo.storage)
    return path if path is not None else storage_text(repo.storage)


def is_repository(path: str | os.PathLike[str]) -> bool:
    """Whether a local directory looks like an Icechunk repository, without opening it.

    >>> is_repository("somewhere/else.zarr")
    False
    """
    folder = Path(path)
    has_refs = (folder / "repo").is_file() or (folder / "refs").is_dir()
    return has_refs and (folder / "snapshots").is_dir()


def is_url(text: str) -> bool:
    """Whether a string has a URL scheme for repositories.

    >>> is_url("s3://bucket/prefix"), is_url("data/store")
    (True, False)
    """
    return urlsplit(text).scheme in SCHEME_OPTIONS and "://" in text


def local_directory(text: str) -> Path | None:
    """The directory that a path or a `file://` URL means; None for other URLs."""
    if "://" in text:
        url = urlsplit(text)
        if url.scheme != "file":
            return None
        text = unquote(url.path)
    return Path(os.path.realpath(Path(text).expanduser()))


@contextmanager
def remove_new_store_on_failure(store: Any) -> Iterator[None]:
    """If a change fails in a store at a local path that was not there before, remove what it made.

    That is a repository without commits, or groups without content and empty directories: others may write to
    the same place.
    """
    path = local_directory(os.fspath(store)) if isinstance(store, str | os.PathLike) else None
    if path is None or path.exists():
        yield
        return
    above = [folder for folder in path.parents if not folder.exists()]
    try:
        yield
    except BaseException as error:
        from intarsia.logical.staging import clean_up  # readers do not need it

        clean_up(store, error, lambda: _remove_new_store(path, above))
        raise


def _remove_new_store(path: Path, above: Iterable[Path]) -> None:
    if is_repository(path):
        from intarsia.versions.locking import lock_directory

        with lock_directory(path):
            repo = open_repository(path)
            if repo.list_branches() == {"main"} and len(list(repo.ancestry(branch="main"))) == 1:
                shutil.rmtree(path)
    else:
        for folder, _, names in path.walk(top_down=False):
            file = folder / "zarr.json"
            alone = names == ["zarr.json"] and len(list(folder.iterdir())) == 1
            if alone and json.loads(file.read_bytes()).get("node_type") == "group":
                file.unlink()
            with suppress(OSError):  # it holds something
                folder.rmdir()
    for folder in above:
        with suppress(OSError):
            folder.rmdir()


def _storage(text: str, scheme: str, path: Path | None, options: Mapping[str, Any]) -> icechunk.Storage:
    """Icechunk's storage for a path or a URL."""
    if path is None and not is_url(text):
        raise ValueError(
            f"{text!r}: repositories are at paths or at {', '.join(s + '://' for s in SCHEME_OPTIONS)}.\n"
            "  For other storage, open it with icechunk and pass the icechunk.Repository"
        )
    check_options(text, scheme, options)
    _filter_warnings()
    if path is not None:
        return icechunk.local_filesystem_storage(str(path))
    bucket, prefix = urlsplit(text).netloc, urlsplit(text).path.strip("/")
    if scheme in CLOUDS:
        if not bucket or not prefix:
            raise ValueError(f"{text!r}: give a bucket and a prefix in it, {scheme}://bucket/prefix")
        return CLOUDS[scheme](bucket, prefix, options)
    if scheme == "memory":
        storage = icechunk.in_memory_storage()
        return _memories.setdefault(f"{bucket}/{prefix}", storage) if bucket or prefix else storage
    return icechunk.http_storage(text, headers=headers_of(options) or None)


@cache
def _filter_warnings() -> None:
    """Silence warnings that help nobody, once, unless the user has set a filter."""
    if "ICECHUNK_LOG" not in os.environ:
        icechunk.set_logs_filter(LOGS_FILTER)


def _s3(bucket: str, prefix: str, options: Mapping[str, Any]) -> icechunk.Storage:
    """S3 and its relatives."""
    return icechunk.s3_storage(bucket=bucket, prefix=prefix, **s3_options(options))


def _gs(bucket: str, prefix: str, options: Mapping[str, Any]) -> icechunk.Storage:
    """Google Cloud Storage; missing options come from the environment, as in Google's own programs."""
    arguments = {k: v for k, v in options.items() if k not in ("endpoint_url", "allow_http")}
    config = cloud_config(options, "google_base_url")
    return icechunk.gcs_storage(bucket=bucket, prefix=prefix, config=config, **arguments)


def _az(container: str, prefix: str, options: Mapping[str, Any]) -> icechunk.Storage:
    """Azure Blob Storage; missing options come from the environment, as in Azure's own programs."""
    arguments = {k: v for k, v in options.items() if k not in ("endpoint_url", "allow_http")}
    account = arguments.pop("account", None) or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ValueError(
            f"'az://{container}/{prefix}': say whose container it is, with the option account= or the "
            "environment variable AZURE_STORAGE_ACCOUNT_NAME"
        )
    config = cloud_config(options)
    return icechunk.azure_storage(
        account=account, container=container, prefix=prefix, config=config, **arguments
    )


CLOUDS = {"s3": _s3, "gs": _gs, "az": _az}


def clock_is_behind(error: icechunk.IcechunkError) -> bool:
    """Whether Icechunk refuses a commit only because this machine's clock is behind another writer's."""
    return any(words in error.message for words in CLOCK)


def versions_text(repo: icechunk.Repository | str) -> str:
    """Which versions a repository has, to add to a message; its branches and tags if they can be listed."""
    names = ""
    if not isinstance(repo, str):
        with suppress(icechunk.IcechunkError):
            branches, tags = (", ".join(sorted(each)) for each in (repo.list_branches(), repo.list_tags()))
            names = f"Branches: {branches}; tags: {tags or 'none'}; "
    return f".\n  {names}{advice('intarsia.history', 'intarsia log')} lists the versions"


def translate_error(error: icechunk.IcechunkError, repo: icechunk.Repository | str) -> Exception:
    """Our exception for one of Icechunk's; its first line is the cause, not the call chain.

    >>> raise translate_error(icechunk.StorageError("no space left on device"), "data/store")
    Traceback (most recent call last):
    ...
    intarsia.errors.RepositoryError: data/store: no space left on device
      The disk is full: make room, then try again.
    """
    where, cause = describe(repo), error.message.split("\n\ncontext:")[0].strip()
    if isinstance(error, icechunk.RepositoryNotFoundError):
        return RepositoryNotFoundError(
            f"there is no Icechunk repository at {where}.\n"
            "  Create one with intarsia.open_repository(store, create=True)",
            command="intarsia create makes one",
        )
    if missing := REF_NOT_FOUND.fullmatch(cause):
        return VersionNotFoundError(f"{where} has no branch or tag {missing[1]!r}{versions_text(repo)}")
    impossible = "invalid snapshot id" in cause.lower()  # for which Icechunk has no class
    if impossible or isinstance(error, icechunk.RefNotFoundError | icechunk.SnapshotNotFoundError):
        return VersionNotFoundError(f"{where}: {cause}{versions_text(repo)}")
    if isinstance(error, icechunk.ReadOnlyError):
        return ReadOnlyError(f"{where} can only be read: {cause}")
    message = " ".join([error.message, *getattr(error, "__notes__", ())])
    return RepositoryError(f"{where}: {cause}{storage_hint(message)}")


@contextmanager
def explain_errors(repo: icechunk.Repository | str | None) -> Iterator[None]:
    """Turn Icechunk's errors about a repository, or a place of this name, into ours; None if there is none.

    Conflicts are not: they are handled separately.
    """
    if repo is None:
        yield
        return
    try:
        yield
    except icechunk.ConflictError:
        raise
    except icechunk.IcechunkError as error:
        raise translate_error(error, repo) from error
    except BaseException as error:
        if not has_panicked(error):
            raise
        raise RepositoryError(
            f"{describe(repo)}: Icechunk cannot make sense of a file of this repository.\n"
            "  The file is damaged: use a copy, or an older version"
        ) from error
