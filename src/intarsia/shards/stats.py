"""How full the slots of an array are, and what a compaction would free."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codecs.shard_index import absent
from intarsia.shards import files
from intarsia.shards.array import ShardedArray
from intarsia.shards.holding import locked_index
from intarsia.shards.mending import unparked
from intarsia.shards.swap import dense

if TYPE_CHECKING:
    from pathlib import Path

    from intarsia.shards.array import AnyArray

__all__ = ["SlotStats", "slot_stats"]


@dataclass(frozen=True, slots=True)
class SlotStats:
    """The shards of an array, in numbers.

    >>> SlotStats(shards=1, slotted=1, slots=8, slots_used=2, bytes_used=32, bytes_stored=260,
    ...           bytes_on_disk=8192, bytes_compacted=164, bytes_freed=4096).slots_free
    6
    """

    shards: int
    """Files."""

    slotted: int
    """Files with slots; the others were compacted, or written without."""

    slots: int
    """Inner chunks that the slotted files have room for."""

    slots_used: int
    """Those of them that are written."""

    bytes_used: int
    """Bytes of all chunks, slotted or not."""

    bytes_stored: int
    """Sizes of all files, with their index and their holes."""

    bytes_on_disk: int
    """What the file system has allocated for them: holes take nothing."""

    bytes_compacted: int
    """What the sizes of all files would be after `intarsia.compact`."""

    bytes_freed: int
    """How much of `bytes_on_disk` it would free."""

    @property
    def slots_free(self) -> int:
        """Slots that were never written."""
        return self.slots - self.slots_used


def slot_stats(array: AnyArray) -> SlotStats:
    """Count the slots and the bytes of a sharded array in a local store.

    >>> import tempfile, zarr, intarsia
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> intarsia.slotted(z)[8:24] = 1
    >>> stats = slot_stats(z)
    >>> stats.slots, stats.slots_used, stats.bytes_used
    (8, 2, 32)
    >>> directory.cleanup()
    """
    sharded = ShardedArray(array)
    total = dict.fromkeys((field.name for field in fields(SlotStats)), 0)
    for _, path in sharded.files():
        for name, count in _of_shard(sharded, path).items():
            total[name] += count
    return SlotStats(**total)


def _of_shard(sharded: ShardedArray, path: Path) -> dict[str, int]:
    with files.opened(path, write=False) as fd:
        if fd is None:
            return {}
        table = unparked(locked_index(fd, sharded.index)[0])
        status = os.fstat(fd)
        block = os.fstatvfs(fd).f_frsize
    present = np.flatnonzero(~absent(table))
    slotted = any(layout.file_bytes == status.st_size and layout.holds(table) for layout in sharded.layouts)
    _, compacted = dense(sharded.index, {int(n): int(table[n, 1]) for n in present})
    if not present.size:
        compacted = 0  # the file would be removed
    on_disk = status.st_blocks * 512
    return {
        "shards": 1,
        "slotted": slotted,
        "slots": slotted * sharded.index.chunks,
        "slots_used": slotted * present.size,
        "bytes_used": int(table[present, 1].sum()),
        "bytes_stored": status.st_size,
        "bytes_on_disk": on_disk,
        "bytes_compacted": compacted,
        "bytes_freed": max(0, on_disk - -(-compacted // block) * block),
    }
