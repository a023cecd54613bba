"""Codecs for zarr's own decoding that do not trust what a chunk claims; arrays of Zarr format 2.

zarr's compressors become copies whose class is a subclass of the original: they encode as before, and decode
by `bounded`. Arrays of format 2 are read with codecs of format 3 that decode the same bytes.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
import zarr
from zarr.abc.codec import Codec
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as zarr_numcodecs
from zarr.core.buffer import Buffer, NDBuffer, default_buffer_prototype

from intarsia._compat import ArraySpec, ArrayV2Metadata, V2Codec
from intarsia.codecs.bounded import COUNT, check_count, is_known, likely_bound, undone

PLAIN_KINDS = "biufc"
"""Kinds of data types whose chunks are just their values, one after the other."""

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


def codecs_of(metadata: ArrayV2Metadata) -> tuple[Codec, ...]:
    """A chain of codecs that decodes the array's chunks.

    >>> import numcodecs, zarr
    >>> options = {"shape": 4, "dtype": ">i4", "zarr_format": 2}
    >>> z = zarr.create_array({}, compressors=numcodecs.Zstd(), **options)
    >>> [type(codec).__name__ for codec in codecs_of(z.metadata)]
    ['BytesCodec', 'ZstdCodec']
    >>> z = zarr.create_array({}, compressors=numcodecs.Zlib(), filters=[numcodecs.Delta(">i4")], **options)
    >>> [type(codec).__name__ for codec in codecs_of(z.metadata)]
    ['V2Codec', 'Zlib']
    """
    filters, compressor = _counted(metadata), metadata.compressor
    outer: tuple[Codec, ...] = ()
    if compressor is not None:
        settings: dict[str, Any] = dict(compressor.get_config())
        made = COMPRESSORS.get(settings.pop("id"))
        if made is None:
            return (V2Codec(filters=filters, compressor=compressor),)
        outer = (made(settings),)
    dtype = metadata.dtype.to_native_dtype()
    if filters or dtype.kind not in PLAIN_KINDS:
        return (V2Codec(filters=filters, compressor=None), *outer)
    turned = metadata.order == "F" and len(metadata.shape) > 1
    axes = (TransposeCodec(order=tuple(reversed(range(len(metadata.shape))))),) if turned else ()
    return (*axes, BytesCodec(endian="big" if dtype.byteorder == ">" else "little"), *outer)


ANY_LENGTH = ("vlen-utf8", "vlen-bytes", "vlen-array")
"""Filters whose bytes begin with the number of elements; numcodecs allocates that many."""


def guarded_format2(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array for reading by zarr: the decompressed size of a chunk and its number of elements are bounded.

    >>> import zarr
    >>> z = zarr.create_array({}, shape=2, dtype=str, zarr_format=2)
    >>> z[...] = ["a", "b"]
    >>> guarded_format2(z)[...].tolist()
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
        head = bytes(memoryview(data).cast("B")[: COUNT.size])
        count = COUNT.unpack(head)[0] if len(head) == COUNT.size else 0
        if count != self.elements:
            raise ValueError(f"it says it has {count} elements, but {self.elements} are expected")
        return super().decode(data, out)


class _BoundedCompressor(_Filter):
    """A compressor whose output is bounded."""

    def __init__(self, codec: Any, spec: ArraySpec) -> None:
        super().__init__(codec)
        settings = dict(codec.get_config())
        self.known = COMPRESSORS[settings.pop("id")](settings)
        self.spec = spec

    def decode(self, data: Any, out: Any = None) -> Any:
        given = self.spec.prototype.buffer.from_array_like(np.frombuffer(data, dtype=np.uint8))
        made = undone(type(self.known), self.known, given, self.spec, likely_bound(self.spec))
        return made.as_numpy_array()


def guarded(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """The chain, with zarr's compressors and text codecs checking what they decode.

    >>> from zarr.codecs import BytesCodec, GzipCodec
    >>> [type(codec).__mro__[1].__name__ for codec in guarded([BytesCodec(), GzipCodec()])]
    ['ArrayBytesCodec', 'GzipCodec']
    """
    return tuple(map(_guarded, codecs))


def _guarded(codec: Codec) -> Codec:
    if type(codec) is ShardingCodec:
        return replace(codec, codecs=guarded(codec.codecs))
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
    def decode(self: Any, data: Buffer, spec: ArraySpec) -> Buffer:
        return undone(kind, self, data, spec, likely_bound(spec))

    return decode


async def _at_once(self: Any, data: Buffer, spec: ArraySpec) -> Any:
    return self._decode_sync(data, spec)


async def _in_thread(self: Any, data: Buffer, spec: ArraySpec) -> Any:
    return await asyncio.to_thread(self._decode_sync, data, spec)
