"""A shard taken apart into its encoded chunks, and put together again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import UInt64

from intarsia._compat import ArrayConfig, ArraySpec, ChunkTransform, evolve_codecs
from intarsia.codecs.current_chunk import named_chunk
from intarsia.errors import ChunkDecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zarr.codecs import ShardingCodec
    from zarr.core.buffer import Buffer

__all__ = ["ShardLayout"]

type Index = np.ndarray[Any, np.dtype[np.uint64]]

EMPTY = 2**64 - 1
"""Offset and length of a chunk that is not there."""

ENTRY_BYTES = 16
"""An offset and a length, 8 bytes each."""


@dataclass(frozen=True)
class ShardLayout:
    """How a shard of one shape is laid out; shards as such are zarr's `sharding_indexed`.

    >>> from zarr.codecs import ShardingCodec
    >>> layout = ShardLayout(ShardingCodec(chunk_shape=(2, 2)), (4, 6))
    >>> layout.grid, layout.index_bytes
    ((2, 3), 100)
    """

    codec: ShardingCodec
    """The codec that says how shards are divided."""

    shard_shape: tuple[int, ...]
    """The shape of a shard, as the codec sees it."""

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks lie in a shard, along each axis."""
        return tuple(n // m for n, m in zip(self.shard_shape, self.codec.chunk_shape, strict=True))

    @property
    def index_first(self) -> bool:
        """Whether the index lies at the start of the shard; otherwise it is at the end."""
        return self.codec.index_location == "start"

    @cached_property
    def index_bytes(self) -> int:
        """The size of the encoded index."""
        return int(self._transform.compute_encoded_size(ENTRY_BYTES * prod(self.grid), self._spec))

    @cached_property
    def _spec(self) -> ArraySpec:
        config = ArrayConfig.from_dict({"order": "C", "write_empty_chunks": True})
        fill_value = np.uint64(EMPTY)
        return ArraySpec(
            (*self.grid, 2), UInt64(endianness="little"), fill_value, config, default_buffer_prototype()
        )

    @cached_property
    def _transform(self) -> ChunkTransform:
        return ChunkTransform(codecs=evolve_codecs(self.codec.index_codecs, self._spec))

    def decode_index(self, encoded: Buffer) -> Index:
        """Offset and length of every chunk of the shard, from the encoded index."""
        if len(encoded) != self.index_bytes:
            raise ChunkDecodeError(
                f"codec 'sharding_indexed': {len(encoded)} bytes{named_chunk()} are no index of {self.grid} "
                f"chunks, which takes {self.index_bytes}: the shard is truncated"
            )
        try:
            index: Index = self._transform.decode_chunk(encoded, self._spec).as_numpy_array()
        except ValueError as error:
            raise ChunkDecodeError(
                f"codec 'sharding_indexed': the index{named_chunk()} is damaged: {error}"
            ) from error
        return index

    def extents(self, index: Index) -> dict[tuple[int, ...], tuple[int, int]]:
        """Where in the shard each chunk that is there begins and ends, in the order in which they lie."""
        found = {
            position: (int(index[position][0]), int(index[position][0]) + int(index[position][1]))
            for position in np.ndindex(self.grid)
            if int(index[position][0]) != EMPTY
        }
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def split(self, shard: Buffer) -> dict[tuple[int, ...], Buffer]:
        """The encoded chunks of a shard, in the order in which they lie."""
        size = self.index_bytes
        encoded = shard[:size] if self.index_first else shard[max(0, len(shard) - size) :]
        extents = self.extents(self.decode_index(encoded))
        for position, (start, stop) in extents.items():
            if stop > len(shard):
                raise ChunkDecodeError(
                    f"codec 'sharding_indexed': the index{named_chunk()} puts inner chunk {position} at "
                    f"bytes {start} to {stop}, but there are only {len(shard)}: the shard is damaged"
                )
        return {position: shard[start:stop] for position, (start, stop) in extents.items()}

    def join(self, chunks: Mapping[tuple[int, ...], Buffer]) -> Buffer:
        """A shard of these encoded chunks, without gaps, in the order given."""
        index = np.full((*self.grid, 2), EMPTY, dtype="<u8")
        start = self.index_bytes if self.index_first else 0
        for position, chunk in chunks.items():
            index[position] = (start, len(chunk))
            start += len(chunk)
        prototype = default_buffer_prototype()
        encoded = self._transform.encode_chunk(prototype.nd_buffer.from_numpy_array(index), self._spec)
        assert encoded is not None  # the configuration says that empty chunks are written
        parts = [chunk.as_numpy_array() for chunk in chunks.values()]
        parts.insert(0 if self.index_first else len(parts), encoded.as_numpy_array())
        return prototype.buffer.from_array_like(np.concatenate(parts))
