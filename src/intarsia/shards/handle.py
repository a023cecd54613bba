"""`slotted`: an array whose chunk writes go to slots, and `flush_slots`, which makes them durable."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import zarr

from intarsia.errors import SlotsUnsupportedError
from intarsia.shards import files
from intarsia.shards.array import ShardedArray
from intarsia.shards.codec import SlottedSharding

if TYPE_CHECKING:
    from intarsia.shards.array import AnyArray

__all__ = ["flush_slots", "slotted"]


def slotted(array: AnyArray, *, safe_readers: bool | None = None, fsync: bool = False) -> AnyArray:
    """The same array, but each inner chunk is written by itself, to its own slot of the shard file.

    Any number of processes and threads may write different chunks of one shard at once, and rewriting a chunk
    costs no more than that chunk. The metadata stays as it is, and what is written is an ordinary shard for
    every reader. The array must be sharded, in a local directory, and its inner codecs must bound the size of
    an encoded chunk: none that compresses, or a `conditional` codec with a decision that never inflates.

    `safe_readers=True` gives a chunk two slots, so that other programs can read it at any time, for twice the
    room once it has been rewritten; False gives it one, and a reader that meets a rewrite fails by the
    chunk's checksum. By default, chunks with a checksum have one slot, and chunks without have two.
    `fsync=True` returns from a write only when it would survive a power loss.

    >>> import tempfile, zarr
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=(64, 64), chunks=(8, 8), shards=(64, 64), dtype="f4",
    ...                       compressors=None)
    >>> slots = slotted(z)
    >>> slots[8:16, 0:8] = 1  # 256 bytes and an entry of the index, not the whole shard
    >>> float(z[:].sum())
    64.0
    >>> directory.cleanup()
    """
    sharded = ShardedArray(array)
    _ = sharded.directory  # raises unless it is a local one
    codec = SlottedSharding.of(sharded.codec, safe_readers=safe_readers, fsync=fsync)
    codec.slot_form(sharded.shard_spec)  # raises unless chunks have a largest size
    metadata = replace(sharded.metadata, codecs=(codec,))
    made = zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config=array.config)
    if not isinstance(getattr(made.codec_pipeline, "array_bytes_codec", None), SlottedSharding):
        raise SlotsUnsupportedError(
            f"the codec pipeline {type(made.codec_pipeline).__name__} brings its own sharding and would "
            "replace whole shards. Call intarsia.slotted under one of zarr's: zarr.config.set("
            "{'codec_pipeline.path': 'zarr.core.codec_pipeline.BatchedCodecPipeline'}); other pipelines may "
            "read what it writes"
        )
    return zarr.Array(made)


def flush_slots(array: AnyArray) -> int:
    """Make everything written so far survive a power loss; returns how many shards were flushed.

    >>> import tempfile, zarr
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> slotted(z)[:8] = 1
    >>> flush_slots(z)
    1
    >>> directory.cleanup()
    """
    flushed = 0
    sharded = ShardedArray(array)
    directories = {sharded.directory}
    for _, path in sharded.files():
        with files.opened(path, write=False) as fd:
            if fd is not None:
                os.fsync(fd)
                flushed += 1
                below = path.parents[: len(path.relative_to(sharded.directory).parents) - 1]
                directories.update(below)
    for directory in sorted(directories):
        files.sync_directory(directory)
    return flushed
