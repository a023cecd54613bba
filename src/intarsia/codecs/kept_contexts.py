"""zstd with decompression contexts that are kept, one a thread, where the system has its library.

numcodecs makes a context for every chunk, which takes a fifth of the time of a chunk of 64 KiB. Where there
is no such library, numcodecs does it.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numcodecs import zstd

LIBRARIES = {"linux": "libzstd.so.1", "darwin": "libzstd.1.dylib"}


class _Context:
    """Memory that libzstd works in; given back with the thread that it belongs to."""

    def __init__(self, library: Any) -> None:
        self._free = library.ZSTD_freeDCtx
        self.address = library.ZSTD_createDCtx()
        if not self.address:
            raise MemoryError("zstd cannot allocate a context for decompression")

    def __del__(self) -> None:
        self._free(self.address)


def decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
    """How to decompress one frame with a library into memory that it fills."""
    library.ZSTD_createDCtx.restype = ctypes.c_void_p
    library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
    library.ZSTD_isError.argtypes = library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    run = library.ZSTD_decompressDCtx
    memory, size = ctypes.c_void_p, ctypes.c_size_t
    run.argtypes, run.restype = [memory, memory, size, memory, size], size
    own = threading.local()

    def decompress(data: Any, memory: np.ndarray[Any, Any]) -> None:
        context = getattr(own, "context", None)
        if context is None:
            context = own.context = _Context(library)
        if type(data) is not bytes:
            view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
            count = run(context.address, memory.ctypes.data, memory.nbytes, view.ctypes.data, view.nbytes)
        else:
            count = run(context.address, memory.ctypes.data, memory.nbytes, data, len(data))
        if count == memory.nbytes:
            return
        if library.ZSTD_isError(count):
            raise RuntimeError(f"Zstd decompression error: {library.ZSTD_getErrorName(count).decode()}")
        raise RuntimeError(f"Zstd decompression error: {count} bytes come out, not {memory.nbytes}")

    return decompress


def _found() -> Callable[[Any, Any], Any]:
    try:
        return decompressor(ctypes.CDLL(LIBRARIES[sys.platform]))
    except (KeyError, OSError, AttributeError):  # another system, no library, or another one of that name
        return zstd.decompress  # type: ignore[no-any-return]


decompress = _found()
"""Decompress a zstd frame into memory of exactly its size; raises RuntimeError if it does not fit."""
