"""The index of the chunk being encoded or decoded: a context variable, and how to set and read it.

A context variable, because concurrent chunks must never see each other's index.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import zarr

from intarsia.codecs.place import UNKNOWN, GivenPlace, Place
from intarsia.errors import ChunkIndexUnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["asks_for", "at_place", "current_chunk_index", "current_place", "named_chunk", "working_on"]

current_place: ContextVar[Place] = ContextVar("intarsia_place", default=UNKNOWN)
"""Where the chunk being worked on lies."""


@contextmanager
def working_on(chunk_index: tuple[int, ...] | None) -> Iterator[None]:
    """Say which chunk is being worked on, for the time of the `with` block.

    >>> with working_on((3, 1)):
    ...     current_chunk_index()
    (3, 1)
    """
    with at_place(GivenPlace(chunk_index)):
        yield


@contextmanager
def at_place(place: Place) -> Iterator[None]:
    """As `working_on`, for somebody who knows where a chunk lies, but need not know its index.

    >>> from intarsia.codecs.place import UNKNOWN
    >>> with at_place(UNKNOWN):
    ...     named_chunk()
    ''
    """
    token = current_place.set(place)
    try:
        yield
    finally:
        current_place.reset(token)


def current_chunk_index() -> tuple[int, ...]:
    """The index in the chunk grid of the chunk being worked on.

    Inside shards it counts the inner chunks, over the whole array.

    >>> with working_on((0,)):
    ...     current_chunk_index()
    (0,)
    """
    index = current_place.get().index()
    if index is None:
        raise ChunkIndexUnknownError(
            "a function asks for chunk_index, or a plan needs it, but the codec pipeline in use "
            f"({zarr.config.get('codec_pipeline.path')!r}) does not tell it, or not for this array.\n"
            "  Use one that does, and open the array after: zarr.config.set({'codec_pipeline.path': "
            "'intarsia.codecs.context.BatchedPipeline'})"
        )
    return index


def named_chunk() -> str:
    """How an error message names the chunk being worked on: " of chunk (3, 1)", or nothing.

    >>> with working_on((3, 1)):
    ...     named_chunk()
    ' of chunk (3, 1)'
    >>> named_chunk()
    ''
    """
    index = current_place.get().index()
    return "" if index is None else f" of chunk {index}"


def asks_for(function: Callable[..., object], keyword: str) -> bool:
    """Whether `function` takes an argument called `keyword`.

    >>> asks_for(lambda encoded, *, chunk_index: b"", "chunk_index")
    True
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some built-ins have no signature
        return False
    return keyword in parameters


NOTE = "while encoding with"
"""How the note begins that tells which nested codec failed."""


def failed_to_encode(error: BaseException) -> bool:
    """Whether a nested codec raised this while it encoded a chunk.

    >>> failed_to_encode(RuntimeError())
    False
    """
    return any(note.startswith(NOTE) for note in getattr(error, "__notes__", ()))
