"""Shares of a transaction: disjoint, checked, and one commit."""

import pickle

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia
from tests.logical import strategies as s
from tests.versions import places
from tests.versions.places import memory
from tests.versions.processes import together


def travelled(thing):
    return pickle.loads(pickle.dumps(thing))


def write_share(share):
    for box in share.boxes:
        share[box] = np.indices(share.array[box].shape)[0] + box[0].start + 1
    return share


def test_workers_in_other_processes_make_one_commit(tmp_path):
    repo = places.Place(str(tmp_path / "r")).open(create=True)
    with intarsia.transaction(repo, message="by workers") as tx:
        array = tx.create("t", shape=(40, 3), chunks=(5, 3), dtype="int64")
        array.add_region([(0, 20), (0, 3)], codecs=["gzip"], chunks=(2, 2))
        array.add_region([(20, 40), (0, 3)], codecs=["zstd"], chunks=(10, 3), shards=(20, 3))
        tx.merge(*together(write_share, [(share,) for share in array.fork_for(3)]))
    expected = np.repeat(np.arange(1, 41)[:, None], 3, axis=1)
    np.testing.assert_array_equal(intarsia.open(repo, "t")[...], expected)
    messages = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    assert messages == ["by workers", "Repository initialized"]


def prepared(tx, **options):
    array = tx.create("t", shape=(8,), chunks=(1,), dtype="int64")
    array.add_region([(0, 8)], codecs=["gzip"], **options)
    return array


@given(st.data())
@settings(max_examples=settings().max_examples // 2)
def test_shares_cover_everything_once(data):
    repo = memory()
    with intarsia.transaction(repo) as tx:
        array = tx.create("t", shape=(9, 7), chunks=(3, 2), dtype="int64")
        tiles = data.draw(s.tilings(s.Box((0, 0), array.manifest.lattice)))
        for tile in tiles:
            chunks = tuple(data.draw(st.integers(1, 5)) for _ in range(2))
            bounds = array.manifest.elements(tile)
            array.add_region(list(zip(*bounds, strict=True)), codecs=[], chunks=chunks)
        if data.draw(st.booleans()):  # regions that share members, cut where no chunk ends
            array.drop_region([(3, 6), (2, 4)])
        shares = array.fork_for(data.draw(st.integers(1, 6)))
        chunks = [
            (name, index) for share in shares for name, indices in share.chunks.items() for index in indices
        ]
        assert len(chunks) == len(set(chunks))
        times = np.zeros(array.shape, dtype=int)
        for share in shares:
            for box in share.boxes:
                times[box] += 1
                share[box] = 5
        covered = [[array.region_at((i, j)) is not None for j in range(7)] for i in range(9)]
        np.testing.assert_array_equal(times, covered)
        tx.merge(*shares)
        np.testing.assert_array_equal(array[...], np.where(times, 5, 0))


def test_a_box_limits_what_is_divided():
    with intarsia.transaction(memory()) as tx:
        shares = prepared(tx).fork_for(2, bounds=[(2, 5)])
        assert [share.boxes for share in shares] == [((slice(2, 3),),), ((slice(3, 4),), (slice(4, 5),))]


def test_more_workers_than_chunks_leave_some_without_work():
    with intarsia.transaction(memory()) as tx:
        shares = prepared(tx, chunks=(4,)).fork_for(5)
        assert sorted(share.size for share in shares) == [0, 0, 0, 1, 1]


def test_what_was_written_outside_the_share_is_refused_when_merged():
    with intarsia.transaction(memory()) as tx:
        array = prepared(tx)
        first, second = array.fork_for(2)
        first[5] = 1
        second[5] = 2
        with pytest.raises(intarsia.errors.ForkError, match="not in its share"):
            tx.merge(second, first)
        assert array[...].tolist() == [0] * 8  # nothing was merged


def test_a_share_is_merged_once():
    with intarsia.transaction(memory()) as tx:
        first, second = prepared(tx).fork_for(2)
        first[0], second[7] = 1, 7
        tx.merge(first)
        with pytest.raises(intarsia.errors.ForkError, match="written after the work was divided"):
            tx.merge(second, first)
        tx.merge(second)


def test_a_worker_must_not_change_the_layout():
    with intarsia.transaction(memory()) as tx:
        (share,) = prepared(tx).fork_for(1)
        share.array.append([1], codecs=["gzip"])
        with pytest.raises(intarsia.errors.ForkError, match="more than values"):
            tx.merge(share)


def test_work_given_out_for_another_layout_is_refused():
    with intarsia.transaction(memory()) as tx:
        array = prepared(tx)
        (share,) = array.fork_for(1)
        share[0] = 1
        array.recode([(0, 4)], codecs=["zstd"])
        with pytest.raises(intarsia.errors.ForkError, match="layout of 't' changed"):
            tx.merge(share)


def test_work_for_an_array_that_was_made_anew_is_refused():
    repo = memory()
    with intarsia.transaction(repo) as tx:
        prepared(tx)
    with intarsia.transaction(repo) as tx:
        (share,) = tx.open("t").fork_for(1)
        share[0] = 1
        intarsia.create(tx.store, "t", shape=(8,), chunks=(1,), dtype="int64", overwrite=True)
        with pytest.raises(intarsia.errors.ForkError, match="removed or recreated"):
            tx.merge(share)


@pytest.fixture(params=["memory", "local"])
def repo(request, tmp_path):
    """An array of two chunks of four values."""
    repo = memory() if request.param == "memory" else intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo) as tx:
        array = tx.create("t", shape=(8,), chunks=(4,), dtype="int64")
        array.add_region([(0, 8)], codecs=[], data=np.arange(8))
    return repo


