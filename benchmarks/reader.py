"""Claim: `intarsia.reader` reads small chunks faster than zarr-python; its other rivals are beside them.

All read the same files, zarr-python in its fused pipeline. Ratios are times of theirs over ours, by the
clock, and in brackets by processor time; above 1 we are ahead. zarrista takes no steps. Cold rows read files
that the page cache has let go of. zarrs is zarr-python with that pipeline. The second table has the
selections of zarr-python#3524, each array in the memory that its library has for them.

Parts and limits: The first table says what stands in the way of more. Opening and reading files, decoding and
copying each took so long alone, in as many threads as the read. A bare loop does all of that for one chunk
after the other, and nothing else: it knows beforehand which bytes it needs and where their values go. The
goals beside it are a third of the time of zarr-python (for chunks of at most 256 x 256), that of the others /
1.2, and for full reads 1.3 times that of decoding alone. By the clock, a goal may be missed, and by the bare
loop as well; such a goal is out of reach for anything that does the same in Python. Where TensorStore or
zarrista are faster, the last column says why, with the first of these reasons that is true: they take as much
of the processor, or more, but on more cores at once, where two threads of Python wait for each other; or
files, libraries that decode and copies in memory, each alone and without anything in between, take as long as
all that the other does; or it is Python between these. What we take beyond the bare loop is in the last
table: the read was interrupted about 2,000 times a second to see what it was at.
Copies are NumPy's, and files are those of `src/intarsia`.
"""

import json
import os
from math import prod

import numpy as np
import tensorstore
import zarr
import zarrista
from zarr.core.buffer import default_buffer_prototype
from zarrista.store import FilesystemStore, MemoryStore

import intarsia
from benchmarks.measure import against, best_costs, headed, table, times_ours, with_limits
from benchmarks.mosaic import FUSED, KINDS, ZARRS, field, folder
from benchmarks.profiled import profile_table, shares
from benchmarks.read_parts import LIMITS, Reads, call_of, limits, limits_table
from intarsia.codecs import parse_codecs

SIDE = 2048
WHOLE, STRIDED = np.s_[0:SIDE, 0:SIDE], np.s_[0:SIDE:9, 0:SIDE:7]
ROWS = np.s_[1000:1003, 0:SIDE]
EACH = [np.s_[y : y + 128, x : x + 128] for y in range(0, SIDE, 128) for x in range(0, SIDE, 128)]
SHARD = 512
ROUNDS = 10
RIVALS = ("zarr-python, fused", "TensorStore", "zarrista", "zarrs")


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
        "zarr-python, fused": array.__getitem__,
        "TensorStore": lambda selection: theirs[selection].read().result(),
        "zarrista": lambda selection: np.asarray(rust[selection]),
        "zarrs": zarrs.__getitem__,
    }


def compared(array, place, data, selection, what):
    """The cells of one row, our time and how many times as long the others take; and those of its limits."""
    ways = readers(array, place)
    if selection is STRIDED:
        del ways["zarrista"]
    asked = selection if isinstance(selection, list) else [selection]
    for name, read in ways.items():
        np.testing.assert_array_equal(read(asked[-1]), data[asked[-1]], err_msg=name)
    jobs = {n: (lambda r=r: [r(each) for each in asked]) for n, r in ways.items()}
    threads = intarsia.explain(intarsia.reader(array), asked[0]).threads
    bare = Reads([call_of(array, each) for each in asked], array.dtype, threads)
    for name, loop in bare.loops.items():
        np.testing.assert_array_equal(loop()[-1], data[asked[-1]], err_msg=name)
    costs = best_costs(
        jobs | bare.parts | bare.loops,
        most_rounds=ROUNDS, before=(lambda: forget(place)) if "cold" in what else lambda: None,
    )  # fmt: skip
    limit = limits(costs, threads, elements=prod(array.chunks), full=what == "full")
    return against(costs, "intarsia", RIVALS), limit


def profile(array, selection):
    """Where the time of a read goes, as one thread does it."""
    reader = intarsia.reader(array).with_config(threads=1)
    asked = selection if isinstance(selection, list) else [selection]
    return shares(lambda: [reader[each] for each in asked])


def forget(place):
    """Let the page cache go of all files below a place."""
    for path in place.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fdatasync(file)  # what is not on the disk yet stays in the cache
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def one_array_of_the_issue(limited, profiled):
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
    alone = reader.with_config(threads=1)
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
        threads = intarsia.explain(reader, selection).threads
        bare = Reads([call_of(array, selection)], array.dtype, threads, in_memory=True)
        costs = best_costs(jobs | bare.parts | bare.loops, most_rounds=ROUNDS)
        rows.append((name, *against(costs, "intarsia", rivals)))
        limit = limits(costs, threads, elements=prod(array.chunks))
        limited.append(("zarr-python#3524", name, *limit))
        profiled["zarr-python#3524", name] = shares(lambda s=selection: alone[s])
    return table(f"zarr-python#3524, chunks of {array.chunks}", rows, ("read", "intarsia", *rivals))


def cases(place, data):
    """Every array and read: their names, the array, where it is, and what is read of it."""
    for chunk in (128, 256, 512):
        for kind in KINDS:
            at = place / f"{kind}-{chunk}"
            array, name = written(at, data, chunk, kind), f"{kind}, {chunk} x {chunk}"
            yield name, "full", array, at, WHOLE
            yield name, "strided", array, at, STRIDED
            if chunk == 128:
                yield name, "chunk by chunk", array, at, EACH
    for chunk in (32, 128):
        at = place / f"shards-{chunk}"
        array = written(at, data, chunk, "zstd", shards=(SHARD, SHARD))
        name = f"zstd, {chunk} x {chunk} in shards of {SHARD} x {SHARD}"
        yield name, "full", array, at, WHOLE
        yield name, "strided", array, at, STRIDED
        yield name, "128 x 128 at a time", array, at, EACH
    for kind in ("zstd", "raw"):
        at = place / f"{kind}-128"
        yield f"{kind}, 128 x 128", "full, cold", opened(at), at, WHOLE
    for kind in ("raw", "blosc"):
        at = place / f"{kind}-{SIDE}"
        yield f"{kind}, {SIDE} x {SIDE}", "three rows", written(at, data, SIDE, kind), at, ROWS


def run() -> str:
    data, rows, limited, profiled = field()[:SIDE, :SIDE], [], [], {}
    with folder() as place:
        for name, what, array, at, selection in cases(place, data):
            cells, limit = compared(array, at, data, selection, what)
            rows.append((name, what, *cells))
            limited.append((name, what, *limit))
            if "cold" not in what:  # where the disk is waited for
                profiled[name, what] = profile(array, selection)
        issue = one_array_of_the_issue(limited, profiled)
    header = ("array", "read", "intarsia", *RIVALS)
    title = f"{SIDE} x {SIDE} float32 on plain files; every 9th row and 7th column, where strided"
    reads = table(title, rows, header)
    others = times_ours(f"{reads}\n{issue}", {name: name for name in RIVALS})
    heading = f"how many times as long others take to read any Zarr array: {others}"
    limit_table = limits_table(limited, ("array", "read", *LIMITS))
    profiles = profile_table(profiled, "array", "read")
    return headed(heading, with_limits(f"{reads}\n{issue}", limit_table, profiles))


if __name__ == "__main__":
    print(run())
