"""The map of an array's regions as SVG: drawn to scale, coloured by codec pipeline, explained on hover.

A notebook shows it with its legend and the table of regions.
"""

from collections.abc import Sequence
from math import prod

from intarsia.display import (
    STYLE,
    Markup,
    Table,
    count_text,
    markup,
    percent_text,
    ratio_text,
    size_text,
    table_html,
)
from intarsia.engine.stored_array import expect_array
from intarsia.inspect import drawing
from intarsia.inspect.preview import preview_html
from intarsia.inspect.survey import (
    MAX_REQUESTS,
    PIPELINE_COLUMNS,
    REGION_COLUMNS,
    UNMEASURED,
    Pipeline,
    Survey,
    survey,
    survey_layers,
)
from intarsia.logical.logical_array import LogicalArray

MAX_PLANE_CELLS = 240
MAX_STRIP_CELLS = 160
"""The two limits keep the map of any array below 100 kB."""

LINE = 18.0
LETTER_WIDTH = 7.0
"""The width of a letter in a block, slightly above average, so that names stay inside."""

MIXED = "A block of several colours: each pipeline has its share of what lies there."

BAR_EMS = 8
"""The length of a bar for all stored bytes, in the width of a letter m."""

MAX_ROWS = 100


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
    expect_array(array, "region_map")
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
    layers = survey_layers(array, MAX_REQUESTS)
    now = layers[0]
    return "".join(
        [
            f'<div class="intarsia">{drawing.style()}{STYLE}',
            f"<div><strong>LogicalArray</strong> <code>{markup(array.path or '/')}</code> "
            f"{markup(array.shape)} {markup(array.dtype)}</div>",
            drawing.wide(draw_map(now, standalone=False)),
            legend_table(now),
            preview_html(array, now) if array.config.preview else "",
            drawing.soft(f"{UNMEASURED}.") if now.stored is None else "",
            drawing.details(count_text(len(now), "region"), region_table(now)),
            layers_html(layers[1:]),
            drawing.details("Info", table_html(("", ""), array.info.fields)),
            "</div>",
        ]
    )


def layers_html(replicas: Sequence[Survey]) -> str:
    """The maps and tables of replicas, with one section to unfold per layer."""
    parts = []
    for seen in replicas:
        layer = seen.row(0).layer
        chunks = ", ".join(dict.fromkeys(str(fact.chunks) for fact in seen.facts))
        stored = f"{size_text(seen.total_nbytes)} stored in {size_text(seen.total_stored)}"
        head = f"Layer {layer}: {count_text(len(seen), 'replica')} in chunks of {chunks}, {stored}"
        content = drawing.wide(draw_map(seen, standalone=False)) + legend_table(seen) + region_table(seen)
        parts.append(drawing.details(head, content, ' class="layer"'))
    return "".join(parts)


def hover_lines(survey: Survey, cell: drawing.Cell, axes: tuple[int, ...]) -> list[str]:
    """What there is to know about a cell: bounds, codecs, chunks, stored size and ratio."""
    if len(cell.regions) == 1:
        row = survey.row(int(cell.regions[0]))
        table = Table.of([row], REGION_COLUMNS)
        lines = [f"{name} {value}" for name, value in zip(table.columns, table.rows[0], strict=True)]
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


