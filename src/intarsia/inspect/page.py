"""The report: one HTML page that shows what was done to the data, from disk, without a server or network.

First the page and its sections; then those about bitmasks of `conditional` codecs, about slots, and about the
encodings of an ingested dataset.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from intarsia.archives.dataset import dataset_group
from intarsia.archives.ledger import read_ledger
from intarsia.archives.plan.encodings import source_codecs_text
from intarsia.codecs.stored_decisions import masks_by_codec
from intarsia.display import (
    STYLE,
    Markup,
    count_text,
    markup,
    percent_text,
    plain,
    size_text,
    table_html,
)
from intarsia.inspect.axis_labels import attribute_texts
from intarsia.inspect.drawing import (
    COLOURS,
    LEFT,
    PLANE_WIDTH,
    Cell,
    Pane,
    Rectangle,
    asset,
    bin_plane,
    details,
    draw_axes,
    explorable,
    panes,
    project,
    rect,
    shade,
    share_boxes,
    soft,
    svg,
    svg_text,
    swatch,
)
from intarsia.inspect.heat_map import draw_heat, heat_cells, heat_scale
from intarsia.inspect.preview import preview_html
from intarsia.inspect.region_map import draw_map, hover_lines, layers_html, legend_table, region_table
from intarsia.inspect.survey import Survey
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.member_metadata import MemberMetadata
from intarsia.logical.verify import Problem
from intarsia.manifest.region_table import NONE
from intarsia.shards.inspection import SlotStats, slot_stats
from intarsia.versions.history import HistoryEntry

SAID_ABOVE = ("Type", "Path")
"""Facts about an array that the heading of its section tells."""

OVERVIEW = ("Shape", "Data type", "Regions", "Size", "Stored", "Ratio")
"""Facts about every array in a table of all of them."""

MAX_ROWS = 200
MAX_PROBLEMS = 200


@dataclass(frozen=True)
class ArrayVersion:
    """One version of an array."""

    survey: Survey
    """What the array was made of."""

    entry: HistoryEntry | None = None
    """The commit; None in a store without versions."""

    @property
    def label(self) -> str:
        """The label on the slider."""
        if self.entry is None:
            return "now"
        when = f"{self.entry.written_at:%Y-%m-%d %H:%M:%S} UTC"
        return " · ".join(filter(None, (when, plain(self.entry.message, 120))))


@dataclass(frozen=True)
class ArrayReport:
    """Everything that the page says about one array."""

    array: LogicalArray
    """The array."""

    moments: Sequence[ArrayVersion]
    """The versions of the array, oldest first; at least one."""

    versions_left_out: int
    """The number of versions between the shown ones."""

    replicas: Sequence[Survey]
    """The array's other layers, as they are now."""

    problems: Sequence[Problem]
    """What `verify` found."""

    checked: str
    """What `verify` checked, in words."""

    more: Sequence[str]
    """Sections about members, as markup."""

    @property
    def path(self) -> str:
        """The path of the array in its store."""
        return self.array.path

    @property
    def now(self) -> Survey:
        """The newest version."""
        return self.moments[-1].survey


def render_page(title: str, about: str, reports: Sequence[ArrayReport], first: Iterable[str] = ()) -> str:
    """The page, with the sections that come `first`.

    It contains all it needs; a policy forbids the browser to load or run anything else.
    """
    script = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    sections = [_section(number, report) for number, report in enumerate(reports)]
    navigation = f'<nav aria-label="Arrays">{_overview(reports)}</nav>' if len(reports) > 1 else ""
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{markup(policy)}">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{markup(title)}</title>{STYLE}<style>{asset('page.css')}</style></head><body>",
            f'<header><h1>{markup(title)}</h1><p class="soft">{markup(about)}</p>{navigation}</header>',
            f"<main>{''.join(first)}{''.join(sections)}</main>",
            "<noscript><p>Without JavaScript, the newest version is shown.</p></noscript>",
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _overview(reports: Sequence[ArrayReport]) -> str:
    """All arrays of the page, one per line."""
    rows = []
    for i, report in enumerate(reports):
        link = Markup(f'<a href="#array-{i}"><code>{markup(report.path or "/")}</code></a>')
        sizes = {"Regions": f"{len(report.now):,}", "Size": size_text(report.now.total_nbytes)}
        facts = {**dict(report.array.info.fields), **sizes, **dict(report.now.totals())}
        problems = count_text(len(report.problems), "problem") if report.problems else "no problems"
        rows.append((link, *(facts.get(name, "") for name in OVERVIEW), problems))
    return table_html(("Array", *OVERVIEW, "Check"), rows, kind="overview")


