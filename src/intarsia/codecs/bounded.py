"""Decompressing what somebody else stored: never past the end of the bytes, never to more than is allowed.

blosc believes its header and reads memory outside the chunk; gzip and similar codecs turn a few kilobytes
into gigabytes. So all of our code that undoes one of zarr's compressors does it here, with a limit on the
output:

- `decode` for a codec in a chain, with limits from `decoded_bounds`;
- `unpacker` for a chunk of a known size, into existing memory.

Damage is a ValueError or what the compressor raises; the caller says which codec and which chunk it met.
"""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from struct import Struct
from typing import Any

import numpy as np
from numcodecs import blosc, zstd
from zarr.abc.codec import Codec
from zarr.codecs import BloscCodec, GzipCodec, VLenBytesCodec, VLenUTF8Codec, ZstdCodec
from zarr.codecs import numcodecs as zarr_numcodecs

from intarsia._compat import ArraySpec, numcodec
from intarsia.codecs import compressors

try:
    from isal.isal_zlib import decompressobj
except ImportError:
    from zlib import decompressobj  # type: ignore[assignment]  # the same function, declared otherwise

from zarr.core.buffer import Buffer

type Bytes = np.ndarray[Any, np.dtype[np.uint8]]
type Unpack = Callable[[Any, Bytes], Any]
type Decompress = Callable[[Any, Any, int], Any]
"""Takes a codec, its bytes and the most bytes that may come out, and returns the result."""

GZIP = zlib.MAX_WBITS | 16  # zlib's way of saying that a gzip header and trailer are expected
BLOSC_HEADER = 16
_BLOSC_SIZES = Struct("<III").unpack_from  # of the content, of a block, of the stored data
LZ4_HEADER = 4

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_LARGEST_BLOCK = 128 << 10
ZSTD_RAW, ZSTD_RLE = 0, 1  # kinds of blocks

INFLATION, INFLATION_BYTES = 8, 64 << 10
"""No compressor makes incompressible bytes longer by more than an eighth and this many bytes."""

LIKELY_FACTOR, LIKELY_BYTES = 4, 16 << 20
"""The limit for a codec that does not know its neighbours: this many times the chunk's values, plus this many
bytes. Headers, shard indexes, masks of nulls and inflation fit within it; a bomb does not."""

TEXT_BYTES, TEXT_RATIO = 1 << 10, 1 << 8
"""If elements may have any length: this many bytes for each, and this many for every stored byte.
Texts that are all long and all the same would be refused; others do not compress that well."""

COUNT = Struct("<I")
"""The number of elements, which precedes elements of variable length."""


def decode(codec: Any, data: Buffer, spec: ArraySpec, most: int | None) -> Buffer:
    """`data` as the bytes -> bytes codec `codec` decodes it, which must have a synchronous form.

    More than `most` bytes are an error, which for zarr's compressors is raised before they are made. None
    means that the limit is unknown, as for strings: see `unknown_bound`.

    >>> import zarr
    >>> from zarr.core.buffer import default_buffer_prototype
    >>> zeros = default_buffer_prototype().buffer.from_bytes(gzip.compress(bytes(10**6)))
    >>> z = zarr.create(store={}, shape=4, dtype="u1")
    >>> from intarsia.codecs.codec_path import stored_spec
    >>> decode(GzipCodec(), zeros, stored_spec(z, (4,)), 4)
    Traceback (most recent call last):
    ...
    ValueError: it decodes to more than the 4 bytes that are allowed
    """
    return undone(type(codec), codec, data, spec, most)


def undone(kind: type, codec: Any, data: Buffer, spec: ArraySpec, most: int | None) -> Buffer:
    """The same for a codec as if it were of the class `kind`."""
    if most is None:
        most = unknown_bound(spec, len(data))
    decompress = _DECOMPRESSORS.get(kind)
    if decompress is None:
        inside: Any = getattr(codec, "decode_at_most", None)
        decoded = codec._decode_sync(data, spec) if inside is None else inside(data, spec, most)
    else:
        decoded = spec.prototype.buffer.from_bytes(decompress(codec, data.as_numpy_array(), most))
    result: Buffer = decoded
    if len(result) > most:
        raise _too_much(most)
    return result


