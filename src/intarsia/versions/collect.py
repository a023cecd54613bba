"""Forgetting old versions, and removing what no version refers to."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intarsia.errors import CutOffError
from intarsia.versions.failures import explained
from intarsia.versions.locking import commit_lock
from intarsia.versions.open import moment
from intarsia.versions.repository import RepositoryLike, describe, open_repository

if TYPE_CHECKING:
    import icechunk

__all__ = ["MINIMUM_AGE", "Collected", "expire_and_collect", "leftovers"]

MINIMUM_AGE = datetime.timedelta(hours=24)
"""How old a cut-off must be: longer than any writer takes from its first upload to its commit.

What a writer has uploaded is in no version until it commits, so nothing but its age tells it from garbage.
"""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed from a repository, or would be.

    >>> Collected(frozenset(), 2, 1, 0, 1024).is_empty
    False
    """

    expired: frozenset[str]
    """Ids of the snapshots that are no version any more."""

    chunks: int
    """Number of chunk files."""

    snapshots: int
    """Number of snapshot files."""

    other: int
    """Number of Icechunk's other files: its chunk manifests, attributes, transaction logs."""

    nbytes: int
    """Size of all of them."""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to remove."""
        return not (self.expired or self.chunks or self.snapshots or self.other)

    def __str__(self) -> str:
        return (
            f"{self.chunks} chunks, {self.snapshots} snapshots and {self.other} other files, "
            f"{self.nbytes:,} bytes"
        )


def expire_and_collect(
    repo: RepositoryLike,
    older_than: datetime.datetime | datetime.timedelta | str,
    *,
    force: bool = False,
) -> Collected:
    """Forget versions older than a time (or an age), and remove everything that no version refers to.

    The tips of branches and tags always stay. Uploads of writers that have not committed yet look like
    garbage, so a cut-off younger than 24 hours is refused unless `force` says that nobody is writing. Open
    readers of versions that are forgotten will fail.

    >>> import datetime, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> intarsia.expire_and_collect(repo, datetime.timedelta(days=30)).is_empty
    True
    >>> intarsia.expire_and_collect(repo, datetime.timedelta(hours=1))
    Traceback (most recent call last):
    ...
    intarsia.errors.CutOffError: ... is younger than 24 hours: ...
    """
    opened = open_repository(repo)
    now = datetime.datetime.now(datetime.UTC)
    cut_off = now - older_than if isinstance(older_than, datetime.timedelta) else moment(older_than)
    if cut_off > now - MINIMUM_AGE and not force:
        raise CutOffError(
            f"the cut-off {cut_off.isoformat(timespec='seconds')} is younger than 24 hours: what a writer "
            "has uploaded but not committed yet would be removed, and its commit would refer to nothing.\n"
            "  Give an older one, or, if nobody is writing: "
            "intarsia.expire_and_collect(repo, older_than, force=True)"
        )
    with explained(describe(opened)), commit_lock(opened):
        expired = opened.expire_snapshots(cut_off)
        summary = opened.garbage_collect(cut_off)
    return _collected(summary, frozenset(expired))


def leftovers(repo: RepositoryLike) -> Collected:
    """What no version refers to: remains of writers that were interrupted, or the uploads of busy ones."""
    opened = open_repository(repo)
    with explained(describe(opened)):
        summary = opened.garbage_collect(datetime.datetime.now(datetime.UTC), dry_run=True)
    return _collected(summary, frozenset())


def _collected(summary: icechunk.GCSummary, expired: frozenset[str]) -> Collected:
    return Collected(
        expired=expired,
        chunks=summary.chunks_deleted,
        snapshots=summary.snapshots_deleted,
        other=summary.manifests_deleted + summary.attributes_deleted + summary.transaction_logs_deleted,
        nbytes=summary.bytes_deleted,
    )
