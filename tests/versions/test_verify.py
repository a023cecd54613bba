"""Checking repositories: every array, at any version."""

import zarr

import intarsia
from tests.versions.places import create, memory


def test_every_array_below_a_path_is_checked():
    repo = memory()
    for path in ("a", "deep/b", "deep/er/c"):
        create(repo, path)
        intarsia.append(repo, path, [[1, 2, 3, 4]], codecs=["gzip"])
    good = repo.lookup_branch("main")
    with repo.transaction("main", message="damage") as store:
        for path in ("a", "deep/er/c"):
            group = zarr.open_group(store, path=path)
            del group[intarsia.open(repo, path).manifest.members[0]]
    assert [(p.kind, p.where.split("/m-")[0]) for p in intarsia.verify(repo)] == [
        ("member", "a"),
        ("member", "deep/er/c"),
    ]
    assert [p.where.split("/m-")[0] for p in intarsia.verify(repo, "deep")] == ["deep/er/c"]
    assert intarsia.verify(repo, snapshot_id=good) == ()


def test_arrays_that_stand_inside_others_are_checked_too():
    repo = memory()
    for path in ("a", "a/inside"):
        create(repo, path)
        intarsia.append(repo, path, [[1, 2, 3, 4]], codecs=["gzip"])
    with repo.transaction("main", message="damage") as store:
        group = zarr.open_group(store, path="a/inside")
        del group[intarsia.open(repo, "a/inside").manifest.members[0]]
    for path in ("", "a"):
        assert [p.where.split("/m-")[0] for p in intarsia.verify(repo, path)] == ["a/inside"]


def test_stores_arrays_and_sessions_are_checked_as_before(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo)
    intarsia.create(str(tmp_path / "plain"), "a", shape=(2,), chunks=(1,), dtype="u1")
    for target in (
        repo.readonly_session("main"),
        repo.readonly_session("main").store,
        str(tmp_path / "plain"),
    ):
        assert intarsia.verify(target, "a") == ()
    assert intarsia.verify(tmp_path / "r") == ()
    assert intarsia.verify(intarsia.open(repo, "a")) == ()


def test_an_empty_repository_is_sound():
    assert intarsia.verify(memory()) == ()
    assert intarsia.history(memory()) == ()
