"""The lock that lets several processes on one host commit to a local repository."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

import icechunk

from intarsia._compat import storage_path
from intarsia.errors import LockTimeoutError, RepositoryError

LOCK_SECONDS = 600.0
"""How long to wait for other writers; a commit takes well under a second, so after this something hangs."""

POLL_SECONDS = 0.01
"""Seconds between checks whether the lock is free: less than a commit takes."""


LOCK_NAME = ".intarsia.lock#0"
"""The lock file, inside the repository.

Everybody who reaches the repository, by any link or mount, reaches its lock. Icechunk does not see it: its
storage layer takes a name that ends in # and digits for a file that is still being written, which no listing
shows. So a directory that holds nothing else is clean enough for a new repository, and garbage collection
never touches it.
"""


def lock_file(path: Path) -> Path:
    """The lock file of the repository in a directory.

    >>> lock_file(Path("/data/store")).parent.name
    'store'
    """
    return Path(os.path.realpath(path)) / LOCK_NAME  # one name, however the repository was reached


_directories: WeakKeyDictionary[icechunk.Repository, Path] = WeakKeyDictionary()


def directory_of(repo: icechunk.Repository) -> Path | None:
    """The directory of a local repository; None for others.

    Icechunk keeps a relative path as it was given, and still finds the repository after the current directory
    has changed. So the path is made absolute, and remembered, when the repository is first seen.
    """
    cached = _directories.get(repo)
    if cached is not None:
        return cached
    stored = storage_path(repo.storage)
    if stored is None:
        return None
    path = Path(os.path.realpath(stored))
    # One of the repository's snapshots tells whether this is its directory.
    if not os.path.isabs(stored) and not (path / "snapshots" / repo.lookup_branch("main")).is_file():
        raise RepositoryError(
            f"icechunk opened this repository with the relative path {stored!r}, but the current directory "
            "has changed since, so neither it nor its lock can be found.\n"
            "  Open it with intarsia.open_repository(path), or give icechunk an absolute path"
        )
    _directories[repo] = path
    return path


@contextmanager
def commit_lock(store: icechunk.Repository, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the right to commit to a repository.

    Icechunk's commits to a local file system are not safe between processes. Every commit through intarsia
    holds this lock, a file in the repository; hold it around your own commits. It protects cooperating
    writers on one host. Object stores need no lock, and get none.

    Args:
        store: The open repository.
        timeout: How many seconds to wait for the lock before `LockTimeoutError` is raised.

    >>> import icechunk, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.versions.commit_lock(repo):
    ...     pass  # session.commit("by my own hands")
    """
    path = directory_of(store)
    if path is None:
        yield
        return
    with lock_directory(path, timeout):
        yield


@contextmanager
def lock_directory(path: Path, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of the repository in a directory, which must exist; the repository need not."""
    file = lock_file(path)
    # A thread uses one object per file, so that it may take the lock again while it holds it.
    held: WeakValueDictionary[Path, _LockFile] = vars(_held).setdefault("locks", WeakValueDictionary())
    lock = held.get(file)
    if lock is not None and not lock.closed and lock.process == os.getpid():
        _acquire(lock, path, timeout)
        yield
        return
    try:
        lock = held[file] = _open_lock(path, file)
    except OSError as error:
        raise RepositoryError(
            f"cannot write to the repository {path}: {file} cannot be made ({error.strerror}).\n"
            "  Writers need write permission for the repository"
        ) from error
    try:
        _acquire(lock, path, timeout)
        yield
    finally:
        lock.close()


class _LockFile(io.FileIO):
    """An open lock file. Its lock ends when it is closed, at the latest with the last reference to it.

    So nothing is left taken if Ctrl-C comes between its acquisition and the block that releases it.
    """

    acquired = False

    def __init__(self, file: Path, mode: str) -> None:
        self.process = os.getpid()
        super().__init__(file, mode)

    def close(self) -> None:
        # A process that was forked meanwhile shares the lock: closing the file here alone would not end it,
        # and that process must not end it at all.
        if self.acquired and self.process == os.getpid():
            from filelock import unlock_descriptor

            self.acquired = False
            unlock_descriptor(self.fileno())
        super().close()

    __del__ = close


def _open_lock(path: Path, file: Path) -> _LockFile:
    """Everybody who may write to the repository's directory may lock it."""
    with suppress(FileNotFoundError):
        return _LockFile(file, "r+b")
    try:
        lock = _LockFile(file, "xb")
    except FileExistsError:  # somebody made it just now
        return _LockFile(file, "r+b")
    file.chmod(0o644 | path.stat().st_mode & 0o022)
    return lock


def _acquire(lock: _LockFile, path: Path, timeout: float) -> None:
    from filelock import lock_descriptor  # readers need no lock

    deadline = time.monotonic() + timeout
    while not lock.acquired:
        lock.acquired = lock_descriptor(lock.fileno(), blocking=False)
        if not lock.acquired:
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"no commit to {path} in {timeout:g} seconds: another process holds {lock.name}.\n"
                    "  Find it (fuser, lsof) and see what it waits for; the lock ends with the process"
                )
            time.sleep(POLL_SECONDS)


_held = threading.local()
"""The lock files that each thread has open; only the code that holds a lock keeps it alive."""
