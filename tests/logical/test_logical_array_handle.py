"""Handles on a layout that somebody else has replaced: they find out, and never answer with fill values."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from zarr.storage import MemoryStore, WrapperStore

import intarsia
from intarsia.engine.write_chunks import ChunkWriter
from tests.logical.stores import stored


@contextmanager
def memory(folder):
    yield MemoryStore()


@contextmanager
def files(folder):
    yield str(folder)


@contextmanager
def transaction(folder):
    repo = intarsia.open_repository(str(folder), create=True)
    with intarsia.transaction(repo, message="one") as tx:
        yield tx.store


@pytest.fixture(params=[memory, files, transaction], ids=lambda place: place.__name__)
def store(request, tmp_path):
    with request.param(tmp_path) as store:
        yield store


def filled(store, **encoding):
    array = intarsia.create(store, "a", shape=(0,), chunks=(10,), dtype="i4", fill_value=-1)
    array.append(np.arange(40), codecs=["zstd"], **encoding)
    return array


@pytest.mark.parametrize("encoding", [{}, {"shards": (20,)}], ids=["chunks", "shards"])
def test_a_handle_finds_the_values_where_somebody_has_put_them(store, encoding):
    array = filled(store, **encoding)
    stale = intarsia.open(store, "a")
    assert stale[0] == 0
    array.recode(codecs=["gzip"], **encoding)
    assert stale[...].tolist() == list(range(40))
    array.recode(codecs=["zstd"], **encoding)
    assert stale.vindex[[3, 39]].tolist() == [3, 39]
    array.recode(codecs=["gzip"], **encoding)
    assert stale.oindex[[3, 39]].tolist() == [3, 39]
    assert stale.generation == array.generation


def test_members_that_zarr_reads_are_looked_for_too(store):
    array = intarsia.create(store, "a", shape=(0,), chunks=(2,), dtype=np.dtypes.StringDType())
    array.append(np.array(["a", "b", "c"], dtype="T"))
    stale = intarsia.open(store, "a")
    assert stale[0] == "a"
    array.recode(codecs=["vlen-utf8", "gzip"])
    assert stale[...].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("part", [slice(0, 10), slice(5, 15), slice(None)])
@pytest.mark.parametrize("encoding", [{}, {"shards": (20,)}], ids=["chunks", "shards"])
def test_a_write_is_acknowledged_only_where_readers_find_it(store, part, encoding):
    array = filled(store, **encoding)
    stale = intarsia.open(store, "a", mode="r+")
    assert stale[0] == 0
    array.recode(codecs=["gzip"], **encoding)
    stale[part] = 9
    expected = np.arange(40)
    expected[part] = 9
    assert intarsia.open(store, "a")[...].tolist() == expected.tolist()
    assert intarsia.verify(store, "a") == ()
    if isinstance(store, MemoryStore):
        members = {key.split("/")[1] for key in stored(store) if "/m-" in key}
        assert members == set(array.members), "what was written into nothing is left"


def test_a_write_beside_somebody_elses_append_is_not_written_twice(store, monkeypatch):
    array = filled(store)
    stale = intarsia.open(store, "a", mode="r+")
    calls = []
    original = intarsia.engine.write.write_part

    def counted(source, part, values, **keywords):
        original(source, part, values, **keywords)
        if part.row >= 0:  # not what the append itself writes
            calls.append(1)
            if len(calls) == 1:
                array.append([1, 2, 3])

    monkeypatch.setattr("intarsia.engine.write.write_part", counted)
    stale[:10] = 9
    assert len(calls) == 1
    assert stale.shape == (43,)
    assert intarsia.open(store, "a")[8:12].tolist() == [9, 9, 10, 11]


def test_a_layout_replaced_while_a_chunk_is_encoded_is_noticed(store, monkeypatch):
    array = filled(store)
    stale = intarsia.open(store, "a", mode="r+")
    encode = ChunkWriter._encoded
    recodes = [["gzip"]]

    def slow(self, *args):
        if recodes:  # whoever does it now does not know of the write
            array.recode([(0, 40)], codecs=recodes.pop())
        return encode(self, *args)

    monkeypatch.setattr(ChunkWriter, "_encoded", slow)
    stale[10:20] = 9
    assert intarsia.open(store, "a")[8:22:2].tolist() == [8, 9, 9, 9, 9, 9, 20]


def test_what_was_cut_off_is_out_of_bounds(store):
    array = filled(store)
    stale, view = intarsia.open(store, "a"), array.lazy[25:35]
    other = intarsia.open(store, "a").lazy[25:35]
    assert stale[0] == 0
    array.resize((20,))
    array.recode(codecs=["gzip"])
    for read in (lambda: stale[25:35], lambda: view.result(), lambda: other.result()):
        with pytest.raises(IndexError, match=r"but the array now has the shape \(20,\)"):
            read()
    assert stale[...].tolist() == list(range(20))


def test_an_array_of_another_type_in_its_place_is_refused(store):
    filled(store)
    stale = intarsia.open(store, "a", mode="r+")
    assert stale[0] == 0
    intarsia.create(store, "a", shape=(0,), chunks=(10,), dtype="f8", overwrite=True).append(np.zeros(40))
    with pytest.raises(intarsia.errors.DataTypeError, match=r"float64 of shape \(40,\) now, but was int32"):
        stale[...]


def test_an_array_that_is_gone_is_refused():
    store = MemoryStore()
    stale = filled(store)
    assert stale[0] == 0
    store._store_dict.clear()
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="is gone"):
        stale[...]


def test_a_handle_that_outlives_its_transaction_says_so():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="one") as tx:
        array = filled(tx.store)
    for change in (lambda: array.append([1]), lambda: array.__setitem__(0, 1)):
        with pytest.raises(intarsia.errors.ReadOnlyError, match="transaction has ended"):
            change()
    assert array[3] == 3


def test_threads_of_one_handle_read_right_values_while_it_is_recoded():
    array = filled(MemoryStore())
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                if array[...].tolist() != list(range(40)):
                    wrong.append("other values")
            except Exception as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            array.recode(codecs=["gzip"])
            array.recode(codecs=["zstd"])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []


class Counting(WrapperStore):
    """Counts how often the metadata of the array is read."""

    reads = 0

    async def get(self, key, *args, **keywords):
        self.reads += key == "a/zarr.json"
        return await super().get(key, *args, **keywords)

    def get_sync(self, key, **keywords):
        self.reads += key == "a/zarr.json"
        return super().get_sync(key, **keywords)


def test_only_a_read_that_misses_chunks_asks_for_the_layout_and_only_once():
    array = filled(Counting(MemoryStore()))
    array.resize((80,))
    array.add_region([(40, 80)], codecs=[])
    store = array.store
    before = store.reads
    assert array[:40].tolist() == list(range(40))
    assert store.reads == before
    assert array[:].tolist() == [*range(40), *[-1] * 40]
    assert store.reads == before + 1


@pytest.mark.parametrize("document", [b"[]", b"null", b"3", b'"x"', b'{"zarr_format": 3, "attributes": 3}'])
def test_a_group_whose_metadata_is_no_groups_is_refused_and_named(document):
    made = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1").group.store
    made._store_dict["a/zarr.json"] = type(made._store_dict["a/zarr.json"]).from_bytes(document)
    with pytest.raises(intarsia.errors.IntarsiaError, match="'a'"):
        intarsia.open(made, "a")
    (problem,) = intarsia.verify(made, "a")
    assert "cannot be understood" in str(problem)
