"""Decoded chunks that a handle keeps on request: only those of snapshots, where no chunk can change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from intarsia.engine.chunk_plan import ChunkPlan
    from intarsia.engine.prepared_member import EngineMember
    from intarsia.manifest.data_types import Values


class BoundedCache[K: Hashable, V]:
    """Values by name, up to a number of bytes (or of what `size` counts); the least recently used go first.

    >>> cache = BoundedCache(limit=3, size=len)
    >>> cache.put("a", b"xx")
    >>> cache.put("b", b"yy")
    >>> cache.get("a"), cache.get("b")
    (None, b'yy')
    """

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit, self._size = limit, size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0
        """The current number of bytes."""

    def get(self, name: K) -> V | None:
        """The value with this name, if it is still kept."""
        with self._lock:
            value = self._values.get(name)
            if value is not None:
                self._values.move_to_end(name)
            return value

    def get_or_make(self, name: K, make: Callable[[], V]) -> V:
        """The value with this name, made now if it is not kept."""
        value = self.get(name)
        if value is None:
            value = make()
            self.put(name, value)
        return value

    def put(self, name: K, value: V) -> None:
        """Keep a value for a while; one that is larger than the whole cache is not kept."""
        size = self._size(value)
        with self._lock:
            before = self._values.pop(name, None)
            self.nbytes -= 0 if before is None else self._size(before)
            if size > self._limit:
                return
            self._values[name] = value
            self.nbytes += size
            self._make_room()

    def _make_room(self) -> None:
        while self.nbytes > self._limit:
            self.nbytes -= self._size(self._values.popitem(last=False)[1])


class ChunkCache(BoundedCache[tuple[str, int], np.ndarray[Any, Any]]):
    """The most recently used chunks, up to a number of bytes.

    Members keep their names for ever, and a chunk of a snapshot keeps its content: a path and a position are
    enough to identify it. Writers write to another session.

    >>> ChunkCache(1000).nbytes
    0
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes, attrgetter("nbytes"))

    def keep(self, source: EngineMember, chunk: int, values: Values) -> None:
        """Keep a copy of a chunk; the least recently used chunks make room for it."""
        if source.is_fixed_size and isinstance(values, np.ndarray) and values.nbytes <= self._limit:
            self.put((source.path, chunk), values.copy())

    def place(self, work: ChunkPlan) -> None:
        """Put the kept chunks of a part into its output; they need not be fetched any more."""
        path, chunks = work.source.path, work.chunks
        kept = {k: self.get((path, int(chunks[k]))) for k in work.present.tolist()}
        here = np.array([k for k, values in kept.items() if values is not None], dtype=np.int64)
        if not here.size:
            return
        work.put_each((kept[k] for k in here.tolist()), here)
        work.present = work.present[~np.isin(work.present, here)]  # in the order they are fetched in
