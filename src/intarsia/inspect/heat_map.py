"""The heat map of the page: how well the chunks were compressed, for each cell of a plane."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from intarsia.display import markup, ratio_text, size_text
from intarsia.inspect import drawing
from intarsia.inspect.survey import Survey
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import NONE, Ints

HEAT_ROWS, HEAT_COLUMNS = 60, 80
"""The number of cells in the map: more cannot be told apart on a screen."""

HEAT = ("#7f2704", "#b35806", "#e08214", "#fdb863", "#d8daeb", "#b2abd2", "#8073ac", "#542788")
"""From chunks that grew (or hardly shrank) to chunks that nearly vanished."""

HEAT_EDGES = (0.98, 1.25, 2.0, 3.0, 5.0, 10.0, 30.0)
"""The ratios at which the colour changes; a header of a byte or two does not make a chunk "larger"."""


@dataclass(frozen=True, eq=False, slots=True)
class HeatCell(drawing.Rectangle):
    """A piece of the plane, with the chunks stored in it.

    >>> HeatCell((0, 0), (10, 10), 400.0, 100.0, 1).ratio
    4.0
    """

    nbytes: float
    """The size in memory of what is stored there."""

    stored: float
    """The stored bytes."""

    chunks: int
    """The number of stored chunks that lie there, at least in part."""

    @property
    def ratio(self) -> float:
        """The size in memory, divided by the stored size."""
        return self.nbytes / self.stored if self.stored else float("inf")


def _boxes(survey: Survey) -> tuple[Ints, ...]:
    """Every stored chunk as a box of the logical array, with its size in memory and in the store."""
    manifest = survey.manifest
    nowhere, none = np.empty((0, manifest.ndim), dtype=np.int64), np.empty(0, dtype=np.int64)
    parts = [(nowhere, nowhere, none, none)]
    assert survey.chunks is not None
    shift = survey.start - manifest.member_starts()  # from positions to the array's elements
    for i, member, rows in survey.shown_chunks():
        fact, chunks = survey.facts[member], survey.chunks[member]
        grain, view = np.array(fact.grain, dtype=np.int64), int(manifest.regions.view[i])
        first, last = chunks.index[rows] * grain, (chunks.index[rows] + 1) * grain
        if view != NONE:
            ends = zip(map(tuple, first.tolist()), map(tuple, last.tolist()), strict=True)
            shown = [manifest.views[view].places(Box(*box)) for box in ends]
            shape = len(shown), manifest.ndim
            first = np.array([box.start for box in shown], dtype=np.int64).reshape(shape)
            last = np.array([box.stop for box in shown], dtype=np.int64).reshape(shape)
        start = np.maximum(first + shift[i], survey.start[i])
        stop = np.minimum(last + shift[i], survey.stop[i])
        # A chunk at the member's edge is stored whole, so its whole size in memory was compressed.
        raw = np.full(len(rows), prod(fact.grain) * survey.itemsize, dtype=np.int64)
        parts.append((start, stop, raw, chunks.nbytes[rows]))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def heat_cells(survey: Survey) -> list[HeatCell]:
    """The cells that hold stored chunks; empty if nothing is stored or sizes were not measured.

    >>> import intarsia, numpy as np
    >>> from intarsia.inspect.survey import survey
    >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="f4")
    >>> array.append(np.ones((4, 4), dtype="f4"), codecs=[])
    >>> [(cell.start, cell.stop, cell.ratio) for cell in heat_cells(survey(array))]
    [((0, 0), (2, 4), 1.0), ((2, 0), (4, 4), 1.0)]
    """
    shape = survey.manifest.shape
    if survey.chunks is None or not prod(shape) or not len(survey):
        return []
    start, stop, raw, stored = _boxes(survey)
    cells = drawing.bin_plane(shape, start, stop, [raw, stored], (HEAT_ROWS, HEAT_COLUMNS))
    return [HeatCell(a, b, float(sums[0]), float(sums[1]), count) for a, b, count, sums in cells]


def heat_colour(ratio: float) -> int:
    """Which of the eight heat colours a compression ratio has.

    >>> heat_colour(0.9), heat_colour(1.5), heat_colour(100)
    (0, 2, 7)
    """
    return sum(ratio >= edge for edge in HEAT_EDGES)


def draw_heat(survey: Survey, cells: list[HeatCell]) -> str:
    """The heat map as one `<svg>` element."""
    pane = drawing.panes(survey.manifest.shape)[0]
    parts = [drawing.frame(pane)]
    for cell in cells:
        colour = HEAT[heat_colour(cell.ratio)]
        words = (
            f"{drawing.cell_bounds(survey, cell, pane.axes)} Chunks {cell.chunks}, "
            f"Size {size_text(round(cell.nbytes))}, Stored {size_text(round(cell.stored))}, "
            f"Ratio {ratio_text(round(cell.nbytes), round(cell.stored))}"
        )
        parts.append(drawing.rect(*pane.box(cell), colour, ' class="region"', markup(words)))
    parts.extend(drawing.draw_axes(survey, pane, cells))
    best = max((cell.ratio for cell in cells), default=1.0)
    worst = min((cell.ratio for cell in cells), default=1.0)
    about = f"Heat map of compression ratios per stored chunk, from {worst:.3g} to {best:.3g}"
    return drawing.svg(pane.y + pane.height + 36, about, parts)


def heat_scale() -> list[tuple[str, str]]:
    """Colours and their meanings, for the legend.

    >>> heat_scale()[0][1], heat_scale()[-1][1]
    ('below 0.98: larger than raw', '30 and more')
    """
    edges = [f"{edge:g}" for edge in HEAT_EDGES]
    middle = [f"{a} to {b}" for a, b in pairwise(edges)]
    return list(
        zip(HEAT, [f"below {edges[0]}: larger than raw", *middle, f"{edges[-1]} and more"], strict=True)
    )
