"""Which stores and file systems can have slotted shards, and why the others cannot."""

from __future__ import annotations

from pathlib import Path

from zarr.abc.store import Store
from zarr.storage import LocalStore

from intarsia.errors import SlotsUnsupportedError
from intarsia.shards import locks

MOUNTS = Path("/proc/self/mountinfo")
"""What is mounted where, as Linux tells it."""

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
        "fuseblk",  # a disk behind FUSE, as of ntfs-3g
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
"""File systems of this machine alone. There is no end of others, and their names do not tell."""


def local_root(store: Store) -> Path:
    """The directory of a store of local files; `SlotsUnsupportedError` says why another store will not do.

    >>> local_root(LocalStore("data"))
    PosixPath('data')
    """
    if not locks.supported():
        raise SlotsUnsupportedError(
            "slotted shards need pwrite and the open file description locks of Linux, which are not here"
        )
    if isinstance(store, LocalStore):
        return store.root
    kind = type(store).__name__
    if kind == "IcechunkStore":
        raise SlotsUnsupportedError(
            "the array is in an Icechunk repository, whose chunks are immutable: every write makes a new "
            "object, and there is no file to write slots into.\n"
            "  Several writers share a logical array through its members instead, one member each: "
            "intarsia.append(repo, path, data, codecs=[...])."
        )
    raise SlotsUnsupportedError(
        f"the array is in a {kind}; slots are written by pwrite into local files, and objects in memory, in "
        "archives and in object stores can only be replaced as a whole.\n"
        "  Open a local directory with its path, or with zarr.storage.LocalStore."
    )


def refuse_network(directory: Path) -> None:
    """Raise `SlotsUnsupportedError` unless `directory` is on a file system that no other machine shares.

    >>> refuse_network(Path("/"))
    """
    kind = filesystem_type(directory)
    if kind not in LOCAL:
        raise SlotsUnsupportedError(
            f"{directory} is on {f'a {kind}' if kind else 'an unknown'} file system, which other machines "
            "may share. Writers there would not see our locks, and each machine caches pages of the file, so "
            "that slots of different writers would overwrite one another.\n"
            "  Write to a local disk and copy the compacted shards, or give each writer shards of its own. "
            "If no other machine writes there and the file system has locks, say any_filesystem=True."
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
        # Of several mounts on one directory, the last one covers the others.
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split(" ")[0]
    return kind


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
