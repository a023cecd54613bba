"""Writing the report page: its content is gathered here, even if part of an array is damaged."""

import datetime
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import icechunk
import numpy as np

from intarsia.errors import IntarsiaError
from intarsia.inspect.page import (
    ArrayReport,
    ArrayVersion,
    encodings_sections,
    mask_sections,
    render_page,
    slot_sections,
)
from intarsia.inspect.survey import share_labels, survey
from intarsia.logical.hierarchy import logical_arrays, not_logical
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import open as open_plain
from intarsia.logical.verify import Problem, verify
from intarsia.progress import Progress, part_of, silent
from intarsia.versions.history import HistoryEntry, history
from intarsia.versions.version import Version, open, resolve_store

MAX_VERSIONS = 40
STEPS = 1000
"""The versions of an array count as this many steps of the progress, and so does its check."""


def write_report(
    store: Any,
    path: str | None = None,
    file: str | os.PathLike[str] = "report.html",
    *,
    versions: int = MAX_VERSIONS,
    read_data: bool = False,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
    title: str | None = None,
    progress: Progress = silent,
) -> Path:
    """Write one HTML page about the logical arrays of a store or repository, or about the one at `path`.

    The page needs neither server nor network. It shows a picture of some of the values, the map of the
    regions over at most `versions` versions, bytes by codec, the ratio of every chunk, masks of `conditional`
    members, slots, and what `verify` finds; with `read_data`, it reads every stored chunk. For an ingested
    dataset, it first shows where the encoding of each variable changes.

    Args:
        store: A path or URL, a zarr store or group, or an Icechunk session or repository.
        path: The logical array; by default all of them.
        file: Where to write the page.
        branch: Read the tip of this branch. The default is `main`.
        tag: Read the version with this tag.
        snapshot_id: Read the snapshot with this id.
        as_of: Read the version that was current at this time, in UTC unless it says otherwise.
        title: The title of the page; by default the name of the store, as you gave it.
        progress: A function that is called with the number of steps done and of all steps, see
            `intarsia.types.Progress`. Steps are arrays.

    >>> import intarsia, tempfile
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = intarsia.write_report(repo, file=f"{folder}/report.html").read_text()
    >>> page.startswith("<!doctype html>")
    True
    """
    resolved = resolve_store(store, Version(branch, tag, snapshot_id, as_of))
    place, repo = resolved.store, resolved.repo
    paths = logical_arrays(place) if path is None else [path.strip("/")]
    if not paths:
        raise not_logical(place, "", "there is no logical array to report on")
    reports, whole = [], 2 * STEPS * len(paths)
    for done, name in enumerate(paths):
        looking, checking = (part_of(progress, (2 * done + i) * STEPS, STEPS, whole) for i in (0, 1))
        looking(0, 1)
        array = open_plain(place, name)
        moments: Sequence[ArrayVersion] = ()
        left_out = 0
        if repo is not None:
            moments, left_out = moments_of(repo, name, resolved.snapshot_id, versions, looking)
        reports.append(report_of(array, moments, read_data=read_data, left_out=left_out, progress=checking))
    reports = _in_common_colours(reports)
    now = datetime.datetime.now(datetime.UTC)
    about = f"Written on {now:%Y-%m-%d %H:%M} UTC by intarsia {version('intarsia')}."
    name = title or (str(store) if isinstance(store, str | os.PathLike) else "Logical arrays")
    encodings = encodings_sections(place, {each.path: each.now for each in reports})
    page = render_page(name, about, reports, encodings)
    progress(whole, whole)
    with whole_file(Path(file)) as stream:
        stream.write(page.encode("utf-8", "backslashreplace"))
    return Path(file)


def _in_common_colours(reports: Sequence[ArrayReport]) -> list[ArrayReport]:
    """The same reports, with one colour for each codec throughout the page."""
    versions = [moment.survey for report in reports for moment in report.moments]
    surveys = iter(share_labels([*versions, *(layer for report in reports for layer in report.replicas)]))
    reports = [
        replace(report, moments=[replace(moment, survey=next(surveys)) for moment in report.moments])
        for report in reports
    ]
    return [replace(report, replicas=[next(surveys) for _ in report.replicas]) for report in reports]


def report_of(
    array: LogicalArray,
    moments: Sequence[ArrayVersion] = (),
    *,
    read_data: bool = False,
    left_out: int = 0,
    progress: Progress = silent,
) -> ArrayReport:
    """Everything about an array and its versions; without versions, about the array as it is.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> report_of(array).problems
    []
    """
    moments = moments or [ArrayVersion(survey(array))]
    problems = list(verify(array, data=read_data, progress=progress))
    more: list[str] = []
    for what, sections in (("bitmasks", mask_sections), ("slots", slot_sections)):
        try:
            more += sections(array, moments[-1].survey.facts)
        except IntarsiaError as error:
            problems.append(Problem("data", array.path or "/", f"{what} cannot be read: {error}"))
    checked = "Manifest and members were checked" + (
        ", and every stored chunk was read." if read_data else "; stored chunks were not read."
    )
    replicas = [survey(array, layer=layer) for layer in array.manifest.layers[1:]]
    return ArrayReport(array, moments, left_out, replicas, problems, checked, more)


def moments_of(
    repo: icechunk.Repository, path: str, snapshot_id: str, most: int, progress: Progress = silent
) -> tuple[list[ArrayVersion], int]:
    """The versions of an array up to a snapshot, oldest first, and how many were left out to show `most`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> moments, left_out = moments_of(repo, "t", tx.snapshot_id, 10)
    >>> [(moment.entry.message, moment.entry.changes[0].lines()) for moment in moments]
    [('create', ('created with shape (2,)', 'added [0:2] (gzip-5)'))]
    """
    entries = [
        entry
        for entry in reversed(history(repo, path, snapshot_id=snapshot_id))
        if entry.changes and entry.changes[0].shape_after is not None
    ]
    shown = _evenly(entries, most)
    moments = []
    for done, entry in enumerate(shown, start=1):
        moments.append(ArrayVersion(survey(open(repo, path, snapshot_id=entry.snapshot_id)), entry))
        progress(done, len(shown))
    return moments, len(entries) - len(shown)


def _evenly(entries: Sequence[HistoryEntry], most: int) -> list[HistoryEntry]:
    """At most `most` of them, evenly spaced, including the first and the last."""
    if len(entries) <= most:
        return list(entries)
    places = np.unique(np.linspace(0, len(entries) - 1, max(most, 2)).round().astype(int))
    return [entries[i] for i in places[-most:].tolist()]


@contextmanager
def whole_file(file: Path) -> Iterator[IO[bytes]]:
    """A stream for writing a file that appears complete, or stays as it was."""
    if not file.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {file.parent}")
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a directory: name a file in it")
    beside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as stream:
            yield stream
        os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
