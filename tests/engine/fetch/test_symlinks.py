"""A link that leads out of a local store is refused, by whatever way the store is read."""

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia.engine.fetch import icechunk as icechunk_fetcher
from intarsia.engine.fetch import symlinks
from intarsia.errors import NotAuthorizedError, ReadError
from intarsia.versions.locking import directory_of

VALUES = np.arange(8, dtype="u1")
SECRET = bytes(range(100, 108))


@pytest.fixture
def secret(tmp_path, monkeypatch):
    monkeypatch.delenv(symlinks.FOLLOW, raising=False)
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
        with pytest.raises(ReadError, match=f"(?s)is a link to .*outside.* set {symlinks.FOLLOW}=1"):
            array[...]


def test_whoever_trusts_it_reads_it(chunk, secret, tmp_path, monkeypatch):
    elsewhere = secret.with_name("data")
    chunk.rename(elsewhere)
    chunk.symlink_to(elsewhere)
    monkeypatch.setenv(symlinks.FOLLOW, "1")
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


def linked(repository, folder, secret, how):
    """A repository with references to a file below a folder: a link to the secret, or behind one."""
    folder.mkdir()
    (folder / "file").symlink_to(secret)
    (folder / "up").symlink_to(secret.parent)
    url = f"file://{folder}/" + {"file": "file", "folder": f"up/{secret.name}"}[how]
    config = icechunk.RepositoryConfig.default()
    container = icechunk.VirtualChunkContainer(
        f"file://{folder}/", icechunk.local_filesystem_store(f"{folder}/")
    )
    config.set_virtual_chunk_container(container)
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(repository)), config=config)
    repo.save_config()
    session = repo.writable_session("main")
    array = intarsia.create(session.store, "a", shape=(0,), chunks=(8,), dtype="u1")
    array.append(VALUES, codecs=[])
    zarr.create_array(session.store, name="plain", shape=8, chunks=8, dtype="u1", compressors=None)
    for path in (f"a/{array.regions[0].name}", "plain"):
        session.store.set_virtual_ref(f"{path}/c/0", url, offset=0, length=8)
    session.commit("references")
    return intarsia.archives.authorize(repo, [f"file://{folder}/"])


def in_a_transaction(repo):
    with intarsia.transaction(repo, message="x") as tx:
        return tx.open("a")[...]


WAYS = {
    "logical": lambda repo: intarsia.open(repo, "a")[...],
    "plain": lambda repo: intarsia.reader(repo, "plain")[...],
    "view": lambda repo: intarsia.fused_view(repo)["plain"][...],
    "fuse": lambda repo: intarsia.fuse(intarsia.open(repo, "a"), {}, "a")[...],
    "transaction": in_a_transaction,
    "read by Icechunk": lambda repo: intarsia.open(repo, "a")[...],
    "read by Icechunk, of many": lambda repo: intarsia.open(repo, "a")[...],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["file", "folder"])
def test_what_lies_below_an_authorised_prefix_may_not_lead_out_of_it(tmp_path, secret, monkeypatch, way, how):
    repo = linked(tmp_path / "repository", tmp_path / "allowed", secret, how)
    if way.startswith("read by Icechunk"):
        monkeypatch.setattr(icechunk_fetcher, "repository_folder", lambda store: None)
    if way.endswith("of many"):
        monkeypatch.setattr(icechunk_fetcher, "MAX_CHUNKS_LISTED", 0)
        monkeypatch.setattr(icechunk_fetcher, "WORTH_LISTING", 0)
    with pytest.raises(ReadError, match=f"(?s)is a link to .*outside.* set {symlinks.FOLLOW}=1"):
        WAYS[way](repo)
    monkeypatch.setenv(symlinks.FOLLOW, "1")
    assert WAYS[way](repo).tolist() == list(SECRET)


def test_a_link_elsewhere_below_the_prefix_disturbs_nobody(tmp_path, secret, monkeypatch):
    folder = tmp_path / "allowed"
    repo = linked(tmp_path / "repository", folder, secret, "file")
    (folder / "file").unlink()
    (folder / "file").symlink_to(folder / "data")
    (folder / "data").write_bytes(bytes(VALUES))
    monkeypatch.setattr(icechunk_fetcher, "MAX_CHUNKS_LISTED", 0)
    monkeypatch.setattr(icechunk_fetcher, "WORTH_LISTING", 0)
    for way in WAYS.values():
        assert way(repo).tolist() == VALUES.tolist()


@pytest.mark.parametrize("way", ["logical", "plain", "view", "fuse", "transaction"])
def test_what_is_not_authorised_is_an_error_of_its_own(tmp_path, secret, way):
    repo = linked(tmp_path / "repository", tmp_path / "allowed", secret, "file")
    kept = intarsia.open_repository(tmp_path / "repository")
    assert repo.authorized_virtual_container_prefixes
    if way == "transaction":  # which of the two reasons comes first does not matter
        with pytest.raises(ReadError):
            WAYS[way](kept)
        return
    with pytest.raises(NotAuthorizedError) as caught:
        WAYS[way](kept)
    assert caught.value.prefix == f"file://{tmp_path}/allowed/"


def test_references_are_not_made_of_what_may_not_be_read(tmp_path, secret):
    linked(tmp_path / "repository", tmp_path / "allowed", secret, "file")
    with pytest.raises(NotAuthorizedError, match="is not authorised to read below"):
        intarsia.archives.to_kerchunk(tmp_path / "repository", "", tmp_path / "references.json")
    assert not (tmp_path / "references.json").exists()
