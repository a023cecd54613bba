"""The report: one HTML page that shows what was done to the data, from disk, without a server or network.

First the page and its sections; then those about bitmasks of `conditional` codecs, about slots, and about the
encodings of an ingested dataset.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
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
    embedded_json,
    markup,
    percent_text,
    plain,
    size_text,
    table_html,
)
from intarsia.inspect.drawing import (
    COLOURS,
    LEFT,
    RIGHT,
    Cell,
    Pane,
    Rectangle,
    bin_plane,
    details,
    explorable,
    for_both_sizes,
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
from intarsia.inspect.heat_map import draw_heat, heat_cell_text, heat_cells, heat_scale
from intarsia.inspect.region_map import draw_map, layers_html, legend_table, region_table
from intarsia.inspect.survey import Survey
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.member_metadata import MemberMetadata
from intarsia.logical.verify import Problem
from intarsia.manifest.region_table import NONE, Ints
from intarsia.shards.inspection import SlotStats, slot_stats

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

    moments: tuple[ArrayVersion, ...]
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
        return self.moments[-1].survey


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
                "labels": _slider_labels(report.moments),
                "heat": [heat_cell_text(report.now, cell) for cell in cells],
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
            f"<title>{markup(title)}</title>{STYLE}<style>{_asset('page.css')}</style></head><body>",
            f'<header><h1>{markup(title)}</h1><p class="soft">{markup(about)}</p>{navigation}</header>',
            f"<main>{''.join(timeline.html() for timeline in timelines)}{''.join(sections)}</main>",
            "<noscript><p>Without JavaScript, the newest version is shown.</p></noscript>",
            f'<script type="application/json" id="data">{embedded_json(data)}</script>',
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _overview(reports: Sequence[ArrayReport]) -> str:
    """All arrays of the page, one per line."""
    rows = []
    for i, report in enumerate(reports):
        link = Markup(f'<a href="#array-{i}"><code>{markup(report.path or "/")}</code></a>')
        sizes = {"Regions": f"{len(report.now):,}", "Size": size_text(report.now.total_nbytes)}
        facts = {**dict(report.fields), **sizes, **dict(report.now.totals())}
        problems = count_text(len(report.problems), "problem") if report.problems else "no problems"
        rows.append((link, *(facts.get(name, "") for name in OVERVIEW), problems))
    return table_html(("Array", *OVERVIEW, "Check"), rows, kind="overview")


def _slider_labels(moments: Sequence[ArrayVersion]) -> list[str]:
    if len(moments) == 1:
        return [moments[0].label]
    return [f"{i} of {len(moments)}: {moment.label}" for i, moment in enumerate(moments, 1)]


def _section(number: int, report: ArrayReport, cells: list[Any]) -> str:
    now = report.now
    facts = [field for field in (*report.fields, *now.totals()) if field[0] not in SAID_ABOVE]
    tiles = "".join(f"<div><dt>{markup(name)}</dt><dd>{markup(value)}</dd></div>" for name, value in facts)
    attributes = report.attributes and details("Attributes", table_html(("", ""), report.attributes))
    return "".join(
        [
            f'<section id="array-{number}" aria-labelledby="title-{number}">',
            f'<h2 id="title-{number}"><code>{markup(report.path or "/")}</code></h2>',
            f'<dl class="facts">{tiles}</dl>{attributes or ""}',
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
    between = count_text(report.versions_left_out, "version")
    left_out = soft(f"{between} in between are not shown.") if report.versions_left_out else ""
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


def _moment(moment: ArrayVersion) -> str:
    survey = moment.survey
    changes = "".join(f"<li>{markup(change)}</li>" for change in moment.changes)
    regions = details(count_text(len(survey), "region"), region_table(survey, MAX_ROWS))
    return "".join(
        [
            soft(f"Snapshot <code>{markup(moment.snapshot)}</code>") if moment.snapshot else "",
            f"<ul>{changes}</ul>" if changes else "",
            explorable(_map(survey), "Map of the regions"),
            legend_table(survey),
            regions if len(survey) else "",
        ]
    )


def _map(survey: Survey) -> str:
    return for_both_sizes(partial(draw_map, survey, standalone=False))


def _heat(number: int, report: ArrayReport, cells: list[Any]) -> str:
    if not cells:
        return ""
    scale = "".join(
        f'<li><span style="background:{colour}"></span>{markup(meaning)}</li>'
        for colour, meaning in heat_scale()
    )
    extremes = sorted(cells, key=lambda cell: cell.ratio)
    ends = [*extremes[:5], *extremes[-5:]] if len(extremes) > 10 else extremes
    rows = [(heat_cell_text(report.now, cell),) for cell in ends]
    picture = for_both_sizes(partial(draw_heat, report.now, cells))
    return "".join(
        [
            "<h3>Ratio per chunk</h3>",
            '<p class="soft">Size in memory divided by stored size. Where there are many chunks, or '
            "chunks behind others, several share a cell.</p>",
            explorable(picture, "Ratio per chunk", f' data-heat="{number}"'),
            f'<ul class="scale">{scale}</ul>',
            details("Smallest and largest ratios", table_html(("Cells",), rows, kind="heat")),
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


MASK_ROWS, MASK_COLUMNS = 40, 64
MASK_WIDTH = 360.0
MAX_MASKED, MAX_SLOTTED = 20, 50
"""A page shows this many members with a conditional codec, and this many with slots."""


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
    """The name of the member."""

    nested: tuple[str, ...]
    """The nested codecs, bit 0 first."""

    masks: np.ma.MaskedArray[Any, np.dtype[Any]]
    """The bitmasks over the member's chunk grid, masked where nothing is stored."""

    def counts(self) -> dict[int, int]:
        """The number of chunks for every bitmask that occurs, most frequent first."""
        values, numbers = np.unique(self.masks.compressed(), return_counts=True)
        counts = {int(value): int(number) for value, number in zip(values, numbers, strict=True)}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def words(self, mask: int) -> str:
        """The codecs that were applied, according to a bitmask."""
        applied = [name for bit, name in enumerate(self.nested) if mask >> bit & 1]
        return " + ".join(applied) or "none"

    def html(self) -> str:
        """A section of the report."""
        counts = self.counts()
        total = sum(counts.values())
        rows = []
        for i, (mask, number) in enumerate(counts.items()):
            bits = f"{mask:0{len(self.nested)}b}"
            colour = COLOURS[min(i, len(COLOURS) - 1)]
            rows.append((swatch(colour, self.words(mask)), bits, f"{number:,}", percent_text(number / total)))
        if not rows:
            return f"<h3>Conditional codecs of {markup(self.member)}</h3><p>Nothing is stored yet.</p>"
        return "".join(
            [
                f"<h3>Conditional codecs of <code>{markup(self.member)}</code></h3>",
                '<p class="soft">Which nested codecs each stored chunk went through; where several chunks '
                "share a cell, the most frequent answer.</p>",
                self._picture(list(counts)),
                table_html(("Applied", "Mask", "Chunks stored", "Share"), rows, kind="masks"),
            ]
        )

    def _picture(self, order: Sequence[int]) -> str:
        """The chunks, each cell in the colour of the mask that most of its chunks have."""
        shape, index = self.masks.shape, np.argwhere(~np.ma.getmaskarray(self.masks))
        having = [self.masks.compressed() == mask for mask in order]
        pane = panes(shape, max_width=MASK_WIDTH)[0]
        line = ' class="region" stroke="var(--page)" stroke-width=".5"'
        parts = []
        for start, stop, _, sums in bin_plane(shape, index, index + 1, having, (MASK_ROWS, MASK_COLUMNS)):
            place = int(sums.argmax())
            colour, words = COLOURS[min(place, len(COLOURS) - 1)], markup(self.words(order[place]))
            parts.append(rect(*pane.box(Rectangle(start, stop)), colour, line, words))
        about = f"Grid of the chunks of {self.member}, coloured by the codecs that were applied"
        picture = svg(LEFT + pane.width + RIGHT, pane.y + pane.height + 8, about, parts)
        return explorable(picture, "Masks per chunk")


