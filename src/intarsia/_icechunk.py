"""Icechunk's store as intarsia passes it to zarr: one that no other thread can bring to a standstill.

All stores of an Icechunk session share its lock. A write, and pickling a store, wait for all current readers;
everybody who comes later waits behind them, readers too. That is sound as long as no holder of the lock waits
for somebody who waits for it. In Icechunk 2.3, four things do:

- `str` and `repr` of a store wait without releasing the GIL. The holder of the lock then cannot return what
  it read. zarr calls both, each time it opens an array and in its messages.
- `list_dir`, `is_empty` and `getsize_prefix` take the lock twice. A write that comes in between waits for the
  first, and the second waits for the write.
- An iterator over chunks holds the lock while it is open. Driven by an event loop, it stays open until
  the loop comes back to it, which it does not if anything else there waits for the lock.
- Pickling a store locks it for writing, although it only reads.

So here a store says what it is without asking its session; listings and writes of a session take turns;
chunks are iterated over in the thread that wants them (`chunk_table`), never on an event loop; and what is
pickled is the session, which is locked for reading.
"""

import asyncio
import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import icechunk
import msgspec
import numpy as np
from zarr.storage import StorePath

from intarsia._compat import native_store
from intarsia.errors import WritableSessionError

type Kind = bool
LISTING, WRITING = False, True

EXIT_SECONDS, EXIT_TICK = 0.5, 0.001
"""How long the end of the interpreter waits for threads of Icechunk at most, and at least."""


@atexit.register
def _wait_for_threads() -> None:
    """Let Icechunk's threads return from calls whose answers Python already has.

    They need Python's lock once more, to release what they hold. If the interpreter shuts down meanwhile,
    Python ends such a thread in the middle of Rust, and the process dies of a segmentation fault. Icechunk
    offers no way to wait for them; so this waits until none of them is running, as Linux tells.
    """
    deadline = time.monotonic() + EXIT_SECONDS
    while True:
        time.sleep(EXIT_TICK)  # without Python's lock
        if not _has_running_threads() or time.monotonic() > deadline:
            return


def _has_running_threads() -> bool:
    """Whether a thread of Icechunk's runtime is at work; False where that cannot be told."""
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError):  # it has ended
                name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(") ")
                if name == "tokio-rt-worker" and rest.startswith("R"):
                    return True
    return False


@dataclass(eq=False)
class _Turn:
    """One listing or write, from the moment it asks to begin."""

    kind: Kind

    begun: bool = False

    called: Future[None] = field(default_factory=Future)
    """Done when it may begin, if it had to wait."""


class _Turns:
    """Listings and writes of one session: many of one kind at a time, never both, in order of arrival."""

    def __init__(self, store: Any) -> None:
        self.store = store
        """Any store of the session; it compares equal to the others."""
        self._lock = threading.Lock()
        self._inside = {LISTING: 0, WRITING: 0}
        self._waiting: deque[_Turn] = deque()

    def _may_begin(self, turn: _Turn) -> bool:
        """Whether it may begin at once; otherwise it waits to be called."""
        with self._lock:
            if self._waiting or self._inside[not turn.kind]:
                self._waiting.append(turn)
            else:
                self._let_in(turn)
            return turn.begun

    def _let_in(self, turn: _Turn) -> None:
        self._inside[turn.kind] += 1
        turn.begun = True

    def _end(self, turn: _Turn) -> None:
        """End a turn: it is over, or was cancelled while it waited, or never began to wait."""
        with self._lock:
            if turn.begun:
                self._inside[turn.kind] -= 1
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if self._waiting:
                self._call_next()

    def _call_next(self) -> None:
        while self._waiting and not self._inside[not self._waiting[0].kind]:
            following = self._waiting.popleft()
            if following.called.set_running_or_notify_cancel():
                self._let_in(following)
                following.called.set_result(None)

    # Ctrl-C can come between any two steps. Nothing is taken outside the `try` that gives it back, and no
    # lock is held around a loop of the same function: if Ctrl-C comes when it jumps back, CPython 3.13
    # does not leave the `with` block as it should, and the lock stays taken.

    @contextmanager
    def taken(self, kind: Kind) -> Iterator[None]:
        """Take a turn of this kind, in this thread."""
        turn = _Turn(kind)
        try:
            if not self._may_begin(turn):
                turn.called.result()
            yield
        finally:
            self._end(turn)

    @asynccontextmanager
    async def awaited(self, kind: Kind) -> AsyncIterator[None]:
        """Take a turn of this kind, on an event loop, which does other things until the turn comes."""
        turn = _Turn(kind)
        try:
            if not self._may_begin(turn):
                await asyncio.wrap_future(turn.called)
            yield
        finally:
            self._end(turn)


