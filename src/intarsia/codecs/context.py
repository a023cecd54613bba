"""Which chunk am I? The index of the chunk being encoded or decoded, for codecs and their functions.

zarr calls a codec without telling it which chunk it works on. Whoever does know sets the index for
the time of the call with `working_on`; codecs read it with `current_chunk_index`. A context variable
carries it, so concurrent chunks never see each other's index.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from intarsia.errors import ChunkIndexUnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["asks_for", "current_chunk_index", "named_chunk", "working_on"]

_chunk_index: ContextVar[tuple[int, ...] | None] = ContextVar("intarsia_chunk_index", default=None)


@contextmanager
def working_on(chunk_index: tuple[int, ...] | None) -> Iterator[None]:
    """Say which chunk is being worked on, for the time of the `with` block.

    >>> with working_on((3, 1)):
    ...     current_chunk_index()
    (3, 1)
    """
    token = _chunk_index.set(chunk_index)
    try:
        yield
    finally:
        _chunk_index.reset(token)


def current_chunk_index() -> tuple[int, ...]:
    """The index in the chunk grid of the chunk being worked on.

    >>> with working_on((0,)):
    ...     current_chunk_index()
    (0,)
    """
    index = _chunk_index.get()
    if index is None:
        raise ChunkIndexUnknownError(
            "a function asks for chunk_index, but the codec pipeline in use does not tell it.\n"
            "  Use one that does: zarr.config.set({'codec_pipeline.path': "
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
    index = _chunk_index.get()
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
