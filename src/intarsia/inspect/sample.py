"""A bounded look at the values of an array: every n-th element, with a limit on what is decoded.

A user who looks at an array of 100,000 x 100,000 elements wants some of them, and wants them now. What cannot
be read is marked; the rest is returned.
"""

from __future__ import annotations

import logging
import time
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from intarsia.engine.reader import chunk_shape
from intarsia.engine.stored_array import StoredArray
from intarsia.errors import BoundsError
from intarsia.logical.explain import explain
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.box import Box, chunk_grid
from intarsia.nullable import NullableValues

LOG = logging.getLogger(__name__)

MAX_SAMPLES = 1 << 18
"""The most elements in one answer: a picture of 512 x 512."""

MAX_DECODED = 256 << 20
"""The most bytes of chunks that one answer may decode. A larger chunk is still read, but only one."""

MAX_CHUNKS = 1_024
"""The most chunks that one answer may decode: each has a cost, however small it is."""

MAX_TRIES = 64
MAX_SECONDS = 5.0
"""How many reads, and seconds, are spent to find out what cannot be read: a server may be down."""

VALUE, NULL, DAMAGED, HOLE = range(4)
"""What a sample is: a value, no value, something that cannot be read, or the fill value of a hole."""

FAILURES = (Exception,)
"""What stores and codecs raise for damaged data: anything, including zlib's errors and EOFError."""

type Span = int | range
"""What is sampled on an axis: one index, or evenly spaced ones."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Values of an array, evenly spaced.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4, 6), chunks=(2, 6), dtype="i2")
    >>> array.add_region([(0, 2), (0, 6)], data=np.arange(12).reshape(2, 6))
    >>> seen = sample(array, [range(0, 4, 1), range(0, 6, 3)])
    >>> seen.values.tolist(), seen.status[:, 0].tolist()
    ([[0.0, 3.0], [6.0, 9.0], [0.0, 0.0], [0.0, 0.0]], [0, 0, 3, 3])
    """

    values: np.ndarray[Any, np.dtype[np.floating[Any]]]
    """As numbers: times become counts since 1970, complex numbers magnitudes, texts checksums."""

    status: np.ndarray[Any, np.dtype[np.uint8]]
    """For each value, what it is: `VALUE`, `NULL`, `DAMAGED` or `HOLE`."""

    coarser: int = 1
    """To stay within the limits, one in this many indices on each axis was read; it stands for the others."""

    problem: str = ""
    """What is wrong with the first damaged part; empty if nothing is."""

    @property
    def finite(self) -> np.ndarray[Any, Any]:
        """The finite values, without nulls, holes and damage."""
        finite: np.ndarray[Any, Any] = self.values[(self.status == VALUE) & np.isfinite(self.values)]
        return finite

    def limits(self, low: float = 2, high: float = 98) -> tuple[float, float]:
        """The range of most values, by percentiles; (0, 1) if there are none."""
        finite = self.finite
        if not finite.size:
            return 0.0, 1.0
        ends = np.percentile(finite, [low, high])
        if ends[0] == ends[1]:
            ends = np.array([finite.min(), finite.max()])
        return float(ends[0]), float(ends[1])


def sample(array: StoredArray, spans: Sequence[Span]) -> Sample:
    """Sample some elements of an array; `spans` has one entry per axis."""
    ranges = [range(span, span + 1) if isinstance(span, int) else span for span in spans]
    _check(array.shape, ranges)
    coarser, thinned = 1, ranges
    while _costs_too_much(array, thinned):
        coarser *= 2
        thinned = [span[::coarser] for span in ranges]
    shape, reading = tuple(map(len, thinned)), _Reading(array)
    values, status = np.zeros(shape, _number_type(array.dtype)), np.zeros(shape, np.uint8)
    if prod(shape):
        reading.read(thinned, values, status)
        _mark_holes(array, thinned, status)
    if coarser > 1:
        values, status = (_repeat(each, coarser, tuple(map(len, ranges))) for each in (values, status))
    kept = tuple(len(span) for span in spans if not isinstance(span, int))
    return Sample(values.reshape(kept), status.reshape(kept), coarser, reading.problem)


def _check(shape: tuple[int, ...], ranges: Sequence[range]) -> None:
    if len(ranges) != len(shape):
        raise BoundsError(f"{len(ranges)} spans for an array of {len(shape)} axes")
    for axis, (span, size) in enumerate(zip(ranges, shape, strict=True)):
        if span.step < 1 or (span and not 0 <= span[0] <= span[-1] < size):
            raise BoundsError(f"{span} lies outside axis {axis}, which has {size} places")
    most = prod(map(len, ranges))
    if most > MAX_SAMPLES:
        raise BoundsError(f"{most:,} elements are more than one answer may hold: {MAX_SAMPLES:,}")


def _selection(ranges: Sequence[range]) -> tuple[slice, ...]:
    return tuple(slice(span.start, span.stop, span.step) for span in ranges)


