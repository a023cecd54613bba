"""A link that leads out of a local store is refused, by whatever way the store is read."""

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.array.fetch import links
from intarsia.errors import ReadError
from intarsia.versions.locking import directory_of

VALUES = np.arange(8, dtype="u1")
SECRET = bytes(range(100, 108))


@pytest.fixture
def secret(tmp_path, monkeypatch):
    monkeypatch.delenv(links.FOLLOW, raising=False)
    file = tmp_path / "outside" / "0"
    file.parent.mkdir()
    file.write_bytes(SECRET)
    return file


def whole(folder):
    zarr.create_array(str(folder), shape=8, chunks=8, dtype="u1", compressors=None)[...] = VALUES
    return folder / "c" / "0"


def pieces_of_shards(folder):
    array = zarr.create_array(str(folder), shape=8, chunks=2, shards=8, dtype="u1", compressors=None)
    array[...] = VALUES
    return folder / "c" / "0"


def by_zarr(folder):
    """A data type that the engine leaves to zarr."""
    array = zarr.create_array(str(folder), shape=8, chunks=8, dtype=str, compressors=None)
    array[...] = VALUES.astype(str)
    return folder / "c" / "0"


@pytest.fixture(params=[whole, pieces_of_shards, by_zarr])
def chunk(request, tmp_path):
    return request.param(tmp_path / "store")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_link_leads_out_to_is_not_read(chunk, secret, tmp_path, what):
    chunk.rename(chunk.with_name("moved"))
    if what == "file":
        chunk.symlink_to(secret)
    else:
        chunk.parent.rename(tmp_path / "moved")
        chunk.parent.symlink_to(secret.parent)
    array = intarsia.reader(str(tmp_path / "store"))
    for _ in range(2):
        with pytest.raises(ReadError, match=f"(?s)is a link to .*outside.* set {links.FOLLOW}=1"):
            array[...]


def test_whoever_trusts_it_reads_it(chunk, secret, tmp_path, monkeypatch):
    elsewhere = secret.with_name("data")
    chunk.rename(elsewhere)
    chunk.symlink_to(elsewhere)
    monkeypatch.setenv(links.FOLLOW, "1")
    np.testing.assert_array_equal(intarsia.reader(str(tmp_path / "store"))[...].astype("u1"), VALUES)


def test_links_within_a_store_are_followed(chunk, secret, tmp_path):
    chunk.rename(chunk.with_name("moved"))
    chunk.symlink_to("moved")
    chunk.parent.rename(tmp_path / "store" / "d")
    chunk.parent.symlink_to("d")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    np.testing.assert_array_equal(intarsia.reader(str(tmp_path / "link"))[...].astype("u1"), VALUES)


@pytest.fixture
def repo(tmp_path):
    return intarsia.open_repository(tmp_path / "repository", create=True)


@pytest.mark.parametrize("has_references", [False, True])
def test_chunks_of_a_repository(repo, secret, has_references):
    values = np.random.default_rng(0).integers(0, 256, 4096, dtype="u1")
    with intarsia.transaction(repo, message="x") as tx:
        array = tx.create("a", shape=(4096,), chunks=(2048,), dtype="u1")
        array.add_region([(0, 4096)], codecs=[], data=values)
        if has_references:
            (name,) = array.manifest.members
            key, url = f"a/{name}/c/1", f"file://{secret}"
            array.store.set_virtual_ref(key, url, offset=0, length=8, validate_container=False)
    for chunk in (directory_of(repo) / "chunks").iterdir():
        chunk.unlink()
        chunk.symlink_to(secret)
    with pytest.raises(ReadError, match="is a link to"):
        intarsia.open(repo, "a")[:2048]


def test_the_chunks_of_a_repository_may_not_be_elsewhere(repo, secret):
    with intarsia.transaction(repo, message="x") as tx:
        tx.create("a", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
    (directory_of(repo) / "chunks").mkdir(exist_ok=True)
    (directory_of(repo) / "chunks").rename(secret.with_name("chunks"))
    (directory_of(repo) / "chunks").symlink_to(secret.with_name("chunks"))
    with pytest.raises(ReadError, match="is a link to"):
        intarsia.open(repo, "a")[...]
