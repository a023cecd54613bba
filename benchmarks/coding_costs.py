"""Claim: what codecs cost on this machine, beside the table that encodings are compared with.

Parts and limits: Nanoseconds of processor time for each byte of float32 values, in chunks of 1 MiB: smooth
with noise, rounded measurements, and counts. The table is in `src/intarsia/codecs/coding_costs.py`; nothing
is timed when data is read or written.
"""

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from platform import machine

import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.codecs.numcodecs import BZ2, LZ4, LZMA, Zlib
from zarr.core.buffer import default_buffer_prototype

from benchmarks.measure import LIMITS_BELOW, best_costs, table
from intarsia.codecs import ShuffleCodec, compressors
from intarsia.codecs.codec_path import stored_spec
from intarsia.codecs.coding_costs import COPYING, decode_cost, encode_cost

ELEMENTS = 1 << 18
LARGE = 64 << 20
"""More than fits into a cache, since an array that is read does not."""

CODECS = {
    "blosc-lz4-5": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
    "blosc-zstd-5": BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=4),
    "blosc-zlib-5": BloscCodec(cname="zlib", clevel=5, shuffle="shuffle", typesize=4),
    "bz2-1": BZ2(level=1),
    "gzip-1": GzipCodec(level=1),
    "gzip-6": GzipCodec(level=6),
    "gzip-9": GzipCodec(level=9),
    "lz4": LZ4(),
    "lzma-6": LZMA(preset=6),
    "shuffle": ShuffleCodec(element_size=4),
    "zlib-6": Zlib(level=6),
    "zstd-1": ZstdCodec(level=1),
    "zstd-3": ZstdCodec(level=3),
    "zstd-9": ZstdCodec(level=9),
    "zstd-19": ZstdCodec(level=19),
}


def chunks() -> list[np.ndarray]:
    """Three kinds of measurements."""
    rng = np.random.default_rng(0)
    smooth = np.sin(np.linspace(0, 50, ELEMENTS)) * 10
    noisy = smooth + rng.normal(0, 0.05, ELEMENTS)
    return [noisy.astype("f4"), noisy.round(1).astype("f4"), rng.poisson(3, ELEMENTS).astype("f4")]


def run() -> str:
    prototype = default_buffer_prototype()
    spec = stored_spec(zarr.create(store={}, shape=ELEMENTS, dtype="f4"), (ELEMENTS,))
    data = [prototype.buffer.from_bytes(chunk.tobytes()) for chunk in chunks()]
    most, total = 2 * len(data[0]), sum(map(len, data))

    def encode(codec: object) -> list:
        return [codec._encode_sync(chunk, spec) for chunk in data]

    def decode(codec: object, encoded: list) -> None:
        for chunk in encoded:
            compressors.decode(codec, chunk, spec, most)

    large = np.ones(LARGE, dtype=np.uint8)
    jobs: dict[str, Callable[[], object]] = {"copying": large.copy}
    for name, codec in CODECS.items():
        jobs[f"encode {name}"] = partial(encode, codec)
        jobs[f"decode {name}"] = partial(decode, codec, encode(codec))
    costs = best_costs(jobs, most_seconds=60)
    nanoseconds = {name: cost.processor / total * 1e9 for name, cost in costs.items()}
    copying = costs["copying"].processor / LARGE * 1e9
    rows = [("copying", f"{copying:.2f}", f"{COPYING:.2f}", "", "")]
    rows += [
        (
            name,
            f"{nanoseconds[f'decode {name}']:.2f}",
            f"{decode_cost([codec]) - COPYING:.2f}",
            f"{nanoseconds[f'encode {name}']:.2f}",
            f"{encode_cost([codec]) - COPYING:.2f}",
        )
        for name, codec in CODECS.items()
    ]
    header = ("codec", "decode", "in the table", "encode", "in the table")
    title = f"Measured on {datetime.now(UTC):%Y-%m-%d}, {machine()}, ns per byte"
    return f"{LIMITS_BELOW}\n\n{table(title, rows, header)}"


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
    print(run())
