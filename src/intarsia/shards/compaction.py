"""Compaction: shards without slots again, as small as their chunks are, and compressed if wanted."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Semaphore
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codecs.deciding import with_decision
from intarsia.errors import ReadOnlyError
from intarsia.progress import Progress, silent
from intarsia.shards import files
from intarsia.shards.array import ShardedArray
from intarsia.shards.recoding import Recoding
from intarsia.shards.swap import dense, held_shard, put, sources

if TYPE_CHECKING:
    from pathlib import Path

    from intarsia.codecs.decisions import DecisionLike
    from intarsia.shards.array import AnyArray

__all__ = ["Compaction", "compact"]

AT_ONCE = 4
"""Shards that are compacted at once: while one waits for the disk, the next one is copied."""

WAITING = 64
"""Shards that may wait at once until nobody follows their old index any more."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did.

    >>> Compaction(shards=2, replaced=1, bytes_before=4096, bytes_after=1024).bytes_freed
    3072
    """

    shards: int
    """Shards that the array had."""

    replaced: int
    """Shards that were replaced, or removed because they held nothing; the others were compact already."""

    bytes_before: int
    """Bytes that the shards took on disk."""

    bytes_after: int
    """Bytes that they take now."""

    @property
    def bytes_freed(self) -> int:
        """Bytes that are free again on disk."""
        return self.bytes_before - self.bytes_after


def compact(
    array: AnyArray,
    *,
    decision: DecisionLike | None = None,
    any_filesystem: bool = False,
    progress: Progress = silent,
) -> Compaction:
    """Rewrite the shards of `array` without slots, as zarr-python would have written them.

    Processes may go on reading and writing, through `intarsia.slotted`: shard by shard they wait until the
    new file, which is on disk by then, takes the old one's place. What was interrupted can simply be called
    again.

    With a `decision`, the chunks of a `conditional` codec follow it from now on: write fast, compress later.
    The work of encoding is done before anybody has to wait. Chunks that are damaged stay as they are.
    `any_filesystem` is as in `intarsia.slotted`.

    >>> import tempfile, zarr, intarsia
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> slots = intarsia.slotted(z)
    >>> slots[8:24] = 1
    >>> intarsia.compact(slots).replaced
    1
    >>> intarsia.slot_stats(slots).bytes_stored  # two chunks of 16 bytes, and the index of 8 entries
    164
    >>> directory.cleanup()
    """
    if array.read_only:
        raise ReadOnlyError("cannot compact: the array is open for reading only; open it with mode='r+'")
    sharded = ShardedArray(array if decision is None else with_decision(array, decision))
    sharded.check_filesystem(any_filesystem=any_filesystem)
    work = _Work(sharded, None if decision is None else Recoding(sharded))
    shards = [path for _, path in sharded.files()]
    result = Compaction(len(shards), replaced=0, bytes_before=0, bytes_after=0)
    progress(0, len(shards))
    with ThreadPoolExecutor(AT_ONCE + WAITING, thread_name_prefix="intarsia-compact") as pool:
        running = [pool.submit(work.compact, path) for path in shards]
        try:
            for done, future in enumerate(running, 1):
                replaced, before, after = future.result()
                result = replace(
                    result,
                    replaced=result.replaced + replaced,
                    bytes_before=result.bytes_before + before,
                    bytes_after=result.bytes_after + after,
                )
                progress(done, len(shards))
        finally:
            pool.shutdown(cancel_futures=True)
    files.sync_names(sharded.directory / "zarr.json", {})
    return result


def _on_disk(path: Path) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


@dataclass(frozen=True)
class _Work:
    """Compacting the shards of one array, of which others wait while some are worked on."""

    sharded: ShardedArray
    recoding: Recoding | None
    turns: Semaphore = field(default_factory=lambda: Semaphore(AT_ONCE))

    def compact(self, path: Path) -> tuple[bool, int, int]:
        """Compact one shard; says whether anything was to do, and the bytes on disk before and after."""
        with self.turns:
            before = _on_disk(path)
            return self._replace(path), before, _on_disk(path)

    def _rest(self, seconds: float) -> None:
        self.turns.release()
        try:
            time.sleep(seconds)
        finally:
            self.turns.acquire()

    def _replace(self, path: Path) -> bool:
        sharded, recoding = self.sharded, self.recoding
        prepared = {} if recoding is None else recoding.prepare(path)
        with held_shard(path, sharded.index, sharded.layouts) as shard:
            if shard is None:
                return False
            files.clear_leftovers(path)
            lengths = sources(shard)
            if not lengths:
                os.unlink(path)  # a shard without chunks is no file, as zarr has it
                files.sync_directory(path.parent)
                return True
            replaced = {} if recoding is None else recoding.replacements(shard, lengths, prepared)
            prepared.clear()
            lengths |= {number: len(data) for number, data in replaced.items()}
            table, nbytes = dense(sharded.index, lengths)
            if not replaced and nbytes == shard.nbytes and np.array_equal(table, shard.table):
                return False
            put(shard, table, nbytes, replaced=replaced, pause=self._rest)
            return True
