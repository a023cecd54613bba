"""The encodings worth trying for a data type: from none at all to slow and small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from intarsia.codecs import PackBitsCodec, ShuffleCodec

if TYPE_CHECKING:
    from intarsia.codecs import CodecLike

__all__ = ["candidates"]

ZSTD_LEVELS = (1, 3, 9, 19)


def candidates(dtype: np.dtype[Any]) -> dict[str, list[CodecLike]]:
    """Codec lists by name; none of them loses information.

    >>> list(candidates(np.dtype("u1")))
    ['raw', 'blosc-lz4', 'blosc-zstd', 'gzip-6', 'zstd-1', 'zstd-3', 'zstd-9', 'zstd-19']
    """
    kind = np.dtype(dtype)
    found: dict[str, list[CodecLike]] = {
        "raw": [],
        "blosc-lz4": [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=kind.itemsize)],
        "blosc-zstd": [BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=kind.itemsize)],
        "gzip-6": [GzipCodec(level=6)],
    }
    if kind.kind == "b":
        found["packbits"] = [PackBitsCodec()]
        found["packbits+zstd-9"] = [PackBitsCodec(), ZstdCodec(level=9)]
    for level in ZSTD_LEVELS:
        found[f"zstd-{level}"] = [ZstdCodec(level=level)]
    if kind.itemsize > 1:
        for level in ZSTD_LEVELS:
            found[f"shuffle+zstd-{level}"] = [
                ShuffleCodec(element_size=kind.itemsize),
                ZstdCodec(level=level),
            ]
    return found
