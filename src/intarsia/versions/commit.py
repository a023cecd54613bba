"""Committing safely alongside other writers.

`Commit` makes one commit, and finds it again if its acknowledgement is lost. `commit_with_retries` is the one
loop that commits everything: a change is first prepared, however long that takes, and then committed, under
the lock of a local repository, or rebased on what others have committed meanwhile, or prepared again.

`SessionChanges` knows whether others' commits take away what our changes build on. Icechunk compares changes
node by node and chunk by chunk. That is not enough: a write into a member is lost, without any conflict, if
someone else's manifest sends readers to another member. So the routing is checked, for our writes under their
manifest and for theirs under ours. `ReadPrecondition` defines, once, what "nothing changed" means.
"""

import datetime
import math
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol, Self

import icechunk

from intarsia._icechunk import writing
from intarsia.engine.prepared_member import object_shape
from intarsia.errors import ConcurrentUpdateError
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.manifest_diff import rebacked_boxes, region_part_in_chunk, rows_of
from intarsia.manifest.region_table import Row
from intarsia.versions.locking import commit_lock
from intarsia.versions.repository import clock_is_behind, explain_errors
from intarsia.versions.version import group_at, manifest_at, node_at

METADATA_KEY = "intarsia"
"""The key in a commit's metadata that holds its token."""

CLOCK_SECONDS = 60.0
"""Seconds that the last writer's clock may be ahead: more than clocks that are set ever differ."""

CLOCK_TICK = 0.001
"""The shortest wait: clocks are read to the microsecond, but rounded."""

type Written = Mapping[str, Iterable[tuple[int, ...]]]
"""The chunks written, by member."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often to try, and how long to wait in between.

    The wait is drawn from 0 to a bound that doubles, so that writers who collided once do not collide again.

    >>> list(Backoff(attempts=2, first_wait=0.0).tries())
    [0, 1]
    """

    attempts: int = 100
    """The number of attempts in all."""

    first_wait: float = 0.02
    """The bound of the first wait, in seconds: about as long as a commit takes."""

    longest_wait: float = 2.0
    """The bound at which doubling ends, in seconds."""

    def tries(self) -> Iterator[int]:
        """Count attempts, waiting before every one but the first."""
        for attempt in range(self.attempts):
            if attempt:
                bound = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
                time.sleep(random.uniform(0, bound))
            yield attempt


@dataclass
class Commit:
    """What to commit where, with the token that identifies its snapshot.

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
    """The message for people; preparing a change may replace it, since only then the change is known."""

    metadata: Mapping[str, Any] | None = None
    """The user's own metadata."""

    backoff: Backoff | None = None
    """How often it is tried; None for the default."""

    token: int = field(default_factory=lambda: secrets.randbits(48), init=False)
    """Unique among recent commits, and new in every copy; short, since every later commit stores it again."""

    def make(self, session: icechunk.Session, since: str | None = None) -> str:
        """Commit a session, and return the snapshot id; the caller holds the lock of the repository.

        Raises `icechunk.ConflictError` if others were faster. A commit whose acknowledgement was lost is
        found in the history, so it is never made twice nor reported as failed; `since` is the snapshot that
        the first of several attempts began with.
        """
        base = since or session.snapshot_id
        try:
            return self._in_time(session)
        except icechunk.IcechunkError as error:
            try:
                snapshot_id = self.find(base)
            except icechunk.IcechunkError as unknown:
                # Those who were faster may be ourselves. If that cannot be determined, this must not pass as
                # a conflict: another attempt would commit twice. Other errors say why the storage is silent.
                raise unknown if isinstance(error, icechunk.ConflictError) else error from None
            if snapshot_id is None:
                raise
        return snapshot_id

    def _in_time(self, session: icechunk.Session) -> str:
        """Commit a session; if the last writer's clock is ahead of ours, wait until ours has caught up.

        Icechunk requires every commit to be newer than the one before it. Until then nobody with this clock
        could commit, so waiting while holding the lock delays nobody.
        """
        metadata = {**(self.metadata or {}), METADATA_KEY: {"commit": self.token}}
        last = time.monotonic() + CLOCK_SECONDS
        while True:
            try:
                with writing(session):
                    return session.commit(self.message, metadata)
            except icechunk.IcechunkError as error:
                ahead = self._seconds_ahead(session) if clock_is_behind(error) else math.inf
                if time.monotonic() + ahead > last:
                    raise
                time.sleep(ahead)

    def _seconds_ahead(self, session: icechunk.Session) -> float:
        """How long it takes until a commit is later than those before it."""
        parent = next(iter(self.repo.ancestry(snapshot_id=session.snapshot_id)))
        newest = max(parent.written_at, next(iter(self.repo.ops_log())).updated_at)
        return max((newest - datetime.datetime.now(datetime.UTC)).total_seconds(), CLOCK_TICK)

    def find(self, since: str) -> str | None:
        """The snapshot of this very commit, among those after `since`; None if it never happened."""
        for snapshot in self.repo.ancestry(branch=self.branch):
            if snapshot.id == since:
                return None
            own_metadata = snapshot.metadata.get(METADATA_KEY)
            if isinstance(own_metadata, dict) and own_metadata.get("commit") == self.token:
                return snapshot.id
        return None


