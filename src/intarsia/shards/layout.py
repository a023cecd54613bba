"""Where everything lies in a shard file: the index, the slots, and the order of the chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec

from intarsia._compat import morton_order_coords
from intarsia.codecs.place import to_array_axes
from intarsia.errors import ChunkDecodeError, SlotsUnsupportedError

if TYPE_CHECKING:
    from collections.abc import Buffer, Sequence

    from zarr.abc.codec import Codec

    from intarsia.shards.bound import EncodedBound

__all__ = [
    "ABSENT",
    "ENTRY",
    "NO_ENTRY",
    "PARKED",
    "TORN",
    "IndexForm",
    "SlotLayout",
    "Table",
    "absent",
    "chunk_order",
    "from_the_array",
]

type Table = np.ndarray[Any, np.dtype[np.uint64]]
"""Offset and length of every inner chunk of a shard, one row each, in the order of `chunk_order`."""

ABSENT = np.uint64(2**64 - 1)
"""Offset and length of a chunk that was never written; the sharding specification says so."""

NO_ENTRY = (int(ABSENT), int(ABSENT))
"""The entry of such a chunk."""

PARKED = np.uint64(1 << 62)
"""Added to an offset, it leads beyond the end of every file: who follows it fails instead of reading
something else, and taking it away again loses nothing."""

TORN = np.uint64(1 << 61)
"""Added to the offset of a chunk while its only slot is overwritten, with the same effect. If the writer dies
it stays: some readers check neither the length of a chunk nor its checksum, so nobody may find the chunk."""

ENTRY = 16
"""Bytes of one chunk in the index: its offset and its length."""

CHECKSUM = 4
"""Bytes of the index's crc32c."""


def checksum_of(data: Buffer) -> bytes:
    """The crc32c of some bytes, as it is stored behind them.

    >>> checksum_of(b"123456789").hex()
    '839206e3'
    """
    # It takes an array, whatever that is a view of, but no memoryview.
    return int(google_crc32c.value(np.frombuffer(data, np.uint8))).to_bytes(CHECKSUM, "little")


