"""zstd, gzip, blosc and others, decompressed fast, and never to more bytes than are allowed.

blosc believes its header and reads memory outside the chunk; gzip and similar codecs turn a few kilobytes
into gigabytes. So all code that undoes one of zarr's compressors does it here, with a limit on the output:

- `decode` for a codec in a chain, with limits from `decoded_bounds`;
- `exact_decompressor` for a chunk of a known size, into existing memory.

Damage is a ValueError or what the compressor raises; the caller names the codec and the chunk.

All compressors come with packages, none from the system. python-zstandard decompresses many small frames in
one call, without Python and its lock; builds of it that cannot (on PyPy, or with the system's libzstd)
decompress one after the other. `deflate`, which is libdeflate, inflates gzip in two thirds of the time of
zlib, and compresses in less than half, to fewer bytes; without it, zlib does the work. blosc cuts what it
compresses into blocks of 256 KiB and more, and the library inside numcodecs can decompress only those that
hold some elements, where its function for that can be called.
`compressors_in_use` says which of these are at work.
"""

import bz2
import ctypes
import gzip
import io
import lzma
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_int, c_void_p
from importlib import import_module
from importlib.metadata import version
from math import prod
from struct import Struct
from typing import Any

import numpy as np
import zstandard
from numcodecs import blosc, zstd
from zarr.abc.codec import Codec
from zarr.codecs import BloscCodec, GzipCodec, VLenBytesCodec, VLenUTF8Codec, ZstdCodec
from zarr.codecs import numcodecs as zarr_numcodecs
from zarr.core.buffer import Buffer

from intarsia._compat import ArraySpec, numcodec, sync_decoder

deflate: Any
try:
    deflate = import_module("deflate")
except ImportError:  # conda-forge has no package of it
    deflate = None

type Bytes = np.ndarray[Any, np.dtype[np.uint8]]

LARGEST_COPIED = 128 << 10
"""A chunk up to this size is decompressed to memory of its own, and copied: for a larger one, it takes longer
to get the memory than to prepare a call that decompresses into the memory where the chunk belongs."""

type ExactDecompress = Callable[[Any, Bytes | None], Any]

HAS_BATCHES = "multi_decompress_to_buffer" in zstandard.backend_features
"""Whether many zstd frames can be decompressed in one call."""


def _blosc_getter(path: str) -> Callable[[Any, int, int, Bytes], None] | None:
    """A function that gets elements of blosc data into memory that they fill, by the library at `path`."""
    try:
        run = ctypes.CDLL(path).blosc_getitem
    except (OSError, AttributeError):  # it cannot be called
        return None
    run.restype, run.argtypes = c_int, (c_void_p, c_int, c_int, c_void_p)

    def get(data: Any, first: int, count: int, memory: Bytes) -> None:
        source = np.frombuffer(data, dtype=np.uint8)
        if run(source.ctypes.data, first, count, memory.ctypes.data) != memory.nbytes:
            raise RuntimeError("error during blosc decompression")

    return get


blosc_elements = _blosc_getter(blosc.__file__)


def compressors_in_use() -> dict[str, str]:
    """Which package undoes each compressor here, and how.

    >>> compressors_in_use()["zstd"].startswith("zstandard")
    True
    """
    batches = "many chunks at a time" if HAS_BATCHES else "chunk by chunk: this build has no batches"
    parts = "parts of chunks" if blosc_elements is not None else "whole chunks only"
    return {
        "zstd": f"zstandard {zstandard.__version__}, {batches}",
        "gzip": f"zlib {zlib.ZLIB_RUNTIME_VERSION}" if deflate is None else f"deflate {version('deflate')}",
        "blosc": f"numcodecs {version('numcodecs')}, {parts}",
    }


type Decompress = Callable[[Any, Any, int], Any]
"""Takes a codec, its bytes and the most bytes that may come out, and returns the result."""

GZIP = zlib.MAX_WBITS | 16  # zlib's way of saying that a gzip header and trailer are expected
BLOSC_HEADER = 16
_BLOSC_SIZES = Struct("<III").unpack_from  # of the content, of a block, of the stored data
LZ4_HEADER = 4

ZSTD_BLOCK_HEADER, ZSTD_CHECKSUM = 3, 4
ZSTD_REPEATED = 1  # the kind of a block that is a single byte, however much it stands for
ZSTD_LARGEST_BLOCK = 128 << 10

INFLATION, INFLATION_BYTES = 8, 64 << 10
"""No compressor makes incompressible bytes longer by more than an eighth and this many bytes."""

LIKELY_FACTOR, LIKELY_BYTES = 4, 16 << 20
"""The limit for a codec that does not know its neighbours: this many times the chunk's values, plus this many
bytes. Headers, shard indexes, masks of nulls and inflation fit within it; a bomb does not."""

