"""The lock of a local repository."""

import datetime
import os
import threading
from pathlib import Path

import icechunk
import pytest

import intarsia
from intarsia.versions.locking import directory_of, lock_file
from tests.archives.files import netcdf
from tests.cli.program import succeed
from tests.versions.places import Place, create, memory
from tests.versions.processes import CONTEXT, Worker


def hold(location, held, release):
    with intarsia.versions.commit_lock(intarsia.open_repository(location)):
        held.set()
        release.wait()


@pytest.fixture
def holder(tmp_path):
    """A repository whose lock another process holds."""
    place = Place(str(tmp_path / "r"))
    create(place.open(create=True))
    held, release = CONTEXT.Event(), CONTEXT.Event()
    worker = Worker(hold, place.location, held, release)
    assert held.wait(60)
    yield place.open(), worker, release
    worker.kill()


def test_the_lock_file_is_in_the_repository_and_icechunk_does_not_see_it(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo)
    assert lock_file(tmp_path / "r").is_file()
    assert lock_file(tmp_path / "r").parent == tmp_path / "r"
    assert os.listdir(tmp_path) == ["r"]
    assert intarsia.verify(repo) == ()
    intarsia.vacuum(repo, forget_before=datetime.timedelta(0), force=True)
    assert lock_file(tmp_path / "r").is_file()


def test_one_lock_for_every_way_to_a_repository(tmp_path, monkeypatch):
    intarsia.open_repository(tmp_path / "r", create=True)
    (tmp_path / "link").symlink_to(tmp_path / "r")
    monkeypatch.chdir(tmp_path)
    for way in (Path("r"), tmp_path / "link", tmp_path / "x" / ".." / "r"):
        assert lock_file(way) == lock_file(tmp_path / "r")


def test_a_directory_with_nothing_but_a_lock_is_free_for_a_repository(tmp_path):
    """As a process leaves it that is killed before its repository is there."""
    (tmp_path / "r").mkdir()
    lock_file(tmp_path / "r").touch()
    create(intarsia.open_repository(tmp_path / "r", create=True))


def test_the_lock_does_not_follow_the_current_directory(tmp_path, monkeypatch):
    intarsia.open_repository(tmp_path / "r", create=True)
    monkeypatch.chdir(tmp_path)
    repo = intarsia.open_repository(icechunk.Repository.open(icechunk.local_filesystem_storage("r")))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert directory_of(repo) == tmp_path / "r"
    create(repo)
    assert os.listdir() == []


def test_where_the_lock_is_must_be_known(tmp_path, monkeypatch):
    """Whether the directory of that name, from where we are now, is another repository or nothing at all."""
    create(intarsia.open_repository(tmp_path / "r", create=True))
    monkeypatch.chdir(tmp_path)
    storage = icechunk.local_filesystem_storage("r")
    repo = icechunk.Repository.open(storage)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(intarsia.errors.RepositoryError, match="relative path 'r'"):
            create(repo, "b")
        with intarsia.versions.commit_lock(intarsia.open_repository("r", create=True)):
            pass
    monkeypatch.chdir(tmp_path)
    create(repo, "b")


def test_who_waits_too_long_is_told_which_file(holder):
    repo, _, _ = holder
    with (
        pytest.raises(intarsia.errors.LockTimeoutError, match=r"\.lock"),
        intarsia.versions.commit_lock(repo, timeout=0.05),
    ):
        pass


def test_reading_needs_no_lock(holder):
    repo, _, _ = holder
    assert intarsia.open(repo, "a").shape == (0, 4)


def test_commits_wait_for_the_lock(holder):
    repo, worker, release = holder
    done = threading.Event()

    def commit():
        create(repo, "b")
        done.set()

    thread = threading.Thread(target=commit)
    thread.start()
    assert not done.wait(0.2)
    release.set()
    worker.result()
    thread.join()
    assert done.is_set()
    assert intarsia.open(repo, "b").shape == (0, 4)


def test_the_lock_of_a_killed_process_is_free(holder):
    repo, worker, _ = holder
    worker.kill()
    create(repo, "b")


def test_a_repository_opened_by_icechunk_itself_is_locked_too(holder):
    repo, _, _ = holder
    own = icechunk.Repository.open(repo.storage)
    with pytest.raises(intarsia.errors.LockTimeoutError), intarsia.versions.commit_lock(own, timeout=0.05):
        pass


def test_a_thread_may_take_it_twice_and_another_one_waits(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    refused = []

    def other():
        try:
            with intarsia.versions.commit_lock(repo, timeout=0.05):
                pass
        except intarsia.errors.LockTimeoutError:
            refused.append(True)

    with intarsia.versions.commit_lock(repo), intarsia.versions.commit_lock(repo):
        create(repo)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert refused == [True]
    with intarsia.versions.commit_lock(repo, timeout=0.05):
        pass


def test_object_stores_and_memory_have_no_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with intarsia.versions.commit_lock(memory()):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("directory", "lock"), [(0o755, 0o644), (0o775, 0o664), (0o777, 0o666)])
def test_whoever_may_write_to_the_repository_may_lock_it(tmp_path, directory, lock):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    lock_file(tmp_path / "r").unlink()
    (tmp_path / "r").chmod(directory)
    create(repo)
    assert lock_file(tmp_path / "r").stat().st_mode & 0o777 == lock


def is_free(repo):
    """Whether another thread could commit now."""
    found = []

    def look():
        try:
            with intarsia.versions.commit_lock(repo, timeout=0.05):
                found.append(True)
        except intarsia.errors.LockTimeoutError:
            found.append(False)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found == [True]


def ingested(place, folder):
    netcdf(folder / "0.nc", 0)
    intarsia.ingest(folder / "0.nc", place, concat_dim="time")


CHANGES = {
    "save_config": ingested,
    "create_tag": lambda place, _: succeed("tag", place, "v1"),
    "delete_tag": lambda place, _: succeed("tag", place, "old", "--delete"),
    "create_branch": lambda place, _: succeed("branch", place, "trial"),
    "delete_branch": lambda place, _: succeed("branch", place, "side", "--delete"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_the_list_of_snapshots_holds_it(change, tmp_path, monkeypatch):
    """Configurations, tags and branches stand in the file that a commit writes: at the same time, one of
    them undoes the other, and an acknowledged append was gone."""
    place = tmp_path / "repository"
    repo = intarsia.open_repository(place, create=True)
    repo.create_tag("old", repo.lookup_branch("main"))
    repo.create_branch("side", repo.lookup_branch("main"))
    plain, free = getattr(icechunk.Repository, change), []

    def watched(self, *arguments, **options):
        free.append(is_free(repo))
        return plain(self, *arguments, **options)

    monkeypatch.setattr(icechunk.Repository, change, watched)
    CHANGES[change](place, tmp_path)
    assert free
    assert not any(free)
    assert is_free(repo)