def _section(number: int, report: ArrayReport) -> str:
    now = report.now
    facts = [field for field in (*report.array.info.fields, *now.totals()) if field[0] not in SAID_ABOVE]
    tiles = "".join(f"<div><dt>{markup(name)}</dt><dd>{markup(value)}</dd></div>" for name, value in facts)
    attributes, picture = attribute_texts(report.array.attrs), preview_html(report.array, now)
    return "".join(
        [
            f'<section id="array-{number}" aria-labelledby="title-{number}">',
            f'<h2 id="title-{number}"><code>{markup(report.path or "/")}</code></h2>',
            f'<dl class="facts">{tiles}</dl>',
            details("Attributes", table_html(("", ""), attributes)) if attributes else "",
            f"<h3>Values</h3>{picture}" if picture else "",
            _timeline(report),
            _heat(report.now),
            *report.more,
            _check(report),
            "</section>",
        ]
    )


def _timeline(report: ArrayReport) -> str:
    count = len(report.moments)
    label = markup(f"Version of {report.path or '/'}")
    controls = (
        '<div class="controls" hidden><button type="button">Earlier</button>'
        f'<input type="range" min="0" max="{count - 1}" value="{count - 1}" step="1" aria-label="{label}">'
        '<button type="button">Later</button></div><p class="soft"><output aria-live="polite"></output></p>'
    )
    between = count_text(report.versions_left_out, "version")
    left_out = soft(f"{between} in between are not shown.") if report.versions_left_out else ""
    moments = []
    for i, moment in enumerate(report.moments, 1):
        label = markup(f"{i} of {count}: {moment.label}" if count > 1 else moment.label)
        hidden = "" if i == count else " hidden"
        moments.append(f'<div class="moment" data-label="{label}"{hidden}>{_moment(moment)}</div>')
    heading = "Regions over time" if count > 1 else "Regions"
    replicas = f"<h3>Replicas</h3>{layers_html(report.replicas)}" if report.replicas else ""
    return f'<h3>{heading}</h3><div class="timeline">{controls}{left_out}{"".join(moments)}</div>{replicas}'


def _moment(moment: ArrayVersion) -> str:
    survey, entry = moment.survey, moment.entry
    changes = "".join(f"<li>{markup(line)}</li>" for line in entry.changes[0].lines()) if entry else ""
    regions = details(count_text(len(survey), "region"), region_table(survey, MAX_ROWS))
    return "".join(
        [
            soft(f"Snapshot <code>{markup(entry.snapshot_id)}</code>") if entry else "",
            f"<ul>{changes}</ul>" if changes else "",
            explorable(draw_map(survey, standalone=False), "Map of the regions"),
            legend_table(survey),
            regions if len(survey) else "",
        ]
    )


def _heat(survey: Survey) -> str:
    cells = heat_cells(survey)
    if not cells:
        return ""
    scale = "".join(
        f'<li><span style="background:{colour}"></span>{markup(meaning)}</li>'
        for colour, meaning in heat_scale()
    )
    return "".join(
        [
            "<h3>Ratio per chunk</h3>",
            '<p class="soft">Size in memory divided by stored size. Where there are many chunks, or '
            "chunks behind others, several share a cell.</p>",
            explorable(draw_heat(survey, cells), "Ratio per chunk"),
            f'<ul class="scale">{scale}</ul>',
        ]
    )


def _check(report: ArrayReport) -> str:
    problems, checked = report.problems, f'<span class="soft">{markup(report.checked)}</span>'
    if not problems:
        return f'<h3>Check</h3><p class="verdict-good">No problems found. {checked}</p>'
    items = "".join(f"<li>{markup(problem, 1000)}</li>" for problem in problems[:MAX_PROBLEMS])
    more = len(problems) - MAX_PROBLEMS
    rest = f"<p>… and {count_text(more, 'more problem')}</p>" if more > 0 else ""
    return (
        f'<h3>Check</h3><p class="verdict-bad">{count_text(len(problems), "problem")} found. {checked}</p>'
        f'<ul class="problems">{items}</ul>{rest}'
    )


EDGED = ' class="region" stroke="var(--page)" stroke-width=".5"'
"""The attributes of a piece that the page names under the pointer."""

MASK_ROWS, MASK_COLUMNS = 40, 64
MAX_MASKED, MAX_SLOTTED = 20, 50
"""A page shows this many members with a conditional codec, and this many with slots."""

