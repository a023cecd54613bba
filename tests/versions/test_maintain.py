"""Replicas in a repository, and `maintain`, beside writers and killed: no snapshot has two truths."""

import random

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia.errors import ConcurrentUpdateError, NotLogicalArrayError
from intarsia.logical import replicas
from intarsia.versions.append_recode import Upload
from intarsia.versions.commit import Commit
from tests.versions import places
from tests.versions.places import memory
from tests.versions.processes import Worker, running, together

STEPS, COLUMNS = 8, 6


def make(repo, steps=STEPS, **policy):
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="int64")
        array.append(expected(steps), codecs=["gzip"])
        if policy:
            array.set_policy(**policy)


def expected(steps=STEPS):
    return np.arange(steps * COLUMNS).reshape(steps, COLUMNS)


def check_every_snapshot(repo):
    """In no version does any layer hold another value than layer 0; returns how many replicas were seen."""
    seen = 0
    for snapshot in repo.ancestry(branch="main"):
        session = repo.readonly_session(snapshot_id=snapshot.id)
        try:
            array = intarsia.open(session.store, "t")
        except NotLogicalArrayError:
            continue
        truth = array.with_config(layer=0)[...]
        for layer in array.manifest.layers:
            np.testing.assert_array_equal(array.with_config(layer=layer)[...], truth)
            seen += layer > 0
        np.testing.assert_array_equal(array[:, 2], truth[:, 2])
    return seen


def test_a_replica_is_a_commit():
    repo = memory()
    make(repo)
    snapshot = intarsia.add_replica(repo, "t", chunks=(8, 1), codecs=["zstd"])
    assert snapshot == repo.lookup_branch("main")
    array = intarsia.open(repo, "t")
    assert [(one.layer, one.bounds, one.codec_names) for one in array.replicas] == [
        (1, ((0, 8), (0, 6)), "zstd")
    ]
    (change,) = intarsia.history(repo, "t")[0].changes
    assert [str(region) for region in change.regions] == ["added [0:8, 0:6] (zstd-0, layer 1)"]
    np.testing.assert_array_equal(array[:, 3], expected()[:, 3])


def test_what_is_written_meanwhile_is_in_the_replica(meddle, monkeypatch):
    repo, made = memory(), []
    make(repo)
    plain = Upload.copy
    monkeypatch.setattr(Upload, "copy", lambda *given: made.append(plain(*given)) or made[-1])
    meddle(lambda: intarsia.write(repo, "t", np.s_[3, 2], -1))
    intarsia.add_replica(repo, "t", chunks=(8, 1))
    assert intarsia.open(repo, "t").with_config(layer=1)[3, 2] == -1
    assert len(made) == 2
    assert check_every_snapshot(repo)


def test_an_append_meanwhile_does_not_copy_again(meddle, monkeypatch):
    repo, made = memory(), []
    make(repo)
    plain = Upload.copy
    monkeypatch.setattr(Upload, "copy", lambda *given: made.append(plain(*given)) or made[-1])
    meddle(lambda: intarsia.append(repo, "t", expected(2), codecs=["zstd"]))
    intarsia.add_replica(repo, "t", chunks=(8, 1))
    assert len(made) == 1
    assert intarsia.open(repo, "t").replicas[0].bounds == ((0, 8), (0, 6))
    assert check_every_snapshot(repo)


def test_a_write_that_learns_of_a_replica_last_cuts_it(meddle):
    repo = memory()
    make(repo)
    meddle(lambda: intarsia.add_replica(repo, "t", chunks=(8, 1)))
    intarsia.write(repo, "t", np.s_[3, 2], -1)
    array = intarsia.open(repo, "t")
    assert array[3, 2] == array.with_config(layer=1)[3, 2] == -1
    assert [one.bounds for one in array.replicas] == [((0, 3), (0, 6)), ((4, 8), (0, 6))]
    assert check_every_snapshot(repo)


def test_a_transaction_over_a_replica_that_somebody_adds_is_refused(meddle):
    repo = memory()
    make(repo)
    meddle(lambda: intarsia.add_replica(repo, "t", chunks=(8, 1)))
    with pytest.raises(ConcurrentUpdateError), intarsia.transaction(repo, message="write") as tx:
        tx.open("t")[3, 2] = -1
    assert check_every_snapshot(repo)


def test_a_replica_in_a_transaction_over_what_somebody_writes_is_refused(meddle):
    repo = memory()
    make(repo)
    meddle(lambda: intarsia.write(repo, "t", np.s_[3, 2], -1))
    with pytest.raises(ConcurrentUpdateError), intarsia.transaction(repo, message="replica") as tx:
        tx.open("t").add_replica(chunks=(8, 1))
    assert check_every_snapshot(repo) == 0


