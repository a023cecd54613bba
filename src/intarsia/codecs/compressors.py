"""zstd, gzip, blosc and others, decompressed fast, and never to more bytes than are allowed.

blosc believes its header and reads memory outside the chunk; gzip and similar codecs turn a few kilobytes
into gigabytes. So all code that undoes one of zarr's compressors does it here, with a limit on the output:

- `decode` for a codec in a chain, with limits from `decoded_bounds`;
- `exact_decompressor` for a chunk of a known size, into existing memory.

Damage is a ValueError or what the compressor raises; the caller names the codec and the chunk.

Some libraries are called directly, because the steps around them cost more than they do. numcodecs makes a
zstd context for every chunk, which takes a fifth of the time of reading a chunk of 64 KiB; here every thread
keeps one, in the library inside numcodecs. blosc, which is there too, cuts what it compresses into blocks of
256 KiB and more, and can decompress only those that hold some elements. libdeflate, if the system has it,
inflates right to where the bytes belong, and compresses in less than half the time of zlib, to fewer bytes.
Without them, numcodecs, isal and the standard library do the work.
"""

import bz2
import ctypes
import gzip
import io
import lzma
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from math import prod
from struct import Struct
from typing import Any

import numpy as np
from numcodecs import blosc, zstd
from zarr.abc.codec import Codec
from zarr.codecs import BloscCodec, GzipCodec, VLenBytesCodec, VLenUTF8Codec, ZstdCodec
from zarr.codecs import numcodecs as zarr_numcodecs
from zarr.core.buffer import Buffer

from intarsia._compat import ArraySpec, numcodec

LIBDEFLATE = {"linux": "libdeflate.so.0", "darwin": "libdeflate.0.dylib"}

ONE_THREAD_BYTES = 1 << 20
"""Larger chunks are left to numcodecs, which may decompress the blocks of one in several threads."""

type Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Context:
    """Memory that a library works in; freed with the thread that it belongs to."""

    def __init__(self, make: Any, free: Any, *arguments: int) -> None:
        make.restype, free.argtypes = c_void_p, [c_void_p]
        self._free = free
        self.address = make(*arguments)
        if not self.address:
            raise MemoryError("there is not enough memory for a compression context")

    def __del__(self) -> None:
        self._free(self.address)


def _contexts(make: Any, free: Any) -> Callable[..., int]:
    """A function that returns the address of a context of this thread, for the arguments of `make`."""
    own = threading.local()

    def address(*arguments: int) -> int:
        contexts: dict[Any, Any] = own.__dict__
        if arguments not in contexts:
            contexts[arguments] = _Context(make, free, *arguments)
        found: int = contexts[arguments].address
        return found

    return address


def _declare(function: Any, result: Any, *arguments: Any) -> Any:
    """A function of a library, with its types."""
    function.restype, function.argtypes = result, arguments
    return function


def _address(data: Any) -> tuple[Any, int, Any]:
    """What a library takes for some bytes, their number, and what must live until it returns."""
    if type(data) is bytes:
        return data, len(data), data
    view = np.frombuffer(data, dtype=np.uint8)
    return view.ctypes.data, view.nbytes, view


def zstd_decompressor(library: Any) -> Callable[[Any, Bytes], int]:
    """A function that decompresses frames with libzstd into memory, and returns how many bytes came out."""
    context = _contexts(library.ZSTD_createDCtx, library.ZSTD_freeDCtx)
    name = _declare(library.ZSTD_getErrorName, c_char_p, c_size_t)
    run = _declare(library.ZSTD_decompressDCtx, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)

    def decompress(data: Any, memory: Bytes) -> int:
        address, nbytes, _held = _address(data)
        count: int = run(context(), byref(c_char.from_buffer(memory)), memory.nbytes, address, nbytes)
        if count > memory.nbytes:  # then it is the number of an error
            raise RuntimeError(f"Zstd decompression error: {name(count).decode()}")
        return count

    return decompress


