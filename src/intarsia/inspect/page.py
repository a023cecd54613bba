"""The report: one HTML page that shows what was done to the data, from disk, without a server or network."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from intarsia.inspect.drawing import COLOURS, for_both_sizes
from intarsia.inspect.heat_map import cell_text, draw_heat, heat_cells, heat_scale
from intarsia.inspect.region_map import draw_map, html_table, layers_html, legend_table, region_table
from intarsia.inspect.sections import MaskUse, SlotUse, Timeline
from intarsia.inspect.survey import Survey
from intarsia.logical.verify import Problem
from intarsia.words import count_text, embedded_json, markup, percent_text, plain, ratio_text, size_text

MOST_ROWS = 200
MOST_PROBLEMS = 200


@dataclass(frozen=True)
class Moment:
    """One version of an array."""

    seen: Survey
    """What the array was made of."""

    message: str = ""
    """The commit message."""

    when: str = ""
    """When it was committed."""

    snapshot: str = ""
    """The id of the snapshot."""

    changes: tuple[str, ...] = ()
    """What the commit changed, in words."""

    @property
    def label(self) -> str:
        """The label on the slider."""
        return " · ".join(plain(part, 120) for part in (self.when, self.message) if part) or "now"


@dataclass(frozen=True)
class ArrayReport:
    """Everything that the page says about one array."""

    path: str
    """The path of the array in its store."""

    fields: tuple[tuple[str, str], ...]
    """What `array.info` says."""

    attributes: tuple[tuple[str, str], ...]
    """The user's own attributes, as text."""

    moments: tuple[Moment, ...]
    """The versions of the array, oldest first; at least one."""

    problems: tuple[Problem, ...]
    """What `verify` found."""

    checked: str
    """What `verify` checked, in words."""

    masks: tuple[MaskUse, ...] = ()
    """Which nested codecs were applied to which chunks of `conditional` members."""

    slots: tuple[SlotUse, ...] = ()
    """How full the shards of slotted members are."""

    versions_left_out: int = 0
    """The number of versions between the shown ones."""

    preview: str = ""
    """The picture of the array's values, as markup."""

    replicas: tuple[Survey, ...] = ()
    """The array's other layers, as they are now."""

    @property
    def now(self) -> Survey:
        """The newest version."""
        return self.moments[-1].seen


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def render_page(
    title: str, about: str, reports: Sequence[ArrayReport], timelines: Sequence[Timeline] = ()
) -> str:
    """The page. It contains all it needs; a policy forbids the browser to load or run anything else."""
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    heats = [heat_cells(report.now) for report in reports]
    data = {
        "arrays": [
            {
                "path": report.path,
                "moments": [_moment_json(i, len(report.moments), m) for i, m in enumerate(report.moments)],
                "heat": [cell_text(report.now, cell) for cell in cells],
            }
            for report, cells in zip(reports, heats, strict=True)
        ]
    }
    sections = [
        _section(number, report, cells)
        for number, (report, cells) in enumerate(zip(reports, heats, strict=True))
    ]
    navigation = f'<nav aria-label="Arrays">{_overview(reports)}</nav>' if len(reports) > 1 else ""
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{markup(policy)}">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{markup(title)}</title><style>{_asset('page.css')}</style></head><body>",
            f'<header><h1>{markup(title)}</h1><p class="soft">{markup(about)}</p>{navigation}</header>',
            f"<main>{''.join(timeline.html() for timeline in timelines)}{''.join(sections)}</main>",
            "<noscript><p>Without JavaScript, the newest version is shown.</p></noscript>",
            f'<script type="application/json" id="data">{embedded_json(data)}</script>',
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _overview(reports: Sequence[ArrayReport]) -> str:
    """All arrays of the page, one per line."""
    columns = ("Array", "Shape", "Data type", "Regions", "Size", "Stored", "Ratio", "Check")
    rows = []
    for i, report in enumerate(reports):
        now, fields = report.now, dict(report.fields)
        problems = count_text(len(report.problems), "problem") if report.problems else "no problems"
        rows.append(
            (
                f'<a href="#array-{i}"><code>{markup(report.path or "/")}</code></a>',
                markup(fields.get("Shape", "")),
                markup(fields.get("Data type", "")),
                f"{len(now):,}",
                size_text(now.total_nbytes),
                size_text(now.total_stored),
                ratio_text(now.total_nbytes, now.total_stored),
                problems,
            )
        )
    return html_table(columns, rows, "overview")


def _moment_json(i: int, count: int, moment: Moment) -> dict[str, Any]:
    label = f"{i + 1} of {count}: {moment.label}" if count > 1 else moment.label
    return {
        "label": label,
        "snapshot": plain(moment.snapshot),
        "regions": len(moment.seen),
        "nbytes": moment.seen.total_nbytes,
        "nbytes_stored": moment.seen.total_stored,
    }


def _section(number: int, report: ArrayReport, cells: list[Any]) -> str:
    now = report.now
    facts = [
        *report.fields,
        ("Stored", size_text(now.total_stored)),
        ("Ratio", ratio_text(now.total_nbytes, now.total_stored)),
        *([("Referenced in files", size_text(now.total_referenced))] if now.total_referenced else []),
        *([("Stored, not shown", size_text(now.total_unused))] if now.total_unused else []),
    ]
    tiles = "".join(f"<div><dt>{markup(name)}</dt><dd>{markup(value)}</dd></div>" for name, value in facts)
    attributes = (
        "<details><summary>Attributes</summary>"
        + html_table(("", ""), ((markup(k), markup(v)) for k, v in report.attributes))
        + "</details>"
        if report.attributes
        else ""
    )
    return "".join(
        [
            f'<section id="array-{number}" aria-labelledby="title-{number}">',
            f'<h2 id="title-{number}"><code>{markup(report.path or "/")}</code></h2>',
            f'<dl class="facts">{tiles}</dl>{attributes}',
            f"<h3>Values</h3>{report.preview}" if report.preview else "",
            _timeline(number, report),
            _heat(number, report, cells),
            "".join(use.html() for use in report.masks),
            "".join(use.html() for use in report.slots),
            _check(report),
            "</section>",
        ]
    )


