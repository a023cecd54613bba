"""The map of an array's regions as SVG: drawn to scale, coloured by codec pipeline, explained on hover.

A notebook shows it with its legend and the table of regions.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

from intarsia.display import (
    STYLE,
    Table,
    count_text,
    markup,
    percent_text,
    ratio_text,
    size_text,
    table_html,
    wrapped,
)
from intarsia.inspect import drawing
from intarsia.inspect.preview import preview_html
from intarsia.inspect.survey import PIPELINE_COLUMNS, Survey, share_labels, survey
from intarsia.logical.logical_array import LogicalArray

MAX_PLANE_CELLS = 240
MAX_STRIP_CELLS = 160
"""The two limits keep the map of any array below 100 kB."""

MAX_FOR_TWO_MAPS = 50_000
"""The number of characters above which notebook output holds no second map for phones."""

LINE = 18.0
LETTER_WIDTH = 7.0
"""The width of a letter in a block, slightly above average, so that names stay inside."""

SMALL_LETTER_WIDTH = 5.7
"""The width of a letter in a note below a map."""

MIXED = "Striped: several pipelines lie behind one another, or side by side too small to draw."
MIXED_THIN = "In a line of several colours, each pipeline has its share of the regions there."
THIN = 6.0
"""Smaller cells show no distinguishable stripes."""

STRIPES = 24
"""The width of one repeat of the stripes that show a mixture."""

MAX_ROWS = 100
MAX_REQUESTS = 2_000
"""Showing a variable must not take long: above this many requests, stored sizes are left out."""


def region_map(array: LogicalArray, *, layer: int = 0) -> str:
    """The map of an array's regions as an SVG picture: drawn to scale, coloured by codec pipeline.

    With the number of a `layer`, it is the map of the replicas in that layer.

    Args:
        array: The logical array.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4, 4), chunks=(2, 2), dtype="f4")
    >>> array.add_region(((0, 2), (0, 4)), codecs=["gzip"])
    >>> intarsia.region_map(array).startswith("<svg")
    True
    """
    return draw_map(survey(array, layer=layer))


def notebook_html(array: LogicalArray) -> str:
    """The HTML of a logical array; self-contained, and safe whatever names it contains.

    With `array.with_config(preview=True)`, it includes a picture of some of the values.

    >>> import intarsia
    >>> array = intarsia.create({}, "a<b", shape=(4, 4), chunks=(2, 2), dtype="f4")
    >>> html = notebook_html(array)
    >>> "<svg" in html, "a&lt;b" in html, "a<b" in html
    (True, True, False)
    """
    layers = share_labels([survey(array, MAX_REQUESTS, layer) for layer in array.manifest.layers])
    now = layers[0]
    unmeasured = (
        '<p class="soft">Stored sizes were not measured, because there are too many chunks: '
        "<code>intarsia regions</code> measures them.</p>"
        if now.stored is None
        else ""
    )
    return "".join(
        [
            f'<div class="intarsia"><style>{drawing.STYLE}</style>{STYLE}',
            f"<div><strong>LogicalArray</strong> <code>{markup(array.path or '/')}</code> "
            f"{markup(array.shape)} {markup(array.dtype)}</div>",
            drawing.for_both_sizes(partial(draw_map, now, standalone=False), MAX_FOR_TWO_MAPS),
            legend_table(now),
            preview_html(array, now) if array.config.preview else "",
            unmeasured,
            f"<details><summary>{count_text(len(now), 'region')}</summary>{region_table(now)}</details>",
            layers_html(layers[1:], partial(draw_map, standalone=False)),
            "<details><summary>Info</summary>",
            table_html(("", ""), array.info.fields),
            "</details></div>",
        ]
    )


def layers_html(replicas: Sequence[Survey], draw: Callable[[Survey], str]) -> str:
    """The maps and tables of replicas, with one section to unfold per layer."""
    parts = []
    for seen in replicas:
        layer = seen.row(0).layer
        chunks = ", ".join(dict.fromkeys(str(fact.chunks) for fact in seen.facts))
        stored = f"{size_text(seen.total_nbytes)} stored in {size_text(seen.total_stored)}"
        head = f"Layer {layer}: {count_text(len(seen), 'replica')} in chunks of {chunks}, {stored}"
        parts.append(
            f'<details class="layer"><summary>{markup(head)}</summary>'
            f"{draw(seen)}{legend_table(seen)}{region_table(seen)}</details>"
        )
    return "".join(parts)


def hover_lines(survey: Survey, cell: drawing.Cell, axes: tuple[int, ...]) -> list[str]:
    """What there is to know about a cell: bounds, codecs, chunks, stored size and ratio."""
    if len(cell.regions) == 1:
        row = survey.row(int(cell.regions[0]))
        table = Table.of([row], survey.columns)
        facts = dict(zip(table.columns, table.rows[0], strict=True)) | {"Codecs": row.pipeline}
        lines = [f"{name} {value}" for name, value in facts.items() if value]
        return [*lines, f"Problem: {row.problem}"] if row.problem else lines
    nbytes = int(survey.nbytes[cell.regions].sum())
    stored = None if survey.stored is None else int(survey.stored[cell.regions].sum())
    empty = 1 - sum(share for _, share in cell.shares)
    return [
        f"{drawing.cell_bounds(survey, cell, axes)} {count_text(len(cell.regions), 'region')}",
        *(f"Codecs {survey.labels[g]}: {percent_text(share)}" for g, share in cell.shares),
        *([f"No region: {percent_text(empty)}"] if empty > 1e-6 else []),
        f"Size {size_text(nbytes)}",
        f"Stored {size_text(stored)}",
        f"Ratio {ratio_text(nbytes, stored)}",
    ]


def draw_map(survey: Survey, max_width: float = drawing.PLANE_WIDTH, *, standalone: bool = True) -> str:
    """The map as one `<svg>` element; a standalone one carries its own colours and legend."""
    shape = survey.manifest.shape
    parts: list[str] = []
    mixtures = _Mixtures(f"{shape} {survey.manifest.generation} {survey.manifest.members[:1]} {max_width}")
    bottom = drawing.TOP
    if prod(shape):
        axes = drawing.map_axes(shape, survey.start, survey.stop)
        for pane in drawing.panes(shape, axes, max_width):
            drawn, bottom = _draw_pane(survey, pane, mixtures)
            parts.extend(drawn)
            bottom += 12
    else:
        empty = f"The shape is {shape}: there are no elements yet."
        parts.append(drawing.svg_text(0, bottom + LINE, empty, "soft"))
        bottom += 2 * LINE
    if note := mixtures.note():
        for words in wrapped(note, int(max_width / SMALL_LETTER_WIDTH)):
            parts.append(drawing.svg_text(drawing.LEFT, bottom + 4, words, "soft", size=11, longest=120))
            bottom += LINE
    if standalone:
        drawn, bottom = _draw_legend(survey, bottom)
        parts.extend(drawn)
    width = drawing.LEFT + max_width + drawing.RIGHT
    style = f"<style>{drawing.STYLE}</style>" if standalone else ""
    about = _description(survey)
    head = [style, f"<desc>{markup(about)}</desc>", mixtures.definitions()]
    return drawing.svg(width, bottom, about, [*head, *parts])


def _description(survey: Survey) -> str:
    kinds = ", ".join(
        f"{pipeline.codecs} ({count_text(pipeline.regions, 'region')})" for pipeline in survey.pipelines()
    )
    return f"Map of {count_text(len(survey), 'region')} of an array of shape {survey.manifest.shape}" + (
        f", coloured by codecs: {kinds}" if kinds else ""
    )


def _draw_pane(survey: Survey, pane: drawing.Pane, mixtures: "_Mixtures") -> tuple[list[str], float]:
    strips = max(1, len(pane.shape) - 2)
    most = MAX_PLANE_CELLS if len(pane.axes) == 2 else max(8, MAX_STRIP_CELLS // strips)
    cells = drawing.project(pane.shape, survey.start, survey.stop, survey.group, pane.axes, most)
    parts = [drawing.frame(pane, "No region: reads as the fill value")]
    parts.extend(_draw_cell(survey, pane, cell, mixtures) for cell in cells)
    parts.extend(drawing.draw_axes(survey, pane, cells))
    return parts, pane.y + pane.height + (34 if pane.axes else 8)


def _draw_cell(survey: Survey, pane: drawing.Pane, cell: drawing.Cell, mixtures: "_Mixtures") -> str:
    """One cell: one colour; or a mixture, as stripes on the plane, and as layers on a strip, where the height
    is free to mean a share."""
    x, y, width, height = pane.box(cell)
    words = "\n".join(markup(line) for line in hover_lines(survey, cell, pane.axes))
    parts = [f'<g class="region"><title>{words}</title>']
    if len(pane.axes) != 1:
        pure = len(cell.shares) == 1 and cell.shares[0][1] > 1 - 1e-6
        if not pure and min(width, height) < THIN:
            parts.extend(_side_by_side(x, y, width, height, cell.shares))
            mixtures.thin = True
        else:
            fill = drawing.COLOURS[cell.shares[0][0]] if pure else mixtures.fill(cell.shares)
            parts.append(_block(x, y, width, height, fill, _names(survey, cell.shares[0][0]) if pure else ()))
    else:
        for group, share in cell.shares:
            colour, names = drawing.COLOURS[group], _names(survey, group)
            parts.append(_block(x, y, width, height * share, colour, names))
            y += height * share
    return "".join([*parts, "</g>"])


def _side_by_side(
    x: float, y: float, width: float, height: float, shares: Sequence[tuple[int, float]]
) -> Iterator[str]:
    """The pipelines of a cell too thin for stripes, each with its share of the longer side."""
    for group, share in shares:
        across, down = (width * share, height) if width >= height else (width, height * share)
        yield _block(x, y, across, down, drawing.COLOURS[group], ())
        x, y = (x + across, y) if width >= height else (x, y + down)


def _names(survey: Survey, group: int) -> tuple[str, str]:
    """The possible names of a pipeline's block, the longest first."""
    return f"{drawing.LETTERS[group]}: {survey.labels[group]}", drawing.LETTERS[group]


