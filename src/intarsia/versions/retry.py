"""Repeating a transaction until it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.errors import ConcurrentUpdateError
from intarsia.versions.backoff import Backoff
from intarsia.versions.repository import RepositoryLike, open_repository
from intarsia.versions.transaction import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from intarsia.versions.transaction import Transaction

__all__ = ["retry"]


def retry(
    repo: RepositoryLike,
    change: Callable[[Transaction], object],
    *,
    branch: str = "main",
    message: str = "",
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Call `change(tx)` in a transaction, again from the start whenever others changed what it builds on.

    Returns the id of the snapshot; that of the branch if nothing was changed. An exception of `change` ends
    it and commits nothing.

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
    opened, waits = open_repository(repo), backoff or Backoff()
    changed: list[str] = []
    for _ in waits.tries():
        attempt = transaction(opened, branch, message, metadata, backoff=waits)
        try:
            with attempt as tx:
                change(tx)
        except ConcurrentUpdateError as error:
            changed = error.changed
            continue
        return attempt.snapshot_id or attempt.session.snapshot_id
    raise ConcurrentUpdateError(message, branch, [*changed, f"(gave up after {waits.attempts} attempts)"])