def mask_uses(array: LogicalArray, facts: Sequence[MemberMetadata]) -> tuple[MaskUse, ...]:
    """The bitmasks of the members with a `conditional` codec, read only from chunk headers."""
    uses: list[MaskUse] = []
    for fact in facts:
        nested = fact.conditional_codecs
        if nested and len(uses) < MAX_MASKED:
            names = tuple(str(codec.get("name")) for codec in nested)
            by_codec = masks_by_codec(array.members[fact.name])
            first = next(bitmasks for path, bitmasks in by_codec.items() if "." not in path)  # none inside
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
    """The name of the member."""

    stats: SlotStats
    """The slots, in numbers."""

    def html(self) -> str:
        """A section of the report."""
        stats = self.stats
        share = stats.slots_used / stats.slots if stats.slots else 0.0
        parts = [rect(0, 0, 320, 14, "var(--hole)"), rect(0, 0, 320 * share, 14, COLOURS[0])]
        bar = svg(320, 14, f"{percent_text(share)} of the slots are used", parts)
        rows = [
            ("Slots used", f"{stats.slots_used:,} of {stats.slots:,}"),
            ("Shards with slots", f"{stats.slotted:,} of {stats.shards:,}"),
            ("Stored", size_text(stats.bytes_stored)),
            ("On disk", size_text(stats.bytes_on_disk)),
            ("Freed by compaction", size_text(stats.bytes_freed)),
        ]
        hint = soft(f"intarsia compact makes {count_text(stats.slotted, 'shard')} plain.")
        table = table_html(("", ""), rows, kind="slots") + (hint if stats.slotted else "")
        return f"<h3>Slots of <code>{markup(self.member)}</code></h3>{bar}{table}"


