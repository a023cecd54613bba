"""Fetching encoded chunks: one entry point for every kind of store, each read in the fastest safe way.

- `store` has the protocols, and reads any store of zarr's; `local_files` reads files on this machine.
- `icechunk` reads a session; `virtual` says which files outside it may be read directly, and reads them;
  `icechunk_checksums` tells whether these changed; `byte_ranges` joins ranges.
- `symlinks` refuses links that lead out of a store; `read_errors` puts failures into helpful words.
"""

from __future__ import annotations

from zarr.abc.store import Store
from zarr.storage import LocalStore

from intarsia._compat import store_supports_sync_io
from intarsia._icechunk import IcechunkStore, safe_store
from intarsia.engine.fetch.icechunk import IcechunkSession
from intarsia.engine.fetch.local_files import LocalFiles
from intarsia.engine.fetch.store import CAN_READ_FILES, ConcurrentStore, StoreFetcher, SynchronousStore
from intarsia.engine.fetch.symlinks import refuse_links_out
from intarsia.parallel import check_store


def is_immutable(store: Store) -> bool:
    """Whether nothing in this store can change any more, as in a read-only session of Icechunk.

    A store may be opened for reading while its session is written to, so the session is checked.
    """
    return isinstance(store, IcechunkStore) and store.is_immutable


def fetcher_for(store: Store) -> StoreFetcher:
    """The way to read this store, as it is now; all arrays of an immutable session share one.

    >>> from zarr.storage import MemoryStore
    >>> fetcher_for(MemoryStore()).name
    'MemoryStore, in threads'
    """
    store = safe_store(store)
    if isinstance(store, IcechunkStore):
        check_store(store)
        if not store.is_immutable:
            return IcechunkSession(store)
        if store.shared.fetcher is None:
            store.shared.fetcher = IcechunkSession(store)
        fetcher: StoreFetcher = store.shared.fetcher
        return fetcher
    if type(store) is LocalStore and CAN_READ_FILES:
        return LocalFiles(store)
    if store_supports_sync_io(store):
        return SynchronousStore(store)
    return ConcurrentStore(store)


def check_links(store: Store, path: str) -> None:
    """Raise `ReadError`, before zarr itself reads an array, if a link leads out of its local store, or out of
    the place where its sources may be.

    >>> from zarr.storage import MemoryStore
    >>> check_links(MemoryStore(), "sst")
    """
    if isinstance(store, LocalStore):
        refuse_links_out(store.root, path)
    elif isinstance(fetcher := fetcher_for(store), IcechunkSession):
        fetcher.check_links(path)
