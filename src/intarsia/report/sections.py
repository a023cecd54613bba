"""Sections of the page: how well chunks were compressed, bitmasks of `conditional` codecs, slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from intarsia.array import LogicalArray
from intarsia.array.orientation import View
from intarsia.array.table import NONE, Ints
from intarsia.codecs.decide.masks import masks_by_codec
from intarsia.report.drawing import (
    COLOURS,
    LEFT,
    PLANE_WIDTH,
    RIGHT,
    cell_bounds,
    draw_axes,
    overlap,
    own_edges,
    panes,
    plane_axes,
    swatch,
)
from intarsia.report.members import MemberFacts
from intarsia.report.region_map import html_table
from intarsia.report.survey import Survey, shown_chunks
from intarsia.shards.inspection import SlotStats, slot_stats
from intarsia.words import count_text, markup, percent_text, ratio_text, size_text

HEAT_ROWS, HEAT_COLUMNS = 60, 80
"""Cells of the map: more than this cannot be told apart on a screen."""

HEAT = ("#7f2704", "#b35806", "#e08214", "#fdb863", "#d8daeb", "#b2abd2", "#8073ac", "#542788")
"""From chunks that grew (or hardly shrank) to chunks that nearly vanished."""

HEAT_EDGES = (0.98, 1.25, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Ratios at which the heat colour changes; a header of a byte or two does not make a chunk "larger"."""

EXACT_UP_TO = 20_000
"""More chunks than this are put where their middle lies, instead of being shared out between cells."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A piece of the plane, and the stored chunks in it.

    >>> HeatCell((0, 0), (10, 10), 400.0, 100.0, 1).ratio
    4.0
    """

    start: tuple[int, ...]
    """First element on every axis of the plane."""

    stop: tuple[int, ...]
    """Last element, excluded."""

    nbytes: float
    """Size in memory of what is stored there."""

    stored: float
    """Stored bytes."""

    chunks: int
    """Stored chunks that lie there, at least in part."""

    @property
    def ratio(self) -> float:
        """In memory over stored."""
        return self.nbytes / self.stored if self.stored else float("inf")


def _boxes(survey: Survey) -> tuple[Ints, Ints, Ints, Ints]:
    """Every stored chunk as a box of the logical array, with its size in memory and in the store."""
    manifest = survey.manifest
    starts, stops, raw, stored = [], [], [], []
    assert survey.chunks is not None
    shift = survey.start - manifest.member_starts()  # from places to the array's elements
    for i, member, rows in shown_chunks(manifest, survey.start, survey.stop, survey.facts, survey.chunks):
        fact, chunks = survey.facts[member], survey.chunks[member]
        grain, view = np.array(fact.grain, dtype=np.int64), int(manifest.regions.view[i])
        first, last = chunks.index[rows] * grain, (chunks.index[rows] + 1) * grain
        if view != NONE:
            first, last = _places(manifest.views[view], first, last)
        starts.append(np.maximum(first + shift[i], survey.start[i]))
        stops.append(np.minimum(last + shift[i], survey.stop[i]))
        # A chunk at the member's edge is stored whole, so its whole size in memory is what was compressed.
        raw.append(np.full(len(rows), prod(fact.grain) * survey.itemsize, dtype=np.int64))
        stored.append(chunks.nbytes[rows])
    ndim = manifest.ndim
    nothing = np.empty((0, ndim), dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate([nothing, *starts]),
        np.concatenate([nothing, *stops]),
        np.concatenate([none, *raw]),
        np.concatenate([none, *stored]),
    )


