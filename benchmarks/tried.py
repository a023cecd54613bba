"""Claim: what was tried for small chunks, and what it takes beside what is done now.

Parts and limits: All chunks of one array, one after the other in one thread but for the last table, in
processor time; below 1 it takes less than what is done now. Reading without asking for the size of a file
first saves little, and takes a read that an error cut short for the end of the file. Rows of chunks that are
copied together save part of the copying, and need memory for all of them. zarrs gets the chunks of a whole
read in one call and does the rest without Python; it believes the headers of what it decodes, so bombs and
chunks that are cut off would have to be found by reading every file twice. Python 3.14 without its lock was
tried, too: [Without the GIL](../../docs/how-to/read-any-zarr-array.md#without-the-gil).
"""

import os
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import zarr
from isal import isal_zlib
from numcodecs import blosc, zstd
from zarr.codecs import GzipCodec, ZstdCodec
from zarrs._internal import ChunkItem
from zarrs.pipeline import get_codec_pipeline_impl

import intarsia
from benchmarks.measure import best_costs, table, with_limits
from benchmarks.mosaic import field, folder
from benchmarks.reader import SIDE, written
from intarsia.codecs import compressors

CHUNK = 128
NBYTES = CHUNK * CHUNK * 4
ROUNDS = 30
HEADER = ("what", "way", "processor time", "to what is done now")


def compared(what, jobs):
    """Rows of one comparison; the first job is what is done now."""
    costs = best_costs(jobs, rounds=10, most_rounds=ROUNDS)
    now = next(iter(costs.values())).processor
    return [
        (what, way, f"{c.processor * 1e3:.2f} ms", f"{c.processor / now:.2f}") for way, c in costs.items()
    ]


def decoders(stored):
    """Every chunk of each kind, decoded into the same memory."""
    memory = np.empty(NBYTES, dtype=np.uint8)
    zstds, gzips = (compressors.exact_decompressor(codec, NBYTES) for codec in (ZstdCodec(), GzipCodec()))

    def inflated(module):
        return lambda data: module.decompressobj(zlib.MAX_WBITS | 16).decompress(data, NBYTES + 1)

    ways = {
        "zstd": {
            "python-zstandard, contexts kept (now)": lambda data: zstds(data, memory),
            "numcodecs": lambda data: zstd.decompress(data, memory),
            "imagecodecs": lambda data: imagecodecs.zstd_decode(data, out=memory),
        },
        "gzip": {
            "libdeflate, and a look that nothing follows (now)": lambda data: gzips(data, memory),
            "isal": inflated(isal_zlib),
            "the standard library": inflated(zlib),
            "imagecodecs": lambda data: imagecodecs.gzip_decode(data, out=memory),
        },
        "blosc": {
            "numcodecs, in memory of its own (now)": blosc.decompress,
            "numcodecs": lambda data: blosc.decompress(data, memory),
            "imagecodecs": lambda data: imagecodecs.blosc_decode(data, out=memory, numthreads=1),
        },
    }
    rows = []
    for kind, by in ways.items():
        jobs = {way: (lambda f=f, k=kind: [f(data) for data in stored[k]]) for way, f in by.items()}
        rows += compared(f"decoding {kind}", jobs)
    return rows


def files(paths):
    """Every file read: with its size asked for, or into memory that is large enough."""
    room = [memoryview(bytearray(2 * NBYTES))]

    def sized(path):
        file = os.open(path, os.O_RDONLY)
        os.pread(file, os.lseek(file, 0, os.SEEK_END), 0)
        os.close(file)

    def guessed(path):
        file = os.open(path, os.O_RDONLY)
        os.readv(file, room)
        os.close(file)

    ways = {"asked for its size, then read (now)": sized, "read into memory that is kept": guessed}
    return compared("files", {way: (lambda f=f: [f(path) for path in paths]) for way, f in ways.items()})


def copies():
    """Decoded chunks put where they belong."""
    out, band = np.empty((SIDE, SIDE), "f4"), np.zeros((SIDE // CHUNK, CHUNK, CHUNK), "f4")

    def one_by_one():
        for y in range(0, SIDE, CHUNK):
            for k, x in enumerate(range(0, SIDE, CHUNK)):
                out[y : y + CHUNK, x : x + CHUNK] = band[k]

    def by_rows():
        for y in range(0, SIDE, CHUNK):
            out[y : y + CHUNK].reshape(CHUNK, SIDE // CHUNK, CHUNK)[...] = band.transpose(1, 0, 2)

    return compared("copying", {"chunk by chunk (now)": one_by_one, "a row of chunks at a time": by_rows})


def whole_reads(places, data):
    """Full reads by zarrs, told directly which chunks go where, as our plan would tell it."""
    rows = []
    for kind, place in places.items():
        array = zarr.open_array(place, mode="r")
        engine = get_codec_pipeline_impl(array.metadata, array.store, strict=True)
        ours = intarsia.reader(array)

        def by_zarrs(engine=engine):
            out = np.empty((SIDE, SIDE), dtype="f4")
            whole, shape = (slice(0, CHUNK),) * 2, (CHUNK, CHUNK)
            chunks = [
                ChunkItem(
                    f"c/{y}/{x}", whole, shape,
                    (slice(y * CHUNK, (y + 1) * CHUNK), slice(x * CHUNK, (x + 1) * CHUNK)), (SIDE, SIDE),
                )
                for y in range(SIDE // CHUNK) for x in range(SIDE // CHUNK)
            ]  # fmt: skip
            engine.retrieve_chunks_and_apply_index(chunks, out)
            return out

        np.testing.assert_array_equal(by_zarrs(), data)
        costs = best_costs({"now": lambda r=ours: r[...], "zarrs": by_zarrs}, rounds=10, most_rounds=ROUNDS)
        now, rust = costs["now"], costs["zarrs"]
        ratios = f"{rust.clock / now.clock:.2f}", f"{rust.processor / now.processor:.2f}"
        rows.append((kind, f"{now.clock * 1e3:.1f} ms", f"{rust.clock * 1e3:.1f} ms", *ratios))
    header = ("codec", "now", "zarrs, one call", "ratio by the clock", "by processor time")
    return table("Full reads by zarrs, which is told what our plan knows; all cores", rows, header)


def run() -> str:
    data = np.ascontiguousarray(field()[:SIDE, :SIDE])
    with folder() as place:
        places = {kind: place / kind for kind in ("zstd", "gzip", "blosc", "raw")}
        for kind, at in places.items():
            written(at, data, CHUNK, kind)
        paths = {
            kind: [path for path in sorted((at / "c").rglob("*")) if path.is_file()]
            for kind, at in places.items()
        }
        stored = {kind: [path.read_bytes() for path in each] for kind, each in paths.items()}
        rows = decoders(stored) + files([str(Path(path)) for path in paths["zstd"]]) + copies()
        text = table(f"{SIDE} x {SIDE} float32 in chunks of {CHUNK} x {CHUNK}", rows, HEADER)
        text += "\n" + whole_reads(places, data)
    return with_limits("", text)


if __name__ == "__main__":
    print(run())
