"""Attributes that differ between files: the rules of xarray's `combine_attrs`, over one ingest or many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from intarsia.archives.cf import json_attributes
from intarsia.archives.parsed_file import MENTIONS, ParsedFile
from intarsia.archives.plan.coordinates import MEANING
from intarsia.errors import IngestError, argument
from intarsia.logical.attributes import with_floats

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset

OVERRIDE = "override"

KEPT = frozenset((*MEANING, *MENTIONS))
"""Attributes that say what numbers mean or belong to: always those of the first file, whatever the rule."""

WHOLE = ""
"""Stands for the dataset among the names of its variables."""


Rule = (
    Literal["override", "drop", "drop_conflicts", "no_conflicts", "identical"] | Callable[..., dict[str, Any]]
)
"""A rule of xarray's, or a function of a list of attributes."""


@dataclass
class CombinedAttrs:
    """The attributes of one variable, or of the dataset, over all files so far.

    >>> combined = CombinedAttrs("drop_conflicts")
    >>> for attrs in ({"units": "K", "title": "a", "by": "me"}, {"units": "K", "title": "b"}, {"title": "a"}):
    ...     combined.add(attrs, "a.nc")
    >>> combined.applied({"units": "K", "title": "a"}), combined.dropped
    ({'units': 'K', 'by': 'me'}, {'title'})
    """

    rule: Rule
    dropped: set[str] = field(default_factory=set)
    """Attributes on which files disagreed."""

    source: str = ""
    """The first file whose attributes were added."""

    _seen: list[dict[str, Any]] = field(default_factory=list)
    """What the rule made of the attributes; for a function, all of them."""

    def problem(self, attrs: Mapping[str, Any]) -> str:
        """Why the rule refuses the attributes of another file; empty if it does not."""
        if not self._seen or self.rule not in ("no_conflicts", "identical"):
            return ""
        (known,), own = self._seen, _loose(attrs)
        for key in dict.fromkeys((*known, *own)):
            if key in known and key in own and not _same(known[key], own[key]):
                return f"attribute {key!r} is {own[key]!r}, but {known[key]!r} in {self.source}"
            if self.rule == "identical" and (key not in known or key not in own):
                where = self.source if key in known else "this file"
                return f"only {where} has the attribute {key!r}"
        return ""

    def add(self, attrs: Mapping[str, Any], source: str) -> None:
        """Add the attributes of another file."""
        own = _loose(attrs)
        if callable(self.rule):
            self._seen.append(own)
        elif not self._seen:
            self.source = source
            self._seen = [{} if self.rule == "drop" else own]
        elif self.rule == "drop_conflicts":
            known = self._seen[0]
            for key, value in own.items():
                if key in known and not _same(known[key], value):
                    del known[key]
                    self.dropped.add(key)
                elif key not in self.dropped:
                    known.setdefault(key, value)
        elif self.rule == "no_conflicts":
            self._seen = [own | self._seen[0]]

    def applied(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """These attributes, with those that the rule applies to replaced by its result."""
        if callable(self.rule):
            try:
                found = dict(self.rule(list(self._seen), context=None))
            except Exception as error:
                raise IngestError(f"{argument('combine_attrs', self.rule)} failed: {error}") from error
        else:
            (found,) = self._seen or [{}]
        return {key: value for key, value in attrs.items() if key in KEPT} | found


def _loose(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in with_floats(json_attributes(attrs)).items() if key not in KEPT}


def _same(a: Any, b: Any) -> bool:
    # as JSON, in which NaN equals NaN
    return json_attributes({"": a}) == json_attributes({"": b})


class AttributeMerger:
    """The attributes of everything in a dataset, if files may differ in them."""

    def __init__(self, rule: Rule, dataset: Dataset, stacked: Iterable[str] = ()) -> None:
        self._rule, self._stacked = rule, frozenset(stacked)
        self._by_name: dict[str, CombinedAttrs] = {}
        known = dataset.all_attrs() if rule != OVERRIDE and not dataset.is_new else ()
        for name, attrs in known:
            dropped = set(dataset.ledger.dropped_attrs.get(name, ()))
            self._by_name[name] = CombinedAttrs(rule, dropped)
            self._by_name[name].add(attrs, "the dataset")

    def _of(self, file: ParsedFile) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What a file says; for stacked variables, what all of them say."""
        yield WHOLE, file.attrs
        for name, variable in file.variables.items():
            if name not in self._stacked:
                yield name, variable.attrs

    def problem(self, file: ParsedFile) -> str:
        """Why the rule refuses a file; empty if it does not."""
        for name, attrs in self._of(file) if self._rule in ("no_conflicts", "identical") else ():
            known = self._by_name.get(name)
            problem = "" if known is None else known.problem(attrs)
            if problem:
                what = f"{name!r} differs" if name else "attributes differ"
                option = argument("combine_attrs", "drop_conflicts")
                return f"its {what}: {problem} ({option} leaves out what differs)"
        return ""

    def add(self, file: ParsedFile) -> None:
        """Add what a file says; if the first file's attributes stay, there is nothing to combine."""
        for name, attrs in self._of(file) if self._rule != OVERRIDE else ():
            self._by_name.setdefault(name, CombinedAttrs(self._rule)).add(attrs, file.url)

    def applied(self, name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The combined attributes of a variable or of the dataset; `attrs` are those before combining."""
        known = self._by_name.get(name)
        return dict(attrs) if known is None else known.applied(attrs)

    def dropped(self) -> dict[str, list[str]]:
        """The attributes on which files disagreed, by name."""
        return {name: sorted(known.dropped) for name, known in self._by_name.items() if known.dropped}
