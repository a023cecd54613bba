"""Files in batches: how many are held in memory and committed together, and one report for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.ingest_report import FileReport, IngestReport, Run, Runs
from intarsia.archives.parsed_file import ParsedFile

if TYPE_CHECKING:
    from intarsia.archives.parsed_file import Failure
    from intarsia.archives.plan.axis_union import GrownAxis

BATCH_FILES = 2_000
"""The size of the first batches: how many files a killed ingest has to parse again."""

BATCH_SHARE = 4
"""A later batch has the number of files before it divided by this. Every commit lists all earlier commits, so
fewer are better; and a killed ingest has to parse at most this share of its files again."""

BATCH_BYTES = 256 << 20
"""Roughly how much memory a batch may take until it is committed."""

VARIABLE_BYTES = 3_200
"""Roughly what a parsed and drafted variable takes besides its references and values."""

REFERENCE_BYTES = 250
"""Roughly what a reference takes, mostly in the session, where Icechunk keeps it until the commit."""


def usual_files(before: int) -> int:
    """The default size of a batch after `before` files of the same call.

    >>> usual_files(0), usual_files(100_000)
    (2000, 25000)
    """
    return max(BATCH_FILES, before // BATCH_SHARE)


def bytes_held(result: ParsedFile | Failure) -> int:
    """Roughly how much memory a parsed file takes until it is committed."""
    if not isinstance(result, ParsedFile):
        return len(result.reason)
    total = 0
    for variable in result.variables.values():
        total += VARIABLE_BYTES
        if variable.values is not None and variable.role != "static":  # static ones are kept once
            total += variable.values.nbytes
        ranges = variable.ranges
        if ranges is not None:
            total += REFERENCE_BYTES * ranges.offsets.size + sum(map(len, ranges.inlined.values()))
            if not isinstance(ranges.locations, str):
                total += 64 * ranges.locations.size
    return total


@dataclass
class Progressed:
    """What the batches so far did, as one report."""

    files: dict[str, FileReport] = field(default_factory=dict)
    """Files that are not in `_placed`."""

    left_out: dict[str, str] = field(default_factory=dict)
    copied: int = 0
    containers: dict[str, None] = field(default_factory=dict)
    snapshot_id: str | None = None

    _placed: list[tuple[list[FileReport], Any]] = field(default_factory=list)
    _runs: list[tuple[Run, int, int]] = field(default_factory=list)

    @property
    def added(self) -> int:
        """How many files are committed."""
        return sum(len(reports) for reports, _ in self._placed)

    def add(self, report: IngestReport, axis: GrownAxis | None) -> None:
        """Add what one batch did; `axis` is the changed first dimension, if there is a single dataset."""
        if axis is not None and not axis.appends:
            self._placed = [(reports, moved(starts, axis)) for reports, starts in self._placed]
            self._runs = [
                (run, *moved(np.array([start, stop - 1]), axis).tolist()) for run, start, stop in self._runs
            ]
            self._runs = [(run, start, stop + 1) for run, start, stop in self._runs]
        placed = [file for file in report.files if file.start is not None]
        self._placed.append((placed, np.array([file.start for file in placed], dtype=np.int64)))
        self.files |= {file.url: file for file in report.files if file.start is None}
        self._runs += [(run, run.start, run.stop) for run in report.runs]
        self.left_out |= report.left_out
        self.copied += report.copied
        self.containers |= dict.fromkeys(report.containers)
        self.snapshot_id = report.snapshot_id or self.snapshot_id

    def report(self, last: IngestReport, urls: Iterable[str], unchanged: set[str]) -> IngestReport:
        """The whole report, with files in the order in which they were named."""
        found = dict(self.files)
        for reports, starts in self._placed:
            for file, start in zip(reports, starts.tolist(), strict=True):
                found[file.url] = file if file.start == start else replace(file, start=start)
        listed = [
            found[url] if url in found else FileReport(url, "unchanged")
            for url in urls
            if url in found or url in unchanged
        ]
        return replace(
            last,
            runs=Runs(tuple(joined_runs([replace(run, start=a, stop=b) for run, a, b in self._runs]))),
            files=tuple(listed),
            snapshot_id=self.snapshot_id,
            containers=tuple(sorted(self.containers)),
            left_out=self.left_out,
            copied=self.copied,
        )


def moved(steps: np.ndarray[Any, np.dtype[np.int64]], axis: GrownAxis) -> np.ndarray[Any, Any]:
    """Where steps of an axis are after it has changed."""
    steps = steps.copy()
    for start, stop in axis.removed:
        steps[steps >= stop] -= stop - start
    for at, length in axis.openings:
        steps[steps >= at] += length
    return steps


def joined_runs(runs: Sequence[Run]) -> list[Run]:
    """Runs of several batches, joined if one continues another in the same way."""
    order = {name: i for i, name in enumerate(dict.fromkeys(run.variable for run in runs))}
    found: list[Run] = []
    for run in sorted(runs, key=lambda run: (order[run.variable], run.start)):
        last = found[-1] if found else None
        if last is not None and last.stop == run.start and _alike(last) == _alike(run):
            found[-1] = replace(last, stop=run.stop, last=run.last, files=last.files + run.files)
        else:
            found.append(run)
    return found


def _alike(run: Run) -> tuple[Any, ...]:
    return run.variable, run.chunks, run.codecs, run.stored, run.packing, run.copied