def is_known(kind: type) -> bool:
    """Whether codecs of this class are undone here rather than by themselves.

    >>> is_known(GzipCodec), is_known(int)
    (True, False)
    """
    return kind in _DECOMPRESSORS


def decoded_bounds(codecs: Sequence[Codec], spec: ArraySpec) -> list[int | None]:
    """The most bytes that each codec may decode to, except for the first, which is array -> bytes.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, Crc32cCodec
    >>> from intarsia.codecs.codec_path import stored_spec
    >>> z = zarr.create(store={}, shape=400, dtype="u2", codecs=[BytesCodec(), Crc32cCodec(), GzipCodec()])
    >>> decoded_bounds(z.metadata.codecs, stored_spec(z, (400,)))
    [800, 804]
    """
    bounds: list[int | None] = []
    most = _serialized_bound(codecs[0], spec)
    for codec in codecs[1:]:
        bounds.append(most)
        most = encoded_bound(codec, most, spec)
    return bounds


def encoded_bound(codec: Codec, most: int | None, spec: ArraySpec) -> int | None:
    """The most bytes that a bytes -> bytes codec may turn a number of bytes into."""
    if most is None:
        return None
    try:
        return int(codec.compute_encoded_size(most, spec))
    except NotImplementedError:
        own: Callable[[int, ArraySpec], int] | None = getattr(codec, "most_encoded", None)
        return most + most // INFLATION + INFLATION_BYTES if own is None else own(most, spec)


def likely_bound(spec: ArraySpec) -> int | None:
    """The most bytes that a chunk may have between any of its codecs; None if unknown.

    >>> import zarr
    >>> from intarsia.codecs.codec_path import stored_spec
    >>> z = zarr.create(store={}, shape=400, dtype="u2")
    >>> likely_bound(stored_spec(z, (400,))) == 4 * 800 + 16 * 2**20
    True
    """
    dtype = spec.dtype.to_native_dtype()
    if dtype.hasobject or dtype.kind == "T":  # elements of any length
        return None
    return LIKELY_FACTOR * prod(spec.shape) * dtype.itemsize + LIKELY_BYTES


def unknown_bound(spec: ArraySpec, nbytes: int) -> int:
    """The most bytes of a chunk whose elements have any length and which takes `nbytes` stored bytes.

    >>> import zarr
    >>> from intarsia.codecs.codec_path import stored_spec
    >>> z = zarr.create_array({}, shape=400, dtype=str)
    >>> unknown_bound(stored_spec(z, (400,)), 20_000) == 16 * 2**20 + 1024 * 400 + 256 * 20_000
    True
    """
    return LIKELY_BYTES + TEXT_BYTES * prod(spec.shape) + TEXT_RATIO * nbytes


def check_count(serializer: Any, data: Buffer, elements: int) -> None:
    """Check the number before elements of variable length, which zarr's codecs believe unchecked."""
    if isinstance(serializer, VLenUTF8Codec | VLenBytesCodec):
        head = bytes(data.as_numpy_array()[: COUNT.size])
        count = COUNT.unpack(head)[0] if len(head) == COUNT.size else 0
        if count != elements:
            raise ValueError(f"it says it has {count} elements, but {elements} are expected")


def _serialized_bound(codec: Codec, spec: ArraySpec) -> int | None:
    if codec.is_fixed_size and likely_bound(spec) is not None:
        raw = prod(spec.shape) * spec.dtype.to_native_dtype().itemsize
        try:
            return int(codec.compute_encoded_size(raw, spec))
        except NotImplementedError:
            pass
    return likely_bound(spec)


