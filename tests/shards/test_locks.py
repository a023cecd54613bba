"""Locks on parts of a shard: who excludes whom, and who gets through."""

import itertools
import os
import threading
import warnings
from contextlib import nullcontext
from functools import partial

import pytest

import intarsia
from intarsia.shards import locks
from tests.shards import fleet


@pytest.fixture
def opened(tmp_path):
    """Opens one file again and again, as so many processes would."""
    path = tmp_path / "shard"
    path.touch()
    fds = []

    def open_again():
        fds.append(os.open(path, os.O_RDWR))
        return fds[-1]

    yield open_again
    for fd in fds:
        os.close(fd)


HOLDERS = {
    "write 3": lambda fd: locks.lock_chunks(fd, 3, 3, exclusive=True),
    "write 2 to 5": lambda fd: locks.lock_chunks(fd, 2, 5, exclusive=True),
    "write 4": lambda fd: locks.lock_chunks(fd, 4, 4, exclusive=True),
    "read 3": lambda fd: locks.lock_chunks(fd, 3, 3, exclusive=False),
    "index": lambda fd: locks.lock_index(fd, exclusive=True),
    "read the index": lambda fd: locks.lock_index(fd, exclusive=False),
    "replacement": locks.lock_out_writers,
}
FRIENDS = {
    ("write 3", "write 4"),
    ("read 3", "read 3"),
    ("read 3", "write 4"),
    ("read 3", "replacement"),  # readers keep to the file they have opened
    *((holder, kind) for holder in HOLDERS for kind in ("index", "read the index") if "index" not in holder),
    ("read the index", "read the index"),
}


@pytest.mark.parametrize(("holder", "other"), list(itertools.combinations_with_replacement(HOLDERS, 2)))
def test_only_those_who_do_not_harm_one_another_hold_at_once(opened, monkeypatch, holder, other):
    friends = (holder, other) in FRIENDS or (other, holder) in FRIENDS
    monkeypatch.setattr(locks, "_set", partial(locks._set, wait=False))  # fails where it would wait
    with HOLDERS[holder](opened()):
        expected = nullcontext() if friends else pytest.raises(BlockingIOError)
        with expected, HOLDERS[other](opened()):
            pass
    with HOLDERS[other](opened()):
        pass


def test_a_steady_stream_of_writers_does_not_keep_a_compaction_waiting(opened):
    stop = threading.Event()

    def write(chunk):
        fd = opened()
        while not stop.is_set():
            with locks.lock_chunks(fd, chunk, chunk, exclusive=True):
                pass

    threads = [threading.Thread(target=write, args=(chunk,)) for chunk in range(4)]
    for thread in threads:
        thread.start()
    fd = opened()
    try:
        for _ in range(20):
            with locks.lock_out_writers(fd):
                pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_lock_goes_when_its_file_is_closed(tmp_path):
    path = tmp_path / "shard"
    path.touch()
    one, two = (os.open(path, os.O_RDWR) for _ in range(2))
    assert locks.try_lock(one)
    assert not locks.try_lock(two)
    os.close(one)
    assert locks.try_lock(two)
    os.close(two)


def test_a_forked_child_does_not_keep_what_its_parent_held(tmp_path):
    path = tmp_path / "shard"
    path.touch()
    ready, orders = os.pipe(), os.pipe()
    fd = locks.open_for_locking(path, os.O_RDWR)
    assert locks.try_lock(fd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if not child:
        os.close(orders[1])
        os.write(ready[1], b"x")
        os.read(orders[0], 1)  # lives on for as long as we like, and no longer than we do
        os._exit(0)
    os.read(ready[0], 1)
    other = locks.open_for_locking(path, os.O_RDWR)
    assert not locks.try_lock(other)  # the child let go of it, and its parent did not
    locks.close_file(fd)  # as when the parent dies: nothing is unlocked
    assert locks.try_lock(other)
    locks.close_file(other)
    os.write(orders[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*ready, *orders):
        os.close(end)


def test_a_platform_without_such_locks_is_refused(tmp_path, monkeypatch):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=32)
    monkeypatch.setattr(locks, "fcntl", None)
    for action in (
        intarsia.shards.slotted,
        intarsia.shards.compact,
        intarsia.shards.reslot,
        intarsia.shards.slot_stats,
    ):
        with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="Linux"):
            action(array)
