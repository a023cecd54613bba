"""intarsia: one Zarr array, many encodings."""

from intarsia import codecs, errors
from intarsia.codecs import (
    ChunkHeader,
    OffsetCodec,
    PackBitsCodec,
    PadCodec,
    ShuffleCodec,
    n5_header,
    parse_codecs,
    tiff_header,
)
from intarsia.errors import (
    ChunkDecodeError,
    ChunkEncodeError,
    ChunkIndexUnknownError,
    CodecConfigurationError,
    IntarsiaError,
    MissingExtraError,
)

__version__ = "0.1.0"

__all__ = [
    "ChunkDecodeError",
    "ChunkEncodeError",
    "ChunkHeader",
    "ChunkIndexUnknownError",
    "CodecConfigurationError",
    "IntarsiaError",
    "MissingExtraError",
    "OffsetCodec",
    "PackBitsCodec",
    "PadCodec",
    "ShuffleCodec",
    "codecs",
    "errors",
    "n5_header",
    "parse_codecs",
    "tiff_header",
]
