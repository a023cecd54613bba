"""Which way a store is read: `fetcher_for`, and `check_links` for what is left to zarr."""

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


def fetcher_for(store: Store) -> StoreFetcher:
    """The way to read this store, as it is now; all arrays of an immutable session share one.

    >>> from zarr.storage import MemoryStore
    >>> fetcher_for(MemoryStore()).name
    'MemoryStore, in threads'
    """
    store = safe_store(store)
    if isinstance(store, IcechunkStore):
        check_store(store)
        fetcher: StoreFetcher = store.shared.fetcher or IcechunkSession(store)
        if fetcher.immutable:
            store.shared.fetcher = fetcher
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
