"""Shard files: opening, creating and reading them so that no process sees a half-made one."""

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

from intarsia.codecs.shard_index import CHECKSUM, ENTRY, Table, checksum_of
from intarsia.errors import ChunkDecodeError, SlotsUnsupportedError
from intarsia.file_io import name_of, read_exactly, write_all
from intarsia.shards.locks import close_file, lock_index, open_for_locking, try_lock
from intarsia.shards.slots import SlotIndex, SlotLayout

FAR = 64 << 10
"""Places in an index that are this many bytes apart are better written one by one."""

CLOCK_TICK = 10**9
"""Nanoseconds within which two changes to a directory may have the same time; far less on Linux."""


@contextmanager
def open_existing(path: Path, *, write: bool) -> Iterator[int | None]:
    """A new descriptor of the file, so that its locks are its own; None if there is no file.

    >>> from pathlib import Path
    >>> with open_existing(Path("no-such-shard"), write=False) as fd:
    ...     fd is None
    True
    """
    try:
        fd = open_for_locking(path, os.O_RDWR if write else os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield fd
    finally:
        close_file(fd)


@contextmanager
def hold_existing(
    path: Path, lock: Callable[[int], AbstractContextManager[None]], *, write: bool
) -> Iterator[int | None]:
    """The file at `path`, locked, so that nobody replaces it; None if there is none.

    >>> from intarsia.shards.locks import lock_out_writers
    >>> with hold_existing(Path("no-such-shard"), lock_out_writers, write=True) as fd:
    ...     fd is None
    True
    """
    while True:
        with open_existing(path, write=write) as fd:
            if fd is None:
                yield None
                return
            with lock(fd):
                if is_current(fd, path):
                    yield fd
                    return


def is_current(fd: int, path: Path) -> bool:
    """Whether `path` still names the open file; a compaction may have put another in its place.

    >>> import tempfile; from pathlib import Path
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     is_current(file.fileno(), Path(file.name))
    True
    """
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def allocate(fd: int, offset: int, nbytes: int) -> None:
    """Have the file system reserve blocks if it can; a full disk is noticed here, before any write.

    Writes into reserved blocks hold the file's own lock for a shorter time.

    >>> import os, tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     allocate(file.fileno(), 0, 8192)
    ...     os.fstat(file.fileno()).st_size
    8192
    """
    try:
        os.posix_fallocate(fd, offset, nbytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def read_entries(fd: int, index: SlotIndex, numbers: Sequence[int] | None = None) -> tuple[Table, bool]:
    """The rows of some chunks, or of all, in the table of the open shard, and whether its checksum agrees.

    A checksum can only be checked on the whole index, which is locked meanwhile. Without one, no more is read
    than needed.
    """
    size = os.fstat(fd).st_size
    if size < index.nbytes:
        raise ChunkDecodeError(
            f"the shard {name_of(fd)} has {size} bytes, but its index alone needs {index.nbytes}"
        )
    start = index.start(size)
    rows = index.positions(numbers)
    if index.checksum or numbers is None:
        with lock_index(fd, exclusive=False) if index.checksum else contextlib.nullcontext():
            raw = read_exactly(fd, start, index.nbytes)
        return index.entries(raw)[rows], index.is_intact(raw)
    first, last = int(rows.min()), int(rows.max())
    raw = read_exactly(fd, start + first * ENTRY, (last - first + 1) * ENTRY)
    return index.entries(raw)[rows - first], True


def write_entries(fd: int, index: SlotIndex, entries: Mapping[int, tuple[int, int]]) -> None:
    """Change some entries of the index of the open shard.

    Without a checksum, each entry is one aligned write of 16 bytes, so writers of other chunks need no lock.
    With one, the index is locked.
    """
    start = index.start(os.fstat(fd).st_size)
    order: Literal["big", "little"] = "big" if index.big_endian else "little"
    rows = index.positions(list(entries)).tolist()
    raw = {
        row: offset.to_bytes(8, order) + length.to_bytes(8, order)
        for row, (offset, length) in zip(rows, entries.values(), strict=True)
    }
    if not index.checksum:
        for row, entry in sorted(raw.items()):
            write_all(fd, [entry], start + row * ENTRY)
        return
    with lock_index(fd, exclusive=True):
        stored = bytearray(read_exactly(fd, start, index.nbytes))
        for row, entry in raw.items():
            stored[row * ENTRY : (row + 1) * ENTRY] = entry
        view = memoryview(stored)
        view[-CHECKSUM:] = checksum_of(view[:-CHECKSUM])
        # The checksum comes last: a writer that dies leaves the whole change, none of it, or an old checksum,
        # which the next writer repairs. All in one write, if that is not much more than what has changed,
        # because other programs know no locks.
        first, last = min(raw) * ENTRY, (max(raw) + 1) * ENTRY
        if index.nbytes - last > FAR:
            write_all(fd, [view[first:last]], start + first)
            first = index.nbytes - CHECKSUM
        write_all(fd, [view[first:]], start + first)


@contextmanager
def new_file(path: Path) -> Iterator[tuple[Path, int]]:
    """A new file beside `path`, to be linked or renamed to it; Zarr readers do not look at it.

    Its temporary name is removed in the end. Until then it is locked, which tells `clear_leftovers` that
    somebody is at work here.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    fd = open_for_locking(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        try_lock(fd)
        yield partial, fd
    finally:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
        finally:  # its locks end with it, also if it is the shard by now and the disk has failed
            close_file(fd)


def create_shard_file(path: Path, layout: SlotLayout) -> None:
    """Make an empty slotted shard at `path`, unless there is a file already; it appears atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = layout.index.encode_numbered(layout.index.empty())
    with new_file(path) as (partial, fd):
        os.ftruncate(fd, layout.file_bytes)
        write_all(fd, [empty], layout.index.start(layout.file_bytes))
        try:
            os.link(partial, path)
        except FileExistsError:
            return  # another process was faster
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise SlotsUnsupportedError(
                    f"the file system of {path.parent} has no hard links, which slotted shards need.\n"
                    "  Use a local disk with a Linux file system"
                ) from error
            raise


def sync_names(path: Path, durable: dict[Path, tuple[int, int]]) -> None:
    """Make the name of a file survive a power loss, and everything that is needed to find and read it.

    That is the directories around it, up to the root of the file system, and the `zarr.json` in them, no
    matter who made them. `durable` has those that are: a directory has no new names as long as its
    time of change is the same.

    >>> import tempfile; from pathlib import Path
    >>> durable = {}
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sync_names(Path(directory) / "c/0", durable)
    """
    device = None
    for directory in path.absolute().parents:
        try:
            status = os.stat(directory)
        except FileNotFoundError:
            continue
        if device not in (None, status.st_dev):
            return
        device, state = status.st_dev, (status.st_ino, status.st_mtime_ns)
        # None of our processes made names in a directory that we may not write to.
        if durable.get(directory) == state or not os.access(directory, os.W_OK):
            continue
        with open_existing(directory / "zarr.json", write=False) as fd:
            if fd is not None:
                os.fsync(fd)
        sync_directory(directory)
        if time.time_ns() - status.st_mtime_ns > CLOCK_TICK:
            durable[directory] = state


def sync_directory(directory: Path) -> None:
    """Make names that were added or changed in `directory` survive a power loss.

    >>> from pathlib import Path
    >>> sync_directory(Path("."))
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def clear_leftovers(path: Path) -> int:
    """Remove the temporary files for `path` that dead processes left, and return how many there were.

    >>> from pathlib import Path
    >>> clear_leftovers(Path("no-such-directory/0"))
    0
    """
    removed = 0
    for leftover in path.parent.glob(f".{path.name}.*.partial"):
        with open_existing(leftover, write=True) as fd:
            if fd is not None and try_lock(fd):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(leftover)
                    removed += 1
    return removed