type Masks = np.ma.MaskedArray[Any, np.dtype[Any]]
"""The bitmasks over a member's chunk grid, masked where nothing is stored."""


def mask_sections(array: LogicalArray, facts: Sequence[MemberMetadata]) -> list[str]:
    """Sections about the bitmasks of members with a `conditional` codec, read only from chunk headers."""
    sections: list[str] = []
    for fact in facts:
        nested = fact.conditional_codecs
        if nested and len(sections) < MAX_MASKED:
            names = [str(codec.get("name")) for codec in nested]
            by_codec = masks_by_codec(array.members[fact.name])
            first = next(bitmasks for path, bitmasks in by_codec.items() if "." not in path)  # none inside
            sections.append(_masks(fact.name, names, first))
    return sections


def _masks(member: str, nested: Sequence[str], masks: Masks) -> str:
    """The section about the bitmasks of one member; `nested` are the codecs, bit 0 first."""
    stored, numbers = np.unique(masks.compressed(), return_counts=True)
    counts = sorted(zip(stored.tolist(), numbers.tolist(), strict=True), key=lambda item: -item[1])
    title, total = f"<h3>Conditional codecs of <code>{markup(member)}</code></h3>", int(numbers.sum())
    if not total:
        return f"{title}<p>Nothing is stored yet.</p>"
    kinds, rows = [], []
    for i, (mask, number) in enumerate(counts):
        words = " + ".join(name for bit, name in enumerate(nested) if mask >> bit & 1) or "none"
        kinds.append((mask, COLOURS[min(i, len(COLOURS) - 1)], words))
        bits = f"{mask:0{len(nested)}b}"
        rows.append((swatch(*kinds[-1][1:]), bits, f"{number:,}", percent_text(number / total)))
    return "".join(
        [
            title,
            '<p class="soft">Which nested codecs each stored chunk went through; where several chunks '
            "share a cell, the most frequent answer.</p>",
            _draw_masks(member, masks, kinds),
            table_html(("Applied", "Mask", "Chunks stored", "Share"), rows, kind="masks"),
        ]
    )


def _draw_masks(member: str, masks: Masks, kinds: Sequence[tuple[int, str, str]]) -> str:
    """The chunks, each cell in the colour of the mask that most of its chunks have."""
    shape, index = masks.shape, np.argwhere(~np.ma.getmaskarray(masks))
    having = [masks.compressed() == mask for mask, _, _ in kinds]
    pane = panes(shape)[0]
    parts = []
    for start, stop, _, sums in bin_plane(shape, index, index + 1, having, (MASK_ROWS, MASK_COLUMNS)):
        _, colour, words = kinds[int(sums.argmax())]
        parts.append(rect(*pane.box(Rectangle(start, stop)), colour, EDGED, markup(words)))
    about = f"Grid of the chunks of {member}, coloured by the codecs that were applied"
    return explorable(svg(pane.y + pane.height + 8, about, parts), "Masks per chunk")


def slot_sections(array: LogicalArray, facts: Sequence[MemberMetadata]) -> list[str]:
    """Sections about the slots of sharded members in a local store that have any."""
    if not isinstance(array.store, LocalStore):
        return []
    sharded = [fact.name for fact in facts if fact.is_sharded][:MAX_SLOTTED]
    every = [(name, slot_stats(array.members[name])) for name in sharded]
    return [_slots(name, stats) for name, stats in every if stats.slotted]


def _slots(member: str, stats: SlotStats) -> str:
    share = stats.slots_used / stats.slots
    parts = [rect(0, 0, 320, 14, "var(--hole)"), rect(0, 0, 320 * share, 14, COLOURS[0])]
    bar = svg(14, f"{percent_text(share)} of the slots are used", parts, width=320)
    rows = [
        ("Slots used", f"{stats.slots_used:,} of {stats.slots:,}"),
        ("Shards with slots", f"{stats.slotted:,} of {stats.shards:,}"),
        ("Stored", size_text(stats.bytes_stored)),
        ("On disk", size_text(stats.bytes_on_disk)),
        ("Freed by compaction", size_text(stats.bytes_freed)),
    ]
    table = table_html(("", ""), rows, kind="slots")
    hint = soft(f"intarsia compact makes {count_text(stats.slotted, 'shard')} plain.")
    return f"<h3>Slots of <code>{markup(member)}</code></h3>{bar}{table}{hint}"


MAX_CELLS = 160
"""The most cells of one variable: longer series are combined."""

MAX_ENTRIES = 12
"""The most entries of the legend."""

