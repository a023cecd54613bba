"""What every picture is drawn with: colours, planes and strips with scales, and boxes projected onto them.

People with colour-blindness can tell the colours apart, on light and dark backgrounds; letters help.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise, product
from math import isqrt, prod
from typing import Any

import numpy as np

from intarsia.display import Markup, markup
from intarsia.inspect.survey import Survey
from intarsia.manifest.region_table import Ints

# Tol's "muted" scheme, reordered so that neighbours in a legend differ most, and made a little lighter or
# darker where text in the page's colour must be legible on it.
COLOURS = ("#4477aa", "#ddaa33", "#228833", "#cc6677", "#66ccee", "#aa3377", "#999933", "#8c7a6b")

LEFT, TOP, RIGHT = 84.0, 14.0, 34.0
PLANE_WIDTH, PLANE_HEIGHT = 640.0, 400.0
FLATTEST, NARROWEST = 56.0, 120.0
"""A plane flatter or narrower than this shows nothing; its axes then differ in scale, and it says so."""

STRIP_HEIGHT = 24.0
TICK_GAP_X, TICK_GAP_Y = 52.0, 15.0
DATE_WIDTH = 78.0
"""The width of a date below an axis, with the space beside it."""


@cache
def asset(name: str) -> str:
    """A file that pages and pictures include: a style sheet or a script."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def style() -> str:
    """The styles of notebook output; all are below the class `intarsia`, so that nothing else changes."""
    return f"<style>{asset('map.css').replace(chr(10), '')}</style>"


@dataclass(frozen=True, eq=False, slots=True)
class Rectangle:
    """A piece of a plane or strip."""

    start: tuple[int, ...]
    """The first element on every axis of the plane."""

    stop: tuple[int, ...]
    """The last element, excluded."""


@dataclass(frozen=True)
class Pane:
    """Where a plane or strip lies in the picture, and what it shows."""

    x: float
    """Its left edge."""

    y: float
    """Its upper edge."""

    width: float
    """The width, in units of the picture."""

    height: float
    """The height, in units of the picture."""

    axes: tuple[int, ...]
    """The axes of the array that it shows: two, one or none."""

    shape: tuple[int, ...]
    """The shape of the whole array."""

    def box(self, cell: Rectangle) -> tuple[float, float, float, float]:
        """The left, top, width and height of a cell."""
        sizes = [self.shape[axis] for axis in self.axes]
        spans = [(a / n, b / n) for a, b, n in zip(cell.start, cell.stop, sizes, strict=True)]
        across = spans[-1] if spans else (0.0, 1.0)
        down = spans[0] if len(spans) == 2 else (0.0, 1.0)
        return (
            self.x + across[0] * self.width,
            self.y + down[0] * self.height,
            max(0.8, (across[1] - across[0]) * self.width),
            max(0.8, (down[1] - down[0]) * self.height),
        )


def axis_name(survey: Survey, axis: int) -> str:
    """The name of an axis, or its number."""
    names = survey.manifest.dimension_names
    return (names and names[axis]) or f"axis {axis}"


def cell_bounds(survey: Survey, cell: Rectangle, axes: tuple[int, ...]) -> str:
    """The bounds of a cell as in a subscript; it spans all axes that are not shown."""
    where = {axis: f"{a}:{b}" for axis, a, b in zip(axes, cell.start, cell.stop, strict=True)}
    return "[" + ", ".join(where.get(axis, ":") for axis in range(survey.manifest.ndim)) + "]"


def panes(shape: tuple[int, ...], axes: tuple[int, ...] | None = None) -> list[Pane]:
    """The plane of two axes, by default the two longest, and a strip for every other axis."""
    axes = plane_axes(shape) if axes is None else axes
    result = []
    y = TOP
    if len(axes) == 2:
        rows, columns = shape[axes[0]], shape[axes[1]]
        scale = min(PLANE_WIDTH / columns, PLANE_HEIGHT / rows)
        width = min(PLANE_WIDTH, max(NARROWEST, columns * scale))
        height = min(PLANE_HEIGHT, max(FLATTEST, rows * scale))
        result.append(Pane(LEFT, y, width, height, axes, shape))
        y += height + 46
        strips = [axis for axis in range(len(shape)) if axis not in axes]
    elif axes:
        strips = list(axes)
    else:
        return [Pane(LEFT, y, STRIP_HEIGHT * 2, STRIP_HEIGHT * 2, (), shape)]
    for axis in strips:
        result.append(Pane(LEFT, y, PLANE_WIDTH, STRIP_HEIGHT, (axis,), shape))
        y += STRIP_HEIGHT + 40
    return result