def _costs_too_much(array: StoredArray, ranges: Sequence[range]) -> bool:
    """Whether a read would decode more than is allowed; a single chunk is always allowed."""
    chunks = nbytes = 0
    try:
        parts = explain(array, _selection(ranges)).parts
    except FAILURES:  # a member that is gone: the read will find out
        return False
    for part in parts:
        member: Any = array.members[part.member] if isinstance(array, LogicalArray) else array
        size = chunk_shape(member)
        grid = prod(chunk_grid(member.shape, size))
        count = min(part.elements, grid) if part.chunks is None else part.fetched or 0
        chunks += count
        nbytes += count * prod(size) * member.dtype.itemsize
    return chunks > 1 and (chunks > MAX_CHUNKS or nbytes > MAX_DECODED)


class _Reading:
    """A read that continues past damage: it halves what it reads, between chunks."""

    def __init__(self, array: StoredArray) -> None:
        self._array, self._chunks = array, chunk_shape(array)
        self._tries, self._began, self.problem = 0, time.monotonic(), ""

    def read(self, ranges: Sequence[range], values: Any, status: Any) -> None:
        """Read `ranges` into arrays of their shape."""
        self._tries += 1
        try:
            numbers, null = numbers_of(self._array[_selection(ranges)])
        except FAILURES as error:
            if not self.problem:
                self.problem = str(error) or type(error).__name__
                LOG.debug("a sample cannot be read: %s", self.problem)
            late = self._tries >= MAX_TRIES or time.monotonic() - self._began > MAX_SECONDS
            cut = None if late else self._middle(ranges)
            if cut is None:
                status[...] = DAMAGED
                return
            axis, place = cut
            for half in (slice(place), slice(place, None)):
                part, inside = list(ranges), (slice(None),) * axis + (half,)
                part[axis] = part[axis][half]
                self.read(part, values[inside], status[inside])
            return
        values[...], status[...] = numbers, np.where(null, NULL, VALUE)

    def _middle(self, ranges: Sequence[range]) -> tuple[int, int] | None:
        """The axis, and the place on it, where about half of the chunks end; None if there is only one."""
        ends = [(span[0] // n, span[-1] // n) for span, n in zip(ranges, self._chunks, strict=True)]
        counts = [min(len(span), b - a + 1) for span, (a, b) in zip(ranges, ends, strict=True)]
        if max(counts, default=0) < 2:
            return None
        axis = counts.index(max(counts))
        return axis, bisect_left(ranges[axis], (sum(ends[axis]) + 1) // 2 * self._chunks[axis])


def split_nulls(values: Any) -> tuple[Any, Any]:
    """Values as an ordinary array, and where they are null."""
    if isinstance(values, NullableValues):
        return np.asarray(values.values), values.isnull()
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        return values.data, mask == np.ones((), mask.dtype)  # a null record is one in every field
    values = np.asarray(values)
    return values, np.zeros(values.shape, dtype=bool)


def numbers_of(values: Any) -> tuple[Any, Any]:
    """Values as numbers that can be drawn, and where they are null.

    >>> numbers_of(np.array(["2020-01-02", "NaT"], dtype="M8[D]"))
    (array([ 1.82630000e+04, -9.22337204e+18]), array([False,  True]))
    """
    values, null = split_nulls(values)
    kind = values.dtype.kind
    if kind in "mM":
        return values.astype(np.int64).astype(np.float64), null | np.isnat(values)
    if kind == "c":
        values = np.abs(values)
    elif kind not in "biuf":
        # Equal texts have equal numbers: a picture shows where they change.
        texts = [str(text).encode("utf-8", "replace") for text in values.reshape(-1).tolist()]
        values = np.array([zlib.crc32(text) % 4096 for text in texts], dtype=np.float64).reshape(values.shape)
    return values.astype(_number_type(values.dtype)), null


def _number_type(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """A type that holds the numbers well enough to draw them."""
    small = (dtype.kind in "biu" and dtype.itemsize <= 2) or (dtype.kind == "f" and dtype.itemsize <= 4)
    return np.float32 if small else np.float64


def _mark_holes(array: StoredArray, ranges: Sequence[range], status: Any) -> None:
    """Mark what no region covers."""
    manifest = array.manifest
    box = Box.of((span[0], span[-1] + 1) for span in ranges)
    covered = np.zeros(status.shape, dtype=bool)
    for row in manifest.regions.touching(manifest.cells(box)).tolist():
        bounds = manifest.elements(manifest.regions.row(row).box).bounds
        inside = (
            slice(bisect_left(span, a), bisect_left(span, b))
            for (a, b), span in zip(bounds, ranges, strict=True)
        )
        covered[tuple(inside)] = True
    status[~covered & (status != DAMAGED)] = HOLE


def _repeat(values: Any, coarser: int, shape: tuple[int, ...]) -> Any:
    for axis, size in enumerate(shape):
        values = np.repeat(values, coarser, axis=axis).take(range(size), axis=axis)
    return values
