"""Sections of the page: bitmasks of `conditional` codecs, slots, and encodings of an ingested dataset."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from intarsia.archives.dataset import Dataset
from intarsia.archives.plan.coordinates import labels
from intarsia.archives.plan.encodings import source_codecs_text
from intarsia.codecs.bitmasks import masks_by_codec
from intarsia.inspect.drawing import (
    COLOURS,
    LEFT,
    RIGHT,
    Cell,
    for_both_sizes,
    plane_axes,
    project,
    swatch,
    text,
)
from intarsia.inspect.region_map import html_table
from intarsia.inspect.stored_members import MemberFacts
from intarsia.inspect.survey import Survey
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.region_table import NONE, Ints
from intarsia.shards.inspection import SlotStats, slot_stats
from intarsia.words import count_text, markup, percent_text, size_text

MASK_ROWS, MASK_COLUMNS = 40, 64
MOST_MASKED, MOST_SLOTTED = 20, 50
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
    """For every cell of a bounded plane, the position in `order` of its most frequent mask; -1 for none."""
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
    """Sums of neighbours, so that at most `most` entries are left on the axis."""
    size = counts.shape[axis]
    if size <= most:
        return counts
    starts = np.unique(np.linspace(0, size, most + 1).astype(np.int64)[:-1])
    folded: np.ndarray[Any, Any] = np.add.reduceat(counts, starts, axis=axis)
    return folded


def mask_uses(array: LogicalArray, facts: Sequence[MemberFacts]) -> tuple[MaskUse, ...]:
    """The bitmasks of the members with a `conditional` codec, read only from chunk headers."""
    uses: list[MaskUse] = []
    for fact in facts:
        nested = fact.conditional_codecs
        if nested and len(uses) < MOST_MASKED:
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


MOST_CELLS = 160
"""The most cells of one variable: longer series are combined."""

MOST_ENTRIES = 12
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
        rows = {name: seen for name, seen in self.surveys.items() if len(seen)}
        if not rows:
            return ""
        encodings = {name: _encodings(seen) for name, seen in rows.items()}
        names = _ranked(rows, encodings)
        rank = {words: i for i, words in enumerate(names)}
        # The colour is that of the codecs, as on the maps below; chunks and packings have none.
        colours = dict.fromkeys(names, 0)
        for name, seen in rows.items():
            colours |= dict(zip(encodings[name], seen.group.tolist(), strict=True))
        places = list(colours.values())

        def draw(plane: float) -> str:
            room = plane - (NAMES - LEFT)  # as wide as the maps, whose labels need less
            drawn = [
                part
                for i, (name, seen) in enumerate(rows.items())
                for part in self._bar(
                    i, name, seen, np.array([rank[each] for each in encodings[name]]), places, room
                )
            ]
            below = TOP + len(rows) * (BAR + GAP) + 12
            width = NAMES + room + RIGHT
            first, last = (self.ends[0], self.ends[-1]) if self.ends else ("0", "")
            # Times that do not fit beside one another begin at the edge, and the name goes below them.
            spare = room - LETTER * (len(first) + len(last))
            drawn += [text(NAMES if spare > 0 else 0, below, first, "soft", size=11)]
            drawn += [text(NAMES + room, below, last, "soft", "end", 11)]
            below += 0 if spare > LETTER * (len(self.dim) + 6) else 16
            drawn += [text(NAMES + room / 2, below, self.dim, "ink", "middle")]
            height = below + 6
            about = f"Encodings along {self.dim}, one bar for each of {count_text(len(rows), 'variable')}"
            return (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
                f'width="{width:g}" height="{height:g}" role="img" aria-label="{markup(about)}">'
                f"{''.join(drawn)}</svg>"
            )

        title = f" of <code>{markup(self.path)}</code>" if self.path else ""
        legend = [(swatch(colours[words], words), f"{count:,}") for words, count in names.items()]
        if len(legend) > MOST_ENTRIES:
            left = sum(list(names.values())[MOST_ENTRIES:])
            legend = [*legend[:MOST_ENTRIES], (f"{len(legend) - MOST_ENTRIES} others", f"{left:,}")]
        return "".join(
            [
                f'<section class="encodings"><h2>Encodings{title}</h2>',
                '<p class="soft">Where the encoding of the files changes. Where several files lie in one '
                "place, each has its share of the bar.</p>",
                '<div class="map" tabindex="0" role="group" '
                'aria-label="Encodings by variable; arrow keys go from one to the next">',
                for_both_sizes(draw),
                '<p class="readout" aria-live="polite"></p></div>',
                html_table(("Encoding", "Regions"), legend, "encodings"),
                "</section>",
            ]
        )

    def _bar(
        self, number: int, name: str, seen: Survey, group: Ints, colours: Sequence[int], room: float
    ) -> Iterator[str]:
        """One variable: its name, and what it is made of from left to right."""
        top = TOP + number * (BAR + GAP)
        yield text(NAMES - 8, top + BAR - 5, name, "ink", "end", longest=20)
        axis = (seen.manifest.dimension_names or ()).index(self.dim)
        shape = seen.manifest.shape
        for cell in project(shape, seen.start, seen.stop, group, (axis,), MOST_CELLS):
            x = NAMES + cell.start[0] / shape[axis] * room
            width = max(0.8, (cell.stop[0] - cell.start[0]) / shape[axis] * room - 0.5)
            y, whole = top, sum(share for _, share in cell.shares)
            title = markup(self._words(name, seen, cell), 1000)
            for encoding, share in cell.shares:
                height = BAR * share / max(whole, 1.0)
                yield (
                    f'<rect class="region" x="{x:.5g}" y="{y:.5g}" width="{width:.4g}" height="{height:.4g}" '
                    f'fill="{COLOURS[colours[encoding]]}"><title>{title}</title></rect>'
                )
                y += height

    def _words(self, name: str, seen: Survey, cell: Cell) -> str:
        """What there is to know about some steps of a variable."""
        rows = [seen.row(i) for i in cell.regions[:50].tolist()]
        packings = list(dict.fromkeys(row.packing for row in rows if row.packing))
        members = dict.fromkeys(seen.manifest.regions.member[cell.regions].tolist())
        kinds = list(dict.fromkeys(_words(seen.facts[member]) for member in members))
        lines = [f"{name}, {self.dim} {cell.start[0]} to {cell.stop[0] - 1}", *kinds[:4]]
        if packings:
            more = f" and {len(packings) - 1} more" if len(packings) > 1 else ""
            lines.append(f"Packing {packings[0]}{more}")
        return "\n".join(lines)


def _words(fact: MemberFacts) -> str:
    """The encoding of a member, in the words that a dry run uses for runs."""
    codecs = fact.names if fact.problem else source_codecs_text(fact.codecs)
    return f"{codecs}, chunks {'x'.join(map(str, fact.chunks))}"


def _encodings(seen: Survey) -> list[str]:
    """How every region is encoded, in words."""
    table = seen.manifest.regions
    of_member = [_words(fact) for fact in seen.facts]
    packed = (table.packing != NONE).tolist()
    pairs = zip(table.member.tolist(), packed, strict=True)
    return [of_member[member] + (", packed" if is_packed else "") for member, is_packed in pairs]


def _ranked(rows: Mapping[str, Survey], encodings: Mapping[str, list[str]]) -> dict[str, int]:
    """The encodings, those that hold most first, and how many regions have each."""
    weight: dict[str, float] = {}
    count: dict[str, int] = {}
    for name, seen in rows.items():
        for words, nbytes in zip(encodings[name], seen.nbytes.tolist(), strict=True):
            weight[words] = weight.get(words, 0.0) + nbytes
            count[words] = count.get(words, 0) + 1
    return {words: count[words] for words in sorted(weight, key=lambda words: (-weight[words], words))}


def timelines(store: object, surveys: Mapping[str, Survey]) -> list[Timeline]:
    """A timeline for every ingested dataset, with those of its arrays that are given, by path.

    >>> timelines({}, {})
    []
    """
    datasets: dict[str, dict[str, Survey]] = {}
    for path, seen in surveys.items():
        parent, _, name = path.rpartition("/")
        datasets.setdefault(parent, {})[name] = seen
    found = []
    for parent, arrays in datasets.items():
        ledger = Dataset.read_ledger(store, parent)
        if not ledger.dims:
            continue
        dim = ledger.dims[0]
        along = {name: seen for name, seen in arrays.items() if dim in (seen.manifest.dimension_names or ())}
        found.append(Timeline(parent, dim, _ends(store, parent, dim), along))
    return found


def _ends(store: object, path: str, dim: str) -> tuple[str, ...]:
    """The first and last coordinate of a dimension, as people write them."""
    group = open_group(store, path, "r")
    if dim not in group:
        return ()
    dataset = Dataset(plain={dim: group[dim]})
    values = dataset.values(dim)
    return tuple(labels(values[[0, -1]], dataset.attrs(dim))) if len(values) else ()
