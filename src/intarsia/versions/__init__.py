"""One coherent, versioned unit: logical arrays in Icechunk repositories."""

from intarsia.versions.append import append
from intarsia.versions.backoff import Backoff
from intarsia.versions.collect import Collected, expire_and_collect
from intarsia.versions.compare import ArrayChange, RegionChange
from intarsia.versions.forks import Share
from intarsia.versions.history import HistoryEntry, diff, history
from intarsia.versions.locking import commit_lock
from intarsia.versions.open import open
from intarsia.versions.repository import open_repository
from intarsia.versions.restore import restore
from intarsia.versions.retry import retry
from intarsia.versions.rewrite import recode, write
from intarsia.versions.transaction import Transaction, transaction
from intarsia.versions.verify import verify

__all__ = [
    "ArrayChange",
    "Backoff",
    "Collected",
    "HistoryEntry",
    "RegionChange",
    "Share",
    "Transaction",
    "append",
    "commit_lock",
    "diff",
    "expire_and_collect",
    "history",
    "open",
    "open_repository",
    "recode",
    "restore",
    "retry",
    "transaction",
    "verify",
    "write",
]
