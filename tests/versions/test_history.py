"""Time travel, history and diff: what was, and what changed."""

import datetime
from itertools import pairwise

import numpy as np
import pytest
import zarr

import intarsia
from tests.versions.places import memory


def test_values_at_each_of_twenty_commits_equal_the_models_at_that_time():
    """A random walk over every kind of change, with a NumPy model kept for each commit."""
    seed = 20240501
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    repo = memory()
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0, 6), chunks=(2, 3), dtype="int64", fill_value=-1)
    model = np.zeros((0, 6), "int64")
    states = [(tx.snapshot_id, model.copy())]
    counter = iter(range(1, 10**6))
    codecs = [["gzip"], ["zstd"], [], ["crc32c"]]
    for step in range(20):
        covered = _covered(intarsia.open(repo, "t"))
        kinds = ["append", "append", "write", "recode", "drop", "resize", "consolidate"]
        kind = kinds[random.integers(len(kinds))] if len(model) > 4 else "append"
        if kind == "append":
            data = np.array([[next(counter)] * 6 for _ in range(int(random.integers(1, 5)))])
            snapshot = intarsia.append(repo, "t", data, codecs=codecs[random.integers(4)])
            if len(model) % 2 and not covered[-1].all():  # a partial chunk that no region had
                model[-1] = np.where(covered[-1], model[-1], -1)
            model = np.concatenate([model, data])
        elif kind == "write":
            where = np.argwhere(covered)
            row, column = where[random.integers(len(where))]
            model[row, column] = next(counter)
            snapshot = intarsia.write(repo, "t", (int(row), int(column)), model[row, column])
        elif kind == "recode":
            snapshot = intarsia.recode(repo, "t", [(0, 4), (0, 3)], codecs=codecs[random.integers(4)])
        elif kind == "drop":
            model[2:4, 3:6] = -1
            snapshot = intarsia.retry(repo, lambda tx: _drop(tx.open("t")))
        elif kind == "resize":
            rows = len(model) + int(random.integers(-1, 3))
            grown = np.full((rows, 6), -1, "int64")
            kept = min(rows, len(model))
            grown[:kept] = model[:kept]
            model = grown
            snapshot = intarsia.retry(repo, lambda tx, rows=rows: tx.open("t").resize((rows, 6)))
        else:
            snapshot = intarsia.retry(repo, lambda tx: tx.open("t").consolidate())
        states.append((snapshot, model.copy()))
        np.testing.assert_array_equal(intarsia.open(repo, "t")[...], model, f"step {step}: {kind}")
    assert len(states) == 21
    for snapshot, expected in states:
        np.testing.assert_array_equal(intarsia.open(repo, "t", snapshot_id=snapshot)[...], expected)
    for (before, _), (after, _) in pairwise(states):
        if before != after:
            assert intarsia.diff(repo, "t", before, after)
    for snapshot, expected in states[::5]:
        intarsia.restore(repo, "t", snapshot)
        np.testing.assert_array_equal(intarsia.open(repo, "t")[...], expected)
        assert intarsia.verify(intarsia.open(repo, "t")) == ()
    assert intarsia.verify(repo) == ()


def _covered(array):
    covered = np.zeros(array.shape, dtype=bool)
    for region in array.regions:
        covered[tuple(slice(a, b) for a, b in region.bounds)] = True
    return covered


def _drop(array):
    if _covered(array)[2:4, 3:6].any():
        array.drop_region([(2, 4), (3, 6)])


@pytest.fixture
def repo():
    repo = memory()
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(0,), chunks=(2,), dtype="int32", attributes={"units": "K"})
        array.append(np.arange(4), codecs=["gzip"])
    return repo


def latest(repo, path="t"):
    entry = intarsia.history(repo, path)[0]
    (change,) = entry.changes
    return change


def test_an_append_is_an_added_region_and_its_bytes(repo):
    intarsia.append(repo, "t", np.arange(1000, 3000), codecs=[])
    change = latest(repo)
    assert (change.shape_before, change.shape_after) == ((4,), (2004,))
    assert change.bounds("added") == (((4, 2004),),)
    assert change.bytes_written == 8000
    assert [region.kind for region in change.regions] == ["added"]
    assert change.attributes == ()


