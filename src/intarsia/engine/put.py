"""Storing encoded chunks: in the thread that encoded them if the store can, else on zarr's event loop.

Local files are written as in zarr, first beside their place and then moved there, so that nobody reads half
of one.

Writing one chunk of a shard means reading the shard, changing it and storing all of it again. So the threads
of this process hold a lock on the shard meanwhile. Other processes are not kept out; they write through
transactions, or into their own shards.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import count, islice, product
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import numpy as np
from zarr.abc.store import Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore

from intarsia._compat import store_supports_sync_io
from intarsia._icechunk import IcechunkStore
from intarsia.engine.fetch.store import start

if TYPE_CHECKING:
    from intarsia.engine.member_source import Source
    from intarsia.engine.plan import Part
    from intarsia.engine.state import Told

type Encoded = Buffer | bytes | memoryview
type Pieces = list[Any]
"""Consecutive bytes, each piece with the buffer protocol."""

type Stored = list[tuple[str, Encoded | None]]
"""Keys and the values to store there; None removes a value."""

type Look = Callable[[], Coroutine[Any, Any, Told]]
"""Asks the store what it says about the array."""

BATCHES_STORED_AT_A_TIME = 4

MOST_PIECES = 1024
"""The number of pieces that every system takes in one call."""


def as_buffer(encoded: Encoded) -> Buffer:
    """The form that zarr's stores take."""
    return encoded if isinstance(encoded, Buffer) else default_buffer_prototype().buffer.from_bytes(encoded)


def as_bytes(encoded: Encoded) -> Any:
    """The same with the buffer protocol."""
    return encoded.as_buffer_like() if isinstance(encoded, Buffer) else encoded


class PutHere(Protocol):
    """Stores a value in this thread, or removes it."""

    keeps: bool
    """Whether the store may hold on to the memory that it is given."""

    def __call__(self, key: str, encoded: Encoded | None) -> None: ...

    def put_pieces(self, key: str, pieces: Pieces) -> None:
        """Store the pieces as one value."""


def put_here(store: Any) -> PutHere | None:
    """How to store values in this thread; None if that takes an event loop."""
    if type(store) is LocalStore and os.name == "posix" and not store.read_only:
        return _Files(store)
    return _Synchronously(store) if store_supports_sync_io(store) else None


class _Synchronously:
    """Puts values into a store that needs no event loop."""

    def __init__(self, store: Any) -> None:
        self._store, self.keeps = store, type(store) is not MemoryStore  # that one makes copies

    def __call__(self, key: str, encoded: Encoded | None) -> None:
        if encoded is None:
            self._store.delete_sync(key)
        else:
            self._store.set_sync(key, as_buffer(encoded))

    def put_pieces(self, key: str, pieces: Pieces) -> None:
        self(key, b"".join(pieces))


class _Files:
    """Puts values into files below the root of a store."""

    keeps = False

    def __init__(self, store: LocalStore) -> None:
        self._store, self._root = store, f"{store.root}/"
        self._mark, self._numbers = uuid4().hex, count()

    def __call__(self, key: str, encoded: Encoded | None) -> None:
        if encoded is None:
            self._store.delete_sync(key)
        else:
            self.put_pieces(key, [as_bytes(encoded)])

    def put_pieces(self, key: str, pieces: Pieces) -> None:
        path = self._root + key
        beside = f"{path}.{self._mark}-{next(self._numbers)}.partial"
        try:
            file = self._made(beside)
            try:
                _write_all(file, pieces)
            finally:
                os.close(file)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise

    @staticmethod
    def _made(path: str) -> int:
        """A new file, with the directories that it is in."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, flags, 0o666)


def _write_all(file: int, pieces: Pieces) -> None:
    """Write to the end: the system takes no more than 2 GiB at a time, and may take less at any time."""
    left = deque(memoryview(piece).cast("B") for piece in pieces)
    while left:
        written = os.writev(file, list(islice(left, MOST_PIECES)))
        while left and written >= left[0].nbytes:
            written -= left.popleft().nbytes
        if written:
            left[0] = left[0][written:]


class Storing:
    """Values on their way to a store that works on an event loop, some batches at a time."""

    def __init__(self, store: Store, look: Look | None = None) -> None:
        self._store, self._look = store, look
        self.told: Told | None = None
        """What the store said after a batch was stored, if it was to be asked."""
        self._running: deque[Future[None]] = deque()
        self._begun: list[Future[None]] = []
        self._lock = threading.Lock()
        self._given_up = False

    def begin(self, encoded: Stored) -> None:
        """Arrange for these to be stored; wait if too much is on its way."""
        with self._lock:
            if self._given_up:
                return
            self._begun.append(start(self._set(encoded)))
            self._running.append(self._begun[-1])
            waiting = self._running.popleft() if len(self._running) > BATCHES_STORED_AT_A_TIME else None
        if waiting is not None:
            waiting.result()

    async def _set(self, encoded: Stored) -> None:
        values = [(key, None if value is None else as_buffer(value)) for key, value in encoded]
        if isinstance(self._store, IcechunkStore):
            await self._store.put_all(values, _all)
        else:
            store = self._store
            await _all(
                [store.delete(key) if value is None else store.set(key, value) for key, value in values]
            )
        if self._look is not None:
            self.told = await self._look()

    def finish(self) -> None:
        """Wait until everything is stored."""
        while self._running:
            self._running.popleft().result()

    def give_up(self, failure: BaseException) -> None:
        """Begin nothing more; after Ctrl-C, for example, do not wait for what has begun either."""
        with self._lock:  # threads that begin something later see it
            self._given_up = True
        if not isinstance(failure, Exception):
            for storing in self._begun:
                storing.cancel()

    def wait(self) -> None:
        """Wait until everything that has begun is finished."""
        wait(self._begun)


async def _all(storing: Sequence[Awaitable[None]]) -> None:
    """Wait for all of them; if one fails, the others are cancelled, and its error is raised."""
    if len(storing) == 1:  # a task would cost more than the work
        await storing[0]
        return
    tasks = [asyncio.ensure_future(one) for one in storing]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


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
