"""What differs between the files of an archive, and what is done about it, as a plan shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intarsia.archives.plan.coordinates import calendar_of, has_time_units, same_values
from intarsia.display import Listing
from intarsia.errors import argument

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.ingest_report import EncodingRun
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable
    from intarsia.archives.plan.axis_union import Span
    from intarsia.archives.plan.compatibility import IngestRules
    from intarsia.archives.plan.ingest_plan import ArrayPlan, Contribution, IngestPlan

MAX_SHOWN_WORDS = 3
"""How many drifts of one kind in one variable are spelled out."""

VIEW = "seen through a view of the region"


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


@dataclass
class _Notes:
    """Differences as they are found, grouped by kind, variable and what is done."""

    found: dict[tuple[str, str, str], tuple[dict[str, None], dict[str, int]]] = field(default_factory=dict)
    """For each group: how files differ, and which ones; the first of several may stand for all of them."""

    def note(self, kind: str, variable: str, what: str, done: str, url: str, files: int = 1) -> None:
        texts, urls = self.found.setdefault((kind, variable, done), ({}, {}))
        texts[what], urls[url] = None, files

    def drifts(self) -> Iterator[LintFinding]:
        for (kind, variable, done), (texts, urls) in self.found.items():
            yield LintFinding(kind, variable, _several(texts), done, sum(urls.values()), next(iter(urls)))


def _several(texts: Iterable[str]) -> str:
    """The first few of several, and how many more there are.

    >>> _several(["1x9", "1x3", "2x9", "2x3", "4x9"])
    '1x9; 1x3; 2x9; and 2 others'
    """
    listed = list(texts)
    more = len(listed) - MAX_SHOWN_WORDS
    rest = [f"and {more} other{'s' if more > 1 else ''}"] if more > 0 else []
    return "; ".join(listed[:MAX_SHOWN_WORDS] + rest)


def find_lint_findings(
    plan: IngestPlan,
    dataset: Dataset,
    rules: IngestRules,
    runs: Iterable[EncodingRun],
    options: Iterable[str],
) -> tuple[LintFinding, ...]:
    """Everything that differs between files; `options` are the names that a refusal may mention."""
    notes = _Notes()
    files = [each.file for each in plan.file_positions]
    _changes(notes, list(runs))
    for array in plan.arrays.values():
        _lacking(
            notes,
            array,
            [each.file for each in plan.file_positions if each.number >= len(plan.cube.kept_entries)],
        )
        units = _units(array, dataset)
        for each in array.contributions:
            _contribution(notes, array, each, units, rules)
    references: dict[str, np.ndarray[Any, Any]] = {}
    for file in files:
        for dim in file.new_dims:
            notes.note("dimension", dim, f"there is no {dim!r}", "it is one step of it", file.url)
        _coordinates(notes, file, plan, dataset, references)
    _holes(notes, plan)
    for name, reason in plan.left_out.items():
        having = [file.url for file in files if name in file.variables or name in file.left_out]
        for url in having or [""]:
            notes.note("left out", name, reason, "not ingested", url)
    return *notes.drifts(), *refusals(plan.refused, options)


def refusals(refused: dict[str, str], options: Iterable[str]) -> Iterator[LintFinding]:
    """Files that are not taken, grouped by the options that would accept them."""
    names = {argument(name): name for name in sorted(options, key=len, reverse=True)}
    named = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})")
    found: dict[tuple[str, ...], list[str]] = {}
    for url, reason in refused.items():
        # those that the same options would accept, or none would, but for different reasons
        takers = tuple(dict.fromkeys(names[text] for text in named.findall(reason)))
        found.setdefault(takers or ("", _gist(reason)), []).append(url)
    for takers, urls in found.items():
        takers = takers if takers[0] else ()
        done = "not ingested" + (f" (accepted with {', '.join(map(argument, takers))})" if takers else "")
        yield LintFinding("refused", "", refused[urls[0]], done, len(urls), urls[0], takers)


def _gist(reason: str) -> str:
    """A reason without the parts that differ from file to file: numbers, quoted names and URLs."""
    return re.sub(r"\S+://\S+|'[^']*'|\d+", "…", reason)


def _changes(notes: _Notes, runs: Sequence[EncodingRun]) -> None:
    """What changes from one run of equal encoding to the next."""
    firsts = {run.variable: run for run in reversed(runs)}
    for run in runs:
        first = firsts[run.variable]
        pairs = (
            ("chunks", *("x".join(map(str, each.chunks)) for each in (run, first))),
            ("codecs", run.codecs, first.codecs),
            ("stored type", run.stored, first.stored),
            ("packing", run.packing, first.packing),
        )
        for kind, own, other in pairs:
            if own != other:
                done = "unpacked on reading" if kind == "packing" else "a region with a member of its own"
                text = f"{own or 'none'} instead of {other or 'none'}"
                notes.note(kind, run.variable, text, done, run.url, run.files)


def _lacking(notes: _Notes, array: ArrayPlan, files: Sequence[ParsedFile]) -> None:
    having = {each.file.url for each in array.contributions}
    for part in array.parts:
        for file in files:
            variable = file.variables.get(part)
            if file.url not in having or variable is None or variable.role != "data":
                notes.note("missing variable", part, f"there is no {part!r}", "a hole", file.url)


def _units(array: ArrayPlan, dataset: Dataset) -> str | None:
    """The units of the array; None if its parts may have their own."""
    if len(array.parts) > 1:
        return None
    logical = dataset.logical_groups.get(array.name)
    return str((array.attrs if logical is None else logical.group.attrs).get("units", ""))


def _contribution(
    notes: _Notes, array: ArrayPlan, each: Contribution, units: str | None, rules: IngestRules
) -> None:
    variable, url = each.variable, each.file.url
    part = next(name for name in array.parts if each.file.variables.get(name) is variable)
    if variable.name != part:
        notes.note(
            "name", part, f"called {variable.name!r}", f"ingested under this name ({argument('rename')})", url
        )
    own_units = str(variable.attrs.get("units", ""))
    if units is not None and own_units != units:
        done = (
            f"kept as they are ({argument('units', 'ignore')})"
            if rules.units == "ignore"
            else "converted on reading"
        )
        notes.note("units", part, f"{own_units!r} instead of {units!r}", done, url)
    if each.decoding.values != array.dtype:
        notes.note(
            "data type", part, str(each.decoding.values), f"converted to {array.dtype} on reading", url
        )
    dims = array.dims[1:] if len(array.parts) > 1 else array.dims
    if variable.dims != dims:
        own, theirs = (f"({', '.join(names)})" for names in (variable.dims, dims))
        notes.note("axes", part, f"{own} instead of {theirs}", VIEW, url)
    for dim, places, size in zip(array.dims, each.spans, array.shape, strict=True):
        if array.dims.index(dim) in array.growing:
            text = _turned(places)
            done = "every step goes where its coordinate says"
        else:
            text = _turned(places) if len(places) != 1 or places[0].length == size else ""
            done = VIEW
        if text:
            notes.note("order", dim, text, done, url)
    if each.shown is not None:
        done = f"shown by {argument('overlap', rules.overlap)}"
        text = "part of it is shown" if each.shown else "nothing of it is shown"
        notes.note("overlap", part, f"others lie in the same place; {text}", done, url)
    for reason in {chunks.encoding.copy_reason for chunks in each.chunk_sets if chunks.encoding.copy_reason}:
        notes.note("copy", part, reason, "its data are copied", url)


def _turned(places: Sequence[Span]) -> str:
    """How the steps of a file are ordered on an axis, if not one after another."""
    if len(places) == 1:
        return "reversed" if places[0].stride < 0 else ""
    if len(places) == 2 and places[0].stride == places[1].stride:
        begins = [span.start for span in sorted(places, key=lambda span: span.file_steps)]
        rising = begins[0] < begins[1]
        if rising != (places[0].stride > 0):
            return "rolled" if places[0].stride > 0 else "rolled and reversed"
    return f"in {len(places)} pieces" if places else ""


def _coordinates(
    notes: _Notes, file: ParsedFile, plan: IngestPlan, dataset: Dataset,
    references: dict[str, np.ndarray[Any, Any]],
) -> None:  # fmt: skip
    """How a file's coordinates differ from those of the dataset although they count as equal."""
    for name, variable in file.variables.items():
        if variable.role == "concat" and name in plan.coordinates:
            own, other = (
                str(attrs.get("units", "")) for attrs in (variable.attrs, plan.coordinates[name].attrs)
            )
            if own != other and has_time_units(variable.attrs):
                notes.note(
                    "time units",
                    name,
                    f"{own!r} instead of {other!r}",
                    "converted to the same units",
                    file.url,
                )
            own, other = (calendar_of(attrs) for attrs in (variable.attrs, plan.coordinates[name].attrs))
            if own != other and has_time_units(variable.attrs):
                notes.note(
                    "calendar", name, f"{own!r} instead of {other!r}", "the days are the same", file.url
                )
        elif variable.role == "static" and variable.values is not None and variable.dims == (name,):
            if name not in references:
                references[name] = dataset.values(name) if name in dataset.plain else variable.values
            _noise(notes, name, variable, references[name], file.url)


