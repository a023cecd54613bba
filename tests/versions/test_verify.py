"""Checking repositories: every array, at any version."""

import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

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


def test_metadata_that_nobody_can_read_is_listed():
    repo = memory()
    create(repo, "a")
    depth = 100_000  # Icechunk takes attributes as they are
    document = (
        b'{"zarr_format":3,"node_type":"group","attributes":{"x":' + b"[" * depth + b"]" * depth + b"}}"
    )
    with repo.transaction("main", message="damage") as store:
        sync(store.set("bad/zarr.json", default_buffer_prototype().buffer.from_bytes(document)))
    assert [(p.kind, p.where) for p in intarsia.verify(repo)] == [("manifest", "bad")]
    assert "'bad'" in intarsia.verify(repo)[0].what
    (problem,) = intarsia.verify(repo, "bad")
    assert "nested too deeply" in problem.what


def test_vacuum_of_a_repository_is_one_commit_and_older_versions_keep_what_it_removes(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    assert intarsia.vacuum(repo) == ()
    for path in ("a", "deep/b"):
        create(repo, path)
    left = "m-" + "0" * 32
    with repo.transaction("main", message="leave behind") as store:
        for path in ("a", "deep/b"):
            zarr.open_group(store, path=path).create_array(left, shape=(4,), dtype="u1")
    repo.create_branch("other", before := repo.lookup_branch("main"))
    assert intarsia.vacuum(repo, dry_run=True) == (f"a/{left}", f"deep/b/{left}")
    assert intarsia.vacuum(repo.readonly_session("main"), dry_run=True) == (f"a/{left}", f"deep/b/{left}")
    assert repo.lookup_branch("main") == before
    assert intarsia.vacuum(repo, "deep") == (f"deep/b/{left}",)
    assert intarsia.vacuum(tmp_path / "r") == (f"a/{left}",)
    after = repo.lookup_branch("main")
    assert intarsia.verify(repo) == ()
    assert intarsia.verify(repo, snapshot_id=before) == ()
    assert intarsia.vacuum(repo) == ()
    assert repo.lookup_branch("main") == after  # nothing to remove, nothing to commit
    assert len(intarsia.vacuum(repo, branch="other")) == 2
    assert repo.lookup_branch("other") not in (before, after)
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="no Zarr group at 'nowhere'"):
        intarsia.vacuum(repo, "nowhere")
    with pytest.raises(TypeError, match="only an Icechunk repository takes branch="):
        intarsia.vacuum({}, branch="other")


def test_progress_goes_on_inside_one_array(tmp_path):
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="one") as tx:
        tx.create("t", shape=(0,), chunks=(1,), dtype="u1").append(range(8), codecs=[])
    told = {"verify": [], "report": []}
    intarsia.verify(intarsia.open(repo, "t"), progress=lambda *steps: told["verify"].append(steps))
    intarsia.write_report(
        repo,
        file=tmp_path / "page.html",
        read_data=True,
        progress=lambda *steps: told["report"].append(steps),
    )
    for steps in told.values():
        done = [step for step, _ in steps]
        assert done == sorted(done)
        assert len(set(done)) > 6
        assert steps[-1][0] == steps[-1][1]


def test_a_manifest_that_claims_more_than_it_can_hold_is_told_and_nothing_makes_room_for_it(tmp_path):
    """Icechunk would, where it looks for what no version refers to, and end the process if it got none."""
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo) as tx:
        tx.create("a", shape=(0,), chunks=(2,), dtype="i4").append([1, 2, 3, 4])
    assert intarsia.verify(repo) == ()
    (manifest,) = (tmp_path / "r" / "manifests").iterdir()
    plain = manifest.read_bytes()
    head = 39 + 4  # after Icechunk's header and the magic number of zstd
    assert plain[head] == 0b0010_0000  # a size of one byte follows
    claims = bytes([0b1010_0000]) + (2**32 - 1).to_bytes(4, "little")
    manifest.write_bytes(plain[:head] + claims + plain[head + 2 :])
    told = [problem for problem in intarsia.verify(repo) if problem.where == f"manifests/{manifest.name}"]
    assert [problem.what for problem in told] == [
        f"{len(plain) + 3} bytes cannot hold the 4,294,967,295 they claim"
    ]
    with pytest.raises(intarsia.errors.RepositoryError, match=r"cannot hold.*\n.*restore it"):
        intarsia.vacuum(repo, forget_before=intarsia.versions.verify_vacuum.MINIMUM_AGE)
    manifest.write_bytes(plain)
    assert intarsia.verify(repo) == ()
