"""Decoded chunks that a handle keeps, if it was asked to: of snapshots alone, where no chunk can change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from intarsia.array.source import EngineSource
    from intarsia.array.values import Values
    from intarsia.array.work import Work


class ChunkCache:
    """The chunks that were used last, up to so many bytes of them.

    Members keep their names for ever, and a chunk of a snapshot its content: a path and a position are enough
    to know it by. Whoever writes, writes to another session.

    >>> ChunkCache(1000).nbytes
    0
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._chunks: OrderedDict[tuple[str, int], np.ndarray[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0
        """How many there are now."""

    def get(self, source: EngineSource, chunk: int) -> np.ndarray[Any, Any] | None:
        """A chunk, if it is here; not to be changed."""
        key = source.path, chunk
        with self._lock:
            values = self._chunks.get(key)
            if values is not None:
                self._chunks.move_to_end(key)
            return values

    def keep(self, source: EngineSource, chunk: int, values: Values) -> None:
        """Take in a copy of a chunk; those that nobody has used for longest make room for it."""
        if not isinstance(values, np.ndarray) or values.nbytes > self._most_bytes:
            return
        kept = values.copy()
        with self._lock:
            before = self._chunks.pop((source.path, chunk), None)
            self._chunks[source.path, chunk] = kept
            self.nbytes += kept.nbytes - (0 if before is None else before.nbytes)
            while self.nbytes > self._most_bytes:
                self.nbytes -= self._chunks.popitem(last=False)[1].nbytes

    def place(self, work: Work) -> None:
        """Put what is here of a part into its output; it need not be fetched any more."""
        found = {k: self.get(work.source, int(work.chunks[k])) for k in work.present.tolist()}
        here = np.array([k for k, values in found.items() if values is not None], dtype=np.int64)
        if not here.size:
            return
        each = here.tolist(), work.placements(here), work.packings(here)
        for k, (target, inside), packing in zip(*each, strict=True):
            work.put(found[k], target, inside, packing)
        work.present = np.setdiff1d(work.present, here, assume_unique=True)
