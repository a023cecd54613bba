"""From values to the bytes of a chunk: zarr's own codecs, called without an event loop.

The compressor nearest to the array, where it is one of zarr's common ones, gets the values from memory that
its thread keeps; all other codecs run as zarr runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numcodecs import blosc, zstd
from zarr.abc.codec import Codec
from zarr.codecs import BloscCodec, BytesCodec, ShardingCodec, ZstdCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import ArraySpec, ChunkTransform, chunk_is_empty, stages
from intarsia.array.decode import PLAIN_KINDS, Decoder, Scratch
from intarsia.array.values import Values
from intarsia.codecs.current_chunk import needs_chunk_index

type Pack = Callable[[Any], bytes]
"""From bytes in one piece to what a compressor makes of them."""

MOST_PACKED_BYTES = (1 << 31) - (1 << 20)
"""numcodecs refuses more than 2 GiB at a time, and says so."""

SHUFFLES = {"noshuffle": blosc.NOSHUFFLE, "shuffle": blosc.SHUFFLE, "bitshuffle": blosc.BITSHUFFLE}


class Encoder:
    """The codec chain of one member, for writing."""

    def __init__(self, codecs: tuple[Codec, ...], spec: ArraySpec, decoder: Decoder) -> None:
        self._chain, self._spec, self._decoder = ChunkTransform(codecs=codecs), spec, decoder
        prototype = default_buffer_prototype()
        self._buffer, self._nd_buffer = prototype.buffer, prototype.nd_buffer
        array_codecs, serializer, outer = stages(self._chain)
        self._is_plain = (
            type(serializer) is BytesCodec
            and not array_codecs
            and spec.dtype.to_native_dtype().kind in PLAIN_KINDS
        )
        """Whether the bytes of a chunk are its values, in one byte order or the other."""
        self._pack: Pack | None = None
        if self._is_plain and outer:
            self._pack = packer(outer[0], decoder.nbytes)
        self._outer: tuple[Any, ...] = outer[self._pack is not None :]
        self._fill: Any = np.asarray(spec.fill_value).item() if self._is_plain else None
        self.asks_for_index = any(not type(codec).__module__.startswith("zarr.") for codec in codecs)
        """Whether a codec may want to know which chunk it works on; zarr's own never do."""
        self.tells_the_index = not any(
            isinstance(codec, ShardingCodec) and needs_chunk_index(codec, spec) for codec in codecs
        )
        """Whether every codec that asks gets to know its chunk; those in shards among these codecs do not."""

    def encode(self, values: Values, scratch: Scratch, *, keep: bool) -> Buffer | bytes | memoryview | None:
        """The bytes of a chunk, None if it need not be stored.

        Unless they are to be kept, they may lie in memory of the thread, or of the values.
        """
        if self._is_empty(values):
            return None
        if not self._is_plain:
            return self._chain.encode_chunk(self._nd_buffer.from_numpy_array(values), self._spec)
        if self._pack is None:
            # A codec may give back what it got, so it never gets memory that is used again.
            if keep or self._outer:
                own = values.astype(self._decoder.stored_dtype, order="C").reshape(-1).view(np.uint8)
            else:
                own = self._in_one_piece(values, scratch)
            return self._after(self._buffer.from_array_like(own)) if self._outer else own.data
        packed = self._pack(self._in_one_piece(values, scratch))
        return self._after(self._buffer.from_bytes(packed)) if self._outer else packed

    def _after(self, encoded: Buffer | None) -> Buffer | None:
        """What the other bytes -> bytes codecs make of it."""
        for codec in self._outer:
            if encoded is None:  # a codec may say so of a chunk that need not be stored
                return None
            encoded = codec._encode_sync(encoded, self._spec)
        return encoded

    def _is_empty(self, values: Values) -> bool:
        """zarr's rule, with a look at two elements first: comparing all of them takes a small chunk long."""
        if self._is_plain:
            fill = self._fill
            for element in (values.item(0), values.item(-1)):
                if element != fill and (element == element or fill == fill):
                    return False
        return bool(chunk_is_empty(self._nd_buffer.from_numpy_array(values), self._spec))

    def _in_one_piece(self, values: Values, scratch: Scratch) -> Any:
        """The values as bytes in the order they are stored in."""
        decoder = self._decoder
        if values.flags.c_contiguous and values.dtype == decoder.stored_dtype:
            return values.reshape(-1).view(np.uint8)
        memory, room = scratch.for_chunk(decoder)
        room[...] = values
        return memory


def packer(codec: Any, nbytes: int) -> Pack | None:
    """What `codec` makes of `nbytes` bytes, without the steps around its compressor; None if there is none.

    >>> packer(ZstdCodec(level=1), 4)(b"abcd") == zstd.compress(b"abcd", 1)
    True
    """
    if not 0 < nbytes <= MOST_PACKED_BYTES:
        return None
    if type(codec) is ZstdCodec:
        level, checksum = codec.level, codec.checksum
        return lambda data: zstd.compress(data, level, checksum)
    if type(codec) is BloscCodec:
        name, level, shuffle = str(codec.cname).encode(), codec.clevel, SHUFFLES[codec.shuffle]
        blocks, itemsize = codec.blocksize, codec.typesize
        return lambda data: blosc.compress(data, name, level, shuffle, blocks, typesize=itemsize)
    return None
