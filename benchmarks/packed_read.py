"""Claim: a packed read costs at most 1.15x of the same chunks read as they are and unpacked by NumPy.

Both read int16 chunks of 512 KiB from memory in the same codecs. What follows for readers of integers is
what xarray does: convert, mask, multiply, add. The stored integers alone are no values yet.
"""

import numpy as np
import zarr

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table

SHAPE, CHUNKS = (32, 512, 512), (4, 256, 256)
MISSING, SCALE, OFFSET = -32768, 0.01, 273.15
CODECS = {
    "zstd": zarr.codecs.ZstdCodec(level=3),
    "gzip": zarr.codecs.GzipCodec(level=4),
    "blosc lz4": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"),
    "none": None,
}


def integers() -> np.ndarray:
    """Smooth fields, one in fifty missing."""
    rng = np.random.default_rng(0)
    stored = np.cumsum(rng.integers(-3, 4, SHAPE), axis=2).astype("int16")
    stored[rng.random(SHAPE) < 0.02] = MISSING
    return stored


def made(stored: np.ndarray, compressor, packing: intarsia.Packing | None) -> intarsia.LogicalArray:
    dtype = stored.dtype if packing is None else packing.values
    array = intarsia.create({}, "a", shape=SHAPE, chunks=CHUNKS, dtype=dtype)
    array.group.create_array("m", data=stored, chunks=CHUNKS, compressors=compressor)
    array.add_region([(0, n) for n in SHAPE], member="m", packing=packing)
    return array


def unpacked(stored: np.ndarray, packing: intarsia.Packing) -> np.ndarray:
    """As xarray's decoders compute it, one after the other."""
    values = stored.astype(packing.values)
    values = np.where(values == MISSING, packing.values.type(np.nan), values)
    values *= packing.scale
    values += packing.offset
    return values


def run() -> str:
    stored, rows = integers(), []
    for name, compressor in CODECS.items():
        plain = made(stored, compressor, None)
        for dtype in (np.float32, np.float64):
            packing = intarsia.Packing("int16", scale=dtype(SCALE), offset=dtype(OFFSET), missing=MISSING)
            packed = made(stored, compressor, packing)
            jobs = {
                "integers": lambda a=plain: a[...],
                "integers, then NumPy": lambda a=plain, p=packing: unpacked(a[...], p),
                "packed": lambda a=packed: a[...],
            }
            np.testing.assert_array_equal(jobs["packed"](), jobs["integers, then NumPy"]())
            times = best_times(jobs)
            against = [times["packed"] / times[k] for k in ("integers, then NumPy", "integers")]
            took = [f"{seconds * 1e3:.0f} ms" for seconds in times.values()]
            rows.append((f"{name}, {packing.values}", *took, *(f"{ratio:.2f}" for ratio in against)))
    header = ("codec, values", "integers", "integers, then NumPy", "packed", "ratio", "to the integers alone")
    text = table(f"{stored.size // 2**20} Mi values, packed as int16", rows, header)
    took = spread(numbers(text, "ratio"))
    return headed(
        f"a packed read takes {took} of the same chunks read as they are and unpacked by NumPy", text
    )


if __name__ == "__main__":
    print(run())
