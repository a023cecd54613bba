"""Headers that make every chunk a file: TIFF pictures and N5 blocks."""

import struct
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkEncodeError, CodecConfigurationError


class ChunkHeader(bytes):
    """The header of a chunk file: bytes, and a function of the encoded chunk that fills in its size.

    Give it to `pad` as `padding` if the size never changes, or as `padding_func` if it does.

    `content` is the header itself. If it contains the size of the encoded chunk, `size_at` says where, and
    `size_format` how, in the notation of `struct`.

    >>> header = tiff_header((256, 256), "uint16", compression="zstd")
    >>> len(header), len(header(b"encoded chunk"))
    (110, 110)
    """

    _size_at: int | None
    _size_format: str

    def __new__(cls, content: bytes, size_at: int | None = None, size_format: str = "") -> Self:
        header = super().__new__(cls, content)
        header._size_at = size_at
        header._size_format = size_format
        return header

    def __call__(self, encoded: Sequence[int] | np.ndarray[Any, Any] | bytes) -> bytes:
        """The header for this encoded chunk."""
        if self._size_at is None:
            return bytes(self)
        size = len(encoded)
        if size >= 1 << 8 * struct.calcsize(self._size_format):
            raise ChunkEncodeError(
                f"a TIFF strip holds less than 4 GiB, but the encoded data{named_chunk()} has {size} bytes: "
                "use smaller chunks, or tiff_header(…, bigtiff=True)"
            )
        filled = bytearray(self)
        struct.pack_into(self._size_format, filled, self._size_at, size)
        return bytes(filled)

    def __getnewargs__(self) -> tuple[bytes, int | None, str]:  # type: ignore[override]  # of bytes
        return bytes(self), self._size_at, self._size_format


def _checked_shape(shape: Sequence[int], what: str, dimensions: range) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in dimensions or not all(0 < size < 1 << 32 for size in sizes):
        raise CodecConfigurationError(f"{what}, not a chunk of shape {tuple(shape)}")
    return sizes


# TIFF

type TiffCompression = Literal["none", "deflate", "zstd"]

TIFF_COMPRESSIONS: dict[str, int] = {"none": 1, "deflate": 8, "zstd": 50000}
TIFF_SAMPLE_FORMATS: dict[str, int] = {"b": 1, "u": 1, "i": 2, "f": 3, "c": 6}
TIFF_SHORT, TIFF_LONG, TIFF_LONG8 = 3, 4, 16
TIFF_TYPES: dict[int, str] = {TIFF_SHORT: "H", TIFF_LONG: "I", TIFF_LONG8: "Q"}
TIFF_RGB = 3
"""The number of samples in a colour."""

TIFF_TILE_GRAIN = 16
"""The sides of tiles are multiples of this."""


def _tiff_directory(
    order: str, tags: dict[int, tuple[int, ...]], wide: frozenset[int], *, big: bool
) -> tuple[bytes, dict[int, int]]:
    """The whole head of a TIFF file, in the classic way or `big`, and where the values of each tag are in it.

    Values that do not fit into the entry follow the directory. The tags in `wide` hold offsets or byte
    counts; the values of the others are as short as possible.
    """
    count, pointer, room = ("Q", "Q", 8) if big else ("H", "I", 4)
    mark = b"II" if order == "<" else b"MM"
    content = struct.pack(f"{order}2sH", mark, 43 if big else 42)
    content += struct.pack(f"{order}HHQ", 8, 0, 16) if big else struct.pack(f"{order}I", 8)
    content += struct.pack(order + count, len(tags))
    after = len(content) + (4 + 2 * room) * len(tags) + room  # entries, and where the next directory is
    value_offsets: dict[int, int] = {}
    overflow = b""
    for tag in sorted(tags):
        values = tags[tag]
        short = TIFF_SHORT if max(values) < 1 << 16 else TIFF_LONG
        kind = (TIFF_LONG8 if big else TIFF_LONG) if tag in wide else short
        packed = struct.pack(f"{order}{len(values)}{TIFF_TYPES[kind]}", *values)
        content += struct.pack(f"{order}HH{pointer}", tag, kind, len(values))
        if len(packed) <= room:  # from the left, which matters in big-endian files
            value_offsets[tag] = len(content)
            content += packed.ljust(room, b"\0")
        else:
            value_offsets[tag] = after + len(overflow)
            content += struct.pack(order + pointer, value_offsets[tag])
            overflow += packed + bytes(len(packed) % 2)
    return content + bytes(room) + overflow, value_offsets