_turns_of_sessions: weakref.WeakSet[_Turns] = weakref.WeakSet()
_turns_lock = threading.Lock()


def _turns_of(store: Any) -> _Turns:
    """The turns of a store's session. Sessions can only be compared, but few are written to at a time."""
    with _turns_lock:
        return _find_turns(store)


def _find_turns(store: Any) -> _Turns:
    for turns in _turns_of_sessions:
        if turns.store == store:
            return turns
    turns = _Turns(store)
    _turns_of_sessions.add(turns)
    return turns


def _in_turn[T](
    kind: Kind, method: Callable[..., Coroutine[Any, Any, T]]
) -> Callable[..., Coroutine[Any, Any, T]]:
    @wraps(method)
    async def taking_turns(self: "IcechunkStore", *args: Any, **kwargs: Any) -> T:
        if self._turns is None:
            return await method(self, *args, **kwargs)
        async with self._turns.awaited(kind):
            return await method(self, *args, **kwargs)

    return taking_turns


def _in_turn_here[T](method: Callable[..., T]) -> Callable[..., T]:
    @wraps(method)
    def taking_turns(self: "IcechunkStore", *args: Any, **kwargs: Any) -> T:
        if self._turns is None:
            return method(self, *args, **kwargs)
        with self._turns.taken(WRITING):
            return method(self, *args, **kwargs)

    return taking_turns


