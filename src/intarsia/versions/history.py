"""What happened to logical arrays, commit by commit, and between any two versions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from intarsia.errors import ManifestError
from intarsia.versions.commit import users_metadata
from intarsia.versions.compare import ArrayChange, State, compare
from intarsia.versions.conflict import Changes
from intarsia.versions.repository import RepositoryLike, describe, explained, open_repository
from intarsia.versions.version import Version, snapshot_named

if TYPE_CHECKING:
    import icechunk


@dataclass(frozen=True)
class HistoryEntry:
    """One commit, and what it did to logical arrays.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create", metadata={"by": "me"}) as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> entry = intarsia.history(repo, "t")[0]
    >>> entry.message, entry.metadata, [str(region) for region in entry.changes[0].regions]
    ('create', {'by': 'me'}, ['added [0:2] (gzip)'])
    """

    snapshot_id: str
    """Of the commit."""

    parent_id: str | None
    """Of the commit before it."""

    written_at: datetime.datetime
    """When."""

    message: str
    """For people."""

    metadata: dict[str, Any]
    """The user's own."""

    changes: tuple[ArrayChange, ...]
    """One for each logical array that the commit changed."""

    @property
    def bytes_written(self) -> int:
        """Encoded bytes that the commit stored."""
        return sum(change.bytes_written for change in self.changes)


def history(
    repo: RepositoryLike,
    path: str | None = None,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    limit: int | None = None,
) -> list[HistoryEntry]:
    """The commits that changed a logical array, or any without a path; the newest first.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     _ = tx.create("t", shape=(0,), chunks=(2,), dtype="u1")
    >>> for day in range(2):
    ...     _ = intarsia.append(repo, "t", [day, day], message=f"day {day}")
    >>> [(entry.message, entry.changes[0].added) for entry in intarsia.history(repo, "t")]
    [('day 1', (((2, 4),),)), ('day 0', (((0, 2),),)), ('create', ())]
    """
    opened = open_repository(repo)
    entries: list[HistoryEntry] = []
    with explained(describe(opened)):
        tip = Version(branch, tag, snapshot_id).session(opened).snapshot_id
        for entry in _walk(opened, tip, path):
            if limit is not None and len(entries) >= limit:
                break
            entries.append(entry)
    return entries


def _walk(repo: icechunk.Repository, tip: str, path: str | None) -> Iterator[HistoryEntry]:
    ancestry = list(repo.ancestry(snapshot_id=tip))
    for info, parent in pairwise(ancestry):
        changes = Changes.of(repo.diff(from_snapshot_id=parent.id, to_snapshot_id=info.id))
        before = repo.readonly_session(snapshot_id=parent.id)
        after = repo.readonly_session(snapshot_id=info.id)
        if path is None:
            groups = sorted(changes.all_groups())
        else:
            group = "/" + path.strip("/")
            groups = [group] if changes.touches(group) else []
        states = [(_state(before, group), _state(after, group), group) for group in groups]
        compared = [
            compare(old, new, changes.chunks.get(group, {}))
            for old, new, group in states
            if path is not None or old.logical is not None or new.logical is not None
        ]
        if path is not None and not any(compared):
            continue
        yield HistoryEntry(
            info.id, parent.id, info.written_at, info.message, users_metadata(info.metadata), tuple(compared)
        )


def _state(session: icechunk.Session, path: str) -> State:
    """A state in the history; one whose manifest is damaged is told as if the array were not there."""
    try:
        return State.of(session, path)
    except ManifestError:
        return State(session, path, None)


def diff(
    repo: RepositoryLike,
    path: str,
    before: str | datetime.datetime,
    after: str | datetime.datetime = "main",
) -> ArrayChange:
    """What differs between two versions of a logical array, however far apart.

    A version is a tag, a branch, a snapshot's id, or a time on the branch `main`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> _ = intarsia.append(repo, "t", [3, 4], codecs=["gzip"])
    >>> intarsia.diff(repo, "t", tx.snapshot_id).added
    (((2, 4),),)
    """
    opened = open_repository(repo)
    with explained(describe(opened)):
        sessions = [opened.readonly_session(snapshot_id=snapshot_named(opened, v)) for v in (before, after)]
        return compare(State.of(sessions[0], path), State.of(sessions[1], path))
