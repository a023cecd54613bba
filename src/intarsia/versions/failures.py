"""What Icechunk's errors mean to the caller: said in our words, with what to do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import icechunk

from intarsia.errors import ReadOnlyError, RepositoryError, RepositoryNotFoundError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clock_is_behind", "explained", "translated"]

CLOCK = ("invalid snapshot timestamp ordering", "update timestamp is invalid")
"""What Icechunk says of a change that is older, by this machine's clock, than the one before it."""

HINTS = (
    (
        CLOCK,
        "The clock of this machine is behind that of the last writer's: set one of them right, "
        "or wait until it has caught up.",
    ),
    (
        ("snapshot timestamp is invalid",),
        "The clock of this machine is too far from that of the storage: set it right.",
    ),
    (
        ("connect", "dispatch failure", "timed out", "timeout", "dns"),
        "Is the server up, and the endpoint right?",
    ),
    (("nosuchbucket", "bucket does not exist"), "Create the bucket first, or correct the URL."),
    (
        (
            "accessdenied",
            "access denied",
            "invalidaccesskeyid",
            "signaturedoesnotmatch",
            "forbidden",
            "credential",
        ),
        "Check the credentials: access_key_id and secret_access_key, or the AWS_… environment variables.",
    ),
    (
        ("no space left", "os error 28", "quota", "os error 122"),
        "The disk is full: make room, then try again.",
    ),
    (
        ("file too large", "os error 27"),
        "The file system or a limit of the process allows no file of that size.",
    ),
    (("permission denied", "os error 13"), "The process may not write there: check owner and permissions."),
    (("read-only file system", "os error 30"), "The file system is mounted read-only."),
    (
        ("src size is incorrect", "unknown frame descriptor", "corrupt", "flatbuffer", "icechunk header"),
        "A file of the repository is damaged, or was cut off on its way: try again, or use a copy.",
    ),
    (
        ("range request not supported",),
        "The web server ignores the header Range: use one that answers it with 206 Partial Content.",
    ),
)


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
    known = " ".join([error.message, *getattr(error, "__notes__", ())]).lower()
    hint = next((hint for words, hint in HINTS if any(word in known for word in words)), None)
    return RepositoryError(f"{where}: {cause}" + (f"\n  {hint}" if hint else ""))


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn Icechunk's errors into ours, but for conflicts, which have their own way of handling."""
    try:
        yield
    except icechunk.ConflictError:
        raise
    except icechunk.IcechunkError as error:
        raise translated(error, where) from error
