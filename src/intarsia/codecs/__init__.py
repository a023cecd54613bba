"""Zarr v3 codecs; each is registered with zarr by an entry point, so nothing needs importing to read."""

from intarsia.codecs.chain import CodecLike, parse_codecs
from intarsia.codecs.chunk_files import ChunkHeader, n5_header, tiff_header
from intarsia.codecs.header import OffsetCodec, PadCodec, PaddingFunction
from intarsia.codecs.packbits import PackBitsCodec
from intarsia.codecs.shuffle import ShuffleCodec

__all__ = [
    "ChunkHeader",
    "CodecLike",
    "OffsetCodec",
    "PackBitsCodec",
    "PadCodec",
    "PaddingFunction",
    "ShuffleCodec",
    "n5_header",
    "parse_codecs",
    "tiff_header",
]
