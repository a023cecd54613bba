"""The bitmasks of an array's chunks, from their headers alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from intarsia.codecs.current_chunk import at_place
from intarsia.codecs.deciding import grid_shape
from intarsia.codecs.extent import Extent, MemoryObject, StoredObject, firsts, margins
from intarsia.codecs.place import Grid, InnerPlace, Place, StoredPlace
from intarsia.codecs.recode import array_codecs, undo
from intarsia.codecs.route import only_route, resolved, stored_spec
from intarsia.codecs.shard_layout import ShardLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr.abc.codec import BytesBytesCodec

    from intarsia._compat import ArraySpec, ChunkGrid
    from intarsia.codecs.route import Route

__all__ = ["masks"]

LARGEST_INTEGER_BITS = 64
"""Longer bitmasks are Python integers in an object array."""


def masks(array: zarr.Array[Any]) -> np.ma.MaskedArray[Any, np.dtype[Any]]:
    """The bitmask of every stored chunk of an array with a `conditional` codec, over its chunk grid.

    Chunks that are not stored are masked. Of each stored chunk only the header is read, and of a shard
    its index and the headers in it. (Where a codec after the conditional one compresses the header,
    whole chunks have to be read.) The result can be a decision.

    >>> import zarr
    >>> from intarsia import ConditionalCodec
    >>> from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[Crc32cCodec(), ZstdCodec()], decision=[1, 0, 3])
    >>> z = zarr.create(store={}, shape=6, chunks=2, dtype="u1", codecs=[BytesCodec(), codec])
    >>> z[2:] = 5
    >>> masks(z)
    masked_array(data=[--, 0, 3],
                 mask=[ True, False, False],
           fill_value=...,
                dtype=uint8)
    """
    route = only_route(array, "read bitmasks")
    shape, bits = grid_shape(array, route), route.end.codec.header_bits
    sizes = (size for size in (8, 16, 32, 64) if size >= bits)
    dtype = np.dtype(f"u{next(sizes) // 8}") if bits <= LARGEST_INTEGER_BITS else np.dtype(object)
    found = np.ma.masked_all(shape, dtype=dtype)
    metadata: Any = array.metadata
    grid = Grid.of(metadata)

    def read(index: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
        path = array.store_path / metadata.encode_chunk_key(index)
        spec = stored_spec(array, stored_shape(grid.chunks, index))
        first = route.shards[0] if route.shards else route.end
        place = StoredPlace(grid, path.path, spec, array_codecs(first.before))
        return list(_read(Extent(StoredObject(path)), route, spec, place))

    with ThreadPoolExecutor(zarr.config.get("async.concurrency")) as pool:
        for pairs in pool.map(read, np.ndindex(grid.chunks.grid_shape)):
            for index, mask in pairs:
                # A shard at the edge of the array may hold chunks beyond it.
                if all(i < n for i, n in zip(index, shape, strict=True)):
                    found[index] = mask
    return found


def stored_shape(chunks: ChunkGrid, index: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that codecs see of the chunk or shard stored at `index`."""
    return tuple(axis.chunk_size(i) for axis, i in zip(chunks.dimensions, index, strict=True))


def _read(
    extent: Extent, route: Route, spec: ArraySpec, place: Place, level: int = 0
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Index and mask of every chunk of the stored object in `extent`, or of the one that it is."""
    if level == len(route.shards):
        yield from _read_headers([(extent, place)], route, spec)
        return
    step = route.shards[level]
    spec = resolved(step.before, spec)
    layout = ShardLayout(step.codec, spec.shape)
    with at_place(place):
        opened = _open(extent, step.after, spec)
        if opened is None:
            return
        encoded = opened.first(layout.index_bytes) if layout.index_first else opened.last(layout.index_bytes)
        if encoded is None:
            return
        extents = layout.extents(layout.decode_index(encoded))
    spec = replace(spec, shape=step.codec.chunk_shape)
    last = level + 1 == len(route.shards)
    arrays = array_codecs((route.end if last else route.shards[level + 1]).before)
    inner: list[tuple[Extent, Place]] = [
        (opened.part(start, stop), InnerPlace(place, position, spec, arrays))
        for position, (start, stop) in extents.items()
    ]
    if last:
        yield from _read_headers(inner, route, spec)
    else:
        for part, inside in inner:
            yield from _read(part, route, spec, inside, level + 1)


def _read_headers(
    chunks: list[tuple[Extent, Place]], route: Route, spec: ArraySpec
) -> Iterator[tuple[tuple[int, ...], int]]:
    step = route.end
    spec = resolved(step.before, spec)
    opened = []
    for extent, place in chunks:
        with at_place(place):
            opened.append(_open(extent, step.after, spec))
    present = [(extent, place) for extent, (_, place) in zip(opened, chunks, strict=True) if extent]
    by_source: dict[int, list[tuple[Extent, Place]]] = {}
    for extent, place in present:
        by_source.setdefault(id(extent.source), []).append((extent, place))
    for group in by_source.values():
        headers = firsts([extent for extent, _ in group], step.codec.header_bytes)
        for header, (_, place) in zip(headers, group, strict=True):
            index = place.index()
            if header is not None and index is not None:
                with at_place(place):
                    yield index, step.codec.read_mask(header)


def _open(extent: Extent, codecs: tuple[BytesBytesCodec, ...], spec: ArraySpec) -> Extent | None:
    """The extent without what `codecs` did to it; None if it does not exist."""
    around = margins(codecs)
    if around is not None:
        return extent.without(*around)
    data = extent.all()
    return None if data is None else Extent(MemoryObject(undo(codecs, data, spec)))
