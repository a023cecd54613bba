"""Claim: the four tasks of zarrs/zarr_benchmarks: write all, read all, chunk by chunk, and a round trip.

The arrays are those of that suite, scaled to this machine: numbers of 16 bits in three dimensions, raw,
compressed by blosc, and compressed in shards; all on plain files. Ratios are times of theirs over ours, by
the clock, and in brackets by processor time; above 1 we are ahead. TensorStore waits until files are on the
disk when it writes. zarrs is zarr-python with that pipeline.
"""

import shutil

import numpy as np
import tensorstore
import zarr
import zarrista
from zarr.codecs import BloscCodec, BytesCodec, ShardingCodec
from zarrista.store import FilesystemStore

import intarsia
from benchmarks.measure import against, best_costs, headed, table, times_ours
from benchmarks.mosaic import FUSED, ZARRS, folder

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


def tasks(place, codecs, data):
    """The jobs of each task, by contestant."""
    made = {
        "intarsia": Ours,
        "zarr-python, fused": Zarr,
        "TensorStore": TensorStore,
        "zarrista": Zarrista,
        "zarrs": Zarrs,
    }
    both = {name: make(place / name, codecs) for name, make in made.items()}
    others = {name: make(place / f"{name} again", codecs) for name, make in made.items()}
    for name, one in both.items():
        one.write(data)
        np.testing.assert_array_equal(one.read(EVERYTHING), data, err_msg=name)
    return {
        "write all": {name: (lambda o=one: o.write(data)) for name, one in both.items()},
        "read all": {name: (lambda o=one: o.read(EVERYTHING)) for name, one in both.items()},
        "read chunk by chunk": {
            name: (lambda o=one: [o.read(chunk) for chunk in chunks()]) for name, one in both.items()
        },
        "round trip": {
            name: (lambda a=one, b=others[name]: b.write(a.read(EVERYTHING))) for name, one in both.items()
        },
    }


EVERYTHING = tuple(slice(0, n) for n in SHAPE)


def run() -> str:
    data, rows = volume(), []
    with folder() as place:
        for kind, codecs in KINDS.items():
            for task, jobs in tasks(place / kind, codecs, data).items():
                costs = best_costs(jobs, most_rounds=ROUNDS)
                rows.append((kind, task, *against(costs, "intarsia", RIVALS)))
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
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
