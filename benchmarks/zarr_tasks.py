"""Claim: the four tasks of zarrs/zarr_benchmarks: write all, read all, chunk by chunk, and a round trip.

The arrays are those of that suite, scaled to this machine: numbers of 16 bits in three dimensions, raw,
compressed by blosc, and compressed in shards; all on plain files. Ratios are times of theirs over ours, by
the clock, and in brackets by processor time; above 1 we are ahead. TensorStore waits until files are on the
disk when it writes. zarrs is zarr-python with that pipeline.

Parts and limits: The tables say what stands in the way of more, as those in `reader.md` and `write_engine.md`
do: each part of a task alone, a bare loop that does them all for one chunk after the other, and where our
time goes. The goals of reads are there, too; a third of zarr-python's time is one of small chunks alone. Of
writes and round trips, they say who is faster than we are, and who of those is faster than the bare loop. A
round trip reads first, which is also there by the bare loop in all threads.
"""

import shutil
from copy import copy
from math import prod

import numpy as np
import tensorstore
import zarr
import zarrista
from zarr.codecs import BloscCodec, BytesCodec, ShardingCodec
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.measure import against, best_costs, headed, table, times_ours, with_limits
from benchmarks.mosaic import FUSED, ZARRS, folder
from benchmarks.profiled import profile_table, shares
from benchmarks.read_parts import LIMITS, LOOPS, Reads, call_of, limits, limits_table, milliseconds
from benchmarks.write_parts import WRITE_LIMITS, Writes, into_files, write_limits

SHAPE, CHUNK, INNER = (256, 256, 512), (128, 128, 128), (32, 32, 32)
BLOSC = BloscCodec(cname="blosclz", clevel=9, shuffle="bitshuffle", typesize=2)
KINDS = {
    "raw": [BytesCodec()],
    "compressed": [BytesCodec(), BLOSC],
    "compressed, in shards": [ShardingCodec(chunk_shape=INNER, codecs=[BytesCodec(), BLOSC])],
}
RIVALS = ("zarr-python, fused", "TensorStore", "zarrista", "zarrs")
ROUNDS = 6


def volume():
    """Smooth, with a little noise, as an image has it."""
    z, y, x = np.meshgrid(*(np.arange(n, dtype="f4") for n in SHAPE), indexing="ij", sparse=True)
    smooth = 900 * np.sin(z / 19) * np.cos(y / 31) * np.sin(x / 47) + 2000
    return (smooth + np.random.default_rng(0).normal(0, 3, SHAPE)).astype("u2")


def chunks():
    """Every chunk, or shard, as a selection."""
    starts = (range(0, n, c) for n, c in zip(SHAPE, CHUNK, strict=True))
    corners = np.stack(np.meshgrid(*map(list, starts), indexing="ij"), axis=-1).reshape(-1, 3).tolist()
    return [tuple(slice(a, a + c) for a, c in zip(corner, CHUNK, strict=True)) for corner in corners]


class Ours:
    """A logical array with one region, read and written by the engine."""

    def __init__(self, place, codecs):
        self.array = intarsia.create(str(place), "a", shape=SHAPE, chunks=CHUNK, dtype="u2")
        self.array.add_region([(0, n) for n in SHAPE], codecs=codecs)

    def in_one_thread(self):
        alone = copy(self)
        alone.array = self.array.with_config(threads=1)
        return alone

    def write(self, data):
        self.array[...] = data

    def read(self, selection):
        return self.array[selection]


class Zarr:
    pipeline = FUSED

    def __init__(self, place, codecs):
        sharded = isinstance(codecs[0], ShardingCodec)
        with zarr.config.set({"codec_pipeline.path": self.pipeline}):
            self.array = zarr.create_array(
                place, shape=SHAPE, chunks=INNER if sharded else CHUNK, shards=CHUNK if sharded else None,
                dtype="u2", compressors=BLOSC if codecs[-1] is BLOSC or sharded else None,
            )  # fmt: skip

    def write(self, data):
        self.array[...] = data

    def read(self, selection):
        return self.array[selection]


class Zarrs(Zarr):
    """zarr-python with the pipeline of zarrs."""

    pipeline = ZARRS


class TensorStore:
    def __init__(self, place, codecs):
        Zarr(place, codecs)  # its metadata
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(place)}}
        self.array = tensorstore.open(spec).result()

    def write(self, data):
        self.array.write(data).result()

    def read(self, selection):
        return self.array[selection].read().result()


class Zarrista:
    def __init__(self, place, codecs):
        Zarr(place, codecs)
        self.array = zarrista.Array.open(FilesystemStore(str(place)), "/")

    def write(self, data):
        self.array[EVERYTHING] = data

    def read(self, selection):
        return np.asarray(self.array[selection])