def draw_map(survey: Survey, *, standalone: bool = True) -> str:
    """The map as one `<svg>` element; a standalone one carries its own colours and legend."""
    shape = survey.manifest.shape
    parts: list[str] = []
    bottom, is_mixed = drawing.TOP, False
    if prod(shape):
        axes = drawing.map_axes(shape, survey.start, survey.stop)
        for pane in drawing.panes(shape, axes):
            strips = max(1, len(shape) - 2)
            most = MAX_PLANE_CELLS if len(pane.axes) == 2 else max(8, MAX_STRIP_CELLS // strips)
            cells = drawing.project(shape, survey.start, survey.stop, survey.group, pane.axes, most)
            is_mixed = is_mixed or any(len(cell.shares) > 1 for cell in cells)
            parts.append(drawing.frame(pane, "No region: reads as the fill value"))
            parts.extend(_draw_cell(survey, pane, cell) for cell in cells)
            parts.extend(drawing.draw_axes(survey, pane, cells))
            bottom = pane.y + pane.height + (46 if pane.axes else 20)
    else:
        empty = f"The shape is {shape}: there are no elements yet."
        parts.append(drawing.svg_text(0, bottom + LINE, empty, "soft"))
        bottom += 2 * LINE
    if is_mixed:
        parts.append(drawing.svg_text(drawing.LEFT, bottom + 4, MIXED, "soft", size=11, longest=120))
        bottom += LINE
    if standalone:
        drawn, bottom = _draw_legend(survey, bottom)
        parts.extend(drawn)
    style = drawing.style() if standalone else ""
    about = _description(survey)
    return drawing.svg(bottom, about, [style, f"<desc>{markup(about)}</desc>", *parts])


def _description(survey: Survey) -> str:
    kinds = ", ".join(
        f"{pipeline.codecs} ({count_text(pipeline.regions, 'region')})" for pipeline in survey.pipelines()
    )
    return f"Map of {count_text(len(survey), 'region')} of an array of shape {survey.manifest.shape}" + (
        f", coloured by codecs: {kinds}" if kinds else ""
    )


def _draw_cell(survey: Survey, pane: drawing.Pane, cell: drawing.Cell) -> str:
    """One cell, in which each pipeline has its share; on a strip, the height is free to mean that."""
    box = pane.box(cell)
    words = "\n".join(markup(line) for line in hover_lines(survey, cell, pane.axes))
    parts = [f'<g class="region"><title>{words}</title>']
    layered = len(pane.axes) == 1 or box[3] > box[2]
    for group, part in drawing.share_boxes(box, cell.shares, layered=layered):
        letter = survey.letters[group]
        names = f"{letter}: {survey.labels[group]}", letter
        parts.append(_block(*part, drawing.COLOURS[group], names))
    return "".join([*parts, "</g>"])


def _block(x: float, y: float, width: float, height: float, fill: str, names: Sequence[str]) -> str:
    """A rectangle with the first of its names that fits."""
    line = 1 if min(width, height) > 6 else 0
    block = drawing.rect(x, y, width, height, fill, f' stroke="var(--page,#fff)" stroke-width="{line}"')
    words = next((name for name in names if len(name) * LETTER_WIDTH + 8 <= width and height >= 15), "")
    middle, ink = (x + width / 2, y + height / 2 + 4), drawing.ink_on(fill)
    return block + drawing.svg_text(*middle, words, ink, "middle", longest=120) if words else block


def _draw_legend(survey: Survey, top: float) -> tuple[list[str], float]:
    parts = []
    y = top
    for pipeline in survey.pipelines():
        colour, letter = drawing.COLOURS[pipeline.place], survey.letters[pipeline.place]
        words = f"{pipeline.codecs}: {count_text(pipeline.regions, 'region')}, {size_text(pipeline.nbytes)}"
        if pipeline.nbytes_stored is not None:
            words += f" stored in {size_text(pipeline.nbytes_stored)}"
            words += f" ({ratio_text(pipeline.nbytes, pipeline.nbytes_stored)})"
        parts += [
            drawing.rect(drawing.LEFT, y, 16, 13, colour),
            drawing.svg_text(drawing.LEFT + 8, y + 10.5, letter, drawing.ink_on(colour), "middle", 10),
            drawing.svg_text(drawing.LEFT + 24, y + 11, words, "ink", longest=110),
        ]
        y += LINE
    return parts, y + 6


def legend_table(seen: Survey) -> str:
    """A table with one line for every colour of the map, and a bar for its share of what is stored."""

    def bar(kind: Pipeline) -> str:
        if not seen.total_stored or kind.nbytes_stored is None:
            return ""
        share = kind.nbytes_stored / seen.total_stored
        style = f"background:{drawing.COLOURS[kind.place]};width:{BAR_EMS * share:.2f}em"
        return Markup(f'<span class="bar" style="{style}"></span> {percent_text(share)}')

    columns = PIPELINE_COLUMNS | {
        "Codecs": lambda kind: drawing.swatch(
            drawing.COLOURS[kind.place], kind.codecs, seen.letters[kind.place]
        ),
        "Of all bytes": bar,
    }
    table = Table.of(seen.pipelines(), columns)
    return table_html(table.columns, table.rows, kind="legend") if table.rows else ""


def region_table(seen: Survey, most: int = MAX_ROWS) -> str:
    """The regions in array order; only the first of them if there are many."""
    table = Table.of(seen.rows(most), REGION_COLUMNS)
    more = len(seen) - len(table.rows)
    rest = f"<p>… and {count_text(more, 'more region')}</p>" if more else ""
    return table_html(table.columns, table.rows, kind="regions") + rest