def svg(height: float, about: str, parts: Iterable[str], width: float = LEFT + PLANE_WIDTH + RIGHT) -> str:
    """One `<svg>` element; `about` says what it shows to people who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" class="intarsia" aria-label="{markup(about)}" '
        f'font-family="system-ui,sans-serif" font-size="12">{"".join(parts)}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, fill: str, more: str = "", title: str = "") -> str:
    """A rectangle with `more` attributes; `title` is shown when the pointer is on it."""
    shape = f'<rect x="{x:.5g}" y="{y:.5g}" width="{width:.4g}" height="{height:.4g}" fill="{fill}"{more}'
    return f"{shape}><title>{title}</title></rect>" if title else f"{shape}/>"


def frame(pane: Pane, title: str = "") -> str:
    """The background of a plane or strip: what is seen where there is nothing."""
    line = ' stroke="var(--line,#d0d7de)"'
    return rect(pane.x, pane.y, pane.width, pane.height, "var(--hole,#eef1f4)", line, title)


def soft(content: str) -> str:
    """A remark, in markup."""
    return f'<p class="soft">{content}</p>'


def details(summary: str, content: str, kind: str = "") -> str:
    """A section to unfold."""
    return f"<details{kind}><summary>{markup(summary)}</summary>{content}</details>"


def wide(picture: str) -> str:
    """A picture that narrow screens scroll sideways, so that its letters stay legible."""
    return f'<div class="wide">{picture}</div>'


def explorable(picture: str, about: str) -> str:
    """A picture on the page that names the piece under the pointer, or reached with the arrow keys."""
    return (
        f'<div class="map intarsia" tabindex="0" role="group" '
        f'aria-label="{markup(about)}; arrow keys go from one to the next">{wide(picture)}'
        '<p class="readout" aria-live="polite"></p></div>'
    )


def draw_axes(survey: Survey, pane: Pane, cells: Sequence[Rectangle]) -> list[str]:
    """The ticks, their numbers, and the names of the axes."""
    if not pane.axes:
        return []
    parts = []
    below = pane.y + pane.height
    axis = pane.axes[-1]
    for place, words in _ticks(survey, pane, cells, -1, pane.width, TICK_GAP_X):
        x = pane.x + place / pane.shape[axis] * pane.width
        parts.append(_tick(x, below, x, below + 4))
        parts.append(svg_text(x, below + 15, words, "soft", "middle", 11))
    parts.append(svg_text(pane.x + pane.width / 2, below + 29, axis_name(survey, axis), "ink", "middle"))
    if len(pane.axes) == 2:
        down = pane.axes[0]
        for place, words in _ticks(survey, pane, cells, 0, pane.height, TICK_GAP_Y):
            y = pane.y + place / pane.shape[down] * pane.height
            parts.append(_tick(pane.x - 4, y, pane.x, y))
            parts.append(svg_text(pane.x - 7, y + 4, words, "soft", "end", 11))
        x, y = (7.0 if survey.dates(down) else 14.0), pane.y + pane.height / 2  # dates need the space
        turned = f' transform="rotate(-90 {x:g} {y:.5g})"'
        parts.append(svg_text(x, y, axis_name(survey, down), "ink", "middle", more=turned))
        across, along = pane.width / pane.shape[pane.axes[1]], pane.height / pane.shape[pane.axes[0]]
        if not 0.99 < across / along < 1.01:
            parts.append(svg_text(pane.x, pane.y - 4, "axes at different scales", "soft", size=11))
    return parts


def _ticks(
    survey: Survey, pane: Pane, cells: Sequence[Rectangle], side: int, length: float, gap: float
) -> list[tuple[int, str]]:
    """Both ends, and the edges of regions as far as their labels fit: positions, and their labels."""
    axis = pane.axes[side]
    size = pane.shape[axis]
    edges = sorted({edge for cell in cells for edge in (cell.start[side], cell.stop[side])})
    dates = survey.dates(axis)
    if dates and side == -1:
        gap = max(gap, DATE_WIDTH)
    places = [0, size]
    for edge in edges:
        if all(abs(edge - other) / size * length >= gap for other in places):
            places.append(edge)
    places.sort()
    return list(zip(places, dates(places) if dates else map(str, places), strict=True))


def _tick(x1: float, y1: float, x2: float, y2: float) -> str:
    line = f'<line x1="{x1:.5g}" y1="{y1:.5g}" x2="{x2:.5g}" y2="{y2:.5g}" '
    return line + 'stroke="var(--soft,#57606a)"/>'


TONES = {"ink": "var(--ink,#1b1f24)", "soft": "var(--soft,#57606a)"}


def svg_text(
    x: float,
    y: float,
    words: str,
    tone: str,
    anchor: str = "start",
    size: int = 12,
    longest: int = 60,
    more: str = "",
) -> str:
    """A line of text in one of the two tones or in a colour, cut to `longest` characters."""
    place = f'x="{x:.5g}" y="{y:.5g}"{more} text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="{TONES.get(tone, tone)}">{markup(words, longest)}</text>'


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour.

    >>> ink_on("#ddaa33"), ink_on("#4477aa")
    ('#111', '#fff')
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "#fff"


def shade(colour: str, times: int) -> str:
    """A lighter shade of a colour, for another kind of the same thing; the lighter, the more kinds there are.

    >>> shade("#228833", 0), shade("#228833", 1)
    ('#228833', '#7ab885')
    """
    weight = 0.6**times
    return "#" + "".join(f"{round(255 - (255 - int(colour[i : i + 2], 16)) * weight):02x}" for i in (1, 3, 5))


def swatch(colour: str, words: str, letter: str = "\xa0") -> Markup:
    """A legend entry: the colour, with a letter if the picture has letters, and what it stands for."""
    style = f"background:{colour};color:{ink_on(colour)};padding:0 .4em;margin-right:.2em"
    return Markup(f'<span style="{style}">{letter}</span> {markup(words)}')


type Floats = np.ndarray[Any, np.dtype[np.float64]]

BINNED_AT_ONCE = 20_000
"""The boxes that are divided among cells at a time: their number times that of rows and columns is memory."""

SMALLEST_SHARE = 1e-9
"""Anything smaller is left over from rounding, and not a share."""


@dataclass(frozen=True, eq=False, slots=True)
class Cell(Rectangle):
    """A box of the plane (or line), and what lies behind it along the other axes."""

    shares: tuple[tuple[int, float], ...]
    """How much of it each group fills: (group, share of one); the rest is empty."""

    regions: Ints
    """The rows of the regions behind it."""


def plane_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """The two longest axes, in order: those that a picture of values shows.

    >>> plane_axes((365, 720, 1440)), plane_axes((10,)), plane_axes(())
    ((1, 2), (0,), ())
    """
    longest = sorted(range(len(shape)), key=lambda axis: (-shape[axis], axis))[:2]
    return tuple(sorted(longest))


def map_axes(shape: Sequence[int], start: Ints, stop: Ints) -> tuple[int, ...]:
    """The two axes that separate regions: the longest that regions divide, then the longest others.

    If all regions follow one another along time, a plane without time would show them on top of one another.

    >>> map_axes((9, 72, 144), np.array([[0, 0, 0], [5, 0, 0]]), np.array([[5, 72, 144], [9, 72, 144]]))
    (0, 2)
    """
    divided = ((start != start[:1]) | (stop != stop[:1])).any(axis=0) if len(start) else np.zeros(len(shape))
    first = sorted(range(len(shape)), key=lambda axis: (not divided[axis], -shape[axis], axis))[:2]
    return tuple(sorted(first))


def project(
    shape: Sequence[int], start: Ints, stop: Ints, group: Ints, axes: tuple[int, ...], most_cells: int
) -> list[Cell]:
    """Cells that show every region on `axes`, never more than about `most_cells`.

    Regions keep their own outline as long as their projections are few and do not cross; otherwise the plane
    is cut at their edges, or, if even that is too much, into equal cells.

    >>> cells = project((4, 4), np.array([[0, 0], [2, 0]]), np.array([[2, 4], [4, 4]]), np.array([0, 1]),
    ...                 (0, 1), most_cells=100)
    >>> [(cell.start, cell.stop, cell.shares) for cell in cells]
    [((0, 0), (2, 4), ((0, 1.0),)), ((2, 0), (4, 4), ((1, 1.0),))]
    """
    if not len(start) or not prod(shape):
        return []
    columns = list(axes)
    low, high = start[:, columns], stop[:, columns]
    others = [axis for axis in range(len(shape)) if axis not in axes]
    depth = np.prod(stop[:, others] - start[:, others], axis=1, dtype=np.float64)
    depth = depth / prod(shape[axis] for axis in others)
    boxes = np.unique(np.stack([low, high], axis=1), axis=0)
    if len(boxes) > most_cells or _cross(boxes[:, 0], boxes[:, 1]):
        edges = _grid_edges(low, high, [shape[axis] for axis in axes], most_cells)
        boxes = np.array([*product(*map(pairwise, edges))]).swapaxes(1, 2)
    cells = []
    for first, last in boxes:
        rows = np.flatnonzero(np.all((low < last) & (high > first), axis=1))
        inside = np.minimum(high[rows], last) - np.maximum(low[rows], first)
        filled = depth[rows] * np.prod(inside / (last - first), axis=1)
        totals = enumerate(np.bincount(group[rows], weights=filled).tolist())
        shares = tuple((i, min(1.0, share)) for i, share in totals if share > SMALLEST_SHARE)
        if rows.size:
            cells.append(Cell(tuple(first.tolist()), tuple(last.tolist()), shares, rows))
    return cells


def _cross(low: Ints, high: Ints) -> bool:
    """Whether two of these boxes overlap."""
    pairs = ((low[i + 1 :] < high[i]) & (high[i + 1 :] > low[i]) for i in range(len(low) - 1))
    return any(bool(pair.all(axis=1).any()) for pair in pairs)


def edges_of(low: Ints, high: Ints, size: int, most: int) -> Ints:
    """Where boxes begin and end on an axis; the edges of equal cells if there are more than `most`."""
    own: Ints = np.unique(np.concatenate([low, high, [0, size]]))
    equal: Ints = np.unique(np.linspace(0, size, most + 1).astype(np.int64))
    return own if len(own) - 1 <= most else equal


def _grid_edges(low: Ints, high: Ints, sizes: Sequence[int], most_cells: int) -> list[Ints]:
    """The edges of about `most_cells`: an axis that boxes hardly divide leaves the other one more."""
    columns = list(zip(low.T, high.T, sizes, strict=True))
    few = [len(edges_of(*column, isqrt(most_cells))) - 1 for column in columns]
    return [edges_of(*column, most_cells * n // prod(few)) for column, n in zip(columns, few, strict=True)]


def share_boxes(
    box: tuple[float, float, float, float], shares: Sequence[tuple[int, float]], *, layered: bool
) -> Iterator[tuple[int, tuple[float, float, float, float]]]:
    """For each group in a cell, its part of the cell's box: one above another, or side by side."""
    x, y, width, height = box
    for group, share in shares:
        across, down = (width, height * share) if layered else (width * share, height)
        yield group, (x, y, across, down)
        x, y = (x, y + down) if layered else (x + across, y)


