"""The lock that lets several processes of one host commit to a local repository."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from intarsia._compat import storage_path
from intarsia.errors import LockTimeoutError, RepositoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import icechunk
    from filelock import BaseFileLock

__all__ = ["LOCK_SECONDS", "commit_lock", "lock_file", "locked"]

LOCK_SECONDS = 600.0
"""How long to wait for other writers; a commit takes well under a second, so this means something hangs."""

POLL_SECONDS = 0.01
"""How often to look whether the lock is free: less than a commit takes."""


def lock_file(path: Path) -> Path:
    """The lock file of the repository in a directory: beside it, since Icechunk owns what is inside.

    >>> lock_file(Path("/data/store")).name
    'store.lock'
    """
    real = Path(os.path.realpath(path))  # one file, by whichever way the repository was reached
    return real.with_name(real.name + ".lock")


@contextmanager
def commit_lock(repo: icechunk.Repository, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the right to commit to a repository.

    Icechunk's commits to a local file system are not safe between processes. Every commit through intarsia
    holds this lock, a file beside the repository; hold it around commits of your own. It protects
    cooperating writers of one host. Object stores need no lock, and get none.

    >>> import icechunk, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.commit_lock(repo):
    ...     pass  # session.commit("by my own hands")
    """
    path = storage_path(repo.storage)
    if path is None:
        yield
        return
    with locked(Path(path), timeout):
        yield


@contextmanager
def locked(path: Path, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of the repository in a directory, whether it exists already or not."""
    file = lock_file(path)
    # A thread uses one object a file, so that it may take the lock again while it holds it.
    lock = _of_thread.locks.get(file) or FileLock(file, mode=_lock_mode(path))
    try:
        lock.acquire(timeout=timeout, poll_interval=POLL_SECONDS)
    except Timeout:
        raise LockTimeoutError(
            f"no commit to {path} was possible for {timeout:g} seconds: another process holds {file}.\n"
            "  Find it (fuser, lsof) and see what it waits for; the lock ends with the process"
        ) from None
    except OSError as error:
        raise RepositoryError(
            f"cannot write to the repository {path}: "
            f"its lock file {file} cannot be made ({error.strerror}).\n"
            "  Writers need write permission for the repository and for the directory that it is in"
        ) from error
    _of_thread.locks[file] = lock
    try:
        yield
    finally:
        lock.release()
        if not lock.is_locked:
            _of_thread.locks.pop(file, None)


class _OfThread(threading.local):
    """The locks that a thread holds."""

    def __init__(self) -> None:
        self.locks: dict[Path, BaseFileLock] = {}


_of_thread = _OfThread()


def _lock_mode(path: Path) -> int:
    """Permissions of the lock file: whoever may write to the repository's directory may lock it."""
    existing = path if path.exists() else path.parent
    writable = existing.stat().st_mode & 0o022 if existing.exists() else 0
    return 0o644 | writable