@dataclass
class _SharedBySession:
    """What all stores of one session know."""

    is_given_up: bool = False
    """Whether what is written in the session would be lost."""

    fetcher: Any = None
    """How the engine reads the session once nothing in it can change; set by the engine."""

    access: Any = None
    """What the person who opened the repository lets the session read without Icechunk: an
    `intarsia.engine.fetch.virtual.SourceAccess`, set by `intarsia.versions.authorization`."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"fetcher": None}  # another process makes its own


class IcechunkStore(icechunk.IcechunkStore):
    """An Icechunk session's store that threads can share.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> store = safe_store(repo.writable_session("main").store)
    >>> str(store), isinstance(store, icechunk.IcechunkStore)
    ('icechunk:main', True)
    """

    def __init__(self, store: Any, read_only: bool | None = None) -> None:
        super().__init__(store, read_only)
        self.shared = _SharedBySession()
        self._ask_session()

    def _ask_session(self) -> None:
        """Ask the session once for what is needed often."""
        session = self._store.session
        self._is_immutable = session.read_only
        self._version_text = session.snapshot_id if self._is_immutable else session.branch or "fork"
        self._turns = None if self._is_immutable else _turns_of(self._store)

    @property
    def is_immutable(self) -> bool:
        """Whether nothing here can change any more: the session is read-only, or was committed."""
        if not self._is_immutable:
            self._is_immutable = self._store.session.read_only
        return self._is_immutable

    def give_up(self) -> None:
        """Say that this session will not be committed any more: handles on its arrays then refuse writes."""
        self.shared.is_given_up = True

    @property
    def is_given_up(self) -> bool:
        """Whether what is written here would be lost."""
        return self.shared.is_given_up

    def __str__(self) -> str:
        return f"icechunk:{self._version_text}"

    def __repr__(self) -> str:
        return f"IcechunkStore({str(self)!r})"

    def _repr_html_(self) -> str:
        import html  # its table of entities is long, and rarely needed

        return html.escape(repr(self))

    def with_read_only(self, read_only: bool = False) -> "IcechunkStore":
        """The same session, for reading or for writing."""
        other = IcechunkStore.__new__(IcechunkStore)
        vars(other).update(vars(self) | {"_read_only": read_only, "_is_open": False})
        return other

    def __getstate__(self) -> object:
        session = self._store.session
        if not (session.read_only or session.is_fork):
            raise WritableSessionError(
                "this belongs to a writable Icechunk session, which cannot be sent to another process: what"
                " is written there would be lost.\n"
                "  To write from several processes, use intarsia.store_dask(dask_array, repo, path, …)\n"
                "  To read there, open it from a read-only session: intarsia.open(repo, path)"
            )
        state = {key: value for key, value in vars(self).items() if key != "_turns"}
        return state | {"_store": session.as_bytes()}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._ask_session()

    @asynccontextmanager
    async def bulk_writer(self) -> AsyncIterator[Any]:
        """Icechunk's own store, whose `set` and `delete` may be called many times in this one turn."""
        async with self._turns.awaited(WRITING) if self._turns is not None else nullcontext():
            yield self._store

    set = _in_turn(WRITING, icechunk.IcechunkStore.set)
    set_if_not_exists = _in_turn(WRITING, icechunk.IcechunkStore.set_if_not_exists)
    set_virtual_ref = _in_turn_here(icechunk.IcechunkStore.set_virtual_ref)
    set_virtual_ref_async = _in_turn(WRITING, icechunk.IcechunkStore.set_virtual_ref_async)
    set_virtual_refs = _in_turn_here(icechunk.IcechunkStore.set_virtual_refs)
    set_virtual_refs_async = _in_turn(WRITING, icechunk.IcechunkStore.set_virtual_refs_async)
    set_virtual_refs_arr = _in_turn_here(icechunk.IcechunkStore.set_virtual_refs_arr)
    set_virtual_refs_arr_async = _in_turn(WRITING, icechunk.IcechunkStore.set_virtual_refs_arr_async)
    delete = _in_turn(WRITING, icechunk.IcechunkStore.delete)
    delete_dir = _in_turn(WRITING, icechunk.IcechunkStore.delete_dir)
    clear = _in_turn(WRITING, icechunk.IcechunkStore.clear)
    sync_clear = _in_turn_here(icechunk.IcechunkStore.sync_clear)

    is_empty = _in_turn(LISTING, icechunk.IcechunkStore.is_empty)
    getsize_prefix = _in_turn(LISTING, icechunk.IcechunkStore.getsize_prefix)

    def list(self) -> Any:
        """All keys."""
        return self._list_names(icechunk.IcechunkStore.list)

    def list_prefix(self, prefix: str) -> Any:
        """All keys below a prefix."""
        return self._list_names(icechunk.IcechunkStore.list_prefix, prefix)

    def list_dir(self, prefix: str) -> Any:
        """The names directly below a prefix."""
        return self._list_names(icechunk.IcechunkStore.list_dir, prefix)

    async def _list_names(self, listing: Callable[..., Any], *where: str) -> AsyncIterator[str]:
        """A listing. Icechunk waits for the lock in the calling thread, so that is never an event loop's."""

        def ask() -> tuple[str, ...]:
            with self._turns.taken(LISTING) if self._turns is not None else nullcontext():
                return tuple(listing(self, *where))

        for name in await asyncio.to_thread(ask):
            yield name


def safe_store(store: Any) -> Any:
    """Icechunk's store, or a place in it, turns safe to share; anything else as it is.

    >>> safe_store({})
    {}
    """
    if type(store) is icechunk.IcechunkStore:
        return IcechunkStore(native_store(store), store.read_only)
    if type(store) is StorePath and type(store.store) is icechunk.IcechunkStore:
        return StorePath(safe_store(store.store), store.path)
    return store