def decompress_zstd_by_numcodecs(data: Any, memory: Bytes) -> int:
    """The same if the library inside numcodecs cannot be called: for one frame that fills the memory."""
    content = zstd_content(data)
    if content is not None and content != memory.nbytes:  # numcodecs would leave the rest as it is
        raise ValueError(
            f"its first zstd frame has {content} bytes, not {memory.nbytes}; others cannot be read"
        )
    zstd.decompress(data, memory)
    return memory.nbytes


def gzip_decompressor(library: Any) -> Callable[[Any, Bytes], bool]:
    """A function that undoes gzip with libdeflate; says whether a single member filled the memory.

    Anything else, including damage, is left to code that can say what it is.
    """
    context = _contexts(library.libdeflate_alloc_decompressor, library.libdeflate_free_decompressor)
    types = c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p
    run = _declare(library.libdeflate_gzip_decompress_ex, c_int, *types)

    def inflate(data: Any, memory: Bytes) -> bool:
        address, nbytes, _held = _address(data)
        consumed = c_size_t()
        # Without a place for the size of the output, it must be exactly as large as the memory.
        into = byref(c_char.from_buffer(memory))
        failed = run(context(), address, nbytes, into, memory.nbytes, byref(consumed), None)
        return not failed and consumed.value == nbytes

    return inflate


def gzip_compressor(library: Any) -> Callable[[Any, int], bytes]:
    """A function that makes one gzip member with libdeflate, at a level of zlib."""
    context = _contexts(library.libdeflate_alloc_compressor, library.libdeflate_free_compressor)
    bound = _declare(library.libdeflate_gzip_compress_bound, c_size_t, c_void_p, c_size_t)
    types = c_void_p, c_void_p, c_size_t, c_void_p, c_size_t
    run = _declare(library.libdeflate_gzip_compress, c_size_t, *types)

    def compress(data: Any, level: int) -> bytes:
        address, nbytes, _held = _address(data)
        room = np.empty(bound(context(level), nbytes), dtype=np.uint8)
        count = run(context(level), address, nbytes, room.ctypes.data, room.nbytes)
        if not count:
            raise RuntimeError(f"libdeflate could not compress {nbytes} bytes at level {level}")
        return room[:count].tobytes()

    return compress


def blosc_getter(library: Any) -> Callable[[Any, int, int, Bytes], None]:
    """A function that gets elements of blosc data with a library, into memory that they fill."""
    run = _declare(library.blosc_getitem, c_int, c_void_p, c_int, c_int, c_void_p)

    def get(data: Any, first: int, count: int, memory: Bytes) -> None:
        address, _, _held = _address(data)
        _check_blosc(run(address, first, count, memory.ctypes.data), memory)

    return get


def blosc_decompressor(library: Any) -> Callable[[Any, Bytes], None]:
    """A function that decompresses blosc data with a library, into memory that the data fills."""
    run = _declare(library.blosc_decompress_ctx, c_int, c_void_p, c_void_p, c_size_t, c_int)

    def decompress(data: Any, memory: Bytes) -> None:
        if type(data) is not bytes or memory.nbytes > ONE_THREAD_BYTES:
            blosc.decompress(data, memory)
            return
        _check_blosc(run(data, byref(c_char.from_buffer(memory)), memory.nbytes, 1), memory)

    return decompress


def _check_blosc(count: int, memory: Bytes) -> None:
    if count != memory.nbytes:
        raise RuntimeError(f"error during blosc decompression: {count}")


def _bound(make: Callable[[Any], Any], path: str, otherwise: Any) -> Any:
    """What `make` makes of the library at `path`; if there is none, or it is another one, `otherwise`."""
    try:
        return make(ctypes.CDLL(path))
    except (OSError, AttributeError):
        return otherwise


_libdeflate = LIBDEFLATE.get(sys.platform, "no libdeflate")
decompress_zstd: Callable[[Any, Bytes], int] = _bound(
    zstd_decompressor, zstd.__file__, decompress_zstd_by_numcodecs
)
inflate: Callable[[Any, Bytes], bool] = _bound(gzip_decompressor, _libdeflate, lambda _data, _memory: False)
deflate: Callable[[Any, int], bytes] | None = _bound(gzip_compressor, _libdeflate, None)
decompress_blosc: Callable[[Any, Bytes], Any] = _bound(blosc_decompressor, blosc.__file__, blosc.decompress)
blosc_elements: Callable[[Any, int, int, Bytes], None] | None = _bound(blosc_getter, blosc.__file__, None)


