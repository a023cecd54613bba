"""What an ingest did, or would do: the runs of equal encoding, and what happened to every file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from intarsia.archives.plan.encodings import source_codecs_text
from intarsia.archives.plan.lint_findings import (
    MAX_SHOWN,
    DriftNotes,
    LintFinding,
    LintFindings,
    refusals,
    shown_items,
)
from intarsia.display import MAX_SHOWN_ROWS, Listing, Result, Table, size_text
from intarsia.errors import argument
from intarsia.logical.hierarchy import joined_path

if TYPE_CHECKING:
    from intarsia.archives.plan.axis_union import GrownAxis
    from intarsia.archives.plan.ingest_plan import Contribution, IngestPlan

type Status = Literal["added", "replaced", "extended", "unchanged", "failed"]

STATUSES: tuple[Status, ...] = ("added", "replaced", "extended", "unchanged", "failed")
CHANGES: tuple[Status, ...] = ("added", "replaced", "extended")
"""The statuses of files that change the dataset."""

MAX_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class FileReport:
    """What happened to one file.

    >>> print(FileReport("file:///data/a.nc", "failed", "the file is empty"))
    failed     file:///data/a.nc: the file is empty
    """

    url: str
    """Where it is."""

    status: Status
    """`added`, `replaced`, `extended` (it was there and now shows more), `unchanged` or `failed`."""

    reason: str = ""
    """Why it failed, or why parts of it were copied."""

    def __str__(self) -> str:
        return f"{self.status:<10} {self.url}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class EncodingRun:
    """Consecutive files in which one variable is encoded in the same way.

    >>> run = EncodingRun("sst", 0, 2, "2002-06-01", "2002-06-02", 2, (1, 9), "shuffle+zlib-4", "int16", "")
    >>> run.stop - run.start, run.copied
    (2, '')
    """

    variable: str
    """The name of the variable."""

    start: int
    """The first step along the concatenation axis."""

    stop: int
    """The last step, excluded."""

    first: str
    """The coordinate of the first step, as people write it."""

    last: str
    """The coordinate of the last step."""

    files: int
    """The number of files."""

    chunks: tuple[int, ...]
    """The chunk shape."""

    codecs: str
    """How chunks are compressed."""

    stored: str
    """The type of the stored numbers."""

    packing: str
    """How they become values."""

    copied: str = ""
    """Why the data is copied; empty if it is referenced."""

    url: str = ""
    """The first of its files."""


class EncodingRuns(Listing[EncodingRun]):
    """The table of runs: where and how an archive changed.

    >>> days = ("2002-06-01", "2002-06-02")
    >>> run = EncodingRun("sst", 0, 2, *days, 2, (1, 9), "shuffle+zlib", "int16", "* 0.01 + 273.15")
    >>> print(EncodingRuns((run,)))
    Variable  From        To          Files  Chunks  Codecs        Stored  Packing          Data
    sst       2002-06-01  2002-06-02      2     1x9  shuffle+zlib   int16  * 0.01 + 273.15  referenced
    """

    columns: ClassVar = {
        "Variable": "variable",
        "From": "first",
        "To": "last",
        "Files": "files",
        "Chunks": lambda run: "x".join(map(str, run.chunks)),
        "Codecs": "codecs",
        "Stored": "stored",
        "Packing": "packing",
        "Data": lambda run: f"copied: {run.copied}" if run.copied else "referenced",
    }
    empty = "no runs"


@dataclass(frozen=True, repr=False)
class IngestReport(Result):
    """What an ingest did, or in a dry run would do.

    >>> report = IngestReport(EncodingRuns(()), (FileReport("file:///a.nc", "unchanged"),))
    >>> print(report.summary)
    nothing to do: 1 unchanged
    >>> added = FileReport("file:///a.nc", "added")
    >>> print(IngestReport(EncodingRuns(()), (added,), left_out={"ids": "…"}, copied=4096).summary)
    1 added; 4.1 kB copied; left out: ids
    """

    runs: EncodingRuns = field(default_factory=EncodingRuns)
    """The runs of equal encoding among the new files."""

    files: tuple[FileReport, ...] = ()
    """All files, in the order in which they were given."""

    snapshot_id: str | None = None
    """The snapshot of the commit; None for a dry run, or if there was nothing to do."""

    repository: Any = field(default=None, repr=False, compare=False)
    """The repository, authorised to read the sources: open arrays from it."""

    containers: tuple[str, ...] = ()
    """The URL prefixes of the virtual chunk containers that the dataset needs authorised."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Variables that were not taken, and why."""

    copied: int = 0
    """How many bytes, before compression, were copied because they cannot be read in place."""

    drifts: tuple[LintFinding, ...] = ()
    """What differs between files, and what is done about it."""

    notes: DriftNotes = field(default_factory=DriftNotes, repr=False, compare=False)
    """How files differ that were taken, apart from what the runs say."""

    def of(self, status: Status) -> tuple[FileReport, ...]:
        """The files with this status."""
        return tuple(file for file in self.files if file.status == status)

    json_properties: ClassVar = ("summary",)

    @property
    def changes(self) -> tuple[FileReport, ...]:
        """The files that changed the dataset."""
        return tuple(file for file in self.files if file.status in CHANGES)

    @property
    def failed(self) -> tuple[FileReport, ...]:
        """The files that were not taken, with the reasons."""
        return self.of("failed")

    @property
    def summary(self) -> str:
        """One line: what happened to the files, how much was copied, which variables were left out."""
        counts = Counter(file.status for file in self.files)
        files = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
        parts = [files or "no files"]
        if self.copied:
            parts.append(f"{size_text(self.copied)} copied")
        if self.left_out:
            parts.append(f"left out: {', '.join(shown_items(list(self.left_out), MAX_SHOWN_NAMES))}")
        text = "; ".join(parts)
        if self.changes:
            return text
        return f"{'nothing added' if self.failed else 'nothing to do'}: {text}"

    def blocks(self, most: int | None = MAX_SHOWN_ROWS) -> Iterator[str | Table]:
        """What happens to files, the runs, what differs, what failed, what was left out, and the headline."""
        taken = LintFindings(drift for drift in self.drifts if not drift.refused)
        for table in (self.runs, taken):
            if table:
                yield from (*table.blocks(most), "")
        refused = [drift for drift in self.drifts if drift.refused]
        if refused:
            yield Table.of(refused, {"Files": "files", "Such as": "first", "Refused because": "what"})
        else:
            yield from shown_items(list(map(str, self.failed)), most and MAX_SHOWN)
        yield from (f"left out   {name}: {reason}" for name, reason in self.left_out.items())
        is_dry = self.snapshot_id is None and self.changes
        yield f"dry run: {self.summary}" if is_dry else self.summary


