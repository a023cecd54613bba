"""Opening a logical array: in any zarr store, or in a repository at any of its versions."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

import icechunk

from intarsia import array
from intarsia.errors import ReadOnlyError, RepositoryNotFoundError
from intarsia.versions.failures import explained
from intarsia.versions.repository import describe, open_repository
from intarsia.versions.storage import Location, is_url

if TYPE_CHECKING:
    from intarsia.array import LogicalArray

__all__ = ["as_repository", "moment", "open", "session_at"]


def open(
    store: Any,
    path: str = "",
    *,
    mode: str = "r",
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> LogicalArray:
    """Open a logical array in a zarr store or group, or in an Icechunk repository.

    A repository (an `icechunk.Repository`, or the path or URL of one) is opened for reading, at the tip of
    the branch `main` unless `branch`, `tag`, `snapshot_id` or `as_of` says otherwise; `as_of` takes a time,
    alone or with a branch, in UTC unless it says otherwise. To write there, use `intarsia.transaction`.
    Other stores take the mode `"r"` or `"r+"`.

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
    if mode not in ("r", "r+"):
        raise ValueError(f"mode {mode!r} is not 'r' or 'r+'; to make a new array use intarsia.create")
    versioned = any(v is not None for v in (branch, tag, snapshot_id, as_of))
    if isinstance(store, icechunk.Session):
        store = store.store
    repo = as_repository(store)
    if repo is None:
        if versioned:
            raise TypeError(
                "branch, tag, snapshot_id and as_of need an Icechunk repository, and this is "
                f"{store if isinstance(store, str | os.PathLike) else type(store).__name__!r}"
            )
        return array.open(store, path, mode=mode)
    if mode != "r":
        raise ReadOnlyError(
            f"{describe(repo)} is a repository: changes need a commit.\n"
            "  with intarsia.transaction(repo, message=…) as tx: array = tx.open(path)"
        )
    session = session_at(repo, branch=branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of)
    with explained(describe(repo)):
        return array.open(session.store, path)


def as_repository(store: Any) -> icechunk.Repository | None:
    """The repository that is, or is at, `store`; None if that is something else."""
    if isinstance(store, icechunk.Repository):
        return open_repository(store)
    if not isinstance(store, str | os.PathLike):
        return None
    text = os.fspath(store)
    if "://" in text and not is_url(text):
        return None
    if not is_url(text) or text.startswith("file://"):
        place = Location.parse(text, {})
        assert place.path is not None
        if not ((place.path / "repo").is_file() or (place.path / "refs").is_dir()):
            return None  # told apart by looking, as Icechunk would make the directory
    try:
        return open_repository(text)
    except RepositoryNotFoundError:
        return None


def moment(when: datetime.datetime | str) -> datetime.datetime:
    """A point in time, in UTC; taken as UTC where no zone is given.

    >>> moment("2024-05-01").isoformat()
    '2024-05-01T00:00:00+00:00'
    """
    try:
        parsed = datetime.datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError as error:
        raise ValueError(
            f"{when!r} is not a point in time: give a datetime, or text such as '2024-05-01' or "
            "'2024-05-01T12:30'"
        ) from error
    if parsed.tzinfo is None:
        return parsed.replace(tzinfo=datetime.UTC)
    return parsed.astimezone(datetime.UTC)


def session_at(
    repo: icechunk.Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> icechunk.Session:
    """A read-only session at one version of a repository; the tip of `main` by default."""
    if sum(v is not None for v in (branch or as_of, tag, snapshot_id)) > 1:
        raise TypeError("give one of branch, tag and snapshot_id; only branch goes together with as_of")
    with explained(describe(repo)):
        if tag is not None:
            return repo.readonly_session(tag=tag)
        if snapshot_id is not None:
            return repo.readonly_session(snapshot_id=snapshot_id)
        if as_of is not None:
            return repo.readonly_session(branch or "main", as_of=moment(as_of))
        return repo.readonly_session(branch or "main")
