"""Forgetting and collecting: never what a writer is about to commit."""

import datetime

import numpy as np
import pytest

import intarsia
from intarsia.versions.collect import MINIMUM_AGE
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
        with pytest.raises(intarsia.CutOffError, match=r"younger than 24 hours.*\n.*force=True"):
            intarsia.expire_and_collect(repo, young)
    assert len(list(repo.ancestry(branch="main"))) == 5


def test_what_the_refusal_prevents_is_real(repo):
    """A forced collection while somebody writes takes away what he has uploaded."""
    session = repo.writable_session("main")
    intarsia.open(session.store, "a", mode="r+").append(rows(4))
    intarsia.expire_and_collect(repo, NOW, force=True)
    session.commit("too late")
    with pytest.raises(intarsia.ReadError):
        intarsia.open(repo, "a")[...]


def test_old_versions_go_and_the_current_one_stays(repo):
    first = list(repo.ancestry(branch="main"))[-2].id
    intarsia.recode(repo, "a", codecs=["zstd"])
    collected = intarsia.expire_and_collect(repo, NOW, force=True)
    assert first in collected.expired
    assert collected.chunks == 3  # those of the encoding before
    assert collected.nbytes > 3 * 1600
    assert intarsia.open(repo, "a")[:, 0].tolist() == [1, 2, 3]
    with pytest.raises(intarsia.VersionNotFoundError):
        intarsia.open(repo, "a", snapshot_id=first)
    assert intarsia.verify(repo) == ()
    assert intarsia.expire_and_collect(repo, NOW, force=True).is_empty


def test_tags_and_branches_stay(repo):
    repo.create_tag("v1", repo.lookup_branch("main"))
    intarsia.recode(repo, "a", codecs=["zstd"])
    intarsia.expire_and_collect(repo, NOW, force=True)
    assert intarsia.open(repo, "a", tag="v1")[:, 0].tolist() == [1, 2, 3]


def test_an_old_cut_off_needs_no_force(repo):
    assert intarsia.expire_and_collect(repo, datetime.timedelta(days=2)).is_empty
    assert intarsia.expire_and_collect(repo, "2020-01-01").is_empty


def test_remains_of_a_writer_that_never_committed_are_found_and_removed(repo):
    session = repo.writable_session("main")
    intarsia.open(session.store, "a", mode="r+").append(rows(4))
    del session
    (problem,) = intarsia.verify(repo)
    assert problem.kind == "leftover"
    assert "1 chunks" in problem.what
    assert "expire_and_collect" in problem.advice
    assert intarsia.expire_and_collect(repo, NOW, force=True).chunks == 1
    assert intarsia.verify(repo) == ()
    assert intarsia.open(repo, "a")[:, 0].tolist() == [1, 2, 3]
