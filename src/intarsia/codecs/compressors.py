"""zstd, gzip and blosc through the libraries themselves, if they exist, without the steps around them.

numcodecs makes a zstd context for every chunk, which takes a fifth of the time of reading a chunk of 64 KiB;
here every thread keeps one. libdeflate inflates in three quarters of the time of isal, right to where the
bytes belong, and compresses in less than half the time of zlib, to fewer bytes. What numcodecs does before it
calls blosc takes a tenth of the time of small chunks. blosc also cuts what it compresses into blocks of
256 KiB and more, and can decompress only those that hold some elements; numcodecs has this in its library,
but no function for it.

Without such libraries, numcodecs, isal and the standard library do the work. Callers of blosc must make sure
that the data is complete: blosc believes its header.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_char, c_int, c_size_t, c_void_p
from typing import Any, NamedTuple

import numpy as np
from numcodecs import blosc, zstd

LIBRARIES = {
    "linux": ("libzstd.so.1", "libdeflate.so.0"),
    "darwin": ("libzstd.1.dylib", "libdeflate.0.dylib"),
}

ONE_THREAD_BYTES = 1 << 20
"""Larger chunks are left to numcodecs, which may decompress the blocks of one in several threads."""


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


def zstd_decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
    """A function that decompresses one frame with libzstd into memory that it fills."""
    make, free = library.ZSTD_createDCtx, library.ZSTD_freeDCtx
    library.ZSTD_isError.argtypes = library.ZSTD_getErrorName.argtypes = [c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    run = library.ZSTD_decompressDCtx
    run.argtypes, run.restype = [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t], c_size_t
    own = threading.local()

    def decompress(data: Any, memory: np.ndarray[Any, Any]) -> None:
        context = getattr(own, "context", None)
        if context is None:
            context = own.context = _Context(make, free)
        into = byref(c_char.from_buffer(memory))
        if type(data) is not bytes:
            view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
            count = run(context.address, into, memory.nbytes, view.ctypes.data, view.nbytes)
        else:
            count = run(context.address, into, memory.nbytes, data, len(data))
        if count == memory.nbytes:
            return
        if library.ZSTD_isError(count):
            raise RuntimeError(f"Zstd decompression error: {library.ZSTD_getErrorName(count).decode()}")
        raise RuntimeError(f"Zstd decompression error: {count} bytes came out, not {memory.nbytes}")

    return decompress


def inflater(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], bool]:
    """A function that undoes gzip with libdeflate; says whether a single member filled the memory.

    Anything else, including damage, is left to code that can say what it is.
    """
    make, free = library.libdeflate_alloc_decompressor, library.libdeflate_free_decompressor
    run = library.libdeflate_gzip_decompress_ex
    run.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]
    run.restype = c_int
    own = threading.local()

    def inflate(data: Any, memory: np.ndarray[Any, Any]) -> bool:
        context = getattr(own, "context", None)
        if context is None:
            context = own.context = _Context(make, free)
        content = data if type(data) is bytes else bytes(data)
        taken = c_size_t()
        # Without a place for the size of the output, it must be exactly as large as the memory.
        into = byref(c_char.from_buffer(memory))
        failed = run(context.address, content, len(content), into, memory.nbytes, byref(taken), None)
        return not failed and taken.value == len(content)

    return inflate


def deflater(library: Any) -> Callable[[Any, int], bytes]:
    """A function that makes one gzip member with libdeflate, at a level of zlib."""
    make, free = library.libdeflate_alloc_compressor, library.libdeflate_free_compressor
    bound, run = library.libdeflate_gzip_compress_bound, library.libdeflate_gzip_compress
    bound.argtypes, bound.restype = [c_void_p, c_size_t], c_size_t
    run.argtypes, run.restype = [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t], c_size_t
    own = threading.local()

    def compress(data: Any, level: int) -> bytes:
        name = f"level_{level}"  # a context for every level that this thread has used
        context = getattr(own, name, None)
        if context is None:
            context = _Context(make, free, level)
            setattr(own, name, context)
        view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
        room = np.empty(bound(context.address, view.nbytes), dtype=np.uint8)
        count = run(context.address, view.ctypes.data, view.nbytes, room.ctypes.data, room.nbytes)
        if not count:
            raise RuntimeError(f"libdeflate could not compress {view.nbytes} bytes at level {level}")
        return room[:count].tobytes()

    return compress


def blosc_getter(library: Any) -> Callable[[Any, int, int, np.ndarray[Any, Any]], None]:
    """A function that gets elements of blosc data with a library, into memory that they fill."""
    run = library.blosc_getitem
    run.argtypes, run.restype = [c_void_p, c_int, c_int, c_void_p], c_int

    def get(data: Any, first: int, count: int, memory: np.ndarray[Any, Any]) -> None:
        view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
        got = run(view.ctypes.data, first, count, memory.ctypes.data)
        if got != memory.nbytes:
            raise RuntimeError(f"error during blosc decompression: {got}")

    return get


def blosc_decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
    """A function that decompresses blosc data with a library, into memory that the data fills."""
    run = library.blosc_decompress_ctx
    run.argtypes, run.restype = [c_void_p, c_void_p, c_size_t, c_int], c_int

    def decompress(data: Any, memory: np.ndarray[Any, Any]) -> None:
        if type(data) is not bytes or memory.nbytes > ONE_THREAD_BYTES:
            blosc.decompress(data, memory)
            return
        got = run(data, byref(c_char.from_buffer(memory)), memory.nbytes, 1)
        if got != memory.nbytes:
            raise RuntimeError(f"error during blosc decompression: {got}")

    return decompress


def _nobody(_data: Any, _memory: Any) -> bool:
    """Used without libdeflate."""
    return False


type Decompress = Callable[[Any, Any], Any]


class Libraries(NamedTuple):
    """The functions that compress and decompress here."""

    decompress_zstd: Decompress = zstd.decompress
    inflate: Callable[[Any, Any], bool] = _nobody
    deflate: Callable[[Any, int], bytes] | None = None
    decompress_blosc: Decompress = blosc.decompress
    blosc_elements: Callable[[Any, int, int, Any], None] | None = None


def _found() -> Libraries:
    # Another system, no library, or another library of that name: then we do without it.
    libraries = Libraries()
    zstd_name, deflate_name = LIBRARIES.get(sys.platform, ("no libzstd", "no libdeflate"))
    with suppress(OSError, AttributeError):
        libraries = libraries._replace(decompress_zstd=zstd_decompressor(ctypes.CDLL(zstd_name)))
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(deflate_name)
        libraries = libraries._replace(inflate=inflater(library), deflate=deflater(library))
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(blosc.__file__)
        libraries = libraries._replace(
            blosc_elements=blosc_getter(library), decompress_blosc=blosc_decompressor(library)
        )
    return libraries


decompress_zstd, inflate, deflate, decompress_blosc, blosc_elements = _found()
"""The first decompresses a zstd frame into memory of exactly its size, and raises RuntimeError if it does not
fit. The second does the same with gzip, and says whether it could; the third makes a gzip member at a level,
and is None if only numcodecs can. The fourth decompresses blosc data; the last decompresses a number of its
elements, from one on, and is None if that is impossible."""
