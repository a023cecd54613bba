"""Documents: manifests of both versions as JSON and as tables, metadata of members, vectors."""

import json

import numpy as np
import zarr
from standard.vectors.vectors import vectors
from zarr.core.buffer import default_buffer_prototype

import intarsia
from intarsia.manifest import manifest as manifests
from soak.damage.chunks import quiet, values_of
from soak.damage.verdict import judged
from soak.mutations import damaged, damaged_json, places
from soak.target import Target

BUFFER = default_buffer_prototype().buffer


def arrays():
    """Logical arrays of both versions, the second with packings, views, nulls and texts."""
    for rows in (2, 6):
        array = intarsia.create(
            {}, "a", shape=(24, 40), chunks=(2, 20), dtype="<f8", dimension_names=["y", "x"]
        )
        for start in range(0, 24, 24 // rows):
            bounds = [(start, start + 24 // rows), (0, 40)]
            array.add_region(bounds, codecs=["zstd"], data=values_of("<f8")[start : start + 24 // rows])
        yield array
    array = intarsia.create({}, "a", shape=(24, 40), chunks=(2, 20), dtype="<f8", dimension_names=["y", "x"])
    packing = intarsia.Packing("int16", scale=0.5, offset=3.0, missing=-1)
    array.add_region([(0, 8), (0, 40)], codecs=["zstd"], data=values_of("<f8")[:8], packing=packing)
    member = array.group.create_array("m-" + "0" * 32, shape=(40, 8), chunks=(20, 4), dtype="<f8")
    member[...] = 1
    view = intarsia.View.identity(2).transpose(1, 0)
    array.add_region([(8, 16), (0, 40)], member=member.basename, view=view)
    yield array


def as_table(array):
    """The same array with its regions in an array of their own, as there would be of thousands."""
    before = manifests.INLINE_REGIONS
    manifests.INLINE_REGIONS = 0
    try:
        array.resize((*array.shape[:-1], array.shape[-1] + 1))
        array.resize((*array.shape[:-1], array.shape[-1] - 1))
    finally:
        manifests.INLINE_REGIONS = before
    return array


class Documents:
    """One document of a store is damaged; then the array is opened and read, or checked."""

    def __init__(self, stores, chosen, names):
        self._stores, self._names = [], names
        for store in stores:
            plain = dict(store._store_dict)
            keys = [key for key in plain if chosen(key)]
            parsed = {key: json.loads(plain[key].to_bytes()) for key in keys if key.endswith(".json")}
            spots = {key: list(places(document)) for key, document in parsed.items()}
            self._stores.append((store, plain, keys, parsed, spots))

    def __call__(self, _number, rng):
        store, plain, keys, parsed, spots = rng.choice(self._stores)
        key = rng.choice(keys)
        others = [plain[k].to_bytes() for k in keys]
        if key in parsed:
            data = damaged_json(parsed[key], rng, others, spots[key])
        else:
            data = damaged(plain[key].to_bytes(), rng, others)
        store._store_dict.clear()
        store._store_dict.update(plain)
        store._store_dict[key] = BUFFER.from_bytes(data)
        return judged(lambda: looked_at(store, rng), (), None, *self._names(key), declared=True)


MAX_READ = 1 << 20


def looked_at(store, rng):
    """Open, and read what is not too large; or have it checked, or described."""
    if rng.random() < 0.15:
        for problem in intarsia.verify(store, "a"):
            str(problem)
        return
    array = intarsia.open(store, "a")
    repr(array)
    if rng.random() < 0.2:
        str(array.regions), str(intarsia.explain(array, ...))
    if array.nbytes <= MAX_READ:
        values = array[...]
        assert np.shape(values) == array.shape
    else:
        array[tuple(slice(0, 3) for _ in array.shape)]


def stores(tables):
    for array in arrays():
        yield (as_table(array) if tables else array).group.store


@quiet
def prepare_manifests(_folder, _seed):
    return Documents(stores(False), lambda key: key == "a/zarr.json", lambda _: ())


@quiet
def prepare_tables(_folder, _seed):
    return Documents(stores(True), lambda key: key == "a/zarr.json" or "/t-" in key, lambda _: ())


@quiet
def prepare_members(_folder, _seed):
    def named(key):
        return (key.split("/")[1][:6], "the manifest") if "/m-" in key else ()

    return Documents(stores(False), lambda key: "/m-" in key and key.endswith(".json"), named)


class Vectors:
    """Any file of any vector of the formats: metadata or chunks, read as intarsia reads it."""

    def __init__(self):
        self._vectors = [(vector, vector.files) for vector in vectors()]

    def __call__(self, _number, rng):
        vector, files = rng.choice(self._vectors)
        key = rng.choice(list(files))
        others = list(files.values())
        if key.endswith(".json") and rng.random() < 0.8:
            try:
                data = damaged_json(json.loads(files[key]), rng, others)
            except ValueError:
                data = damaged(files[key], rng, others)
        else:
            data = damaged(files[key], rng, others)
        store = zarr.storage.MemoryStore({k: BUFFER.from_bytes(v) for k, v in (files | {key: data}).items()})
        return judged(lambda: self._read(vector, store), (), None, declared=True)

    @staticmethod
    def _read(vector, store):
        array = intarsia.open(store) if vector.kind == "logical" else intarsia.reader(store)
        if isinstance(array, dict):
            return
        if array.nbytes <= MAX_READ:
            assert np.shape(array[...]) == array.shape
        else:
            array[tuple(slice(0, 3) for _ in array.shape)]


@quiet
def prepare_vectors(_folder, _seed):
    return Vectors()


TARGETS = [
    Target("damage", "manifests as JSON, versions 1 and 2", prepare_manifests, share=10),
    Target("damage", "manifests as tables", prepare_tables, share=5),
    Target("damage", "metadata of members", prepare_members, share=8),
    Target("damage", "vectors of every format", prepare_vectors, share=8),
]