def slot_uses(array: LogicalArray, facts: Sequence[MemberMetadata]) -> tuple[SlotUse, ...]:
    """The slots of every sharded member in a local store that has any."""
    if not isinstance(array.store, LocalStore):
        return ()
    sharded = [fact.name for fact in facts if fact.is_sharded][:MAX_SLOTTED]
    uses = (SlotUse(name, slot_stats(array.members[name])) for name in sharded)
    return tuple(use for use in uses if use.stats.slotted)


MAX_CELLS = 160
"""The most cells of one variable: longer series are combined."""

MAX_ENTRIES = 12
"""The most entries of the legend."""

BAR, GAP, TOP, NAMES = 18.0, 8.0, 6.0, 130.0
"""The height of a bar; the space between two, above all, and for the names on the left."""

LETTER = 6.0
"""The width of a letter, on average."""


@dataclass(frozen=True)
class Timeline:
    """The variables of one dataset, side by side.

    >>> Timeline("", "time", (), {}).html()
    ''
    """

    path: str
    """The path of the dataset."""

    dim: str
    """The dimension that grows from file to file."""

    ends: tuple[str, ...]
    """The coordinates of its first and last step, if it has any."""

    surveys: Mapping[str, Survey]
    """The variables."""

    def html(self) -> str:
        """A section of the report."""
        rows = {name: survey for name, survey in self.surveys.items() if len(survey)}
        if not rows:
            return ""
        encodings = {name: _encodings(survey) for name, survey in rows.items()}
        names = _ranked(rows, encodings)
        rank = {words: i for i, words in enumerate(names)}
        # The colour is that of the codecs, as on the maps below; chunks and packings have shades of it.
        places = dict.fromkeys(names, 0)
        for name, survey in rows.items():
            places |= dict(zip(encodings[name], survey.group.tolist(), strict=True))
        before: list[int] = []
        colours = {}
        for words, place in places.items():
            colours[words] = shade(COLOURS[place], before.count(place))
            before.append(place)
        fills = list(colours.values())

        def draw(plane: float) -> str:
            bars_width = plane - (NAMES - LEFT)  # as wide as the maps, whose labels need less
            parts = [
                part
                for i, (name, survey) in enumerate(rows.items())
                for part in self._bar(
                    i, name, survey, np.array([rank[each] for each in encodings[name]]), fills, bars_width
                )
            ]
            below = TOP + len(rows) * (BAR + GAP) + 12
            width = NAMES + bars_width + RIGHT
            first, last = (self.ends[0], self.ends[-1]) if self.ends else ("0", "")
            # Times that do not fit beside one another begin at the edge, and the name goes below them.
            spare = bars_width - LETTER * (len(first) + len(last))
            parts += [svg_text(NAMES if spare > 0 else 0, below, first, "soft", size=11)]
            parts += [svg_text(NAMES + bars_width, below, last, "soft", "end", 11)]
            below += 0 if spare > LETTER * (len(self.dim) + 6) else 16
            parts += [svg_text(NAMES + bars_width / 2, below, self.dim, "ink", "middle")]
            about = f"Encodings along {self.dim}, one bar for each of {count_text(len(rows), 'variable')}"
            return svg(width, below + 6, about, parts)

        title = f" of <code>{markup(self.path)}</code>" if self.path else ""
        legend: list[tuple[str, str]] = [
            (swatch(colours[words], words), f"{count:,}") for words, count in names.items()
        ]
        if len(legend) > MAX_ENTRIES:
            left = sum(list(names.values())[MAX_ENTRIES:])
            legend = [*legend[:MAX_ENTRIES], (f"{len(legend) - MAX_ENTRIES} others", f"{left:,}")]
        return "".join(
            [
                f'<section class="encodings"><h2>Encodings{title}</h2>',
                '<p class="soft">Where the encoding of the files changes. Where several files lie in one '
                "place, each has its share of the bar.</p>",
                explorable(for_both_sizes(draw), "Encodings by variable"),
                table_html(("Encoding", "Regions"), legend, kind="encodings"),
                "</section>",
            ]
        )

    def _bar(
        self, number: int, name: str, survey: Survey, group: Ints, fills: Sequence[str], bars_width: float
    ) -> Iterator[str]:
        """One variable: its name, and what it is made of from left to right."""
        top = TOP + number * (BAR + GAP)
        yield svg_text(NAMES - 8, top + BAR - 5, name, "ink", "end", longest=20)
        axis = (survey.manifest.dimension_names or ()).index(self.dim)
        shape = survey.manifest.shape
        pane = Pane(NAMES, top, bars_width, BAR, (axis,), shape)
        for cell in project(shape, survey.start, survey.stop, group, (axis,), MAX_CELLS):
            x, y, width, height = pane.box(cell)
            title = markup(self._words(name, survey, cell), 1000)
            whole = max(1.0, sum(share for _, share in cell.shares))
            shares = [(encoding, share / whole) for encoding, share in cell.shares]
            box = x, y, max(0.8, width - 0.5), height
            for encoding, part in share_boxes(box, shares, layered=True):
                yield rect(*part, fills[encoding], ' class="region"', title)

    def _words(self, name: str, survey: Survey, cell: Cell) -> str:
        """What there is to know about some steps of a variable."""
        rows = [survey.row(i) for i in cell.regions[:50].tolist()]
        packings = list(dict.fromkeys(row.packing for row in rows if row.packing))
        members = dict.fromkeys(survey.manifest.regions.member[cell.regions].tolist())
        kinds = list(dict.fromkeys(_words(survey.facts[member]) for member in members))
        lines = [f"{name}, {self.dim} {cell.start[0]} to {cell.stop[0] - 1}", *kinds[:4]]
        if packings:
            more = f" and {len(packings) - 1} more" if len(packings) > 1 else ""
            lines.append(f"Packing {packings[0]}{more}")
        return "\n".join(lines)


