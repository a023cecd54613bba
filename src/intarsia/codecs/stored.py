"""Which chunks of an array are stored: asked of the store, not of every place in the chunk grid.

A grid of millions of places may hold a single chunk. Whoever goes over the chunks of an array starts here.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, cast

from intarsia._compat import sync
from intarsia.codecs.place import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr
    from icechunk import IcechunkStore

__all__ = ["stored_indices"]

type Index = tuple[int, ...]


def stored_indices(array: zarr.Array[Any]) -> Sequence[Index]:
    """The places in the grid of `array` where the store has an object (a chunk, or a shard), in order.

    Of a store that cannot list its keys, and of keys that cannot be read backwards, all places are given:
    then an object may be missing. What lies outside the grid is left out.

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
    found: list[Index]
    if hasattr(store, "array_chunk_iterator"):  # Icechunk's own table: no request for each key
        from intarsia._icechunk import chunk_table  # which other stores do not need

        found = [
            tuple(index) for index in chunk_table(cast("IcechunkStore", store), array.path).index.tolist()
        ]
    elif store.supports_listing and grid.index_of(metadata.encode_chunk_key(first)) == first:
        found = sync(_listed(store, array.path, grid))
    else:
        return list(product(*map(range, shape)))
    return sorted(index for index in found if all(i < n for i, n in zip(index, shape, strict=True)))


async def _listed(store: Any, path: str, grid: Grid) -> list[Index]:
    prefix = f"{path}/" if path else ""
    encode = grid.key_encoding.encode_chunk_key
    found = []
    async for key in store.list_prefix(prefix):
        index = grid.index_of(key)
        if index is not None and key == prefix + encode(index):  # and not a chunk of an array further below
            found.append(index)
    return found
