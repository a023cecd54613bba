"""Committing, safely, beside other writers.

`Commit` makes one commit, under the lock of a local repository, and finds it again if nobody acknowledged it.
`settle` is the one loop by which everything gets committed: a change is prepared first, however long that
takes, and then committed, or moved on top of what others have committed meanwhile, or prepared again.
"""

import datetime
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import icechunk

from intarsia._icechunk import writing
from intarsia.errors import ConcurrentUpdateError, RepositoryError
from intarsia.versions.locking import commit_lock
from intarsia.versions.repository import clock_is_behind, describe, explained

METADATA_KEY = "intarsia"
"""Where in a commit's metadata the commit says whose it is."""

CLOCK_SECONDS = 60.0
"""How far the last writer's clock may be ahead: more than those of machines that set them ever differ."""

CLOCK_TICK = 0.001
"""The least to wait: clocks are read to the microsecond, but rounded."""


def users_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A commit's metadata as the user gave it.

    >>> users_metadata({"author": "me", "intarsia": {"commit": "0f…"}})
    {'author': 'me'}
    """
    return {key: value for key, value in metadata.items() if key != METADATA_KEY}


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often to try, and how long to wait in between.

    The wait is drawn from 0 to a bound that doubles, so that writers who collided once do not collide again.

    >>> list(Backoff(attempts=2, first_wait=0.0).tries())
    [0, 1]
    """

    attempts: int = 100
    """How often, in all."""

    first_wait: float = 0.02
    """The longest first wait, in seconds: about the time that a commit takes."""

    longest_wait: float = 2.0
    """Where doubling ends, in seconds."""

    def tries(self) -> Iterator[int]:
        """Count attempts; waits before every one but the first."""
        for attempt in range(self.attempts):
            if attempt:
                bound = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
                time.sleep(random.uniform(0, bound))
            yield attempt


@dataclass
class Commit:
    """What is to be committed where; holds the mark by which its snapshot is recognised.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> session = repo.writable_session("main")
    >>> _ = intarsia.create(session.store, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> base, commit = session.snapshot_id, Commit(repo, "main", "first")
    >>> commit.make(session) == commit.find(since=base) == repo.lookup_branch("main")
    True
    """

    repo: icechunk.Repository
    """The repository."""

    branch: str
    """The branch that is to move."""

    message: str
    """For people; whoever prepares a change may say it anew, since only then it is known what changes."""

    metadata: Mapping[str, Any] | None = None
    """The user's own."""

    backoff: Backoff | None = None
    """How often it is tried; None for what is usual."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    """Unique among the commits of a moment; short, since every later commit stores it again."""

    @property
    def where(self) -> str:
        return describe(self.repo)

    def make(self, session: icechunk.Session, since: str | None = None) -> str:
        """Commit a session; returns the snapshot's id.

        Raises `icechunk.ConflictError` if others were faster. A commit whose acknowledgement was lost is
        found in the history, so it is never made twice nor reported as failed; `since` is the snapshot that
        the first attempt began with, where there were several.
        """
        base = since or session.snapshot_id
        with commit_lock(self.repo):
            try:
                return self._in_time(session)
            except icechunk.SessionStateError:
                raise
            except icechunk.ConflictError:
                # The others may be ourselves. If that cannot be found out, this must not go on as a conflict:
                # whoever tries again would commit twice.
                made = self.find(base)
                if made is None:
                    raise
            except icechunk.IcechunkError as error:
                try:
                    made = self.find(base)
                except icechunk.IcechunkError:
                    made = None  # the storage cannot tell either: the first error says why
                if made is None:
                    error.add_note(f"while committing to branch {self.branch!r} of {self.where}")
                    raise
        return made

    def _in_time(self, session: icechunk.Session) -> str:
        """Commit a session; if the last writer's clock is ahead of ours, when ours has caught up.

        Icechunk wants every commit to be younger than the one before it. Until then nobody with this clock
        could commit, so waiting with the lock in hand keeps nobody from anything.
        """
        metadata = {**(self.metadata or {}), METADATA_KEY: {"commit": self.mark}}
        last = time.monotonic() + CLOCK_SECONDS
        while True:
            try:
                with writing(session):
                    return session.commit(self.message, metadata)
            except icechunk.IcechunkError as error:
                if not clock_is_behind(error):
                    raise
                ahead = self._newest(session) - datetime.datetime.now(datetime.UTC)
                wait = max(ahead.total_seconds(), CLOCK_TICK)
                if time.monotonic() + wait > last:
                    raise RepositoryError(
                        f"{self.where}: nothing can be committed to branch {self.branch!r} yet. Its last "
                        f"commit was made {wait:,.0f} seconds from now, by the clock of this machine.\n"
                        "  Set the clock right that is wrong: this one, or that of the last writer"
                    ) from error
                time.sleep(wait)

    def _newest(self, session: icechunk.Session) -> datetime.datetime:
        """The time that a commit has to be younger than."""
        parent = next(iter(self.repo.ancestry(snapshot_id=session.snapshot_id)))
        return max(parent.written_at, next(iter(self.repo.ops_log())).updated_at)

    def find(self, since: str) -> str | None:
        """The snapshot of this very commit, among those after `since`; None if it never happened."""
        for snapshot in self.repo.ancestry(branch=self.branch):
            if snapshot.id == since:
                return None
            mark = snapshot.metadata.get(METADATA_KEY)
            if isinstance(mark, dict) and mark.get("commit") == self.mark:
                return snapshot.id
        return None


class Prepared(Protocol):
    """A change that is made, but not committed: what takes long, encoding and uploading, is behind it."""

    @property
    def session(self) -> icechunk.Session:
        """Holds the change, on top of the snapshot that it was made for."""

    def follow(self) -> list[str]:
        """Put the change on top of what others have committed since.

        If they changed what it is built on, that cannot be; then this is what they changed, in words.
        """


def settle(commit: Commit, prepare: Callable[[], Prepared | str], *, again: bool = True) -> str:
    """Commit what `prepare` makes, whatever others commit at the same time; returns the snapshot's id.

    When they changed what it is built on it is prepared again; or, unless `again`, `ConcurrentUpdateError`
    names what they changed, and nothing is committed. Where `prepare` finds nothing to change, it returns the
    snapshot in which all is as it should be.
    """
    prepared: Prepared | None = None
    base, changed, backoff = "", list[str](), commit.backoff or Backoff()
    with explained(commit.where):
        for _ in backoff.tries():
            if prepared is None:
                made = prepare()
                if isinstance(made, str):
                    return made
                prepared, base = made, base or made.session.snapshot_id
            with commit_lock(commit.repo):  # while it is held, no writer of this host can be faster
                # A commit that conflicts has written everything but the branch; to look first is cheaper.
                moved = commit.repo.lookup_branch(commit.branch) != prepared.session.snapshot_id
                changed = prepared.follow() if moved else []
                if not changed:
                    try:
                        return commit.make(prepared.session, since=base)
                    except icechunk.ConflictError:
                        continue
            if not again:
                raise ConcurrentUpdateError(commit.message, commit.branch, changed)
            prepared = None
    changed = [*changed, f"others were faster in {backoff.attempts} attempts"]
    raise ConcurrentUpdateError(commit.message, commit.branch, changed)
