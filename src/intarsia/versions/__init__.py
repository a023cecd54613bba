"""One coherent, versioned unit: logical arrays in Icechunk repositories."""

from intarsia.versions.append import append
from intarsia.versions.backoff import Backoff
from intarsia.versions.locking import commit_lock
from intarsia.versions.open import open
from intarsia.versions.repository import open_repository
from intarsia.versions.transaction import Transaction, transaction

__all__ = [
    "Backoff",
    "Transaction",
    "append",
    "commit_lock",
    "open",
    "open_repository",
    "transaction",
]
