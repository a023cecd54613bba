"""zstd and gzip with decompression contexts that are kept, one a thread, where the system has the libraries.

numcodecs makes a context of zstd for every chunk, which takes a fifth of the time of a chunk of 64 KiB;
libdeflate takes three quarters of the time of isal, and writes right where the bytes belong. Where there are
no such libraries, numcodecs, isal and the standard library do it.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_char, c_size_t, c_void_p
from typing import Any

import numpy as np
from numcodecs import zstd

LIBRARIES = {
    "linux": ("libzstd.so.1", "libdeflate.so.0"),
    "darwin": ("libzstd.1.dylib", "libdeflate.0.dylib"),
}


class _Context:
    """Memory that a library works in; given back with the thread that it belongs to."""

    def __init__(self, make: Any, free: Any) -> None:
        make.restype, free.argtypes = c_void_p, [c_void_p]
        self._free = free
        self.address = make()
        if not self.address:
            raise MemoryError("there is no memory for a context for decompression")

    def __del__(self) -> None:
        self._free(self.address)


def decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
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
    run.restype = ctypes.c_int
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


def _nobody(_data: Any, _memory: Any) -> bool:
    """Where libdeflate is not there."""
    return False


def _found() -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], bool]]:
    # Another system, no library, or another one of that name: each is done without.
    unzstd: Callable[[Any, Any], Any] = zstd.decompress
    inflate: Callable[[Any, Any], bool] = _nobody
    zstd_name, deflate_name = LIBRARIES.get(sys.platform, ("no libzstd", "no libdeflate"))
    with suppress(OSError, AttributeError):
        unzstd = decompressor(ctypes.CDLL(zstd_name))
    with suppress(OSError, AttributeError):
        inflate = inflater(ctypes.CDLL(deflate_name))
    return unzstd, inflate


decompress, inflate = _found()
"""The first decompresses a zstd frame into memory of exactly its size, and raises RuntimeError if it does not
fit. The second does the same with gzip, and says whether it could."""