def _noise(notes: _Notes, name: str, variable: ParsedVariable, known: np.ndarray[Any, Any], url: str) -> None:
    own = variable.loaded
    if own is known or same_values(own, known) or own.shape != known.shape:
        return
    if own.dtype != known.dtype:
        notes.note("coordinate type", name, f"{own.dtype} instead of {known.dtype}", "counts as equal", url)
    if own.dtype.kind not in "iuf" or known.dtype.kind not in "iuf":
        return
    apart = float(np.abs(own.astype(np.float64) - known.astype(np.float64)).max(initial=0))
    steps = float(np.abs(np.diff(known)).min(initial=np.inf))
    if 0 < apart < steps / 2:  # otherwise it is turned, which is a drift of its own
        notes.note("noise", name, f"up to {apart:.3g} apart", "counts as equal", url)


def _holes(notes: _Notes, plan: IngestPlan) -> None:
    """Places in a cube that no file covers."""
    sizes = list(plan.cube.sizes.values())
    if len(sizes) < 2 or not plan.file_positions:
        return
    regions = plan.cube.file_regions
    covered = np.zeros(len(plan.cube.variables), dtype=np.int64)
    cells = np.prod((regions.stop - regions.start)[:, :-1], axis=1)
    for first, last, count in zip(regions.start[:, -1], regions.stop[:, -1], cells, strict=True):
        covered[first:last] += count
    total = int(np.prod(sizes))
    for name, count in zip(plan.cube.variables, covered.tolist(), strict=True):
        if 0 < count < total:
            text = f"no file has {total - count} of {total} places along {' and '.join(plan.cube.dims)}"
            notes.note("hole", name, text, "missing values", plan.file_positions[0].file.url)
