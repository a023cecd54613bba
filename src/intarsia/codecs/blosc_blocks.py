"""blosc without the steps around it, where numcodecs shows what it has of blosc; elsewhere numcodecs does it.

blosc cuts what it compresses into blocks, of 256 KiB and more, and can decompress those alone that some
elements lie in. numcodecs has this in its library, and no function for it. For small chunks, what numcodecs
does before it calls the library takes a tenth of the time.

Who calls this has made sure that the data is all there: blosc believes its header.
"""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np
from numcodecs import blosc

ONE_THREAD_BYTES = 1 << 20
"""Larger chunks are left to numcodecs, which may decompress the blocks of one in several threads."""


def getter(library: Any) -> Callable[[Any, int, int, np.ndarray[Any, Any]], None]:
    """How to get elements with a library, into memory that they fill."""
    run = library.blosc_getitem
    run.argtypes, run.restype = [c_void_p, c_int, c_int, c_void_p], c_int

    def get(data: Any, first: int, count: int, memory: np.ndarray[Any, Any]) -> None:
        view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
        got = run(view.ctypes.data, first, count, memory.ctypes.data)
        if got != memory.nbytes:
            raise RuntimeError(f"error during blosc decompression: {got}")

    return get


def decompressor(library: Any) -> Callable[[Any, np.ndarray[Any, Any]], None]:
    """How to decompress with a library, into memory that the data fills."""
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


def _found() -> tuple[Callable[[Any, int, int, Any], None] | None, Callable[[Any, Any], Any]]:
    try:
        library = ctypes.CDLL(blosc.__file__)
        return getter(library), decompressor(library)
    except (OSError, AttributeError):
        return None, blosc.decompress


get_elements, decompress = _found()
"""The first decompresses so many elements from one on, of blosc data that is all there; None where nobody
can. The second decompresses all of it into memory of exactly its size."""