def _places(view: View, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Boxes of the member as boxes of places; as `View.places`, for many of them."""
    first = np.zeros((len(start), view.ndim), dtype=np.int64)
    last = np.ones_like(first)
    for i, (source, offset, stride) in enumerate(view.axes):
        if source is not None:
            ends = stride * (start[:, i] - offset), stride * (stop[:, i] - 1 - offset)
            first[:, source], last[:, source] = np.minimum(*ends), np.maximum(*ends) + 1
    return first, last


def heat_cells(survey: Survey) -> list[HeatCell]:
    """The cells that hold stored chunks; empty if nothing is stored or sizes were not measured.

    >>> import intarsia, numpy as np
    >>> from intarsia.report.survey import survey
    >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="f4")
    >>> array.append(np.ones((4, 4), dtype="f4"), codecs=[])
    >>> [(cell.start, cell.stop, cell.ratio) for cell in heat_cells(survey(array))]
    [((0, 0), (2, 4), 1.0), ((2, 0), (4, 4), 1.0)]
    """
    shape = survey.manifest.shape
    if survey.chunks is None or not prod(shape) or not len(survey):
        return []
    start, stop, raw, stored = _boxes(survey)
    axes = plane_axes(shape)
    low, high = _plane(start, axes), _plane(stop, axes, whole=1)
    sizes = [1] * (2 - len(axes)) + [shape[axis] for axis in axes]
    edges = [
        _edges(low[:, i], high[:, i], sizes[i], most) for i, most in enumerate((HEAT_ROWS, HEAT_COLUMNS))
    ]
    counts, memory, kept = _sums(edges, low, high, raw, stored)
    cells = []
    for i, j in zip(*np.nonzero(counts), strict=True):
        first = (int(edges[0][i]), int(edges[1][j]))[2 - len(axes) :]
        last = (int(edges[0][i + 1]), int(edges[1][j + 1]))[2 - len(axes) :]
        cells.append(HeatCell(first, last, float(memory[i, j]), float(kept[i, j]), int(counts[i, j])))
    return cells


def _plane(corner: Ints, axes: tuple[int, ...], whole: int = 0) -> Ints:
    """The coordinates on the plane; a missing axis has the single place 0."""
    missing = np.full((len(corner), 2 - len(axes)), whole, dtype=np.int64)
    return np.concatenate([missing, corner[:, list(axes)]], axis=1)


def _edges(low: Ints, high: Ints, size: int, most: int) -> Ints:
    own = own_edges(low, high, size)
    if len(own) - 1 <= most:
        return own
    equal: Ints = np.unique(np.linspace(0, size, most + 1).astype(np.int64))
    return equal


def _sums(edges: list[Ints], low: Ints, high: Ints, raw: Ints, stored: Ints) -> Any:
    """Chunks, bytes in memory and bytes stored for every cell."""
    shape = (len(edges[0]) - 1, len(edges[1]) - 1)
    if len(low) > EXACT_UP_TO:
        middle = (low + high) // 2
        at = tuple(
            np.clip(np.searchsorted(edges[i], middle[:, i], side="right") - 1, 0, shape[i] - 1)
            for i in range(2)
        )
        counts, memory, kept = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        np.add.at(counts, at, 1)
        np.add.at(memory, at, raw)
        np.add.at(kept, at, stored)
        return counts, memory, kept
    # A chunk's bytes are shared out by area: the share of its rows in a cell times that of its columns.
    rows, columns = (
        overlap(edges[i], low[:, i], high[:, i]) / np.maximum(high[:, None, i] - low[:, None, i], 1)
        for i in range(2)
    )
    return (
        (rows > 0).T.astype(np.float64) @ (columns > 0),
        (rows * raw[:, None]).T @ columns,
        (rows * stored[:, None]).T @ columns,
    )


def heat_colour(ratio: float) -> int:
    """Which of the eight heat colours a compression ratio has.

    >>> heat_colour(0.9), heat_colour(1.5), heat_colour(100)
    (0, 2, 7)
    """
    return sum(ratio >= edge for edge in HEAT_EDGES)


def draw_heat(survey: Survey, cells: list[HeatCell]) -> str:
    """The heat map as one `<svg>` element; every cell carries its place in the list."""
    pane = panes(survey.manifest.shape)[0]
    parts = [
        f'<rect x="{pane.x:g}" y="{pane.y:g}" width="{pane.width:g}" height="{pane.height:g}" '
        'fill="var(--hole)" stroke="var(--line)"/>'
    ]
    for number, cell in enumerate(cells):
        x, y, width, height = pane.box(cell)
        parts.append(
            f'<rect class="region" data-cell="{number}" x="{x:.5g}" y="{y:.5g}" width="{width:.4g}" '
            f'height="{height:.4g}" fill="{HEAT[heat_colour(cell.ratio)]}"/>'
        )
    parts.extend(draw_axes(survey, pane, cells))
    best = max((cell.ratio for cell in cells), default=1.0)
    worst = min((cell.ratio for cell in cells), default=1.0)
    about = markup(f"Heat map of compression ratios per stored chunk, from {worst:.3g} to {best:.3g}")
    width, height = LEFT + PLANE_WIDTH + RIGHT, pane.y + pane.height + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{about}" font-size="12">{"".join(parts)}</svg>'
    )


def cell_text(survey: Survey, cell: HeatCell) -> str:
    """A cell in words."""
    where = cell_bounds(survey, cell, plane_axes(survey.manifest.shape))
    return (
        f"{where} Chunks {cell.chunks}, Size {size_text(round(cell.nbytes))}, "
        f"Stored {size_text(round(cell.stored))}, "
        f"Ratio {ratio_text(round(cell.nbytes), round(cell.stored))}"
    )


def heat_scale() -> list[tuple[str, str]]:
    """Colour and meaning, for the legend.

    >>> heat_scale()[0][1], heat_scale()[-1][1]
    ('below 0.98: larger than raw', '30 and more')
    """
    edges = [f"{edge:g}" for edge in HEAT_EDGES]
    middle = [f"{a} to {b}" for a, b in pairwise(edges)]
    return list(
        zip(HEAT, [f"below {edges[0]}: larger than raw", *middle, f"{edges[-1]} and more"], strict=True)
    )


MASK_ROWS, MASK_COLUMNS = 40, 64
MOST_MASKED, MOST_SLOTTED = 20, 50
"""A page shows this many members with a conditional codec, and with slots."""


@dataclass(frozen=True, eq=False)
class MaskUse:
    """The bitmasks of one member.

    >>> use = MaskUse("m-1", ("shuffle", "zstd"), np.ma.MaskedArray([[0, 3], [3, 3]], mask=[[0, 0], [0, 1]]))
    >>> use.counts()
    {3: 2, 0: 1}
    >>> use.words(3), use.words(0)
    ('shuffle + zstd', 'none')
    """

    member: str
    """Its name."""

    nested: tuple[str, ...]
    """The nested codecs, bit 0 first."""

    masks: np.ma.MaskedArray[Any, np.dtype[Any]]
    """Over the member's chunk grid; masked where nothing is stored."""

    def counts(self) -> dict[int, int]:
        """Chunks of every bitmask that occurs, the most frequent first."""
        values, numbers = np.unique(self.masks.compressed(), return_counts=True)
        counts = {int(value): int(number) for value, number in zip(values, numbers, strict=True)}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def words(self, mask: int) -> str:
        """The codecs that a bitmask says were applied."""
        applied = [name for bit, name in enumerate(self.nested) if mask >> bit & 1]
        return " + ".join(applied) or "none"

    def html(self) -> str:
        """A section of the report."""
        counts = self.counts()
        total = sum(counts.values())
        rows = []
        for i, (mask, number) in enumerate(counts.items()):
            bits = f"{mask:0{len(self.nested)}b}"
            rows.append((swatch(i, self.words(mask)), bits, f"{number:,}", percent_text(number / total)))
        if not rows:
            return f"<h3>Conditional codecs of {markup(self.member)}</h3><p>Nothing is stored yet.</p>"
        return "".join(
            [
                f"<h3>Conditional codecs of <code>{markup(self.member)}</code></h3>",
                '<p class="soft">Which nested codecs each stored chunk went through; where several chunks '
                "share a cell, the most frequent answer.</p>",
                self._picture(list(counts)),
                html_table(("Applied", "Mask", "Chunks stored", "Share"), rows, "masks"),
            ]
        )

    def _picture(self, order: Sequence[int]) -> str:
        winners = _most_frequent(self.masks, order)
        rows, columns = winners.shape
        size = max(4.0, min(28.0, 640 / columns, 320 / rows))
        parts = []
        for (i, j), place in np.ndenumerate(winners):
            if place < 0:
                continue
            colour = COLOURS[min(int(place), len(COLOURS) - 1)]
            parts.append(
                f'<rect class="region" x="{78 + j * size:.5g}" y="{4 + i * size:.5g}" '
                f'width="{size - 0.5:.4g}" '
                f'height="{size - 0.5:.4g}" fill="{colour}"><title>{markup(self.words(order[place]))}</title>'
                "</rect>"
            )
        width, height = 78 + columns * size + 8, rows * size + 8
        about = markup(f"Grid of the chunks of {self.member}, coloured by the codecs that were applied")
        return (
            '<div class="map" tabindex="0" role="group" aria-label="Masks per chunk; arrow keys go from one '
            f'to the next"><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img" aria-label="{about}">{"".join(parts)}</svg>'
            '<p class="readout" aria-live="polite"></p></div>'
        )


