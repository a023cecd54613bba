"""Where something is, and which version of it is meant: from what people pass to a store.

Also logical arrays in sessions: finding one that may not exist, telling one from another, forking one.
"""

import datetime
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import icechunk
import zarr
from zarr.errors import ContainsArrayError
from zarr.storage import StorePath

from intarsia._icechunk import safe_store
from intarsia.codecs.runtime_options import default_decision
from intarsia.engine.reader import Reader
from intarsia.errors import (
    NotLogicalArrayError,
    ReadOnlyError,
    RepositoryNotFoundError,
    VersionNotFoundError,
    argument,
)
from intarsia.logical import opening
from intarsia.logical.hierarchy import open_group, session_store
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.opening import Readers
from intarsia.manifest.manifest import Manifest
from intarsia.versions.authorization import Allowed, store_of
from intarsia.versions.repository import (
    describe,
    explain_errors,
    is_repository,
    is_url,
    local_directory,
    open_repository,
    versions_text,
)

SNAPSHOT_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{20}")
"""Twelve bytes in Crockford's base 32; digits alone could be a time as well."""


@dataclass(frozen=True, slots=True)
class Version:
    """Which version of a repository is meant; by default the tip of `main`.

    >>> Version(branch="main").is_explicit, Version().is_explicit
    (True, False)
    """

    branch: str | None = None
    """The tip of a branch; with a time, the branch as it was then."""

    tag: str | None = None

    snapshot_id: str | None = None

    as_of: datetime.datetime | str | None = None
    """A time, on `main` unless a branch is named; in UTC unless it says otherwise."""

    @property
    def is_explicit(self) -> bool:
        """Whether the caller chose a version."""
        return self != LATEST

    def session(self, repo: icechunk.Repository) -> icechunk.Session:
        """A session that shows this version, for reading; Icechunk refuses contradictions."""
        branch = self.branch or ("main" if self.tag is None and self.snapshot_id is None else None)
        as_of = None if self.as_of is None else parse_time(self.as_of)
        with explain_errors(repo):
            return repo.readonly_session(branch, tag=self.tag, snapshot_id=self.snapshot_id, as_of=as_of)


LATEST = Version()
"""The tip of `main`."""


@dataclass(frozen=True, slots=True)
class ResolvedStore:
    """What a source turned out to be."""

    store: Any
    """Anything that zarr takes as a store, or a group; for a repository, one version of it, for reading."""

    repo: icechunk.Repository | None = None
    """The repository; None if there are no versions to choose from."""

    snapshot_id: str = ""
    """The version of the repository that the store shows."""