MADE = {
    "intarsia": Ours,
    "zarr-python, fused": Zarr,
    "TensorStore": TensorStore,
    "zarrista": Zarrista,
    "zarrs": Zarrs,
}


class Tasks:
    """The jobs of each task, by contestant, and what each consists of."""

    def __init__(self, place, codecs, data):
        self._data = data
        self._both = {name: make(place / name, codecs) for name, make in MADE.items()}
        self._others = {name: make(place / f"{name} again", codecs) for name, make in MADE.items()}
        for name, one in self._both.items():
            one.write(data)
            np.testing.assert_array_equal(one.read(EVERYTHING), data, err_msg=name)
        sharded = isinstance(codecs[0], ShardingCodec)
        self.chunk = INNER if sharded else CHUNK
        per_shard = tuple(c // i for c, i in zip(CHUNK, self.chunk, strict=True))
        compressors = [BLOSC] if sharded or codecs[-1] is BLOSC else []
        self._bare_write = Writes(data, self.chunk, compressors, per_shard, into_files(place / "bare"))

    def jobs(self, task, both=None):
        """What each contestant does."""
        both = both or self._both
        if task == "write all":
            return {name: lambda o=one: o.write(self._data) for name, one in both.items()}
        if task == "round trip":
            return {
                name: lambda a=one, b=self._others[name]: b.write(a.read(EVERYTHING))
                for name, one in both.items()
            }
        return {name: lambda o=one: [o.read(each) for each in asked(task)] for name, one in both.items()}

    def bare(self, task):
        """The parts of a task, and the bare loops."""
        if task == "write all":
            return self._bare_write.parts | self._bare_write.loops
        array = self._both["zarr-python, fused"].array
        reads = Reads([call_of(array, each) for each in asked(task)], array.dtype, self.threads(task))
        if task != "round trip":
            return reads.parts | reads.loops
        loops = {
            name: lambda a=loop, b=self._bare_write.loops[name]: (a(), b())
            for name, loop in reads.loops.items()
        }
        return {READING: reads.loops[list(LOOPS)[-1]]} | self._bare_write.parts | loops

    def threads(self, task):
        return intarsia.explain(self._both["intarsia"].array, asked(task)[0]).threads

    def shares(self, task):
        """Where our time goes, as one thread does it."""
        (job,) = self.jobs(task, {"intarsia": self._both["intarsia"].in_one_thread()}).values()
        return shares(job)


EVERYTHING = tuple(slice(0, n) for n in SHAPE)
READING = "reading"
TASKS = ("write all", "read all", "read chunk by chunk", "round trip")


def asked(task):
    """What is read, one after the other."""
    return chunks() if task == "read chunk by chunk" else [EVERYTHING]


def run() -> str:
    data, rows, of_reads, of_writes, profiled = volume(), [], [], [], {}
    with folder() as place:
        for kind, codecs in KINDS.items():
            tasks = Tasks(place / kind, codecs, data)
            for task in TASKS:
                costs = best_costs(tasks.jobs(task) | tasks.bare(task), most_rounds=ROUNDS)
                rows.append((kind, task, *against(costs, "intarsia", RIVALS)))
                if task.startswith("read"):
                    cells = limits(
                        costs, tasks.threads(task), elements=prod(tasks.chunk), full=task == "read all"
                    )
                    of_reads.append((kind, task, *cells))
                else:
                    cells = write_limits(costs, RIVALS[:-1])
                    of_writes.append((kind, task, milliseconds(costs.get(READING)), *cells))
                profiled[kind, task] = tasks.shares(task)
            shutil.rmtree(place / kind)
    sizes = " x ".join(map(str, SHAPE)), " x ".join(map(str, CHUNK)), " x ".join(map(str, INNER))
    title = "{} uint16 in chunks of {}, shards of the same size in chunks of {}".format(*sizes)
    text = table(title, rows, ("array", "task", "intarsia", *RIVALS))
    names = {name: name for name in RIVALS}
    reads = times_ours(text, names, lambda row: row[1].startswith("read"))
    writes = times_ours(text, names, lambda row: row[1].startswith("write"))
    heading = (
        "the four tasks of zarrs/zarr_benchmarks, how many times as long others take: "
        f"to read, {reads}; to write, {writes}"
    )
    of_reads = limits_table(of_reads, ("array", "task", *LIMITS), " of reads")
    header = ("array", "task", "reading alone", *WRITE_LIMITS)
    of_writes = limits_table(of_writes, header, " of writes")
    profiles = profile_table(profiled, "array", "task")
    return headed(heading, with_limits(text, of_reads, of_writes, profiles))


if __name__ == "__main__":
    print(run())