def _words(fact: MemberMetadata) -> str:
    """The encoding of a member, in the words that a dry run uses for runs."""
    codecs = fact.label if fact.problem else source_codecs_text(fact.codecs)
    return f"{codecs}, chunks {'x'.join(map(str, fact.chunks))}"


def _encodings(survey: Survey) -> list[str]:
    """How every region is encoded, in words."""
    table = survey.manifest.regions
    of_member = [_words(fact) for fact in survey.facts]
    packed = (table.packing != NONE).tolist()
    pairs = zip(table.member.tolist(), packed, strict=True)
    return [of_member[member] + (", packed" if is_packed else "") for member, is_packed in pairs]


def _ranked(rows: Mapping[str, Survey], encodings: Mapping[str, list[str]]) -> dict[str, int]:
    """The encodings, those that hold most first, and how many regions have each."""
    weight: dict[str, float] = {}
    count: dict[str, int] = {}
    for name, survey in rows.items():
        for words, nbytes in zip(encodings[name], survey.nbytes.tolist(), strict=True):
            weight[words] = weight.get(words, 0.0) + nbytes
            count[words] = count.get(words, 0) + 1
    return {words: count[words] for words in sorted(weight, key=lambda words: (-weight[words], words))}


def timelines(store: object, surveys: Mapping[str, Survey]) -> list[Timeline]:
    """A timeline for every ingested dataset, with those of its arrays that are in `surveys`, by path.

    >>> timelines({}, {})
    []
    """
    datasets: dict[str, dict[str, Survey]] = {}
    for path, survey in surveys.items():
        parent, _, name = path.rpartition("/")
        datasets.setdefault(parent, {})[name] = survey
    result = []
    for parent, arrays in datasets.items():
        ledger = read_ledger(dataset_group(store, parent))
        if not ledger.dims:
            continue
        dim = ledger.dims[0]
        along = {name: each for name, each in arrays.items() if dim in (each.manifest.dimension_names or ())}
        ends = _ends(next(iter(along.values())), dim) if along else ()
        result.append(Timeline(parent, dim, ends, along))
    return result


def _ends(survey: Survey, dim: str) -> tuple[str, ...]:
    """The first and last coordinate of a dimension, as people write them; empty if it has none."""
    axis = (survey.manifest.dimension_names or ()).index(dim)
    labels, size = survey.coordinates[axis], survey.manifest.shape[axis]
    return tuple(labels.at([0, size - 1])) if labels is not None and size else ()
