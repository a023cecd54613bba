"""Arrays of Zarr format 2 as the engine reads them: with codecs of format 3 that decode the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as zarr_numcodecs

from intarsia._compat import V2Codec

if TYPE_CHECKING:
    from zarr.abc.codec import Codec

    from intarsia._compat import ArrayV2Metadata

PLAIN_KINDS = "biufc"
"""Kinds of data types whose chunks are their values, one after the other."""

# What a compressor was set to is no matter: its bytes say how they are decoded. Of lzma they do not.
COMPRESSORS: dict[str, Any] = {
    "zstd": lambda _: ZstdCodec(),
    "blosc": lambda _: BloscCodec(),
    "gzip": lambda _: GzipCodec(),
    "zlib": lambda _: zarr_numcodecs.Zlib(),
    "bz2": lambda _: zarr_numcodecs.BZ2(),
    "lz4": lambda _: zarr_numcodecs.LZ4(),
    "lzma": lambda settings: zarr_numcodecs.LZMA(**settings),
}
"""Compressors that are known by their names; they are undone without harm (`codecs/bounded.py`)."""


def codecs_of(metadata: ArrayV2Metadata) -> tuple[Codec, ...]:
    """A chain of codecs that decodes the chunks of the array.

    >>> import numcodecs, zarr
    >>> options = {"shape": 4, "dtype": ">i4", "zarr_format": 2}
    >>> z = zarr.create_array({}, compressors=numcodecs.Zstd(), **options)
    >>> [type(codec).__name__ for codec in codecs_of(z.metadata)]
    ['BytesCodec', 'ZstdCodec']
    >>> z = zarr.create_array({}, compressors=numcodecs.Zlib(), filters=[numcodecs.Delta(">i4")], **options)
    >>> [type(codec).__name__ for codec in codecs_of(z.metadata)]
    ['V2Codec', 'Zlib']
    """
    filters, compressor = metadata.filters, metadata.compressor
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
