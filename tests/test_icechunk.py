"""The store that zarr gets for an Icechunk session: it waits for nobody who waits for it."""

import asyncio
import pickle
import threading
from concurrent.futures import Future

import icechunk
import pytest
import zarr
from zarr.core.buffer import cpu
from zarr.core.sync import sync

import intarsia
from intarsia._icechunk import LISTING, WRITING, IcechunkStore, _Turn, _Turns, chunk_table, safe_store
from intarsia.errors import WritableSessionError


@pytest.fixture
def repo(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repository", create=True)
    with intarsia.transaction(repo, message="two arrays") as tx:
        for name in ("a", "b"):
            array = zarr.create_array(tx.store, name=name, shape=8, chunks=1, dtype="u1", compressors=None)
            array[:] = 1
    return repo


def test_only_icechunks_own_store_is_replaced(repo):
    class Other(icechunk.IcechunkStore):
        pass

    plain = repo.readonly_session("main").store
    other = Other(plain._store)
    memory = zarr.storage.MemoryStore()
    safe = safe_store(plain)
    assert safe_store(other) is other
    assert safe_store(memory) is memory
    assert type(safe) is IcechunkStore
    assert safe == plain
    assert plain == safe
    assert safe_store(safe) is safe
    assert type(safe_store(zarr.storage.StorePath(plain, "a")).store) is IcechunkStore


def test_arrays_opened_in_any_way_have_it(repo):
    with intarsia.transaction(repo, message="an array") as tx:
        tx.create("t", shape=(2,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
        assert type(tx.store) is IcechunkStore
        assert tx.store is tx.store
    session = repo.readonly_session("main")
    group = zarr.open_group(session.store, mode="r")
    for source in (repo, session, session.store, group):
        array = intarsia.open(source, "t")
        (member,) = array.members.values()
        assert type(array.store) is IcechunkStore
        assert type(member.store) is IcechunkStore
    writable = repo.writable_session("main").store
    assert type(intarsia.open(writable, "t").store) is IcechunkStore  # which zarr made read-only itself


def test_it_says_what_it_is(repo):
    session = repo.readonly_session("main")
    store = safe_store(session.store)
    assert str(store) == f"icechunk:{session.snapshot_id}"
    assert repr(store) == f"IcechunkStore('icechunk:{session.snapshot_id}')"
    assert session.snapshot_id in store._repr_html_()
    writable = repo.writable_session("main")
    assert str(safe_store(writable.store)) == "icechunk:main"
    assert str(safe_store(writable.fork().store)) == "icechunk:fork"


def _a_write_waits(session):
    """Whether somebody waits for the session's lock for writing: then whoever reads waits as well."""
    probe = threading.Thread(target=lambda: session.snapshot_id, daemon=True)
    probe.start()
    probe.join(0.05)
    return probe.is_alive()


def test_texts_and_pickles_do_not_wait_for_others(repo):
    """Icechunk's own text would wait here with the GIL, and nobody could end it."""
    session = repo.readonly_session("main")
    plain = session.store
    store = safe_store(plain)
    chunks = plain.array_chunk_iterator("a", batch_size=1)
    next(chunks)
    assert len(pickle.dumps(store)) > 0  # although the session is being read
    pickling = threading.Thread(target=lambda: pickle.dumps(plain))
    pickling.start()
    while not _a_write_waits(session):
        pass
    assert repr(store) == f"IcechunkStore({str(store)!r})"
    assert str(zarr.storage.StorePath(store, "a")) == f"{store}/a"
    assert len([*chunks]) == 7
    pickling.join()


def test_travelling(repo):
    store = safe_store(repo.readonly_session("main").store)
    there = pickle.loads(pickle.dumps(store))
    assert type(there) is IcechunkStore
    assert there.is_immutable
    assert str(there) == str(store)
    assert zarr.open_array(there, path="a", mode="r")[:].tolist() == [1] * 8
    fork = pickle.loads(pickle.dumps(safe_store(repo.writable_session("main").fork().store)))
    zarr.open_array(fork, path="a", mode="r+")[:] = 2
    assert not fork.is_immutable
    with pytest.raises(WritableSessionError, match="cannot be sent to another process"):
        pickle.dumps(safe_store(repo.writable_session("main").store))


def test_a_committed_session_lasts(repo):
    with intarsia.transaction(repo, message="a change") as tx:
        store = tx.store
        zarr.open_array(store, path="a", mode="r+")[:] = 2
        assert not store.is_immutable
    assert store.is_immutable


def test_listings(repo):
    for session in (repo.readonly_session("main"), repo.writable_session("main")):
        store = safe_store(session.store)

        async def listed(names):
            return sorted([name async for name in names])

        for ask in (lambda s: s.list_dir(""), lambda s: s.list_prefix("a"), lambda s: s.list()):
            assert sync(listed(ask(store))) == sync(listed(ask(session.store))) != []
        assert not sync(store.is_empty(""))
        assert sync(store.is_empty("c"))
        assert sync(store.getsize_prefix("a")) == sync(session.store.getsize_prefix("a"))
        assert len(chunk_table(store, "b").kind) == 8


def test_listing_while_others_write(repo):
    """Icechunk alone stops for ever after a few hundred listings."""
    session = repo.writable_session("main")
    stores = [safe_store(session.store), safe_store(session.store)]  # two of one session
    done = threading.Event()

    async def write():
        for turn in range(150):
            value = cpu.Buffer.from_bytes(bytes([turn]))
            await asyncio.gather(*(stores[0].set(f"a/c/{i}", value) for i in range(8)))

    def list_all():
        while not done.is_set():
            assert {*zarr.open_group(stores[1], mode="r").array_keys()} == {"a", "b"}
            assert not sync(stores[1].is_empty("a"))

    threads = [threading.Thread(target=list_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        sync(write())
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert zarr.open_array(stores[1], path="a", mode="r")[:].tolist() == [149] * 8


def test_turns_come_in_order_and_never_mix():
    async def run():
        turns, told = _Turns(None), []
        leave = asyncio.Event()

        async def work(kind, name):
            async with turns.awaited(kind):
                told.append(name)
                await leave.wait()

        tasks = []
        for kind, name in (
            (WRITING, "w1"),
            (WRITING, "w2"),
            (LISTING, "l1"),
            (WRITING, "w3"),
            (LISTING, "l2"),
        ):
            tasks.append(asyncio.create_task(work(kind, name)))
            await asyncio.sleep(0)
        assert told == ["w1", "w2"]  # w3 came after l1, which waits
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])
        leave.set()
        await asyncio.gather(*tasks[:2], *tasks[3:])
        assert told == ["w1", "w2", "w3", "l2"]

    asyncio.run(run())


def test_a_turn_that_came_while_it_was_called_off_is_given_back():
    async def run():
        turns = _Turns(None)

        async def write():
            async with turns.awaited(WRITING):
                pytest.fail("it was called off")

        with turns.taken(LISTING):
            task = asyncio.create_task(write())
            await asyncio.sleep(0)
        task.cancel()  # its turn has come, and it does not know yet
        await asyncio.wait([task])
        with turns.taken(LISTING):
            pass

    asyncio.run(run())


def test_a_turn_that_was_interrupted_while_it_waited_is_not_called(monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    turns = _Turns(None)
    with turns.taken(WRITING):
        monkeypatch.setattr(Future, "result", interrupt)
        with pytest.raises(KeyboardInterrupt), turns.taken(LISTING):
            pytest.fail("it was interrupted")
    assert turns._may_begin(_Turn(WRITING))


def test_turns_of_threads():
    turns, told = _Turns(None), []

    def lists():
        with turns.taken(LISTING):
            told.append("listed")

    with turns.taken(WRITING):
        thread = threading.Thread(target=lists)
        thread.start()
        told.append("written")
    thread.join()
    assert told == ["written", "listed"]
