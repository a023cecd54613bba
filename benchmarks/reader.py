"""Claim: `intarsia.reader` reads chunks of 128 x 128 faster than zarr-python; the table has its other rivals.

All read the same files, zarr-python in its fused pipeline. Ratios are times of theirs over ours, by the
clock, and in brackets by processor time. zarrista takes no steps. Where others are ahead, it is by what
Python does for each chunk, some 20 microseconds; the second table tells that from decoding.
"""

import threading

import numpy as np
import tensorstore
import zarr
import zarrista
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.measure import best_costs, best_times, table
from benchmarks.mosaic import FUSED, KINDS, field, folder
from intarsia.array import pool
from intarsia.array.config import cores
from intarsia.array.decode import Scratch
from intarsia.array.source import Source
from intarsia.codecs import parse_codecs

SIDE = 2048
WHOLE, STRIDED = np.s_[0:SIDE, 0:SIDE], np.s_[0:SIDE:9, 0:SIDE:7]
SHARD = 512
ROUNDS = 12


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
    return {
        "intarsia": intarsia.reader(array).__getitem__,
        "zarr-python": array.__getitem__,
        "TensorStore": lambda selection: theirs[selection].read().result(),
        "zarrista": lambda selection: np.asarray(rust[selection]),
    }


def compared(array, place, data, selection):
    """The cells of one row: our time, and how many times as long the others take."""
    ways = readers(array, place)
    if selection is STRIDED:
        del ways["zarrista"]
    for name, read in ways.items():
        np.testing.assert_array_equal(read(selection), data[selection], err_msg=name)
    costs = best_costs({n: (lambda r=r: r(selection)) for n, r in ways.items()}, most_rounds=ROUNDS)
    ours = costs["intarsia"]
    cells = [f"{ours.clock * 1e3:.1f} ms"]
    for name in ("zarr-python", "TensorStore", "zarrista"):
        cost = costs.get(name)
        cells.append(
            "" if cost is None else f"{cost.clock / ours.clock:.2f} ({cost.processor / ours.processor:.2f})"
        )
    return cells


def limits(place):
    """A full read against decoding alone: the same bytes, from memory, in the same threads."""
    rows = []
    for kind in KINDS:
        at = place / f"{kind}-128"
        reader = intarsia.reader(zarr.open_array(at, mode="r"))
        decoder = Source.of("a", reader.zarr_array).decoder
        stored = [file.read_bytes() for file in sorted((at / "c").rglob("*")) if file.is_file()]
        own = threading.local()

        def decode_one(encoded, decoder=decoder, own=own):
            if not hasattr(own, "scratch"):
                own.scratch = Scratch()
            decoder.values(encoded, own.scratch)

        def decode_all(stored=stored, decode_one=decode_one):
            left = iter(stored)
            pool.run(lambda: next(left, None), decode_one, cores())

        jobs = {"read": lambda reader=reader: reader[WHOLE], "decode": decode_all}
        costs = best_costs(jobs, most_rounds=ROUNDS)
        read, decode = costs["read"], costs["decode"]
        cells = f"{read.clock / decode.clock:.2f}", f"{read.processor / decode.processor:.2f}"
        rows.append((kind, f"{decode.clock * 1e3:.1f} ms", f"{read.clock * 1e3:.1f} ms", *cells))
    header = ("codec", "decoding alone", "full read", "ratio", "by processor time")
    return table("How far from the limit: chunks of 128 x 128", rows, header)


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
        limit = limits(place)
    header = ("array", "read", "intarsia", "zarr-python, fused", "TensorStore", "zarrista")
    title = f"{SIDE} x {SIDE} float32 on plain files; every 9th row and 7th column, where strided"
    return "\n".join([table(title, rows, header), limit, one_array_of_the_issue()])


if __name__ == "__main__":
    print(run())
