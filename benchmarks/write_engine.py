"""Claim: small chunks and shards of them are written faster than by zarr-python; large ones about as fast.

The engine writes to a region of a logical array, the others to a plain array of the same chunks and codecs,
each to a store of its own of the same kind. Ratios are times of theirs over ours, by the clock, and in
brackets by processor time; above 1 we are ahead. zarr-python is there in both of its pipelines, and in that
of zarrs, which takes plain files alone. TensorStore waits until files are on the disk, which the others do
not, so that only its processor time can be compared. Where a chunk has a megabyte, compressing it is most of
the work for all of them. zarrista and zarrs write into the file that is there, so that a reader may meet half
a chunk, and a crash leaves one; all others write beside it, and move the new file to its place.

Parts and limits: The first table has what it costs to write a file beside the old one and to move it to its
place, in one thread and without any codec: a part of the distance to zarrista and zarrs, which do not. The
second one says what stands in the way of more. Bringing the values of a chunk together, compressing them, and
storing what comes out, as files or by Icechunk's `set`, each took so long alone, in as many threads. A bare
loop does that for one chunk after the other, and nothing else. Beside it is who is faster than we are, and
who of those is faster than the bare loop, too: by the clock, but TensorStore by processor time, and without
zarrs, which is a pipeline of zarr-python. What we take beyond the bare loop is in the last table: the write
was interrupted about 2,000 times a second to see what it was at. Files are those of `src/intarsia`; what runs
outside Python while it waits is Icechunk.
"""

import os
from pathlib import Path

import icechunk
import numpy as np
import tensorstore
import zarr
import zarrista
from zarr.codecs import ShardingCodec
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.measure import against, best_costs, headed, table, times_ours, with_limits
from benchmarks.mosaic import DEFAULT, FUSED, KINDS, ZARRS, field, folder
from benchmarks.profiled import profile_table, shares
from benchmarks.read_parts import limits_table
from benchmarks.write_parts import WRITE_LIMITS, Writes, into_files, into_icechunk, write_limits
from intarsia.codecs import parse_codecs

ROWS, SHARD = 1024, 1024
RIVALS = ("zarr-python, fused", "zarr-python", "TensorStore", "zarrista", "zarrs")
ROUNDS = 8


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


def bare_write(where, place, data, chunk, kind, sharded):
    """The parts of a write, and the bare loops, into a store of the same kind."""
    if where == "files":
        put_all = into_files(place / "bare")
    else:
        put_all = into_icechunk(theirs(stores(where, place)("bare"), data, chunk, kind, sharded, FUSED))
    per_shard = (SHARD // chunk,) * 2 if sharded else (1, 1)
    bare = Writes(data, (chunk, chunk), parse_codecs(KINDS[kind])[1:], per_shard, put_all)
    return bare.parts | bare.loops


def run() -> str:
    data, text, limited, profiled = field()[:ROWS], [], [], {}
    for where in ("files", "Icechunk in memory"):
        rows = []
        for sharded in (False, True):
            for chunk in (128, 512):
                for kind in KINDS:
                    what = chunk, kind, sharded
                    with folder() as place:
                        jobs = writers(where, place, data, *what)
                        costs = best_costs(jobs | bare_write(where, place, data, *what), most_rounds=ROUNDS)
                        alone = ours(stores(where, place)("one thread"), data, *what).with_config(threads=1)
                        spent = shares(lambda array=alone: array.__setitem__(..., data))
                    name = f"{chunk} x {chunk}" + (f" in shards of {SHARD} x {SHARD}" if sharded else "")
                    rows.append((kind, name, *against(costs, "intarsia", RIVALS)))
                    limited.append((where, kind, name, *write_limits(costs, RIVALS[:-1])))
                    profiled[where, kind, name] = spent
        header = ("codec", "chunks", "intarsia", *RIVALS)
        text.append(table(f"Writing {ROWS} x 4096 float32 to {where}", rows, header))
    with folder() as place:
        files = ways_to_replace_files(place)
    names = {name: name for name in RIVALS if name != "TensorStore"}
    others = times_ours("\n".join(text), names)
    header = ("to", "codec", "chunks")
    stands, profiles = limits_table(limited, (*header, *WRITE_LIMITS)), profile_table(profiled, *header)
    limited_by = with_limits("\n".join(text), files, stands, profiles)
    return headed(f"how many times as long others take to write: {others}", limited_by)


if __name__ == "__main__":
    print(run())