try:
    from isal.isal_zlib import decompressobj
except ImportError:
    from zlib import decompressobj  # type: ignore[assignment]  # the same function, declared otherwise


type ExactDecompress = Callable[[Any, Bytes], Any]
type Decompress = Callable[[Any, Any, int], Any]
"""Takes a codec, its bytes and the most bytes that may come out, and returns the result."""

GZIP = zlib.MAX_WBITS | 16  # zlib's way of saying that a gzip header and trailer are expected
BLOSC_HEADER = 16
_BLOSC_SIZES = Struct("<III").unpack_from  # of the content, of a block, of the stored data
LZ4_HEADER = 4

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_LARGEST_BLOCK = 128 << 10

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
    return decode_as(type(codec), codec, data, spec, most)


def decode_as(kind: type, codec: Any, data: Buffer, spec: ArraySpec, most: int | None) -> Buffer:
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


def exact_decompressor(codec: Any, nbytes: int) -> ExactDecompress | None:
    """A function that undoes `codec` if the result has exactly `nbytes` bytes; None if only the codec can.

    It takes encoded bytes and memory of that size, and returns the filled memory, or another object that
    holds exactly as many bytes.

    >>> exact_decompressor(ZstdCodec(), 4) is None
    False
    """
    kind = type(codec)
    if not nbytes or kind not in (ZstdCodec, BloscCodec, GzipCodec):
        return None

    def unpack(data: Any, memory: Bytes) -> Any:
        if kind is BloscCodec and _blosc_content(data, nbytes) == nbytes:
            decompress_blosc(data, memory)
            return memory
        if kind is GzipCodec and inflate(data, memory):
            return memory
        if kind is ZstdCodec and decompress_zstd(data, memory) == nbytes:  # it refuses what does not fit
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
    if blosc_elements is None or _blosc_content(data, nbytes) != nbytes:
        return False
    block, itemsize = _BLOSC_SIZES(data, 4)[1], int(data[3])
    last = first + memory.size
    if not (0 < block < nbytes and itemsize and first % itemsize == 0 and last % itemsize == 0):
        return False
    if (last - 1) // block - first // block + 1 >= -(-nbytes // block):  # every block is touched
        return False
    blosc_elements(data, first // itemsize, memory.size // itemsize, memory)
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
    return decompress_zstd_frames(data, most)


def decompress_zstd_frames(data: Any, most: int) -> Any:
    """The content of zstd frames; more than `most` bytes are an error.

    >>> bytes(decompress_zstd_frames(zstd.compress(b"intarsia"), 8))
    b'intarsia'
    """
    content = zstd_content(data)
    if content is not None and content > most:
        raise _too_much(most)
    if not len(data):  # no frame at all, which the library takes for no content
        raise ValueError("there are no bytes, not even an empty zstd frame")
    for room in (content or most, most):  # more frames may follow the first
        memory = np.empty(room, dtype=np.uint8)
        try:
            count = decompress_zstd(data, memory) if room else 0
        except (RuntimeError, ValueError) as error:
            if "too small" not in str(error):
                raise
        else:
            return memory if count == room else memory[:count].copy()
    raise _too_much(most)


def zstd_content(data: Any) -> int | None:
    """The size of a zstd frame's content, if its header says so; otherwise None.

    >>> zstd_content(zstd.compress(b"intarsia"))
    8
    """
    head = bytes(memoryview(data)[:18])
    if len(head) < 9 or head[:4] != ZSTD_MAGIC:
        return None
    descriptor = head[4]
    single_segment, field = descriptor >> 5 & 1, descriptor >> 6
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    length = (single_segment, 2, 4, 8)[field]
    size = int.from_bytes(head[at : at + length], "little")
    return None if not length else size + 256 if field == 1 else size


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
