"""Writing the report page, and the map as a picture of its own."""

from __future__ import annotations

import datetime
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.array import open as open_plain
from intarsia.errors import NotLogicalArrayError
from intarsia.progress import silent
from intarsia.report.collect import report_of
from intarsia.report.find import logical_arrays
from intarsia.report.page import render_page
from intarsia.report.survey import survey
from intarsia.report.svg import draw_map
from intarsia.report.timeline import moments_of
from intarsia.versions.open import as_repository, session_at

if TYPE_CHECKING:
    from intarsia.array import LogicalArray
    from intarsia.progress import Progress

__all__ = ["MOST_VERSIONS", "region_map", "write_report"]

MOST_VERSIONS = 40


def region_map(array: LogicalArray) -> str:
    """The map of an array's regions as an SVG picture: drawn to scale, coloured by codec pipeline.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4, 4), chunks=(2, 2), dtype="f4")
    >>> array.add_region(((0, 2), (0, 4)), codecs=["gzip"])
    >>> intarsia.region_map(array).startswith("<svg")
    True
    """
    return draw_map(survey(array))


def write_report(
    store: Any,
    file: str | os.PathLike[str],
    path: str | None = None,
    *,
    versions: int = MOST_VERSIONS,
    read_data: bool = False,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
    title: str | None = None,
    progress: Progress = silent,
) -> Path:
    """Write one HTML page about the logical arrays of a store or repository, or about the one at `path`.

    The page needs neither server nor network. It shows the map of the regions over at most `versions`
    versions, bytes by codec, the ratio of every chunk, masks of `conditional` members, slots, and what
    `verify` finds; with `read_data` that reads every stored chunk.

    >>> import intarsia, tempfile
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = intarsia.write_report(repo, f"{folder}/report.html").read_text()
    >>> page.startswith("<!doctype html>")
    True
    """
    asked: dict[str, Any] = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id, "as_of": as_of}
    repo = as_repository(store)
    if repo is None and any(value is not None for value in asked.values()):
        raise TypeError("branch, tag, snapshot_id and as_of need an Icechunk repository")
    session = None if repo is None else session_at(repo, **asked)
    place = store if session is None else session.store
    paths = logical_arrays(place) if path is None else [path.strip("/")]
    if not paths:
        raise NotLogicalArrayError("there is no logical array to report on")
    reports = []
    for done, name in enumerate(paths):
        progress(done, len(paths))
        array = open_plain(place, name)
        if repo is None or session is None:
            reports.append(report_of(array, read_data=read_data))
        else:
            moments, left_out = moments_of(repo, name, session.snapshot_id, versions)
            reports.append(report_of(array, moments, read_data=read_data, left_out=left_out))
    now = datetime.datetime.now(datetime.UTC)
    about = f"Written on {now:%Y-%m-%d %H:%M} UTC by intarsia {version('intarsia')}."
    name = title or (str(store) if isinstance(store, str | os.PathLike) else "Logical arrays")
    page = render_page(name, about, reports)
    progress(len(paths), len(paths))
    return _write_whole(Path(file), page)


def _write_whole(file: Path, text: str) -> Path:
    """The file appears complete, or stays as it was."""
    if not file.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {file.parent}")
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return file
