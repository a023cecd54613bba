"""Repositories: files of Icechunk's, and ledgers of ingested datasets."""

import json
import shutil

import numpy as np
import zarr
from tests.archives.files import netcdf

import intarsia
from intarsia.archives.ledger import HEAD, read_ledger, write_ledger
from intarsia.logical.hierarchy import LEDGER
from soak.damage.chunks import quiet
from soak.damage.verdict import judged
from soak.mutations import damaged, damaged_json
from soak.target import Target


class Objects:
    """One file of a repository is damaged; then it is opened, and read or looked at."""

    def __init__(self, folder):
        self._place = folder / "repository"
        repo = intarsia.open_repository(self._place, create=True)
        with intarsia.transaction(repo, message="create") as tx:
            array = tx.create("a", shape=(0, 300), chunks=(2, 300), dtype="<i4")
            array.append(np.arange(1200).reshape(4, 300), codecs=["zstd"])
        intarsia.append(repo, "a", np.arange(1200).reshape(4, 300), codecs=[])
        repo.create_tag("v1", repo.lookup_branch("main"))
        self._files = {path: path.read_bytes() for path in sorted(self._place.rglob("*")) if path.is_file()}

    def __call__(self, _number, rng):
        path = rng.choice(list(self._files))
        plain = self._files[path]
        path.write_bytes(damaged(plain, rng, list(self._files.values())))
        try:
            return judged(lambda: self._looked_at(rng), (), None)
        finally:
            if (
                set(self._place.rglob("*"))
                - set(self._files)
                - {p.parent for p in self._files}
                - {self._place}
            ):
                shutil.rmtree(self._place)
                for each, data in self._files.items():
                    each.parent.mkdir(parents=True, exist_ok=True)
                    each.write_bytes(data)
            path.write_bytes(plain)

    def _looked_at(self, rng):
        repo = intarsia.open_repository(self._place)
        way = rng.randrange(4)
        if way == 0:
            str(intarsia.history(repo, "a"))
        elif way == 1:
            str(intarsia.verify(repo))
        else:
            array = intarsia.open(repo, "a", **({"tag": "v1"} if way == 2 else {}))
            assert array[...].shape == array.shape  # whatever the metadata says now


@quiet
def prepare_objects(folder, _seed):
    return Objects(folder)


class Ledgers:
    """What is known of the sources is damaged: as a document, as a table, or as bytes; then it is read."""

    def __init__(self, folder):
        for day in range(3):
            netcdf(folder / f"{day}.nc", day)
        made = intarsia.ingest([folder / f"{day}.nc" for day in range(3)], folder / "r", concat_dim="time")
        ledger = read_ledger(zarr.open_group(made.repository.readonly_session("main").store, mode="r"))
        ledger.stored = None
        root = zarr.create_group(zarr.storage.MemoryStore())
        write_ledger(ledger, root)
        self._plain = dict(root.store._store_dict)
        self._keys = [key for key in self._plain if key.startswith(LEDGER)]
        self._head = np.asarray(root[LEDGER][HEAD][...]).tobytes()

    def __call__(self, _number, rng):
        store = zarr.storage.MemoryStore(dict(self._plain))
        others = [self._plain[key].to_bytes() for key in self._keys]
        if rng.random() < 0.5:
            document = damaged_json(json.loads(self._head), rng, [self._head]) or b" "
            node = zarr.open_group(store, path=LEDGER, mode="r+")
            node.create_array(HEAD, data=np.frombuffer(document, dtype=np.uint8), overwrite=True)
        else:
            key = rng.choice(self._keys)
            plain = self._plain[key].to_bytes()
            made = damaged_json(json.loads(plain), rng, others) if key.endswith(".json") else None
            made = damaged(plain, rng, others) if made is None else made
            store._store_dict[key] = type(self._plain[key]).from_bytes(made)

        def read():
            ledger = read_ledger(zarr.open_group(store, mode="r"))
            for number in range(min(len(ledger.locations), 5)):
                ledger.shown(number)

        return judged(read, (), None, "ledger", "metadata", declared=True)


@quiet
def prepare_ledgers(folder, _seed):
    return Ledgers(folder)


TARGETS = [
    Target("damage", "files of Icechunk's repositories", prepare_objects, share=1.5),
    Target("damage", "ledgers of ingested datasets", prepare_ledgers, share=2),
]
