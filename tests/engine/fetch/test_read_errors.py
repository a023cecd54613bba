"""Which file a chunk comes from, and what an error about it says."""

import icechunk
import numpy as np
import pytest
import zarr

from intarsia.engine.fetch.read_errors import read_failure_text, virtual_chunk_url


@pytest.fixture
def store(tmp_path):
    """An array of three chunks: one of its own, one in a file, one that is not there."""
    (tmp_path / "f.bin").write_bytes(bytes(4))
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    container = icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(tmp_path)))
    config.set_virtual_chunk_container(container)
    repo = icechunk.Repository.create(icechunk.in_memory_storage(), config)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(12,), chunks=(4,), dtype="u1", compressors=None)
    array[:4] = 1
    session.store.set_virtual_ref("a/c/1", f"{prefix}f.bin", offset=0, length=4)
    return session.store


def test_only_virtual_chunks_come_from_a_file(store, tmp_path):
    assert virtual_chunk_url(store, "a", (1,)) == f"file://{tmp_path}/f.bin"
    assert virtual_chunk_url(store, "a", (0,)) is None
    assert virtual_chunk_url(store, "a", (2,)) is None
    assert virtual_chunk_url(store, "a", None) is None
    assert virtual_chunk_url(store, "no such array", (0,)) is None
    assert virtual_chunk_url(zarr.storage.MemoryStore(), "a", (1,)) is None


def test_a_refusal_says_what_to_authorise(store, tmp_path):
    with pytest.raises(icechunk.IcechunkError) as caught:
        zarr.open_array(store, path="a", mode="r")[4:8]
    text = read_failure_text(caught.value, store, "a", (1,))
    assert text.startswith(f"file://{tmp_path}/f.bin may not be read")
    assert f"intarsia.archives.authorize(repo, ['file://{tmp_path}/'])" in text
    assert "context:" not in text


def test_other_errors_keep_their_words_and_name_the_file_if_there_is_one(store, tmp_path):
    assert read_failure_text(ValueError("bad"), store, "a", (0,)) == "bad"
    assert read_failure_text(ValueError("bad"), store, "a", (1,)) == f"bad (file://{tmp_path}/f.bin)"
    assert "f.bin" in read_failure_text(icechunk.StorageError("gone"), store, "a", (1,))
    assert np.array_equal(zarr.open_array(store, path="a", mode="r")[:4], [1] * 4)
