"""The shards of one array in a local store: their files, their index, their slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import (
    ArraySpec,
    ArrayV3Metadata,
    ChunkTransform,
    RegularChunkGridMetadata,
    evolve_codecs,
)
from intarsia.codecs.runtime import config_of
from intarsia.codecs.stored_chunks import stored_indices
from intarsia.errors import NoSlotBoundError, SlotsUnsupportedError
from intarsia.shards.filesystem import local_root, refuse_network
from intarsia.shards.inner_codecs import encoded_bound, has_checksum
from intarsia.shards.slots import SlotIndex, SlotLayout, from_the_array

type AnyArray = zarr.Array[Any]


@dataclass(frozen=True)
class ShardedArray:
    """A `zarr.Array` seen as files that are shards; raises `SlotsUnsupportedError` if it is none.

    >>> z = zarr.create_array({}, shape=64, chunks=8, shards=32, dtype="u2")
    >>> ShardedArray(z).grid
    (4,)
    """

    array: AnyArray
    """The array itself."""

    def __post_init__(self) -> None:
        if not isinstance(self.array, zarr.Array):
            raise SlotsUnsupportedError(
                f"slots belong to a sharded zarr.Array, but this is a {type(self.array).__name__}; of a "
                "logical array, take a member: arr.members[name]; of a nullable one, arr.zarr_array"
            )
        metadata = self.array.metadata
        if not isinstance(metadata, ArrayV3Metadata) or not _has_shards(metadata.codecs):
            raise SlotsUnsupportedError(
                f"the array {self.array.path!r} has no shards, or codecs around them; slots are places "
                "inside a shard. Create it with shards=..., and with filters and compressors inside only; "
                "'transpose' may stand before the shard"
            )
        if not isinstance(metadata.chunk_grid, RegularChunkGridMetadata):
            raise SlotsUnsupportedError(
                f"the shards of the array {self.array.path!r} differ in shape; slots need a regular grid"
            )

    @cached_property
    def metadata(self) -> ArrayV3Metadata:
        """The array's metadata."""
        assert isinstance(self.array.metadata, ArrayV3Metadata)
        return self.array.metadata

    @cached_property
    def transposes(self) -> tuple[Codec, ...]:
        """The codecs before the shard."""
        return self.metadata.codecs[:-1]

    @cached_property
    def codec(self) -> ShardingCodec:
        """The array's sharding, as zarr.json has it."""
        codec = self.metadata.codecs[-1]
        assert isinstance(codec, ShardingCodec)
        return codec

    @cached_property
    def _seen(self) -> tuple[ShardingCodec, tuple[int, ...] | None]:
        return from_the_array(self.transposes, self.codec)

    @property
    def inner_codecs(self) -> tuple[Codec, ...]:
        """What encodes an inner chunk, in the array's axes."""
        return self._seen[0].codecs

    @cached_property
    def shard_spec(self) -> ArraySpec:
        """What zarr tells codecs about one shard of this array."""
        assert isinstance(self.metadata.chunk_grid, RegularChunkGridMetadata)
        return ArraySpec(
            shape=self.metadata.chunk_grid.chunk_shape,
            dtype=self.metadata.data_type,
            fill_value=self.metadata.fill_value,
            config=config_of(self.array),
            prototype=default_buffer_prototype(),
        )

    @cached_property
    def chunk_spec(self) -> ArraySpec:
        """What zarr tells codecs about one inner chunk of this array."""
        return replace(self.shard_spec, shape=self._seen[0].chunk_shape)

    @cached_property
    def index(self) -> SlotIndex:
        """How the shards store their index."""
        codec, axes = self._seen
        return SlotIndex.in_array(codec, self.shard_spec.shape, axes)

    @cached_property
    def layouts(self) -> tuple[SlotLayout, ...]:
        """How a shard with slots would be laid out; nothing if chunks have no largest size."""
        try:
            bound = encoded_bound(self.inner_codecs, self.chunk_spec)
        except NoSlotBoundError:
            return ()
        return SlotLayout(self.index, bound, 1), SlotLayout(self.index, bound, 2)

    @cached_property
    def transform(self) -> ChunkTransform:
        """zarr's own coder of single inner chunks: `encode_chunk` and `decode_chunk`."""
        return ChunkTransform(codecs=evolve_codecs(self.inner_codecs, self.chunk_spec))

    @property
    def grid(self) -> tuple[int, ...]:
        """How many inner chunks a shard has along each axis."""
        shapes = zip(self.shard_spec.shape, self.chunk_spec.shape, strict=True)
        return tuple(shard // chunk for shard, chunk in shapes)

    @cached_property
    def checksum(self) -> bool:
        """Whether damage inside a chunk shows when it is read."""
        return has_checksum(self.inner_codecs)

    @cached_property
    def directory(self) -> Path:
        """The array's directory, in files; `SlotsUnsupportedError` if the store has none."""
        return local_root(self.array.store) / self.array.path

    def check_filesystem(self, *, any_filesystem: bool) -> None:
        """Raise `SlotsUnsupportedError` if other machines may write to the directory, unless that is fine."""
        if not (any_filesystem or getattr(self.codec, "any_filesystem", False)):
            refuse_network(self.directory)

    def files(self) -> Iterator[tuple[tuple[int, ...], Path]]:
        """The shards that exist: where in the grid of shards, and their file."""
        directory = self.directory  # raises unless there are files
        for coordinates in stored_indices(self.array):
            yield coordinates, directory / self.metadata.encode_chunk_key(coordinates)

    def chunk_index(self, shard: tuple[int, ...], number: int) -> tuple[int, ...]:
        """The index over the whole array of an inner chunk, given by its number in its shard."""
        inner = self.index.coordinates(number)
        return tuple(s * n + i for s, n, i in zip(shard, self.grid, inner, strict=True))


def _has_shards(codecs: tuple[Codec, ...]) -> bool:
    *before, last = codecs
    return isinstance(last, ShardingCodec) and all(isinstance(codec, TransposeCodec) for codec in before)
