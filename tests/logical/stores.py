"""Looking at what is stored, byte for byte."""

import asyncio

import zarr
from zarr.core.buffer import default_buffer_prototype


def stored(store):
    """Every key of a zarr store and its bytes."""

    async def collect():
        found = {}
        async for key in store.list():
            found[key] = (await store.get(key, default_buffer_prototype())).to_bytes()
        return found

    return asyncio.run(collect())


def memory():
    return zarr.storage.MemoryStore()
