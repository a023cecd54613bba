"""From keys and positions to indices; the tests with real arrays are in test_context.py."""

import pytest
import zarr

from intarsia.codecs.place import UNKNOWN, GivenPlace, Grid


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


def test_places_that_somebody_said():
    assert UNKNOWN.index() is UNKNOWN.origin() is UNKNOWN.axes() is None
    assert GivenPlace((1,)).index() == (1,)
    assert GivenPlace((1,)).origin() is None  # so what is inside it has no index
