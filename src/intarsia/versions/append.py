"""Appending from many processes at once: upload the data once, repeat only the edit of the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import icechunk

from intarsia.array import append as appending
from intarsia.array.box import Box
from intarsia.array.encode import write_box
from intarsia.array.logical import chosen_codecs
from intarsia.array.member import Encoding
from intarsia.array.source import Source
from intarsia.array.write import as_values
from intarsia.errors import ConcurrentUpdateError
from intarsia.versions.backoff import Backoff
from intarsia.versions.commit import Commit
from intarsia.versions.failures import explained
from intarsia.versions.locking import commit_lock
from intarsia.versions.lookup import frame_to_edit
from intarsia.versions.repository import RepositoryLike, open_repository
from intarsia.versions.transaction import settle
from intarsia.versions.upload import Upload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from intarsia.array.frame import Frame
    from intarsia.array.member import AnyArray
    from intarsia.casting import Casting
    from intarsia.codecs import CodecLike
    from intarsia.versions.upload import Incoming

__all__ = ["append", "append_apart"]


def append(
    repo: RepositoryLike,
    path: str,
    data: Any,
    axis: int = 0,
    *,
    codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    merge: bool = True,
    casting: Casting = "same_kind",
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Append to a logical array in a repository, safely beside other writers; returns the snapshot's id.

    When it returns, the data is committed, once. Appends of several processes are all kept, one after the
    other, in the order in which they commit. If nobody else writes, the last region grows when its encoding
    is equal, so that a year of daily appends is one member; if somebody does, the data becomes a region of
    its own (`array.consolidate()` joins them later). The other arguments are those of `LogicalArray.append`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     _ = tx.create("t", shape=(0, 2), chunks=(1, 2), dtype="i4")
    >>> for day in range(3):
    ...     snapshot = intarsia.append(repo, "t", [[day, day]], codecs=["gzip"])
    >>> array = intarsia.open(repo, "t")
    >>> array[:, 0].tolist(), len(array.members)
    ([0, 1, 2], 1)
    """
    opened = open_repository(repo)
    commit = Commit(opened, branch, message or f"append to {path}", dict(metadata or {}))
    with explained(commit.where):
        session = opened.writable_session(branch)
        frame = frame_to_edit(session, path)
        chosen = chosen_codecs(codecs, data)
        encoding = Encoding(None if chosen is None else tuple(chosen), chunks, shards)
        addition = _addition(frame, as_values(frame.manifest, data, casting), axis)
        if addition.new == addition.old:
            return session.snapshot_id
        if merge and appending.neighbour_to_grow(frame, addition, encoding) is not None:
            appending.append(frame, addition.values, encoding, axis=axis)
            try:
                return settle(commit, session, session.snapshot_id, Backoff(attempts=2))
            except ConcurrentUpdateError:
                pass  # others append too: from here on, the data is uploaded apart from the manifest
        incoming = _InMemory(addition.values, addition.axis)
        return append_apart(commit, path, incoming, encoding, backoff or Backoff())


@dataclass(frozen=True)
class _InMemory:
    """Data in the memory of this process."""

    values: Any
    axis: int

    def addition(self, frame: Frame) -> appending.Addition:
        return _addition(frame, as_values(frame.manifest, self.values), self.axis)

    def write(
        self, fork: icechunk.ForkSession, member: AnyArray | None, addition: appending.Addition
    ) -> None:
        if member is not None:
            box = Box.sized(member.shape)
            values = addition.data_in(addition.grown.elements(addition.rest))
            write_box(Source(member.basename, member), box, values)


def append_apart(commit: Commit, path: str, incoming: Incoming, encoding: Encoding, backoff: Backoff) -> str:
    """Upload the data as a member that nothing refers to, then repeat the edit until it is committed."""
    upload: Upload | None = None
    base = commit.repo.lookup_branch(commit.branch)
    for _ in backoff.tries():
        if upload is None:
            session = commit.repo.writable_session(commit.branch)
            frame = frame_to_edit(session, path)
            upload = Upload.of(session, frame, incoming, encoding)
        with commit_lock(commit.repo):  # while it is held, no writer of this host can be faster
            session = commit.repo.writable_session(commit.branch)
            frame = frame_to_edit(session, path)
            addition = incoming.addition(frame)
            if not upload.fits(session, addition):
                upload = None
                continue
            upload.attach(session, frame, addition)
            try:
                return commit.make(session, since=base)
            except icechunk.ConflictError:
                continue
    raise ConcurrentUpdateError(
        commit.message, commit.branch, [f"{path}: others were faster in {backoff.attempts} attempts"]
    )


def _addition(frame: Frame, values: Any, axis: int) -> appending.Addition:
    return appending.checked(frame.manifest, values, axis)
