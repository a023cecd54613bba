"""Transactions: everything inside is one commit, or nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import icechunk

from intarsia import array
from intarsia._icechunk import safe_store, writing
from intarsia.errors import ConcurrentUpdateError
from intarsia.versions.backoff import Backoff
from intarsia.versions.commit import Commit
from intarsia.versions.conflict import Ground, clashes, hidden_writes
from intarsia.versions.failures import explained, translated
from intarsia.versions.forks import Share, merge_forks
from intarsia.versions.locking import commit_lock
from intarsia.versions.repository import RepositoryLike, open_repository

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from intarsia.array import LogicalArray

__all__ = ["Transaction", "settle", "transaction"]


class Transaction:
    """Changes of any number of arrays that become one commit; made by `intarsia.transaction`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="two arrays at once") as tx:
    ...     for name in ("a", "b"):
    ...         tx.create(name, shape=(4,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> tx.snapshot_id == repo.lookup_branch("main")
    True
    """

    def __init__(self, commit: Commit, backoff: Backoff) -> None:
        self._commit, self._backoff = commit, backoff
        self._session: icechunk.Session | None = None
        self._store: icechunk.IcechunkStore | None = None
        self._base = ""
        self._snapshot_id: str | None = None
        self._merged: dict[str, set[tuple[int, ...]]] = {}
        self._grounds: list[Ground] = []

    @property
    def repo(self) -> icechunk.Repository:
        """The repository."""
        return self._commit.repo

    @property
    def branch(self) -> str:
        """The branch that the commit goes to."""
        return self._commit.branch

    @property
    def session(self) -> icechunk.Session:
        """Icechunk's session; its other calls may be mixed with ours, but leave the commit to us."""
        if self._session is None:
            raise RuntimeError("the transaction has not begun: use it in a with statement")
        return self._session

    @property
    def store(self) -> icechunk.IcechunkStore:
        """The zarr store to write to; threads may share it, unlike `session.store`."""
        if self._store is None:
            self._store = safe_store(self.session.store)
        return self._store

    @property
    def snapshot_id(self) -> str | None:
        """The commit's snapshot; None before it, or if nothing was changed."""
        return self._snapshot_id

    def create(self, path: str = "", **fields: Any) -> LogicalArray:
        """A new logical array; takes what `intarsia.create` takes."""
        return array.create(self.store, path, **fields)

    def open(self, path: str = "") -> LogicalArray:
        """A logical array, for reading and writing."""
        return array.open(self.store, path, mode="r+")

    def merge(self, *forks: Share | icechunk.ForkSession) -> None:
        """Take in what workers wrote into shares (see `LogicalArray.fork_for`), or into Icechunk's forks.

        All are checked first: work that overlaps, that leaves its share, that was given out for another
        layout of the array, or whose chunks were written since, here or by a commit of others, raises
        `ForkError`, and nothing is merged.
        """
        merge_forks(self.repo, self.session, forks, self._merged)

    def build_on(self, ground: Ground) -> None:
        """Refuse to commit over changes of something that was read, even if none of our writes is lost."""
        self._grounds.append(ground)

    def __enter__(self) -> Self:
        if self._session is not None:
            raise RuntimeError("a transaction is used once: begin another one for more changes")
        with explained(self._commit.where):
            self._session = self.repo.writable_session(self.branch)
        self._base = self._session.snapshot_id
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # Nothing was committed, and the session is given up. It is asked nothing any more: after Ctrl-C
            # its writes are still on their way, and discard_changes may wait for them for ever.
            if isinstance(error, icechunk.IcechunkError) and not isinstance(error, icechunk.ConflictError):
                raise translated(error, self._commit.where) from error
            return
        session = self.session
        if session.read_only:  # the user committed it himself
            self._snapshot_id = session.snapshot_id
        elif session.has_uncommitted_changes:
            self._snapshot_id = settle(self._commit, session, self._base, self._backoff, self._grounds)


def settle(
    commit: Commit,
    session: icechunk.Session,
    base: str,
    backoff: Backoff,
    grounds: Sequence[Ground] = (),
) -> str:
    """Commit a session that began at `base`, over what others committed since, if nobody loses a write.

    Otherwise, or if others changed one of the `grounds`, nothing is committed and `ConcurrentUpdateError`
    names what changed.
    """
    with explained(commit.where):
        for attempt in backoff.tries():
            with commit_lock(commit.repo):  # from the second attempt on, no writer of this host is faster
                if attempt:
                    _rebase(commit, session, base, grounds)
                try:
                    return commit.make(session, since=base)
                except icechunk.ConflictError:
                    continue
    raise ConcurrentUpdateError(commit.message, commit.branch, [f"the branch moved {backoff.attempts} times"])


def _rebase(commit: Commit, session: icechunk.Session, base: str, grounds: Sequence[Ground]) -> None:
    """Put the session's changes on top of the branch, or raise."""
    tip = commit.repo.lookup_branch(commit.branch)
    try:
        theirs = commit.repo.diff(from_snapshot_id=base, to_snapshot_id=tip)
    except icechunk.InvalidInputError:
        raise ConcurrentUpdateError(
            commit.message, commit.branch, [f"the branch was reset to {tip}, where {base} is unknown"]
        ) from None
    changed = clashes(session.status(), theirs)
    if not changed:
        try:
            with writing(session):
                session.rebase(icechunk.ConflictDetector())
        except icechunk.RebaseFailedError as failed:
            changed = [f"{conflict.path}: {conflict.conflict_type}" for conflict in failed.conflicts]
        else:
            changed = hidden_writes(commit.repo, session, base)
            for ground in grounds:
                changed += ground.changed_until(commit.repo, session.snapshot_id)
    if changed:
        raise ConcurrentUpdateError(commit.message, commit.branch, changed)


def transaction(
    repo: RepositoryLike,
    branch: str = "main",
    message: str = "",
    metadata: Mapping[str, Any] | None = None,
    *,
    backoff: Backoff | None = None,
) -> Transaction:
    """Begin a transaction: a `with` block whose changes are one commit on a branch.

    An exception inside commits nothing. If others committed meanwhile, and neither side's writes would be
    lost, the changes go on top of theirs; otherwise `ConcurrentUpdateError` names what changed, and nothing
    is committed. Reads inside are of the snapshot that the transaction began with.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="first year") as tx:
    ...     array = tx.create("t", shape=(0, 4), chunks=(1, 4), dtype="i2")
    ...     array.append([[1, 2, 3, 4]], codecs=["gzip"])
    >>> intarsia.open(repo, "t")[...].tolist()
    [[1, 2, 3, 4]]
    """
    opened = open_repository(repo)
    commit = Commit(opened, branch, message or "intarsia transaction", dict(metadata or {}))
    return Transaction(commit, backoff or Backoff())
