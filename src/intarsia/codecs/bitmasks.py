"""The bitmasks of an array's chunks, read from their headers alone."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec

from intarsia._compat import ArraySpec, ChunkGrid
from intarsia.codecs.codec_path import (
    Route,
    array_codecs,
    deciding_members,
    find_routes,
    resolved,
    stored_spec,
)
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import ChunkPlace, Grid, Index, InnerPlace, StoredPlace, at_place
from intarsia.codecs.nested import undo
from intarsia.codecs.shard_index import ShardIndex
from intarsia.codecs.stored_chunks import Extent, MemoryObject, StoredObject, firsts, margins, stored_indices
from intarsia.codecs.stored_decisions import grid_shape

type Bounds = tuple[tuple[int, int], ...]
type Masks = np.ma.MaskedArray[Any, np.dtype[Any]]
type Seen = tuple[str, Index, int]
"""The place of a codec in zarr.json, the index of a chunk, and that codec's bitmask in the chunk."""

LARGEST_INTEGER_BITS = 64
"""Longer bitmasks are Python integers in an object array."""


def masks(array: Any, *, names: bool = False) -> Any:
    """The bitmask of every stored chunk of `array`, which has a `conditional` codec, over its chunk grid.

    Chunks that are not stored are masked. Only the header of each stored chunk is read; for a shard, its
    index and the headers in it. (Whole chunks have to be read if a codec after the conditional one compresses
    the header, if the codec is inside the `optional` codec of nulls, or if another one is nested in it.)
    The result can be used as a decision.

    For an array with several `conditional` codecs, including nested ones, the result is a dict by the place
    of each codec in zarr.json (leaving out `configuration`): "codecs[1]", and "codecs[1].codecs[0]" for the
    first codec nested in it. A nested codec has no bitmask in chunks that it was not applied to: they are
    masked. For a logical array, the result is a dict by the bounds of its regions, each with the chunks of
    the member that the region shows; regions without such a codec are left out.

    With `names=True`, the result holds the names of the codecs, such as "shuffle+zstd"; "raw" means none.

    >>> import zarr
    >>> from intarsia.codecs import ConditionalCodec
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
    if hasattr(array, "regions"):  # a logical array, about which this room knows no more
        return _of_regions(array, names)
    by_codec = masks_by_codec(
        getattr(array, "zarr_array", array), names=names
    )  # the array behind a nullable one
    return next(iter(by_codec.values())) if len(by_codec) == 1 else by_codec


def _named(bitmasks: Masks, codec: ConditionalCodec) -> Masks:
    """The codecs that each bitmask stands for."""
    own = [str(nested.to_dict()["name"]) for nested in codec.codecs]
    words = np.ma.masked_all(bitmasks.shape, dtype=object)
    for mask in set(bitmasks.compressed().tolist()):
        applied = [name for i, name in enumerate(own) if mask >> i & 1]
        words[(bitmasks == mask).filled(fill_value=False)] = "+".join(applied) or "raw"
    return words


def _of_regions(array: Any, names: bool) -> dict[Bounds, Any]:
    members = deciding_members(array, "read bitmasks")
    whole = {name: _with_chunk_shapes(member, names) for name, member in members.items()}
    by_region: dict[Bounds, Any] = {}
    for region in array.regions:
        if region.name in whole:
            cut = {
                path: bitmasks[
                    tuple(
                        slice(a // c, -(-b // c))
                        for (a, b), c in zip(region.member_bounds, chunk, strict=True)
                    )
                ]
                for path, (chunk, bitmasks) in whole[region.name].items()
            }
            by_region[region.bounds] = next(iter(cut.values())) if len(cut) == 1 else cut
    return by_region


def _with_chunk_shapes(member: zarr.Array[Any], names: bool) -> dict[str, tuple[tuple[int, ...], Masks]]:
    """The bitmasks of each codec, with the shape of their chunks."""
    stored = stored_indices(member)
    return {
        path: (route.chunk_shape(member) or member.chunks, bitmasks)
        for route in find_routes(member, "read bitmasks")
        for path, bitmasks in _by_route(member, route, stored, names).items()
    }


def masks_by_codec(array: zarr.Array[Any], *, names: bool = False) -> dict[str, Masks]:
    """The bitmasks of each `conditional` codec of an array, by its place in zarr.json.

    >>> import zarr
    >>> from intarsia.codecs import ConditionalCodec
    >>> from zarr.codecs import BytesCodec
    >>> codecs = [BytesCodec(), ConditionalCodec(codecs=[ConditionalCodec(codecs=[])])]
    >>> list(masks_by_codec(zarr.create(store={}, shape=6, dtype="u1", codecs=codecs)))
    ['codecs[1]', 'codecs[1].codecs[0]']
    """
    by_codec: dict[str, Masks] = {}
    routes = find_routes(array, "read bitmasks")
    stored = stored_indices(array)
    for route in routes:
        by_codec |= _by_route(array, route, stored, names)
    return by_codec


def _by_route(array: zarr.Array[Any], route: Route, stored: Sequence[Index], names: bool) -> dict[str, Masks]:
    shape = grid_shape(array, route)
    bitmasks = {
        path: np.ma.masked_all(shape, dtype=_dtype(codec))
        for path, codec in route.conditional_codecs().items()
    }
    metadata: Any = array.metadata
    grid = Grid.of(metadata)

    def read(index: Index) -> list[Seen]:
        path = array.store_path / metadata.encode_chunk_key(index)
        spec = stored_spec(array, stored_shape(grid.chunks, index))
        place = StoredPlace(grid, path.path, spec, array_codecs(route.step_into(0).before))
        return list(_read(Extent(StoredObject(path)), route, spec, place))

    with ThreadPoolExecutor(zarr.config.get("async.concurrency")) as pool:
        for seen in pool.map(read, stored):
            for path, index, mask in seen:
                # A shard at the edge of the array may hold chunks beyond it.
                if all(i < n for i, n in zip(index, shape, strict=True)):
                    bitmasks[path][index] = mask
    if names:
        codecs = route.conditional_codecs()
        return {path: _named(each, codecs[path]) for path, each in bitmasks.items()}
    return bitmasks


def _dtype(codec: ConditionalCodec) -> np.dtype[Any]:
    sizes = (size for size in (8, 16, 32, 64) if size >= codec.header_bits)
    return np.dtype(f"u{next(sizes) // 8}") if codec.header_bits <= LARGEST_INTEGER_BITS else np.dtype(object)


def stored_shape(chunks: ChunkGrid, index: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, as codecs see it, of the chunk or shard stored at `index`."""
    return tuple(axis.chunk_size(i) for axis, i in zip(chunks.dimensions, index, strict=True))


