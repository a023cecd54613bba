"""How full the shards of slotted members are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zarr.storage import LocalStore

from intarsia.report.inert import markup
from intarsia.report.notebook import html_table
from intarsia.shards import SlotStats, slot_stats
from intarsia.words import count_text, percent_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia.array import LogicalArray
    from intarsia.report.facts import MemberFacts

__all__ = ["SlotUse", "slot_uses"]

MOST_MEMBERS = 50
"""A page shows this many sharded members."""


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
    sharded = [fact.name for fact in facts if fact.is_sharded][:MOST_MEMBERS]
    found = (SlotUse(name, slot_stats(array.members[name])) for name in sharded)
    return tuple(use for use in found if use.stats.slotted)
