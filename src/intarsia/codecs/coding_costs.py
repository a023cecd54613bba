"""The one table of what codecs cost: processor time for each byte of values, to decode and to encode it.

`one_of`, `advise`, `optimize` and the choice among replicas compare encodings with it. Nothing is timed at
run time, so the same data always gets the same answer, however busy the machine is.

`python -m benchmarks coding_costs` measured it on 2026-11-18, and shows what this machine has beside it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from zarr.abc.codec import Codec

from intarsia.codecs.base import all_codecs

COPYING = 0.1
"""The cost of reading or writing a byte that no codec changes, in nanoseconds, as all costs here."""

DECODING = {
    "blosc": 0.25,
    "blosc-zlib": 2.0,
    "blosc-zstd": 0.4,
    "bz2": 17.0,
    "gzip": 1.1,
    "lz4": 0.2,
    "lzma": 14.0,
    "shuffle": 0.3,
    "zlib": 1.1,
    "zstd": 0.8,
}
"""What codecs cost beyond that, by name; others cost next to nothing. `blosc` has its fast compressors."""

ENCODING: Mapping[str, Mapping[int, float]] = {
    "blosc": {5: 0.8},
    "blosc-zlib": {5: 28.0},
    "blosc-zstd": {5: 2.5},
    "bz2": {1: 52.0},
    "gzip": {1: 10.0, 6: 34.0, 9: 420.0},
    "lz4": {1: 0.6},
    "lzma": {6: 260.0},
    "shuffle": {1: 0.3},
    "zlib": {1: 10.0, 6: 34.0, 9: 420.0},
    "zstd": {1: 1.4, 3: 1.4, 9: 8.7, 19: 190.0},
}
"""The same for encoding, by level; another level costs as much as the nearest."""

LEVELS = ("level", "clevel", "preset")
"""The options of compressors that say how hard they try."""

DEFAULT_LEVELS = {"zstd": 3}
"""The level that a compressor uses for level 0, if that does not mean the least effort."""


def decode_cost(codecs: Iterable[Codec]) -> float:
    """The nanoseconds of processor time for decoding a byte with these codecs and those inside them.

    >>> from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
    >>> codecs = BloscCodec(cname="lz4"), ZstdCodec(), GzipCodec()
    >>> decode_cost([]) < decode_cost(codecs[:1]) < decode_cost(codecs[1:2]) < decode_cost(codecs[2:])
    True
    """
    return COPYING + sum(DECODING.get(name, 0.0) for name, _ in map(_entry, all_codecs(codecs)))


def encode_cost(codecs: Iterable[Codec]) -> float:
    """The same for encoding.

    >>> from zarr.codecs import ZstdCodec
    >>> encode_cost([ZstdCodec(level=3)]) < encode_cost([ZstdCodec(level=9)])
    True
    """
    total = COPYING
    for name, level in map(_entry, all_codecs(codecs)):
        levels = ENCODING.get(name, {0: 0.0})
        total += levels[min(levels, key=lambda known: abs(known - level))]
    return total


def _entry(codec: Codec) -> tuple[str, int]:
    """The name of a codec in the tables, and its level."""
    document: Any = codec.to_dict()
    configuration = document.get("configuration") or {}
    name = str(document.get("name")).removeprefix("numcodecs.")  # the filters of format 2 have none
    inside = f"{name}-{configuration.get('cname')}"
    level = next((configuration[key] for key in LEVELS if isinstance(configuration.get(key), int)), 1)
    return inside if inside in DECODING else name, level or DEFAULT_LEVELS.get(name, 0)