class PreparedChange(Protocol):
    """A change that is made but not committed: the slow work, encoding and uploading, is done."""

    @property
    def session(self) -> icechunk.Session:
        """The session that holds the change, on top of the snapshot that it was made for."""

    def rebase(self) -> list[str]:
        """Put the change on top of what others have committed since.

        If they changed what it builds on, this is impossible; then return what they changed, in words.
        """


def commit_with_retries(
    commit: Commit, prepare: Callable[[], PreparedChange | str | None], *, again: bool = True
) -> str:
    """Commit what `prepare` makes, no matter what others commit meanwhile, and return the snapshot id.

    If they change what it builds on, it is prepared again; or, unless `again`, `ConcurrentUpdateError` names
    what they changed, and nothing is committed. If `prepare` finds nothing to change, it returns the snapshot
    in which everything is as it should be; if others were faster than it, None, and it is called again.
    """
    prepared: PreparedChange | None = None
    base, changed, backoff = "", list[str](), commit.backoff or Backoff()
    with explain_errors(commit.repo):
        for _ in backoff.tries():
            if prepared is None:
                result = prepare()
                if isinstance(result, str):
                    return result
                if result is None:
                    continue
                prepared, base = result, base or result.session.snapshot_id
            with commit_lock(commit.repo):  # while it is held, no writer of this host can be faster
                # A commit that conflicts has written everything but the branch; looking first is cheaper.
                moved = commit.repo.lookup_branch(commit.branch) != prepared.session.snapshot_id
                try:
                    changed = prepared.rebase() if moved else []
                except _BranchResetError as reset:
                    changed = [str(reset)]
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


class _BranchResetError(Exception):
    """A branch no longer has the snapshot that a change builds on."""


@dataclass(frozen=True)
class Changes:
    """The changes in a session or between two snapshots, by path.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="first") as tx:
    ...     tx.create("a", shape=(4,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
    ...     sorted(Changes.of(tx.session.status()).groups)
    ['/', '/a']
    """

    groups: set[str]
    """Groups that are new or gone, or whose attributes, and so perhaps manifests, changed."""

    arrays: set[str]
    """Arrays that are new or gone, or have other metadata."""

    deleted: set[str]
    """Groups and arrays that are gone, even if there is a new one at the same path."""

    chunks: dict[str, set[tuple[int, ...]]]
    """The chunks written, by array."""

    @classmethod
    def of(cls, diff: icechunk.Diff) -> Self:
        groups = diff.new_groups | diff.updated_groups | diff.deleted_groups
        arrays = diff.new_arrays | diff.updated_arrays | diff.deleted_arrays
        chunks = {path: set(map(tuple, indices)) for path, indices in diff.updated_chunks.items()}
        return cls(groups, arrays, diff.deleted_groups | diff.deleted_arrays, chunks)

    @classmethod
    def between(cls, repo: icechunk.Repository, base: str, tip: str) -> Self:
        """Those of all commits after a snapshot up to another one, which must build on it."""
        try:
            return cls.of(repo.diff(from_snapshot_id=base, to_snapshot_id=tip))
        except icechunk.InvalidInputError as error:
            raise _BranchResetError(f"the branch was reset to {tip}, where {base} is unknown") from error

    @property
    def all_groups(self) -> set[str]:
        """Every group in which anything changed."""
        return self.groups | {str(PurePosixPath(path).parent) for path in self.arrays | self.chunks.keys()}

    def written_in(self, group: str) -> Written:
        """The chunks written, by the names of the arrays in a group."""
        paths = map(PurePosixPath, self.chunks)
        return {path.name: self.chunks[str(path)] for path in paths if str(path.parent) == group}

    def inside(self, nodes: set[str]) -> set[str]:
        """What changed of these nodes and below them."""
        changed = map(PurePosixPath, self.groups | self.arrays | self.chunks.keys())
        return {str(path) for path in changed if not nodes.isdisjoint(map(str, (path, *path.parents)))}

    def removed_under(self, theirs: "Changes") -> set[str]:
        """What one of two changed in nodes that the other removed, or both removed or made again.

        Icechunk does not notice that in a rebase.
        """
        return self.inside(theirs.deleted) | theirs.inside(self.deleted)


