"""Arrays whose chunks lie anywhere in files of others, and what they hold."""

import icechunk
import numpy as np
import zarr

from intarsia.versions.authorization import authorized_handle, store_of

CHUNK = 40
"""Bytes of a chunk, which are its values."""


def repository(storage, containers, credentials=None, options=None):
    """A repository that may refer to what lies below some prefixes: prefix -> Icechunk's store for it.

    It may read there with Icechunk's own credentials, or with storage options given to intarsia.
    """
    config = icechunk.RepositoryConfig.default()
    for prefix, store in containers.items():
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    made = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=credentials)
    return authorized_handle(made, options)


def refer(repo, references, name="a", chunks=None, written=()):
    """Commit an array of bytes: position of a chunk -> (URL, offset, checksum); some chunks are written.

    Positions without either are not stored.
    """
    count = chunks or max(references, default=0) + 1
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store,
        name=name,
        shape=(count * CHUNK,),
        chunks=(CHUNK,),
        dtype="u1",
        compressors=None,
        fill_value=9,
    )
    for position in written:
        array[position * CHUNK : (position + 1) * CHUNK] = position
    for position, (url, offset, checksum) in references.items():
        key = f"{name}/c/{position}"
        session.store.set_virtual_ref(
            key, url, offset=offset, length=CHUNK, checksum=checksum, validate_container=False
        )
    session.commit(name)
    return store_of(repo.readonly_session("main"), repo)


def expected(references, contents, chunks, written=()):
    """What such an array holds: URL -> bytes of that file."""
    values = np.full((chunks, CHUNK), 9, dtype="u1")
    for position in written:
        values[position] = position
    for position, (url, offset, _) in references.items():
        values[position] = np.frombuffer(contents[url], "u1", CHUNK, offset)
    return values.reshape(-1)
