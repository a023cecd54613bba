"""A commit whose acknowledgement is lost is found, and made once."""

import datetime

import icechunk
import numpy as np
import pytest

import intarsia
from intarsia.versions.commit import METADATA_KEY, Backoff, Commit, commit_with_retries
from tests.versions.places import create, memory
from tests.versions.proxy import in_front_of

# Icechunk has a remedy of its own for lost answers. Without it, and without retries, ours is what is tested.
BARE = icechunk.RepositoryConfig(
    storage=icechunk.StorageSettings(
        retries=icechunk.StorageRetriesSettings(max_tries=1), unsafe_use_metadata=False
    )
)


def rows(number):
    return np.full((1, 4), number, dtype="int32")


@pytest.mark.parametrize("config", [None, BARE], ids=["icechunk's own remedy", "ours"])
def test_appends_whose_acknowledgement_is_lost_are_there_once(moto_server, config):
    location = moto_server.new_location()
    direct = intarsia.open_repository(location, create=True, **moto_server.options)
    create(direct)
    intarsia.append(direct, "a", rows(0), codecs=["gzip"])
    with in_front_of(moto_server) as proxy:
        options = {**moto_server.options, "endpoint_url": proxy.endpoint}
        repo = intarsia.open_repository(location, config=config, **options)
        for number, codecs in ((1, ["gzip"]), (2, ["zstd"])):  # one grows, one is a new member
            proxy.lose(1, method="PUT", ending="/repo")
            before = proxy.lost
            snapshot = intarsia.append(repo, "a", rows(number), codecs=codecs)
            assert proxy.lost == before + 1
            assert snapshot == direct.lookup_branch("main")
    assert intarsia.open(direct, "a")[:, 0].tolist() == [0, 1, 2]
    assert len(list(direct.ancestry(branch="main"))) == 5


@pytest.mark.parametrize("config", [None, BARE], ids=["icechunk's own remedy", "ours"])
def test_a_transaction_whose_acknowledgement_is_lost_is_committed(moto_server, config):
    location = moto_server.new_location()
    direct = intarsia.open_repository(location, create=True, **moto_server.options)
    create(direct)
    with in_front_of(moto_server) as proxy:
        options = {**moto_server.options, "endpoint_url": proxy.endpoint}
        repo = intarsia.open_repository(location, config=config, **options)
        with intarsia.transaction(repo, message="once") as tx:
            tx.open("a").append(rows(7), codecs=["gzip"])
            proxy.lose(1, method="PUT", ending="/repo")
        assert proxy.lost == 1
    assert tx.snapshot_id == direct.lookup_branch("main")
    assert [s.message for s in direct.ancestry(branch="main")].count("once") == 1


def test_a_commit_finds_itself_behind_others():
    repo = memory()
    base = create(repo)
    session = repo.writable_session("main")
    intarsia.open(session.store, "a", mode="r+").append(rows(1), codecs=["gzip"])
    commit = Commit(repo, "main", "ours")
    snapshot = commit.make(session)
    for i in range(3):
        intarsia.append(repo, "a", rows(i))
    assert commit.find(base) == snapshot
    assert Commit(repo, "main", "ours").find(base) is None


def test_the_mark_is_in_the_metadata_beside_the_users_own():
    repo = memory()
    create(repo)
    intarsia.append(repo, "a", rows(1), codecs=["gzip"], metadata={"who": "me"})
    metadata = next(iter(repo.ancestry(branch="main"))).metadata
    assert metadata["who"] == "me"
    assert set(metadata) == {"who", METADATA_KEY}


def test_a_conflict_that_cannot_be_looked_into_is_no_reason_to_try_again(monkeypatch):
    """Icechunk reports a conflict, which may be our own commit; the history cannot be read."""
    repo = memory()
    create(repo)

    def conflict(*_, **__):
        raise icechunk.ConflictError("A", "B")

    def unreachable(*_, **__):
        raise icechunk.StorageError("no route to host")

    monkeypatch.setattr(icechunk.Session, "commit", conflict)
    monkeypatch.setattr(icechunk.Repository, "ancestry", unreachable)
    with pytest.raises(intarsia.errors.RepositoryError, match="no route to host"):
        intarsia.append(repo, "a", rows(1), codecs=["gzip"])


APPEND = """
    import sys, intarsia
    intarsia.append(intarsia.open_repository(sys.argv[1]), "a", [[9, 9, 9, 9]])
"""


