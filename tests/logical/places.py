"""The same logical array in every kind of store, so that every fetcher reads it."""

import asyncio
from contextlib import contextmanager
from unittest import mock

import icechunk
from zarr.core.buffer import cpu
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

import intarsia
from intarsia.engine import prepared_member
from intarsia.versions.repository import open_repository
from tests.logical.stores import stored


class AsyncOnly(WrapperStore):
    """A store that can be asked on an event loop alone."""

    _supports_sync_io = False


def put(store, values):
    """Store keys and bytes, metadata first: Icechunk takes no chunks of an array it does not know."""

    def those(metadata):
        chosen = {key: data for key, data in values.items() if key.endswith("zarr.json") == metadata}
        return (store.set(key, cpu.Buffer.from_bytes(data)) for key, data in chosen.items())

    async def run():
        await asyncio.gather(*those(metadata=True))
        await asyncio.gather(*those(metadata=False))

    sync(run())


@contextmanager
def memory(values, folder):
    store = MemoryStore()
    put(store, values)
    yield store


@contextmanager
def asynchronous(values, folder):
    store = MemoryStore()
    put(store, values)
    yield AsyncOnly(store)


@contextmanager
def local(values, folder):
    store = LocalStore(folder / "files")
    put(store, values)
    yield store


@contextmanager
def zipped(values, folder):
    with ZipStore(folder / "a.zip", mode="w") as store:
        for key, data in values.items():
            sync(store.set(key, cpu.Buffer.from_bytes(data)))
    with ZipStore(folder / "a.zip", mode="r") as store:
        yield store


def committed(repository, values):
    session = repository.writable_session("main")
    put(session.store, values)
    session.commit("all of it")
    return repository.readonly_session("main").store


def small_inline(storage):
    """A repository that inlines chunks of up to 24 bytes, so that both kinds occur in small arrays."""
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 24
    return icechunk.Repository.create(storage, config)


@contextmanager
def icechunk_local(values, folder):
    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    yield committed(small_inline(storage), values)


@contextmanager
def icechunk_memory(values, folder):
    yield committed(small_inline(icechunk.in_memory_storage()), values)


@contextmanager
def icechunk_uncommitted(values, folder):
    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    session = small_inline(storage).writable_session("main")
    put(session.store, values)
    yield session.store


@contextmanager
def icechunk_fork(values, folder):
    fork = small_inline(icechunk.in_memory_storage()).writable_session("main").fork()
    put(fork.store, values)
    yield fork.store


@contextmanager
def by_zarr(values, folder):
    """Everything is left to zarr."""
    with (
        mock.patch.object(prepared_member, "Decoder", side_effect=prepared_member._ObstacleError("a test")),
        memory(values, folder) as s,
    ):
        yield s


class S3:
    """In the S3 server of the tests."""

    server = None
    """Gives the server; from conftest.py."""

    @contextmanager
    def __call__(self, values, folder):
        server = self.server()
        repository = open_repository(server.new_location(), create=True, **server.options)
        config = repository.config
        config.inline_chunk_threshold_bytes = 0
        yield committed(repository.reopen(config), values)


s3 = S3()

PLACES = {
    "memory": memory,
    "asynchronous": asynchronous,
    "local files": local,
    "zip": zipped,
    "icechunk local": icechunk_local,
    "icechunk memory": icechunk_memory,
    "icechunk uncommitted": icechunk_uncommitted,
    "icechunk fork": icechunk_fork,
    "by zarr": by_zarr,
    "icechunk S3": s3,
}

FETCHERS = {
    "memory": "MemoryStore, in threads",
    "asynchronous": "AsyncOnly, concurrently",
    "local files": "local files",
    "zip": "ZipStore, concurrently",
    "icechunk local": "Icechunk, chunk files",
    "icechunk memory": "Icechunk, in batches",
    "icechunk uncommitted": "Icechunk, in batches",
    "icechunk fork": "Icechunk, in batches",
    "by zarr": "zarr itself: a test",
    "icechunk S3": "Icechunk, in batches",
}


@contextmanager
def moved(array, place, folder):
    """The array, opened in another place."""
    with PLACES[place](stored(array.store), folder) as store:
        yield intarsia.open(store, array.path)
