"""What the store has of an array: which chunks, and their bytes, of which only the requested ones are read.

Of a grid of millions of chunks, a single one may be stored. Code that visits the chunks of an array starts
here.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import Any

import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import StorePath

from intarsia._compat import store_supports_sync_io, sync
from intarsia.codecs.context import Grid, Index


def iter_chunk_slices(array: Any) -> Iterator[tuple[slice, ...]]:
    """The slices of each chunk of `array`, in order; of each shard, if it has shards.

    The array may be plain or nullable. To store chunks again by another decision, `rewrite` does less work
    than `z[s] = z[s]`.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=5, chunks=2, dtype="u1")
    >>> list(iter_chunk_slices(z))
    [(slice(0, 2, None),), (slice(2, 4, None),), (slice(4, 5, None),)]
    """
    axes = []
    for sizes in getattr(array, "zarr_array", array).write_chunk_sizes:
        stops = list(accumulate(sizes))
        axes.append([slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)])
    return product(*axes)


def stored_indices(array: zarr.Array[Any]) -> Sequence[Index]:
    """The indexes in the grid of `array` where the store has an object (a chunk, or a shard), in order.

    For a store that cannot list its keys, and for keys that cannot be decoded, all indexes are given: then an
    object may be missing. Anything outside the grid is left out.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=(10**9, 4), chunks=(1, 2), dtype="u1")
    >>> z[7] = 1
    >>> stored_indices(z)
    [(7, 0), (7, 1)]
    """
    metadata: Any = array.metadata
    grid, store = Grid.of(metadata), array.store
    shape = grid.chunks.grid_shape
    first = (0,) * len(shape)
    indices: list[Index]
    if hasattr(store, "array_chunk_iterator"):  # Icechunk's own table: no request per key
        from intarsia._icechunk import chunk_table

        icechunk_store: Any = store
        table = chunk_table(icechunk_store, array.path, len(shape))
        indices = [tuple(index) for index in table.index.tolist()]
    elif store.supports_listing and grid.index_of(metadata.encode_chunk_key(first)) == first:
        indices = sync(_listed(store, array.path, grid))
    else:
        return list(product(*map(range, shape)))
    return sorted(index for index in indices if all(i < n for i, n in zip(index, shape, strict=True)))


async def _listed(store: Any, path: str, grid: Grid) -> list[Index]:
    prefix = f"{path}/" if path else ""
    encode = grid.key_encoding.encode_chunk_key
    indices = []
    async for key in store.list_prefix(prefix):
        index = grid.index_of(key)
        if index is not None and key == prefix + encode(index):  # and not a chunk of an array further below
            indices.append(index)
    return indices


def read_parts(path: StorePath, parts: Sequence[ByteRequest | None]) -> list[Buffer | None]:
    """Parts of one object of a store, or None for each if it does not exist; not on zarr's event loop.

    >>> import zarr
    >>> from zarr.abc.store import RangeByteRequest
    >>> z = zarr.create(store={}, shape=4, dtype="u1", codecs=[{"name": "bytes"}])
    >>> z[:] = [1, 2, 3, 4]
    >>> read_parts(z.store_path / "c/0", [RangeByteRequest(1, 3)])[0].to_bytes()
    b'\\x02\\x03'
    """
    prototype = default_buffer_prototype()
    if store_supports_sync_io(path.store):
        return [path.get_sync(prototype=prototype, byte_range=part) for part in parts]

    async def read_all() -> list[Buffer | None]:
        return await asyncio.gather(*(path.get(prototype, part) for part in parts))

    return sync(read_all())