def _read(extent: Extent, route: Route, spec: ArraySpec, place: ChunkPlace, level: int = 0) -> Iterator[Seen]:
    """The bitmasks in every chunk of the stored object in `extent`, or in the one chunk that it is."""
    if level == len(route.shards):
        yield from _read_headers([(extent, place)], route, spec)
        return
    step = route.shards[level]
    spec = resolved(step.before, spec)
    index = ShardIndex.of(step.codec, spec.shape)
    with at_place(place):
        opened = _open(extent, step.after, spec)
        if opened is None:
            return
        stored = opened.first(index.nbytes) if index.first else opened.last(index.nbytes)
        if stored is None:
            return
        extents = index.extents(index.decode(stored.as_numpy_array()))
    spec = replace(spec, shape=step.codec.chunk_shape)
    arrays = array_codecs(route.step_into(level + 1).before)
    inner: list[tuple[Extent, ChunkPlace]] = [
        (opened.part(start, stop), InnerPlace(place, position, spec, arrays))
        for position, (start, stop) in extents.items()
    ]
    if level + 1 == len(route.shards):
        yield from _read_headers(inner, route, spec)
    else:
        for part, inside in inner:
            yield from _read(part, route, spec, inside, level + 1)


def _read_headers(chunks: list[tuple[Extent, ChunkPlace]], route: Route, spec: ArraySpec) -> Iterator[Seen]:
    if route.parts or route.end.codec.holds_another:
        for extent, place in chunks:
            yield from _read_whole(extent, route, spec, place)
        return
    step = route.end
    spec = resolved(step.before, spec)
    opened = []
    for extent, place in chunks:
        with at_place(place):
            opened.append(_open(extent, step.after, spec))
    present = [(extent, place) for extent, (_, place) in zip(opened, chunks, strict=True) if extent]
    by_source: dict[int, list[tuple[Extent, ChunkPlace]]] = {}
    for extent, place in present:
        by_source.setdefault(id(extent.source), []).append((extent, place))
    for group in by_source.values():
        headers = firsts([extent for extent, _ in group], step.codec.header_bytes)
        for header, (_, place) in zip(headers, group, strict=True):
            index = place.index()
            if header is not None and index is not None:
                with at_place(place):
                    yield route.path, index, step.codec.read_mask(header)


def _read_whole(extent: Extent, route: Route, spec: ArraySpec, place: ChunkPlace) -> Iterator[Seen]:
    """Like `_read_headers`, for a codec inside a part of the chunk, or nested in another one."""
    data, index = extent.all(), place.index()
    if data is None or index is None:
        return
    seen: list[Seen] = []
    with at_place(place):
        for part in route.parts:
            spec = resolved(part.before, spec)
            parts = part.codec.open_parts(undo(part.after, data, spec), spec)
            if part.name not in parts:
                return
            data, spec = parts[part.name]
        spec = resolved(route.end.before, spec)
        data = undo(route.end.after, data, spec)
        route.end.codec.decode_at_most(
            data, spec, likely_bound(spec), lambda path, mask: seen.append((path, index, mask)), route.path
        )
    yield from seen


def _open(extent: Extent, codecs: tuple[BytesBytesCodec, ...], spec: ArraySpec) -> Extent | None:
    """The extent with `codecs` undone; None if it does not exist."""
    around = margins(codecs)
    if around is not None:
        return extent.without(*around)
    data = extent.all()
    return None if data is None else Extent(MemoryObject(undo(codecs, data, spec)))
