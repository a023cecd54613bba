"""Attributes that differ between files: the rules of xarray's `combine_attrs`, over one ingest or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from intarsia.archives.cf import json_attributes
from intarsia.archives.parsed_file import MENTIONS, ParsedFile
from intarsia.archives.plan.coordinates import MEANING
from intarsia.errors import IngestError, argument
from intarsia.logical.attributes import with_floats

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset

OVERRIDE = "override"
"""The rule under which the first file's attributes stay, so that there is nothing to combine."""

REFUSING = ("no_conflicts", "identical")
"""The rules that refuse files."""

KEPT = frozenset((*MEANING, *MENTIONS))
"""Attributes that say what numbers mean or belong to: always those of the first file, whatever the rule."""

WHOLE = ""
"""Stands for the dataset among the names of its variables."""


Rule = Literal["override", "drop", "drop_conflicts", "no_conflicts", "identical"]
"""A rule of xarray's."""


class AttributeMerger:
    """The attributes of everything in a dataset over all files so far, if files may differ in them.

    A name stands for a variable, or if it is empty for the dataset.
    """

    def __init__(self, rule: Rule, dataset: Dataset, array_of: Callable[[str], str]) -> None:
        self._rule, self._array_of = rule, array_of
        self._seen: dict[str, dict[str, Any]] = {}
        """What the rule made of the attributes."""
        self._source: dict[str, str] = {}
        """The first file whose attributes were added."""
        self._dropped: dict[str, set[str]] = {}
        """Attributes on which files disagreed."""
        for name, attrs in () if dataset.is_new else dataset.all_attrs():
            self._dropped[name] = set(dataset.ledger.dropped_attrs.get(name, ()))
            self._combine(name, _loose(attrs), "the dataset")

    def _of(self, file: ParsedFile) -> dict[str, dict[str, Any]]:
        """What a file says; of a stack of variables, what all of them say."""
        found = {WHOLE: _loose(file.attrs)}
        for name, variable in file.variables.items():
            array, own = self._array_of(name), _loose(variable.attrs)
            if array != name:
                known, dropped = found.get(array, own), self._dropped.setdefault(array, set())
                dropped |= {key for key in known | own if not is_same(known.get(key), own.get(key))}
                own = {key: value for key, value in own.items() if key not in dropped}
            found[array] = own
        return found

    def check(self, file: ParsedFile) -> None:
        """Raises `IngestError` if the rule refuses a file."""
        for name, own in self._of(file).items():
            known = self._seen.get(name, own)
            for key in dict.fromkeys((*known, *own)):
                texts = [repr(each[key]) if key in each else "absent" for each in (own, known)]
                may_lack = self._rule == "no_conflicts" and "absent" in texts
                if not may_lack and not is_same(known.get(key), own.get(key)):
                    raise IngestError(
                        f"its {f'{name!r} differs' if name else 'attributes differ'}: attribute {key!r} is "
                        f"{texts[0]}, but {texts[1]} in {self._source[name]} "
                        f"({argument('combine_attrs', 'drop_conflicts')} leaves out what differs)"
                    )

    def add(self, file: ParsedFile) -> None:
        """Add what a file says."""
        for name, own in self._of(file).items():
            self._combine(name, own, file.url)

    def _combine(self, name: str, own: dict[str, Any], source: str) -> None:
        self._source.setdefault(name, source)
        known, dropped = self._seen.get(name, {}), self._dropped.setdefault(name, set())
        dropped |= {key for key in known.keys() & own.keys() if not is_same(known[key], own[key])}
        both = {} if self._rule == "drop" else known | own | known
        self._seen[name] = {key: value for key, value in both.items() if key not in dropped}

    def applied(self, name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The combined attributes of a variable or of the dataset; `attrs` are those before combining."""
        kept = {key: value for key, value in attrs.items() if key in KEPT}
        return kept | self._seen.get(name, dict(attrs))

    def dropped(self) -> dict[str, list[str]]:
        """The attributes on which files disagreed, by name."""
        return {name: sorted(keys) for name, keys in self._dropped.items() if keys}


def _loose(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in with_floats(json_attributes(attrs)).items() if key not in KEPT}


def is_same(a: Any, b: Any) -> bool:
    """Whether two attributes are equal as JSON, in which NaN equals NaN."""
    return json_attributes({"": a}) == json_attributes({"": b})
