"""Compaction: shards lose their slots, become as small as their chunks, and are compressed if wanted."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
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
from intarsia.shards.replace_shard import chunk_lengths, dense_layout, lock_shard, replace_file

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
    compact_one = partial(_compact_shard, sharded, recode=decision is not None)
    shards = [path for _, path in sharded.files()]
    results = []
    progress(0, len(shards))
    at_once = AT_ONCE if decision is None else RECODED_AT_ONCE
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


def _compact_shard(sharded: ShardedArray, path: Path, *, recode: bool) -> tuple[bool, int, int]:
    """Compact one shard; returns whether there was work to do, and the bytes on disk before and after."""
    before = _on_disk(path)
    return _replace_shard(sharded, path, recode=recode), before, _on_disk(path)


def _replace_shard(sharded: ShardedArray, path: Path, *, recode: bool) -> bool:
    encode = cache(partial(_encode_again, sharded, path))
    if recode:  # most of it while others keep writing; what they change is encoded again below
        encode_stored(sharded, path, encode)
    with lock_shard(path, sharded.index, sharded.layouts) as shard:
        if shard is None:
            return False
        lengths = chunk_lengths(shard)
        if not lengths:
            os.unlink(path)  # as in zarr, a shard without chunks has no file
            files.sync_directory(path.parent)
            return True
        replaced: dict[int, bytes] = {}
        for number in lengths if recode else ():
            if not shard.torn[number]:
                stored = bytes(read_exactly(shard.fd, int(shard.table[number, 0]), lengths[number]))
                new = encode(number, stored)
                replaced |= {} if new is None else {number: new}
        lengths |= {number: len(data) for number, data in replaced.items()}
        table, nbytes = dense_layout(sharded.index, lengths)
        if not replaced and nbytes == shard.nbytes and np.array_equal(table, shard.table):
            return False
        replace_file(shard, table, nbytes, replaced=replaced)
        return True


def encode_stored(sharded: ShardedArray, path: Path, encode: Callable[[int, bytes], bytes | None]) -> None:
    """Call `encode`, which remembers its results, for the chunks of a shard as they are stored now."""

    def encode_one(number: int) -> None:
        with suppress(ChunkDecodeError):
            for stored in (read_chunks(path, sharded.index, [number], sharded.layouts) or {}).values():
                encode(number, stored)

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="intarsia-compact") as pool:
        list(pool.map(encode_one, range(sharded.index.chunks)))


def _encode_again(sharded: ShardedArray, path: Path, number: int, stored: bytes) -> bytes | None:
    """A chunk encoded by the array's decision; None if it stays as it is, as damaged chunks do."""
    spec = sharded.chunk_spec
    data, locate = spec.prototype.buffer.from_bytes(stored), sharded.locate(path.as_posix(), number)
    try:
        new = ChunkWalk(redecide_chunk).through(sharded.codec.codecs, data, spec, locate)
    except ChunkDecodeError:
        return None
    return None if new is None else new.to_bytes()
