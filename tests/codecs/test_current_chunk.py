"""The context variable; what the pipelines make of it is in test_context.py."""

import threading
from contextvars import copy_context

import pytest
import zarr

from intarsia.codecs.context import (
    Grid,
    current_chunk_index,
    named_chunk,
    takes_keyword,
    working_on,
)
from intarsia.errors import ChunkIndexUnknownError


@pytest.mark.parametrize("encoding", [("default", "/"), ("default", "."), ("v2", "/"), ("v2", ".")])
@pytest.mark.parametrize("prefix", ["", "a/", "c/0/1/", "0/", "a.b/c.0/"])
def test_keys_under_any_path(encoding, prefix):
    z = zarr.create(store={}, shape=(4, 40, 4), chunks=(1, 1, 1), dtype="u1", chunk_key_encoding=encoding)
    grid = Grid.of(z.metadata)
    for index in [(0, 0, 0), (3, 39, 2)]:
        assert grid.index_of(prefix + z.metadata.encode_chunk_key(index)) == index
        assert grid.origin_of(index) == index


class Secretive(zarr.core.chunk_key_encodings.DefaultChunkKeyEncoding):
    """An encoding that cannot be read backwards, as the base class allows."""

    def decode_chunk_key(self, chunk_key):
        raise NotImplementedError


def test_an_encoding_that_cannot_be_read_backwards():
    z = zarr.create(store={}, shape=4, dtype="u1")
    grid = Grid(Secretive(), Grid.of(z.metadata).chunks)
    assert grid.index_of("c/0") is None


def test_blocks_nest_and_end():
    with working_on((1,)):
        with working_on((2, 3)):
            assert current_chunk_index() == (2, 3)
            assert named_chunk() == " of chunk (2, 3)"
        assert current_chunk_index() == (1,)
    with pytest.raises(ChunkIndexUnknownError):
        current_chunk_index()
    assert named_chunk() == ""


def test_other_threads_do_not_see_it():
    seen = []
    with working_on((1,)):
        plain = threading.Thread(target=lambda: seen.append(named_chunk()))
        told = threading.Thread(target=copy_context().run, args=(lambda: seen.append(named_chunk()),))
        for thread in (plain, told):
            thread.start()
            thread.join()
    assert seen == ["", " of chunk (1,)"]


def test_what_a_function_asks_for():
    assert takes_keyword(lambda chunk_index=None: 1, "chunk_index")
    assert not takes_keyword(lambda index: 1, "chunk_index")
    assert not takes_keyword(max, "chunk_index")
