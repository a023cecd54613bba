"""Restoring one array: a new commit, and no chunk copied that is still there."""

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.logical.chunk_copies import chunk_refs
from tests.versions.places import memory


@pytest.fixture
def repo():
    """Chunks of 800 bytes, so that they are files of their own and not part of Icechunk's manifests."""
    repo = memory()
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(0,), chunks=(100,), dtype="int64", attributes={"units": "K"})
        array.append(np.arange(400), codecs=[])
        array.append(np.arange(400, 600), codecs=["crc32c"])
        tx.create("other", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
    return repo


def references(repo, **version):
    array = intarsia.open(repo, "t", **version)
    return {
        place[1] for name in array.manifest.members for place in chunk_refs(array.store, f"t/{name}").values()
    }


def restored(repo, snapshot):
    """Restore, check values, attributes and integrity; returns how many chunks are new."""
    before = references(repo)
    old = intarsia.open(repo, "t", snapshot_id=snapshot)
    intarsia.restore(repo, "t", snapshot)
    array = intarsia.open(repo, "t")
    np.testing.assert_array_equal(array[...], old[...])
    assert dict(array.attrs) == dict(old.attrs)
    regions = [[(r.bounds, r.codec_names) for r in one.regions] for one in (array, old)]
    assert regions[0] == regions[1]
    assert array.generation > old.generation
    assert intarsia.verify(array) == ()
    assert intarsia.verify(repo) == ()
    return len(references(repo) - before - references(repo, snapshot_id=snapshot))


def test_an_overwritten_chunk_is_copied_and_no_other(repo):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 150, -1)
    assert restored(repo, first) == 1


def test_undoing_an_append_copies_nothing(repo):
    first = repo.lookup_branch("main")
    intarsia.append(repo, "t", np.arange(600, 900))
    intarsia.append(repo, "t", np.arange(300), codecs=["gzip"])
    assert restored(repo, first) == 0


def test_a_member_that_is_gone_comes_back_under_a_new_name(repo):
    first = repo.lookup_branch("main")
    names = intarsia.open(repo, "t").manifest.members
    intarsia.recode(repo, "t", [(400, 600)], codecs=["zstd"])
    assert restored(repo, first) == 2
    now = intarsia.open(repo, "t").manifest.members
    assert now[0] == names[0]
    assert now[1] != names[1]


def test_a_shorter_past_of_a_grown_member_comes_back(repo):
    first = repo.lookup_branch("main")
    intarsia.append(repo, "t", np.arange(50))
    second = repo.lookup_branch("main")
    intarsia.append(repo, "t", np.arange(500))
    assert restored(repo, second) == 1  # the chunk that the last append filled
    assert restored(repo, first) == 0
    assert restored(repo, second) <= 1


def test_attributes_and_fill_come_back(repo):
    first = repo.lookup_branch("main")
    intarsia.retry(repo, lambda tx: tx.open("t").attrs.update(units="degC", extra=1))
    intarsia.retry(repo, lambda tx: tx.open("t").drop_region([(0, 100)]))
    restored(repo, first)


def test_an_array_that_was_removed_comes_back(repo):
    first = repo.lookup_branch("main")

    def delete(tx):
        del zarr.open_group(tx.store)["t"]

    intarsia.retry(repo, delete, message="remove")
    with pytest.raises(intarsia.errors.NotLogicalArrayError):
        intarsia.open(repo, "t")
    intarsia.restore(repo, "t", first)
    array = intarsia.open(repo, "t")
    assert array[...].tolist() == list(range(600))
    assert dict(array.attrs) == {"units": "K"}
    assert intarsia.verify(array) == ()