def _most_frequent(
    masks: np.ma.MaskedArray[Any, np.dtype[Any]], order: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For every cell of a bounded plane, the place in `order` of its most frequent mask; -1 for none."""
    axes = plane_axes(masks.shape)
    others = tuple(axis for axis in range(masks.ndim) if axis not in axes)
    stored = ~np.ma.getmaskarray(masks)
    best = None
    winners = np.zeros((1, 1), dtype=np.int64)
    for place, mask in enumerate(order):
        hit = ((masks.filled(0) == mask) & stored).sum(axis=others)
        plane = hit.reshape((1,) * (2 - hit.ndim) + hit.shape)
        coarse = _folded(_folded(plane, 0, MASK_ROWS), 1, MASK_COLUMNS)
        if best is None:
            best = np.zeros(coarse.shape)
            winners = np.full(coarse.shape, -1, dtype=np.int64)
        better = coarse > best
        winners[better], best[better] = place, coarse[better]
    return winners


def _folded(counts: np.ndarray[Any, Any], axis: int, most: int) -> np.ndarray[Any, Any]:
    """Sums of neighbours, so that at most `most` places are left on the axis."""
    size = counts.shape[axis]
    if size <= most:
        return counts
    starts = np.unique(np.linspace(0, size, most + 1).astype(np.int64)[:-1])
    folded: np.ndarray[Any, Any] = np.add.reduceat(counts, starts, axis=axis)
    return folded


def mask_uses(array: LogicalArray, facts: Sequence[MemberFacts]) -> tuple[MaskUse, ...]:
    """The bitmasks of the members with a `conditional` codec, read from chunk headers alone."""
    uses: list[MaskUse] = []
    for fact in facts:
        nested = fact.conditional_codecs
        if nested and len(uses) < MOST_MASKED:
            names = tuple(str(codec.get("name")) for codec in nested)
            by_codec = masks_by_codec(array.members[fact.name])
            first = next(bitmasks for path, bitmasks in by_codec.items() if "." not in path)  # not one inside
            uses.append(MaskUse(fact.name, names, first))
    return tuple(uses)


@dataclass(frozen=True)
class SlotUse:
    """The slots of one member.

    >>> stats = SlotStats(shards=1, slotted=1, slots=8, slots_used=2, bytes_used=32, bytes_stored=260,
    ...                   bytes_on_disk=8192, bytes_compacted=164, bytes_freed=4096)
    >>> "2 of 8" in SlotUse("m-1", stats).html()
    True
    """

    member: str
    """Its name."""

    stats: SlotStats
    """In numbers."""

    def html(self) -> str:
        """A section of the report."""
        stats = self.stats
        share = stats.slots_used / stats.slots if stats.slots else 0.0
        bar = (
            '<svg role="img" width="320" height="14" '
            f'aria-label="{markup(percent_text(share))} of the slots are used">'
            '<rect width="320" height="14" fill="var(--hole)"/>'
            f'<rect width="{320 * share:.4g}" height="14" fill="#4477aa"/></svg>'
        )
        rows = [
            ("Slots used", f"{stats.slots_used:,} of {stats.slots:,}"),
            ("Shards with slots", f"{stats.slotted:,} of {stats.shards:,}"),
            ("Stored", size_text(stats.bytes_stored)),
            ("On disk", size_text(stats.bytes_on_disk)),
            ("Freed by compaction", size_text(stats.bytes_freed)),
        ]
        return (
            f"<h3>Slots of <code>{markup(self.member)}</code></h3>{bar}"
            + html_table(("", ""), [(markup(name), markup(value)) for name, value in rows], "slots")
            + (
                f'<p class="soft">intarsia compact makes {count_text(stats.slotted, "shard")} plain.</p>'
                if stats.slotted
                else ""
            )
        )


def slot_uses(array: LogicalArray, facts: Sequence[MemberFacts]) -> tuple[SlotUse, ...]:
    """The slots of every sharded member in a local store that has any."""
    if not isinstance(array.store, LocalStore):
        return ()
    sharded = [fact.name for fact in facts if fact.is_sharded][:MOST_SLOTTED]
    uses = (SlotUse(name, slot_stats(array.members[name])) for name in sharded)
    return tuple(use for use in uses if use.stats.slotted)
