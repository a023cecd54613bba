"""What decoding costs, by codec: the one table with which pipelines, layers and encodings are compared.

Costs are counted in bytes that zstd decodes. They were measured as processor time on one machine, with chunks
of 4 kB to 1 MB of float32; those of bz2 and lzma are estimates. Nothing is timed at run time, so the same
data always gets the same answer.
"""

from collections.abc import Mapping
from typing import Any

SECONDS = 1.6e-9
"""The time for a cost of 1: zstd decodes a byte."""

COPYING = 0.15
"""The cost of reading a byte that no codec changes."""

DECODING = {
    "lz4": 0.4,
    "blosc": 0.35,
    "zstd": 0.85,
    "gzip": 1.2,
    "zlib": 1.2,
    "shuffle": 0.3,
    "bz2": 20.0,
    "lzma": 8.0,
}
"""What codecs cost per byte beyond that, by name; others cost next to nothing."""

BLOSC_DECODING = {"zstd": 0.8, "zlib": 1.2}
"""The same for compressors inside blosc, except for its fast ones."""


def decoding_cost(name: str, configuration: Mapping[str, Any]) -> float:
    """The cost of decoding a byte with the codec of this name and configuration, beyond copying it.

    >>> decoding_cost("zstd", {"level": 3}), decoding_cost("numcodecs.blosc", {"cname": "lz4"})
    (0.85, 0.35)
    """
    short = name.removeprefix("numcodecs.")
    compressor = str(configuration.get("cname")) if short == "blosc" else ""
    return BLOSC_DECODING.get(compressor, DECODING.get(short, 0.0))
