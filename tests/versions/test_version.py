"""Opening arrays in stores and at any version of repositories."""

import datetime

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.versions.repository import is_repository
from intarsia.versions.version import Version, resolve_store
from tests.versions.places import create, memory


@pytest.fixture
def repo():
    repo = memory()
    create(repo)
    repo.create_tag("empty", repo.lookup_branch("main"))
    intarsia.append(repo, "a", [[1, 1, 1, 1]], codecs=["gzip"])
    return repo


def lengths(repo, **version):
    return intarsia.open(repo, "a", **version).shape[0]


def test_branch_tag_snapshot_and_time(repo):
    first = repo.lookup_tag("empty")
    between = repo.lookup_snapshot(first).written_at
    repo.create_branch("draft", first)
    assert lengths(repo) == 1
    assert lengths(repo, branch="main") == 1
    assert lengths(repo, branch="draft") == 0
    assert lengths(repo, tag="empty") == 0
    assert lengths(repo, snapshot_id=first) == 0
    assert lengths(repo, as_of=between) == 0
    assert lengths(repo, as_of=between.isoformat()) == 0
    assert lengths(repo, as_of=between.astimezone(datetime.timezone(datetime.timedelta(hours=9)))) == 0
    assert lengths(repo, as_of=between.replace(tzinfo=None)) == 0  # UTC
    assert lengths(repo, branch="main", as_of=datetime.datetime.now(datetime.UTC)) == 1


def test_versions_that_are_not_there_are_named(repo):
    for version in ({"branch": "x"}, {"tag": "x"}, {"snapshot_id": "1" * 20}, {"as_of": "1999-01-01"}):
        with pytest.raises(intarsia.errors.VersionNotFoundError):
            lengths(repo, **version)


def test_one_version_at_a_time(repo):
    with pytest.raises(ValueError, match="one of branch, tag, or snapshot_id"):
        lengths(repo, branch="main", tag="empty")
    with pytest.raises(ValueError, match=r"as_of .* together with a branch"):
        lengths(repo, tag="empty", as_of="2024-01-01")


def test_readers_keep_their_version(repo):
    array = intarsia.open(repo, "a")
    intarsia.append(repo, "a", [[2, 2, 2, 2]])
    intarsia.recode(repo, "a", codecs=["zstd"])
    assert array[:, 0].tolist() == [1]
    array.refresh()
    assert array[:, 0].tolist() == [1]


def test_repositories_are_read_only_here(repo):
    with pytest.raises(intarsia.errors.ReadOnlyError, match=r"intarsia\.transaction"):
        intarsia.open(repo, "a", mode="r+")
    with pytest.raises(intarsia.errors.ReadOnlyError):
        intarsia.open(repo, "a").append([[1, 1, 1, 1]])


def test_no_such_array(repo):
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="nowhere"):
        intarsia.open(repo, "nowhere")


def test_stores_groups_and_sessions_open_as_before(repo, tmp_path):
    intarsia.create(str(tmp_path / "plain.zarr"), "a", shape=(2,), chunks=(1,), dtype="u1")
    for store in (str(tmp_path / "plain.zarr"), tmp_path / "plain.zarr"):
        assert intarsia.open(store, "a", mode="r+").shape == (2,)
    memory_store = zarr.storage.MemoryStore()
    intarsia.create(memory_store, "a", shape=(2,), chunks=(1,), dtype="u1")
    assert intarsia.open(memory_store, "a").shape == (2,)
    assert intarsia.open(zarr.open_group(memory_store), "a").shape == (2,)
    session = repo.readonly_session("main")
    assert intarsia.open(session, "a").shape == (1, 4)
    assert intarsia.open(session.store, "a").shape == (1, 4)
    with pytest.raises(ValueError, match=r"intarsia\.create"):
        intarsia.open(memory_store, "a", mode="w")


def test_versions_need_a_repository(tmp_path):
    intarsia.create(str(tmp_path / "plain.zarr"), "a", shape=(2,), chunks=(1,), dtype="u1")
    with pytest.raises(TypeError, match=r"only an Icechunk repository takes.*but this is .*plain\.zarr"):
        intarsia.open(str(tmp_path / "plain.zarr"), "a", tag="v1")
    with pytest.raises(TypeError, match="'MemoryStore'"):
        intarsia.open(zarr.storage.MemoryStore(), "a", tag="v1")


def test_a_repository_at_a_path_is_recognised(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo)
    intarsia.append(repo, "a", np.ones((2, 4), "int32"), codecs=["gzip"])
    assert intarsia.open(tmp_path / "r", "a").shape == (2, 4)
    assert intarsia.open(str(tmp_path / "r"), "a", as_of=datetime.datetime.now(datetime.UTC)).shape == (2, 4)


def test_what_is_nowhere_makes_no_directory(tmp_path):
    with pytest.raises(intarsia.errors.NotLogicalArrayError):
        intarsia.open(tmp_path / "nowhere", "a")
    assert list(tmp_path.iterdir()) == []


def test_a_source_is_resolved_whatever_it_is(repo, tmp_path):
    tip = repo.lookup_branch("main")
    opened = resolve_store(repo)
    assert (opened.repo, opened.snapshot_id) == (repo, tip)
    assert resolve_store(repo, Version(tag="empty")).snapshot_id == repo.lookup_tag("empty")
    with intarsia.transaction(repo) as tx:
        for source in (tx, tx.session, tx.store):
            assert resolve_store(source).repo is None
            assert intarsia.open(resolve_store(source).store, "a").shape == (1, 4)
    assert resolve_store(tmp_path).store == str(tmp_path)
    group = zarr.create_group({})
    assert resolve_store(group).store is group


def test_only_a_repository_has_versions(tmp_path):
    for source in ({}, tmp_path, zarr.create_group({})):
        with pytest.raises(TypeError, match="only an Icechunk repository takes"):
            resolve_store(source, Version(branch="main"))


def test_a_directory_is_told_from_a_repository_by_looking(tmp_path):
    (tmp_path / "git" / "refs").mkdir(parents=True)
    intarsia.open_repository(tmp_path / "r", create=True)
    assert [is_repository(tmp_path / name) for name in ("git", "r", "nothing")] == [False, True, False]
