"""Tables of thousands of regions: in a transaction an append writes what it adds, elsewhere a new table."""

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest import region_table_array


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("intarsia.logical.logical_array_handle.INLINE_REGIONS", 3)
    monkeypatch.setattr(region_table_array, "ROWS_PER_CHUNK", 4)


def appended(array, count, first=0):
    for i in range(first, first + count):
        array.append([i, i], codecs=["gzip"] if i % 2 else ["zstd"])


def table_of(store):
    return zarr.open_group(store, path="a", mode="r").attrs["intarsia"]["regions"]


def test_an_append_in_a_transaction_writes_the_last_chunk_of_the_table():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="ten") as tx:
        appended(tx.create("a", shape=(0,), chunks=(2,), dtype="i4"), 10)
    name = table_of(repo.readonly_session("main").store)
    session = repo.writable_session("main")
    appended(intarsia.open(session.store, "a", mode="r+"), 3, first=10)
    assert table_of(session.store) == name
    written = session.status().updated_chunks[f"/a/{name}"]
    assert sorted(index[0] for index in written) == [2, 3]  # of 0 to 3
    session.commit("three more")
    array = intarsia.open(repo, "a")
    assert array[...].tolist() == np.repeat(np.arange(13), 2).tolist()
    assert len(array.regions) == 13
    assert not intarsia.verify(array)


def test_what_is_dropped_or_recoded_is_changed_in_its_place():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="ten") as tx:
        appended(tx.create("a", shape=(0,), chunks=(2,), dtype="i4"), 10)
    with intarsia.transaction(repo, message="other") as tx:
        array = tx.open("a")
        array.recode([(4, 6)], codecs=[])
        array.drop_region([(18, 20)])
        array.drop_region([(0, 2)])
    expected = np.repeat(np.arange(10), 2)
    expected[:2] = expected[18:] = 0
    array = intarsia.open(repo, "a")
    assert array[...].tolist() == expected.tolist()
    assert len(array.regions) == 8
    assert not intarsia.verify(array)


def test_without_transactions_every_change_is_a_new_table():
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=(0,), chunks=(2,), dtype="i4")
    appended(array, 5)
    before = table_of(store)
    appended(array, 1, first=5)
    assert table_of(store) != before
    assert before not in zarr.open_group(store, path="a", mode="r")


def test_a_table_in_large_chunks_is_replaced_once(monkeypatch):
    repo = intarsia.open_repository("memory://", create=True)
    monkeypatch.setattr(region_table_array, "ROWS_PER_CHUNK", 64)  # as it was
    with intarsia.transaction(repo, message="ten") as tx:
        appended(tx.create("a", shape=(0,), chunks=(2,), dtype="i4"), 10)
    monkeypatch.setattr(region_table_array, "ROWS_PER_CHUNK", 4)
    names = []
    for i in (10, 11):
        with intarsia.transaction(repo, message="more") as tx:
            appended(tx.open("a"), 1, first=i)
        names.append(table_of(repo.readonly_session("main").store))
    assert names[0] == names[1]
    group = zarr.open_group(repo.readonly_session("main").store, path="a", mode="r")
    assert group[names[0]].chunks[0] == 4
    assert [name for name in group.array_keys() if name.startswith("t-")] == names[:1]
    assert isinstance(group.store, icechunk.IcechunkStore)
    assert intarsia.open(repo, "a")[...].tolist() == np.repeat(np.arange(12), 2).tolist()
    assert len(LogicalArrayHandle.load(group).manifest.regions) == 12