def report_plan(plan: IngestPlan, urls: Iterable[str]) -> IngestReport:
    """What a plan does with files."""
    placed, before = {each.file.url for each in plan.cube.file_positions}, set(plan.dataset.ledger.locations)
    copy_reasons, above = plan.copy_reasons(), plan.notes.above
    files = []
    for url in urls:
        if url in placed:
            status: Status = "added"
            if url in before:
                status = "extended" if url in plan.unchanged else "replaced"
            files.append(FileReport(url, status, copy_reasons.get(url, "")))
        elif url in plan.refused:
            files.append(FileReport(url, "failed", plan.refused[url]))
        elif url in plan.unchanged:
            files.append(FileReport(url, "unchanged"))
    runs = find_runs(plan) if plan.adds_files else ()
    return IngestReport(
        EncodingRuns(replace(run, variable=joined_path(above, run.variable)) for run in runs),
        tuple(files),
        left_out={joined_path(above, name): why for name, why in plan.left_out.items()},
        copied=plan.copied(),
        notes=plan.notes,
    )


def find_runs(plan: IngestPlan) -> EncodingRuns:
    """Consecutive files with equal encoding, along the first dimension that grows."""
    every = []
    for array in plan.arrays.values():
        for each in array.contributions:
            own = each.spans[array.growing[0]]
            if own:  # otherwise an axis has length 0
                every.append(_run(each, min(span.start for span in own), max(span.stop for span in own)))
    runs = merge_runs(every)
    texts = plan.cube.axes[0].labels([end for run in runs for end in (run.start, run.stop - 1)])
    named = zip(runs, texts[::2], texts[1::2], strict=True)
    return EncodingRuns(replace(run, first=first, last=last) for run, first, last in named)


