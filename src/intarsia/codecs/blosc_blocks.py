"""Some blocks of blosc data, where numcodecs shows what it has of blosc; elsewhere chunks come as a whole.

blosc cuts what it compresses into blocks, of 256 KiB and more, and can decompress those alone that some
elements lie in. numcodecs has this in its library, and no function for it.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numcodecs import blosc


def getter(library: Any) -> Callable[[Any, int, int, np.ndarray[Any, Any]], None]:
    """How to get elements with a library, into memory that they fill."""
    run, integer, memory = library.blosc_getitem, ctypes.c_int, ctypes.c_void_p
    run.argtypes, run.restype = [memory, integer, integer, memory], integer

    def get(data: Any, first: int, count: int, memory: np.ndarray[Any, Any]) -> None:
        view = np.frombuffer(data, dtype=np.uint8)  # held until the call returns
        got = run(view.ctypes.data, first, count, memory.ctypes.data)
        if got != memory.nbytes:
            raise RuntimeError(f"error during blosc decompression: {got}")

    return get


def _found() -> Callable[[Any, int, int, Any], None] | None:
    try:
        return getter(ctypes.CDLL(blosc.__file__))
    except (OSError, AttributeError):
        return None


get_elements = _found()
"""Decompress so many elements from one on, of blosc data that is all there; None where nobody can."""
