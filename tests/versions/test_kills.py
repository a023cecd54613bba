"""Writers that are killed at any moment, while others read."""

import datetime
import random
import threading
import time

import numpy as np
import pytest

import intarsia
from intarsia.versions.commit import Commit
from intarsia.versions.verify_vacuum import unreferenced_objects
from tests.versions import places
from tests.versions.processes import CONTEXT, Worker, running

COLUMNS = 300
"""Chunks of 1,200 bytes: too large for Icechunk's manifests, so that they are files that can be left over."""

CODECS = [[], ["crc32c"], ["zstd"], ["gzip"]]


def prepare(place):
    repo = place.open(create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("appended", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="int32")
        for name in ("left", "right"):
            array = tx.create(name, shape=(2, COLUMNS), chunks=(1, COLUMNS), dtype="int32")
            array.add_region([(0, 2), (0, COLUMNS)], codecs=[], data=np.zeros((2, COLUMNS), "int32"))
        array = tx.create("recoded", shape=(8, COLUMNS), chunks=(1, COLUMNS), dtype="int32")
        array.add_region([(0, 8), (0, COLUMNS)], codecs=[], data=recoded_values())
    return repo


def recoded_values():
    return np.repeat(np.arange(1, 9, dtype="int32")[:, None], COLUMNS, axis=1)


def change(repo, kind, number, choose):
    """One change of a kind, recognisable by its number."""
    if kind == "append":
        data = np.full((1, COLUMNS), number, dtype="int32")
        intarsia.append(repo, "appended", data, codecs=choose.choice(CODECS), merge=choose.random() < 0.5)
    elif kind == "recode":
        start = choose.randrange(8)
        bounds = [(start, choose.randint(start + 1, 8)), (0, COLUMNS)]
        intarsia.recode(repo, "recoded", bounds, codecs=choose.choice(CODECS))
    else:
        with intarsia.transaction(repo, message=f"pair {number}") as tx:
            for name in ("left", "right"):
                tx.open(name)[...] = number


def keep_changing(place, seed, first, pipe):
    """Change after change until killed; tells before and after each."""
    repo, choose, number = place.open(), random.Random(seed), first
    while True:
        kind = choose.choice(["append", "recode", "transaction"])
        pipe.send(("begin", kind, number))
        change(repo, kind, number, choose)
        pipe.send(("done", kind, number))
        number += 1


def keep_reading(place, stop):
    """Look at every array, at least once, until told to stop: whatever is seen must be one generation."""
    repo = place.open()
    look(repo)
    while not stop.is_set():
        look(repo)


def look(repo):
    """What is there now: the appended numbers, and the number of the last pair."""
    session = repo.readonly_session("main")
    appended = intarsia.open(session, "appended")[...]
    assert (appended == appended[:, :1]).all()
    numbers = appended[:, 0].tolist()
    assert len(numbers) == len(set(numbers))
    assert 0 not in numbers
    pairs = {int(n) for name in ("left", "right") for n in np.unique(intarsia.open(session, name)[...])}
    assert len(pairs) == 1, f"half a transaction is visible: {pairs}"
    np.testing.assert_array_equal(intarsia.open(session, "recoded")[...], recoded_values())
    return numbers, pairs.pop()


def messages_of(pipe):
    """Everything that a killed process managed to say."""
    said = []
    try:
        while pipe.poll(0):
            said.append(pipe.recv())
    except (EOFError, OSError):
        pass
    return said


def kill_once(place, seed, first):
    """Let a writer work, kill it at a random moment; returns what it began and what it finished."""
    choose = random.Random(seed)
    here, there = CONTEXT.Pipe(duplex=False)
    with running(keep_changing, place, seed, first, there) as worker:
        there.close()
        said = [here.recv() for _ in range(choose.randint(1, 6))]
        worker.process.join(choose.uniform(0, 0.04))
        worker.kill()
    said += messages_of(here)
    begun = {message[2]: message[1] for message in said if message[0] == "begin"}
    return begun, {message[2] for message in said if message[0] == "done"}


def collect_until_clean(repo):
    """A server may store what a killed writer had sent while, or after, everything else is collected."""
    deadline = time.monotonic() + 30
    while True:
        intarsia.vacuum(repo, forget_before=datetime.timedelta(0), force=True)
        assert intarsia.verify(repo) == ()
        remains = unreferenced_objects(repo)
        if remains.is_empty:
            return
        assert time.monotonic() < deadline, remains


def kill_often(place, kills):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    repo = prepare(place)
    appended, possible, pair = set(), set(), 0
    stop = CONTEXT.Event()
    with running(keep_reading, place, stop) as reader:
        for kill in range(kills):
            begun, done = kill_once(place, f"{seed}-{kill}", first=1000 * kill + 1)
            appended |= {number for number in done if begun[number] == "append"}
            possible |= {number for number, kind in begun.items() if kind == "append"}
            numbers, seen = look(place.open())
            assert appended <= set(numbers) <= possible
            pairs = sorted(number for number, kind in begun.items() if kind == "transaction")
            certain = max([number for number in pairs if number in done], default=pair)
            assert certain <= seen
            assert seen in {certain, pair, *pairs}
            pair = seen
            assert intarsia.verify(repo) == ()
        stop.set()
        reader.result()
    before = look(repo)
    collect_until_clean(repo)
    assert look(repo) == before
    change(repo, "append", 10**6, random.Random(0))
    assert look(repo)[0] == [*before[0], 10**6]


@pytest.mark.parametrize(("kind", "kills"), [("local", 3), ("moto", 1)])
def test_a_killed_writer_leaves_whole_versions(kind, kills, request, tmp_path):
    kill_often(places.place(kind, request, tmp_path), kills)


@pytest.mark.torture
@pytest.mark.parametrize(("kind", "kills"), [("local", 50), ("moto", 20), ("seaweedfs", 20)])
def test_many_killed_writers_leave_whole_versions(kind, kills, request, tmp_path):
    kill_often(places.place(kind, request, tmp_path), kills)


def stop_before_the_commit(place, kind, reached):
    """Upload everything, take the lock, and wait there."""

    def wait(self, session, since=None):
        reached.set()
        threading.Event().wait()

    Commit.make = wait
    change(place.open(), kind, 7, random.Random(1))


@pytest.mark.parametrize("kind", ["append", "recode", "transaction"])
def test_a_writer_killed_right_before_its_commit_leaves_remains_that_are_found_and_removed(kind, tmp_path):
    place = places.Place(str(tmp_path / "r"))
    repo = prepare(place)
    before = look(repo)
    reached = CONTEXT.Event()
    worker = Worker(stop_before_the_commit, place, kind, reached)
    assert reached.wait(60)
    worker.kill()
    assert look(repo) == before
    assert intarsia.verify(repo) == ()
    assert unreferenced_objects(repo).chunks > 0
    assert intarsia.vacuum(repo, forget_before=datetime.timedelta(0), force=True).chunks > 0
    assert unreferenced_objects(repo).is_empty
    change(repo, kind, 8, random.Random(2))  # the lock is free, too
    look(repo)
