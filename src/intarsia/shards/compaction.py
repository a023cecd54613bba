"""Compaction: shards lose their slots, become as small as their chunks, and are compressed if wanted."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from intarsia.codecs.chunk_rewrite import redecide_chunk
from intarsia.codecs.codec_path import ChunkWalk
from intarsia.codecs.decisions import DecisionLike
from intarsia.codecs.stored_decisions import with_decision
from intarsia.errors import ChunkDecodeError, ReadOnlyError
from intarsia.file_io import read_exactly
from intarsia.progress import Progress, silent
from intarsia.shards import files
from intarsia.shards.chunks import read_chunks
from intarsia.shards.handle import AnyArray, ShardedArray
from intarsia.shards.replace_shard import LockedShard, chunk_lengths, dense_layout, lock_shard, replace_file

AT_ONCE = 32
"""How many shards are compacted at once: most of them wait until nobody follows their old index any more."""

RECODED_AT_ONCE = 4
"""How many whose chunks are encoded again: all of these are in memory."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did.

    >>> CompactionReport(shards=2, replaced=1, bytes_before=4096, bytes_after=1024).bytes_freed
    3072
    """

    shards: int
    """The number of shards in the array."""

    replaced: int
    """How many were replaced, or removed because they were empty; the others were compact already."""

    bytes_before: int
    """The bytes that the shards took on disk."""

    bytes_after: int
    """The bytes that they take now."""

    @property
    def bytes_freed(self) -> int:
        """The bytes that were freed on disk."""
        return self.bytes_before - self.bytes_after


def compact(
    array: AnyArray,
    *,
    decision: DecisionLike | None = None,
    any_filesystem: bool = False,
    progress: Progress = silent,
) -> CompactionReport:
    """Rewrite the shards of `array` without slots, as zarr-python would have written them.

    Other processes may keep reading and writing through `intarsia.shards.slotted`. For each shard, writers
    wait until the new file, which is on disk by then, replaces the old one. If the call is interrupted,
    repeat it.

    With a `decision`, the chunks of a `conditional` codec are encoded again accordingly: write fast, compress
    later. Nobody has to wait for the encoding. Damaged chunks stay as they are. `any_filesystem` is as in
    `intarsia.shards.slotted`.

    [Storing data again](../../explanation/storing-again.md) compares it with other operations.

    Args:
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`. Steps are shards.

    >>> import tempfile, zarr, intarsia
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> slots = intarsia.shards.slotted(z)
    >>> slots[8:24] = 1
    >>> intarsia.shards.compact(slots).replaced
    1
    >>> intarsia.shards.slot_stats(slots).bytes_stored  # two chunks of 16 bytes, and the index of 8 entries
    164
    >>> directory.cleanup()
    """
    if array.read_only:
        raise ReadOnlyError("cannot compact: the array is open for reading only; open it with mode='r+'")
    sharded = ShardedArray(array if decision is None else with_decision(array, decision))
    sharded.check_filesystem(any_filesystem=any_filesystem)
    recoding = None if decision is None else Recoding(sharded)
    compact_one = partial(_compact_shard, sharded, recoding)
    shards = [path for _, path in sharded.files()]
    results = []
    progress(0, len(shards))
    at_once = AT_ONCE if recoding is None else RECODED_AT_ONCE
    with ThreadPoolExecutor(at_once, thread_name_prefix="intarsia-compact") as pool:
        for done, result in enumerate(pool.map(compact_one, shards), 1):
            results.append(result)
            progress(done, len(shards))
    files.sync_names(sharded.directory / "zarr.json", {})
    return CompactionReport(len(shards), *map(sum, zip(*results, strict=True)) if results else (0, 0, 0))


def _on_disk(path: Path) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def _compact_shard(sharded: ShardedArray, recoding: "Recoding | None", path: Path) -> tuple[bool, int, int]:
    """Compact one shard; returns whether there was work to do, and the bytes on disk before and after."""
    before = _on_disk(path)
    return _replace_shard(sharded, recoding, path), before, _on_disk(path)


def _replace_shard(sharded: ShardedArray, recoding: "Recoding | None", path: Path) -> bool:
    prepared = {} if recoding is None else recoding.prepare(path)
    with lock_shard(path, sharded.index, sharded.layouts) as shard:
        if shard is None:
            return False
        lengths = chunk_lengths(shard)
        if not lengths:
            os.unlink(path)  # as in zarr, a shard without chunks has no file
            files.sync_directory(path.parent)
            return True
        replaced = {} if recoding is None else recoding.replacements(shard, lengths, prepared)
        lengths |= {number: len(data) for number, data in replaced.items()}
        table, nbytes = dense_layout(sharded.index, lengths)
        if not replaced and nbytes == shard.nbytes and np.array_equal(table, shard.table):
            return False
        replace_file(shard, table, nbytes, replaced=replaced)
        return True


type Recoded = dict[tuple[int, bytes], bytes | None]
"""The new bytes of chunks, or None, by their number and a digest of their stored bytes."""


@dataclass(frozen=True)
class Recoding:
    """Encodes the chunks of one array again, by the array's decision.

    `prepare` does most of the work while others keep writing; `replacements` then does again whatever has
    been written meanwhile.
    """

    sharded: ShardedArray
    """The array, with the decision that the chunks are to follow."""

    def prepare(self, path: Path) -> Recoded:
        """The chunks of a shard, encoded again as they are stored now."""
        sharded = self.sharded
        recoded: Recoded = {}

        def prepare(number: int) -> None:
            with suppress(ChunkDecodeError):
                for stored in (read_chunks(path, sharded.index, [number], sharded.layouts) or {}).values():
                    self._recode(path, number, stored, recoded)

        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="intarsia-compact") as pool:
            list(pool.map(prepare, range(sharded.index.chunks)))
        return recoded

    def replacements(self, shard: LockedShard, lengths: dict[int, int], recoded: Recoded) -> dict[int, bytes]:
        """The new bytes of those chunks of a held shard that change."""
        replaced = {}
        for number, length in lengths.items():
            if shard.torn[number]:
                continue
            stored = bytes(read_exactly(shard.fd, int(shard.table[number, 0]), length))
            new = self._recode(shard.path, number, stored, recoded)
            if new is not None:
                replaced[number] = new
        return replaced

    def _recode(self, path: Path, number: int, stored: bytes, recoded: Recoded) -> bytes | None:
        """The chunk's new bytes, unless they are known; None if it stays as it is, as damaged chunks do."""
        key = number, hashlib.blake2b(stored, digest_size=16).digest()
        if key not in recoded:
            sharded, spec = self.sharded, self.sharded.chunk_spec
            data, locate = spec.prototype.buffer.from_bytes(stored), sharded.locate(path.as_posix(), number)
            walk, new = ChunkWalk(redecide_chunk), None
            with suppress(ChunkDecodeError):
                new = walk.through(sharded.codec.codecs, data, spec, locate)
            recoded[key] = None if new is None else new.to_bytes()
        return recoded[key]
