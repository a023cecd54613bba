"""Zarr's common compressors, decoding into memory that is there already, by the functions zarr's codecs call.

Each function takes encoded bytes and memory of a chunk's size. It returns the memory, filled, or another
object that holds exactly as many bytes. What is not exactly one such chunk is left to zarr's own codec.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numcodecs import blosc, zstd
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from intarsia.errors import ChunkDecodeError

try:
    from isal.isal_zlib import decompressobj
except ImportError:
    from zlib import decompressobj  # type: ignore[assignment]

__all__ = ["Bytes", "Unpack", "unpacker"]

type Bytes = np.ndarray[Any, np.dtype[np.uint8]]
type Unpack = Callable[[Any, Bytes], Any]

GZIP = zlib.MAX_WBITS | 16  # zlib's way to say that a gzip header and trailer are expected
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BLOSC_HEADER = 16


def unpacker(codec: Any, nbytes: int) -> Unpack | None:
    """How to undo `codec` where that gives `nbytes` bytes; None if zarr's own way is the only one.

    >>> unpacker(ZstdCodec(), 4) is None
    False
    """
    if not nbytes:
        return None
    kind = type(codec)
    if kind is ZstdCodec:
        return _zstd(nbytes)
    if kind is BloscCodec:
        return _blosc(nbytes)
    if kind is GzipCodec:
        return _gzip(codec._gzip_codec.decode, nbytes)
    return None


def _exactly(found: Any, nbytes: int) -> Any:
    if len(found) != nbytes:
        raise ChunkDecodeError(f"it decodes to {len(found)} bytes, but a chunk takes {nbytes}")
    return found


def _zstd(nbytes: int) -> Unpack:
    def unpack(data: Any, memory: Bytes) -> Any:
        if _zstd_content(data) == nbytes:
            zstd.decompress(data, memory)
            return memory
        return _exactly(zstd.decompress(data), nbytes)

    return unpack


def _zstd_content(data: Any) -> int | None:
    """Size of a zstd frame's content, where its header says so."""
    head = bytes(memoryview(data)[:18])
    if len(head) < 9 or head[:4] != ZSTD_MAGIC:
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    field = descriptor >> 6
    if not field and not single_segment:
        return None
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(head[at : at + (1, 2, 4, 8)[field]], "little")
    return size + 256 if field == 1 else size


def _blosc(nbytes: int) -> Unpack:
    def unpack(data: Any, memory: Bytes) -> Any:
        head = bytes(memoryview(data)[:BLOSC_HEADER])
        if len(head) < BLOSC_HEADER or int.from_bytes(head[12:16], "little") > len(data):
            # blosc believes its header, and would read memory that is not the chunk's
            raise ChunkDecodeError(f"the blosc data is cut off: {len(data)} bytes are left of it")
        if int.from_bytes(head[4:8], "little") == nbytes:
            blosc.decompress(data, memory)
            return memory
        return _exactly(blosc.decompress(data), nbytes)

    return unpack


def _gzip(decode: Callable[..., Any], nbytes: int) -> Unpack:
    def unpack(data: Any, memory: Bytes) -> Any:
        stream = decompressobj(GZIP)
        found = stream.decompress(data, nbytes + 1)  # one more, so that the end of the stream is reached
        if stream.eof and not stream.unused_data and len(found) == nbytes:
            return found
        return _exactly(decode(data), nbytes)  # several members, or padding, or not a chunk

    return unpack
