"""An array seen as shard files, and `slotted`, which writes chunks to slots, `flush_slots` and `reslot`."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec

from intarsia import _compat
from intarsia.codecs.codec_path import stored_spec
from intarsia.codecs.context import Grid, Index, Locate, inner_position
from intarsia.codecs.stored_chunks import stored_indices
from intarsia.errors import NoSlotBoundError, ReadOnlyError, SlotsUnsupportedError
from intarsia.progress import Progress, silent
from intarsia.shards import files
from intarsia.shards.inner_codecs import inner_chunk_bound
from intarsia.shards.locks import local_root, refuse_network
from intarsia.shards.replace_shard import lock_shard, reslot_file
from intarsia.shards.sharding import SlottedSharding
from intarsia.shards.slots import SlotIndex, SlotLayout

type AnyArray = zarr.Array[Any]


def slotted(
    array: AnyArray, *, safe_readers: bool = True, fsync: bool = False, any_filesystem: bool = False
) -> AnyArray:
    """The same `array`, but each inner chunk is written by itself, to its own slot in the shard file.

    Any number of processes and threads may write different chunks of one shard at once, and rewriting a chunk
    costs no more than that chunk. The metadata stays as it is, and every reader sees an ordinary shard. The
    array must be sharded and in a local directory, and its inner codecs must bound the size of an encoded
    chunk: use no compressor, or put it into a `conditional` codec with any decision, because a chunk that
    would not fit its slot is then stored raw. Inner chunks may be shards themselves, or nullable data; for
    a nullable array, give its `zarr_array`.

    A chunk has two slots, so that other programs can read it at any time and a writer that dies leaves the
    old value. Once rewritten, it takes twice the space. `safe_readers=False` gives it one slot: then another
    program that reads during a rewrite fails, or reads a mixture if it does not check the chunk's checksum
    (zarrs does not), and the value is lost if the writer dies. Shards that already have two slots are used
    as they are.

    With `fsync=True`, a write returns only once it would survive a power loss. On a file system that is not
    known to be local, pass `any_filesystem=True` if no other machine writes there.

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
    codec.slot_settings(sharded.shard_spec)  # raises unless the size of encoded chunks is bounded
    metadata = replace(sharded.metadata, codecs=(codec,))
    result = zarr.AsyncArray(metadata=metadata, store_path=array.store_path, config=array.config)
    pipeline = result.codec_pipeline
    if not isinstance(getattr(pipeline, "array_bytes_codec", None), SlottedSharding):
        raise SlotsUnsupportedError(
            f"the codec pipeline {type(pipeline).__name__} writes whole shards, and can read slotted ones."
            "\n  Set zarr.config.set({'codec_pipeline.path': 'intarsia.codecs.context.BatchedPipeline'})"
        )
    return zarr.Array(result)


def flush_slots(array: AnyArray) -> int:
    """Make everything written so far survive a power loss, and return how many shards were flushed.

    Args:
        array: The sharded array, in a local store.

    >>> import tempfile, zarr
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> slotted(z)[:8] = 1
    >>> flush_slots(z)
    1
    >>> directory.cleanup()
    """
    sharded = ShardedArray(array)
    flushed = []
    for _, path in sharded.files():
        with files.open_existing(path, write=False) as fd:
            if fd is not None:
                os.fsync(fd)
                flushed.append(path)
    done: dict[Path, tuple[int, int]] = {}
    for path in {path.parent: path for path in [sharded.directory / "zarr.json", *flushed]}.values():
        files.sync_names(path, done)
    return len(flushed)


def reslot(
    array: AnyArray,
    *,
    safe_readers: bool | None = None,
    any_filesystem: bool = False,
    progress: Progress = silent,
) -> int:
    """Give every shard of `array` slots, keeping its values, and return how many shards lacked them.

    This is needed after a program has written without `intarsia.shards.slotted`. No program may do so while
    it runs;
    slotted readers and writers may be at work. `safe_readers` and `any_filesystem` are as in
    `intarsia.shards.slotted`, and are taken from `array` if it is slotted.

    Args:
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`. Steps are shards.

    >>> import tempfile, zarr, intarsia
    >>> directory = tempfile.TemporaryDirectory()
    >>> z = zarr.create_array(directory.name, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> z[:] = 1  # plain zarr: a shard without slots
    >>> intarsia.shards.reslot(z)
    1
    >>> intarsia.shards.slotted(z)[8:16] = 2
    >>> directory.cleanup()
    """
    if array.read_only:
        raise ReadOnlyError("cannot reslot: the array is open for reading only; open it with mode='r+'")
    sharded = ShardedArray(array)
    codec = sharded.codec
    if safe_readers is None:
        safe_readers = not isinstance(codec, SlottedSharding) or codec.safe_readers
    sharded.check_filesystem(any_filesystem=any_filesystem)
    settings = SlottedSharding.of(codec, safe_readers=safe_readers).slot_settings(sharded.shard_spec)
    shards = [path for _, path in sharded.files()]
    changed = 0
    for done, path in enumerate(shards):
        progress(done, len(shards))
        with lock_shard(path, settings.index, settings.layouts) as shard:
            if shard is not None and settings.layout_of(shard.nbytes, shard.table) is None:
                reslot_file(shard, settings.new)
                changed += 1
    progress(len(shards), len(shards))
    return changed


