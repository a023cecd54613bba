"""The versions of an array that the report's slider goes through."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from intarsia.report.page import Moment
from intarsia.report.survey import harmonised, survey
from intarsia.versions.history import history
from intarsia.versions.open import open
from intarsia.words import bounds_text, count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import icechunk

    from intarsia.versions import ArrayChange, HistoryEntry

__all__ = ["change_lines", "moments_of"]

MOST_LINES = 8
"""A commit that changes more regions than this is told in numbers."""


def moments_of(repo: icechunk.Repository, path: str, snapshot_id: str, most: int) -> tuple[list[Moment], int]:
    """The versions of an array up to a snapshot, oldest first, and how many were left out to show `most`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> moments, left_out = moments_of(repo, "t", tx.snapshot_id, 10)
    >>> [(moment.message, moment.changes) for moment in moments]
    [('create', ('created with shape (2,)', 'added [0:2] (gzip)'))]
    """
    entries = [
        entry
        for entry in reversed(history(repo, path, snapshot_id=snapshot_id))
        if entry.changes and entry.changes[0].shape_after is not None
    ]
    chosen = _spread(entries, most)
    moments = [
        Moment(
            survey(open(repo, path, snapshot_id=entry.snapshot_id)),
            entry.message,
            f"{entry.written_at:%Y-%m-%d %H:%M:%S} UTC",
            entry.snapshot_id,
            change_lines(entry.changes[0]),
        )
        for entry in chosen
    ]
    surveys = harmonised([moment.seen for moment in moments])
    told = [replace(moment, seen=seen) for moment, seen in zip(moments, surveys, strict=True)]
    return told, len(entries) - len(chosen)


def _spread(entries: Sequence[HistoryEntry], most: int) -> list[HistoryEntry]:
    """At most so many, evenly spaced, with the first and the last."""
    if len(entries) <= most:
        return list(entries)
    places = np.unique(np.linspace(0, len(entries) - 1, max(most, 2)).round().astype(int))
    return [entries[i] for i in places[-most:].tolist()]


def change_lines(change: ArrayChange, most: int = MOST_LINES) -> tuple[str, ...]:
    """What a commit did to an array, a line each."""
    lines = []
    if change.created:
        lines.append(f"created with shape {change.shape_after}")
    elif change.deleted:
        lines.append("deleted")
    elif change.shape_before != change.shape_after:
        lines.append(f"shape {change.shape_before} to {change.shape_after}")
    if len(change.regions) <= most:
        lines.extend(str(region) for region in change.regions)
    else:
        kinds = sorted({region.kind for region in change.regions})
        for kind in kinds:
            boxes = change.bounds(kind)
            lines.append(f"{kind} {count_text(len(boxes), 'box', 'boxes')}, first {bounds_text(boxes[0])}")
    if change.attributes:
        lines.append("attributes changed: " + ", ".join(change.attributes[:most]))
    return tuple(lines)