def resolve_store(
    source: Any,
    version: Version = LATEST,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ResolvedStore:
    """The store behind a source, at the chosen version, authorised to read what it refers to.

    A source is a repository, or the path or URL of one; or something without versions to choose from: a
    session, a transaction, a store, a group, or the path or URL of plain Zarr.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> resolve_store(repo).snapshot_id == repo.lookup_branch("main")
    True
    >>> resolve_store({}, Version(tag="v1"))
    Traceback (most recent call last):
    ...
    TypeError: only an Icechunk repository takes tag=, but this is 'dict'
    """
    repo = as_repository(source, authorize, storage_options)
    if repo is not None:
        session = version.session(repo)
        return ResolvedStore(store_of(session, repo), repo, session.snapshot_id)
    given = asdict(version) | {"authorize": authorize or None, "storage_options": storage_options or None}
    refuse_without_repository(source, [name for name, value in given.items() if value is not None])
    source = session_store(source)
    return ResolvedStore(os.fspath(source) if isinstance(source, os.PathLike) else safe_store(source))


def refuse_without_repository(store: Any, names: Iterable[str]) -> None:
    """Refuse arguments that need an Icechunk repository; the store is none."""
    if names := ", ".join(map(argument, names)):
        this = store if isinstance(store, str | os.PathLike) else repr(type(store).__name__)
        raise TypeError(f"only an Icechunk repository takes {names}, but this is {this}")


def open(
    store: Any,
    path: str = "",
    *,
    mode: str = "r",
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
) -> LogicalArray:
    """Open a logical array in a zarr store or group, or in an Icechunk repository.

    A repository (an `icechunk.Repository`, or the path or URL of one) is opened for reading, at the tip of
    the branch `main` unless `branch`, `tag`, `snapshot_id` or `as_of` says otherwise; `as_of` takes a time,
    alone or with a branch, in UTC unless it says otherwise. To write there, use `intarsia.transaction`.
    Other stores take the `mode` `"r"` or `"r+"`.

    Args:
        store: A zarr store or group, a path or URL, or an Icechunk repository or session.
        path: Where the logical array is in it.

    A repository may refer to chunks in files elsewhere. `authorize` says which of them it may read: `True`
    for all of them, or some URL prefixes. `storage_options` says how to reach the repository and the files.
    Both are as in `intarsia.open_repository`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
    >>> _ = intarsia.append(repo, "t", [3, 4])
    >>> intarsia.open(repo, "t")[...].tolist()
    [1, 2, 3, 4]
    >>> intarsia.open(repo, "t", snapshot_id=tx.snapshot_id)[...].tolist()
    [1, 2]
    """
    opened = resolve_store(store, Version(branch, tag, snapshot_id, as_of), authorize, storage_options)
    if opened.repo is None:
        return opening.open(opened.store, path, mode=mode)
    if mode != "r":
        raise ReadOnlyError(
            f"{describe(opened.repo)} is a repository: changes need a commit.\n"
            "  with intarsia.transaction(repo, message=…) as tx: array = tx.open(path)"
        )
    with explain_errors(opened.repo):
        return opening.open(opened.store, path)


def reader(
    store: Any,
    path: str = "",
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Reader | LogicalArray | Readers:
    """Read any Zarr array with the engine of logical arrays: in threads, with few steps per chunk.

    `store` is a zarr array, or a store, group, path or URL with the array at `path`; for a group you get a
    dict of all arrays in it and below, by path. In a repository, `branch`, `tag`, `snapshot_id` or `as_of`
    chooses the version, as in `intarsia.open`; `authorize` and `storage_options` are as in `open_repository`.
    It reads formats 3 and 2, shards, nullable data and all of zarr's stores. What intarsia does not read
    itself is left to zarr, and `intarsia.explain` says so. A logical array is returned as it is.

    >>> import numpy as np, zarr, intarsia
    >>> z = zarr.create_array({}, shape=(4, 6), chunks=(2, 3), dtype="int32", zarr_format=2)
    >>> z[...] = np.arange(24).reshape(4, 6)
    >>> intarsia.reader(z)[1:3, ::4].tolist()
    [[6, 10], [12, 16]]
    """
    opened = resolve_store(store, Version(branch, tag, snapshot_id, as_of), authorize, storage_options)
    with explain_errors(opened.repo):
        return opening.reader(opened.store, path)


def as_repository(
    store: Any, authorize: Allowed = None, storage_options: Mapping[str, Any] | None = None
) -> icechunk.Repository | None:
    """The repository that is `store`, or is at that path or URL; None if it is something else."""
    if isinstance(store, icechunk.Repository):
        return open_repository(store, authorize=authorize, storage_options=storage_options)
    if not isinstance(store, str | os.PathLike):
        return None
    text = os.fspath(store)
    if "://" in text and not is_url(text):
        return None
    directory = local_directory(text)
    if directory is not None and not is_repository(directory):
        return None  # checked by looking, because Icechunk would make the directory
    try:
        return open_repository(text, authorize=authorize, storage_options=storage_options)
    except RepositoryNotFoundError:
        return None


def parse_time(when: datetime.datetime | str) -> datetime.datetime:
    """A point in time, in UTC; taken as UTC if no zone is given.

    >>> parse_time("2024-05-01").isoformat()
    '2024-05-01T00:00:00+00:00'
    """
    try:
        parsed = datetime.datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError as error:
        raise ValueError(
            f"{when!r} is not a point in time: write it as '2024-05-01' or '2024-05-01T12:30'"
        ) from error
    if parsed.tzinfo is None:
        return parsed.replace(tzinfo=datetime.UTC)
    return parsed.astimezone(datetime.UTC)


def find_snapshot(repo: icechunk.Repository, version: str | datetime.datetime) -> str:
    """The snapshot id for a tag, a branch, a snapshot id or a time; the first of these that exists.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> find_snapshot(repo, "main") == repo.lookup_branch("main")
    True
    """
    if isinstance(version, datetime.datetime):
        return Version(as_of=version).session(repo).snapshot_id
    if version in repo.list_tags():  # names first: 20 digits look like a snapshot id too
        return repo.lookup_tag(version)
    if version in repo.list_branches():
        return repo.lookup_branch(version)
    if SNAPSHOT_ID.fullmatch(version):
        return version
    try:
        when = parse_time(version)
    except ValueError:
        raise VersionNotFoundError(
            f"{describe(repo)} has no version {version!r}{versions_text(repo)}"
        ) from None
    return Version(as_of=when).session(repo).snapshot_id


def group_at(store: Any, path: str, mode: str = "r") -> LogicalArrayHandle | None:
    """The logical array at a path in a session or store, or None; a damaged one is an error."""
    try:
        return LogicalArrayHandle.load(open_group(session_store(store), path.strip("/"), mode))
    except (ContainsArrayError, FileNotFoundError, NotLogicalArrayError):
        return None


def manifest_at(session: icechunk.Session, path: str) -> Manifest | None:
    """The manifest of the logical array at `path`, or None."""
    logical = group_at(session, path)
    return None if logical is None else logical.manifest


def group_to_edit(session: icechunk.Session, path: str) -> LogicalArrayHandle:
    """The logical array at `path` in a writable session."""
    logical = group_at(session, path, "r+")
    if logical is None:
        raise NotLogicalArrayError(
            f"there is no logical array at {path!r} on this branch.\n"
            "  Create it in a transaction first: tx.create(path, shape=…, chunks=…, dtype=…)",
            command="Create it first: intarsia create STORE PATH --shape … --chunks … --dtype …",
        )
    return logical


def group_in_fork(logical: LogicalArrayHandle, fork: icechunk.ForkSession) -> LogicalArrayHandle:
    """The same logical array, with its run-time options, in a new fork of its session; nothing is read."""
    store_path = StorePath(safe_store(fork.store), logical.group.path)
    group = zarr.Group(zarr.AsyncGroup(logical.group.metadata, store_path))
    return LogicalArrayHandle(group, logical.manifest, logical.members.live, default_decision())


def node_at(session: icechunk.Session, path: str) -> str | None:
    """Icechunk's id of the node at a path, which changes if the node is recreated; None if there is none."""
    try:
        return session.get_node_id("/" + path.strip("/"))
    except icechunk.NotFoundError:
        return None