def test_a_chunk_that_the_transaction_wrote_itself_since_is_not_overwritten(repo):
    with intarsia.transaction(repo) as tx:
        array = tx.open("t")
        one, other = array.fork_for(2)
        array[0:2] = 50
        one[2:4] = 7  # other values of the same chunk
        other[4:6] = 8
        with pytest.raises(intarsia.errors.ForkError, match=r"written after the work was divided, \(0,\) of"):
            tx.merge(other, one)
        tx.merge(other)
    assert intarsia.open(repo, "t")[...].tolist() == [50, 50, 2, 3, 8, 8, 6, 7]


def test_a_chunk_that_others_committed_since_is_not_overwritten(repo):
    with intarsia.transaction(repo) as tx:
        one, other = tx.open("t").fork_for(2)
    one[0:2], other[4:6] = 7, 8
    intarsia.write(repo, "t", slice(2, 4), 99)
    with intarsia.transaction(repo) as tx:
        with pytest.raises(intarsia.errors.ForkError, match="written after the work was divided"):
            tx.merge(one)
        tx.merge(other)
    assert intarsia.open(repo, "t")[...].tolist() == [0, 1, 99, 99, 8, 8, 6, 7]


def test_forks_need_a_transaction():
    array = intarsia.create({}, "t", shape=(4,), chunks=(1,), dtype="u1")
    with pytest.raises(intarsia.errors.ForkError, match="not in one"):
        array.fork_for(2)
    repo = memory()
    with intarsia.transaction(repo) as tx:
        prepared(tx)
        with pytest.raises(intarsia.errors.ForkError, match="at least 1"):
            tx.open("t").fork_for(0)
    with pytest.raises(intarsia.errors.ForkError, match="not in one"):
        intarsia.open(repo, "t").fork_for(2)


def test_a_share_travels_there_and_back(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo) as tx:
        (share,) = prepared(tx).fork_for(1)
        share = travelled(share)
        share[3] = 9
        share = travelled(share)
        assert share[3] == 9
        tx.merge(share)
    assert intarsia.open(repo, "t")[3] == 9


@pytest.mark.parametrize("how", ["codecs", "handle", "remembered", "process"])
def test_shares_bring_what_decides(how, tmp_path):
    repo = places.Place(str(tmp_path / "r")).open(create=True)
    default = {"intarsia.decision": "always_apply"} if how == "process" else {}
    with intarsia.transaction(repo, message="by workers") as tx, zarr.config.set(default):
        array = tx.create("t", shape=(8, 64), chunks=(2, 64), dtype="u2")
        codec = intarsia.codecs.ConditionalCodec(codecs=["zstd"])
        if how == "codecs":
            codec = codec.with_decision("always_apply")
        elif how != "process":
            array = intarsia.codecs.with_decision(array, "always_apply", remember=how == "remembered")
        array.add_region([(0, 8), (0, 64)], codecs=[codec])
        if how == "remembered":
            array = tx.open("t")
        shares = [travelled(share) for share in array.fork_for(2)]
        with zarr.config.set({"intarsia.decision": None}):  # as in the worker's process
            tx.merge(*map(write_share, shares))
    (member,) = intarsia.open(repo, "t").members.values()
    assert intarsia.codecs.masks(member).all()
