"""`sharding_indexed` that writes chunks into slots at run time; on disk it is plain Zarr sharding."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.storage import StorePath

from intarsia import _compat
from intarsia.codecs.base import in_own_thread
from intarsia.codecs.context import UNKNOWN, ChunkPosition, at_position, current_position, inner_position
from intarsia.codecs.decisions import NeverApply
from intarsia.codecs.runtime_options import options_in, with_options
from intarsia.errors import ChunkDecodeError, ReadOnlyError, SlotsUnsupportedError
from intarsia.shards.chunks import SlotWrite, in_batches, read_chunks, write_slots
from intarsia.shards.inner_codecs import inner_chunk_bound
from intarsia.shards.locks import local_root
from intarsia.shards.replace_shard import restore_slots
from intarsia.shards.slots import SlotIndex, SlotSettings


@dataclass(frozen=True, init=False)
class SlottedSharding(ShardingCodec):
    """zarr's sharding codec, but every inner chunk is written by itself, to a fixed slot in the shard file.

    It has no name of its own: zarr.json says `sharding_indexed`, and every reader of that reads the shards.
    `intarsia.shards.slotted` puts it into an existing array.

    Args:
        chunk_shape: The shape of the inner chunks.
        sharding: The other arguments of zarr's sharding codec. The encoded size of chunks must be bounded.

    >>> import tempfile, zarr
    >>> codec = SlottedSharding(chunk_shape=(8,), codecs=[{"name": "bytes"}, {"name": "crc32c"}])
    >>> codec.to_dict()["name"]
    'sharding_indexed'
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     z = zarr.create_array(directory, shape=64, chunks=64, dtype="u1", serializer=codec,
    ...                           compressors=None)
    ...     z[8:16] = 1  # writes 12 bytes, and an entry of the index
    ...     int(z[:].sum())
    8
    """

    waits_for_locks = True  # our pipelines look at it: see `intarsia.codecs.context`

    safe_readers: bool = True
    """Whether a chunk stays readable while it is rewritten: two slots per chunk."""

    fsync: bool = False
    """Whether a write returns only once it would survive a power loss."""

    any_filesystem: bool = False
    """Whether the caller vouches that no other machine writes to the file system."""

    def __init__(
        self,
        *,
        chunk_shape: tuple[int, ...],
        safe_readers: bool = True,
        fsync: bool = False,
        any_filesystem: bool = False,
        **sharding: Any,
    ) -> None:
        _compat.check_sharding()
        super().__init__(chunk_shape=chunk_shape, **sharding)
        object.__setattr__(self, "safe_readers", safe_readers)
        object.__setattr__(self, "fsync", fsync)
        object.__setattr__(self, "any_filesystem", any_filesystem)
        # As in zarr: caches of this instance, for each kind of shard.
        object.__setattr__(self, "slot_settings", lru_cache()(self.slot_settings))
        object.__setattr__(self, "coder", lru_cache()(self.coder))

    @classmethod
    def of(cls, codec: ShardingCodec, **settings: Any) -> Self:
        """The same sharding, with slots; the settings are those of `__init__`."""
        same = {field.name: getattr(codec, field.name) for field in fields(ShardingCodec)}
        return cls(**same, **settings)

    def __getstate__(self) -> dict[str, Any]:
        # zarr's own goes through JSON, which loses run-time parts of the inner codecs.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # frozen, so everything is set there

    def slot_settings(self, shard_spec: ArraySpec) -> SlotSettings:
        """The settings for an array's shards; raises `NoSlotBoundError` if chunk sizes are not bounded."""
        if not _compat.codec_supports_sync(self):
            raise SlotsUnsupportedError(
                "an inner codec of these shards works only inside an event loop, where none waits for locks"
            )
        index = SlotIndex.of(self, shard_spec.shape)
        chunk_spec = replace(shard_spec, shape=self.chunk_shape)
        bound = inner_chunk_bound(self.codecs, chunk_spec)
        return SlotSettings(index, bound, safe_readers=self.safe_readers, fsync=self.fsync)

    def coder(self, chunk_spec: ArraySpec) -> _compat.ChunkTransform:
        """What encodes and decodes single inner chunks."""
        return _compat.ChunkTransform(codecs=_compat.evolve_codecs(self.codecs, chunk_spec))

    def _encode_partial_sync(
        self, byte_setter: Any, value: NDBuffer, selection: Any, shard_spec: ArraySpec
    ) -> None:
        shard = _InnerChunks.of(self, _file_of(byte_setter, write=True), shard_spec)
        settings, spec = shard.settings, shard.spec
        projections, value = _compat.inner_projections(self, selection, shard_spec, value)

        def slot_write(projection: Any) -> SlotWrite:
            coordinates, chunk_selection, out_selection, complete = projection

            def encode(stored: bytes | None) -> memoryview | None:
                part = value if value.shape == () else value[out_selection]
                with shard.at(coordinates):
                    if complete and part.shape == spec.shape and value.shape != ():
                        chunk = part
                    else:
                        chunk = shard.empty() if stored is None else shard.decode(coordinates, stored).copy()
                        chunk[chunk_selection] = part
                    encoded = shard.encode(chunk)
                return None if encoded is None else np.ascontiguousarray(encoded.as_numpy_array()).data

            return SlotWrite(settings.index.number(coordinates), encode, partial=not complete)

        writes = {write.number: write for write in map(slot_write, projections)}
        for batch in in_batches(writes, settings.new.slot):
            write_slots(shard.path, settings, [writes[number] for number in batch], restore_slots)

    async def _encode_partial_single(
        self, byte_setter: Any, shard_array: NDBuffer, selection: Any, shard_spec: ArraySpec
    ) -> None:
        # This may wait for locks. It must never do so on the event loop, which all of zarr shares, nor in
        # zarr's threads, which a decision that reads or writes arrays itself may need.
        await in_own_thread(self._encode_partial_sync, byte_setter, shard_array, selection, shard_spec)

    def _decode_partial_sync(
        self, byte_getter: Any, selection: Any, shard_spec: ArraySpec
    ) -> NDBuffer | None:
        shard = _InnerChunks.of(self, _file_of(byte_getter), shard_spec)
        settings = shard.settings
        grid = _compat.ChunkGrid.from_sizes(shard_spec.shape, self.chunk_shape)
        indexer = _compat.get_indexer(selection, shape=shard_spec.shape, chunk_grid=grid)
        projections = {
            settings.index.number(coordinates): (coordinates, chunk_selection, out_selection)
            for coordinates, chunk_selection, out_selection, _ in indexer
        }
        out = shard_spec.prototype.nd_buffer.empty(
            shape=indexer.shape, dtype=shard_spec.dtype.to_native_dtype(), order=shard_spec.order
        )
        missing = True
        for batch in in_batches(projections, settings.new.slot):
            stored = read_chunks(shard.path, settings.index, batch, settings.layouts)
            missing &= stored is None
            for number in batch:
                coordinates, chunk_selection, out_selection = projections[number]
                data = None if stored is None else stored.get(number)
                if data is None:
                    out[out_selection] = shard_spec.fill_value
                    continue
                with shard.at(coordinates):
                    out[out_selection] = shard.decode(coordinates, data)[chunk_selection]
        if missing:
            return None
        # A coordinate selection is flat inside; the caller wants it in the requested shape.
        return out.reshape(indexer.sel_shape) if hasattr(indexer, "sel_shape") else out

    async def _decode_partial_single(
        self, byte_getter: Any, selection: Any, shard_spec: ArraySpec
    ) -> NDBuffer | None:
        return await in_own_thread(self._decode_partial_sync, byte_getter, selection, shard_spec)

    def _encode_sync(self, _shard_array: NDBuffer, _shard_spec: ArraySpec) -> Buffer | None:
        raise SlotsUnsupportedError(
            "a slotted shard is never written as a whole; SlottedSharding must be its array's only codec"
        )

    async def _encode_single(self, shard_array: NDBuffer, shard_spec: ArraySpec) -> Buffer | None:
        return self._encode_sync(shard_array, shard_spec)


