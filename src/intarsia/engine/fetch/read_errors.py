"""The errors of chunks that cannot be read, in any store: which chunk, which file, and what to authorise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import icechunk
import numpy as np
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.display import common_prefix, storage_hint
from intarsia.engine.fetch.store import read_part
from intarsia.errors import NotAuthorizedError, ReadError, advice, signal_failure

NOT_AUTHORISED = re.compile(r"resolves to the url prefix (\S+), to be able to fetch")


NO_CONTAINER = re.compile(r"no virtual chunk container can handle the chunk location \((\S+)\)")


GONE = ("not found", "no such file")
"""What storage says about a file that is not there."""

CHANGED = "checksum of the object owning the virtual chunk has changed"
"""What Icechunk says about a file that is not the one that was ingested."""


def virtual_chunk_url(store: Any, path: str, index: tuple[int, ...] | None) -> str | None:
    """The URL of the file that holds a virtual chunk; None if the chunk is not virtual, or this is unknown.

    >>> virtual_chunk_url({}, "t/m-1", (0, 0)) is None
    True
    """
    if index is None or not isinstance(store, icechunk.IcechunkStore):
        return None
    try:
        table = chunk_table(store, path, len(index))
        virtual = ((table.index == index).all(axis=1) & (table.kind == VIRTUAL)).nonzero()[0]
        return table.location[virtual[0]] if virtual.size else None
    except Exception:  # the message is about another error, which must not be lost because of this one
        return None


def read_error(
    what: str, error: Exception, store: Any, path: str, index: tuple[int, ...] | None
) -> ReadError:
    """Our error for a chunk that cannot be read, with its cause in helpful words.

    If the program's own signal handler raised the error, that is raised instead.

    >>> read_error("cannot read [0:4]", ValueError("bad bytes"), {}, "t/m-1", (0,))
    ReadError('cannot read [0:4]: bad bytes')
    """
    interrupt = signal_failure(error)
    if interrupt is not None:
        raise interrupt
    if isinstance(error.__cause__, icechunk.IcechunkError):  # zarr took it for the error of a codec
        error = error.__cause__
    text = f"{what}: {read_failure_text(error, store, path, index)}"
    prefix = refused_prefix(error, store)
    return ReadError(text) if prefix is None else NotAuthorizedError(text, prefix)


def refused_prefix(error: Exception, store: Any) -> str | None:
    """The prefix that a repository must be allowed to read, if its refusal is the error; one for all sources.

    >>> refused_prefix(ValueError("bad bytes"), {}) is None
    True
    """
    if not isinstance(error, icechunk.IcechunkError):
        return None
    unknown = NO_CONTAINER.search(str(error))
    if unknown:  # the handle was opened before the repository had a container for it
        return unknown[1].rsplit("/", 1)[0] + "/"
    refused = NOT_AUTHORISED.search(str(error))
    if refused is None:
        return None
    known = store.session.config.virtual_chunk_containers or {}
    root = "/".join(refused[1].split("/")[:3]) + "/"
    return common_prefix([refused[1], *(each for each in known if each.startswith(root))]) or refused[1]


@contextmanager
def explain_refusals(store: Any, path: str) -> Iterator[None]:
    """Around reads of stored chunks: for files that may not be read, raise `NotAuthorizedError`.

    >>> with explain_refusals({}, "t/m-1"):
    ...     pass
    """
    try:
        yield
    except icechunk.IcechunkError as error:
        if refused_prefix(error, store) is None:
            raise
        raise read_error(f"{path} cannot be read", error, store, path, None) from error


def check_access(store: Any, arrays: Iterable[tuple[str, int]]) -> None:
    """Raise an error, before anything is read, if these arrays refer to files that may not be read.

    Arrays are given by path and number of axes. For each container, one byte of one chunk is requested.

    >>> check_access({}, [("t/m-1", 2)])
    """
    if not isinstance(store, icechunk.IcechunkStore):
        return
    left = set(store.session.config.virtual_chunk_containers or ()) or {""}
    for path, ndim in arrays:
        if not left:
            return
        table = chunk_table(store, path, ndim)
        for row in np.flatnonzero(table.kind == VIRTUAL).tolist():
            met = {prefix for prefix in left if table.location[row].startswith(prefix)}
            if not met:
                continue
            left -= met
            key = "/".join([path, "c", *map(str, table.index[row].tolist())])
            # Any other error is reported to those who read it.
            with suppress(icechunk.IcechunkError), explain_refusals(store, path):
                read_part(store, key, default_buffer_prototype(), RangeByteRequest(0, 1))


def read_failure_text(error: Exception, store: Any, path: str, index: tuple[int, ...] | None) -> str:
    """What is wrong with a chunk, in helpful words.

    >>> read_failure_text(ValueError("bad bytes"), {}, "t/m-1", (0,))
    'bad bytes'
    """
    text = str(error).split("\n\ncontext:")[0].strip()  # the call chain inside Icechunk
    place = virtual_chunk_url(store, path, index)
    if place is not None and place not in text:
        text = f"{text} ({place})"
    if place is not None and any(words in text.lower() for words in GONE):
        folder = place.rpartition("/")[0]
        text += "\n  If it has moved, say so: " + advice(
            f"intarsia.archives.relocate(store, {{{folder!r}: 'NEW_PLACE'}})",
            f"intarsia relocate STORE {folder}=NEW_PLACE",
        )
    if CHANGED in text:
        again = advice("replace=True", "--replace")
        text += f"\n  The file has changed since it was ingested: restore it, or ingest it again with {again}"
    if not isinstance(error, icechunk.IcechunkError):
        return text
    prefix = refused_prefix(error, store)
    if prefix is not None:
        return (
            f"{place or 'its source'} may not be read: the repository is not authorised to read below "
            f"{prefix}.\n  If you trust it, say so where you open it: authorize=[{prefix!r}], or "
            f"authorize=True for all that it names; or repo = intarsia.archives.authorize(repo, [{prefix!r}])"
        )
    return text + storage_hint(text)
