"""Claim: one_of is never larger than the best single pipeline, and reads faster when asked to be fast."""

import warnings
from functools import partial

import numpy as np
import zarr
from zarr.codecs import BytesCodec, GzipCodec, ZstdCodec
from zarr.codecs.numcodecs import LZ4
from zarr.storage import MemoryStore

from benchmarks.measure import best_times, headed, table
from intarsia.codecs import ShuffleCodec, one_of

CHUNKS, ELEMENTS = 24, 1 << 18  # 1 MiB of float32 each


def mix() -> np.ndarray:
    """Noise, smooth curves, rounded measurements and repeated values, in turns."""
    rng = np.random.default_rng(0)
    rows = np.empty((CHUNKS, ELEMENTS), dtype="f4")
    rows[::4] = rng.integers(0, 2**32, (CHUNKS // 4, ELEMENTS), dtype="u4").view("f4")
    rows[1::4] = np.sin(np.linspace(0, 50 * CHUNKS, CHUNKS // 4 * ELEMENTS)).reshape(-1, ELEMENTS)
    rows[2::4] = rng.normal(size=(CHUNKS // 4, ELEMENTS)).round(1)
    rows[3::4] = rng.choice(np.array([1.5, 2.5, 1e10], "f4"), (CHUNKS // 4, ELEMENTS))
    return rows.reshape(-1)


def stored(data: np.ndarray, codecs: list) -> tuple[zarr.Array, int]:
    store: dict = {}
    z = zarr.create(
        store=MemoryStore(store), shape=data.size, chunks=ELEMENTS, dtype="f4",
        codecs=[BytesCodec(endian="little"), *codecs],
    )  # fmt: skip
    z[:] = data
    return z, sum(len(value) for key, value in store.items() if key.startswith("c/"))


def read(z: zarr.Array) -> object:
    return z[:]


def run() -> str:
    shuffle = ShuffleCodec(element_size=4)
    single = {
        "lz4": [LZ4()],
        "shuffle, lz4": [shuffle, LZ4()],
        "shuffle, zstd-3": [shuffle, ZstdCodec(level=3)],
        "zstd-9": [ZstdCodec(level=9)],
        "gzip-6": [GzipCodec(level=6)],
    }
    data = mix()
    arrays = {name: stored(data, codecs) for name, codecs in single.items()}
    for weight in ("small", "fast"):
        arrays[f"one_of, {weight}"] = stored(data, [one_of(single.values(), weight=weight)])
    times = best_times({name: partial(read, z) for name, (z, _) in arrays.items()})
    smallest = min(nbytes for name, (_, nbytes) in arrays.items() if name in single)
    rows = [
        (
            name,
            f"{nbytes:,}",
            f"{nbytes / smallest:.3f}",
            f"{data.nbytes / times[name] / 1e6:.0f} MB/s",
            f"{times['one_of, small'] / times[name]:.2f}",
        )
        for name, (_, nbytes) in arrays.items()
    ]
    header = ("codecs", "bytes", "against the smallest pipeline", "read", "speed against one_of, small")
    text = table("Noise, smooth curves, rounded and repeated float32 in one array, in memory", rows, header)
    small, fast = (row for row in rows if row[0].startswith("one_of"))
    heading = (
        f"one_of is {small[2]} of the size of the best single pipeline, and reads {fast[4]}x as fast when "
        "asked to be fast"
    )
    return headed(heading, text)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
    print(run())
