"""Forgetting and collecting: never what a writer is about to commit."""

import asyncio
import datetime
import os
import time

import icechunk
import numpy as np
import pytest

import intarsia
from intarsia.versions import verify_vacuum
from intarsia.versions.commit import Backoff
from intarsia.versions.verify_vacuum import MINIMUM_AGE
from tests.versions.places import create, memory

NOW = datetime.timedelta(0)


def rows(number):
    return np.full((1, 400), number, dtype="int32")


@pytest.fixture
def repo():
    repo = memory()
    create(repo, shape=(0, 400), chunks=(1, 400))
    for number in (1, 2, 3):
        intarsia.append(repo, "a", rows(number), codecs=[])
    return repo


def test_a_young_cut_off_is_refused_and_says_why(repo):
    now = datetime.datetime.now(datetime.UTC)
    for young in (NOW, datetime.timedelta(hours=23), now, now - MINIMUM_AGE / 2, now.isoformat()):
        with pytest.raises(intarsia.errors.CutOffError, match=r"less than 24 hours ago.*\n.*force=True"):
            intarsia.vacuum(repo, forget_before=young)
    assert len(list(repo.ancestry(branch="main"))) == 5


def test_what_the_refusal_prevents_is_real(repo):
    """A forced collection while somebody writes takes away what he has uploaded."""
    session = repo.writable_session("main")
    intarsia.open(session.store, "a", mode="r+").append(rows(4))
    intarsia.vacuum(repo, forget_before=NOW, force=True)
    session.commit("too late")
    with pytest.raises(intarsia.errors.ReadError):
        intarsia.open(repo, "a")[...]


def test_old_versions_go_and_the_current_one_stays(repo):
    first = list(repo.ancestry(branch="main"))[-2].id
    intarsia.recode(repo, "a", codecs=["zstd"])
    collected = intarsia.vacuum(repo, forget_before=NOW, force=True)
    assert first in collected.expired
    assert collected.chunks == 3  # those of the encoding before
    assert collected.nbytes > 3 * 1600
    assert intarsia.open(repo, "a")[:, 0].tolist() == [1, 2, 3]
    with pytest.raises(intarsia.errors.VersionNotFoundError):
        intarsia.open(repo, "a", snapshot_id=first)
    assert intarsia.verify(repo) == ()
    assert intarsia.vacuum(repo, forget_before=NOW, force=True).is_empty


def test_tags_and_branches_stay(repo):
    repo.create_tag("v1", repo.lookup_branch("main"))
    intarsia.recode(repo, "a", codecs=["zstd"])
    intarsia.vacuum(repo, forget_before=NOW, force=True)
    assert intarsia.open(repo, "a", tag="v1")[:, 0].tolist() == [1, 2, 3]


def test_an_old_cut_off_needs_no_force(repo):
    assert intarsia.vacuum(repo, forget_before=datetime.timedelta(days=2)).is_empty
    assert intarsia.vacuum(repo, forget_before="2020-01-01").is_empty


def test_remains_of_a_writer_that_never_committed_are_found_and_removed(repo):
    session = repo.writable_session("main")
    intarsia.open(session.store, "a", mode="r+").append(rows(4))
    del session
    assert intarsia.verify(repo) == ()  # they do no harm
    assert verify_vacuum.unreferenced_objects(repo).chunks == 1
    assert intarsia.vacuum(repo, forget_before=NOW, force=True).chunks == 1
    assert verify_vacuum.unreferenced_objects(repo).is_empty
    assert intarsia.open(repo, "a")[:, 0].tolist() == [1, 2, 3]


COLLECT = """
    import datetime, sys, intarsia
    repo = intarsia.open_repository(sys.argv[1])
    print(len(intarsia.vacuum(repo, forget_before=datetime.timedelta(days=1)).expired), "expired")
    when = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    try:
        intarsia.vacuum(repo, forget_before=when)
    except intarsia.errors.CutOffError as error:
        print(error)
    print(len(intarsia.vacuum(repo, forget_before=when, force=True).expired), "expired")
    print(len(intarsia.vacuum(repo, forget_before=when).expired), "expired, as nothing is left")
"""


def test_an_age_counts_from_the_newest_commit_whatever_the_clock_says(local, host, tmp_path):
    """For the collector it makes no difference whether his clock is ahead or nobody has committed lately."""
    said = host.run(2 * 86400, COLLECT, tmp_path / "r").splitlines()
    assert said[0] == "0 expired"
    assert "is after the newest commit" in said[1]
    assert said[-2:] == ["3 expired", "0 expired, as nothing is left"]


