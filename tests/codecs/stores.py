"""Stores that tests of several codecs use."""

from zarr.storage import MemoryStore, WrapperStore


class AsyncOnly(WrapperStore[MemoryStore]):
    """A store without synchronous methods, as Icechunk's is."""

    _supports_sync_io = False


class NotedWrites(WrapperStore[MemoryStore]):
    """Notes which keys are written."""

    def __init__(self, store):
        super().__init__(store)
        self.written = []

    async def set(self, key, value):
        self.written.append(key)
        await super().set(key, value)

    def set_sync(self, key, value):
        self.written.append(key)
        super().set_sync(key, value)
