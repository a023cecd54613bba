"""A member as the read engine sees it: its grid, its codecs, where its chunks are stored."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from zarr.codecs import ShardingCodec
from zarr.core.buffer import cpu, default_buffer_prototype

from intarsia._compat import (
    ArraySpec,
    ArrayV3Metadata,
    ChunkTransform,
    RegularChunkGridMetadata,
    evolve_codecs,
)
from intarsia.array.box import chunk_grid
from intarsia.array.decode import Decoder
from intarsia.array.member import grain
from intarsia.array.memory import is_nullable, values_dtype
from intarsia.codecs.runtime import NO_OPTIONS, config_of

if TYPE_CHECKING:
    import zarr
    from zarr.abc.codec import Codec

    from intarsia.array.fetch.references import References
    from intarsia.array.manifest import Manifest
    from intarsia.array.table import Ints
    from intarsia.codecs.runtime import Options

__all__ = ["Encoder", "Shards", "Source"]

FIXED_SIZE_KINDS = "biufcmMSUV"
"""Kinds of NumPy data types whose values lie in the array itself, so that threads may fill one together."""


MOST_CHUNKS = 1 << 62
"""Chunks are numbered in C order with 64 bits."""


class Shards:
    """How inner chunks lie in the shards of a member."""

    def __init__(self, codec: ShardingCodec, per_shard: tuple[int, ...]) -> None:
        self.codec = codec
        self.per_shard = per_shard
        """Inner chunks of a shard, along each axis."""
        self.indexes: dict[int, np.ndarray[Any, Any]] = {}
        """Offset and length of every inner chunk, by shard; kept for read-only snapshots alone."""


class Encoder(NamedTuple):
    """The codec chain of a member, for writing."""

    chain: ChunkTransform
    spec: ArraySpec


class Source:
    """One member, prepared once and read many times."""

    def __init__(self, name: str, array: zarr.Array[Any]) -> None:
        self.name = name
        self.array = array
        self.metadata: Any = array.metadata
        self.path = array.path
        self.fill_value = array.fill_value
        self.chunk_shape: tuple[int, ...] = ()
        self.grid: tuple[int, ...] = ()
        self.blob_grid: tuple[int, ...] = ()
        self.shards: Shards | None = None
        self.decoder: Decoder | None = None
        self.encoder: Encoder | None = None
        self.references: References | None = None
        self.checked: tuple[Manifest | None, set[int]] = None, set()
        """A manifest, and those of its rows that were found to fit this member."""
        self.is_plain = False
        """Whether its values lie in plain NumPy memory, so that they may be read right into an output."""
        self._for_writing: tuple[Options, Source] = NO_OPTIONS, self
        self.obstacle = self._prepare()
        """Why the engine leaves this member to zarr; empty if it does not."""

    def with_options(self, options: Options) -> Source:
        """The member, to be written with run-time options; the last one asked for is kept."""
        known, source = self._for_writing
        if known != options:
            source = Source(self.name, options.on(self.array)) if options else self
            self._for_writing = options, source
        return source

    def stored_as(self, index: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """The position of the stored object that holds a chunk: of the chunk itself, or of its shard."""
        if index is None or self.shards is None:
            return index
        return tuple(i // n for i, n in zip(index, self.shards.per_shard, strict=True))

    @property
    def is_current(self) -> bool:
        """Whether the array was not resized since."""
        return self.array.metadata is self.metadata

    @property
    def stored_grain(self) -> tuple[int, ...] | None:
        """Shape of what is stored as one object; None if that differs from one to the next."""
        try:
            return grain(self.array)
        except NotImplementedError:
            return None

    @property
    def blobs(self) -> int:
        """Number of chunks, or shards, that may be stored."""
        return prod(self.blob_grid)

    def _prepare(self) -> str:
        metadata, prototype = self.metadata, default_buffer_prototype()
        if not isinstance(metadata, ArrayV3Metadata):
            return "Zarr format 2"
        if not isinstance(metadata.chunk_grid, RegularChunkGridMetadata):
            return "chunks of different shapes"
        nullable = is_nullable(metadata.data_type)
        dtype = values_dtype(metadata.data_type)
        if dtype.kind not in FIXED_SIZE_KINDS or dtype.hasobject or dtype.metadata:
            return f"the data type {metadata.data_type.to_json(zarr_format=3)!r}"
        if not (issubclass(prototype.buffer, cpu.Buffer) and issubclass(prototype.nd_buffer, cpu.NDBuffer)):
            return "buffers that are not in main memory"
        self.is_plain = not nullable
        if not self.array.async_array.config.read_missing_chunks:
            return "read_missing_chunks=False"
        outer_shape = metadata.chunk_grid.chunk_shape
        spec = self._spec(outer_shape)
        codecs = evolve_codecs(metadata.codecs, spec)
        self.chunk_shape = outer_shape
        self.blob_grid = self.grid = chunk_grid(metadata.shape, outer_shape)
        if isinstance(codecs[0], ShardingCodec) and len(codecs) == 1:
            codec = codecs[0]
            self.chunk_shape = tuple(codec.chunk_shape)
            spec = self._spec(self.chunk_shape)
            codecs = evolve_codecs(codec.codecs, spec)
            per_shard = tuple(a // b for a, b in zip(outer_shape, self.chunk_shape, strict=True))
            self.shards = Shards(codec, per_shard)
            self.grid = tuple(a * b for a, b in zip(self.blob_grid, per_shard, strict=True))
        if prod(self.grid) > MOST_CHUNKS:
            return "more chunks than can be numbered"
        return self._choose_decoder(codecs, spec)

    def _choose_decoder(self, codecs: tuple[Codec, ...], spec: ArraySpec) -> str:
        if self.shards is not None:
            try:
                Decoder(tuple(self.shards.codec.index_codecs), spec)
            except TypeError:
                return "an index codec that only works asynchronously"
        try:
            self.decoder = Decoder(codecs, spec)
            self.encoder = Encoder(ChunkTransform(codecs=codecs), spec)
        except TypeError:
            return "a codec that only works asynchronously"
        return ""

    def _spec(self, shape: tuple[int, ...]) -> ArraySpec:
        return ArraySpec(
            shape,
            self.metadata.data_type,
            self.metadata.fill_value,
            config_of(self.array),
            default_buffer_prototype(),
        )

    def index(self, chunk: int) -> tuple[int, ...]:
        """The index in the grid of the chunk at a position in C order."""
        return tuple(int(i) for i in np.unravel_index(chunk, self.grid)) if self.grid else ()

    def keys(self, blob: Ints) -> list[str]:
        """Keys in the store of the chunks, or shards, at these positions in C order."""
        prefix = f"{self.path}/" if self.path else ""
        encode = self.metadata.encode_chunk_key
        if not self.blob_grid:
            return [prefix + encode(())] * blob.size
        indices = zip(*(axis.tolist() for axis in np.unravel_index(blob, self.blob_grid)), strict=True)
        return [prefix + encode(index) for index in indices]