def is_immutable(store: Any) -> bool:
    """Whether nothing in this store can change any more, as in a read-only session of Icechunk.

    A store may be opened for reading while its session is written to, so the session is checked.

    >>> is_immutable({})
    False
    """
    return isinstance(store, IcechunkStore) and store.is_immutable


@contextmanager
def writing(session: icechunk.Session) -> Iterator[None]:
    """For calls that change a whole session, such as commits and merges: nobody lists its nodes meanwhile.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> session = repo.writable_session("main")
    >>> with writing(session):
    ...     session.discard_changes()
    """
    with _turns_of(native_store(session.store)).taken(WRITING):
        yield


STORAGE = 2
"""Position in a session's form for travelling: the storage of its repository."""

LOCAL_PROVIDER = "local_file_system_object_store_provider"


def repository_folder(store: icechunk.IcechunkStore) -> Path | None:
    """The directory of a session's repository on this machine; None if it is elsewhere, or unknown.

    A session says it nowhere but in its form for travelling, MessagePack, of which nothing else is read. A
    form that is not known leaves all reads to Icechunk, which takes several times as long.
    """
    try:
        storage = msgspec.msgpack.decode(native_store(store).session.as_bytes())[STORAGE]
        backend = storage["backend"]
        is_local = backend["object_store_provider_type"] == LOCAL_PROVIDER
        return Path(backend["path"]).absolute() if is_local else None
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError):
        return None


NATIVE, VIRTUAL, INLINE = 1, 2, 3
"""Where a chunk lies: the values of `icechunk.ChunkType` that `array_chunk_iterator` gives."""


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """What Icechunk knows about the stored chunks of an array, with one row for each."""

    index: np.ndarray[Any, np.dtype[np.int64]]
    """The position in the grid of stored chunks; shape (chunks, dimensions)."""

    kind: np.ndarray[Any, np.dtype[np.uint8]]
    """Whether the chunk is in a file of the repository, in another file, or inlined."""

    location: list[str]
    """The name of the chunk file, or the URL of another file."""

    offset: np.ndarray[Any, np.dtype[np.int64]]
    """The first byte in the file."""

    nbytes: np.ndarray[Any, np.dtype[np.int64]]
    """The stored size."""

    inlined: dict[int, bytes]
    """The bytes of inlined chunks, by row."""


def chunk_table(store: icechunk.IcechunkStore, path: str, ndim: int = 0) -> ChunkTable:
    """The stored chunks of an array, which has `ndim` dimensions if that is not 0.

    The session's lock is held meanwhile and always released at the end.
    """
    batches: Any = store.array_chunk_iterator(path)
    try:
        parts = [*batches]
    except ValueError as error:  # chunks whose indices differ in length
        raise _damaged_references(path, error) from error
    lengths = {part[0].shape[1] for part in parts} or {ndim}
    if len(lengths) > 1 or (ndim and lengths != {ndim}):
        found = " and ".join(map(str, sorted(lengths)))
        raise _damaged_references(path, f"its chunks have indices of {found} numbers")
    location: list[str] = []
    inlined: dict[int, bytes] = {}
    for _, _, locations, _, _, contents in parts:
        inlined |= {len(location) + row: content for row, content in contents.items()}
        location += locations
    none = np.empty(0, np.int64)
    no_index = np.empty((0, *lengths), np.int64)
    columns = (0, no_index), (1, np.empty(0, np.uint8)), (3, none), (4, none)
    index, kind, offset, nbytes = [
        np.concatenate([empty, *[part[k] for part in parts]], dtype=empty.dtype) for k, empty in columns
    ]
    return ChunkTable(index, kind, location, offset, nbytes, inlined)


def _damaged_references(path: str, why: object) -> icechunk.IcechunkError:
    return icechunk.IcechunkError(f"the references of the array {path!r} are damaged: {why}")
