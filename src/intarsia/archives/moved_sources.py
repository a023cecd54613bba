"""Files that a dataset has under another name: how they are recognised, and from where to where they went."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia.archives.locations import Identity


def is_moved(url: str, identity: Identity, known: str, content: str) -> bool:
    """Whether a file looks like the source `known`, of which the ledger says that it had this content.

    Both have the same size, and the same mark or the same name.

    >>> from intarsia.archives.locations import Identity
    >>> is_moved("s3://new/a.nc", Identity(7, None), "s3://old/a.nc", "7 2002-06-01T00:00:00+00:00")
    True
    >>> is_moved("s3://new/b.nc", Identity(7, None), "s3://old/a.nc", "7 2002-06-01T00:00:00+00:00")
    False
    """
    size, _, mark = content.partition(" ")
    if size != str(identity.size):
        return False
    return url.rpartition("/")[2] == known.rpartition("/")[2] or (mark != "" and content == identity.text)


def prefixes_of_move(old: str, new: str) -> tuple[str, str]:
    """Where an archive was and where it is, from one file of it: what both URLs end with is not part of that.

    >>> prefixes_of_move("file:///data/old/2002/a.nc", "s3://bucket/2002/a.nc")
    ('file:///data/old/', 's3://bucket/')
    >>> prefixes_of_move("file:///data/a.nc", "file:///mnt/data/a.nc")
    ('file:///data/', 'file:///mnt/data/')
    """
    before, after = old.split("/"), new.split("/")
    names = len(before)
    while before[-1] == after[-1] and min(_depth(before[:-1]), _depth(after[:-1])) > 0:
        del before[-1], after[-1]
    if len(before) == names:  # this file alone
        return old, new
    return "/".join([*before, ""]), "/".join([*after, ""])


def _depth(parts: list[str]) -> int:
    """How many names stand behind `scheme://`: the host, if there is one, and directories."""
    return sum(1 for part in parts[2:] if part)