BAR, GAP, TOP, NAMES = 18.0, 8.0, 6.0, 130.0
"""The height of a bar; the space between two, above all, and for the names on the left."""

BARS_WIDTH = LEFT + PLANE_WIDTH - NAMES
"""The bars end where the maps do, whose labels need less space."""


def _encodings_section(path: str, dim: str, surveys: Mapping[str, Survey]) -> str:
    """The variables of one dataset, side by side along the dimension that grows from file to file."""
    places: dict[str, int] = {}
    counts, sizes = Counter[str](), Counter[str]()
    words = {name: _encodings(survey) for name, survey in surveys.items()}
    for name, survey in surveys.items():
        for encoding, place, nbytes in zip(words[name], survey.group, survey.nbytes, strict=True):
            places[encoding] = int(place)
            counts[encoding] += 1
            sizes[encoding] += int(nbytes)
    labels = sorted(places, key=lambda encoding: (-sizes[encoding], encoding))
    # The colour is that of the codecs, as on the maps below; chunks and packings have shades of it.
    rank, like = {each: i for i, each in enumerate(labels)}, [places[each] for each in labels]
    fills = [shade(COLOURS[place], like[:i].count(place)) for i, place in enumerate(like)]

    parts: list[str] = []
    every: list[Cell] = []
    for i, (name, survey) in enumerate(surveys.items()):
        shape = survey.manifest.shape
        axes = ((survey.manifest.dimension_names or ()).index(dim),)
        pane = Pane(NAMES, TOP + i * (BAR + GAP), BARS_WIDTH, BAR, axes, shape)
        group = np.array([rank[encoding] for encoding in words[name]])
        seen = replace(survey, group=group, labels=tuple(labels))
        cells = project(shape, seen.start, seen.stop, seen.group, axes, MAX_CELLS)
        parts.append(svg_text(NAMES - 8, pane.y + BAR - 5, name, "ink", "end", longest=20))
        for cell in cells:
            title = markup("\n".join([name, *hover_lines(seen, cell, axes)]), 1000)
            for kind, part in share_boxes(pane.box(cell), cell.shares, layered=True):
                parts.append(rect(*part, fills[kind], EDGED, title))
        every += cells
    parts += draw_axes(survey, pane, every)
    about = f"Encodings along {dim}, one bar for each of {count_text(len(surveys), 'variable')}"
    picture = svg(pane.y + BAR + 36, about, parts)

    legend = [(swatch(fill, each), f"{counts[each]:,}") for fill, each in zip(fills, labels, strict=True)]
    left = sum(counts[encoding] for encoding in labels[MAX_ENTRIES:])
    others = [(f"{len(labels) - MAX_ENTRIES} others", f"{left:,}")] if left else []
    of = f" of <code>{markup(path)}</code>" if path else ""
    return "".join(
        [
            f'<section class="encodings"><h2>Encodings{of}</h2>',
            '<p class="soft">Where the encoding of the files changes. Where several files lie in one '
            "place, each has its share of the bar.</p>",
            explorable(picture, "Encodings by variable"),
            table_html(("Encoding", "Regions"), [*legend[:MAX_ENTRIES], *others], kind="encodings"),
            "</section>",
        ]
    )


def _encodings(survey: Survey) -> list[str]:
    """How every region is encoded, in the words that a dry run uses for runs."""
    table, of_member = survey.manifest.regions, []
    for fact in survey.facts:
        codecs = fact.label if fact.problem else source_codecs_text(fact.codecs)
        of_member.append(f"{codecs}, chunks {'x'.join(map(str, fact.chunks))}")
    pairs = zip(table.member.tolist(), table.packing.tolist(), strict=True)
    return [of_member[member] + (", packed" if packing != NONE else "") for member, packing in pairs]


def encodings_sections(store: object, surveys: Mapping[str, Survey]) -> Iterator[str]:
    """A section for every ingested dataset, about those of its arrays that are in `surveys`, by path.

    >>> list(encodings_sections({}, {}))
    []
    """
    datasets: dict[str, dict[str, Survey]] = {}
    for path, survey in surveys.items():
        parent, _, name = path.rpartition("/")
        datasets.setdefault(parent, {})[name] = survey
    for parent, arrays in datasets.items():
        for dim in read_ledger(dataset_group(store, parent)).dims[:1]:
            along = {
                name: survey
                for name, survey in arrays.items()
                if len(survey) and dim in (survey.manifest.dimension_names or ())
            }
            if along:
                yield _encodings_section(parent, dim, along)