def test_other_arrays_stay_as_they_are_and_history_stays(repo):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 0, 9)
    intarsia.write(repo, "other", 0, 9)
    count = len(list(repo.ancestry(branch="main")))
    snapshot = intarsia.restore(repo, "t", first, message="back", metadata={"why": "mistake"})
    assert intarsia.open(repo, "other")[0] == 9
    assert len(list(repo.ancestry(branch="main"))) == count + 1
    entry = intarsia.history(repo, "t")[0]
    assert (entry.snapshot_id, entry.message, entry.metadata) == (snapshot, "back", {"why": "mistake"})


def test_restoring_what_is_there_is_no_commit(repo):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "other", 0, 9)
    tip = repo.lookup_branch("main")
    assert intarsia.restore(repo, "t", first) == tip


def test_a_version_that_has_no_such_array_is_an_error(repo):
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="was no logical array at 'nowhere'"):
        intarsia.restore(repo, "nowhere", "main")


def test_a_time_before_the_first_version_is_said_in_plain_words(repo):
    words = r"main does not have an? snapshots? before or at 2020-01-01 .*\n.*history lists the versions"
    with pytest.raises(intarsia.errors.VersionNotFoundError, match=words):
        intarsia.restore(repo, "t", "2020-01-01")


def test_restoring_meets_other_writers(repo, meddle):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 0, 9)
    meddle(lambda: intarsia.append(repo, "t", [1, 2]))
    intarsia.restore(repo, "t", first)
    assert intarsia.open(repo, "t")[...].tolist() == list(range(600))


def test_what_others_write_at_the_same_moment_is_not_part_of_the_version_asked_for(repo, meddle):
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 0, 9, message="a mistake")
    meddle(lambda: intarsia.write(repo, "t", 150, -1, message="theirs, in a chunk that is as it was"))
    snapshot = intarsia.restore(repo, "t", first)
    assert intarsia.open(repo, "t", snapshot_id=snapshot)[...].tolist() == list(range(600))
    assert "theirs, in a chunk that is as it was" in [entry.message for entry in intarsia.history(repo, "t")]


def damage(repo):
    """A manifest that no reader takes, committed as another program might."""
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, path="t", mode="r+")
    group.attrs["intarsia"] = {**group.attrs["intarsia"], "generation": 41, "shape": [-1]}
    session.commit("damaged")


def test_a_damaged_manifest_can_be_left(repo):
    first = repo.lookup_branch("main")
    damage(repo)
    with pytest.raises(intarsia.errors.ManifestError):
        intarsia.open(repo, "t")
    intarsia.restore(repo, "t", first)
    array = intarsia.open(repo, "t")
    assert array[...].tolist() == list(range(600))
    assert array.generation == 42
    assert intarsia.verify(array) == ()
    intarsia.append(repo, "t", [1])
    messages = [entry.message for entry in intarsia.history(repo, "t")]
    assert messages == ["append to t", f"restore t to {first}", "damaged", "create"]


def test_a_manifest_of_a_later_intarsia_is_not_taken_for_damaged(repo):
    first = repo.lookup_branch("main")
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, path="t", mode="r+")
    group.attrs["intarsia"] = {**group.attrs["intarsia"], "version": 99}
    session.commit("from the future")
    with pytest.raises(intarsia.errors.ManifestVersionError):
        intarsia.restore(repo, "t", first)


def test_a_table_of_many_regions_comes_back(monkeypatch):
    from intarsia.logical import logical_array_handle

    monkeypatch.setattr(logical_array_handle, "INLINE_REGIONS", 3)
    repo = memory()
    with intarsia.transaction(repo) as tx:
        array = tx.create("t", shape=(0,), chunks=(1,), dtype="u1")
        for i in range(6):
            array.append([i], codecs=["gzip"], merge=False)
    first = repo.lookup_branch("main")
    intarsia.retry(repo, lambda tx: tx.open("t").consolidate())
    assert len(intarsia.open(repo, "t").regions) == 1
    intarsia.restore(repo, "t", first)
    array = intarsia.open(repo, "t")
    assert array[...].tolist() == list(range(6))
    assert len(array.regions) == 6
    assert intarsia.verify(array) == ()
