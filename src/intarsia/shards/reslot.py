"""Slots again for shards that were written without, or with other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.progress import Progress, silent
from intarsia.shards.array import ShardedArray
from intarsia.shards.codec import SlottedSharding
from intarsia.shards.swap import held_shard, reslot_file

if TYPE_CHECKING:
    from intarsia.shards.array import AnyArray

__all__ = ["reslot"]


def reslot(
    array: AnyArray,
    *,
    safe_readers: bool | None = None,
    any_filesystem: bool = False,
    progress: Progress = silent,
) -> int:
    """Give every shard of `array` slots, with the values it has; returns how many shards lacked them.

    Needed after somebody wrote without `intarsia.slotted`. Nobody may do so while it runs; slotted readers
    and writers may. `safe_readers` and `any_filesystem` are as in `intarsia.slotted`, and taken from `array`
    if that is slotted.

    >>> import tempfile, zarr, intarsia
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> z[:] = 1  # plain zarr: a shard without slots
    >>> intarsia.shards.reslot(z)
    1
    >>> intarsia.slotted(z)[8:16] = 2
    >>> directory.cleanup()
    """
    sharded = ShardedArray(array)
    codec = sharded.codec
    if safe_readers is None:
        safe_readers = not isinstance(codec, SlottedSharding) or codec.safe_readers
    sharded.check_filesystem(any_filesystem=any_filesystem)
    slots = SlottedSharding.of(codec, safe_readers=safe_readers).behind(sharded.transposes)
    settings = slots.slot_settings(sharded.shard_spec)
    shards = [path for _, path in sharded.files()]
    changed = 0
    for done, path in enumerate(shards):
        progress(done, len(shards))
        with held_shard(path, settings.index, settings.layouts) as shard:
            if shard is not None and settings.layout_of(shard.nbytes, shard.table) is None:
                reslot_file(shard, settings.new)
                changed += 1
    progress(len(shards), len(shards))
    return changed