@pytest.fixture
def shared(tmp_path):
    """A repository that several machines write to."""
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo)
    return repo


def test_who_is_a_little_behind_waits_for_his_clock(shared, host, tmp_path):
    host.run(3, APPEND, tmp_path / "r")
    intarsia.append(shared, "a", rows(1))
    assert intarsia.open(shared, "a")[:, 0].tolist() == [9, 1]


def test_who_is_far_behind_is_told_so_at_once(shared, host, tmp_path):
    host.run(300, APPEND, tmp_path / "r")
    for change in (
        lambda: intarsia.append(shared, "a", rows(1)),
        lambda: intarsia.append(shared, "a", rows(1), merge=False),
        lambda: intarsia.write(shared, "a", (0, 0), 1),
    ):
        with pytest.raises(intarsia.errors.RepositoryError, match="clock of this machine is behind"):
            change()
    with pytest.raises(intarsia.errors.RepositoryError, match="clock of this machine is behind"):
        intarsia.vacuum(shared, forget_before=datetime.timedelta(days=1))
    assert intarsia.open(shared, "a")[:, 0].tolist() == [9]


# The loop


class Appended:
    """Rows that were appended in a session; they are rebased by being appended in another one."""

    def __init__(self, repo, number, obstacles=()):
        self.repo, self.number, self.obstacles = repo, number, list(obstacles)
        self.rebase(begin=True)

    def rebase(self, *, begin=False):
        if not begin and self.obstacles:
            return [self.obstacles.pop()]
        self.session = self.repo.writable_session("main")
        intarsia.open(self.session.store, "a", mode="r+").append(rows(self.number), codecs=["gzip"])
        return []


@pytest.fixture
def prepare():
    """Prepares a change, counts how often, and lets others commit right after that, if asked to."""
    repo = memory()
    create(repo)

    class Preparing:
        calls = 0

        def __init__(self):
            self.repo, self.meanwhile, self.obstacles = repo, [], []

        def __call__(self):
            self.calls += 1
            made = Appended(repo, 7, self.obstacles)
            for others in self.meanwhile[:1]:
                self.meanwhile.pop(0)
                others()
            return made

        @property
        def column(self):
            return intarsia.open(repo, "a")[:, 0].tolist()

    return Preparing()


def test_a_change_that_nobody_disturbs_is_not_rebased(prepare):
    prepare.obstacles = ["never asked"]
    snapshot = commit_with_retries(Commit(prepare.repo, "main", "ours", backoff=Backoff(1)), prepare)
    assert snapshot == prepare.repo.lookup_branch("main")
    assert (prepare.calls, prepare.column) == (1, [7])


def test_a_change_is_rebased_on_what_others_committed_without_a_failed_commit(prepare):
    prepare.meanwhile = [lambda: intarsia.append(prepare.repo, "a", rows(1), codecs=["gzip"])]
    commit_with_retries(Commit(prepare.repo, "main", "ours", backoff=Backoff(1)), prepare)
    assert (prepare.calls, prepare.column) == (1, [1, 7])


def test_a_change_that_cannot_be_rebased_is_prepared_again(prepare):
    prepare.meanwhile = [lambda: intarsia.append(prepare.repo, "a", rows(1), codecs=["gzip"])]
    prepare.obstacles = ["/a: its colour"]
    commit_with_retries(Commit(prepare.repo, "main", "ours", backoff=Backoff(2, 0.0)), prepare)
    assert (prepare.calls, prepare.column) == (2, [1, 7])


def test_a_change_that_may_be_prepared_only_once_says_what_others_changed(prepare):
    prepare.meanwhile = [lambda: intarsia.append(prepare.repo, "a", rows(1), codecs=["gzip"])]
    prepare.obstacles = ["/a: its colour"]
    with pytest.raises(intarsia.errors.ConcurrentUpdateError) as caught:
        commit_with_retries(
            Commit(prepare.repo, "main", "ours", backoff=Backoff(2, 0.0)), prepare, again=False
        )
    assert caught.value.changed == ["/a: its colour"]
    assert (prepare.calls, prepare.column) == (1, [1])


def test_where_there_is_nothing_to_change_nothing_is_committed(prepare):
    tip = prepare.repo.lookup_branch("main")
    assert commit_with_retries(Commit(prepare.repo, "main", "ours", backoff=Backoff(1)), lambda: tip) == tip
    assert prepare.repo.lookup_branch("main") == tip
