"""Claim: `intarsia.reader` reads small chunks faster than zarr-python; its other rivals are beside them.

All read the same files, zarr-python in its fused pipeline. Ratios are times of theirs over ours, by the
clock, and in brackets by processor time; above 1 we are ahead. zarrista takes no steps. Cold rows read files
that the page cache has let go of. zarrs is zarr-python with that pipeline. The table of limits says what
stands in the way of more: opening and reading files, decoding and copying each took so long alone, in as many
threads. The goals beside them are a third of the time of zarr-python, and that of the others / 1.2. A goal
that is less than the three parts together is out of reach for whoever does them one after the other. The
rest of a read is what Python does for each chunk, and for each call where chunks are read one by one: those
are decoded in one thread, right into what is given back. The last table has the selections of
zarr-python#3524, each array in the memory that its library has for them.
"""

import json
import os
import threading

import numpy as np
import tensorstore
import zarr
import zarrista
from zarr.core.buffer import default_buffer_prototype
from zarrista.store import FilesystemStore, MemoryStore

import intarsia
from benchmarks.measure import against, best_costs, headed, table, times_ours
from benchmarks.mosaic import FUSED, KINDS, ZARRS, field, folder
from intarsia.array import pool
from intarsia.array.chunk_codecs import Scratch
from intarsia.array.config import cores
from intarsia.array.source import Source
from intarsia.codecs import parse_codecs

SIDE = 2048
WHOLE, STRIDED = np.s_[0:SIDE, 0:SIDE], np.s_[0:SIDE:9, 0:SIDE:7]
ROWS = np.s_[1000:1003, 0:SIDE]
EACH = [np.s_[y : y + 128, x : x + 128] for y in range(0, SIDE, 128) for x in range(0, SIDE, 128)]
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
    return opened(place)


def opened(place):
    """For zarr-python in its fused pipeline."""
    with zarr.config.set({"codec_pipeline.path": FUSED}):
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
    asked = selection if isinstance(selection, list) else [selection]
    for name, read in ways.items():
        np.testing.assert_array_equal(read(asked[-1]), data[asked[-1]], err_msg=name)
    jobs = {n: (lambda r=r: [r(each) for each in asked]) for n, r in ways.items()}
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


GOALS = {"zarr-python": 3, "TensorStore": 1.2, "zarrista": 1.2}
"""How many times as fast as each we would like to be."""


def limits(place, data):
    """Reads against their parts alone, in as many threads, and against what was aimed at."""
    reads = {"full": [WHOLE], "strided": [STRIDED]}
    cases = [
        (f"{kind}, {chunk} x {chunk}", place / f"{kind}-{chunk}", chunk, kind, what, asked)
        for chunk in (128, 256)
        for kind in KINDS
        for what, asked in (reads | ({"chunk by chunk": EACH} if chunk == 128 else {})).items()
    ]
    cases += [
        (f"zstd, {chunk} x {chunk} in shards", place / f"shards-{chunk}", chunk, "zstd", what, asked)
        for chunk in (32, 128)
        for what, asked in reads.items()
    ]
    rows = [
        (name, what, *limit(at, data, chunk, kind, what, asked))
        for name, at, chunk, kind, what, asked in cases
    ]
    header = (
        "array", "read", "intarsia", "files alone", "decoding alone", "copying alone", "these three",
        *(f"{name} / {factor}" for name, factor in GOALS.items()), "less than these three",
        "read / decoding, by the clock", "by processor time",
    )  # fmt: skip
    return table("How far from the limit, in processor time", rows, header)


def limit(at, data, chunk, kind, what, asked):
    """The cells of one row of limits."""
    ways = readers(opened(at), at)
    rivals = {n: factor for n, factor in GOALS.items() if n != "zarrista" or what != "strided"}
    jobs = {n: (lambda r=ways[n]: [r(each) for each in asked]) for n in ("intarsia", *rivals)}
    jobs |= parts_of_a_read(at, data, chunk, kind, what)
    costs = best_costs(jobs, most_rounds=ROUNDS)
    read, decode = costs["intarsia"], costs["decode"]
    alone = [costs[name].processor if name in costs else 0 for name in ("files", "decode", "copy")]
    goals = {name: costs[name].processor / factor for name, factor in rivals.items()}
    cells = [f"{seconds * 1e3:.1f} ms" for seconds in (read.processor, *alone, sum(alone))]
    cells += [f"{goals[name] * 1e3:.1f} ms" if name in goals else "" for name in GOALS]
    cells.append(", ".join(name for name, goal in goals.items() if goal < sum(alone)))
    if kind == "raw":  # of which nothing is decoded
        return *cells, "", ""
    return *cells, f"{read.clock / decode.clock:.2f}", f"{read.processor / decode.processor:.2f}"