@dataclass(frozen=True)
class ReadPrecondition:
    """What a change has read and relies on: a box of a logical array as it was, including holes.

    It holds if the array is still the same node, the box has the same size, every part of it is still
    backed by the same place in the same member, or still by nothing, and no chunk that it shows was written.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(4,), chunks=(2,), dtype="u1").add_region([(0, 2)], codecs=[])
    >>> precondition = ReadPrecondition.of(repo.readonly_session("main"), "t", Box((0,), (2,)))
    >>> _ = intarsia.write(repo, "t", 1, 9)
    >>> precondition.violations_until(repo, repo.lookup_branch("main"))
    ['/t: [0:2] was written']
    """

    path: str
    """The path of the logical array from the root, such as /t."""

    node: str
    """Icechunk's id of its group."""

    base: str
    """The snapshot that was read."""

    manifest: Manifest
    """The layout then."""

    box: Box
    """The box that matters, in logical chunks."""

    @classmethod
    def of(
        cls, base: icechunk.Session, path: str, box: Box | None = None, manifest: Manifest | None = None
    ) -> Self:
        """A box of a logical array in a session, by default all of it; its manifest is read if needed."""
        node, manifest = node_at(base, path), manifest or manifest_at(base, path)
        assert node is not None
        assert manifest is not None
        if box is None:
            box = Box.sized(manifest.lattice)
        return cls("/" + path.strip("/"), node, base.snapshot_id, manifest, box)

    def violations_until(self, repo: icechunk.Repository, tip: str) -> list[str]:
        """What the commits up to a snapshot changed in the box, in words; empty if it holds."""
        if tip == self.base:
            return []
        written = Changes.between(repo, self.base, tip).written_in(self.path)
        return self.violations_in(repo.readonly_session(snapshot_id=tip), written)

    def violations_in(self, session: icechunk.Session, written: Written) -> list[str]:
        """The same for a session, in which these chunks, by member, were written since."""
        now = group_at(session, self.path) if node_at(session, self.path) == self.node else None
        if now is None:
            return [f"{self.path}: removed or recreated"]
        manifest, elements = self.manifest, self.manifest.elements(self.box)
        if now.manifest.elements(self.box) != elements or rebacked_boxes(manifest, now.manifest, [self.box]):
            return [f"{self.path}: {elements.text()} has another layout now"]
        changed = []
        for row in rows_of(manifest, written):
            name = manifest.members[row.member]
            if not row.layer and row.box.intersect(self.box) is not None:
                box = written_box(manifest, row, object_shape(now.members[name]), written[name], elements)
                if box is not None:
                    changed.append(f"{self.path}: {box.text()} was written")
        return changed


def written_box(
    manifest: Manifest,
    row: Row,
    size: tuple[int, ...],
    chunks: Iterable[tuple[int, ...]],
    elements: Box | None = None,
) -> Box | None:
    """The box around what a region shows of these chunks of its member, which are of this size.

    With `elements`, only chunks that show some of them count.
    """
    shown = [region_part_in_chunk(manifest, row, index, size) for index in chunks]
    parts = [part for part in shown if part is not None and (elements is None or part.intersect(elements))]
    return Box.around(parts) if parts else None


@dataclass(frozen=True)
class SessionChanges:
    """The changes in a session: they go on top of others' commits if nobody loses a write.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(4,), chunks=(2,), dtype="u1").add_region([(0, 4)], codecs=[])
    >>> session = repo.writable_session("main")
    >>> intarsia.open(session.store, "t", mode="r+")[0] = 1
    >>> theirs = intarsia.write(repo, "t", 2, 9)
    >>> changes = SessionChanges(Commit(repo, "main", "ours"), session, session.snapshot_id)
    >>> changes.rebase()
    []
    >>> changes.session.snapshot_id == theirs
    True
    """

    commit: Commit
    session: icechunk.Session
    base: str
    """The snapshot that the session began with."""

    preconditions: Sequence[ReadPrecondition] = ()
    """What was read: others must not have changed it, even if none of our writes would be lost."""

    def rebase(self) -> list[str]:
        """Put the changes on top of the branch, or say what others changed."""
        repo, session = self.commit.repo, self.session
        tip, ours = repo.lookup_branch(self.commit.branch), Changes.of(session.status())
        if removed := ours.removed_under(Changes.between(repo, self.base, tip)):
            return [f"{path}: removed or recreated" for path in sorted(removed)]
        try:
            with writing(session):
                session.rebase(icechunk.ConflictDetector())
        except icechunk.RebaseFailedError as failed:
            return [
                f"{each.path}: {each.conflict_type} {min(each.conflicted_chunks or [], default='')}".rstrip()
                for each in failed.conflicts
            ]
        changed = self._hidden_writes(ours)
        for precondition in self.preconditions:
            changed += precondition.violations_until(repo, session.snapshot_id)
        return changed

    def _hidden_writes(self, ours: Changes) -> list[str]:
        """Writes that would be invisible if the rebased session were committed.

        Either we wrote into members that others' manifests no longer show, or they wrote into members that
        ours no longer shows.
        """
        repo, tip = self.commit.repo, self.session.snapshot_id
        theirs = Changes.between(repo, self.base, tip)
        before = repo.readonly_session(snapshot_id=self.base)
        hidden = []
        for group in sorted(ours.all_groups & theirs.all_groups):
            old = manifest_at(before, group)
            if old is None:
                continue  # not a logical array: Icechunk's own check of nodes is enough
            new = manifest_at(self.session, group)
            written = (theirs if group in ours.groups else ours).written_in(group)
            boxes = [row.box for row in rows_of(old, written)]
            moved = boxes if new is None else rebacked_boxes(old, new, boxes)
            hidden += [f"{group}: {old.elements(box).text()} has another layout now" for box in moved]
        return hidden