def _block(x: float, y: float, width: float, height: float, fill: str, names: Sequence[str]) -> str:
    """A rectangle with the first of its names that fits."""
    line = 1 if min(width, height) > 6 else 0
    block = drawing.rect(x, y, width, height, fill, f' stroke="var(--page,#fff)" stroke-width="{line}"')
    words = next((name for name in names if len(name) * LETTER_WIDTH + 8 <= width and height >= 15), "")
    if words:
        block += (
            f'<text x="{x + width / 2:.5g}" y="{y + height / 2 + 4:.5g}" text-anchor="middle" '
            f'fill="{drawing.ink_on(fill)}">{markup(words)}</text>'
        )
    return block


class _Mixtures:
    """Diagonal stripes for cells with several pipelines behind them, one pattern per mixture."""

    def __init__(self, key: str) -> None:
        self._prefix = "mix-" + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:8]
        self._known: dict[tuple[tuple[int, int], ...], str] = {}
        self.thin = False
        """Whether some cells are too thin for stripes."""

    def note(self) -> str:
        """What mixtures on the map mean, if there are any."""
        return " ".join([MIXED] * bool(self._known) + [MIXED_THIN] * self.thin)

    def fill(self, shares: Sequence[tuple[int, float]]) -> str:
        parts = tuple((group, round(share * STRIPES)) for group, share in shares)
        name = self._known.setdefault(parts, f"{self._prefix}-{len(self._known)}")
        return f"url(#{name})"

    def definitions(self) -> str:
        if not self._known:
            return ""
        patterns = []
        for parts, name in self._known.items():
            stripes, done = [drawing.rect(0, 0, STRIPES, 8, "var(--hole,#eef1f4)")], 0
            for group, width in parts:
                stripes.append(drawing.rect(done, 0, width, 8, drawing.COLOURS[group]))
                done += width
            patterns.append(
                f'<pattern id="{name}" width="{STRIPES}" height="8" patternUnits="userSpaceOnUse" '
                f'patternTransform="rotate(45)">{"".join(stripes)}</pattern>'
            )
        return f"<defs>{''.join(patterns)}</defs>"


