"""Inspects all shards of an array: how full their slots are, and whether anything is wrong with them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from intarsia.codecs.context import at_position
from intarsia.codecs.shard_index import Table, is_absent
from intarsia.errors import ChunkDecodeError
from intarsia.shards import files
from intarsia.shards.chunks import read_chunks, read_plausible_table
from intarsia.shards.handle import AnyArray, ShardedArray
from intarsia.shards.replace_shard import dense_layout
from intarsia.shards.slots import PARKED, is_marked, without_marks


@dataclass(frozen=True, slots=True)
class SlotStats:
    """The shards of an array, in numbers.

    >>> SlotStats(shards=1, slotted=1, slots=8, slots_used=2, bytes_used=32, bytes_stored=260,
    ...           bytes_on_disk=8192, bytes_compacted=164, bytes_freed=4096).slots_free
    6
    """

    shards: int
    """The number of shard files."""

    slotted: int
    """How many files have slots; the others were compacted, or written without slots."""

    slots: int
    """How many inner chunks the slotted files have room for."""

    slots_used: int
    """How many of them are written."""

    bytes_used: int
    """The bytes of all chunks, slotted or not."""

    bytes_stored: int
    """The sizes of all files, including their indexes and holes."""

    bytes_on_disk: int
    """What the file system has allocated for them; holes take nothing."""

    bytes_compacted: int
    """The size that all files would have after `intarsia.shards.compact`."""

    bytes_freed: int
    """How much of `bytes_on_disk` that would free."""

    @property
    def slots_free(self) -> int:
        """How many slots were never written."""
        return self.slots - self.slots_used


def slot_stats(array: AnyArray) -> SlotStats:
    """Count the slots and the bytes of a sharded array in a local store.

    Args:
        array: The sharded array, with slots or without.

    >>> import tempfile, zarr, intarsia
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> intarsia.shards.slotted(z)[8:24] = 1
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
    with files.open_existing(path, write=False) as fd:
        if fd is None:
            return {}
        table = without_marks(files.read_entries(fd, sharded.index)[0], PARKED)
        status = os.fstat(fd)
        block = os.fstatvfs(fd).f_frsize
    present = np.flatnonzero(~is_absent(table))
    slotted = any(layout.file_bytes == status.st_size and layout.holds(table) for layout in sharded.layouts)
    _, compacted = dense_layout(sharded.index, {int(n): int(table[n, 1]) for n in present})
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


PUT_RIGHT = "the next write through intarsia.shards.slotted, or intarsia.shards.compact, repairs it"


@dataclass(frozen=True, slots=True)
class ShardProblem:
    """Something wrong with a shard.

    >>> print(ShardProblem("c/0 chunk (3,)", "it does not decode"))
    c/0 chunk (3,): it does not decode
    """

    where: str
    """The shard's path in the store, and the chunk's index in the whole array."""

    what: str
    """What is wrong."""

    advice: str = ""
    """What to do."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}{f' ({self.advice})' if self.advice else ''}"


def check_shards(array: AnyArray, *, data: bool = True) -> Iterator[ShardProblem]:
    """Check every shard and, unless `data` is False, decode every chunk; yields what is wrong.

    Slotted writers may be at work at the same time.

    Args:
        array: The sharded array, with slots or without.

    >>> import tempfile, zarr
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> z[:] = 1
    >>> list(check_shards(z))
    []
    >>> directory.cleanup()
    """
    sharded = ShardedArray(array)
    for coordinates, path in sharded.files():
        where = f"{array.path}/{sharded.metadata.encode_chunk_key(coordinates)}".lstrip("/")
        with files.open_existing(path, write=False) as fd:
            if fd is None:
                continue  # removed meanwhile, so it holds nothing
            try:
                table, intact = read_plausible_table(path, fd, sharded.index, sharded.layouts)
            except ChunkDecodeError as error:
                yield ShardProblem(where, str(error))
                continue
        yield from (ShardProblem(where, what, advice) for what, advice in _in_index(table, intact))
        for number in np.flatnonzero(~is_absent(table)).tolist() if data else ():
            locate = sharded.locate(coordinates, number)
            with at_position(locate):
                what = _in_chunk(sharded, path, number)
            if what is not None:
                yield ShardProblem(f"{where} chunk {locate().index}", what)


def _in_index(table: Table, intact: bool) -> Iterator[tuple[str, str]]:
    if not intact:
        yield "a writer died: the checksum of the index is out of date, and other programs fail", PUT_RIGHT
    if is_marked(table, PARKED).any():
        yield "a compaction died: other programs fail to read some chunks", PUT_RIGHT
    rows = without_marks(table)[~is_absent(table)]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ends = rows[:, 0] + rows[:, 1]
    for at in np.flatnonzero(ends[:-1] > rows[1:, 0]):
        yield f"two chunks share the bytes from {rows[at + 1, 0]} to {ends[at]}: the index is damaged", ""


def _in_chunk(sharded: ShardedArray, path: Path, number: int) -> str | None:
    try:
        stored = read_chunks(path, sharded.index, [number], sharded.layouts)
        if stored is not None and number in stored:
            buffer = sharded.chunk_spec.prototype.buffer.from_bytes(stored[number])
            sharded.transform.decode_chunk(buffer, sharded.chunk_spec)
    except Exception as error:  # anything that a codec may raise for damaged bytes
        return f"{type(error).__name__}: {error}"
    return None
