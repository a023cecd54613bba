"""Claim: `intarsia.reader` reads small chunks faster than zarr-python; its other rivals are beside them.

All read the same files, zarr-python in its fused pipeline. Ratios are times of theirs over ours, by the
clock, and in brackets by processor time; above 1 we are ahead. zarrista takes no steps. Cold rows read files
that the page cache has let go of. zarrs is zarr-python with that pipeline. The table of limits says what
stands in the way of more: opening and reading files, decoding and copying each took so long alone, in the
same threads. Where they take more together than TensorStore / 1.2, nobody who does them one after the other
can be 1.2 times as fast as TensorStore. The rest of a full read is what Python does for each chunk.
"""

import os
import threading
from pathlib import Path

import numpy as np
import tensorstore
import zarr
import zarrista
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.measure import against, best_costs, best_times, headed, table, times_ours
from benchmarks.mosaic import FUSED, KINDS, ZARRS, field, folder
from intarsia.array import pool
from intarsia.array.config import cores
from intarsia.array.decode import Scratch
from intarsia.array.source import Source
from intarsia.codecs import parse_codecs

SIDE = 2048
WHOLE, STRIDED = np.s_[0:SIDE, 0:SIDE], np.s_[0:SIDE:9, 0:SIDE:7]
ROWS = np.s_[1000:1003, 0:SIDE]
SHARD = 512
ROUNDS = 12
RIVALS = ("zarr-python", "TensorStore", "zarrista", "zarrs")


def written(place, data, chunk, kind, **options):
    with zarr.config.set({"codec_pipeline.path": FUSED}):
        array = zarr.create_array(
            place, shape=data.shape, chunks=(chunk, chunk), dtype="f4",
            compressors=parse_codecs(KINDS[kind])[1:] or None, **options,
        )  # fmt: skip
        array[...] = data
        return zarr.open_array(place, mode="r")


def readers(array, place):
    """Every way to read the array; None where a selection cannot be asked for."""
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(place)}}
    theirs = tensorstore.open(spec).result()
    rust = zarrista.Array.open(FilesystemStore(str(place)), "/")
    with zarr.config.set({"codec_pipeline.path": ZARRS}):
        zarrs = zarr.open_array(place, mode="r")
    return {
        "intarsia": intarsia.reader(array).__getitem__,
        "zarr-python": array.__getitem__,
        "TensorStore": lambda selection: theirs[selection].read().result(),
        "zarrista": lambda selection: np.asarray(rust[selection]),
        "zarrs": zarrs.__getitem__,
    }


def compared(array, place, data, selection, cold=False):
    """The cells of one row: our time, and how many times as long the others take."""
    ways = readers(array, place)
    if selection is STRIDED:
        del ways["zarrista"]
    for name, read in ways.items():
        np.testing.assert_array_equal(read(selection), data[selection], err_msg=name)
    jobs = {n: (lambda r=r: r(selection)) for n, r in ways.items()}
    costs = best_costs(jobs, most_rounds=ROUNDS, before=(lambda: forget(place)) if cold else lambda: None)
    return against(costs, "intarsia", RIVALS)


def forget(place):
    """Let the page cache go of all files below a place."""
    for path in place.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fdatasync(file)  # what is not on the disk yet stays in the cache
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def limits(place):
    """A full read against its parts alone, in the same threads: files, decoding, copying."""
    rows = []
    for kind in KINDS:
        at = place / f"{kind}-128"
        array = zarr.open_array(at, mode="r")
        ways = readers(array, at)
        jobs = {"read": lambda read=ways["intarsia"]: read(WHOLE), **parts_of_a_read(array, at)}
        jobs["TensorStore"] = lambda read=ways["TensorStore"]: read(WHOLE)
        costs = best_costs(jobs, most_rounds=ROUNDS)
        read, decode = costs["read"], costs["decode"]
        parts = sum(costs[name].processor for name in ("files", "decode", "copy"))
        seconds = [cost.processor for cost in costs.values()]
        cells = [f"{s * 1e3:.1f} ms" for s in (*seconds[:4], parts, seconds[4], seconds[4] / 1.2)]
        ratios = f"{read.clock / decode.clock:.2f}", f"{read.processor / decode.processor:.2f}"
        if kind == "raw":  # of which nothing is decoded
            ratios = "", ""
        rows.append((kind, *cells, *ratios))
    header = (
        "codec", "full read", "files alone", "decoding alone", "copying alone", "these three", "TensorStore",
        "TensorStore / 1.2",
        "read / decoding, by the clock", "by processor time",
    )  # fmt: skip
    return table("How far from the limit: chunks of 128 x 128, in processor time", rows, header)


