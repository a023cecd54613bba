"""The index of a shard: where each chunk is in it. It is used to take shards apart and put them together.

The shards themselves are zarr's `sharding_indexed`.
"""

from collections.abc import Buffer as BytesLike
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Self

import google_crc32c
import numpy as np
from zarr.abc.codec import Codec
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkDecodeError, CodecConfigurationError

type Table = np.ndarray[Any, np.dtype[np.uint64]]
"""The offset and length of a shard's inner chunks, one row each."""

ABSENT = np.uint64(2**64 - 1)
"""The offset and length of a chunk that was never written, as the sharding specification says."""

NO_ENTRY = (int(ABSENT), int(ABSENT))
"""The entry of such a chunk."""

LONGEST = 1 << 62
"""No offset and no length of a chunk is larger."""

ENTRY = 16
"""Bytes of one chunk in the index: its offset and its length."""

CHECKSUM = 4
"""Bytes of the index's crc32c."""


def checksum_of(data: BytesLike) -> bytes:
    """The crc32c of some bytes, as it is stored after them.

    >>> checksum_of(b"123456789").hex()
    '839206e3'
    """
    # It takes any array, even a view, but no memoryview.
    return int(google_crc32c.value(np.frombuffer(data, np.uint8))).to_bytes(CHECKSUM, "little")


def points_outside() -> ChunkDecodeError:
    """The error of an index whose numbers are larger than `LONGEST`."""
    return ChunkDecodeError("the index of its shard points outside it")