@dataclass(frozen=True)
class _InnerChunks:
    """The inner chunks of one shard file, for one read or write."""

    path: Path
    settings: SlotSettings
    spec: ArraySpec
    coder: _compat.ChunkTransform
    locate: Callable[..., ChunkPosition]
    """Says where the chunk at some coordinates is, to codecs that ask."""

    @classmethod
    def of(cls, codec: SlottedSharding, path: Path, shard_spec: ArraySpec) -> Self:
        """Those of the shard that is being worked on."""
        spec = replace(shard_spec, shape=codec.chunk_shape)
        # zarr does not say which chunk of a nested shard it works on; that must not pass for the whole shard.
        is_nested = any(isinstance(inner, ShardingCodec) for inner in codec.codecs)
        shard = UNKNOWN if is_nested else current_position.get()
        locate = partial(inner_position, shard, spec=spec, codecs=codec.codecs)
        return cls(path, codec.slot_settings(shard_spec), spec, codec.coder(spec), locate)

    def at(self, coordinates: tuple[int, ...]) -> AbstractContextManager[None]:
        """Work on the chunk at these coordinates."""
        return at_position(partial(self.locate, coordinates))

    def empty(self) -> NDBuffer:
        """A chunk of the fill value."""
        spec = self.spec
        return spec.prototype.nd_buffer.create(
            shape=spec.shape,
            dtype=spec.dtype.to_native_dtype(),
            order=spec.order,
            fill_value=spec.fill_value,
        )

    def decode(self, coordinates: tuple[int, ...], stored: bytes) -> NDBuffer:
        """The values of a chunk; if it is damaged, the error names the chunk and the shard."""
        try:
            return self.coder.decode_chunk(self.spec.prototype.buffer.from_bytes(stored), self.spec)
        except Exception as error:
            raise ChunkDecodeError(
                f"inner chunk {coordinates} of the shard {self.path} is damaged: {error}"
            ) from error

    def encode(self, chunk: NDBuffer) -> Buffer | None:
        """The bytes of a chunk, which fit a slot: raw if a decision makes them too many."""
        if _compat.chunk_is_empty(chunk, self.spec):
            return None
        encoded = self.coder.encode_chunk(chunk, self.spec)
        bound = self.settings.bound
        if encoded is None or len(encoded) <= bound.nbytes or bound.fixed:
            return encoded
        # A decision of the array comes before those of its codecs, at any depth.
        options = replace(options_in(self.spec.config), decision=NeverApply())
        raw_spec = replace(self.spec, config=with_options(self.spec.config, options))
        return self.coder.encode_chunk(chunk, raw_spec)


def _file_of(store_path: Any, *, write: bool = False) -> Path:
    if not isinstance(store_path, StorePath):
        raise SlotsUnsupportedError("a slotted shard cannot be inside another shard: it must be a file")
    if write and store_path.store.read_only:
        raise ReadOnlyError(f"{store_path} cannot be written: the store was opened for reading only")
    return local_root(store_path.store) / store_path.path
