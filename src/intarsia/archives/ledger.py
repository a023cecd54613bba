"""What was already ingested: the ledger of the sources, what each of them shows, and which of them moved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.archives.locations import split_entry
from intarsia.manifest.region_table import RegionTable

if TYPE_CHECKING:
    from intarsia.archives.locations import Identity


class Rows(NamedTuple):
    """The numbers of rows in the arrays of a ledger."""

    files: int
    claims: int


NOTHING = Rows(0, 0)


@dataclass
class Ledger:
    """The sources, which part of the dataset each shows, and the member of every encoding.

    It is in a group beside the arrays, so that a later call knows which files are new.
    """

    dims: tuple[str, ...] = ()
    """The dimensions along which the dataset grows."""

    locations: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What identified the content of each."""

    moments: list[float | None] = field(default_factory=list)
    """When each was last changed, in seconds since 1970; None if its store does not say."""

    variables: list[str] = field(default_factory=list)
    """The variables that the sources hold."""

    claims: RegionTable = field(default_factory=lambda: RegionTable.from_rows([], 1))
    """What each shows: sources by number, boxes of the axes; the last axis counts variables."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    dropped_attrs: dict[str, list[str]] = field(default_factory=dict)
    """Attributes on which sources disagree, by variable; "" stands for the dataset."""

    stacked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For every stacked variable: the array, and the step of its first axis."""

    unread: Rows = NOTHING
    """Rows before those that are here; they stay as they are."""

    stored: Ledger | None = field(default=None, compare=False, repr=False)
    """What is in the store, so that only differences are written; None if unknown."""

    def array_of(self, variable: str) -> str:
        """The array that shows a variable."""
        return self.stacked[variable][0] if variable in self.stacked else variable

    @property
    def count(self) -> int:
        """The number of all sources."""
        return self.unread.files + len(self.locations)

    def shown(self, number: int) -> set[str]:
        """The variables of which a source shows any part."""
        rows = np.flatnonzero(self.claims.member == number)
        ends = zip(self.claims.start[rows, -1].tolist(), self.claims.stop[rows, -1].tolist(), strict=True)
        return {name for a, b in ends for name in self.variables[a:b]}

    def check(self) -> None:
        """Raise ValueError unless the parts fit together and have the right types."""
        sources = len(self.locations)
        for name in ("locations", "contents", "variables"):
            listed = getattr(self, name)
            if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
                raise ValueError(f"{name} is not a list of strings")
        if not (isinstance(self.moments, list) and sources == len(self.contents) == len(self.moments)):
            raise ValueError(f"{sources} sources have {len(self.contents)} contents")
        if not all(moment is None or isinstance(moment, int | float) for moment in self.moments):
            raise ValueError("moments are not times")
        if not all(isinstance(dim, str) for dim in self.dims):
            raise ValueError("concat_dims are not names")
        for name in ("members", "stacked", "dropped_attrs"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} is not an object")
        claims = self.claims
        if len(claims) and not (claims.member.min() >= 0 and claims.member.max() < self.count):
            raise ValueError(f"claims name a source that is not one of {self.count}")
        if (claims.start < 0).any() or (claims.stop < claims.start).any():
            raise ValueError("claims end before they start")


def is_moved(url: str, identity: Identity, known: str, content: str) -> bool:
    """Whether a file looks like the source `known`, which had this content according to the ledger.

    Both have the same size, and the same mark, the same bytes or the same name.

    >>> from intarsia.archives.locations import Identity
    >>> is_moved("s3://new/a.nc", Identity(7, None), "s3://old/a.nc", "7 2002-06-01T00:00:00+00:00")
    True
    >>> is_moved("s3://new/b.nc", Identity(7, None), "s3://old/a.nc", "7 2002-06-01T00:00:00+00:00")
    False
    """
    text, digest = split_entry(content)
    size, _, mark = text.partition(" ")
    if size != str(identity.size):
        return False
    if digest and identity.digest:
        return digest == identity.digest
    return url.rpartition("/")[2] == known.rpartition("/")[2] or (mark != "" and text == identity.text)


def prefixes_of_move(old: str, new: str) -> tuple[str, str]:
    """Where an archive was and where it is now, from one of its files, without the common end of both URLs.

    >>> prefixes_of_move("file:///data/old/2002/a.nc", "s3://bucket/2002/a.nc")
    ('file:///data/old/', 's3://bucket/')
    >>> prefixes_of_move("file:///data/a.nc", "file:///mnt/data/a.nc")
    ('file:///data/', 'file:///mnt/data/')
    """
    before, after = old.split("/"), new.split("/")
    names = len(before)
    while before[-1] == after[-1] and min(_depth(before[:-1]), _depth(after[:-1])) > 0:
        del before[-1], after[-1]
    if len(before) == names:  # only this file moved
        return old, new
    return "/".join([*before, ""]), "/".join([*after, ""])


def _depth(parts: list[str]) -> int:
    """How many names follow `scheme://`: the host, if there is one, and directories."""
    return sum(1 for part in parts[2:] if part)
