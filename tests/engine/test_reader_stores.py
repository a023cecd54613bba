"""Random Zarr arrays in every kind of store: the reader gives what zarr-python gives, for every selection."""

import tempfile
from pathlib import Path

import icechunk
import numpy as np
import obstore
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, ZipStore

import intarsia
from tests.engine.test_reader import same, whole
from tests.grids import dear
from tests.logical import strategies as s
from tests.logical import zarr_arrays
from tests.logical.places import put
from tests.logical.stores import stored

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def opened(kind, folder, fill):
    """The array in a store of a kind, in each state that such a store has."""
    if kind == "icechunk":
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder / "repo")))
        session = repo.writable_session("main")
        fill(session.store)
        yield session.store  # with changes that were not committed
        session.commit("array")
        yield repo.readonly_session("main").store
    elif kind == "zip":
        with ZipStore(folder / "a.zip", mode="w") as store:
            fill(store)
        with ZipStore(folder / "a.zip", mode="r") as store:
            yield store
    else:
        store = {
            "memory": MemoryStore,
            "local": lambda: LocalStore(folder),
            "obstore": lambda: ObjectStore(obstore.store.MemoryStore()),
            "fsspec": lambda: FsspecStore.from_url(f"file://{folder}", {"auto_mkdir": True}),
        }[kind]()
        fill(store)
        yield store


@pytest.mark.parametrize("kind", ["memory", "local", "zip", "obstore", "fsspec", "icechunk"])
@dear
@given(st.data())
def test_selections_equal_zarr_in_every_store(kind, data):
    drawn = zarr_arrays.format_3() if kind == "icechunk" else zarr_arrays.arrays()  # it takes no format 2
    array = data.draw(drawn)
    values, model = stored(array.store), whole(array)
    with tempfile.TemporaryDirectory() as folder, zarr.config.set({"array.rectilinear_chunks": True}):
        for store in opened(kind, Path(folder), lambda store: put(store, values)):
            reader = intarsia.reader(zarr.open_array(store, mode="r"))
            same(reader[...], model, array.dtype)
            selection = data.draw(s.basic(array.shape))
            same(reader[selection], model[selection], array.dtype)
            selection = data.draw(s.orthogonal(array.shape))
            same(reader.oindex[selection], s.by_numpy_orthogonal(model, selection), array.dtype)
            if array.ndim and array.size:
                points = data.draw(s.points(array.shape))
                same(reader.vindex[points], model[points], array.dtype)
                mask = np.zeros(array.shape, dtype=bool)
                mask[tuple(p[:3] for p in points)] = True
                same(reader.vindex[mask], model[mask], array.dtype)