def _run(contribution: Contribution, start: int, stop: int) -> EncodingRun:
    """The run of a single file; its coordinates are not known yet."""
    encoding, decoding = contribution.chunks.encoding, contribution.decoding
    # most of a million runs are alike
    codecs, stored = map(intern, (source_codecs_text(encoding.codecs), str(decoding.numbers)))
    return EncodingRun(
        contribution.part, start, stop, "", "", 1, encoding.chunks, codecs, stored, str(decoding),
        contribution.variable.reason, contribution.file.url,
    )  # fmt: skip


def merge_runs(runs: Sequence[EncodingRun]) -> list[EncodingRun]:
    """Merge runs into one where one continues another in the same way."""
    order = {name: i for i, name in enumerate(dict.fromkeys(run.variable for run in runs))}
    groups: list[list[EncodingRun]] = []
    latest: dict[tuple[Any, ...], list[EncodingRun]] = {}
    stops: dict[tuple[Any, ...], int] = {}
    for run in sorted(runs, key=lambda run: (order[run.variable], run.start)):
        kind = _alike(run)
        if stops.get(kind, -1) < run.start:
            latest[kind] = []
            groups.append(latest[kind])
        latest[kind].append(run)
        stops[kind] = max(stops.get(kind, 0), run.stop)
    merged = []
    for group in groups:
        end = max(group, key=lambda run: run.stop)
        files = {run.url: run.files for run in group}  # a file may have several parts
        merged.append(replace(group[0], stop=end.stop, last=end.last, files=sum(files.values())))
    return merged


def _alike(run: EncodingRun) -> tuple[Any, ...]:
    return run.variable, run.chunks, run.codecs, run.stored, run.packing, run.copied


def refusal_text(refused: Mapping[str, str], total: int, before: int = 0) -> str:
    """Which of `total` files cannot be ingested, and why; batches with `before` files are committed."""
    nothing = f"nothing of their batch was written; the {before} before it are committed"
    head = f"{len(refused)} of {total} files cannot be ingested, so "
    head += f"{nothing if before else 'nothing was written'}:"
    tail = [f"{argument('errors', 'skip')} ingests the others"] if len(refused) < total else []
    listed = shown_items([f"{url}: {reason}" for url, reason in refused.items()])
    return "\n  ".join([head, *listed, *tail])


def merge_reports(reports: Sequence[IngestReport]) -> IngestReport:
    """One report of several, about different datasets or batches."""
    if len(reports) == 1:
        return reports[0]
    files: dict[str, FileReport] = {}
    notes = DriftNotes()
    for report in reports:
        notes.merge(report.notes)
        for file in report.files:
            earlier = files.setdefault(file.url, file)
            if file.status == "failed" or earlier.status == "unchanged":
                files[file.url] = file
    return IngestReport(
        runs=EncodingRuns(merge_runs([run for report in reports for run in report.runs])),
        files=tuple(files.values()),
        left_out={name: why for report in reports for name, why in report.left_out.items()},
        copied=sum(report.copied for report in reports),
        notes=notes,
    )


def after_batch(report: IngestReport, axis: GrownAxis) -> IngestReport:
    """A report of earlier batches after another one, which may have inserted steps and filled holes."""
    left = {key: group for key, group in report.notes.groups.items() if key[0] != "hole"}
    report = replace(report, notes=DriftNotes(left))
    if axis.appends:
        return report
    places = axis.existing_positions
    moved = (
        replace(run, start=int(places[run.start]), stop=int(places[run.stop - 1]) + 1) for run in report.runs
    )
    return replace(report, runs=EncodingRuns(moved))


def with_drifts(report: IngestReport, options: Iterable[str]) -> IngestReport:
    """A report with everything that differs; `options` are the names that a refusal may mention."""
    if len(report.runs) < 2 and not report.notes.groups and not report.failed:
        return report
    changes = DriftNotes()
    firsts = {run.variable: run for run in reversed(report.runs)}
    for run in report.runs:
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
                changes.add(kind, run.variable, text, done, run.url, run.files)
    changes.merge(report.notes)
    refused = {file.url: file.reason for file in report.failed}
    return replace(report, drifts=(*changes.drifts(), *refusals(refused, options)))
