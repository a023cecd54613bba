"""The order of files along the concatenation axis: where each new one goes, and which cannot go anywhere."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.joins import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Placement", "Segment", "arrange"]


@dataclass(frozen=True, slots=True)
class Segment:
    """The coordinate values of one source."""

    url: str
    """Where it is."""

    values: np.ndarray[Any, Any] | None
    """Its coordinate; None where files have none."""

    length: int
    """How many steps it has."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a new file goes."""

    file: int
    """Its position among the new ones."""

    at: int
    """The step of the axis, as it was, before which it goes."""

    length: int
    """How many steps it has."""


def arrange(
    old: Sequence[Segment], new: Sequence[Segment], dim: str, attrs: Mapping[str, Any]
) -> tuple[list[Placement], dict[int, str]]:
    """Placements of the new files in the order of the axis, and for the others the reason.

    >>> a, b = (Segment(f"{n}.nc", np.array([n]), 1) for n in (1, 3))
    >>> arrange([a, b], [Segment("2.nc", np.array([2]), 1), Segment("x.nc", np.array([3]), 1)], "time", {})
    ([Placement(file=0, at=1, length=1)], {1: 'its time 3 … 3 overlaps that of 3.nc (3 … 3)'})
    """
    if any(segment.values is None for segment in (*old, *new)):
        total = sum(segment.length for segment in old)
        return [Placement(i, total, segment.length) for i, segment in enumerate(new)], {}
    refused: dict[int, str] = {}
    # (first value, last value, name, position among the new ones or -1), in the order of the axis
    taken: list[tuple[Any, Any, str, int]] = [(*_ends(segment), segment.url, -1) for segment in old]
    for i, segment in enumerate(new):
        values = segment.values
        assert values is not None
        if values.dtype.kind in "fc" and bool(np.isnan(values).any()):
            refused[i] = f"its {dim} holds missing values"
            continue
        if bool((values[1:] <= values[:-1]).any()):
            refused[i] = f"its {dim} does not increase from step to step"
            continue
        first, last = _ends(segment)
        place = bisect_left(taken, first, key=lambda entry: entry[0])
        rivals = [taken[j] for j in (place - 1, place) if 0 <= j < len(taken)]
        clash = next((r for r in rivals if r[0] <= last and r[1] >= first), None)
        if clash is not None:
            ends = labels(np.array([first, last, clash[0], clash[1]]), attrs)
            refused[i] = (
                f"its {dim} {ends[0]} … {ends[1]} overlaps that of {clash[2]} ({ends[2]} … {ends[3]})"
            )
            continue
        insort(taken, (first, last, segment.url, i), key=lambda entry: entry[0])
    placements, at, position = [], 0, 0
    for *_, i in taken:
        if i < 0:
            at += old[position].length
            position += 1
        else:
            placements.append(Placement(i, at, new[i].length))
    return placements, refused


def _ends(segment: Segment) -> tuple[Any, Any]:
    assert segment.values is not None
    return segment.values[0].item(), segment.values[-1].item()