def _timeline(number: int, report: ArrayReport) -> str:
    last = len(report.moments) - 1
    label = markup(f"Version of {report.path or '/'}")
    controls = (
        '<div class="controls" hidden><button type="button">Earlier</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" step="1" aria-label="{label}">'
        '<button type="button">Later</button></div><p class="soft"><output aria-live="polite"></output></p>'
    )
    left_out = (
        f'<p class="soft">{count_text(report.versions_left_out, "version")} in between are not shown.</p>'
        if report.versions_left_out
        else ""
    )
    moments = "".join(
        f'<div class="moment"{"" if i == last else " hidden"}>{_moment(moment)}</div>'
        for i, moment in enumerate(report.moments)
    )
    heading = "Regions over time" if last else "Regions"
    replicas = f"<h3>Replicas</h3>{layers_html(report.replicas, _map)}" if report.replicas else ""
    return (
        f'<h3>{heading}</h3><div class="timeline" data-array="{number}">{controls}{left_out}{moments}</div>'
        f"{replicas}"
    )


def _moment(moment: Moment) -> str:
    seen = moment.seen
    changes = "".join(f"<li>{markup(change)}</li>" for change in moment.changes)
    snapshot = (
        f'<p class="soft">Snapshot <code>{markup(moment.snapshot)}</code></p>' if moment.snapshot else ""
    )
    return "".join(
        [
            snapshot,
            f"<ul>{changes}</ul>" if changes else "",
            '<div class="map intarsia" tabindex="0" role="group" '
            'aria-label="Map of the regions; arrow keys go from one to the next">',
            _map(seen),
            '<p class="readout" aria-live="polite"></p></div>',
            legend_table(seen),
            _bars(seen),
            f"<details><summary>{count_text(len(seen), 'region')}</summary>{region_table(seen, MOST_ROWS)}"
            "</details>"
            if len(seen)
            else "",
        ]
    )


def _map(seen: Survey) -> str:
    return for_both_sizes(partial(draw_map, seen, standalone=False))


def _bars(seen: Survey) -> str:
    """Bytes by codec: the stored size, beside the size without any codec."""
    pipelines = [p for p in seen.pipelines() if p.stored is not None]
    largest = max((max(p.nbytes, p.stored or 0) for p in pipelines), default=0)
    if not largest:
        return ""
    rows = []
    for pipeline in pipelines:
        assert pipeline.stored is not None
        bars = "".join(
            f'<div><span class="bar" style="background:{colour};width:calc(var(--bar)*{nbytes / largest:.3f})'
            f'"></span> {size_text(nbytes)} {what}</div>'
            for nbytes, colour, what in (
                (pipeline.nbytes, "var(--line)", "in memory"),
                (pipeline.stored, COLOURS[pipeline.place], "stored"),
            )
        )
        share = percent_text(pipeline.stored / seen.total_stored) if seen.total_stored else "0 %"
        rows.append((markup(pipeline.label), bars, share))
    return "<h4>Bytes by codec</h4>" + html_table(("Codecs", "", "Share"), rows, "bytes")


def _heat(number: int, report: ArrayReport, cells: list[Any]) -> str:
    if not cells:
        return ""
    scale = "".join(
        f'<li><span style="background:{colour}"></span>{markup(meaning)}</li>'
        for colour, meaning in heat_scale()
    )
    extremes = sorted(cells, key=lambda cell: cell.ratio)
    shown = [*extremes[:5], *extremes[-5:]] if len(extremes) > 10 else extremes
    rows = [(markup(cell_text(report.now, cell)),) for cell in shown]
    return "".join(
        [
            "<h3>Ratio per chunk</h3>",
            '<p class="soft">Size in memory divided by stored size. Where there are many chunks, or '
            "chunks behind others, several share a cell.</p>",
            f'<div class="map" data-heat="{number}" tabindex="0" role="group" '
            'aria-label="Ratio per chunk; arrow keys go from one to the next">',
            for_both_sizes(partial(draw_heat, report.now, cells)),
            '<p class="readout" aria-live="polite"></p></div>',
            f'<ul class="scale">{scale}</ul>',
            "<details><summary>Smallest and largest ratios</summary>",
            html_table(("Cells",), rows, "heat"),
            "</details>",
        ]
    )


def _check(report: ArrayReport) -> str:
    problems = report.problems
    if not problems:
        verdict = (
            '<p class="verdict-good">No problems found. '
            f'<span class="soft">{markup(report.checked)}</span></p>'
        )
    else:
        listed = "".join(f"<li>{markup(problem, 1000)}</li>" for problem in problems[:MOST_PROBLEMS])
        more = len(problems) - MOST_PROBLEMS
        rest = f"<p>… and {count_text(more, 'more problem', 'more problems')}</p>" if more > 0 else ""
        verdict = (
            f'<p class="verdict-bad">{count_text(len(problems), "problem")} found. '
            f'<span class="soft">{markup(report.checked)}</span></p><ul class="problems">{listed}</ul>{rest}'
        )
    return f"<h3>Check</h3>{verdict}"
