"""Arrays of format 2, as the engine reads them: by metadata of format 3 that mean the same chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zarr.abc.codec import Codec
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    GzipCodec,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as zarr_numcodecs

from intarsia._compat import ArrayV2Metadata, ArrayV3Metadata, V2Codec
from intarsia.display import one_line
from intarsia.errors import MetadataError

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
"""Compressors that the engine decodes with a bound (`codecs/compressors.py`); others are numcodecs' own."""

ANY_LENGTH: dict[str, Any] = {"vlen-utf8": VLenUTF8Codec, "vlen-bytes": VLenBytesCodec}
"""The codecs for elements of any length, by the name of the filter."""


def as_format_3(metadata: ArrayV2Metadata) -> ArrayV3Metadata:
    """Metadata by which the same chunks are read; they are never stored.

    >>> import zarr
    >>> z = zarr.create_array({}, shape=4, dtype=">i2", zarr_format=2, compressors=None)
    >>> as_format_3(z.metadata).codecs
    (BytesCodec(endian='big'),)
    """
    fill_value = metadata.dtype.default_scalar() if metadata.fill_value is None else metadata.fill_value
    try:
        return ArrayV3Metadata(
            shape=metadata.shape,
            data_type=metadata.dtype,
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": metadata.chunks}},
            chunk_key_encoding={"name": "v2", "separator": metadata.dimension_separator},
            fill_value=fill_value,
            codecs=_codecs(metadata),
            attributes=None,
            dimension_names=None,
        )
    except (ValueError, TypeError) as error:
        raise MetadataError(
            f"arrays of format 2 with such metadata cannot be read: {one_line(error)}"
        ) from error


def _codecs(metadata: ArrayV2Metadata) -> Sequence[Codec]:
    filters, compressor = tuple(metadata.filters or ()), metadata.compressor
    before: list[Codec] = []
    after: list[Codec] = []
    if metadata.order == "F" and metadata.ndim:
        before = [TransposeCodec(order=tuple(reversed(range(metadata.ndim))))]
    if compressor is not None and compressor.codec_id in COMPRESSORS:
        settings = dict(compressor.get_config())
        after, compressor = [COMPRESSORS[settings.pop("id")](settings)], None
    names, dtype = [codec.codec_id for codec in filters], metadata.dtype.to_native_dtype()
    serializer: Codec = V2Codec(filters, compressor)
    if len(names) == 1 and names[0] in ANY_LENGTH and compressor is None:
        serializer = ANY_LENGTH[names[0]]()
    elif not filters and compressor is None and dtype.kind in "biufc":
        serializer = BytesCodec(endian="big" if dtype.str.startswith(">") else "little")
    return *before, serializer, *after