def _draw_legend(survey: Survey, top: float) -> tuple[list[str], float]:
    parts = []
    y = top
    for pipeline in survey.pipelines():
        colour, letter = drawing.COLOURS[pipeline.place], drawing.LETTERS[pipeline.place]
        words = f"{pipeline.codecs}: {count_text(pipeline.regions, 'region')}, {size_text(pipeline.nbytes)}"
        if pipeline.nbytes_stored is not None:
            words += f" stored in {size_text(pipeline.nbytes_stored)}"
            words += f" ({ratio_text(pipeline.nbytes, pipeline.nbytes_stored)})"
        parts += [
            drawing.rect(drawing.LEFT, y, 16, 13, colour),
            f'<text x="{drawing.LEFT + 8:g}" y="{y + 10.5:g}" text-anchor="middle" font-size="10" '
            f'fill="{drawing.ink_on(colour)}">{letter}</text>',
            drawing.svg_text(drawing.LEFT + 24, y + 11, words, "ink", longest=110),
        ]
        y += LINE
    return parts, y + 6


def legend_table(seen: Survey) -> str:
    """A table with one line for every colour of the map."""
    columns = PIPELINE_COLUMNS | {"Codecs": lambda kind: drawing.swatch(kind.place, kind.codecs)}
    table = Table.of(seen.pipelines(), columns)
    return table_html(table.columns, table.rows, kind="legend") if table.rows else ""


def region_table(seen: Survey, most: int = MAX_ROWS) -> str:
    """The regions in array order; only the first of them if there are many."""
    table = Table.of(seen.rows(most), seen.columns)
    more = len(seen) - len(table.rows)
    rest = f"<p>… and {count_text(more, 'more region')}</p>" if more else ""
    return table_html(table.columns, table.rows, kind="regions") + rest