def is_absent(table: Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which chunks of a table were never written.

    >>> is_absent(np.array([[ABSENT, ABSENT], [0, 8]], dtype="u8")).tolist()
    [True, False]
    """
    return np.asarray((table == ABSENT).all(axis=1), dtype=np.bool_)


@dataclass(frozen=True)
class ShardIndex:
    """How the shards of one array store their index.

    >>> from zarr.codecs import ShardingCodec
    >>> index = ShardIndex.of(ShardingCodec(chunk_shape=(2, 2)), (4, 6))
    >>> index.grid, index.nbytes
    ((2, 3), 100)
    """

    grid: tuple[int, ...]
    """The number of inner chunks along each axis, in the shard's order of axes."""

    first: bool
    """Whether the index is before the chunks; otherwise it is at the end of the shard."""

    codecs: tuple[Codec, ...] = (BytesCodec(endian="little"), Crc32cCodec())
    """The codecs of the index: `bytes`, perhaps with `crc32c` after it."""

    def __post_init__(self) -> None:
        if [type(codec) for codec in self.codecs] not in ([BytesCodec], [BytesCodec, Crc32cCodec]):
            names = [codec.to_dict().get("name") for codec in self.codecs]
            raise CodecConfigurationError(
                f"the index of these shards goes through {names}; only zarr itself can use index_codecs "
                "other than 'bytes', or 'bytes' and 'crc32c'"
            )

    @classmethod
    def of(cls, codec: ShardingCodec, shard_shape: tuple[int, ...]) -> Self:
        """The index that a sharding codec asks for; the shape is that of a shard, as the codec sees it."""
        grid = tuple(n // m for n, m in zip(shard_shape, codec.chunk_shape, strict=True))
        return cls(grid, codec.index_location == "start", tuple(codec.index_codecs))

    @cached_property
    def chunks(self) -> int:
        """The number of inner chunks in a shard."""
        return prod(self.grid)

    @cached_property
    def checksum(self) -> bool:
        """Whether the crc32c of the numbers follows them."""
        return len(self.codecs) == 2

    @cached_property
    def big_endian(self) -> bool:
        """The byte order of the numbers."""
        return getattr(self.codecs[0], "endian", None) == "big"

    @cached_property
    def nbytes(self) -> int:
        """The size of the stored index."""
        return self.chunks * ENTRY + self.checksum * CHECKSUM

    def start(self, shard_bytes: int) -> int:
        """Where the index starts in a shard of this size."""
        return 0 if self.first else shard_bytes - self.nbytes

    def empty(self) -> Table:
        """The table of a shard without chunks."""
        return np.full((self.chunks, 2), ABSENT, dtype=np.uint64)

    def decode(self, stored: BytesLike) -> Table:
        """The table in a stored index, in C order; raises `ChunkDecodeError` if it is damaged."""
        nbytes = len(memoryview(stored))
        if nbytes != self.nbytes:
            raise ChunkDecodeError(
                f"codec 'sharding_indexed': {nbytes} bytes{named_chunk()} are not an index of {self.grid} "
                f"chunks, which needs {self.nbytes}: the shard is truncated"
            )
        if not self.is_intact(stored):
            raise ChunkDecodeError(
                f"codec 'sharding_indexed': the index{named_chunk()} is damaged: its checksum does not match"
            )
        return self.entries(stored)

    def encode(self, table: Table) -> bytes:
        """A table in C order as it is stored."""
        numbers = table.astype(">u8" if self.big_endian else "<u8").tobytes()
        return numbers + checksum_of(numbers) if self.checksum else numbers

    def entries(self, stored: BytesLike) -> Table:
        """The rows in whole entries of a stored index, as many as there are."""
        count = len(memoryview(stored)) // ENTRY * 2
        numbers = np.frombuffer(stored, ">u8" if self.big_endian else "<u8", count=count)
        return numbers.astype(np.uint64, copy=False).reshape(-1, 2)

    def is_intact(self, stored: BytesLike) -> bool:
        """Whether the checksum of a stored index agrees with its numbers, if there is one."""
        view = memoryview(stored)
        return not self.checksum or checksum_of(view[:-CHECKSUM]) == bytes(view[-CHECKSUM:])

    def extents(self, table: Table, nbytes: int | None = None) -> dict[tuple[int, ...], tuple[int, int]]:
        """Where each stored chunk begins and ends in the shard, in the order in which they lie.

        If the size of the shard is known, a chunk beyond its end is an error.
        """
        rows = zip(np.ndindex(self.grid), table.tolist(), strict=True)
        extents = {at: (offset, offset + length) for at, (offset, length) in rows if offset != int(ABSENT)}
        for position, (start, stop) in extents.items():
            if nbytes is not None and stop > nbytes:
                raise ChunkDecodeError(
                    f"codec 'sharding_indexed': the index{named_chunk()} puts inner chunk {position} at "
                    f"bytes {start} to {stop}, but there are only {nbytes}: the shard is damaged"
                )
        return dict(sorted(extents.items(), key=lambda item: item[1]))

    def locate_in(self, shard: BytesLike) -> dict[tuple[int, ...], tuple[int, int]]:
        """Where the chunks of a shard begin and end, in the order in which they lie; damage is an error."""
        view = memoryview(shard).cast("B")
        stored = view[: self.nbytes] if self.first else view[max(0, len(view) - self.nbytes) :]
        return self.extents(self.decode(stored), len(view))

    def split(self, shard: Buffer) -> dict[tuple[int, ...], Buffer]:
        """The encoded chunks of a shard, in the order in which they lie."""
        extents = self.locate_in(shard.as_numpy_array())
        return {position: shard[start:stop] for position, (start, stop) in extents.items()}

    def join(self, chunks: Mapping[tuple[int, ...], Buffer]) -> Buffer:
        """A shard of these encoded chunks, without gaps, in the order given."""
        contents = {position: chunk.as_numpy_array() for position, chunk in chunks.items()}
        return default_buffer_prototype().buffer.from_bytes(b"".join(self.pieces(contents)))

    def pieces(self, chunks: Mapping[tuple[int, ...], BytesLike]) -> list[BytesLike]:
        """The same for bytes, in pieces: the chunks as they are, and the index before or after them."""
        table = self.empty().reshape(*self.grid, 2)
        parts = [*chunks.values()]
        lengths = np.array([memoryview(part).nbytes for part in parts], dtype=np.uint64)
        if parts:
            starts = np.cumsum(lengths) - lengths + np.uint64(self.nbytes if self.first else 0)
            # One column of positions for each axis; there are none if there is only one chunk.
            at = tuple(np.array([*chunks], dtype=np.intp).reshape(len(parts), len(self.grid)).T)
            table[at] = np.stack([starts, lengths], axis=1)
        stored = self.encode(table.reshape(-1, 2))
        return [stored, *parts] if self.first else [*parts, stored]
