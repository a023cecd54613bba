"""Chunks from bytes to values and back: zarr's own codecs, called without an event loop.

Small chunks of plain numbers are decoded together, one behind the other, and then copied to their places a
row of chunks at a time; zstd decodes them in one call outside Python. For larger chunks, the compressor that
is nearest to the array, if it is one of zarr's common ones, decodes straight into the output if the chunk is
contiguous there, else into a buffer that its thread keeps. All other codecs run as in zarr.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numcodecs import blosc, zstd
from zarr.abc.codec import Codec
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import (
    ArraySpec,
    ChunkTransform,
    chunk_is_empty,
    codec_specs,
    stages,
    sync_decoder,
)
from intarsia.codecs import compressors
from intarsia.codecs.base import needs_chunk_index, without_copies
from intarsia.codecs.compressors import (
    HAS_BATCHES,
    Bytes,
    ExactDecompress,
    check_count,
    decode,
    decoded_bounds,
    decompress_zstd_together,
    exact_decompressor,
    unknown_bound,
    unpack_blosc_part,
)
from intarsia.engine.fetch.store import Encoded, FileSpan
from intarsia.engine.inner_chunks import WORTH_A_PIECE, chunk_piece
from intarsia.errors import ChunkDecodeError, has_panicked
from intarsia.manifest.data_types import Values, write_decoded
from intarsia.manifest.packing import Packing
from intarsia.nullable.buffer import OptionalNDBuffer

LARGEST_TOGETHER = 16 << 10
"""Chunks of up to this many decoded bytes are decoded together and put behind one another, so that a row of
them is one copy: for larger ones, getting the memory takes longer than that saves."""

WORTH_ONE_CALL = 256 << 10
"""Chunks of fewer bytes in all are decompressed one by one in the time that it takes to prepare one call."""

TOGETHER_BYTES = 1 << 20
"""So many bytes are decoded before they are copied to their places: as many as a core's own cache holds."""

PLAIN_KINDS = "biufc"
"""The kinds of data types whose `bytes` codec is a view of the bytes, in either byte order."""


class Scratch(threading.local):
    """What a chunk is decoded into before it is copied to its place: memory of its own for each thread."""

    def __init__(self) -> None:
        self._bytes: Bytes = np.empty(0, dtype=np.uint8)

    def bytes_for(self, nbytes: int) -> Bytes:
        """Memory of this many bytes."""
        if self._bytes.size < nbytes:
            self._bytes = np.empty(nbytes, dtype=np.uint8)
        return self._bytes[:nbytes]


def nbytes_of(encoded: Encoded) -> int:
    """The size of encoded bytes."""
    return encoded.nbytes if type(encoded) is FileSpan else len(encoded)


