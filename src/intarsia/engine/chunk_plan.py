"""The chunks of one part of a plan: which they are, what is wanted from each, and where it goes.

Axes are cut at chunk borders one by one; a chunk is a combination of one piece per axis. Objects are made
only for the chunks at hand, so a plan of a million chunks is a few columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.engine.fetch.store import ByteRanges, Fetcher
from intarsia.engine.inner_chunks import WORTH_A_PIECE, ChunkLocations, chunk_piece
from intarsia.manifest.data_types import Values, write_decoded
from intarsia.manifest.packing_columns import Packings

if TYPE_CHECKING:
    from intarsia.engine.plan import AxisSelector, RegionPart
    from intarsia.engine.prepared_member import EngineMember
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.region_table import Ints


type Placement = tuple[Any, Any]
"""Where a chunk goes in the output, and what is taken from it; None means all of it, in order."""

_NOWHERE = np.empty(0, dtype=np.int64)


def outer_index(selectors: tuple[AxisSelector, ...], shape: tuple[int, ...]) -> Any:
    """The selectors as a NumPy index for an outer product, which is an array even without dimensions."""
    if not selectors:
        return ...  # () would give a scalar, and a scalar text forgets the length of its type
    if sum(not isinstance(selector, slice) for selector in selectors) <= 1:
        return selectors
    axes = zip(selectors, shape, strict=True)
    return np.ix_(*(np.arange(n)[s] if isinstance(s, slice) else s for s, n in axes))


class AxisCuts:
    """One axis of a part, cut at the member's chunk borders, and wherever another region begins."""

    __slots__ = ("chunk", "inside", "target", "whole")

    chunk: list[int]
    """Which chunks of the axis: each once, except those in which another region begins."""

    inside: list[AxisSelector]
    """What is taken from each."""

    target: list[AxisSelector]
    """Where that goes in the output."""

    whole: list[bool]
    """Whether all of it is taken, in order."""

    def __init__(
        self, source: AxisSelector, target: AxisSelector, size: int, borders: Ints | None = None
    ) -> None:
        borders = _NOWHERE if borders is None else borders[borders % size != 0]
        if isinstance(source, slice) and isinstance(target, slice):
            self._cut_slice(source, target, size, borders)
        else:
            self._cut_indices(np.asarray(source), np.asarray(target), size, borders)

    def _cut_slice(self, source: slice, target: slice, size: int, borders: Ints) -> None:
        position, stop, step = source.start, source.stop, source.step or 1
        at, down = target.start, (target.step or 1) < 0
        # A loop, as most parts have a few chunks along an axis, for which columns take longer.
        self.chunk, self.inside, self.target, self.whole = [], [], [], []
        inner = borders[(borders > position) & (borders < stop)].tolist() if borders.size else ()
        ends = iter((*inner, stop))
        end = next(ends)
        while position < stop:
            while end <= position:
                end = next(ends)
            chunk = position // size
            begin = position - chunk * size
            # The steps that fit between `begin` and the end of the chunk, or of anything that ends earlier.
            count = (min(size, end - chunk * size) - 1 - begin) // step + 1
            self.chunk.append(chunk)
            self.inside.append(slice(begin, begin + (count - 1) * step + 1, step))
            if down:
                after = at - count
                self.target.append(slice(at, after if after >= 0 else None, -1))
            else:
                after = at + count
                self.target.append(slice(at, after))
            self.whole.append(count == size and step == 1 and not down)
            position, at = position + count * step, after

    def _cut_indices(self, source: Ints, target: Ints, size: int, borders: Ints) -> None:
        # Chunks and borders before an index: both grow along the axis, so their sum separates the pieces.
        owner = source // size
        if borders.size:
            owner = owner + borders.searchsorted(source, side="right")
        order = np.argsort(owner, kind="stable")
        first = np.unique(owner[order], return_index=True)[1]
        groups = np.split(order, first[1:])
        self.chunk = (source[order[first]] // size).tolist()
        self.inside = [source[g] - c * size for g, c in zip(groups, self.chunk, strict=True)]
        self.target = [target[g] for g in groups]
        self.whole = [False] * len(self.chunk)


class ChunkPlan:
    """The chunks of one part, and what is known about their bytes."""

    def __init__(
        self,
        part: RegionPart,
        source: EngineMember,
        points: bool,
        packing: Packing | Packings | None = None,
    ) -> None:
        self.part, self.source = part, source
        self.packing = packing
        """How numbers become values; one packing per region if the part is a strip."""
        self.out: Values = None
        """The array that is read into or written from, with the axes of the member; set once it is there."""
        self.locations: ChunkLocations | None = None
        self.inner: tuple[Ints, Ints] | None = None
        """The shard of each chunk, and the chunk's position in it, if the fetcher looks it up."""
        self.fetcher: Fetcher | None = None
        self._points: list[Placement] | None = None
        self._regions: Ints = _NOWHERE
        """For a strip: the region of each chunk if points are read, otherwise of each piece of its axis."""
        if points and source.grid:
            self._cut_points()
        else:
            self._cut_axes(points)
        self.present: Ints = np.arange(self.chunks.size)
        """The chunks that must be fetched, as positions in `chunks`."""
        self.nbytes: Ints = np.full(self.chunks.shape, source.decoder.nbytes)
        """The stored size of each chunk; its decoded size if that is unknown; -1 if it is not stored."""
        self.stored_sizes_are_known = False
        self.request: Ints | None = None
        """For each chunk, the number of its request, if the fetcher joins them."""
        self.missing: list[int] = []
        """The chunks that turned out not to be stored when they were fetched."""

    def _cut_axes(self, points: bool) -> None:
        part, source = self.part, self.source
        targets: Any = (
            part.output_selection if not points else ()
        )  # zero-dimensional: one element, taken repeatedly
        axes, strip = zip(part.member_selection, targets, source.chunk_shape, strict=True), part.strip
        if strip is None:
            self._axes = [AxisCuts(*axis) for axis in axes]
        else:
            borders = [strip.borders if k == strip.axis else None for k in range(len(source.grid))]
            self._axes = [AxisCuts(*axis, at) for axis, at in zip(axes, borders, strict=True)]
            cuts, size = self._axes[strip.axis], source.chunk_shape[strip.axis]
            first = [inside.start if isinstance(inside, slice) else inside[0] for inside in cuts.inside]
            self._regions = strip.holding(np.array(cuts.chunk) * size + np.array(first))
        self._counts = tuple([len(axis.chunk) for axis in self._axes])
        self._gather = [type(axis.target[0]) for axis in self._axes].count(np.ndarray) > 1
        if points:
            self._points = [(part.output_selection, ())]
        # Positions in C order, by Horner's rule: the result for the axes so far, times the size of the next.
        position: Any = 0
        for axis, size in zip(self._axes, source.grid, strict=True):
            if len(axis.chunk) == 1:
                position = position * size + axis.chunk[0]
            else:
                along = np.array(axis.chunk, dtype=np.int64)
                position = np.asarray(position, dtype=np.int64)[..., None] * size + along
        self.chunks: Ints = np.array(position, dtype=np.int64).reshape(-1)

    def _cut_points(self) -> None:
        part, source = self.part, self.source
        shape = source.chunk_shape
        owners = [np.asarray(c) // n for c, n in zip(part.member_selection, shape, strict=True)]
        owner = np.ravel_multi_index(tuple(owners), source.grid)
        strip = part.strip
        if strip is None:
            order = np.argsort(owner, kind="stable")
            first = np.unique(owner[order], return_index=True)[1]
        else:
            region = strip.holding(np.asarray(part.member_selection[strip.axis]))
            order = np.lexsort((region, owner))
            changes = (np.diff(owner[order]) != 0) | (np.diff(region[order]) != 0)
            first = np.append(0, np.flatnonzero(changes) + 1)
            self._regions = region[order[first]]
        self.chunks = owner[order[first]].astype(np.int64)
        places: Any = part.output_selection[0]
        self._points = []
        for group in np.split(order, first[1:]):
            inside = tuple(
                np.asarray(c)[group] % n for c, n in zip(part.member_selection, shape, strict=True)
            )
            self._points.append(((places[group],), inside))

    def set_sizes(self, nbytes: Ints) -> None:
        """Set the stored size of each chunk, -1 for those that are not stored."""
        self.nbytes, self.stored_sizes_are_known = nbytes, True
        self.present = np.flatnonzero(nbytes >= 0)

    def set_requests(self, request: Ints) -> None:
        """Set the request of each present chunk; chunks are fetched in this order."""
        self.request = np.full(self.chunks.shape, -1, dtype=np.int64)
        self.request[self.present] = request
        self.present = self.present[np.argsort(request, kind="stable")]

    def spans(self, positions: Ints) -> ByteRanges:
        """The bytes of these chunks."""
        within = None if self.inner is None else self.inner[1][positions]
        if self.locations is None:
            return ByteRanges(self.source, self.object_index[positions], within=within)
        object_index, start, nbytes = (column[positions] for column in self.locations)
        return ByteRanges(self.source, object_index, start, nbytes, within)

    @property
    def object_index(self) -> Ints:
        """The stored objects: each chunk, or the shard in which the fetcher finds it."""
        return self.chunks if self.inner is None else self.inner[0]

    def look_up_later(self, shard: Ints, within: Ints) -> None:
        """Leave it to the fetcher to find chunks in their shards; those of a shard are fetched together."""
        self.inner = shard, within
        if shard.size > 1:
            self.present = np.argsort(shard, kind="stable")

    def region_of(self, position: int) -> int:
        """The row of the region that a chunk belongs to."""
        strip = self.part.strip
        return self.part.row if strip is None else int(strip.rows[self._regions_of(np.array([position]))[0]])

    def incomplete_regions(self) -> list[int]:
        """The rows of the regions that have chunks which are not stored."""
        if self.present.size == self.chunks.size and not self.missing:
            return []
        strip = self.part.strip
        if strip is None:
            return [self.part.row]
        positions = np.append(np.flatnonzero(self.nbytes < 0), np.array(self.missing, dtype=np.int64))
        rows: list[int] = strip.rows[np.unique(self._regions_of(positions))].tolist()
        return rows

    def packings(self, positions: Ints) -> Iterable[Packing | None]:
        """How the numbers of these chunks become values."""
        if not isinstance(self.packing, Packings):
            return repeat(self.packing, positions.size)
        return self.packing.some(self._regions_of(positions))

    def _regions_of(self, positions: Ints) -> Ints:
        """Which regions of the strip these chunks belong to."""
        if self._points is None and self.part.strip is not None:
            positions = np.unravel_index(positions, self._counts)[self.part.strip.axis]
        return self._regions[positions]

    def covered(self, size: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which chunks of this size, or shards, are taken as a whole, as far as they lie in the array."""
        if self._points is not None:
            return np.zeros(self.chunks.shape, dtype=bool)
        covered: Any = np.ones((), dtype=bool)
        part, shape = self.part, self.source.metadata.shape
        axes = zip(part.member_selection, part.output_selection, size, shape, strict=True)
        for taken, target, n, length in axes:
            cuts = AxisCuts(taken, target, n)
            along = [
                isinstance(inside, slice)
                and inside.start == 0
                and inside.step in (None, 1)
                and inside.stop >= min(n, length - chunk * n)
                for inside, chunk in zip(cuts.inside, cuts.chunk, strict=True)
            ]
            covered = covered[..., None] & np.array(along)
        flat: np.ndarray[Any, np.dtype[np.bool_]] = covered.reshape(-1)
        return flat

    def narrow(self) -> None:
        """From chunks without a compressor, fetch only the stretch that holds what is wanted."""
        decoder, shape = self.source.decoder, self.source.chunk_shape
        if not (decoder.is_raw and decoder.nbytes >= WORTH_A_PIECE and self.source.grid):
            return
        if self._points is not None:
            insides: Iterable[tuple[AxisSelector, ...]] = (inside for _, inside in self._points)
        elif all(all(axis.whole) for axis in self._axes):
            return
        else:
            insides = product(*(axis.inside for axis in self._axes))
        pieces = [chunk_piece(inside, shape) for inside in insides]
        # A chunk of another size is damaged, which is found when all of it is read.
        part = np.array([piece is not None for piece in pieces]) & (self.nbytes == decoder.nbytes)
        if not part.any():
            return
        object_index, start, nbytes = self.locations or ChunkLocations(
            self.object_index, np.zeros_like(self.chunks), self.nbytes
        )
        itemsize = decoder.stored_dtype.itemsize
        first, size = np.array([(piece.first, piece.size) if piece else (0, 0) for piece in pieces]).T
        self.nbytes = np.where(part, size * itemsize, nbytes)
        self.locations = ChunkLocations(object_index, start + part * first * itemsize, self.nbytes)

    def placements(self, positions: Ints) -> Iterator[Placement]:
        """Where these chunks go, and what is taken from them."""
        if self._points is not None:
            yield from (self._points[k] for k in positions.tolist())
            return
        if not self._axes:
            yield from ((..., None) for _ in positions)
            return
        if len(self.chunks) == 1 and not self._gather:  # like most small reads
            only = [(axis.target[0], axis.inside[0], axis.whole[0]) for axis in self._axes]
            target, inside, are_whole = zip(*only, strict=True)
            yield from [(target, None if all(are_whole) else inside)] * positions.size
            return
        columns = [column.tolist() for column in np.unravel_index(positions, self._counts)]
        cut = list(zip(self._axes, columns, strict=True))
        # One loop per axis, and no Python loop per chunk: there may be many small chunks.
        targets = zip(*([axis.target[k] for k in column] for axis, column in cut), strict=True)
        insides = zip(*([axis.inside[k] for k in column] for axis, column in cut), strict=True)
        if self._gather:
            shape, onto = self.source.chunk_shape, self.out.shape
            for target, inside in zip(targets, insides, strict=True):
                yield outer_index(target, onto), outer_index(inside, shape)
            return
        wholes = map(all, zip(*([axis.whole[k] for k in column] for axis, column in cut), strict=True))
        for target, inside, whole in zip(targets, insides, wholes, strict=True):
            yield target, None if whole else inside

    def whole_target(self) -> Any:
        """Where the whole part goes in the output."""
        if self._points is not None:
            return self.part.output_selection
        return outer_index(self.part.output_selection, self.out.shape)

    def put(self, values: Values, target: Any, inside: Any, packing: Packing | None) -> None:
        """Put what is taken from a decoded chunk where it belongs."""
        write_decoded(self.out, target, values if inside is None else values[inside], packing)

    def put_each(self, chunks: Iterable[Values], positions: Ints) -> None:
        """Put decoded chunks where they belong, one after the other."""
        each = zip(chunks, self.placements(positions), self.packings(positions), strict=True)
        for values, (target, inside), packing in each:
            self.put(values, target, inside, packing)

    def put_together(self, chunks: Values, positions: Ints) -> None:
        """The same; of slices, a row of chunks is one copy if they lie one behind the other."""
        last_axis = self._axes[-1].chunk if self._points is None else []
        is_sliced = bool(last_axis) and all(isinstance(axis.target[0], slice) for axis in self._axes)
        is_gapless = is_sliced and last_axis[-1] - last_axis[0] == len(last_axis) - 1
        if not is_gapless or isinstance(self.packing, Packings) or not isinstance(self.out, np.ndarray):
            self.put_each(chunks, positions)
            return
        ends = (positions[1:] - positions[:-1] != 1) | (positions[1:] % self._counts[-1] == 0)
        stops = np.append(ends.nonzero()[0] + 1, positions.size)
        starts = np.append(0, stops[:-1])
        outer = self.placements(positions[starts]), self.placements(positions[stops - 1])
        for start, stop, first, last in zip(starts.tolist(), stops.tolist(), *outer, strict=True):
            self._put_row(chunks[start:stop], first, last, self.packing)

    def _put_row(self, chunks: Values, first: Placement, last: Placement, packing: Packing | None) -> None:
        """Put neighbours along the last axis where they belong, which is said for two of them."""
        shape = self.source.chunk_shape
        inside, end = (placement[1] or tuple(slice(0, n) for n in shape) for placement in (first, last))
        begin, target = inside[-1], first[0][-1]
        place = self.out[(*first[0][:-1], slice(target.start, last[0][-1].stop, target.step))]
        rows = chunks[(slice(None), *inside[:-1])]
        row = rows.transpose(*range(1, rows.ndim - 1), 0, -1)
        if first[1] is None and last[1] is None:
            place = place.reshape(row.shape)  # the same memory: only an axis is cut
        else:
            stop = (len(chunks) - 1) * shape[-1] + end[-1].stop
            row = row.reshape(*row.shape[:-2], -1)[..., slice(begin.start, stop, begin.step)]
        write_decoded(place, ..., row, packing)

    def fill_value(self, packing: Packing | None) -> Any:
        """The value of chunks that are not stored, by the packing of their region."""
        fill_value = self.source.fill_value
        return fill_value if packing is None else packing.decode(fill_value)
