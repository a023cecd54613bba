"""Claim: `intarsia.reader` reads small chunks faster than zarr-python; its other rivals are beside them.

All read the same files, zarr-python in its fused pipeline. Ratios are times of theirs over ours, by the
clock, and in brackets by processor time; above 1 we are ahead. zarrista takes no steps. Cold rows read files
that the page cache has let go of. zarrs is zarr-python with that pipeline. The table of limits says what
stands in the way of more: opening and reading files, decoding and copying each took so long alone, in the
same threads. Where they take more together than TensorStore / 1.2, nobody who does them one after the other
can be 1.2 times as fast as TensorStore. The rest of a read is what Python does for each chunk, and for each
call where chunks are read one by one: those are decoded in one thread, right into what is given back. The
last table has the selections of zarr-python#3524, each array in the memory that its library has for them.
"""

import json
import os
import threading
from pathlib import Path

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


def limits(place):
    """Reads against their parts alone, in the same threads: files, decoding, copying."""
    rows = []
    for kind, asked in [(kind, [WHOLE]) for kind in KINDS] + [(kind, EACH) for kind in KINDS]:
        at, whole = place / f"{kind}-128", asked is not EACH
        array = zarr.open_array(at, mode="r")
        ways = readers(array, at)
        parts = parts_of_a_read(array, at, cores() if whole else 1)
        if not whole:
            del parts["copy"]
        reads = {
            name: (lambda r=ways[name], a=asked: [r(each) for each in a])
            for name in ("intarsia", "TensorStore")
        }
        costs = best_costs({**reads, **parts}, most_rounds=ROUNDS)
        read, decode, theirs = costs["intarsia"], costs["decode"], costs["TensorStore"].processor
        alone = [costs[name].processor if name in costs else 0 for name in ("files", "decode", "copy")]
        cells = [f"{s * 1e3:.1f} ms" for s in (read.processor, *alone, sum(alone), theirs, theirs / 1.2)]
        ratios = f"{read.clock / decode.clock:.2f}", f"{read.processor / decode.processor:.2f}"
        if kind == "raw":  # of which nothing is decoded
            ratios = "", ""
        rows.append((kind, "full" if whole else "chunk by chunk", *cells, *ratios))
    header = (
        "codec", "read", "intarsia", "files alone", "decoding alone", "copying alone", "these three",
        "TensorStore alone", "TensorStore / 1.2", "read / decoding, by the clock", "by processor time",
    )  # fmt: skip
    return table("How far from the limit: chunks of 128 x 128, in processor time", rows, header)


def parts_of_a_read(array, at, threads):
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
        pool.run(lambda: next(left, None), do, threads)

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
            cells = compared(zarr.open_array(at, mode="r"), at, data, WHOLE, cold=True)
            rows.append((f"{kind}, 128 x 128", "full, cold", *cells))
        for kind in ("raw", "blosc"):
            at = place / f"{kind}-{SIDE}"
            array = written(at, data, SIDE, kind)
            rows.append((f"{kind}, {SIDE} x {SIDE}", "three rows", *compared(array, at, data, ROWS)))
        limit = limits(place)
    header = ("array", "read", "intarsia", "zarr-python, fused", "TensorStore", "zarrista", "zarrs")
    title = f"{SIDE} x {SIDE} float32 on plain files; every 9th row and 7th column, where strided"
    reads, issue = table(title, rows, header), one_array_of_the_issue()
    others = times_ours(f"{reads}\n{issue}", {name: name for name in header[3:]})
    heading = f"how many times as long others take to read any Zarr array: {others}"
    return headed(heading, "\n".join([reads, limit, issue]))


if __name__ == "__main__":
    print(run())