class Decoder:
    """The codec chain of one member, for reading."""

    def __init__(self, codecs: tuple[Codec, ...], spec: ArraySpec) -> None:
        self._array_codecs: tuple[Any, ...]
        self._serializer: Any
        self._array_codecs, self._serializer, after = stages(without_copies(codecs))
        *specs, self._spec = codec_specs((*self._array_codecs, self._serializer), spec)
        self._deserialize = sync_decoder(self._serializer)
        before = self._array_codecs
        self._array_steps = [(c, sync_decoder(c), s) for c, s in zip(before, specs, strict=True)][::-1]
        self._buffer = default_buffer_prototype().buffer
        self._nd_buffer = default_buffer_prototype().nd_buffer
        self._dtype: np.dtype[Any] = self._spec.dtype.to_native_dtype()
        self.is_plain = type(self._serializer) is BytesCodec and self._dtype.kind in PLAIN_KINDS
        """Whether the array -> bytes codec only looks at the values as bytes, in either byte order."""
        self.stored_shape: tuple[int, ...] = self._spec.shape
        """Shape of a chunk, as the array -> bytes codec sees it."""
        self.stored_dtype = self._dtype
        """The data type in the byte order of the stored bytes."""
        order = getattr(self._serializer, "endian", None)
        if self.is_plain and order is not None:
            self.stored_dtype = self._dtype.newbyteorder("<" if order == "little" else ">")
        self.nbytes = prod(self.stored_shape) * self._dtype.itemsize
        """Size of a chunk, as the array -> bytes codec sees it."""
        outer: list[Any] = list(after)
        to_bytes: list[Any] = [self._serializer, *outer]
        bounds = decoded_bounds(to_bytes, self._spec)
        self._unpack: ExactDecompress | None = None
        if self.is_plain and outer:
            self._unpack = exact_decompressor(outer[0], self.nbytes)
            if self._unpack is not None:
                outer, bounds = outer[1:], bounds[1:]
        self._outer = tuple(zip(reversed(outer), reversed(bounds), strict=True))
        """The other bytes -> bytes codecs in the order of decoding, each with the most bytes it may give."""
        packages = {type(codec).__module__.partition(".")[0] for codec in codecs}
        self.asks_for_index = packages != {"zarr"}
        """Whether a codec may want to know which chunk it works on; zarr's own never do."""
        is_short = self.is_plain and not (self._array_codecs or self._outer)
        is_small = is_short and 0 < self.nbytes <= LARGEST_TOGETHER
        self.in_one_call = HAS_BATCHES and is_small and bool(after) and type(after[0]) is ZstdCodec
        """Whether many chunks are decompressed in one call, without the interpreter's lock."""
        self.together = TOGETHER_BYTES // self.nbytes if is_small else 1
        """How many chunks are decoded together."""
        self.is_direct = self.is_plain and not self._array_codecs and self.stored_dtype == self._dtype
        """Whether a chunk may be decoded right into its place."""
        self.is_raw = self.is_plain and self._unpack is None and not (self._outer or self._array_codecs)
        """Whether the stored bytes are the values, so that unused ones cost nothing."""
        self._blosc = self._unpack is not None and isinstance(after[0], BloscCodec) and not self._outer
        self._gives_parts = (
            self.nbytes >= WORTH_A_PIECE and not self._array_codecs and (self.is_raw or self._blosc)
        )

    @property
    def copies(self) -> int:
        """How many buffers of a chunk's size decoding one may hold."""
        return 2 + len(self._array_codecs)

    def place(
        self,
        encoded: Encoded,
        out: Values,
        target: Any,
        inside: Any,
        scratch: Scratch,
        packing: Packing | None = None,
    ) -> None:
        """Decode a chunk and put what `inside` selects of it (None means all) where `target` says."""
        if inside is not None:
            part = self._part(encoded, inside, scratch) if self._gives_parts else None
            write_decoded(
                out, target, self.values(encoded, scratch)[inside] if part is None else part, packing
            )
            return
        if self.is_direct and packing is None:
            place = out[target]
            if isinstance(place, np.ndarray) and place.flags.c_contiguous:
                memory = place.reshape(-1).view(np.uint8)
                unpacked = self._unpacked(encoded, memory)
                if unpacked is not memory:
                    memory[:] = np.frombuffer(unpacked, dtype=np.uint8)
                return
        write_decoded(out, target, self.values(encoded, scratch), packing)

    def values_together(self, encoded: list[Encoded]) -> Values | None:
        """Several small chunks as an array; None if one is damaged, or takes a closer look."""
        try:
            if self.in_one_call and len(encoded) * self.nbytes >= WORTH_ONE_CALL:
                contents = decompress_zstd_together(encoded, self.nbytes)
            elif self._unpack is not None:
                contents = [self._unpack(data, None) for data in encoded]
            else:
                contents = encoded if {*map(len, encoded)} == {self.nbytes} else None
        except Exception:
            return None
        if contents is None:
            return None
        together: Values = np.frombuffer(b"".join(contents), self.stored_dtype)
        return together.reshape(len(encoded), *self.stored_shape)

    def _part(self, encoded: Encoded, inside: Any, scratch: Scratch) -> Values | None:
        """The wanted part of a chunk, if no more than that is here or must be decompressed; else None."""
        if self.is_raw and nbytes_of(encoded) == self.nbytes:
            return None
        piece = chunk_piece(inside, self.stored_shape)
        if piece is None:
            return None
        itemsize = self.stored_dtype.itemsize
        memory = scratch.bytes_for(piece.size * itemsize)
        if not self.is_raw:
            encoded = encoded.read() if type(encoded) is FileSpan else encoded
            if not unpack_blosc_part(encoded, self.nbytes, piece.first * itemsize, memory):
                return None
        elif nbytes_of(encoded) != memory.size:
            return None
        elif type(encoded) is FileSpan:
            encoded.read_into(memory.data)
        else:
            memory = np.frombuffer(encoded, dtype=np.uint8)
        values: Values = memory.view(self.stored_dtype).reshape(piece.shape)[piece.inside]
        return values

    def values(self, encoded: Encoded, scratch: Scratch) -> Values:
        """A decoded chunk, perhaps in the thread's own memory."""
        if self.is_plain:
            unpacked = self._unpacked(encoded, scratch.bytes_for(self.nbytes))
            values: Values = np.frombuffer(unpacked, self.stored_dtype).reshape(self.stored_shape)
            if not self._array_codecs:
                return values
            if not values.flags.aligned or values.dtype != self._dtype:
                values = values.astype(self._dtype)
            array = self._nd_buffer.from_numpy_array(values)
        else:
            peeled = self._peeled(encoded)
            check_count(self._serializer, peeled, prod(self.stored_shape))
            array = self._deserialize(peeled, self._spec)
        for codec, decode_array, spec in self._array_steps:
            try:
                array = decode_array(array, spec)
            except BaseException as error:
                if not has_panicked(error):
                    raise
                raise ChunkDecodeError(f"{type(codec).__name__} panicked: {error}") from error
        # A nullable chunk keeps its buffer: a plain array has no place for the nulls.
        return array if isinstance(array, OptionalNDBuffer) else array.as_numpy_array()

    def _unpacked(self, encoded: Encoded, memory: Bytes) -> Any:
        """The bytes of a chunk: in `memory`, or in another object of exactly its size."""
        as_stored = self._unpack is None and not self._outer
        if as_stored and type(encoded) is FileSpan and encoded.nbytes == memory.size:
            encoded.read_into(memory.data)
            return memory
        data: Any
        if self._outer:
            data = self._peeled(encoded).as_numpy_array()
        else:
            data = encoded.read() if type(encoded) is FileSpan else encoded
        if self._unpack is not None:
            return self._unpack(data, memory)
        if len(data) != memory.size:
            raise ChunkDecodeError(f"it holds {len(data)} bytes, but a chunk needs {memory.size}")
        return data

    def _peeled(self, encoded: Encoded) -> Any:
        """The bytes after undoing the outermost codecs, as a zarr buffer."""
        data = encoded.read() if type(encoded) is FileSpan else encoded
        buffer = self._buffer.from_bytes(data)
        for codec, most in self._outer:
            bound = unknown_bound(self._spec, len(data)) if most is None else most
            buffer = decode(codec, buffer, self._spec, bound)
        return buffer