def overlap(edges: Ints, low: Ints, high: Ints) -> Floats:
    """The length of every region in every interval; shape (regions, intervals)."""
    reach = np.minimum(edges[None, 1:], high[:, None]) - np.maximum(edges[None, :-1], low[:, None])
    lengths: Floats = np.clip(reach, 0, None).astype(np.float64)
    return lengths


def bin_plane(
    shape: Sequence[int], start: Ints, stop: Ints, amounts: Sequence[Any], most: tuple[int, int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, Floats]]:
    """The cells of the plane of values (or line, or point) that boxes touch, in at most so many rows and
    columns: start, stop, the number of boxes, and the sum of each kind of amount.

    Every part of a box has its share of the box's amounts. The part in a cell is a box: its rows times its
    columns. So the sums over all boxes, for all cells at once, are one matrix product.

    >>> boxes = np.array([[0], [0]]), np.array([[2], [4]])
    >>> cells = bin_plane((4,), *boxes, [np.array([5, 6])], (1, 2))
    >>> [(*cell[:3], cell[3].tolist()) for cell in cells]
    [((0,), (2,), 2, [8.0]), ((2,), (4,), 1, [3.0])]
    """
    axes = list(plane_axes(shape))
    missing = 2 - len(axes)  # a line is a plane of one row
    low = np.pad(start[:, axes], ((0, 0), (missing, 0)))
    high = np.pad(stop[:, axes], ((0, 0), (missing, 0)), constant_values=1)
    limits = zip(low.T, high.T, [1] * missing + [shape[axis] for axis in axes], most, strict=True)
    rows, columns = (edges_of(*limit) for limit in limits)
    weights = np.array(amounts) / np.prod(high - low, axis=1, dtype=np.float64)
    counts = np.zeros((len(rows) - 1, len(columns) - 1))
    sums = np.zeros((len(weights), *counts.shape))
    for at in range(0, len(low), BINNED_AT_ONCE):
        part = slice(at, at + BINNED_AT_ONCE)
        tall = overlap(rows, low[part, 0], high[part, 0])
        wide = overlap(columns, low[part, 1], high[part, 1])
        counts += (tall > 0).T.astype(np.float64) @ (wide > 0)
        for i, weight in enumerate(weights):
            sums[i] += (tall * weight[part, None]).T @ wide
    for i, j in np.argwhere(counts).tolist():
        first, last = (int(rows[i]), int(columns[j])), (int(rows[i + 1]), int(columns[j + 1]))
        yield first[missing:], last[missing:], int(counts[i, j]), sums[:, i, j]
