"""What every picture is drawn with: colours, and planes and strips with their scales, ticks and names.

The colours are told apart by people with colour-blindness, on light and on dark ground; letters help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from intarsia.report.escaping import markup
from intarsia.report.projection import plane_axes

if TYPE_CHECKING:
    from intarsia.report.survey import Survey


# Tol's "muted" scheme, reordered so that neighbours in a legend differ most, made a little lighter or
# darker where text of the page's colour has to be read on it.
COLOURS = ("#4477aa", "#ddaa33", "#228833", "#cc6677", "#66ccee", "#aa3377", "#999933", "#8c7a6b")
LETTERS = "ABCDEFGH"

STYLE = """
.intarsia{--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--hole:#eef1f4;--page:#fff;color:var(--ink);
font:13px/1.45 system-ui,sans-serif;max-width:860px}
@media (prefers-color-scheme:dark){.intarsia{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--hole:#262c36;
--page:#14181d}}
:root[data-jp-theme-light=true] .intarsia,[data-theme=light] .intarsia,.vscode-light .intarsia{--ink:#1b1f24;
--soft:#57606a;--line:#d0d7de;--hole:#eef1f4;--page:#fff}
[data-jp-theme-light=false] .intarsia,[data-theme=dark] .intarsia,.vscode-dark .intarsia{--ink:#e6edf3;
--soft:#9198a1;--line:#3d444d;--hole:#262c36;--page:#14181d}
.intarsia svg{display:block;max-width:100%;height:auto}
.intarsia table{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums}
.intarsia th,.intarsia td{padding:.15em .8em .15em 0;text-align:left;border:0;background:none;color:inherit}
.intarsia th{font-weight:600;color:var(--soft)}
.intarsia td.n,.intarsia th.n{text-align:right;white-space:nowrap}
.intarsia tbody tr:hover{background:var(--hole)}
.intarsia summary{cursor:pointer;color:var(--soft)}
.intarsia .w{overflow-x:auto}
""".strip().replace("\n", "")
"""What notebook output needs; everything below the class `intarsia`, so that nothing else changes."""

LEFT, TOP, RIGHT = 78.0, 14.0, 34.0
PLANE_WIDTH, PLANE_HEIGHT = 640.0, 400.0
FLATTEST, NARROWEST = 56.0, 120.0
"""A plane flatter or narrower than this shows nothing; its axes then differ in scale, and it says so."""

STRIP_HEIGHT = 24.0
TICK_GAP_X, TICK_GAP_Y = 52.0, 15.0


class Box(Protocol):
    """A piece of a plane or strip."""

    @property
    def start(self) -> tuple[int, ...]: ...

    @property
    def stop(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Pane:
    """Where a plane or strip lies in the picture, and what it shows."""

    x: float
    """Its left edge."""

    y: float
    """Its upper edge."""

    width: float
    """In units of the picture."""

    height: float
    """In units of the picture."""

    axes: tuple[int, ...]
    """The axes of the array that it shows: two, one or none."""

    shape: tuple[int, ...]
    """Of the whole array."""

    def box(self, cell: Box) -> tuple[float, float, float, float]:
        """Left, top, width and height of a cell."""
        spans = [
            (a / n, b / n)
            for a, b, n in zip(cell.start, cell.stop, (self.shape[axis] for axis in self.axes), strict=True)
        ]
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
    name = names[axis] if names is not None else None
    return name or f"axis {axis}"


def cell_bounds(survey: Survey, cell: Box, axes: tuple[int, ...]) -> str:
    """The bounds of a cell as in a subscript; it reaches through all axes that are not shown."""
    where = {axis: f"{a}:{b}" for axis, a, b in zip(axes, cell.start, cell.stop, strict=True)}
    return "[" + ", ".join(where.get(axis, ":") for axis in range(survey.manifest.ndim)) + "]"


def panes(shape: tuple[int, ...]) -> list[Pane]:
    """The plane of the two largest axes, and a strip for every other one."""
    axes = plane_axes(shape)
    placed = []
    y = TOP
    if len(axes) == 2:
        rows, columns = shape[axes[0]], shape[axes[1]]
        scale = min(PLANE_WIDTH / columns, PLANE_HEIGHT / rows)
        width = min(PLANE_WIDTH, max(NARROWEST, columns * scale))
        height = min(PLANE_HEIGHT, max(FLATTEST, rows * scale))
        placed.append(Pane(LEFT, y, width, height, axes, shape))
        y += height + 46
        strips = [axis for axis in range(len(shape)) if axis not in axes]
    elif axes:
        strips = list(axes)
    else:
        return [Pane(LEFT, y, STRIP_HEIGHT * 2, STRIP_HEIGHT * 2, (), shape)]
    for axis in strips:
        placed.append(Pane(LEFT, y, PLANE_WIDTH, STRIP_HEIGHT, (axis,), shape))
        y += STRIP_HEIGHT + 40
    return placed


def draw_axes(survey: Survey, pane: Pane, cells: Sequence[Box]) -> list[str]:
    """Ticks, their numbers, and the names of the axes."""
    if not pane.axes:
        return []
    parts = []
    below = pane.y + pane.height
    axis = pane.axes[-1]
    for place in _ticks(pane, cells, -1, pane.width, TICK_GAP_X):
        x = pane.x + place / pane.shape[axis] * pane.width
        parts.append(_tick(x, below, x, below + 4))
        parts.append(text(x, below + 15, str(place), "soft", "middle", 11))
    parts.append(text(pane.x + pane.width / 2, below + 29, axis_name(survey, axis), "ink", "middle"))
    if len(pane.axes) == 2:
        down = pane.axes[0]
        for place in _ticks(pane, cells, 0, pane.height, TICK_GAP_Y):
            y = pane.y + place / pane.shape[down] * pane.height
            parts.append(_tick(pane.x - 4, y, pane.x, y))
            parts.append(text(pane.x - 7, y + 4, str(place), "soft", "end", 11))
        x, y = 14.0, pane.y + pane.height / 2
        parts.append(
            f'<text x="{x:g}" y="{y:.5g}" transform="rotate(-90 {x:g} {y:.5g})" text-anchor="middle" '
            f'fill="var(--ink,#1b1f24)">{markup(axis_name(survey, down), 60)}</text>'
        )
        across, along = pane.width / pane.shape[pane.axes[1]], pane.height / pane.shape[pane.axes[0]]
        if not 0.99 < across / along < 1.01:
            parts.append(text(pane.x, below + 29, "axes at different scales", "soft", size=11))
    return parts


def _ticks(pane: Pane, cells: Sequence[Box], side: int, length: float, gap: float) -> list[int]:
    """Both ends, and the edges of regions as far as their labels have room."""
    size = pane.shape[pane.axes[side]]
    edges = sorted({edge for cell in cells for edge in (cell.start[side], cell.stop[side])})
    chosen = [0, size]
    for edge in edges:
        if all(abs(edge - other) / size * length >= gap for other in chosen):
            chosen.append(edge)
    return sorted(chosen)


def _tick(x1: float, y1: float, x2: float, y2: float) -> str:
    line = f'<line x1="{x1:.5g}" y1="{y1:.5g}" x2="{x2:.5g}" y2="{y2:.5g}" '
    return line + 'stroke="var(--soft,#57606a)"/>'


def text(
    x: float, y: float, words: str, tone: str, anchor: str = "start", size: int = 12, longest: int = 60
) -> str:
    """A line of text in one of the two tones, cut to `longest` characters."""
    colour = "var(--ink,#1b1f24)" if tone == "ink" else "var(--soft,#57606a)"
    return (
        f'<text x="{x:.5g}" y="{y:.5g}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{markup(words, longest)}</text>"
    )


def ink_on(colour: str) -> str:
    """Black or white: what is read better on a colour.

    >>> ink_on("#ddaa33"), ink_on("#4477aa")
    ('#111', '#fff')
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "#fff"


def swatch(place: int, words: str) -> str:
    """An entry of a legend: the colour with its letter, and what it stands for."""
    at = min(place, len(COLOURS) - 1)
    style = f"background:{COLOURS[at]};color:{ink_on(COLOURS[at])};padding:0 .4em;margin-right:.2em"
    return f'<span style="{style}">{LETTERS[at]}</span> {markup(words)}'