def parts_of_a_read(array, at):
    """What a full read consists of, each alone: the same files, chunks and places, in as many threads."""
    decoder, out = Source.of("a", array).decoder, np.empty((SIDE, SIDE), "f4")
    paths = [str(path) for path in sorted((at / "c").rglob("*")) if path.is_file()]
    stored = [Path(path).read_bytes() for path in paths]
    corners = [(y, x) for y in range(0, SIDE, 128) for x in range(0, SIDE, 128)]
    own = threading.local()

    def scratch():
        if not hasattr(own, "scratch"):
            own.scratch = Scratch()
        return own.scratch

    def read_file(path):
        file = os.open(path, os.O_RDONLY)
        os.pread(file, os.lseek(file, 0, os.SEEK_END), 0)
        os.close(file)

    def copy(corner):
        y, x = corner
        out[y : y + 128, x : x + 128] = scratch().for_chunk(decoder)[1]

    def all_of(things, do):
        left = iter(things)
        pool.run(lambda: next(left, None), do, cores())

    return {
        "files": lambda: all_of(paths, read_file),
        "decode": lambda: all_of(stored, lambda encoded: decoder.values(encoded, scratch())),
        "copy": lambda: all_of(corners, copy),
    }


def one_array_of_the_issue():
    """The selections of zarr-python#3524: in memory, without a compressor, a chunk a few thousand rows."""
    values = np.random.default_rng(0).random((60632, 4, 1, 10))
    with zarr.config.set({"codec_pipeline.path": FUSED}):
        array = zarr.create_array({}, data=values, compressors=None)
    reader, step = intarsia.reader(array), len(values) // 10
    asked = {
        "data[0:10, :, 0]": np.s_[0:10, :, 0],
        "data[:, 0:3, 0]": np.s_[:, 0:3, 0],
        "data[:, :, :]": np.s_[:, :, :],
        "data[0, 0, :]": np.s_[0, 0, :],
        "data[::step]": np.s_[::step],
        "data[15:-15]": np.s_[15 : len(values) - 15],
    }
    rows = []
    for name, selection in asked.items():
        np.testing.assert_array_equal(reader[selection], values[selection])
        jobs = {"ours": lambda s=selection: reader[s], "theirs": lambda s=selection: array[s]}
        times = best_times(jobs, most_rounds=ROUNDS)
        rows.append((name, f"{times['ours'] * 1e3:.2f} ms", f"{times['theirs'] / times['ours']:.2f}"))
    return table(f"zarr-python#3524, chunks of {array.chunks}", rows, ("read", "intarsia", "zarr-python"))


def run() -> str:
    data, rows = field()[:SIDE, :SIDE], []
    with folder() as place:
        for chunk in (128, 256, 512):
            for kind in KINDS:
                at = place / f"{kind}-{chunk}"
                array = written(at, data, chunk, kind)
                for what, selection in (("full", WHOLE), ("strided", STRIDED)):
                    rows.append((f"{kind}, {chunk} x {chunk}", what, *compared(array, at, data, selection)))
        for chunk in (32, 128):
            at = place / f"shards-{chunk}"
            array = written(at, data, chunk, "zstd", shards=(SHARD, SHARD))
            for what, selection in (("full", WHOLE), ("strided", STRIDED)):
                name = f"zstd, {chunk} x {chunk} in shards of {SHARD} x {SHARD}"
                rows.append((name, what, *compared(array, at, data, selection)))
        for kind in ("zstd", "raw"):
            at = place / f"{kind}-128"
            cells = compared(zarr.open_array(at, mode="r"), at, data, WHOLE, cold=True)
            rows.append((f"{kind}, 128 x 128", "full, cold", *cells))
        for kind in ("raw", "blosc"):
            at = place / f"{kind}-{SIDE}"
            array = written(at, data, SIDE, kind)
            rows.append((f"{kind}, {SIDE} x {SIDE}", "three rows", *compared(array, at, data, ROWS)))
        limit = limits(place)
    header = ("array", "read", "intarsia", "zarr-python, fused", "TensorStore", "zarrista", "zarrs")
    title = f"{SIDE} x {SIDE} float32 on plain files; every 9th row and 7th column, where strided"
    reads = table(title, rows, header)
    others = times_ours(reads, {name: name for name in header[3:]})
    heading = f"how many times as long others take to read any Zarr array: {others}"
    return headed(heading, "\n".join([reads, limit, one_array_of_the_issue()]))


if __name__ == "__main__":
    print(run())
