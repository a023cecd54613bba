"""Transactions: everything inside becomes one commit, or none of it does; and their repetition until then."""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import icechunk

from intarsia._icechunk import IcechunkStore, safe_store
from intarsia.casting import Casting
from intarsia.codecs.decisions import DecisionLike
from intarsia.codecs.runtime_options import PaddingFunction
from intarsia.logical import opening
from intarsia.logical.logical_array import LogicalArray
from intarsia.versions.commit import Backoff, Commit, ReadPrecondition, SessionChanges, commit_with_retries
from intarsia.versions.forks import WriteShare, merge_shares
from intarsia.versions.repository import RepositoryLike, explain_errors, open_repository


class Transaction:
    """Changes to any number of arrays that become one commit; made by `intarsia.transaction`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="two arrays at once") as tx:
    ...     for name in ("a", "b"):
    ...         tx.create(name, shape=(4,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> tx.snapshot_id == repo.lookup_branch("main")
    True
    """

    snapshot_id: str | None = None
    """The snapshot of the commit; None before the commit, or if nothing was changed."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._session: icechunk.Session | None = None
        self._base = ""
        self._preconditions: list[ReadPrecondition] = []

    @property
    def repo(self) -> icechunk.Repository:
        """The repository."""
        return self._commit.repo

    @property
    def session(self) -> icechunk.Session:
        """Icechunk's session; you may call its methods too, but leave the commit to the transaction."""
        if self._session is None:
            raise RuntimeError("the transaction has not begun: use it in a with statement")
        return self._session

    @cached_property
    def store(self) -> IcechunkStore:
        """The zarr store to write to; threads may share it, unlike `session.store`."""
        shared: IcechunkStore = safe_store(self.session.store)
        return shared

    def create(self, path: str = "", **fields: Any) -> LogicalArray:
        """Create a logical array; takes the arguments of `intarsia.create`."""
        return opening.create(self.store, path, **fields)

    def open(self, path: str = "") -> LogicalArray:
        """Open a logical array for reading and writing."""
        return opening.open(self.store, path, mode="r+")

    def merge(self, *shares: WriteShare) -> None:
        """Merge what workers wrote into their shares: see `LogicalArray.fork_for`.

        All are checked first. Work raises `ForkError` if it overlaps, exceeds its share, was handed out for
        another layout of the array, or if its chunks were written since, here or by others' commits. Then
        nothing is merged.
        """
        merge_shares(self.session, shares)

    def build_on(self, precondition: ReadPrecondition) -> None:
        """Refuse to commit if others change what was read, even if none of our writes would be lost."""
        self._preconditions.append(precondition)

    def __enter__(self) -> Self:
        return self.begin()

    def begin(self) -> Self:
        """Open the session; a `with` statement does this."""
        if self._session is not None:
            raise RuntimeError("a transaction is used once: begin another one for more changes")
        with explain_errors(self.repo):
            self._session = self.repo.writable_session(self._commit.branch)
        self._base = self._session.snapshot_id
        return self

    def changes(self) -> SessionChanges | str:
        """The changes to commit; if there are none, the snapshot that the session shows."""
        session = self.session
        if session.read_only or not session.has_uncommitted_changes:  # users may have committed it themselves
            return session.snapshot_id
        return SessionChanges(self._commit, session, self._base, self._preconditions)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and (self.session.read_only or self.session.has_uncommitted_changes):
                self.snapshot_id = commit_with_retries(self._commit, self.changes, again=False)
        finally:
            # The session will not be committed any more, so no handle may write to it. Nor is it used here:
            # after Ctrl-C its writes are still on their way, and discard_changes may wait for them for ever.
            if "store" in vars(self):
                self.store.give_up()
        if isinstance(error, icechunk.IcechunkError):
            with explain_errors(self.repo):
                raise error


def transaction(
    store: RepositoryLike,
    *,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> Transaction:
    """Begin a transaction: a `with` block whose changes are one commit on a branch.

    If the block raises an exception, nothing is committed. If others committed meanwhile, and neither side's
    writes would be lost, the changes go on top of theirs; otherwise `ConcurrentUpdateError` names what
    changed, and nothing is committed. Reads inside the block see the snapshot that the transaction began
    with, and its own changes.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="first year") as tx:
    ...     array = tx.create("t", shape=(0, 4), chunks=(1, 4), dtype="i2")
    ...     array.append([[1, 2, 3, 4]], codecs=["gzip"])
    >>> intarsia.open(repo, "t")[...].tolist()
    [[1, 2, 3, 4]]
    """
    text = message or "intarsia transaction"
    return Transaction(Commit(open_repository(store), branch, text, metadata, backoff))


def retry(
    store: RepositoryLike,
    change: Callable[[Transaction], object],
    *,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Call `change(tx)` in a transaction, and start again whenever others have changed what it builds on.

    Returns the id of the new snapshot, or of the branch's current one if nothing was changed. If `change`
    raises an exception, nothing is committed.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        change: The function, which is called with the transaction.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("n", shape=(1,), chunks=(1,), dtype="i8").add_region([(0, 1)], codecs=[], data=[41])
    >>> def count(tx):
    ...     array = tx.open("n")
    ...     array[0] = array[0] + 1
    >>> _ = intarsia.retry(repo, count, message="one more")
    >>> intarsia.open(repo, "n")[...].tolist()
    [42]
    """
    text = message or "intarsia transaction"
    return commit_change(Commit(open_repository(store), branch, text, metadata, backoff), change)


def commit_change(commit: Commit, change: Callable[[Transaction], object]) -> str:
    """Make a change in a transaction, as often as it takes, and return the snapshot id."""

    def prepare() -> SessionChanges | str:
        tx = Transaction(commit).begin()
        change(tx)
        return tx.changes()

    return commit_with_retries(commit, prepare)


def write(
    store: RepositoryLike,
    path: str,
    selection: Any,
    values: Any,
    *,
    cross_region_writes: bool = False,
    casting: Casting = "same_kind",
    decision: DecisionLike | None = None,
    padding: PaddingFunction | bytes | None = None,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Write values into a logical array in a repository, and return the snapshot id.

    When it returns, the values are committed, no matter what others do at the same time: if they move the
    region to another member, or write other parts of the same chunks, the write is repeated on the new state.
    `cross_region_writes`, `casting`, `decision` and `padding` are as in `LogicalArray.with_config`.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: Where the logical array is in the repository.
        selection: Where to write: anything that can go between the brackets of the array.
        values: The values to write; they are broadcast as in NumPy.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2, 3], codecs=["gzip"])
    >>> _ = intarsia.write(repo, "t", slice(1, 3), [8, 9])
    >>> intarsia.open(repo, "t")[...].tolist()
    [1, 8, 9]
    """

    def change(tx: Transaction) -> None:
        array = tx.open(path).with_config(
            cross_region_writes=cross_region_writes, casting=casting, decision=decision, padding=padding
        )
        array[selection] = values

    text = message or f"write to {path}"
    return retry(store, change, branch=branch, message=text, metadata=metadata, backoff=backoff)