@dataclass(frozen=True)
class ShardedArray:
    """A `zarr.Array` seen as shard files; raises `SlotsUnsupportedError` if it has none.

    >>> z = zarr.create_array({}, shape=64, chunks=8, shards=32, dtype="u2")
    >>> ShardedArray(z).index.grid
    (4,)
    """

    array: AnyArray
    """The array itself."""

    def __post_init__(self) -> None:
        if not isinstance(self.array, zarr.Array):
            raise SlotsUnsupportedError(
                f"slots belong to a sharded zarr.Array, but this is a {type(self.array).__name__}: give "
                "a member of a logical array, arr.members[name], and of a nullable one arr.zarr_array"
            )
        metadata: Any = self.array.metadata
        codecs: tuple[Codec, ...] = getattr(metadata, "codecs", ())  # none in Zarr format 2
        if not any(isinstance(codec, ShardingCodec) for codec in codecs):
            raise SlotsUnsupportedError(
                f"the array {self.array.path!r} has no shards.\n"
                "  They are chosen when an array is created: zarr.create_array(…, shards=…)",
                command="To copy it into shards: intarsia convert STORE NEW_STORE --shards …",
            )
        if len(codecs) > 1:
            raise SlotsUnsupportedError(
                f"the array {self.array.path!r} has codecs around its shards. Slots need all of them, also "
                "'transpose', inside the shards"
            )
        if not _compat.is_regular(metadata.chunk_grid):
            raise SlotsUnsupportedError(
                f"the shards of the array {self.array.path!r} differ in shape; slots need a regular grid"
            )

    @cached_property
    def metadata(self) -> _compat.ArrayV3Metadata:
        """The array's metadata."""
        assert isinstance(self.array.metadata, _compat.ArrayV3Metadata)
        return self.array.metadata

    @cached_property
    def codec(self) -> ShardingCodec:
        """The array's sharding, as in zarr.json."""
        codec = self.metadata.codecs[0]
        assert isinstance(codec, ShardingCodec)
        return codec

    @cached_property
    def shard_spec(self) -> _compat.ArraySpec:
        """What zarr tells codecs about one shard of this array."""
        assert _compat.is_regular(self.metadata.chunk_grid)
        return stored_spec(self.array, self.metadata.chunk_grid.chunk_shape)

    @cached_property
    def chunk_spec(self) -> _compat.ArraySpec:
        """What zarr tells codecs about one inner chunk of this array."""
        return replace(self.shard_spec, shape=self.codec.chunk_shape)

    @cached_property
    def index(self) -> SlotIndex:
        """How the shards store their index."""
        return SlotIndex.of(self.codec, self.shard_spec.shape)

    @cached_property
    def layouts(self) -> tuple[SlotLayout, ...]:
        """The possible layouts of a shard with slots; none if the size of chunks is not bounded."""
        try:
            bound = inner_chunk_bound(self.codec.codecs, self.chunk_spec)
        except NoSlotBoundError:
            return ()
        return SlotLayout(self.index, bound, 1), SlotLayout(self.index, bound, 2)

    @cached_property
    def transform(self) -> _compat.ChunkTransform:
        """zarr's own coder of single inner chunks: `encode_chunk` and `decode_chunk`."""
        return _compat.ChunkTransform(codecs=_compat.evolve_codecs(self.codec.codecs, self.chunk_spec))

    @cached_property
    def directory(self) -> Path:
        """The array's local directory; raises `SlotsUnsupportedError` if the store has none."""
        return local_root(self.array.store) / self.array.path

    def check_filesystem(self, *, any_filesystem: bool) -> None:
        """Raise `SlotsUnsupportedError` if other machines may write here, unless `any_filesystem`."""
        if not (any_filesystem or getattr(self.codec, "any_filesystem", False)):
            refuse_network(self.directory)

    def files(self) -> Iterator[tuple[tuple[int, ...], Path]]:
        """The shards that exist: their place in the grid of shards, and their file."""
        directory = self.directory  # raises unless there are files
        for coordinates in stored_indices(self.array):
            yield coordinates, directory / self.metadata.encode_chunk_key(coordinates)

    def locate(self, shard: str | Index, number: int) -> Locate:
        """Says where in the whole array an inner chunk is, given its shard's path or index and its number."""
        outer = partial(Grid.of(self.metadata).position_of, shard, self.shard_spec, ())
        place = self.index.coordinates(number)
        return partial(inner_position, outer, place, self.chunk_spec, self.codec.codecs)