def unpacker(codec: Any, nbytes: int) -> Unpack | None:
    """A function that undoes `codec` if the result has exactly `nbytes` bytes; None if only the codec can.

    It takes encoded bytes and memory of that size, and returns the filled memory, or another object that
    holds exactly as many bytes.

    >>> unpacker(ZstdCodec(), 4) is None
    False
    """
    kind = type(codec)
    if not nbytes or kind not in (ZstdCodec, BloscCodec, GzipCodec):
        return None

    known = b""  # the header of frames of this size: chunks of one array share it

    def unpack(data: Any, memory: Bytes) -> Any:
        nonlocal known
        if kind is ZstdCodec:
            header = known  # other threads may change it meanwhile
            if not (header and type(data) is bytes and data.startswith(header)):
                head = bytes(memoryview(data)[:18])
                length, content = _zstd_frame(head)
                header = head[:length] if content == nbytes else b""
                known = header or known
            if header:
                compressors.decompress_zstd(data, memory)  # refuses what does not fit
                return memory
        if kind is BloscCodec and _blosc_content(data, nbytes) == nbytes:
            compressors.decompress_blosc(data, memory)
            return memory
        if kind is GzipCodec and compressors.inflate(data, memory):
            return memory
        unpacked = _DECOMPRESSORS[kind](codec, data, nbytes)
        if len(unpacked) != nbytes:
            raise ValueError(f"it decodes to {len(unpacked)} bytes, but a chunk needs {nbytes}")
        return unpacked

    return unpack


