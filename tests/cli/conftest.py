"""A repository with a history, made once and copied for tests that change it."""

import shutil

import numpy as np
import pytest

import intarsia

STEPS = (("gzip", 20), ("zstd", 20), ("raw", 10))


def values():
    """What the array holds in the end."""
    total = sum(length for _, length in STEPS)
    return np.random.default_rng(0).normal(280, 10, size=(total, 6, 8)).round(1).astype("f4")


@pytest.fixture(scope="session")
def data():
    return values()


@pytest.fixture(scope="session")
def made(tmp_path_factory, data):
    """Directory of the repository, and the snapshots of its commits."""
    place = tmp_path_factory.mktemp("cli") / "store"
    repo = intarsia.open_repository(place, create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create(
            "temperature",
            shape=(0, 6, 8),
            chunks=(10, 3, 4),
            dtype="float32",
            dimension_names=("time", "lat", "lon"),
            attributes={"units": "K"},
        )
    snapshots, done = [tx.snapshot_id], 0
    for codec, length in STEPS:
        codecs = [] if codec == "raw" else [codec]
        part = data[done : done + length]
        snapshots.append(intarsia.append(repo, "temperature", part, codecs=codecs, message=f"with {codec}"))
        done += length
    repo.create_tag("v1", snapshot_id=snapshots[1])
    return place, snapshots


@pytest.fixture
def store(made, tmp_path):
    """A copy to change."""
    place = tmp_path / "store"
    shutil.copytree(made[0], place)
    return place


@pytest.fixture(scope="session")
def plain_made(tmp_path_factory, data):
    """The same array in a store without versions."""
    place = tmp_path_factory.mktemp("cli") / "plain.zarr"
    array = intarsia.create(place, "temperature", shape=(0, 6, 8), chunks=(10, 3, 4), dtype="float32")
    array.append(data[:20], codecs=["gzip"])
    array.append(data[20:], codecs=["zstd"])
    return place


@pytest.fixture
def plain(plain_made, tmp_path):
    """A copy of it to change."""
    return shutil.copytree(plain_made, tmp_path / "plain.zarr")
