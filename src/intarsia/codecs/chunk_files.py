"""Headers that make every chunk a file of another format: TIFF pictures and N5 blocks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from intarsia.codecs.current_chunk import named_chunk
from intarsia.errors import ChunkEncodeError, CodecConfigurationError

type TiffCompression = Literal["none", "deflate", "zstd"]

TIFF_COMPRESSIONS: dict[str, int] = {"none": 1, "deflate": 8, "zstd": 50000}
TIFF_SAMPLE_FORMATS: dict[str, int] = {"u": 1, "i": 2, "f": 3}
TIFF_SHORT, TIFF_LONG = 3, 4


class ChunkHeader(bytes):
    """The header of a chunk file: bytes, and a function of the encoded chunk that fills in its size.

    Give it to `pad` as `padding` where the size never changes, or as `padding_func` where it does.

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
        if size >= 1 << 32:
            raise ChunkEncodeError(
                f"a TIFF strip holds less than 4 GiB, but the encoded data{named_chunk()} has {size} bytes: "
                "use smaller chunks"
            )
        filled = bytearray(self)
        struct.pack_into(self._size_format, filled, self._size_at, size)
        return bytes(filled)

    def __getnewargs__(self) -> tuple[bytes, int | None, str]:  # type: ignore[override]  # of bytes
        return bytes(self), self._size_at, self._size_format


def tiff_header(
    shape: tuple[int, int], dtype: DTypeLike, *, compression: TiffCompression = "none"
) -> ChunkHeader:
    """The header that makes a 2-d chunk a TIFF file of one strip.

    The byte order of `dtype` must be the one of the array's `bytes` codec. For chunks that are
    compressed after it ("deflate" is what `numcodecs.zlib` writes), pass the result as `padding_func`:
    called with the encoded chunk, it fills in the strip's byte count.

    >>> header = tiff_header((256, 256), "uint16")
    >>> len(header), header[:4]
    (110, b'II*\\x00')
    """
    kind = np.dtype(dtype)
    if kind.kind not in TIFF_SAMPLE_FORMATS:
        raise CodecConfigurationError(f"a TIFF chunk file holds integers or floats, not {kind}")
    if compression not in TIFF_COMPRESSIONS:
        raise CodecConfigurationError(
            f"compression {compression!r} is not one of {sorted(TIFF_COMPRESSIONS)}"
        )
    if len(shape) != 2 or not all(0 < size < 1 << 32 for size in shape):
        raise CodecConfigurationError(
            f"a TIFF chunk file holds a 2-d picture of at least 1 x 1, not a chunk of shape {tuple(shape)}"
        )
    rows, columns = (int(size) for size in shape)
    raw = rows * columns * kind.itemsize
    if raw >= 1 << 32:
        raise CodecConfigurationError(f"a TIFF strip holds less than 4 GiB, but the chunk has {raw} bytes")
    order = ">" if kind.byteorder == ">" else "<"

    def number(tag: int, value: int) -> tuple[int, int, int]:
        return tag, TIFF_SHORT if value < 1 << 16 else TIFF_LONG, value

    entries = [
        number(256, columns),  # ImageWidth
        number(257, rows),  # ImageLength
        number(258, kind.itemsize * 8),  # BitsPerSample
        number(259, TIFF_COMPRESSIONS[compression]),  # Compression
        number(262, 1),  # PhotometricInterpretation: black is zero
        (273, TIFF_LONG, 0),  # StripOffsets: filled in below
        number(278, rows),  # RowsPerStrip
        (279, TIFF_LONG, raw),  # StripByteCounts
    ]
    if kind.kind != "u":  # unsigned is TIFF's default
        entries.append(number(339, TIFF_SAMPLE_FORMATS[kind.kind]))  # SampleFormat
    nbytes = 8 + 2 + 12 * len(entries) + 4
    entries[5] = (273, TIFF_LONG, nbytes)

    content = struct.pack(order + "2sHI", b"II" if order == "<" else b"MM", 42, 8)
    content += struct.pack(order + "H", len(entries))
    size_at = None
    for tag, kind_of_value, value in entries:
        if tag == 279:
            size_at = len(content) + 8
        # A SHORT fills the first two of the four value bytes, which matters in big-endian files.
        value_format = "H2x" if kind_of_value == TIFF_SHORT else "I"
        content += struct.pack(f"{order}HHI{value_format}", tag, kind_of_value, 1, value)
    content += struct.pack(order + "I", 0)
    return ChunkHeader(content, size_at=size_at, size_format=order + "I")


def n5_header(shape: tuple[int, ...]) -> ChunkHeader:
    """The header of a full N5 block of this shape, in default mode, in the order of N5's dimensions.

    N5 is column-major: put `transpose` with the order reversed before the `bytes` codec (big endian).
    Blocks cut at the edge of a dataset carry headers of their own; `n5_default` of zarr-n5 reads those.

    >>> n5_header((64, 64)).hex(" ", 4)
    '00000002 00000040 00000040'
    """
    if not 0 < len(shape) < 1 << 16 or not all(0 < size < 1 << 32 for size in shape):
        raise CodecConfigurationError(f"an N5 block has at least one dimension and no empty one, not {shape}")
    return ChunkHeader(struct.pack(f">HH{len(shape)}I", 0, len(shape), *shape))