@pytest.mark.parametrize("mode", ["drop", "write"])
def test_two_writers_of_one_replica(meddle, mode):
    repo = memory()
    make(repo)
    intarsia.add_replica(repo, "t", chunks=(8, 1))

    def write(tx, place, value):
        tx.open("t").with_config(replicas=mode)[place] = value

    meddle(lambda: intarsia.retry(repo, lambda tx: write(tx, (1, 1), -1)))
    intarsia.retry(repo, lambda tx: write(tx, (6, 1), -2))
    array = intarsia.open(repo, "t")
    for layer in array.manifest.layers:
        assert array.with_config(layer=layer)[[1, 6], [1, 1]].tolist() == [-1, -2]
    assert check_every_snapshot(repo)


def test_maintain_does_what_the_policy_wants_and_then_nothing():
    repo = memory()
    make(repo, replica={"chunks": (4, 1), "codecs": ["zstd"], "after": "3 chunks"})
    assert [str(step) for step in intarsia.maintain(repo, dry_run=True)] == [
        "replicated [0:8, 0:6] in layer 1 of t"
    ]
    assert len(intarsia.maintain(repo)) == 1
    tip = repo.lookup_branch("main")
    assert intarsia.maintain(repo) == ()
    intarsia.append(repo, "t", expected(2))
    assert intarsia.maintain(repo) == ()  # not long enough
    assert repo.lookup_branch("main") != tip
    intarsia.append(repo, "t", expected(1))
    assert next(step.bounds for step in intarsia.maintain(repo)) == ((8, 11), (0, 6))
    array = intarsia.open(repo, "t")
    assert {part.layer for part in intarsia.explain(array, np.s_[:, 1]).parts} == {1}
    assert check_every_snapshot(repo)


def test_maintain_says_where_nothing_is():
    repo = memory()
    with intarsia.transaction(repo, message="a group") as tx:
        zarr.create_group(tx.store, path="g")
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="no logical array at 'g' or below"):
        intarsia.maintain(repo, "g")


def test_maintain_encodes_tails_anew_and_joins():
    repo = memory()
    make(repo, 0, recode={"codecs": ["zstd"], "after": 2})
    for _ in range(3):
        for _ in range(2):
            intarsia.append(repo, "t", expected(1), codecs=[], merge=False)
        intarsia.maintain(repo)
    array = intarsia.open(repo, "t")
    assert [(region.bounds[0], region.codec_names) for region in array.regions] == [((0, 6), "zstd")]
    np.testing.assert_array_equal(array[...], np.tile(expected(1), (6, 1)))
    assert intarsia.maintain(repo) == ()


def test_maintain_goes_on_where_it_was(monkeypatch):
    repo = memory()
    make(repo, replica={"chunks": (2, 3)})
    monkeypatch.setattr(replicas, "PIECE_BYTES", 2 * COLUMNS * 8)
    plain, made = Commit.make, []

    def third(self, session, since=None):
        made.append(self.message)
        if len(made) == 3:
            raise KeyboardInterrupt
        return plain(self, session, since)

    monkeypatch.setattr(Commit, "make", third)
    with pytest.raises(KeyboardInterrupt):
        intarsia.maintain(repo)
    assert [one.bounds[0] for one in intarsia.open(repo, "t").replicas] == [(0, 2), (2, 4)]
    steps = intarsia.maintain(repo)
    assert [step.what for step in steps] == ["replica", "replica", "consolidate"]
    assert [one.bounds[0] for one in intarsia.open(repo, "t").replicas] == [(0, 8)]
    assert check_every_snapshot(repo)


def test_what_is_not_there_cannot_be_maintained():
    repo = memory()
    make(repo)
    with pytest.raises(NotLogicalArrayError, match="'nothing'"):
        intarsia.maintain(repo, "nothing")
    assert intarsia.maintain(repo) == ()


def test_shares_write_what_is_cut_out_of_replicas_before():
    repo = memory()
    make(repo)
    intarsia.add_replica(repo, "t", chunks=(8, 1))
    with intarsia.transaction(repo, message="shares") as tx:
        shares = tx.open("t").fork_for(2, [(0, 4), (0, 6)])
        for share in shares:
            for box in share.boxes:
                share[box] = -1
        tx.merge(*shares)
    array = intarsia.open(repo, "t")
    assert [one.bounds[0] for one in array.replicas] == [(4, 8)]
    assert (array[:4] == -1).all()
    assert check_every_snapshot(repo)


def test_two_forks_that_both_change_a_layout_are_refused():
    repo = places.memory()
    make(repo)
    intarsia.add_replica(repo, "t", chunks=(8, 1))
    tx = intarsia.transaction(repo).begin()
    forks = [tx.session.fork() for _ in range(2)]
    for place, fork in enumerate(forks):
        intarsia.open(fork.store, "t", mode="r+")[place] = -1
    with pytest.raises(icechunk.IcechunkError, match="updated the same groups"):
        tx.session.merge(*forks)
    assert check_every_snapshot(repo)


