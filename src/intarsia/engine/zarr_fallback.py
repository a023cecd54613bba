"""Members that zarr itself reads and writes: data types, codecs or grids that the engine does not support.

zarr decodes with codecs that do not trust what a chunk claims. Its compressors become copies whose class is a
subclass of the original: they encode as before, and decode by `codecs/compressors.py`, with a bound.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.codec import Codec
from zarr.codecs import (
    BloscCodec,
    GzipCodec,
    ShardingCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as zarr_numcodecs
from zarr.core.buffer import Buffer, NDBuffer, default_buffer_prototype

from intarsia._compat import ArraySpec, sync
from intarsia.codecs.compressors import (
    check_count,
    check_stated_count,
    decode,
    is_known,
    likely_bound,
)
from intarsia.codecs.runtime_options import with_codecs
from intarsia.engine.chunk_plan import AxisCuts, outer_index
from intarsia.engine.fetch.fetcher_choice import check_links
from intarsia.engine.fetch.read_errors import read_error
from intarsia.engine.plan import chunks_along, touched_chunks
from intarsia.engine.request import moved
from intarsia.engine.write_chunks import lock_shards
from intarsia.manifest.box import block_shape
from intarsia.manifest.data_types import Values, read_points, write_decoded
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.plan import AxisSelector, RegionPart
    from intarsia.engine.prepared_member import PreparedMember, ZarrMember
    from intarsia.manifest.packing import Packing


# The settings of a compressor do not matter, as its bytes say how to decode them; lzma is an exception.
COMPRESSORS: dict[str, Any] = {
    "zstd": lambda _: ZstdCodec(),
    "blosc": lambda _: BloscCodec(),
    "gzip": lambda _: GzipCodec(),
    "zlib": lambda _: zarr_numcodecs.Zlib(),
    "bz2": lambda _: zarr_numcodecs.BZ2(),
    "lz4": lambda _: zarr_numcodecs.LZ4(),
    "lzma": lambda settings: zarr_numcodecs.LZMA(**settings),
}
"""Compressors that are known by name; decoding them is safe (`codecs/bounded.py`)."""


ANY_LENGTH = ("vlen-utf8", "vlen-bytes", "vlen-array")
"""Filters whose bytes begin with the number of elements; numcodecs allocates that many."""


def format2_with_size_checks(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array for reading by zarr: the decompressed size of a chunk and its number of elements are bounded.

    >>> import zarr
    >>> z = zarr.create_array({}, shape=2, dtype=str, zarr_format=2)
    >>> z[...] = ["a", "b"]
    >>> format2_with_size_checks(z)[...].tolist()
    ['a', 'b']
    """
    metadata: Any = array.metadata
    config = array.async_array.config
    spec = ArraySpec(metadata.chunks, metadata.dtype, metadata.fill_value, config, default_buffer_prototype())
    filters, compressor = _counted(metadata), metadata.compressor
    if compressor is not None and compressor.codec_id in COMPRESSORS:
        compressor = _BoundedCompressor(compressor, spec)
    if filters is metadata.filters and compressor is metadata.compressor:
        return array
    live = replace(metadata, filters=filters, compressor=compressor)
    return zarr.Array(zarr.AsyncArray(metadata=live, store_path=array.store_path, config=config))


def _counted(metadata: Any) -> Any:
    """The filters; one whose bytes state the number of elements is not trusted."""
    filters = metadata.filters
    if filters and filters[0].codec_id in ANY_LENGTH:
        return (_CountedElements(filters[0], prod(metadata.chunks)), *filters[1:])
    return filters


class _Filter:
    """A codec of numcodecs with a check before it decodes."""

    codec_id = ""

    def __init__(self, codec: Any) -> None:
        self.codec = codec
        self.codec_id = codec.codec_id

    def encode(self, data: Any) -> Any:
        return self.codec.encode(data)

    def decode(self, data: Any, out: Any = None) -> Any:
        return self.codec.decode(data, out)

    def get_config(self) -> Any:
        return self.codec.get_config()

    @classmethod
    def from_config(cls, config: Any) -> Any:
        raise TypeError("it is made around a codec, not from a configuration")


class _CountedElements(_Filter):
    """Elements of any length: as many as the chunk has, or an error."""

    def __init__(self, codec: Any, elements: int) -> None:
        super().__init__(codec)
        self.elements = elements

    def decode(self, data: Any, out: Any = None) -> Any:
        check_stated_count(data, self.elements)
        return super().decode(data, out)


class _BoundedCompressor(_Filter):
    """A compressor whose output is bounded."""

    def __init__(self, codec: Any, spec: ArraySpec) -> None:
        super().__init__(codec)
        settings = dict(codec.get_config())
        self.known = COMPRESSORS[settings.pop("id")](settings)
        self.spec = spec

    def decode(self, data: Any, out: Any = None) -> Any:
        encoded = self.spec.prototype.buffer.from_array_like(np.frombuffer(data, dtype=np.uint8))
        made = decode(self.known, encoded, self.spec, likely_bound(self.spec))
        return made.as_numpy_array()


