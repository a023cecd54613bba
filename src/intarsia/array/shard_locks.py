"""Locks on shards, for the threads of this process.

Who writes one chunk of a shard reads it, changes it and stores all of it again. So the threads of this
process hold a lock on a shard meanwhile. Other processes are not kept out; they write through transactions,
or into shards of their own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from intarsia.array.plan import Part
    from intarsia.array.source import Source


def held_for(source: Source, part: Part, *, points: bool) -> AbstractContextManager[None]:
    """Hold all shards that a write into this part stores anew; of an array without shards, nothing."""
    return held(source.array.store, source.path, _touched(source, part, points))


def _touched(source: Source, part: Part, points: bool) -> Iterable[tuple[int, ...]]:
    """The shards that a write into this part stores anew."""
    grain = source.stored_grain
    if grain is None or source.array.shards is None:
        return ()
    touched: list[Any] = [
        np.arange(s.start // n, (s.stop - 1) // n + 1) if isinstance(s, slice) else s // n
        for s, n in zip(part.source, grain, strict=True)
    ]
    if points:
        return zip(*(along.tolist() for along in touched), strict=True)
    return product(*(np.unique(along).tolist() for along in touched))


class _Locks:
    """A lock for every key that somebody holds or waits for, and no others."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: dict[Hashable, tuple[threading.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def held(self, key: Hashable) -> Iterator[None]:
        with self._guard:
            lock, users = self._known.get(key, (None, 0))
            lock = lock or threading.Lock()
            self._known[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                _, users = self._known.pop(key)
                if users > 1:
                    self._known[key] = lock, users - 1


locks = _Locks()


def _forget() -> None:
    """In a forked child nobody holds anything, whatever the parent's threads were doing."""
    global locks
    locks = _Locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def held(store: Any, path: str, indices: Iterable[tuple[int, ...]]) -> Iterator[None]:
    """Hold these stored objects of the array at `path`.

    All who hold several take them in the same order, so that none waits for another in a circle. Stores are
    told apart by their roots: a copy of a handle, or of a store, means the same objects.

    >>> with held(None, "a/m-1", [(1, 0), (0, 0)]):
    ...     len(locks)
    2
    >>> len(locks)
    0
    """
    root = str(getattr(store, "root", ""))
    with ExitStack() as stack:
        for index in sorted(set(indices)):
            stack.enter_context(locks.held((root, path, index)))
        yield
