"""What Icechunk's errors mean to the caller: said in our words, with what to do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import icechunk

from intarsia.errors import ReadOnlyError, RepositoryError, RepositoryNotFoundError, VersionNotFoundError
from intarsia.words import storage_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clock_is_behind", "explained", "translated"]

CLOCK = ("invalid snapshot timestamp ordering", "update timestamp is invalid")
"""What Icechunk says of a change that is older, by this machine's clock, than the one before it."""


def clock_is_behind(error: icechunk.IcechunkError) -> bool:
    """Whether Icechunk refuses a commit only because this machine's clock is behind another writer's."""
    return any(words in error.message for words in CLOCK)


def translated(error: icechunk.IcechunkError, where: str) -> Exception:
    """Our exception for one of Icechunk's; the first line is the cause, not the call chain.

    >>> raise translated(icechunk.StorageError("no space left on device"), "data/store")
    Traceback (most recent call last):
    ...
    intarsia.errors.RepositoryError: data/store: no space left on device
      The disk is full: make room, then try again.
    """
    cause = error.message.split("\n\ncontext:")[0].strip()
    if isinstance(error, icechunk.RepositoryNotFoundError):
        return RepositoryNotFoundError(
            f"there is no Icechunk repository at {where}.\n"
            "  Create one with intarsia.open_repository(location, create=True)"
        )
    if isinstance(error, icechunk.RefNotFoundError | icechunk.SnapshotNotFoundError):
        return VersionNotFoundError(f"{where}: {cause}")
    if isinstance(error, icechunk.ReadOnlyError):
        return ReadOnlyError(f"{where} can only be read: {cause}")
    known = " ".join([error.message, *getattr(error, "__notes__", ())])
    return RepositoryError(f"{where}: {cause}{storage_hint(known)}")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn Icechunk's errors into ours, but for conflicts, which have their own way of handling."""
    try:
        yield
    except icechunk.ConflictError:
        raise
    except icechunk.IcechunkError as error:
        raise translated(error, where) from error
