"""Slotted shards: many processes write into one shard file at once; compaction comes later.

A slotted shard is a valid `sharding_indexed` shard whose inner chunks lie at fixed offsets.

- `slots` says where they lie, `inner_codecs` how large they are; `handle` is an array seen as shard files.
- `chunks` reads and writes them while others do; `locks`, `files` and `replace_shard` make that safe.
  `files` also removes what killed writers left.
- `compaction` removes the slots; `inspection` looks at all shards.
"""

from intarsia.shards.compaction import compact
from intarsia.shards.handle import flush_slots, reslot, slotted
from intarsia.shards.inspection import check_shards, slot_stats
from intarsia.shards.sharding import SlottedSharding

__all__ = ["SlottedSharding", "check_shards", "compact", "flush_slots", "reslot", "slot_stats", "slotted"]
