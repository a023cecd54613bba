"""Chunks that a view encoded a moment ago, in case somebody asks for them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

MOST_BYTES = 64 << 20
"""Enough for the shards that a few clients read piece by piece."""


class ChunkCache:
    """Encoded chunks by name, up to so many bytes; what was not asked for the longest goes first.

    >>> cache = ChunkCache(most_bytes=3)
    >>> cache.put("a", b"xx")
    >>> cache.put("b", b"yy")
    >>> cache.get("a"), cache.get("b")
    (None, b'yy')
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._total = most_bytes, 0
        self._values: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> bytes | None:
        """What was kept under this name, if it still is."""
        with self._lock:
            value = self._values.get(name)
            if value is not None:
                self._values.move_to_end(name)
            return value

    def put(self, name: Hashable, value: bytes) -> None:
        """Keep it for a while."""
        with self._lock:
            self._total += len(value) - len(self._values.pop(name, b""))
            self._values[name] = value
            while self._total > self._most:
                self._total -= len(self._values.popitem(last=False)[1])
