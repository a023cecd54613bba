"""Claim: small chunks and shards of them are written faster than by zarr-python; large ones about as fast.

The engine writes to a region of a logical array, the others to a plain array of the same chunks and codecs,
each to a store of its own of the same kind. Ratios are times of theirs over ours, by the clock, and in
brackets by processor time; above 1 we are ahead. zarr-python is there in both of its pipelines, and in that
of zarrs, which takes plain files alone. TensorStore waits until files are on the disk, which the others do
not, so that only its processor time can be compared. Where a chunk has a megabyte, compressing it is most of
the work for all of them. zarrista and zarrs write into the file that is there, so that a reader may meet half
a chunk, and a crash leaves one; all others write beside it, and move the new file to its place. One table has
what that costs, in one thread and without any codec: a part of the distance to those two. The last one says
what stands in the way of more: bringing the values of a chunk together, compressing them and writing files,
each alone, in as many threads. Who is listed there took less processor time than these three together.
"""

import os
import threading
from pathlib import Path

import icechunk
import numpy as np
import tensorstore
import zarr
import zarrista
from zarr.codecs import ShardingCodec
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.measure import against, best_costs, headed, table, times_ours
from benchmarks.mosaic import DEFAULT, FUSED, KINDS, ZARRS, field, folder
from intarsia.array import pool
from intarsia.array.chunk_codecs import packer
from intarsia.array.config import cores
from intarsia.codecs import parse_codecs

ROWS, SHARD = 1024, 1024
RIVALS = ("zarr-python, fused", "zarr-python", "TensorStore", "zarrista", "zarrs")
ROUNDS = 10


def stores(kind, place):
    """A new store of a kind for each writer."""
    if kind == "Icechunk in memory":
        return lambda name: (
            icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main").store
        )
    return lambda name: zarr.storage.LocalStore(place / name)


def ours(store, data, chunk, kind, sharded):
    inner = parse_codecs(KINDS[kind])
    grid = (SHARD, SHARD) if sharded else (chunk, chunk)
    array = intarsia.create(store, "a", shape=data.shape, chunks=grid, dtype="f4")
    codecs = [ShardingCodec(chunk_shape=(chunk, chunk), codecs=inner)] if sharded else inner
    array.add_region([(0, n) for n in data.shape], codecs=codecs)
    return array


def theirs(store, data, chunk, kind, sharded, pipeline):
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        return zarr.create_array(
            store, name="a", shape=data.shape, chunks=(chunk, chunk), dtype="f4",
            shards=(SHARD, SHARD) if sharded else None, compressors=parse_codecs(KINDS[kind])[1:] or None,
        )  # fmt: skip


def writers(where, place, data, *what):
    new = stores(where, place)
    arrays = {
        "intarsia": ours(new("ours"), data, *what),
        "zarr-python, fused": theirs(new("fused"), data, *what, FUSED),
        "zarr-python": theirs(new("batched"), data, *what, DEFAULT),
    }
    if where == "files":
        arrays["zarrs"] = theirs(new("zarrs"), data, *what, ZARRS)
    jobs = {name: (lambda a=array: a.__setitem__(..., data)) for name, array in arrays.items()}
    if where == "files":
        theirs(new("tensorstore"), data, *what, FUSED)
        kvstore = {"driver": "file", "path": str(place / "tensorstore" / "a")}
        array = tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result()
        jobs["TensorStore"] = lambda: array.write(data).result()
        arrays["TensorStore"] = zarr.open_array(place / "tensorstore" / "a", mode="r")
        theirs(new("zarrista"), data, *what, FUSED)
        rust = zarrista.Array.open(FilesystemStore(str(place / "zarrista" / "a")), "/")
        jobs["zarrista"] = lambda: rust.__setitem__(np.s_[0:ROWS, 0:4096], data)
        arrays["zarrista"] = zarr.open_array(place / "zarrista" / "a", mode="r")
    for name, job in jobs.items():
        job()
        np.testing.assert_array_equal(arrays[name][...], data, err_msg=name)
    return jobs