def parts_of_a_read(at, data, chunk, kind, what):
    """What a read of all chunks consists of, each alone: the same files, chunks and places."""
    store = {}
    decoder = Source.of("a", written(store, data, chunk, kind)).decoder
    stored = [value.to_bytes() for key, value in store.items() if key.startswith("c/")]
    paths = [str(path) for path in (at / "c").rglob("*") if path.is_file()]
    corners = [(y, x) for y in range(0, SIDE, chunk) for x in range(0, SIDE, chunk)]
    steps = (9, 7) if what == "strided" else (1, 1)
    out = np.empty([-(-SIDE // step) for step in steps], "f4")
    threads = 1 if what == "chunk by chunk" else cores()
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
        """The wanted elements of one chunk to their place."""
        first = [-(-at // step) for at, step in zip(corner, steps, strict=True)]
        last = [-(-(at + chunk) // step) for at, step in zip(corner, steps, strict=True)]
        skipped = [f * step - at for f, at, step in zip(first, corner, steps, strict=True)]
        values = scratch().for_chunk(decoder)[1][skipped[0] :: steps[0], skipped[1] :: steps[1]]
        out[first[0] : last[0], first[1] : last[1]] = values

    def all_of(things, do):
        left = iter(things)
        pool.run(lambda: next(left, None), do, threads)

    parts = {
        "files": lambda: all_of(paths, read_file),
        "decode": lambda: all_of(stored, lambda encoded: decoder.values(encoded, scratch())),
        "copy": lambda: all_of(corners, copy),
    }
    if what == "chunk by chunk":  # decoded right into what is given back
        del parts["copy"]
    return parts


def one_array_of_the_issue():
    """The selections of zarr-python#3524: in memory, without a compressor, a chunk a few thousand rows."""
    values = np.random.default_rng(0).random((60632, 4, 1, 10))
    with zarr.config.set({"codec_pipeline.path": FUSED}):
        array = zarr.create_array({}, data=values, compressors=None)
    stored = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    metadata = json.loads(stored)
    del metadata["attributes"], metadata["storage_transformers"]
    spec = {"driver": "zarr3", "kvstore": {"driver": "memory"}, "metadata": metadata, "create": True}
    theirs = tensorstore.open(spec).result()
    theirs.write(values).result()
    rust = zarrista.Array.from_metadata(metadata, MemoryStore(), "/")
    rust[tuple(slice(0, n) for n in values.shape)] = values
    reader, step = intarsia.reader(array), len(values) // 10
    asked = {
        "data[0:10, :, 0]": np.s_[0:10, :, 0],
        "data[:, 0:3, 0]": np.s_[:, 0:3, 0],
        "data[:, :, :]": np.s_[:, :, :],
        "data[0, 0, :]": np.s_[0, 0, :],
        "data[::step]": np.s_[::step],
        "data[15:-15]": np.s_[15 : len(values) - 15],
    }
    rivals = ("zarr-python, fused", "TensorStore", "zarrista")
    rows = []
    for name, selection in asked.items():
        jobs = {
            "intarsia": lambda s=selection: reader[s],
            "zarr-python, fused": lambda s=selection: array[s],
            "TensorStore": lambda s=selection: theirs[s].read().result(),
            "zarrista": lambda s=selection: np.asarray(rust[s]),
        }
        if "step" in name:
            del jobs["zarrista"]
        for rival, job in jobs.items():  # zarrista keeps axes of which one index is taken
            expected = values[selection]
            np.testing.assert_array_equal(job().reshape(expected.shape), expected, err_msg=rival)
        costs = best_costs(jobs, most_rounds=ROUNDS)
        rows.append((name, *against(costs, "intarsia", rivals)))
    return table(f"zarr-python#3524, chunks of {array.chunks}", rows, ("read", "intarsia", *rivals))


def run() -> str:
    data, rows = field()[:SIDE, :SIDE], []
    with folder() as place:
        for chunk in (128, 256, 512):
            for kind in KINDS:
                at = place / f"{kind}-{chunk}"
                array = written(at, data, chunk, kind)
                whats = {"full": WHOLE, "strided": STRIDED} | (
                    {"chunk by chunk": EACH} if chunk == 128 else {}
                )
                for what, selection in whats.items():
                    rows.append((f"{kind}, {chunk} x {chunk}", what, *compared(array, at, data, selection)))
        for chunk in (32, 128):
            at = place / f"shards-{chunk}"
            array = written(at, data, chunk, "zstd", shards=(SHARD, SHARD))
            for what, selection in (("full", WHOLE), ("strided", STRIDED), ("128 x 128 at a time", EACH)):
                name = f"zstd, {chunk} x {chunk} in shards of {SHARD} x {SHARD}"
                rows.append((name, what, *compared(array, at, data, selection)))
        for kind in ("zstd", "raw"):
            at = place / f"{kind}-128"
            cells = compared(opened(at), at, data, WHOLE, cold=True)
            rows.append((f"{kind}, 128 x 128", "full, cold", *cells))
        for kind in ("raw", "blosc"):
            at = place / f"{kind}-{SIDE}"
            array = written(at, data, SIDE, kind)
            rows.append((f"{kind}, {SIDE} x {SIDE}", "three rows", *compared(array, at, data, ROWS)))
        limit_table = limits(place, data)
    header = ("array", "read", "intarsia", "zarr-python, fused", "TensorStore", "zarrista", "zarrs")
    title = f"{SIDE} x {SIDE} float32 on plain files; every 9th row and 7th column, where strided"
    reads, issue = table(title, rows, header), one_array_of_the_issue()
    others = times_ours(f"{reads}\n{issue}", {name: name for name in header[3:]})
    heading = f"how many times as long others take to read any Zarr array: {others}"
    return headed(heading, "\n".join([reads, limit_table, issue]))


if __name__ == "__main__":
    print(run())