type Pack = Callable[[Any], bytes]
"""Takes contiguous bytes and returns them compressed."""

MAX_PACKED_BYTES = (1 << 31) - (1 << 20)
"""numcodecs refuses more than 2 GiB at a time, and says so."""

SHUFFLES = {"noshuffle": blosc.NOSHUFFLE, "shuffle": blosc.SHUFFLE, "bitshuffle": blosc.BITSHUFFLE}


class Encoder:
    """The codec chain of one member, for writing; raises TypeError if a codec needs an event loop."""

    def __init__(self, codecs: tuple[Codec, ...], spec: ArraySpec, decoder: Decoder) -> None:
        self._chain, self._spec, self._decoder = ChunkTransform(codecs=codecs), spec, decoder
        self._nd_buffer = default_buffer_prototype().nd_buffer
        array_codecs, _, outer = self._chain.stages
        self._is_plain = decoder.is_plain and not array_codecs
        """Whether the bytes of a chunk, before they are compressed, are its values, in either byte order."""
        self._is_raw = self._is_plain and not outer
        self._pack = packer(outer[0], decoder.nbytes) if self._is_plain and len(outer) == 1 else None
        self._fill: Any = np.asarray(spec.fill_value).item() if self._is_plain else None
        self.tells_the_index = not any(
            isinstance(codec, ShardingCodec) and needs_chunk_index(codec, spec) for codec in codecs
        )
        """Whether every codec that asks is told its chunk; those inside shards among these codecs are not."""

    def encode(self, values: Values) -> Buffer | bytes | memoryview | None:
        """The bytes of a chunk, in memory of their own; None if it need not be stored."""
        if self._is_empty(values):
            return None
        stored = self._decoder.stored_dtype
        if self._pack is not None:
            return self._pack(np.ascontiguousarray(values, stored).reshape(-1).view(np.uint8))
        if self._is_raw:
            own: Bytes = values.astype(stored, order="C").reshape(-1).view(np.uint8)
            return own.data
        return self._chain.encode_chunk(self._nd_buffer.from_numpy_array(values), self._spec)

    def _is_empty(self, values: Values) -> bool:
        """zarr's rule, but two elements are checked first: comparing all is slow for a small chunk."""
        if self._is_plain:
            fill = self._fill
            for element in (values.item(0), values.item(-1)):
                if element != fill and (element == element or fill == fill):
                    return False
        return bool(chunk_is_empty(self._nd_buffer.from_numpy_array(values), self._spec))


def packer(codec: Any, nbytes: int) -> Pack | None:
    """How to encode `nbytes` bytes by `codec`, without the steps around its compressor; None if impossible.

    >>> import gzip
    >>> gzip.decompress(packer(GzipCodec(), 4)(b"abcd")) if compressors.deflate else b"abcd"
    b'abcd'
    """
    if not 0 < nbytes <= MAX_PACKED_BYTES:
        return None
    if type(codec) is ZstdCodec:
        level, checksum = codec.level, codec.checksum
        return lambda data: zstd.compress(data, level, checksum)
    if type(codec) is GzipCodec and (deflate := compressors.deflate) is not None:
        level = codec.level
        return lambda data: bytes(deflate.gzip_compress(data, level))
    if type(codec) is BloscCodec:
        name, level, shuffle = str(codec.cname).encode(), codec.clevel, SHUFFLES[codec.shuffle]
        blocks, itemsize = codec.blocksize, codec.typesize
        return lambda data: blosc.compress(data, name, level, shuffle, blocks, typesize=itemsize)
    return None
