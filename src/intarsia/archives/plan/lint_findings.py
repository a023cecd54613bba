"""What differs between the files of an archive, noted where planning finds it, as a table for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from intarsia.display import Listing
from intarsia.errors import argument
from intarsia.logical.hierarchy import joined_path

MAX_SHOWN = 10
"""How many items of a list messages and reports show."""

MAX_SHOWN_WORDS = 3
"""How many drifts of one kind in one variable are spelled out."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One kind of difference in one variable, over all files that have it.

    >>> drift = LintFinding("order", "lat", "reversed", "seen through a view", 3, "file:///data/7.nc")
    >>> drift.files, drift.refused
    (3, False)
    """

    kind: str
    """The kind of difference, in a word or two; `refused` for files that are not taken."""

    variable: str
    """The variable or dimension that differs; empty if the file as a whole does."""

    what: str
    """How it differs; for files that are not taken, why."""

    done: str
    """What an ingest does about it."""

    files: int
    """The number of files."""

    first: str
    """The first of these files."""

    options: tuple[str, ...] = ()
    """For files that are not taken, the options of `ingest` that would take them."""

    @property
    def refused(self) -> bool:
        """Whether the files are not taken."""
        return self.kind == "refused"


class LintFindings(Listing[LintFinding]):
    """What differs between files, as a table.

    >>> LintFindings([LintFinding("units", "t", "degC instead of K", "kept as they are", 1, "file:///a.nc")])
    Drift  In  Files  First  What               What is done
    units  t       1  a.nc   degC instead of K  kept as they are
    """

    columns: ClassVar = {
        "Drift": "kind",
        "In": "variable",
        "Files": "files",
        "First": lambda drift: drift.first.rstrip("/").rsplit("/", 1)[-1],
        "What": "what",
        "What is done": "done",
    }
    empty = "no differences"


@dataclass(slots=True)
class _Group:
    """Notes of one kind, about one variable, with which the same is done."""

    texts: dict[str, None] = field(default_factory=dict)
    """How files differ."""

    files: int = 0
    first: str = ""
    last: str | None = None
    """The file that was noted last; it is counted once."""


@dataclass
class DriftNotes:
    """Differences between files, as planning finds them.

    >>> notes = DriftNotes()
    >>> for url in ("file:///a.nc", "file:///b.nc"):
    ...     notes.add("order", "lat", "reversed", "seen through a view", url)
    >>> [(drift.kind, drift.files, drift.first) for drift in notes.drifts()]
    [('order', 2, 'file:///a.nc')]
    """

    groups: dict[tuple[str, str, str], _Group] = field(default_factory=dict)
    """By kind, variable, and what is done."""

    above: str = ""
    """The group in files that holds the variables, if they are named by their paths."""

    def add(self, kind: str, variable: str, what: str, done: str, url: str, files: int = 1) -> None:
        """Note how a file differs; the first of several files may stand for all of them."""
        key = kind, joined_path(self.above, variable), done
        group = self.groups.setdefault(key, _Group(first=url))
        group.texts[what] = None
        group.files += files if url != group.last else 0
        group.last = url

    def merge(self, later: DriftNotes) -> None:
        """Add the notes of a later batch, or of another dataset."""
        for key, theirs in later.groups.items():
            group = self.groups.setdefault(key, _Group(first=theirs.first))
            group.texts |= theirs.texts
            group.files += theirs.files

    def drifts(self) -> Iterator[LintFinding]:
        """One drift for each group."""
        for (kind, variable, done), group in self.groups.items():
            what = "; ".join(shown_items(list(group.texts), MAX_SHOWN_WORDS))
            yield LintFinding(kind, variable, what, done, group.files, group.first)


def shown_items(items: Sequence[str], limit: int | None = MAX_SHOWN) -> list[str]:
    """The first items of a list, and how many more there are.

    >>> shown_items(["a", "b", "c", "d"], 2)
    ['a', 'b', '… and 2 more']
    """
    more = 0 if limit is None else len(items) - limit
    return [*items[:limit], *([f"… and {more} more"] if more > 0 else [])]


def refusals(refused: Mapping[str, str], options: Iterable[str]) -> Iterator[LintFinding]:
    """Files that are not taken, grouped by the options that would accept them, out of `options`."""
    names = {argument(name): name for name in sorted(options, key=len, reverse=True)}
    named = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})")
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for url, reason in refused.items():
        # those that the same options would accept, or none would, but for different reasons
        takers = tuple(dict.fromkeys(names[text] for text in named.findall(reason)))
        found.setdefault((takers, "" if takers else _gist(reason)), []).append(url)
    for (takers, _), urls in found.items():
        done = "not ingested" + (f" (accepted with {', '.join(map(argument, takers))})" if takers else "")
        yield LintFinding("refused", "", refused[urls[0]], done, len(urls), urls[0], takers)


def _gist(reason: str) -> str:
    """A reason without the parts that differ from file to file: numbers, quoted names and URLs."""
    return re.sub(r"\S+://\S+|'[^']*'|\d+", "…", reason)
