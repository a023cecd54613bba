"""Sections of the page about members: bitmasks of `conditional` codecs, slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from intarsia.array import LogicalArray
from intarsia.codecs.decide.masks import masks_by_codec
from intarsia.report.drawing import COLOURS, plane_axes, swatch
from intarsia.report.members import MemberFacts
from intarsia.report.region_map import html_table
from intarsia.shards.inspection import SlotStats, slot_stats
from intarsia.words import count_text, markup, percent_text, size_text

MASK_ROWS, MASK_COLUMNS = 40, 64
MOST_MASKED, MOST_SLOTTED = 20, 50
"""A page shows this many members with a conditional codec, and with slots."""


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
    """Its name."""

    nested: tuple[str, ...]
    """The nested codecs, bit 0 first."""

    masks: np.ma.MaskedArray[Any, np.dtype[Any]]
    """Over the member's chunk grid; masked where nothing is stored."""

    def counts(self) -> dict[int, int]:
        """Chunks of every bitmask that occurs, the most frequent first."""
        values, numbers = np.unique(self.masks.compressed(), return_counts=True)
        counts = {int(value): int(number) for value, number in zip(values, numbers, strict=True)}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def words(self, mask: int) -> str:
        """The codecs that a bitmask says were applied."""
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
    """For every cell of a bounded plane, the place in `order` of its most frequent mask; -1 for none."""
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
    """Sums of neighbours, so that at most `most` places are left on the axis."""
    size = counts.shape[axis]
    if size <= most:
        return counts
    starts = np.unique(np.linspace(0, size, most + 1).astype(np.int64)[:-1])
    folded: np.ndarray[Any, Any] = np.add.reduceat(counts, starts, axis=axis)
    return folded


def mask_uses(array: LogicalArray, facts: Sequence[MemberFacts]) -> tuple[MaskUse, ...]:
    """The bitmasks of the members with a `conditional` codec, read from chunk headers alone."""
    uses: list[MaskUse] = []
    for fact in facts:
        nested = fact.conditional_codecs
        if nested and len(uses) < MOST_MASKED:
            names = tuple(str(codec.get("name")) for codec in nested)
            by_codec = masks_by_codec(array.members[fact.name])
            first = next(bitmasks for path, bitmasks in by_codec.items() if "." not in path)  # not one inside
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
    """Its name."""

    stats: SlotStats
    """In numbers."""

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
