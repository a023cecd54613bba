"""What a notebook shows for a logical array: the map, its legend, the table of regions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from intarsia.report.drawing import STYLE, swatch
from intarsia.report.escaping import markup
from intarsia.report.region_map import draw_map
from intarsia.report.survey import Survey, survey
from intarsia.words import PIPELINE_COLUMNS, REGION_COLUMNS, count_text

if TYPE_CHECKING:
    from intarsia.array import LogicalArray


MOST_ROWS = 100
MOST_REQUESTS = 2_000
"""Looking at a variable must not take long: above this many requests, stored sizes are not asked for."""

NUMBERS = frozenset(("Regions", "Size", "Stored", "Ratio", "Chunks stored", "Share"))
"""Columns that are aligned to the right."""


def notebook_html(array: LogicalArray) -> str:
    """The HTML of a logical array; self-contained, and safe whatever names it holds.

    >>> import intarsia
    >>> array = intarsia.create({}, "a<b", shape=(4, 4), chunks=(2, 2), dtype="f4")
    >>> html = notebook_html(array)
    >>> "<svg" in html, "a&lt;b" in html, "a<b" in html
    (True, True, False)
    """
    seen = survey(array, MOST_REQUESTS)
    unmeasured = (
        '<p class="soft">Stored sizes were not asked for, there are so many chunks: '
        "<code>intarsia regions</code> does.</p>"
        if seen.stored is None
        else ""
    )
    return "".join(
        [
            f'<div class="intarsia"><style>{STYLE}</style>',
            f"<div><strong>LogicalArray</strong> <code>{markup(array.path or '/')}</code> "
            f"{markup(array.shape)} {markup(array.dtype)}</div>",
            draw_map(seen, standalone=False),
            legend_table(seen),
            unmeasured,
            f"<details><summary>{count_text(len(seen), 'region')}</summary>{region_table(seen)}</details>",
            "<details><summary>Info</summary>",
            html_table(("", ""), ((markup(name), markup(value)) for name, value in array.info.fields)),
            "</details></div>",
        ]
    )


def legend_table(seen: Survey) -> str:
    """One line for every colour of the map."""
    rows = [(swatch(kind.place, kind.label), *kind.cells()[1:]) for kind in seen.pipelines()]
    return html_table(PIPELINE_COLUMNS, rows, "legend") if rows else ""


def region_table(seen: Survey, most: int = MOST_ROWS) -> str:
    """The regions in the order of the array, the first of them where they are many."""
    rows = [tuple(markup(cell) for cell in row.cells()) for row in seen.rows(most)]
    more = len(seen) - len(rows)
    rest = f"<p>… and {count_text(more, 'more region', 'more regions')}</p>" if more else ""
    return html_table(REGION_COLUMNS, rows, "regions") + rest


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], name: str = "facts") -> str:
    """A table of cells that are markup already."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if column in NUMBERS else ''}{' scope=col' if tag == 'th' else ''}>"
            f"{cell}</{tag}>"
            for column, cell in zip(columns, row, strict=True)
        )

    head = f"<thead><tr>{cells('th', columns)}</tr></thead>" if any(columns) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="w"><table class="{name}">{head}<tbody>{body}</tbody></table></div>'
