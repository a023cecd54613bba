"""Copying stored chunks between arrays, as bytes or as references."""

import datetime

import icechunk
import pytest
import zarr

from intarsia.errors import ReadError
from intarsia.logical.chunk_copies import ChunkMove, copy_chunks


def repository_that_reads(path, *folders):
    config = icechunk.RepositoryConfig.default()
    for folder in folders:
        store = icechunk.local_filesystem_store(str(folder))
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{folder}/", store))
    access = {f"file://{folder}/": icechunk.credentials.LocalFileSystemAccess for folder in folders}
    storage = icechunk.local_filesystem_storage(str(path))
    return icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)


def test_a_reference_that_no_container_covers_is_named(tmp_path):
    folders = tmp_path / "known", tmp_path / "unknown"
    session = repository_that_reads(tmp_path / "from", *folders).writable_session("main")
    source = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="u1", compressors=None)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    references = []
    for i, folder in enumerate(folders):
        folder.mkdir()
        (folder / "file").write_bytes(bytes(2))
        url = f"file://{folder}/file"
        references.append(icechunk.VirtualChunkSpec([i], url, 0, 2, last_updated_at_checksum=later))
    session.store.set_virtual_refs("a", references, validate_containers=True)
    other = repository_that_reads(tmp_path / "to", folders[0]).writable_session("main")
    target = zarr.create_array(other.store, name="b", shape=4, chunks=2, dtype="u1", compressors=None)
    moves = [ChunkMove((0,), (0,)), ChunkMove((1,), (1,))]
    with pytest.raises(ReadError, match=r"1 chunks of b .* such as file://.*/unknown/file"):
        copy_chunks(source, target, moves, refer_unread=True)
