"""Icechunk's errors in our words; real ones are in test_faults."""

import json
import os

import icechunk
import numpy as np
import pytest
import xarray as xr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import intarsia
from intarsia.versions.repository import explain_errors
from tests.archives.files import netcdf
from tests.versions.places import create, memory

CASES = [
    (icechunk.RepositoryNotFoundError("gone"), intarsia.errors.RepositoryNotFoundError, "create=True"),
    (
        icechunk.RefNotFoundError("ref not found `x`"),
        intarsia.errors.VersionNotFoundError,
        "has no branch or tag 'x'",
    ),
    (icechunk.SnapshotNotFoundError("no snapshot"), intarsia.errors.VersionNotFoundError, "no snapshot"),
    (icechunk.ReadOnlyError("read only"), intarsia.errors.ReadOnlyError, "can only be read"),
    (
        icechunk.StorageError("dispatch failure: timed out"),
        intarsia.errors.RepositoryError,
        "Is the server up",
    ),
    (icechunk.StorageError("NoSuchBucket"), intarsia.errors.RepositoryError, "Create the bucket first"),
    (
        icechunk.StorageError("SignatureDoesNotMatch"),
        intarsia.errors.RepositoryError,
        "Check the credentials",
    ),
    (
        icechunk.StorageError("Permission denied (os error 13)"),
        intarsia.errors.RepositoryError,
        "check owner",
    ),
    (icechunk.StorageError("(os error 30)"), intarsia.errors.RepositoryError, "mounted read-only"),
    (icechunk.FormatError("something new"), intarsia.errors.RepositoryError, "something new"),
]


@pytest.mark.parametrize(("error", "kind", "says"), CASES, ids=lambda value: str(value)[:30])
def test_each_becomes_one_of_ours_and_says_what_to_do(error, kind, says):
    with pytest.raises(kind, match="data/store") as caught, explain_errors("data/store"):
        raise error
    assert says in str(caught.value)
    assert caught.value.__cause__ is error


def test_the_chain_of_calls_is_left_out():
    error = icechunk.StorageError("broken\n\ncontext:\n   0: icechunk::refs::fetch_branch")
    with pytest.raises(intarsia.errors.RepositoryError) as caught, explain_errors("here"):
        raise error
    assert str(caught.value) == "here: broken"


def test_conflicts_and_other_errors_pass():
    for error in (icechunk.ConflictError("a", "b"), ValueError("x")):
        with pytest.raises(type(error)), explain_errors("here"):
            raise error


@pytest.fixture
def damaged(tmp_path):
    """A function that cuts off the files of one kind, and opens the repository anew."""
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("a", shape=(0,), chunks=(400,), dtype="int64")
        array.append(np.arange(800), codecs=["zstd"])

    def damage(kind):
        place = tmp_path / "r" / kind
        for file in place.iterdir() if place.is_dir() else [place]:
            os.truncate(file, file.stat().st_size // 2)
        return intarsia.open_repository(tmp_path / "r")

    return damage


@pytest.mark.parametrize("kind", ["manifests", "snapshots", "transactions", "repo"])
def test_damaged_files_of_icechunk_give_errors_of_ours(damaged, kind, tmp_path):
    """Whatever is asked for: an answer, or an error that says what is wrong, not where in Icechunk."""
    asked = [
        lambda repo: intarsia.open(repo, "a")[0],
        lambda repo: intarsia.verify(repo),
        lambda repo: intarsia.history(repo, "a"),
        lambda repo: intarsia.diff(repo, "a", "main"),
        lambda repo: intarsia.append(repo, "a", [1]),
        lambda repo: intarsia.write(repo, "a", 0, 1),
        lambda repo: intarsia.recode(repo, "a", codecs=["gzip"]),
        lambda repo: intarsia.restore(repo, "a", "main"),
        lambda repo: intarsia.reader(repo, "a")[0],
        lambda repo: intarsia.fused_view(repo, "a")[0],
        lambda repo: intarsia.archives.sources(repo),
        lambda repo: intarsia.archives.to_kerchunk(repo, "", tmp_path / "k.json"),
        lambda repo: intarsia.ingest(tmp_path / "1.nc", repo, concat_dim="time"),
        lambda repo: intarsia.open_repository(repo, authorize=True),
        lambda repo: xr.open_dataset(repo, engine="intarsia"),
    ]
    netcdf(tmp_path / "1.nc", 1)
    errors = []
    for ask in asked:
        try:
            ask(damaged(kind))
        except intarsia.IntarsiaError as error:
            errors.append(str(error))
    assert errors
    assert not [error for error in errors if "context:" in error]
    if kind == "snapshots":
        assert len(errors) == len(asked) - 1  # the configuration is not in them
        assert all("damaged, or was cut off" in error for error in errors)
    if kind == "manifests":
        (problem,) = {problem.kind for problem in intarsia.verify(damaged(kind), data=True)}
        assert problem == "member"  # its chunks cannot even be listed


GROUP = {"zarr_format": 3, "node_type": "group", "attributes": 5}
ARRAY = {"zarr_format": 3, "node_type": "array", "attributes": {}, "shape": [2], "data_type": "no-such-type"}
ARRAY |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}, "fill_value": 0}
ARRAY |= {"chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]}


@pytest.mark.parametrize("document", [GROUP, ARRAY])
def test_verify_lists_a_child_whose_metadata_is_damaged_and_looks_at_the_others(document):
    repo = memory()
    for name in ("before", "zulu"):
        create(repo, name)
    intarsia.append(repo, "zulu", np.ones((1, 4), "i4"), codecs=["crc32c"])
    with intarsia.transaction(repo, message="damage") as tx:
        zulu = tx.open("zulu")
        (member,) = zulu.members
        for key, data in (
            ("mine/zarr.json", json.dumps(document).encode()),
            (f"zulu/{member}/c/0/0", b"short"),
        ):
            sync(tx.store.set(key, default_buffer_prototype().buffer.from_bytes(data)))
    found = intarsia.verify(repo)
    assert [problem.kind for problem in found] == ["manifest", "data"]
    assert found[0].where == "mine"
    assert "zulu" in found[1].where