def unpack_blosc_part(data: Any, nbytes: int, first: int, memory: Bytes) -> bool:
    """Fill memory with the bytes from `first` on of blosc data that holds `nbytes`, if that saves anything.

    blosc decompresses only the blocks that they are in, and returns whole elements of the given size.

    >>> part = np.empty(8, dtype=np.uint8)
    >>> zeros = blosc.compress(bytes(1 << 20), b"lz4", 5, typesize=4)
    >>> unpack_blosc_part(zeros, 1 << 20, 0, part) and part.any()
    np.False_
    """
    if compressors.blosc_elements is None or _blosc_content(data, nbytes) != nbytes:
        return False
    block, itemsize = _BLOSC_SIZES(data, 4)[1], int(data[3])
    last = first + memory.size
    if not (0 < block < nbytes and itemsize and first % itemsize == 0 and last % itemsize == 0):
        return False
    if (last - 1) // block - first // block + 1 >= -(-nbytes // block):  # every block is touched
        return False
    compressors.blosc_elements(data, first // itemsize, memory.size // itemsize, memory)
    return True


def _too_much(most: int) -> ValueError:
    return ValueError(f"it decodes to more than the {most} bytes that are allowed")


def _blosc(_codec: Any, data: Any, most: int) -> Any:
    _blosc_content(data, most)
    return blosc.decompress(data)


def _blosc_content(data: Any, most: int) -> int:
    """How many bytes the blosc data says it holds, if it is complete."""
    content: int
    content, _, stored = _BLOSC_SIZES(data, 4) if len(data) >= BLOSC_HEADER else (0, 0, BLOSC_HEADER)
    if stored > len(data):
        raise ValueError(f"the blosc data is cut off: only {len(data)} bytes of it are left")
    if content > most:
        raise _too_much(most)
    return content


def _lz4(codec: Any, data: Any, most: int) -> Any:
    if int.from_bytes(bytes(memoryview(data)[:LZ4_HEADER]), "little") > most:
        raise _too_much(most)
    return numcodec(codec).decode(data)


def _zstd(_codec: Any, data: Any, most: int) -> Any:
    return unzstd(data, most)


def unzstd(data: Any, most: int) -> Any:
    """The content of zstd frames; more than `most` bytes are an error.

    >>> bytes(unzstd(zstd.compress(b"intarsia"), 8))
    b'intarsia'
    """
    content = zstd_content(data)
    if content is not None and content > most:
        raise _too_much(most)
    if content:
        with suppress(ValueError):  # more frames follow
            return zstd.decompress(data, np.empty(content, dtype=np.uint8))
    if _zstd_largest(memoryview(data).cast("B")) <= most:
        return zstd.decompress(data)
    if content is None:  # blocks need not be full, so it may still be exactly the limit
        with suppress(ValueError, RuntimeError):
            return zstd.decompress(data, np.empty(most, dtype=np.uint8))
    raise _too_much(most)


def zstd_content(data: Any) -> int | None:
    """The size of a zstd frame's content, if its header says so; otherwise None.

    >>> zstd_content(zstd.compress(b"intarsia"))
    8
    """
    return _zstd_frame(bytes(memoryview(data)[:18]))[1]


def _zstd_frame(head: bytes) -> tuple[int, int | None]:
    """The same for the first bytes of a frame, and how many of them are its header."""
    return _zstd_header(head) if len(head) >= 9 and head[:4] == ZSTD_MAGIC else (0, None)


def _zstd_header(head: bytes) -> tuple[int, int | None]:
    """The length of a frame's header, and what it says about the size of the content."""
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    field = descriptor >> 6
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    length = (1 if single_segment else 0, 2, 4, 8)[field]
    if not length:
        return at, None
    size = int.from_bytes(head[at : at + length], "little")
    return at + length, size + 256 if field == 1 else size


def _zstd_largest(data: memoryview) -> int:
    """The most bytes that all frames of `data` may have together, block by block, because block headers can
    be read. Anything that is not a frame ends the walk; the decoder says what is wrong with it."""
    total = at = 0
    while at + 8 <= len(data):
        magic = bytes(data[at : at + 4])
        if magic[1:] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5:  # a frame to be skipped
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        if magic != ZSTD_MAGIC:
            break
        header, content = _zstd_header(bytes(data[at : at + 18]).ljust(18, b"\0"))
        checksum = 4 * (data[at + 4] >> 2 & 1)
        at, blocks = _zstd_blocks(data, at + header)
        at += checksum
        total += blocks if content is None else content
    return total


def _zstd_blocks(data: memoryview, at: int) -> tuple[int, int]:
    """Where the blocks that start at `at` end, and the most bytes that they may have."""
    total, last = 0, False
    while not last and at + 3 <= len(data):
        head = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        total += size if kind in (ZSTD_RAW, ZSTD_RLE) else ZSTD_LARGEST_BLOCK
        at += 3 + (1 if kind == ZSTD_RLE else size)
    return at, total


def _gzip(_codec: Any, data: Any, most: int) -> Any:
    stream = decompressobj(GZIP)
    unpacked = stream.decompress(data, most + 1)  # one more, so that the end of the stream is reached
    if len(unpacked) > most:
        raise _too_much(most)
    if stream.eof and not stream.unused_data:
        return unpacked
    return _read(gzip.GzipFile(fileobj=io.BytesIO(data)), most)  # several members, or padding, or damage


def _zlib(_codec: Any, data: Any, most: int) -> Any:
    stream = decompressobj(zlib.MAX_WBITS)
    unpacked = stream.decompress(data, most + 1)
    if len(unpacked) > most:
        raise _too_much(most)
    if not stream.eof:
        raise ValueError(f"the zlib data is cut off: only {len(data)} bytes of it are left")
    return unpacked


def _bz2(_codec: Any, data: Any, most: int) -> Any:
    return _read(bz2.BZ2File(io.BytesIO(data)), most)


def _lzma(codec: Any, data: Any, most: int) -> Any:
    inside = numcodec(codec)
    return _read(lzma.LZMAFile(io.BytesIO(data), format=inside.format, filters=inside.filters), most)


def _read(file: Any, most: int) -> bytes:
    with file:
        unpacked: bytes = file.read(most + 1)
    if len(unpacked) > most:
        raise _too_much(most)
    return unpacked


_DECOMPRESSORS: dict[type, Decompress] = {
    ZstdCodec: _zstd,
    BloscCodec: _blosc,
    GzipCodec: _gzip,
    zarr_numcodecs.Zstd: _zstd,
    zarr_numcodecs.Blosc: _blosc,
    zarr_numcodecs.GZip: _gzip,
    zarr_numcodecs.Zlib: _zlib,
    zarr_numcodecs.BZ2: _bz2,
    zarr_numcodecs.LZMA: _lzma,
    zarr_numcodecs.LZ4: _lz4,
}