def test_growth_is_an_added_box(repo):
    intarsia.append(repo, "t", [4, 5])
    assert latest(repo).bounds("added") == (((4, 6),),)
    assert not latest(repo).bounds("written")


def test_growth_of_a_partial_chunk_writes_that_chunk_too(repo):
    intarsia.append(repo, "t", [4])
    intarsia.append(repo, "t", [5, 6])
    change = latest(repo)
    assert (change.bounds("added"), change.bounds("written")) == ((((6, 7),),), (((4, 5),),))


def test_a_recode_says_from_what_to_what(repo):
    intarsia.recode(repo, "t", [(0, 2)], codecs=["zstd"])
    change = latest(repo)
    assert change.bounds("recoded") == (((0, 2),),)
    assert [str(region) for region in change.regions] == ["recoded [0:2] (gzip-5 to zstd-0)"]
    assert not change.bounds("added")


def test_a_recode_to_the_same_encoding_is_called_joined(repo):
    intarsia.append(repo, "t", [4, 5], codecs=["gzip"], merge=False)
    intarsia.retry(repo, lambda tx: tx.open("t").consolidate())
    assert [str(region) for region in latest(repo).regions] == ["joined [4:6] (gzip-5)"]


def test_a_drop_is_a_drop(repo):
    intarsia.retry(repo, lambda tx: tx.open("t").drop_region([(2, 4)]))
    change = latest(repo)
    assert change.bounds("dropped") == (((2, 4),),)
    assert [str(region) for region in change.regions] == ["dropped [2:4] (gzip-5)"]


def test_a_write_names_the_chunks_it_touched(repo):
    intarsia.write(repo, "t", 3, 9)
    change = latest(repo)
    assert change.bounds("written") == (((2, 4),),)
    assert change.bytes_written > 0
    assert [region.kind for region in change.regions] == ["written"]


def test_attributes_are_named(repo):
    intarsia.retry(repo, lambda tx: tx.open("t").attrs.update(units="degC", title="x"))
    assert latest(repo).attributes == ("title", "units")


def test_creation_and_removal_are_told(repo):
    def remove(tx):
        del zarr.open_group(tx.store)["t"]

    intarsia.retry(repo, remove, message="remove")
    removed, created = intarsia.history(repo, "t")
    assert removed.changes[0].deleted
    assert removed.changes[0].bounds("dropped") == (((0, 4),),)
    assert created.changes[0].created
    assert created.changes[0].bounds("added") == (((0, 4),),)
    ends = removed.snapshot_id, created.snapshot_id
    assert intarsia.diff(repo, "t", *reversed(ends)).lines()[::2] == ("deleted", "dropped [0:4] (gzip-5)")
    assert str(intarsia.diff(repo, "t", ends[0], ends[0])) == "t: no difference"


def test_only_commits_that_changed_the_array_are_listed(repo):
    with intarsia.transaction(repo, message="another") as tx:
        tx.create("u", shape=(0,), chunks=(2,), dtype="u1").append([1], codecs=[])
    intarsia.append(repo, "t", [4, 5], message="ours")
    assert [entry.message for entry in intarsia.history(repo, "t")] == ["ours", "create"]
    assert [entry.message for entry in intarsia.history(repo)] == ["ours", "another", "create"]
    assert [entry.message for entry in intarsia.history(repo, "t", limit=1)] == ["ours"]
    assert intarsia.history(repo, "nowhere") == ()


def test_a_commit_of_several_arrays_tells_of_each(repo):
    with intarsia.transaction(repo, message="both") as tx:
        tx.open("t")[0] = 7
        tx.create("deep/er/u", shape=(0,), chunks=(2,), dtype="u1").append([1], codecs=[])
    changes = intarsia.history(repo)[0].changes
    assert [change.path for change in changes] == ["deep/er/u", "t"]