def with_size_checks(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """The chain, with zarr's compressors and text codecs checking what they decode.

    >>> from zarr.codecs import BytesCodec, GzipCodec
    >>> [type(codec).__mro__[1].__name__ for codec in with_size_checks([BytesCodec(), GzipCodec()])]
    ['ArrayBytesCodec', 'GzipCodec']
    """
    return tuple(map(_guarded, codecs))


def _guarded(codec: Codec) -> Codec:
    if type(codec) is ShardingCodec:
        return replace(codec, codecs=with_size_checks(codec.codecs))
    own: Any = type(codec)
    kind = _guard(own)
    if kind is None:
        return codec
    made = copy.copy(codec)
    object.__setattr__(made, "__class__", kind)
    return made


@cache
def _guard(kind: type) -> type | None:
    """The subclass of a codec's class that checks; None for classes that need no check."""
    name = kind.__name__  # zarr knows its text codecs by this name
    if kind in (VLenUTF8Codec, VLenBytesCodec):
        return type(name, (kind,), {"_decode_sync": _counting(kind), "_decode_single": _at_once})
    if is_known(kind):
        return type(name, (kind,), {"_decode_sync": _bounded(kind), "_decode_single": _in_thread})
    return None


def _counting(kind: Any) -> Any:
    def decode(self: Any, data: Buffer, spec: ArraySpec) -> NDBuffer:
        check_count(self, data, prod(spec.shape))
        decoded: NDBuffer = kind._decode_sync(self, data, spec)
        return decoded

    return decode


def _bounded(kind: type) -> Any:
    def decode_bounded(self: Any, data: Buffer, spec: ArraySpec) -> Buffer:
        return decode(self, data, spec, likely_bound(spec), kind)

    return decode_bounded


async def _at_once(self: Any, data: Buffer, spec: ArraySpec) -> Any:
    return self._decode_sync(data, spec)


async def _in_thread(self: Any, data: Buffer, spec: ArraySpec) -> Any:
    return await asyncio.to_thread(self._decode_sync, data, spec)


def read_by_zarr(array: zarr.Array[Any], selection: Any = ...) -> np.ndarray[Any, Any]:
    """Part of a small array beside the data, such as a coordinate, read by zarr with the engine's checks.

    >>> z = zarr.array([1, 2, 3])
    >>> read_by_zarr(z, slice(1, None))
    array([2, 3])
    """
    check_links(array.store, array.path)
    metadata: Any = array.metadata
    try:
        return np.asarray(with_codecs(array, with_size_checks(metadata.codecs))[selection])
    except Exception as error:
        raise read_error(f"cannot read {array.path}", error, array.store, array.path, None) from error


COPIES = 3
"""How many copies zarr holds of what it reads: encoded, decoded chunk by chunk, and as the result."""


def read_part_by_zarr(
    source: ZarrMember,
    part: RegionPart,
    out: Values,
    *,
    points: bool,
    window: int,
    packing: Packing | None = None,
) -> None:
    """Read one part of a plan into the output, in pieces that take no more memory than the window."""
    member, out = source.size_checked, part.onto(out)
    if not source.are_links_checked:
        check_links(member.store, member.path)
        source.are_links_checked = True
    object_shape = source.stored_object_shape
    if object_shape is None or not part.member_selection:
        pieces: Iterator[RegionPart] = iter((part,))
    elif points:
        pieces = _point_pieces(part, object_shape, member.dtype.itemsize, window // COPIES)
    else:
        pieces = _outer_pieces(part, object_shape, member.dtype.itemsize, window // COPIES)
    for piece in pieces:
        if points:
            coordinates: Any = piece.member_selection
            write_decoded(out, piece.output_selection, read_points(member, coordinates), packing)
        elif (
            source.is_plain
            and packing is None
            and isinstance(out, np.ndarray)
            and piece.output_selection
            and all(isinstance(selector, slice) for selector in piece.output_selection)
        ):
            place = default_buffer_prototype().nd_buffer.from_numpy_array(out[piece.output_selection])
            inside: Any = piece.member_selection
            member.get_basic_selection(inside, out=place)
        else:
            write_decoded(
                out,
                outer_index(piece.output_selection, out.shape),
                _read_outer(member, piece.member_selection),
                packing,
            )


def _read_outer(member: zarr.Array[Any], source: Any) -> Any:
    if all(isinstance(selector, slice) for selector in source):
        return member.get_basic_selection(source or ...)
    return member.get_orthogonal_selection(source)


def _outer_pieces(
    part: RegionPart, object_shape: tuple[int, ...], itemsize: int, most_bytes: int
) -> Iterator[RegionPart]:
    """The part cut at chunk borders into pieces that zarr can read at a time."""
    size = block_shape(
        object_shape,
        [_extent(s, g) for s, g in zip(part.member_selection, object_shape, strict=True)],
        itemsize,
        most_bytes,
    )
    axes = [AxisCuts(*axis) for axis in zip(part.member_selection, part.output_selection, size, strict=True)]
    for place in product(*(range(len(axis.chunk)) for axis in axes)):
        cut = list(zip(axes, place, size, strict=True))
        source = tuple(moved(axis.inside[i], axis.chunk[i] * n) for axis, i, n in cut)
        yield replace(
            part, member_selection=source, output_selection=tuple(axis.target[i] for axis, i, _ in cut)
        )


def _extent(selector: AxisSelector, object_shape: int) -> int:
    """How many chunks the part spans along an axis."""
    chunks = chunks_along(selector, object_shape)
    return chunks[-1] - chunks[0] + 1


def _point_pieces(
    part: RegionPart, object_shape: tuple[int, ...], itemsize: int, most_bytes: int
) -> Iterator[RegionPart]:
    """The points, grouped by their chunks, with as many chunks at a time as fit."""
    coordinates: Any = part.member_selection
    places: Any = part.output_selection[0]
    order = np.lexsort([c // n for c, n in zip(reversed(coordinates), reversed(object_shape), strict=True)])
    owner = np.stack([c[order] // n for c, n in zip(coordinates, object_shape, strict=True)])
    changes = np.flatnonzero((owner[:, 1:] != owner[:, :-1]).any(axis=0)) + 1
    together = max(1, most_bytes // max(1, itemsize * int(np.prod(object_shape))))
    for group in np.split(order, changes[together - 1 :: together]):
        yield replace(
            part, member_selection=tuple(c[group] for c in coordinates), output_selection=(places[group],)
        )


def find_failing_chunk(source: ZarrMember, part: RegionPart, *, points: bool) -> tuple[int, ...] | None:
    """Which chunk of the part fails, found by reading them one by one; only used after a failed read."""
    if source.stored_object_shape is None:
        return None
    member = source.size_checked
    sizes = member.chunks
    for index in touched_chunks(part.member_selection, sizes, points=points):
        box = tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, sizes, strict=True))
        try:
            member.get_basic_selection(box or ...)
        except Exception:
            return index
    return None


def write_part_by_zarr(source: PreparedMember, part: RegionPart, values: Values, *, points: bool) -> None:
    """Write what the `output_selection` of a part selects of the values to its `member_selection`."""
    member: Any = source.array
    check_store(member.store)
    part = _last_of_each(part, member.shape, points)
    with lock_shards(source, part, points=points), wait_for_pending_writes():
        if points:
            member.set_coordinate_selection(part.member_selection, values[part.output_selection])
            return
        chosen = values[outer_index(part.output_selection, values.shape)]
        if all(isinstance(selector, slice) for selector in part.member_selection):
            member.set_basic_selection(part.member_selection or ..., chosen)
        else:
            member.set_orthogonal_selection(part.member_selection, chosen)


_writing: ContextVar[object] = ContextVar("writing")


@contextmanager
def wait_for_pending_writes() -> Iterator[None]:
    """Make sure that the store is at rest when an error of the writes inside is caught.

    zarr raises the first failure, and its other tasks run on. They are known by their context, which is a
    copy of the context that started them.

    >>> with wait_for_pending_writes():
    ...     pass
    """
    mark = object()
    token = _writing.set(mark)
    try:
        yield
    except Exception:
        sync(_ended(mark))
        raise
    finally:
        _writing.reset(token)


async def _ended(mark: object) -> None:
    """Wait until no task with this mark runs, nor any that it has started since."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    while running := [task for task in others if task.get_context().get(_writing) is mark]:
        await asyncio.wait(running)
        others = asyncio.all_tasks() - {asyncio.current_task()}


def _last_of_each(part: RegionPart, shape: tuple[int, ...], points: bool) -> RegionPart:
    """The part without elements that a later one overwrites, as in NumPy; zarr's shards mix up the order."""
    if points and part.member_selection:
        coordinates: Any = part.member_selection
        places: Any = part.output_selection[0]
        flat = np.ravel_multi_index(coordinates, shape)
        _, from_end = np.unique(flat[::-1], return_index=True)
        if from_end.size == flat.size:
            return part
        kept = flat.size - 1 - from_end
        return replace(
            part, member_selection=tuple(c[kept] for c in coordinates), output_selection=(places[kept],)
        )
    axes: list[tuple[Any, Any]] = []
    for inside, target in zip(part.member_selection, part.output_selection, strict=False):
        if not isinstance(inside, slice) and not isinstance(target, slice):
            last = np.append(inside[1:] != inside[:-1], True)  # a plan gives indices in ascending order
            axes.append((inside[last], target[last]))
        else:
            axes.append((inside, target))
    if not axes:
        return part
    member_selection, output_selection = zip(*axes, strict=True)
    return replace(part, member_selection=member_selection, output_selection=output_selection)
