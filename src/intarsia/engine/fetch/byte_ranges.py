"""Ranges of objects that are fetched with one request: neighbours, and ranges so close together that reading
the gap costs less than another request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from intarsia.engine.fetch.store import ByteRanges
    from intarsia.manifest.region_table import Ints


type Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Limits(NamedTuple):
    """How far joining goes."""

    most_gap: int
    """A gap of more bytes than this is never read."""

    share: int
    """The gaps in an object may add up to the wanted bytes divided by this."""

    free: int
    """The gaps in an object may always add up to this many bytes: they come almost for free."""

    most_bytes: int
    """Ranges that begin this far after the first one of a request go into another request."""


REMOTE = Limits(most_gap=1 << 20, share=10, free=32 << 10, most_bytes=4 << 20)
"""For object stores. A request takes tens of milliseconds before its first byte arrives, time enough for a
megabyte. But so many requests wait at once that in the end the bytes count, hence the tenth. Requests longer
than a few megabytes gain nothing, and cannot be fetched side by side."""

FILES = Limits(most_gap=16 << 10, share=2, free=16 << 10, most_bytes=1 << 20)
"""For files on this machine: another call costs less than reading more than that in vain."""


class RangeRequests(NamedTuple):
    """Requests, and what each of them holds."""

    request: Ints
    """For every range, the number of its request; numbers rise with object and position."""

    owner: Ints
    """The object of each request."""

    first: Ints
    """The first byte of each request."""

    last: Ints
    """The byte after the last one of each request."""

    @property
    def nbytes(self) -> int:
        """The number of bytes read in all."""
        return int((self.last - self.first).sum())


def coalesce_ranges(owner: Ints, start: Ints, nbytes: Ints, limits: Limits) -> RangeRequests:
    """The fewest requests for these ranges of objects, within the limits.

    In each object, the smallest gaps are closed first. Every closed gap saves one request, whatever its size,
    so no other choice saves more requests for as many bytes.

    >>> column = np.array
    >>> limits = Limits(9, 10, 8, 999)
    >>> found = coalesce_ranges(column([7, 7, 7]), column([0, 900, 100]), column([99, 50, 50]), limits)
    >>> found.request, found.first, found.last
    (array([0, 1, 0]), array([  0, 900]), array([150, 950]))
    """
    if not owner.size:
        return RangeRequests(owner, owner, owner, owner)
    order = np.lexsort((start, owner))
    owner, start, end = owner[order], start[order], (start + nbytes)[order]
    first_of_object = np.append(True, owner[1:] != owner[:-1])
    reach = _reach(end, first_of_object)
    gap = start.copy()
    gap[1:] -= reach[:-1]
    begins = first_of_object | ~_closed(gap, start, reach, first_of_object, limits)
    begins = _cut(begins, start, limits.most_bytes)
    number = np.cumsum(begins) - 1
    at = np.flatnonzero(begins)
    request = np.empty(owner.shape, dtype=np.int64)
    request[order] = number
    return RangeRequests(request, owner[at], start[at], np.maximum.reduceat(end, at))


def coalesce_spans(
    spans: Sequence[ByteRanges], limits: Limits = REMOTE
) -> tuple[list[ByteRanges], Callable[[list[Any]], list[Any]]]:
    """Fewer, larger ranges that hold all that is requested, and a function that cuts the pieces out."""
    ranges: list[ByteRanges] = []
    cuts: list[tuple[int, int, int | None]] = []  # the request of a piece, and its first and last byte there
    requests = 0
    for item in spans:
        if item.start is None or item.nbytes is None or bool((item.start < 0).any()):
            # Whole objects have nothing to join; a range that counts from the end has no known neighbours.
            cuts += [(requests + i, 0, None) for i in range(len(item.object_index))]
        else:
            request, object_index, first, last = coalesce_ranges(
                item.object_index, item.start, item.nbytes, limits
            )
            begin = item.start - first[request]
            columns = requests + request, begin, begin + item.nbytes
            cuts += zip(*(column.tolist() for column in columns), strict=True)
            item = item._replace(object_index=object_index, start=first, nbytes=last - first)
        ranges.append(item)
        requests += len(item.object_index)

    def cut_out(received: list[Any]) -> list[Any]:
        return [_piece(received[request], first, last) for request, first, last in cuts]

    return ranges, cut_out


def _piece(whole: Any, first: int, last: int | None) -> Any:
    if last is None or whole is None or isinstance(whole, BaseException):
        return whole
    return memoryview(whole)[first:last]


def _reach(end: Ints, first_of_object: Flags) -> Ints:
    """For each range, how far those of its object reach up to it: one may end within another."""
    if not ((end[1:] < end[:-1]) & ~first_of_object[1:]).any():
        return end
    parts = np.split(end, np.flatnonzero(first_of_object)[1:])
    return np.concatenate([np.maximum.accumulate(part) for part in parts])


def _closed(
    gap: Ints,
    start: Ints,
    reach: Ints,
    first_of_object: Flags,
    limits: Limits,
) -> Flags:
    """Which ranges come with the one before them, including the gap."""
    number = np.cumsum(first_of_object) - 1
    gap = np.maximum(np.where(first_of_object, 0, gap), 0)
    # The bytes of an object that are wanted: all from its first to its last, except the gaps.
    at = np.flatnonzero(first_of_object)
    ends = np.append(at[1:], gap.size) - 1
    wanted = reach[ends] - start[at] - np.add.reduceat(gap, at)
    allowed = np.maximum(wanted // limits.share, limits.free)
    order = np.lexsort((gap, number))
    # Smallest first, summed up within each object: `at` is where each object begins in this order, too.
    total = np.cumsum(gap[order])
    before = np.where(at > 0, total[at - 1], 0)
    spent = total - before[number]
    closed = np.empty(gap.shape, dtype=bool)
    closed[order] = (spent <= allowed[number]) & (gap[order] <= limits.most_gap)
    return closed & ~first_of_object


def _cut(begins: Flags, start: Ints, most_bytes: int) -> Flags:
    """Cut long requests where a range begins in another stretch of `most_bytes`, from the first byte on."""
    first = start[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    stretch = (start - first) // most_bytes
    cut: Flags = begins | np.append(False, stretch[1:] != stretch[:-1])
    return cut
