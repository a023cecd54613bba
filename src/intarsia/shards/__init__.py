"""Slotted shards: many processes write into one shard file at once; compaction later.

A slotted shard is a valid `sharding_indexed` shard whose inner chunks lie at fixed offsets.
"""

from intarsia.shards.check import check_shards
from intarsia.shards.codec import SlottedSharding
from intarsia.shards.compaction import compact
from intarsia.shards.handle import flush_slots, slotted
from intarsia.shards.reslot import reslot
from intarsia.shards.stats import slot_stats

__all__ = [
    "SlottedSharding",
    "check_shards",
    "compact",
    "flush_slots",
    "reslot",
    "slot_stats",
    "slotted",
]