def test_history_of_a_branch_or_a_tag_or_a_snapshot(repo):
    first = repo.lookup_branch("main")
    repo.create_tag("v1", first)
    repo.create_branch("draft", first)
    intarsia.append(repo, "t", [4, 5], branch="draft", message="draft")
    assert [e.message for e in intarsia.history(repo, "t", branch="draft")] == ["draft", "create"]
    assert [e.message for e in intarsia.history(repo, "t", tag="v1")] == ["create"]
    assert [e.message for e in intarsia.history(repo, "t", snapshot_id=first)] == ["create"]


def test_diff_goes_over_many_commits_in_either_direction(repo):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 0, 9)
    intarsia.append(repo, "t", [4, 5], codecs=["zstd"])
    intarsia.recode(repo, "t", [(2, 4)], codecs=["crc32c"])
    there = intarsia.diff(repo, "t", first)
    assert (there.bounds("added"), there.bounds("recoded")) == ((((4, 6),),), (((2, 4),),))
    back = intarsia.diff(repo, "t", "main", first)
    assert (back.bounds("dropped"), back.bounds("recoded")) == ((((4, 6),),), (((2, 4),),))
    assert not intarsia.diff(repo, "t", first, first)


def test_diff_sees_writes_in_regions_that_stayed(repo):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 0, 9)
    intarsia.write(repo, "t", 0, 8)
    change = intarsia.diff(repo, "t", first)
    assert change.bounds("written") == (((0, 2),),)
    assert not intarsia.diff(repo, "t", first, first).bounds("written")


def test_versions_go_by_id_tag_branch_or_time(repo):
    first = repo.lookup_branch("main")
    repo.create_tag("v1", first)
    intarsia.append(repo, "t", [4, 5])
    now = datetime.datetime.now(datetime.UTC)
    for version in ("v1", first):
        assert intarsia.diff(repo, "t", version, "main").bounds("added") == (((4, 6),),)
    assert not intarsia.diff(repo, "t", now)
    assert not intarsia.diff(repo, "t", now.isoformat(), "main")
    with pytest.raises(intarsia.errors.VersionNotFoundError, match=r"no version 'v2'.*\n.*tags: v1"):
        intarsia.diff(repo, "t", "v2")


def test_history_reaches_over_versions_that_were_forgotten(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0,), chunks=(2,), dtype="int32").append([0, 1], codecs=["gzip"])
    intarsia.append(repo, "t", [2, 3])
    middle = datetime.datetime.now(datetime.UTC)
    intarsia.append(repo, "t", [4, 5], message="last")
    intarsia.vacuum(repo, forget_before=middle, force=True)
    entries = intarsia.history(repo, "t")
    assert entries[0].message == "last"
    assert intarsia.open(repo, "t")[...].tolist() == [0, 1, 2, 3, 4, 5]


def test_an_array_without_dimensions_has_a_history_too():
    repo = memory()
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("z", shape=(), chunks=(), dtype="int64").add_region([], codecs=["gzip"], data=1)
    first = tx.snapshot_id
    intarsia.write(repo, "z", ..., 2)
    assert latest(repo, "z").bounds("written") == ((),)
    intarsia.recode(repo, "z", codecs=["zstd"])
    assert [str(region) for region in latest(repo, "z").regions] == ["recoded [] (gzip-5 to zstd-0)"]
    intarsia.restore(repo, "z", first)
    assert intarsia.open(repo, "z")[()] == 1
    with intarsia.transaction(repo) as tx:
        (share,) = tx.open("z").fork_for(1)
        share[...] = 5
        tx.merge(share)
    assert intarsia.open(repo, "z")[()] == 5


def test_a_tag_that_looks_like_a_snapshots_id_is_a_tag():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
    tag, branch = "20260101000000000000", "ABCDEFGHJKMNPQRSTVWX"
    repo.create_tag(tag, tx.snapshot_id)
    repo.create_branch(branch, tx.snapshot_id)
    intarsia.append(repo, "t", [3, 4])
    assert intarsia.diff(repo, "t", tag).bounds("added") == (((2, 4),),)
    assert intarsia.diff(repo, "t", branch).bounds("added") == (((2, 4),),)
    intarsia.restore(repo, "t", tag)
    assert intarsia.open(repo, "t")[...].tolist() == [1, 2]
