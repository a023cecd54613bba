"""Symbolic links in a local store, or below an authorised prefix: one that leads out of it is refused, unless
the reader trusts it.

Somebody else's archive could show any file of this machine as its data. Links within it are followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from intarsia.errors import ReadError

FOLLOW = "INTARSIA_FOLLOW_LINKS"
"""The environment variable that lets links lead anywhere."""

MAX_FOLDERS = 10_000
"""This many directories are remembered at a time."""


def may_follow() -> bool:
    """Whether links may lead anywhere."""
    return bool(os.environ.get(FOLLOW))


def refuse_link_out(path: str, root: str) -> None:
    """Raise `ReadError` if a path is a link that leads out of `root`."""
    if not os.path.islink(path):
        return
    inside, leads = os.path.realpath(root), os.path.realpath(path)
    if os.path.commonpath([inside, leads]) != inside and not may_follow():
        raise ReadError(
            f"{path} is a link to {leads}, which is outside {inside}.\n"
            f"  If you trust the author of the link, set {FOLLOW}=1 in the environment; "
            "otherwise put a copy in its place, or remove it"
        )


def refuse_links_out(root: str | os.PathLike[str], below: str = "") -> None:
    """Raise `ReadError` if any link at or below a path in `root` leads out of `root`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.symlink("/etc", f"{folder}/c")
    ...     refuse_links_out(folder)
    Traceback (most recent call last):
    ...
    intarsia.errors.ReadError: ... is a link to /etc, which is outside ...
    """
    root = os.fspath(root)
    CheckedFolders(root).check(below)
    for link in links_below(os.path.join(root, below)):
        refuse_link_out(link, root)


def links_below(folder: str) -> Iterator[str]:
    """The paths of all symbolic links in a directory; those that lead to directories are not followed."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                elif entry.is_dir():
                    waiting.append(entry.path)


def open_file(path: bytes | str, root: bytes | str) -> int:
    """Open a file of a store for reading; `CheckedFolders` checks its directories.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.symlink("/etc/hosts", f"{folder}/0")
    ...     open_file(f"{folder}/0", folder)
    Traceback (most recent call last):
    ...
    intarsia.errors.ReadError: ... is a link to /etc/hosts, which is outside ...
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    refuse_link_out(os.fsdecode(path), os.fsdecode(root))
    return os.open(path, os.O_RDONLY)


class CheckedFolders:
    """The directories of a local store, each checked once."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/") + "/"
        self._inside = {""}

    def open(self, key: str) -> int:
        """Open a file of the store for reading."""
        folder = key.rpartition("/")[0]
        if folder not in self._inside:
            self.check(folder)
        return open_file(self._root + key, self._root)

    def check_file(self, key: str) -> None:
        """Raise `ReadError` if a file is a link out of the store, or lies behind one."""
        self.check(key.rpartition("/")[0])
        refuse_link_out(self._root + key, self._root)

    def check(self, folder: str) -> None:
        """Raise `ReadError` if a directory of the store is a link out of the store, or lies behind one.

        >>> CheckedFolders("/").check("proc/self")
        """
        if folder in self._inside:
            return
        self.check(folder.rpartition("/")[0])
        refuse_link_out(self._root + folder, self._root)
        if len(self._inside) > MAX_FOLDERS:
            self._inside = {""}
        self._inside.add(folder)
