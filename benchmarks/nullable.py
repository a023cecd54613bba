"""Claim: nullable float64 costs <= 1.5x plain with zstd-1, <= 2.5x uncompressed; parquet is not faster."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from zarr.codecs import ZstdCodec

from benchmarks.measure import best_times, headed, spread, table
from intarsia import nullable

ELEMENTS, CHUNK = 10_000_000, 1_000_000
FUSED = "intarsia.codecs.context.FusedPipeline"


def data() -> np.ma.MaskedArray:
    """A random walk of two decimals, 10 % null."""
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.standard_normal(ELEMENTS)).round(2)
    return np.ma.MaskedArray(values, mask=rng.random(ELEMENTS) < 0.1)


def write_parquet(path: Path, masked: np.ma.MaskedArray, compression: str) -> None:
    column = pa.array(masked.data, mask=masked.mask)
    level = 1 if compression == "zstd" else None
    pq.write_table(
        pa.table({"x": column}), path, compression=compression, compression_level=level, row_group_size=CHUNK,
        use_dictionary=False,
    )  # fmt: skip


def read_parquet(path: Path) -> np.ma.MaskedArray:
    return nullable.as_masked(pq.read_table(path, memory_map=True).column("x"))


def measured(folder: Path, masked: np.ma.MaskedArray, compressed: bool) -> list[tuple[str, ...]]:
    compressors = [ZstdCodec(level=1)] if compressed else None
    name = "zstd-1" if compressed else "uncompressed"
    plain = zarr.create_array(
        folder / f"plain-{name}", shape=ELEMENTS, chunks=CHUNK, dtype="float64", compressors=compressors
    )
    ours = nullable.create_array(
        folder / f"ours-{name}", shape=ELEMENTS, chunks=CHUNK, dtype="float64", compressors=compressors
    )
    parquet = folder / f"{name}.parquet"
    write = best_times(
        {
            "plain": lambda: plain.__setitem__(..., masked.data),
            "nullable": lambda: ours.__setitem__(..., masked),
            "parquet": lambda: write_parquet(parquet, masked, "zstd" if compressed else "none"),
        }
    )
    read = best_times(
        {"plain": lambda: plain[...], "nullable": lambda: ours[...], "parquet": lambda: read_parquet(parquet)}
    )
    for got in (ours[...], read_parquet(parquet)):
        assert np.array_equal(got.mask, masked.mask)
        assert np.array_equal(got.compressed(), masked.compressed())
    return [
        (
            name,
            who,
            f"{write[who] * 1e3:.0f} ms",
            f"{write[who] / write['plain']:.2f}",
            f"{read[who] * 1e3:.0f} ms",
            f"{read[who] / read['plain']:.2f}",
        )
        for who in write
    ]


def run() -> str:
    masked = data()
    with tempfile.TemporaryDirectory() as name, zarr.config.set({"codec_pipeline.path": FUSED}):
        rows = [row for compressed in (True, False) for row in measured(Path(name), masked, compressed)]
    header = ("encoding", "what", "write", "to plain", "read", "to plain")
    text = table("10M float64, 10 % null, files of 1M elements; masked arrays in and out", rows, header)
    rows_of = {(row[0], row[1]): [float(row[3]), float(row[5])] for row in rows}
    packed, raw, parquet = (
        spread(rows_of[key])
        for key in (("zstd-1", "nullable"), ("uncompressed", "nullable"), ("zstd-1", "parquet"))
    )
    heading = f"nullable float64 takes {packed} of plain with zstd-1 (parquet {parquet}), {raw} uncompressed"
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
