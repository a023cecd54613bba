"""`slotted`: an array whose chunk writes go to slots; `flush_slots`, which makes them durable; `reslot`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import zarr

from intarsia.errors import SlotsUnsupportedError
from intarsia.progress import Progress, silent
from intarsia.shards import files
from intarsia.shards.array import ShardedArray
from intarsia.shards.codec import OURS, SlottedSharding
from intarsia.shards.swap import held_shard, reslot_file

if TYPE_CHECKING:
    from intarsia.shards.array import AnyArray


def slotted(
    array: AnyArray,
    *,
    safe_readers: bool = True,
    fsync: bool = False,
    any_filesystem: bool = False,
) -> AnyArray:
    """The same array, but each inner chunk is written by itself, to its own slot of the shard file.

    Any number of processes and threads may write different chunks of one shard at once, and rewriting a chunk
    costs no more than that chunk. The metadata stays as it is, and what is written is an ordinary shard for
    every reader. The array must be sharded, in a local directory, and its inner codecs must bound the size of
    an encoded chunk: none that compresses, or a `conditional` codec, whatever decides: a chunk that would not
    fit its slot is stored raw. Inner chunks may be shards themselves, or nullable data, and `transpose` may
    stand before the shard. Of a nullable array, give `zarr_array`.

    A chunk has two slots, so that other programs can read it at any time and a writer that dies leaves the
    old value, for twice the room once it has been rewritten. `safe_readers=False` gives it one: then another
    program that meets a rewrite fails, or reads a mixture if it does not check the chunk's checksum (zarrs
    does not), and the value is lost if the writer dies. Shards that have two are used as they are.

    `fsync=True` returns from a write only when it would survive a power loss. `any_filesystem=True` says that
    no other machine writes there, on a file system that is not known to be local.

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
    sharded.check_filesystem(any_filesystem=any_filesystem)
    codec = SlottedSharding.of(
        sharded.codec, safe_readers=safe_readers, fsync=fsync, any_filesystem=any_filesystem
    )
    # Raises unless chunks have a largest size.
    codec.behind(sharded.transposes).slot_settings(sharded.shard_spec)
    metadata = replace(sharded.metadata, codecs=(*sharded.transposes, codec))
    made = zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config=array.config)
    if not isinstance(getattr(made.codec_pipeline, "array_bytes_codec", None), SlottedSharding):
        raise SlotsUnsupportedError(
            f"the codec pipeline {type(made.codec_pipeline).__name__} brings its own sharding and would "
            "replace whole shards. Call intarsia.slotted under one of zarr's: zarr.config.set("
            "{'codec_pipeline.path': 'zarr.core.codec_pipeline.BatchedCodecPipeline'}); other pipelines may "
            "read what it writes"
        )
    if not made.codec_pipeline.supports_partial_encode:
        raise SlotsUnsupportedError(
            f"the codec pipeline {type(made.codec_pipeline).__name__} writes a shard behind a transpose as a "
            f"whole. Call intarsia.slotted under one of ours: {OURS}"
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
    sharded = ShardedArray(array)
    names = {sharded.directory / "zarr.json"}
    flushed = 0
    for _, path in sharded.files():
        with files.opened(path, write=False) as fd:
            if fd is not None:
                os.fsync(fd)
                flushed += 1
                names.add(path)
    done: dict[Path, tuple[int, int]] = {}
    for path in {path.parent: path for path in names}.values():
        files.sync_names(path, done)
    return flushed


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
