"""zstd, gzip and blosc by the libraries themselves, where they are, without the steps around them.

numcodecs makes a context of zstd for every chunk, which takes a fifth of the time it takes to read a chunk of
64 KiB; here every thread keeps one. libdeflate inflates in three quarters of the time of isal, right to where
the bytes belong, and compresses in less than half of the time of zlib, to fewer bytes. What numcodecs does
before it calls blosc takes a tenth of the time of small chunks. blosc also cuts what it compresses into
blocks, of 256 KiB and more, and can decompress those alone that some elements lie in; numcodecs has this in
its library, and no function for it.

Where there are no such libraries, numcodecs, isal and the standard library do it. Who calls blosc has made
sure that the data is all there: blosc believes its header.
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
    """Memory that a library works in; given back with the thread that it belongs to."""

    def __init__(self, make: Any, free: Any, *arguments: int) -> None:
        make.restype, free.argtypes = c_void_p, [c_void_p]
        self._free = free
        self.address = make(*arguments)
        if not self.address:
            raise MemoryError("there is no memory for a context for compression")

    def __del__(self) -> None:
        self._free(self.address)


def zstd_decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
    """How to decompress one frame with libzstd into memory that it fills."""
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
        raise RuntimeError(f"Zstd decompression error: {count} bytes come out, not {memory.nbytes}")

    return decompress


def inflater(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], bool]:
    """How to undo gzip with libdeflate: whether memory was filled by one member that is all there is.

    Anything else, damage too, is left to somebody who can say what it is.
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
        # Without a place for the number of bytes that come out, they must be as many as there is room for.
        into = byref(c_char.from_buffer(memory))
        failed = run(context.address, content, len(content), into, memory.nbytes, byref(taken), None)
        return not failed and taken.value == len(content)

    return inflate


def deflater(library: Any) -> Callable[[Any, int], bytes]:
    """How to make one member of gzip with libdeflate, at a level of zlib's."""
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
    """How to get elements of blosc data with a library, into memory that they fill."""
    run = library.blosc_getitem
    run.argtypes, run.restype = [c_void_p, c_int, c_int, c_void_p], c_int

    def get(data: Any, first: int, count: int, memory: np.ndarray[Any, Any]) -> None:
        view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
        got = run(view.ctypes.data, first, count, memory.ctypes.data)
        if got != memory.nbytes:
            raise RuntimeError(f"error during blosc decompression: {got}")

    return get


def blosc_decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
    """How to decompress blosc data with a library, into memory that the data fills."""
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
    """Where libdeflate is not there."""
    return False


type Decompress = Callable[[Any, Any], Any]


class Libraries(NamedTuple):
    """Who compresses and decompresses here."""

    decompress_zstd: Decompress = zstd.decompress
    inflate: Callable[[Any, Any], bool] = _nobody
    deflate: Callable[[Any, int], bytes] | None = None
    decompress_blosc: Decompress = blosc.decompress
    blosc_elements: Callable[[Any, int, int, Any], None] | None = None


def _found() -> Libraries:
    # Another system, no library, or another one of that name: each is done without.
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
fit. The second does the same with gzip, and says whether it could; the third makes a member of gzip at a
level, and is None where nobody but numcodecs can. The fourth decompresses blosc data; the last decompresses
so many elements of it, from one on, and is None where nobody can."""
