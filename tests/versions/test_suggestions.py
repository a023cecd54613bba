"""What messages about repositories suggest, in their own words, is done and helps."""

from datetime import timedelta

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.errors import IntarsiaError
from tests.suggestions import follow

NEW = {"shape": (4,), "chunks": (2,), "dtype": "int64"}


@pytest.fixture
def repo(tmp_path):
    repository = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repository) as tx:
        tx.create("a", **NEW).add_region(((0, 4),), codecs=["gzip"], data=np.arange(4))
    return repository


def test_a_repository_that_is_not_there(tmp_path):
    with pytest.raises(IntarsiaError) as error:
        intarsia.open_repository(tmp_path / "new")
    store = tmp_path / "new"
    assert follow(error, "intarsia.open_repository(store, create=True)", store=store)
    assert intarsia.open_repository(store)


def test_a_plain_store_for_a_repository(tmp_path):
    path, name = tmp_path / "plain", "p"
    zarr.create_array(path, name=name, data=np.arange(4))
    intarsia.create(path, "logical", **NEW)
    with pytest.raises(IntarsiaError) as error:
        intarsia.open_repository(path)
    assert follow(error, "intarsia.reader(path, name)", path=path, name=name)[...].tolist() == [0, 1, 2, 3]
    assert follow(error, "intarsia.open(path, name)", path=path, name="logical").shape == (4,)


def test_changes_without_a_commit(repo):
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(repo, "a", mode="r+")
    code = "with intarsia.transaction(repo, message=…) as tx: array = tx.open(path)"
    ended = follow(error, code, repo=repo, path="a", message="nothing")["array"]
    with pytest.raises(IntarsiaError) as error:
        ended[:2] = 7
    with intarsia.transaction(repo) as tx:
        follow(error, "tx.open(path)", tx=tx, path="a")[:2] = 7
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(repo, "a")[:2] = 8
    code = "with intarsia.transaction(repo) as tx: tx.open(path)"
    follow(error, code, repo=repo, path="a", message="nothing")
    assert intarsia.open(repo, "a")[...].tolist() == [7, 7, 2, 3]


def test_an_array_that_is_not_there(repo):
    with pytest.raises(IntarsiaError) as error:
        intarsia.append(repo, "b", np.arange(2), codecs=["gzip"])
    with intarsia.transaction(repo) as tx:
        follow(error, "tx.create(path, shape=…, chunks=…, dtype=…)", tx=tx, path="b", **NEW | {"shape": (0,)})
    intarsia.append(repo, "b", np.arange(2), codecs=["gzip"])
    assert intarsia.open(repo, "b")[...].tolist() == [0, 1]


def test_a_creation_without_a_transaction(repo):
    with pytest.raises((IntarsiaError, TypeError)) as error:
        intarsia.create(repo, "b", **NEW)
    text = str(error.value)
    assert "with intarsia.transaction(repo) as tx: tx.create(…)" in text
    with intarsia.transaction(repo) as tx:
        tx.create("b", **NEW)
    assert intarsia.open(repo, "b").shape == (4,)


def test_versions_that_are_too_young_to_be_forgotten(repo):
    with intarsia.transaction(repo) as tx:
        tx.open("a")[:2] = 7
    with pytest.raises(ValueError, match="less than 24 hours") as error:
        intarsia.vacuum(repo, forget_before=timedelta(0))
    code = "intarsia.vacuum(store, forget_before=…, force=True)"
    follow(error, code, store=repo, forget_before=timedelta(0))
    assert intarsia.open(repo, "a")[...].tolist() == [7, 7, 2, 3]
    assert len(intarsia.history(repo)) < 3


def test_a_version_before_the_first(repo):
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(repo, "a", as_of="2001-01-01")
    assert len(follow(error, "intarsia.history")(repo)) == 1


def test_work_that_is_divided_without_a_transaction(repo):
    with pytest.raises(IntarsiaError) as error:
        intarsia.open(repo, "a").fork_for(2)
    code = "with intarsia.transaction(repo) as tx: shares = tx.open(path).fork_for(4)"
    assert follow(error, code, repo=repo, path="a")["shares"]


def test_work_that_two_workers_do(repo):
    with intarsia.transaction(repo) as tx:
        array = tx.open("a")
        too_much, other = array.fork_for(2)
        too_much[:] = 1
        with pytest.raises(IntarsiaError, match=r"let every worker write to share\.boxes only"):
            tx.merge(too_much, other)
        one, other = array.fork_for(2)
        for share in (one, other):
            for box in share.boxes:
                share[box] = 5
        tx.merge(one, other)
        assert array[...].tolist() == [5, 5, 5, 5]


def test_work_that_was_divided_too_early(repo):
    with intarsia.transaction(repo) as tx:
        array = tx.open("a")
        early = array.fork_for(1)
        array[:2] = 1
        share = early[0]
        for box in share.boxes:
            share[box] = 5
        with pytest.raises(IntarsiaError) as error:
            tx.merge(*early)
        (again,) = follow(error, "array.fork_for(n)", array=array, n=1)
        again[again.boxes[0]] = 7
        array.recode(((0, 2),), codecs=["zstd"])
        with pytest.raises(IntarsiaError, match="Change the layout first, then divide the work") as error:
            tx.merge(again)
        shares = follow(error, "array.fork_for(n)", array=array, n=2)
        for share in shares:
            for box in share.boxes:
                share[box] = 5
        tx.merge(*shares)
    assert intarsia.open(repo, "a")[...].tolist() == [5] * 4


def test_chunks_that_two_workers_wrote(repo):
    with intarsia.transaction(repo) as tx:
        array = tx.open("a")
        workers = [array.fork_for(1)[0] for _ in range(2)]
        for share in workers:
            share[share.boxes[0]] = 5
        with pytest.raises(IntarsiaError) as error:
            tx.merge(*workers)
        shares = follow(error, "array.fork_for(n)", array=array, n=2)
        for number, share in enumerate(shares):
            for box in share.boxes:
                share[box] = number
        tx.merge(*shares)
    assert intarsia.open(repo, "a")[...].tolist() == [0, 0, 1, 1]
