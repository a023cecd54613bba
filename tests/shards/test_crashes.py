"""A process that is gone between two system calls, or in the middle of a write: at every such moment."""

import itertools

import numpy as np
import pytest

import intarsia
from tests.shards import fleet
from tests.shards.test_processes import KINDS, value_of

SIZE = 512
CHUNKS = 8

# Which of them run always; all run in make torture. Two kinds that have opposite ways of being safe.
ALWAYS = {
    ("checked chunks", True, 0.5): ("create", "two chunks", "compact"),
    ("bare chunks", False, 0.5): ("rewrite", "update", "erase", "reslot"),
}


def cases(*actions):
    """All kinds of shards, all shares of a write that still arrive, all actions."""
    return [
        pytest.param(
            *case, action, id=f"{action}, {case[0]}, safe_readers={case[1]}, {case[2]:.0%} of the bytes",
            marks=[] if action in ALWAYS.get(case, ()) else pytest.mark.torture,
        )
        for case in itertools.product(KINDS, (True, False), (0.0, 0.5, 1.0))
        for action in actions
    ]  # fmt: skip


def moments(path, share, function, *arguments):
    """Run a function in processes that die at the first, second, third … call; until one survives."""
    for fatal in itertools.count(1):
        with fleet.crew((fleet.die_at, fatal, share, function, path, *arguments)) as (member,):
            member.process.join()
            if member.process.exitcode == 0:
                member.result()
                return
            assert member.process.exitcode == fleet.DIED
        yield fatal


def parts(array):
    return [fleet.chunk_slice(array, chunk) for chunk in range(CHUNKS)]


@pytest.mark.parametrize(
    ("kind", "safe_readers", "share", "action"), cases("create", "rewrite", "update", "erase", "two chunks")
)
def test_a_write_that_dies_harms_nothing_else(tmp_path, kind, safe_readers, share, action):
    options = {"safe_readers": safe_readers}
    array = fleet.make_array(
        tmp_path, shape=CHUNKS * SIZE, chunks=SIZE, shards=CHUNKS * SIZE, fill_value=-1, **KINDS[kind]
    )
    path, slots = str(tmp_path), intarsia.shards.slotted(array, **options)
    settled = dict.fromkeys(range(CHUNKS), -1)
    if action != "create":
        for chunk in (0, 2, 3, 4, 7):
            slots[fleet.chunk_slice(array, chunk)] = settled[chunk] = 100 + chunk
    value = -1 if action == "erase" else 5
    first, last = {"two chunks": (3, 4)}.get(action, (3, 3))
    start, stop = first * SIZE, (last + 1) * SIZE
    for _ in moments(path, share, fleet.assign, options, start + (action == "update"), stop, value):
        for chunk in range(CHUNKS):
            hit = first <= chunk <= last
            allowed = {settled[chunk], value} if hit else {settled[chunk]}
            found = [
                expect_part(slots, chunk, allowed, action, may_fail=hit),
                expect_part(array, chunk, allowed, action, may_fail=hit or stale(array)),
            ]
            if hit and found[0] is None:  # neither old nor new is left: the chunk can be written again
                slots[fleet.chunk_slice(array, chunk)] = settled[chunk]
        restore(slots, settled, range(first, last + 1))
        assert intarsia.verify(array) == ()
    expected = np.repeat(np.array(list(settled.values()), dtype="int32"), SIZE)
    expected[start + (action == "update") : stop] = value
    assert np.array_equal(array[:], expected)
    intarsia.shards.compact(array)
    assert np.array_equal(array[:], expected)


def stale(array):
    return bool(intarsia.verify(array, data=False))


def expect_part(array, chunk, allowed, action, *, may_fail):
    if action != "update":
        return value_of(array, chunk, allowed, may_fail=may_fail)
    try:
        values = array[fleet.chunk_slice(array, chunk)]
    except Exception:
        if not may_fail:
            raise
        return None
    assert (values[1:] == values[1]).all()
    assert {int(values[0]), int(values[1])} <= allowed
    return int(values[1])


def restore(slots, settled, chunks):
    for chunk in chunks:
        slots[fleet.chunk_slice(slots, chunk)] = settled[chunk]


@pytest.mark.parametrize(("kind", "safe_readers", "share", "action"), cases("compact", "reslot"))
def test_a_compaction_that_dies_loses_nothing(tmp_path, kind, safe_readers, share, action):
    options = {"safe_readers": safe_readers}
    array = fleet.make_array(tmp_path, shape=CHUNKS * SIZE, chunks=SIZE, shards=CHUNKS * SIZE, **KINDS[kind])
    path, slots = str(tmp_path), intarsia.shards.slotted(array, **options)
    expected = np.zeros(CHUNKS * SIZE, dtype="int32")
    for chunk in (0, 2, 3, 4, 7):  # with holes, so that compaction moves chunks
        part = fleet.chunk_slice(array, chunk)
        slots[part] = 1
        slots[part] = expected[part] = 100 + chunk
    work = (fleet.compact_array,) if action == "compact" else (fleet.reslot_array, options)
    if action == "reslot":
        intarsia.shards.compact(array)
    for _ in moments(path, share, *work):
        assert np.array_equal(slots[:], expected)
        try:
            values = array[:]
        except Exception:  # some chunks lead nowhere, until it is done again
            assert stale(array)
        else:
            assert np.array_equal(values, expected)
        (intarsia.shards.reslot if action == "compact" else intarsia.shards.compact)(slots)
        assert intarsia.verify(array) == ()
        assert np.array_equal(array[:], expected)
    assert np.array_equal(array[:], expected)
    intarsia.shards.compact(array)
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["0"]  # no leftovers
