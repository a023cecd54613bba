"""Why a chunk could not be read, for messages: names the file behind a virtual chunk, and what to do."""

from __future__ import annotations

import re
from typing import Any

import icechunk

from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.words import storage_hint

__all__ = ["origin", "reason"]

NOT_AUTHORISED = re.compile(r"resolves to the url prefix (\S+), to be able to fetch")


def origin(store: Any, path: str, index: tuple[int, ...] | None) -> str | None:
    """The URL of the file that holds a virtual chunk; None if the chunk is not virtual, or nobody knows.

    >>> origin({}, "t/m-1", (0, 0)) is None
    True
    """
    if index is None or not isinstance(store, icechunk.IcechunkStore):
        return None
    try:
        table = chunk_table(store, path, len(index))
        virtual = ((table.index == index).all(axis=1) & (table.kind == VIRTUAL)).nonzero()[0]
        return table.location[virtual[0]] if virtual.size else None
    except Exception:  # the message is about another error, and must not be lost for this one
        return None


def reason(error: Exception, store: Any, path: str, index: tuple[int, ...] | None) -> str:
    """What is wrong with a chunk, in words that help.

    >>> reason(ValueError("bad bytes"), {}, "t/m-1", (0,))
    'bad bytes'
    """
    text = str(error)
    if not isinstance(error, icechunk.IcechunkError):
        return text
    text = text.split("\n\ncontext:")[0].strip()  # the call chain inside Icechunk
    place = origin(store, path, index)
    if place is not None and place not in text:
        text = f"{text} ({place})"
    refused = NOT_AUTHORISED.search(text)
    if refused:
        return (
            f"{place or 'its source'} may not be read: nobody authorised the repository to read below "
            f"{refused[1]}.\n  If you trust it: repo = intarsia.authorize(repo, [{refused[1]!r}])"
        )
    return text + storage_hint(text)