@pytest.fixture
def local(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo, shape=(0, 400), chunks=(1, 400))
    for number in (1, 2, 3):
        intarsia.append(repo, "a", rows(number), codecs=[])
    return repo


def test_others_commit_while_files_are_removed(local, tmp_path, monkeypatch):
    """The collection does not end before somebody else, who needs the lock, has committed."""
    plain = icechunk.Repository.garbage_collect_async

    async def slow(self, *arguments, **options):
        summary = await plain(self, *arguments, **options)
        await asyncio.to_thread(append_once, tmp_path / "r")
        return summary

    monkeypatch.setattr(icechunk.Repository, "garbage_collect_async", slow)
    intarsia.vacuum(local, forget_before=NOW, force=True)
    assert intarsia.open(local, "a")[:, 0].tolist() == [1, 2, 3, 4]


def append_once(location):
    repo = intarsia.open_repository(location)
    with intarsia.versions.commit_lock(repo, timeout=20):
        intarsia.append(repo, "a", rows(4), codecs=[])


def test_nobody_commits_while_the_list_of_snapshots_is_written(local, monkeypatch):
    plain, free = icechunk.Repository.garbage_collect_async, []

    def is_free():
        try:
            with intarsia.versions.commit_lock(local, timeout=0.05):
                return True
        except intarsia.errors.LockTimeoutError:
            return False

    async def watched(self, *arguments, **options):
        free.append(await asyncio.to_thread(is_free))
        return await plain(self, *arguments, **options)

    monkeypatch.setattr(icechunk.Repository, "garbage_collect_async", watched)
    intarsia.vacuum(local, forget_before=NOW, force=True)
    assert free == [False]
    assert is_free()


def copies(tmp_path):
    """The copies of the list of snapshots, and what they take."""
    files = list((tmp_path / "r" / "overwritten").iterdir())
    return files, sum(file.stat().st_size for file in files)


def test_old_copies_of_the_list_of_snapshots_go(local, tmp_path, monkeypatch):
    files, size = copies(tmp_path)
    assert len(files) >= 4  # one for each commit
    two_days_ago = time.time() - 2 * 86400
    for file in files:
        os.utime(file, (two_days_ago, two_days_ago))
    assert verify_vacuum.unreferenced_objects(local).is_empty  # too little to speak of
    monkeypatch.setattr(verify_vacuum, "NOTED_COPIES", size - 1)
    assert verify_vacuum.unreferenced_objects(local).nbytes == size
    intarsia.append(local, "a", rows(4), codecs=[])
    collected = intarsia.vacuum(local, forget_before=datetime.timedelta(days=30))
    assert (collected.other, collected.nbytes) == (len(files), size)
    left, _ = copies(tmp_path)
    assert left
    assert not set(left) & set(files)  # those of today stay
    assert verify_vacuum.unreferenced_objects(local).is_empty
    assert intarsia.open(local, "a")[:, 0].tolist() == [1, 2, 3, 4]
    assert len(list(local.ancestry(branch="main"))) == 6
    assert list(local.ops_log())


def test_what_every_commit_writes_anew_stays_small(tmp_path):
    """The list of snapshots holds a short mark for each of them, and a log of bounded length."""
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    assert repo.config.num_updates_per_repo_info_file == 20
    assert intarsia.open_repository(tmp_path / "r").config.num_updates_per_repo_info_file == 20
    own = icechunk.RepositoryConfig(num_updates_per_repo_info_file=7)
    other = intarsia.open_repository(tmp_path / "other", create=True, config=own)
    assert other.config.num_updates_per_repo_info_file == 7


@pytest.mark.parametrize("change", ["expire_snapshots", "garbage_collect"])
def test_a_list_of_snapshots_that_others_change_meanwhile_is_changed_in_the_end(repo, change, monkeypatch):
    """On object stores nothing keeps others from committing; Icechunk itself tries once."""
    real, refused = getattr(icechunk.Repository, change), []

    def sometimes(self, *arguments, **options):
        if len(refused) < 2:
            refused.append(change)
            raise icechunk.ConflictError("theirs")
        return real(self, *arguments, **options)

    monkeypatch.setattr(icechunk.Repository, change, sometimes)
    assert intarsia.vacuum(repo, forget_before=NOW, force=True).snapshots
    assert len(refused) == 2

    def always(self, *arguments, **options):
        raise icechunk.ConflictError("theirs")

    monkeypatch.setattr(icechunk.Repository, change, always)
    monkeypatch.setattr(verify_vacuum, "Backoff", lambda: Backoff(attempts=3, first_wait=0.0))
    with pytest.raises(intarsia.errors.RepositoryError, match="others changed the repository"):
        intarsia.vacuum(repo, forget_before=NOW, force=True)