def ways_to_replace_files(place: Path) -> str:
    """What writing files costs, of which there are others of the same names already, or not."""
    content, count = bytes(128 * 128 * 4), ROWS * 4096 // 128**2
    rows = []

    def written(path, flags):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o666)
        os.write(file, content)
        os.close(file)

    def moved(path):
        written(f"{path}.partial", os.O_EXCL)
        os.replace(f"{path}.partial", path)

    def emptied():
        for path in place.iterdir():
            path.unlink()

    ways = {
        "into the file itself": lambda: [written(place / str(i), os.O_TRUNC) for i in range(count)],
        "beside it, then moved": lambda: [moved(place / str(i)) for i in range(count)],
    }
    for there, before in (("files are replaced", lambda: None), ("files are new", emptied)):
        costs = best_costs(ways, most_rounds=ROUNDS, before=before)
        for way, cost in costs.items():
            rows.append((there, way, f"{cost.clock * 1e3:.1f} ms", f"{cost.processor * 1e3:.1f} ms"))
    header = ("what is there", "written", "by the clock", "processor time")
    return table(f"What {count} files of {len(content) >> 10} KiB cost", rows, header)


LIMITED = ("TensorStore", "zarrista", "zarrs")


def limits(data) -> str:
    """Writes against their parts alone, and who takes less than these."""
    rows = []
    for sharded in (False, True):
        for kind in KINDS:
            with folder() as place:
                jobs = {
                    name: job
                    for name, job in writers("files", place, data, 128, kind, sharded).items()
                    if name == "intarsia" or name in LIMITED
                }
                parts = parts_of_a_write(place / "parts", data, 128, kind, sharded)
                costs = best_costs(jobs | parts, most_rounds=ROUNDS)
            alone = [costs[name].processor for name in parts]
            cells = [costs["intarsia"].processor, *alone, sum(alone), *(costs[n].processor for n in LIMITED)]
            less = ", ".join(name for name in LIMITED if costs[name].processor < sum(alone))
            chunks = f"128 x 128 in shards of {SHARD} x {SHARD}" if sharded else "128 x 128"
            rows.append((kind, chunks, *(f"{seconds * 1e3:.1f} ms" for seconds in cells), less))
    header = (
        "codec", "chunks", "intarsia", "gathering alone", "compressing alone", "files alone", "these three",
        *LIMITED, "less than these three",
    )  # fmt: skip
    return table("How far from the limit, in processor time", rows, header)


def parts_of_a_write(place, data, chunk, kind, sharded):
    """What a write consists of, each alone: the same chunks, compressor and files."""
    place.mkdir()
    pieces = [
        data[y : y + chunk, x : x + chunk] for y in range(0, ROWS, chunk) for x in range(0, 4096, chunk)
    ]
    bytes_of = [np.ascontiguousarray(piece).reshape(-1).view("u1") for piece in pieces]
    compressors = parse_codecs(KINDS[kind])[1:]
    pack = packer(compressors[0], bytes_of[0].nbytes) if compressors else None
    stored = [pack(each) if pack else each.tobytes() for each in bytes_of]
    if sharded:
        each = (SHARD // chunk) ** 2
        stored = [b"".join(stored[first : first + each]) for first in range(0, len(stored), each)]
    files = [(place / str(i), content) for i, content in enumerate(stored)]
    own = threading.local()

    def gather(piece):
        if not hasattr(own, "room"):
            own.room = np.empty((chunk, chunk), data.dtype)
        own.room[...] = piece

    def write(file):
        path, content = file
        descriptor = os.open(f"{path}.partial", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(descriptor, content)
        os.close(descriptor)
        os.replace(f"{path}.partial", path)

    def all_of(things, do):
        left = iter(things)
        pool.run(lambda: next(left, None), do, cores())

    return {
        "gather": lambda: all_of(pieces, gather),
        "compress": lambda: all_of(bytes_of if pack else (), lambda each: pack(each)),
        "files": lambda: all_of(files, write),
    }


def run() -> str:
    data, text = field()[:ROWS], []
    for where in ("files", "Icechunk in memory"):
        rows = []
        for sharded in (False, True):
            for chunk in (128, 512):
                for kind in KINDS:
                    with folder() as place:
                        jobs = writers(where, place, data, chunk, kind, sharded)
                        cells = against(best_costs(jobs, most_rounds=ROUNDS), "intarsia", RIVALS)
                    name = f"{chunk} x {chunk}" + (f" in shards of {SHARD} x {SHARD}" if sharded else "")
                    rows.append((kind, name, *cells))
        header = ("codec", "chunks", "intarsia", *RIVALS)
        text.append(table(f"Writing {ROWS} x 4096 float32 to {where}", rows, header))
    with folder() as place:
        text.append(ways_to_replace_files(place))
    names = {name: name for name in RIVALS if name != "TensorStore"}
    others = times_ours("\n".join(text), names)
    text.append(limits(data))
    return headed(f"how many times as long others take to write: {others}", "\n".join(text))


if __name__ == "__main__":
    print(run())
