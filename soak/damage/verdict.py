"""What may come of reading something that is damaged, and what may not."""

import traceback

import numpy as np

from intarsia.errors import IntarsiaError
from soak.target import Wrong

MAX_TEXT = 20_000
"""Characters of an error that somebody can still read."""


def judged(read, shape, dtype, *names, declared=False):
    """What came of a read: refused in our words, which name one of `names`, or values of the right shape.

    Where the size of a chunk is `declared` by what is damaged, there may be too little memory for it.
    """
    try:
        found = read()
    except IntarsiaError as error:
        return refused(error, names, declared)
    if found is None:
        return "read"
    values = np.asanyarray(found)
    if values.shape != tuple(shape):
        raise Wrong(f"the shape is {values.shape}, not {shape}")
    if dtype is not None and values.dtype != dtype:
        raise Wrong(f"the data type is {values.dtype}, not {dtype}")
    return "read"


def refused(error, names, declared=False):
    """An error of ours: it must name what is damaged, and it must not be that memory ran out."""
    text = str(error)
    below = error
    while below is not None:
        if isinstance(below, MemoryError) and not declared:
            raise Wrong(f"it asked for more memory than there may be: {text[:500]}") from error
        below = below.__cause__ or below.__context__
    if len(text) > MAX_TEXT:
        raise Wrong(f"the error has {len(text)} characters: {text[:500]}") from error
    if not any(c.isprintable() or c in "\n\t" for c in text) or "\x1b" in text:
        raise Wrong(f"the error holds what a terminal obeys: {text[:500]!r}") from error
    if names and not any(name in text for name in names):
        raise Wrong(f"the error names none of {names[:5]}: {text[:1500]}") from error
    return "refused"


def last_line(error):
    return "".join(traceback.format_exception_only(error)).strip()