def test_restore_brings_replicas_back():
    repo = memory()
    make(repo)
    snapshot = intarsia.add_replica(repo, "t", chunks=(8, 1))
    intarsia.write(repo, "t", np.s_[2], 0)
    intarsia.retry(repo, lambda tx: tx.open("t").drop_replica())
    intarsia.restore(repo, "t", snapshot)
    array = intarsia.open(repo, "t")
    np.testing.assert_array_equal(array.with_config(layer=1)[...], expected())
    assert len(array.replicas) == 1
    assert check_every_snapshot(repo)


def test_damage_in_one_layer_is_found_and_named(tmp_path):
    store = zarr.storage.LocalStore(tmp_path)
    array = intarsia.create(store, "t", shape=(0, 6), chunks=(1, 6), dtype="int64")
    array.append(expected(), codecs=["zstd"])
    array.add_replica(chunks=(8, 2), codecs=[])
    assert intarsia.verify(array, deep=True) == ()
    chunk = tmp_path / "t" / array.replicas[0].name / "c" / "0" / "1"
    data = bytearray(chunk.read_bytes())
    data[8 * 5] ^= 1  # another value, which no codec notices
    chunk.write_bytes(data)
    assert intarsia.verify(array) == ()
    (problem,) = intarsia.verify(array, deep=True)
    assert (problem.kind, problem.where) == ("layer", f"t/{array.replicas[0].name}")
    assert "chunk (0, 1), [0:8, 2:4] in layer 1" in problem.what
    assert "at (2, 3)" in problem.what
    chunk.write_bytes(data[:3])
    (problem,) = intarsia.verify(array)
    assert problem.kind == "data"
    assert "layer 1" in problem.what
    assert "chunk (0, 1)" in problem.what
    np.testing.assert_array_equal(array.with_config(layer=0)[...], expected())


def test_a_replica_of_another_shape_is_found_without_reading_it(tmp_path):
    store = zarr.storage.LocalStore(tmp_path)
    array = intarsia.create(store, "t", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="int64")
    array.append(expected(), codecs=["zstd"])
    array.add_replica(chunks=(8, 2))
    name = array.replicas[0].name
    zarr.open_array(store, path=f"t/{name}").resize((STEPS - 1, COLUMNS))
    (problem,) = intarsia.verify(store, "t", data=False)
    assert (problem.kind, problem.where) == ("member", f"t/{name}")
    np.testing.assert_array_equal(intarsia.open(store, "t").with_config(layer=0)[...], expected())


def write_rows(place, row, times, seed):
    """Writes numbers that grow into one row; returns the last."""
    repo, choose = place.open(), random.Random(seed)
    for number in range(1, times + 1):
        mode = choose.choice(["drop", "write"])

        def change(tx, number=number, mode=mode):
            tx.open("t").with_config(replicas=mode)[row, choose.randrange(COLUMNS)] = number

        intarsia.retry(repo, change, message=f"row {row}")
        intarsia.write(repo, "t", row, number)
        if number % 3 == 0:
            intarsia.append(repo, "t", np.full((1, COLUMNS), number))
    return times


def keep_maintaining(place, seed):
    """Makes, drops and mends replicas until killed."""
    repo, choose = place.open(), random.Random(seed)
    while True:
        what = choose.choice(["add", "drop", "maintain", "maintain", "recode"])
        if what == "add":
            intarsia.add_replica(repo, "t", chunks=choose.choice([(8, 1), (3, 2), (20, 6)]))
        elif what == "recode":
            intarsia.recode(repo, "t", codecs=choose.choice([["gzip"], ["zstd"]]))
        elif what == "maintain":
            intarsia.maintain(repo)
        else:
            array = intarsia.open(repo, "t")
            layers = array.manifest.layers
            if len(layers) > 2:

                def drop(tx):
                    there = tx.open("t")
                    there.drop_replica(layer=there.manifest.layers[-1])

                intarsia.retry(repo, drop)


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.torture)])
def test_no_snapshot_has_two_truths_whoever_writes_or_is_killed(tmp_path, times):
    place = places.place("local", None, tmp_path)
    repo = place.open(create=True)
    make(repo, replica={"chunks": (8, 2)})
    with running(keep_maintaining, place, 1):
        first = [Worker(write_rows, place, row, times, row) for row in range(2)]
        with running(keep_maintaining, place, 2):
            for worker in first:
                assert worker.result() == times
        # the second is killed here, in the middle of whatever it does
        for kill in range(max(1, times // 4)):
            with running(keep_maintaining, place, 3 + kill):
                assert together(write_rows, [(place, 2, 3, 7 + kill)]) == [3]
    repo = place.open()
    seen = check_every_snapshot(repo)
    assert seen
    array = intarsia.open(repo, "t")
    assert array[:3].tolist() == [[times] * COLUMNS, [times] * COLUMNS, [3] * COLUMNS]
    intarsia.maintain(repo)
    assert intarsia.verify(repo, deep=True) == ()
    assert isinstance(repo, icechunk.Repository)