@lru_cache(maxsize=64)
def chunk_order(grid: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """For each chunk in the order in which chunks lie in shards, its position in the index.

    Chunks lie in Morton order, as zarr-python writes them; the index is in C order.

    >>> chunk_order((2, 2, 2)).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    coordinates = np.array(morton_order_coords(grid), dtype=np.intp).reshape(math.prod(grid), len(grid))
    strides = np.array([math.prod(grid[axis + 1 :]) for axis in range(len(grid))], dtype=np.intp)
    order = coordinates @ strides
    order.flags.writeable = False
    return order


@lru_cache(maxsize=64)
def chunk_numbers(grid: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """For each chunk of a shard, by its coordinates, its number in `chunk_order`.

    >>> chunk_numbers((2, 2)).tolist()
    [[0, 2], [1, 3]]
    """
    order = chunk_order(grid)
    numbers = np.empty(order.size, dtype=np.intp)
    numbers[order] = np.arange(order.size)
    numbers.flags.writeable = False
    return numbers.reshape(grid)


def absent(table: Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which chunks of a table were never written.

    >>> absent(np.array([[ABSENT, ABSENT], [0, 8]], dtype="u8")).tolist()
    [True, False]
    """
    return np.asarray((table == ABSENT).all(axis=1), dtype=np.bool_)


def from_the_array[T: ShardingCodec](
    transposes: Sequence[Codec], codec: T
) -> tuple[T, tuple[int, ...] | None]:
    """The sharding that the array sees through `transposes`, and which of its axes each axis of a shard is.

    Every chunk of the transposed shard is a chunk of the shard, transposed. So it comes to the same to divide
    the shard in the array's axes and to transpose the chunks; only the index has them in another order.

    >>> from zarr.codecs import TransposeCodec
    >>> sharding = ShardingCodec(chunk_shape=(2, 3, 4))
    >>> seen, axes = from_the_array([TransposeCodec(order=(2, 0, 1))], sharding)
    >>> seen.chunk_shape, [type(codec).__name__ for codec in seen.codecs], axes
    ((3, 4, 2), ['TransposeCodec', 'BytesCodec'], (2, 0, 1))
    """
    if not transposes:
        return codec, None
    axes = tuple(range(len(codec.chunk_shape)))
    for transpose in transposes:
        assert isinstance(transpose, TransposeCodec)
        axes = tuple(axes[axis] for axis in transpose.order)
    shape = to_array_axes(codec.chunk_shape, axes)
    return replace(codec, chunk_shape=shape, codecs=(*transposes, *codec.codecs)), axes


@dataclass(frozen=True)
class IndexForm:
    """How the shards of one array store their index.

    >>> form = IndexForm(grid=(4, 2), first=False, big_endian=False, checksum=True)
    >>> form.chunks, form.nbytes
    (8, 132)
    """

    grid: tuple[int, ...]
    """How many inner chunks a shard has along each axis, in the order in which the shard has them."""

    first: bool
    """Whether the index stands before the chunks."""

    big_endian: bool
    """Byte order of its numbers."""

    checksum: bool
    """Whether its crc32c follows it."""

    axes: tuple[int, ...] | None = None
    """Which axis of the array each axis of the grid is, if the shard has them in another order."""

    @classmethod
    def of(
        cls, codec: ShardingCodec, shard_shape: tuple[int, ...], axes: tuple[int, ...] | None = None
    ) -> IndexForm:
        """The form that a sharding codec's configuration asks for; both shapes are in the array's axes."""
        kinds = [type(index_codec) for index_codec in codec.index_codecs]
        if kinds not in ([BytesCodec], [BytesCodec, Crc32cCodec]):
            names = [index_codec.to_dict().get("name") for index_codec in codec.index_codecs]
            raise SlotsUnsupportedError(
                f"the index of these shards goes through {names}; its entries can be rewritten in place only "
                "behind index_codecs of 'bytes', or 'bytes' and 'crc32c'"
            )
        grid = tuple(s // c for s, c in zip(shard_shape, codec.chunk_shape, strict=True))
        first_codec = codec.index_codecs[0]
        assert isinstance(first_codec, BytesCodec)
        return cls(
            grid=grid if axes is None else tuple(grid[axis] for axis in axes),
            first=codec.index_location == "start",
            big_endian=first_codec.endian == "big",
            checksum=len(kinds) == 2,
            axes=axes,
        )

    @cached_property
    def chunks(self) -> int:
        """How many inner chunks a shard has."""
        return math.prod(self.grid)

    @property
    def nbytes(self) -> int:
        """The bytes of the index."""
        return self.chunks * ENTRY + self.checksum * CHECKSUM

    def start(self, file_bytes: int) -> int:
        """Where the index starts in a file of this size."""
        return 0 if self.first else file_bytes - self.nbytes

    def number(self, coordinates: tuple[int, ...]) -> int:
        """The number of an inner chunk in the order of the table, given where it lies in the array's axes."""
        if self.axes is not None:
            coordinates = tuple(coordinates[axis] for axis in self.axes)
        return int(chunk_numbers(self.grid)[coordinates])

    def coordinates(self, number: int) -> tuple[int, ...]:
        """Where in its shard the chunk with this number lies, in the array's axes."""
        found = tuple(int(i) for i in np.unravel_index(chunk_order(self.grid)[number], self.grid))
        return found if self.axes is None else to_array_axes(found, self.axes)

    def empty(self) -> Table:
        """The table of a shard without chunks."""
        return np.full((self.chunks, 2), ABSENT, dtype=np.uint64)

    def encode(self, table: Table) -> bytes:
        """The index as it is stored."""
        entries = np.empty((self.chunks, 2), dtype=">u8" if self.big_endian else "<u8")
        entries[chunk_order(self.grid)] = table
        raw = entries.tobytes()
        return raw + checksum_of(raw) if self.checksum else raw

    def decode(self, raw: bytes) -> tuple[Table, bool]:
        """The table in a stored index, and whether its checksum agrees."""
        if len(raw) != self.nbytes:
            raise ChunkDecodeError(
                f"the index of the shard has {len(raw)} bytes instead of {self.nbytes}: the file is truncated"
            )
        numbers = raw[: self.chunks * ENTRY]
        table = self.rows(numbers, chunk_order(self.grid))
        if not self.checksum:
            return table, True
        return table, checksum_of(numbers) == raw[-CHECKSUM:]

    def rows(self, raw: bytes, places: np.ndarray[Any, np.dtype[np.intp]]) -> Table:
        """Rows of the table, from stored entries of which `places` says which."""
        dtype = ">u8" if self.big_endian else "<u8"
        entries = np.frombuffer(raw, dtype, count=len(raw) // ENTRY * 2).reshape(-1, 2)
        return np.asarray(entries[places], dtype=np.uint64)


@dataclass(frozen=True)
class SlotLayout:
    """A shard in which every chunk has a place of its own, written or not.

    >>> from intarsia.shards.bound import EncodedBound
    >>> form = IndexForm(grid=(4,), first=False, big_endian=False, checksum=False)
    >>> layout = SlotLayout(form, EncodedBound(nbytes=97, fixed=True, checksum=False), copies=1)
    >>> [layout.offset(number) for number in range(4)], layout.file_bytes
    ([0, 104, 208, 312], 480)
    """

    form: IndexForm
    """How the index is stored."""

    bound: EncodedBound
    """What a slot has to hold."""

    copies: int
    """Slots a chunk: 1, or 2 of which the index names the one in force."""

    @property
    def slot(self) -> int:
        """The bytes of one slot."""
        return self.bound.slot

    @property
    def start(self) -> int:
        """Where the first slot starts."""
        return self.form.nbytes if self.form.first else 0

    @property
    def file_bytes(self) -> int:
        """The size of the file; what no slot has written takes no room on disk."""
        end = self.start + self.copies * self.form.chunks * self.slot
        # An entry must not straddle two pages, or a reader could see half of it.
        return end if self.form.first else -(-end // ENTRY) * ENTRY + self.form.nbytes

    def offset(self, number: int, copy: int = 0) -> int:
        """Where a slot starts."""
        return self.start + (copy * self.form.chunks + number) * self.slot

    def copy_at(self, offset: int) -> int:
        """Which of its chunk's slots starts at `offset`."""
        return (offset - self.start) // self.slot // self.form.chunks

    def holds(self, table: Table, numbers: Sequence[int] | None = None) -> bool:
        """Whether every chunk of the table lies in a slot of its own, so that writing one harms no other.

        The table is whole, or has the rows of the chunks with these `numbers`.
        """
        rows = np.arange(self.form.chunks) if numbers is None else np.asarray(numbers)
        first = np.uint64(self.start) + rows.astype(np.uint64) * np.uint64(self.slot)
        offsets, lengths = table[:, 0] & ~TORN, table[:, 1]
        own = offsets == first
        if self.copies == 2:
            own |= offsets == first + np.uint64(self.form.chunks * self.slot)
        fewest = self.bound.nbytes if self.bound.fixed else 1
        fits = (lengths >= fewest) & (lengths <= self.bound.nbytes)
        return bool((absent(table) | (own & fits)).all())
