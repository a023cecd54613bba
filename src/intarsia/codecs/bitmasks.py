"""The bitmasks of an array's chunks, read from their headers alone."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import zarr

from intarsia.codecs.codec_path import (
    EncodedPiece,
    Route,
    deciding_arrays,
    deciding_members,
    find_routes,
    stored_piece,
)
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import Grid, Index, at_place
from intarsia.codecs.stored_chunks import Extent, StoredObject, firsts, stored_indices

type Bounds = tuple[tuple[int, int], ...]
type Masks = np.ma.MaskedArray[Any, np.dtype[Any]]
type Bitmask = tuple[str, Index, int]
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
    (zarr_array,) = deciding_arrays(array, "read bitmasks")
    return _only_or_all(masks_by_codec(zarr_array, names=names))


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
    bitmasks = {name: masks_by_codec(member, names=names) for name, member in members.items()}
    chunk_shapes = {
        (name, path): route.chunk_shape(member) or member.chunks
        for name, member in members.items()
        for route in find_routes(member, "read bitmasks")
        for path in route.conditional_codecs()
    }
    by_region: dict[Bounds, Any] = {}
    for region in array.regions:
        if region.name in members:
            by_codec = {}
            for path, whole in bitmasks[region.name].items():
                sides = zip(region.member_bounds, chunk_shapes[region.name, path], strict=True)
                by_codec[path] = whole[tuple(slice(a // size, -(-b // size)) for (a, b), size in sides)]
            by_region[region.bounds] = _only_or_all(by_codec)
    return by_region


def _only_or_all(by_codec: dict[str, Masks]) -> Any:
    return next(iter(by_codec.values())) if len(by_codec) == 1 else by_codec


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
        for path, bitmasks in _on_route(array, route, stored).items():
            codec = route.conditional_codecs()[path]
            by_codec[path] = _named(bitmasks, codec) if names else bitmasks
    return by_codec


def _on_route(array: zarr.Array[Any], route: Route, stored: Sequence[Index]) -> dict[str, Masks]:
    shape = route.grid_shape(array)
    bitmasks = {
        path: np.ma.masked_all(shape, dtype=_dtype(codec))
        for path, codec in route.conditional_codecs().items()
    }
    metadata: Any = array.metadata
    grid = Grid.of(metadata)

    def read(index: Index) -> list[Bitmask]:
        extent = Extent(StoredObject(array.store_path / metadata.encode_chunk_key(index)))
        return list(_read(route, stored_piece(array, grid, index, extent)))

    with ThreadPoolExecutor(zarr.config.get("async.concurrency")) as pool:
        for found in pool.map(read, stored):
            for path, index, mask in found:
                # A shard at the edge of the array may hold chunks beyond it.
                if all(i < n for i, n in zip(index, shape, strict=True)):
                    bitmasks[path][index] = mask
    return bitmasks


def _dtype(codec: ConditionalCodec) -> np.dtype[Any]:
    sizes = (size for size in (8, 16, 32, 64) if size >= codec.header_bits)
    return np.dtype(f"u{next(sizes) // 8}") if codec.header_bits <= LARGEST_INTEGER_BITS else np.dtype(object)


def _read(route: Route, piece: EncodedPiece, level: int = 0) -> Iterator[Bitmask]:
    """The bitmasks in every chunk of the stored object, or in the one chunk that it is."""
    pieces = [piece]
    if level < len(route.steps) - 1:
        step = route.steps[level]
        pieces = [inner for name, inner in step.open(piece).items() if step.leads_into(name)]
        level += 1
    if level < len(route.steps) - 1:
        for inner in pieces:
            yield from _read(route, inner, level)
    elif route.codec.holds_another:
        for inner in pieces:
            yield from _read_nested(route, inner)
    else:
        yield from _read_headers(route, pieces)


def _read_headers(route: Route, pieces: list[EncodedPiece]) -> Iterator[Bitmask]:
    by_source: dict[int, list[EncodedPiece]] = {}
    for piece in pieces:
        opened = route.end.uncover(piece)
        if opened is not None:
            by_source.setdefault(id(opened.extent.source), []).append(opened)
    for group in by_source.values():
        headers = firsts([piece.extent for piece in group], route.codec.header_bytes)
        for header, piece in zip(headers, group, strict=True):
            index = piece.place.index()
            if header is not None and index is not None:
                with at_place(piece.place):
                    yield route.path, index, route.codec.read_mask(header)


def _read_nested(route: Route, piece: EncodedPiece) -> Iterator[Bitmask]:
    """Like `_read_headers`, for a codec with others nested in it, whose headers are inside its data."""
    opened, index = route.end.uncover(piece), piece.place.index()
    data = None if opened is None else opened.extent.all()
    if opened is None or data is None or index is None:
        return
    found: list[Bitmask] = []
    with at_place(piece.place):
        route.codec.decode_at_most(
            data,
            opened.spec,
            likely_bound(opened.spec),
            lambda path, mask: found.append((path, index, mask)),
            route.path,
        )
    yield from found
