"""Every exception intarsia raises on purpose, for callers who want to catch one.

Each class is also the built-in exception that a caller would expect, so
`except ValueError` works as well as `except IntarsiaError`::

    IntarsiaError
    ├── CodecConfigurationError (ValueError)
    ├── ChunkEncodeError (ValueError)
    ├── ChunkDecodeError (ValueError)
    ├── ChunkIndexUnknownError (LookupError)
    └── MissingExtraError (ImportError)
"""

from __future__ import annotations

__all__ = [
    "ChunkDecodeError",
    "ChunkEncodeError",
    "ChunkIndexUnknownError",
    "CodecConfigurationError",
    "IntarsiaError",
    "MissingExtraError",
]


class IntarsiaError(Exception):
    """Root of every exception that intarsia raises on purpose.

    >>> issubclass(ChunkDecodeError, IntarsiaError)
    True
    """


class CodecConfigurationError(IntarsiaError, ValueError):
    """A codec's configuration, in Python or in zarr.json, is not valid.

    >>> from intarsia.codecs import PadCodec
    >>> PadCodec(location="middle", nbytes=1)
    Traceback (most recent call last):
    ...
    intarsia.errors.CodecConfigurationError: codec 'pad': location: 'middle' is not one of ['start', 'end']
    """


class ChunkEncodeError(IntarsiaError, ValueError):
    """A chunk cannot be encoded; nothing was written for it.

    >>> issubclass(ChunkEncodeError, ValueError)
    True
    """


class ChunkDecodeError(IntarsiaError, ValueError):
    """A stored chunk is damaged or was written by something else.

    >>> issubclass(ChunkDecodeError, ValueError)
    True
    """


class ChunkIndexUnknownError(IntarsiaError, LookupError):
    """A function asked which chunk it works on, and nobody can tell.

    >>> from intarsia.codecs.context import current_chunk_index
    >>> current_chunk_index()
    Traceback (most recent call last):
    ...
    intarsia.errors.ChunkIndexUnknownError: ...
    """


class MissingExtraError(IntarsiaError, ImportError):
    """An optional dependency is not installed; the message names the pip command.

    >>> str(MissingExtraError("xarray", "xarray"))
    "xarray is not installed: pip install 'intarsia[xarray]'"
    """

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed: pip install 'intarsia[{extra}]'", name=module)
        self.extra = extra
