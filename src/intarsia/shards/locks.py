"""Locks between processes on parts of one shard, and which file systems can have slots.

The locks are on byte ranges of the shard file itself, far beyond its end, and belong to an open file
description. So two threads or processes that have each opened the file exclude one another, and a process
that dies releases its locks. A forked child would share the description, and keep its parent's locks after
the parent is dead; so files opened here are closed in the child. Only processes on one machine see the locks.
"""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from zarr.abc.store import Store
from zarr.storage import LocalStore

from intarsia.errors import SlotsUnsupportedError, argument

try:
    import fcntl
except ImportError:  # Windows, where the rest of the package works
    fcntl = None  # type: ignore[assignment]  # `supported` says so


REPLACEMENT = 1 << 61
"""Held by a process that replaces the file: one at a time."""

TURNSTILE = REPLACEMENT + 1
"""Passed by every process that wants a chunk, and held by one that wants to keep all writers out, so that a
steady stream of writers cannot keep a compaction waiting for ever."""

INDEX = REPLACEMENT + 2
CHUNKS = REPLACEMENT + 3

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of Linux: type, whence, start, length, process


def supported() -> bool:
    """Whether this platform has such locks.

    >>> supported()
    True
    """
    return hasattr(fcntl, "F_OFD_SETLKW") and hasattr(os, "pwrite")


_open: set[int] = set()
_opening = threading.RLock()


def open_for_locking(path: Path, flags: int) -> int:
    """A descriptor whose locks end with this process, regardless of its children; for `close_file`.

    >>> import tempfile; from pathlib import Path
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     close_file(open_for_locking(Path(file.name), os.O_RDONLY))
    """
    with _opening:
        fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
        _open.add(fd)
        return fd


def close_file(fd: int) -> None:
    """Close what `open_for_locking` opened."""
    with _opening:
        _open.discard(fd)
        os.close(fd)


def _let_go_in_child() -> None:
    if _open:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in _open:
            os.dup2(nothing, fd, inheritable=False)  # the number stays taken for code that still closes it
        os.close(nothing)
        _open.clear()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_let_go_in_child
    )


def _set(fd: int, kind: int, start: int, length: int, *, wait: bool = True) -> None:
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


@contextmanager
def _hold(fd: int, kind: int, start: int, length: int = 1) -> Iterator[None]:
    _set(fd, kind, start, length)
    try:
        yield
    finally:
        _set(fd, fcntl.F_UNLCK, start, length)


@contextmanager
def lock_chunks(fd: int, first: int, last: int, *, exclusive: bool) -> Iterator[None]:
    """Hold the chunks numbered `first` to `last`, for writing if `exclusive`, else for reading.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file, lock_chunks(file.fileno(), 0, 3, exclusive=True):
    ...     pass
    """
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    with ExitStack() as chunks:
        with _hold(fd, fcntl.F_RDLCK, TURNSTILE):
            chunks.enter_context(_hold(fd, kind, CHUNKS + first, last - first + 1))
        yield


def lock_index(fd: int, *, exclusive: bool) -> AbstractContextManager[None]:
    """Hold the index, which has one checksum for all chunks. Always taken after a lock on chunks.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file, lock_index(file.fileno(), exclusive=False):
    ...     pass
    """
    return _hold(fd, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK, INDEX)


@contextmanager
def lock_out_writers(fd: int) -> Iterator[None]:
    """Keep the shard as it is, to copy it and replace its file. Readers may continue.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file, lock_out_writers(file.fileno()):
    ...     pass
    """
    with _hold(fd, fcntl.F_WRLCK, REPLACEMENT), ExitStack() as chunks:
        with _hold(fd, fcntl.F_WRLCK, TURNSTILE):
            chunks.enter_context(_hold(fd, fcntl.F_RDLCK, CHUNKS, 0))  # 0: all that follow
        yield


def try_lock(fd: int) -> bool:
    """Lock everything without waiting, if nobody holds anything; held until the file is closed.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     try_lock(file.fileno())
    True
    """
    try:
        _set(fd, fcntl.F_WRLCK, REPLACEMENT, 0, wait=False)
    except (BlockingIOError, PermissionError):  # POSIX allows either
        return False
    return True


MOUNTS = Path("/proc/self/mountinfo")
"""Where Linux says what is mounted where."""

LOCAL = frozenset(
    {
        "bcachefs",
        "btrfs",
        "ecryptfs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "fuse.fuse-overlayfs",  # containers without root
        "fuseblk",  # a disk behind FUSE, such as with ntfs-3g
        "hfsplus",
        "jfs",
        "nilfs2",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "xfs",
        "zfs",
    }
)
"""File systems that belong to one machine only. For the countless others, the name does not tell."""


def local_root(store: Store) -> Path:
    """The directory of a store of local files; for any other store, `SlotsUnsupportedError` says why not.

    >>> local_root(LocalStore("data"))
    PosixPath('data')
    """
    if not supported():
        raise SlotsUnsupportedError(
            "slotted shards need pwrite and Linux's open file description locks, which this system lacks"
        )
    if isinstance(store, LocalStore):
        return store.root
    raise SlotsUnsupportedError(
        f"the array is in a {type(store).__name__}; slots are places in local files, but objects in memory, "
        "archives, repositories and object stores are only replaced as a whole.\n  Use a local directory; "
        "in an Icechunk repository, writers append: intarsia.append(repo, path, data, codecs=[...])"
    )


def refuse_network(directory: Path) -> None:
    """Raise `SlotsUnsupportedError` unless `directory` is on a file system that no other machine shares.

    >>> refuse_network(Path("/"))
    """
    kind = filesystem_type(directory)
    if kind not in LOCAL:
        raise SlotsUnsupportedError(
            f"{directory} is on {f'a {kind}' if kind else 'an unknown'} file system, which other machines "
            "may share, and they would not see our locks.\n  Write to a local disk and copy the compacted "
            f"shards; if no other machine writes there, pass {argument('any_filesystem', True)}"
        )


def filesystem_type(directory: Path) -> str | None:
    """The type of the file system that `directory`, or its nearest existing parent, is on; None if unknown.

    >>> filesystem_type(Path("/proc"))
    'proc'
    """
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    where = directory.resolve()
    best, kind = -1, None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(_unescaped(fields[4]))
        # If a directory has several mounts, the last one covers the others.
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split(" ")[0]
    return kind


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