def tiff_header(
    shape: Sequence[int],
    dtype: DTypeLike,
    *,
    compression: TiffCompression = "none",
    tiled: bool = False,
    bigtiff: bool | None = None,
) -> ChunkHeader:
    """The header that makes a chunk a TIFF file of one strip or one tile.

    The chunk has the shape (rows, columns), or (rows, columns, samples) for several numbers per pixel: three
    or four of type uint8 or uint16 are RGB or RGBA. The byte order of `dtype` must be that of the array's
    `bytes` codec; bools are bytes of 0 and 1. For compressed chunks ("deflate" is what `numcodecs.zlib`
    writes), pass the result as `padding_func`: called with the encoded chunk, it fills in the byte count.
    `bigtiff=True` writes 64-bit offsets; chunks of 4 GiB and more need them and get them.

    Args:
        shape: The chunk shape.
        compression: How chunks are compressed: `"none"`, `"deflate"` or `"zstd"`.
        tiled: Whether the chunk is a tile, whose sides are multiples of 16, rather than a strip.

    >>> header = tiff_header((256, 256), "uint16")
    >>> len(header), header[:4]
    (110, b'II*\\x00')
    """
    kind = np.dtype(dtype)
    if kind.kind not in TIFF_SAMPLE_FORMATS or kind.char in "gG":  # no reader knows extended precision
        raise CodecConfigurationError(f"a TIFF chunk file holds numbers or bools, not {kind}")
    if compression not in TIFF_COMPRESSIONS:
        raise CodecConfigurationError(
            f"compression {compression!r} is not one of {sorted(TIFF_COMPRESSIONS)}"
        )
    what = "a TIFF chunk file holds (rows, columns) or (rows, columns, samples), at least one of each"
    rows, columns, samples = (*_checked_shape(shape, what, range(2, 4)), 1)[:3]
    if samples >= 1 << 16:
        raise CodecConfigurationError(f"a TIFF pixel has at most 65535 samples, not {samples}")
    if tiled and (rows % TIFF_TILE_GRAIN or columns % TIFF_TILE_GRAIN):
        raise CodecConfigurationError(
            f"the sides of a TIFF tile are multiples of {TIFF_TILE_GRAIN}, not {rows} x {columns}; "
            "a strip may have any size"
        )
    raw = rows * columns * samples * kind.itemsize
    needed = raw >= 1 << 32
    if needed and bigtiff is False:
        raise CodecConfigurationError(f"a TIFF strip holds less than 4 GiB, but the chunk has {raw} bytes")
    order, big = ">" if kind.byteorder == ">" else "<", needed if bigtiff is None else bigtiff
    colour = samples in (TIFF_RGB, TIFF_RGB + 1) and kind in (np.dtype("u1"), np.dtype(kind.str[0] + "u2"))
    offsets, counts = (324, 325) if tiled else (273, 279)
    tags: dict[int, tuple[int, ...]] = {
        256: (columns,),  # ImageWidth
        257: (rows,),  # ImageLength
        258: (kind.itemsize * 8,) * samples,  # BitsPerSample
        259: (TIFF_COMPRESSIONS[compression],),  # Compression
        262: (2 if colour else 1,),  # PhotometricInterpretation: RGB, or black is zero
        offsets: (0,),  # StripOffsets or TileOffsets: filled in below
        counts: (raw,),  # StripByteCounts or TileByteCounts
    }
    tags |= (
        {322: (columns,), 323: (rows,)} if tiled else {278: (rows,)}
    )  # TileWidth, TileLength; RowsPerStrip
    if samples > 1:
        tags |= {277: (samples,), 284: (1,)}  # SamplesPerPixel; PlanarConfiguration: pixel by pixel
        extra = samples - (TIFF_RGB if colour else 1)
        if extra:
            tags[338] = (2 if colour else 0,) * extra  # ExtraSamples: unassociated alpha, or unspecified
    if TIFF_SAMPLE_FORMATS[kind.kind] != 1:  # unsigned is TIFF's default
        tags[339] = (TIFF_SAMPLE_FORMATS[kind.kind],) * samples  # SampleFormat
    wide = frozenset((offsets, counts))
    length = len(_tiff_directory(order, tags, wide, big=big)[0])
    content, value_offsets = _tiff_directory(order, tags | {offsets: (length,)}, wide, big=big)
    return ChunkHeader(content, size_at=value_offsets[counts], size_format=order + ("Q" if big else "I"))


# N5


def n5_header(shape: tuple[int, ...]) -> ChunkHeader:
    """The header of a full N5 block of this shape, in default mode, in N5's order of dimensions.

    N5 is column-major: put a `transpose` that reverses the axes before the `bytes` codec (big endian).
    Blocks cut off at the edge of a dataset have their own headers; `n5_default` of zarr-n5 reads those.

    Args:
        shape: The block shape.

    >>> n5_header((64, 64)).hex(" ", 4)
    '00000002 00000040 00000040'
    """
    sizes = _checked_shape(
        shape, "an N5 block has at least one dimension and no empty one", range(1, 1 << 16)
    )
    return ChunkHeader(struct.pack(f">HH{len(sizes)}I", 0, len(sizes), *sizes))