TEXT_BYTES, TEXT_RATIO = 1 << 10, 1 << 8
"""If elements may have any length: this many bytes for each, and this many for every stored byte.
Texts that are all long and all the same would be refused; others do not compress that well."""

GZIP_TRAILER = Struct("<II")
"""The checksum and the size of its content, at the end of a gzip member."""

LARGEST_INFLATED = (1 << 32) - 1
"""The `deflate` package takes sizes of 32 bits, and no size at all for 0."""

COUNT_BYTES = 4
"""The size of the number of elements, which precedes elements of variable length."""


def decode(codec: Any, data: Buffer, spec: ArraySpec, most: int | None) -> Buffer:
    """`data` as the bytes -> bytes codec `codec` decodes it.

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
    if most is None:
        most = unknown_bound(spec, len(data))
    decompress = _DECOMPRESSORS.get(type(codec))
    if decompress is None:
        inside: Any = getattr(codec, "decode_at_most", None)
        result: Buffer = sync_decoder(codec)(data, spec) if inside is None else inside(data, spec, most)
    else:
        result = spec.prototype.buffer.from_bytes(decompress(codec, data.as_numpy_array(), most))
    if len(result) > most:
        raise _too_much(most)
    return result


def decoded_bounds(codecs: Sequence[Codec], spec: ArraySpec) -> list[int | None]:
    """The most bytes that each codec may decode to, except for the first, which is array -> bytes.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, Crc32cCodec
    >>> from intarsia.codecs.codec_path import stored_spec
    >>> z = zarr.create(store={}, shape=400, dtype="u2", codecs=[BytesCodec(), Crc32cCodec(), GzipCodec()])
    >>> decoded_bounds(z.metadata.codecs, stored_spec(z, (400,)))
    [800, 804]
    """
    return bounds_of(codecs[1:], _serialized_bound(codecs[0], spec), spec)


def bounds_of(codecs: Sequence[Codec], most: int | None, spec: ArraySpec) -> list[int | None]:
    """The same for bytes -> bytes codecs, of which the first gets `most` bytes."""
    bounds: list[int | None] = []
    for codec in codecs:
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
    if not isinstance(serializer, VLenUTF8Codec | VLenBytesCodec):
        return
    count = int.from_bytes(data[:COUNT_BYTES].to_bytes(), "little")
    if count != elements:
        raise ValueError(f"it says it has {count} elements, but {elements} are expected")


def _serialized_bound(codec: Codec, spec: ArraySpec) -> int | None:
    if codec.is_fixed_size and likely_bound(spec) is not None:
        raw = prod(spec.shape) * spec.dtype.to_native_dtype().itemsize
        return int(codec.compute_encoded_size(raw, spec))
    return likely_bound(spec)


def exact_decompressor(codec: Any, nbytes: int) -> ExactDecompress | None:
    """A function that undoes `codec` if the result has exactly `nbytes` bytes; None if only the codec can.

    It takes encoded bytes and memory of that size, which a chunk up to `LARGEST_COPIED` does not need. It
    returns the filled memory, or another object that holds exactly as many bytes.

    >>> exact_decompressor(ZstdCodec(), 4) is None
    False
    """
    kind = type(codec)
    if not nbytes or kind not in (ZstdCodec, BloscCodec, GzipCodec):
        return None

    def unpack(data: Any, memory: Bytes | None) -> Any:
        if kind is BloscCodec and _blosc_content(data, nbytes) == nbytes:
            return blosc.decompress(data, memory if nbytes > LARGEST_COPIED else None)
        if kind is ZstdCodec and zstd_content(data) == nbytes:
            if nbytes > LARGEST_COPIED:
                return zstd.decompress(data, memory)
            with suppress(zstandard.ZstdError):  # then it says below what is wrong
                return _zstd_decompressor().decompress(data, allow_extra_data=False)
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


def decompress_zstd_frames(data: Any, most: int) -> bytes:
    """The content of zstd frames; more than `most` bytes are an error.

    >>> decompress_zstd_frames(zstd.compress(b"intar") + zstd.compress(b"sia"), 8)
    b'intarsia'
    """
    if not len(data):
        raise ValueError("there are no bytes, not even an empty zstd frame")
    if (zstd_content(data) or 0) > most:
        raise _too_much(most)
    decompressor, contents, rest = _zstd_decompressor(), [], data
    try:
        if zstd_content(data):
            with suppress(zstandard.ZstdError):  # several frames, or damage: then it says below what is wrong
                return bytes(decompressor.decompress(data, allow_extra_data=False))
        if len(decompressor.stream_reader(data, read_across_frames=True).read(most + 1)) > most:
            raise _too_much(most)
        while len(rest):
            frame = decompressor.decompressobj()
            contents.append(frame.decompress(rest))
            if not frame.eof:
                raise ValueError(f"the zstd data is cut off: only {len(data)} bytes of it are left")
            rest = frame.unused_data
    except zstandard.ZstdError as error:
        raise ValueError(f"the zstd data is damaged: {error}") from error
    return b"".join(contents)


def decompress_zstd_together(frames: list[Any], nbytes: int) -> list[Any] | None:
    """The contents of frames that have `nbytes` bytes each, decompressed in one call outside Python.

    None if it is not certain beforehand that every chunk is one frame, alone and of this size, in one block,
    as compressors write small chunks: python-zstandard would pass over bytes after a frame.

    >>> frames = [zstd.compress(b"intarsia"), zstd.compress(b"is wood.")]
    >>> b"".join(decompress_zstd_together(frames, 8)) if HAS_BATCHES else b"intarsiais wood."
    b'intarsiais wood.'
    """
    if not HAS_BATCHES or zstd_content(frames[0]) != nbytes:
        return None
    header = zstandard.frame_header_size(frames[0])
    width = header + ZSTD_BLOCK_HEADER
    begin = b"".join([memoryview(frame)[:width] for frame in frames])
    if len(begin) != width * len(frames):
        return None
    heads = np.frombuffer(begin, dtype=np.uint8).reshape(-1, width)
    block = heads[:, header:] @ np.array([1, 1 << 8, 1 << 16])
    checksum = ZSTD_CHECKSUM if zstandard.get_frame_parameters(frames[0]).has_checksum else 0
    length = width + np.where(block >> 1 & 3 == ZSTD_REPEATED, 1, block >> 3) + checksum
    is_alone = (block & 1 == 1) & (length == [len(frame) for frame in frames])
    if not (is_alone.all() and (heads[:, :header] == heads[0, :header]).all()):
        return None
    sizes = np.full(len(frames), nbytes, dtype=np.uint64)
    return list(_zstd_decompressor().multi_decompress_to_buffer(frames, sizes, 1))


_own = threading.local()


def _zstd_decompressor() -> Any:
    """The decompressor of this thread, which keeps its memory."""
    if not hasattr(_own, "zstd"):
        _own.zstd = zstandard.ZstdDecompressor()
    return _own.zstd


def zstd_content(data: Any) -> int | None:
    """The size of a zstd frame's content, if its header says so; otherwise None.

    >>> zstd_content(zstd.compress(b"intarsia"))
    8
    """
    try:
        size: int = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        return None
    return None if size < 0 else size


def _gzip(_codec: Any, data: Any, most: int) -> Any:
    content = _inflated("gzip_decompress", data, most)
    if content is not None:
        # libdeflate has compared the end of the member with its content, and passes over bytes after it.
        trailer = GZIP_TRAILER.pack(deflate.crc32(content), len(content))
        if bytes(data).find(trailer) == len(data) - GZIP_TRAILER.size:
            return content
    stream = zlib.decompressobj(GZIP)
    unpacked = _within(stream.decompress(data, most + 1), most)  # one more, to reach the end of the stream
    if stream.eof and not stream.unused_data:
        return unpacked
    return _read(gzip.GzipFile(fileobj=io.BytesIO(data)), most)  # several members, or padding, or damage


def _zlib(_codec: Any, data: Any, most: int) -> Any:
    content = _inflated("zlib_decompress", data, most)
    if content is not None:
        return content
    stream = zlib.decompressobj()
    unpacked = _within(stream.decompress(data, most + 1), most)
    if not stream.eof:
        raise ValueError(f"the zlib data is cut off: only {len(data)} bytes of it are left")
    return unpacked


def _inflated(function: str, data: Any, most: int) -> Any:
    """At most so many bytes by libdeflate; None if it is not there, and for all that it does not take."""
    if deflate is None or not 0 < most <= LARGEST_INFLATED:
        return None
    try:
        return getattr(deflate, function)(data, most)
    except deflate.DeflateError:
        return None


def _bz2(_codec: Any, data: Any, most: int) -> Any:
    return _read(bz2.BZ2File(io.BytesIO(data)), most)


def _lzma(codec: Any, data: Any, most: int) -> Any:
    inside = numcodec(codec)
    return _read(lzma.LZMAFile(io.BytesIO(data), format=inside.format, filters=inside.filters), most)


def _read(file: Any, most: int) -> bytes:
    with file:
        try:
            return _within(file.read(most + 1), most)
        except EOFError as error:
            raise ValueError(f"the compressed data is cut off: {error}") from error


def _within(unpacked: bytes, most: int) -> bytes:
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
