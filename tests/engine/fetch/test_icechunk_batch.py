"""Batches of chunks from Icechunk: what is missing and what cannot be read are different things."""

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia._compat import get_many, sync
from intarsia._icechunk import safe_store
from intarsia.engine.fetch import icechunk as icechunk_batch
from intarsia.engine.fetch.icechunk import IcechunkSession
from intarsia.engine.fetch.store import ByteRanges
from intarsia.engine.prepared_member import PreparedMember

VALUES = np.random.default_rng(0).normal(size=400)


@pytest.fixture
def repository(tmp_path):
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = made.writable_session("main")
    array = intarsia.create(session.store, "a", shape=(500,), chunks=(100,), dtype="float64")
    array.add_region(((0, 500),), codecs=[])
    array[:400] = VALUES
    session.commit("four of five chunks")
    return made


def only_member(store):
    (name,) = zarr.open_group(store, path="a", mode="r").array_keys()
    return PreparedMember.of(name, zarr.open_array(store, path=f"a/{name}", mode="r"))


@pytest.mark.parametrize("per_call", [1, 2, 20])
def test_chunks_come_in_the_order_asked_for(repository, per_call, monkeypatch):
    monkeypatch.setattr(icechunk_batch, "KEYS_PER_CALL", per_call)
    store = repository.writable_session("main").store
    source = only_member(store)
    ((fetcher, _),) = IcechunkSession(safe_store(store)).locate([(source, np.arange(5))])
    found = list(fetcher.begin([ByteRanges(source, np.array([3, 4, 0])), ByteRanges(source, np.array([1]))]))
    assert found[1] is None
    for data, first in zip((found[0], found[2], found[3]), (300, 0, 100), strict=True):
        np.testing.assert_array_equal(np.frombuffer(data, "f8"), VALUES[first : first + 100])
    ranges = ByteRanges(source, np.array([2, 2]), np.array([8, -16]), np.array([24, 16]))
    first, last = fetcher.begin([ranges])
    np.testing.assert_array_equal(np.frombuffer(first, "f8"), VALUES[201:204])
    np.testing.assert_array_equal(np.frombuffer(last, "f8"), VALUES[298:300])


def test_sizes_are_known_of_a_snapshot_alone(repository):
    store = repository.readonly_session("main").store
    source = only_member(store)
    ((_, sizes),) = IcechunkSession(safe_store(store)).locate([(source, np.arange(5))])
    assert sizes.tolist() == [800] * 4 + [-1]
    writable = safe_store(repository.writable_session("main").store)
    ((_, sizes),) = IcechunkSession(writable).locate([(source, np.arange(5))])
    assert sizes is None


def test_the_references_of_a_huge_member_are_not_listed_for_a_few_chunks(repository, monkeypatch):
    store = repository.readonly_session("main").store
    source = only_member(store)
    monkeypatch.setattr(icechunk_batch, "MAX_CHUNKS_LISTED", 4)
    fetcher = IcechunkSession(safe_store(store))
    monkeypatch.setattr(icechunk_batch, "WORTH_LISTING", 2)
    assert fetcher.locate([(source, np.array([1]))])[0][1] is None
    assert fetcher.references(source) is None
    array = intarsia.open(store, "a")
    np.testing.assert_array_equal(array[150:160], VALUES[150:160])
    assert array[450] == 0
    assert fetcher.locate([(source, np.arange(3))])[0][1].tolist() == [800] * 3


def test_a_chunk_that_cannot_be_read_is_no_missing_chunk(repository, tmp_path):
    """`get_partial_values` says None for both; taken at its word, damage would read as the fill value."""
    for file in (tmp_path / "chunks").iterdir():
        file.unlink()
    store = repository.readonly_session("main").store
    answers = sync(get_many(store, [(key, (None, None)) for key in keys(store)]))
    assert answers == [None] * 5
    for session in (repository.writable_session("main"), repository.readonly_session("main")):
        array = intarsia.open(session.store, "a")
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0,\).*not found"):
            array[:]
        np.testing.assert_array_equal(array[400:], np.zeros(100))


def keys(store):
    return only_member(store).keys(np.arange(5))


def test_a_call_that_fails_as_a_whole_is_made_again_one_by_one(repository, monkeypatch):
    async def fail(store, wanted):
        raise icechunk.IcechunkError("the network is down")

    monkeypatch.setattr(icechunk_batch, "get_many", fail)
    array = intarsia.open(repository.writable_session("main").store, "a")
    np.testing.assert_array_equal(array[:400], VALUES)
    assert array[499] == 0
