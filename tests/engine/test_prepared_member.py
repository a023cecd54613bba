"""What the engine reads itself, and what it leaves to zarr."""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec
from zarr.storage import MemoryStore

import intarsia
from intarsia.engine.prepared_member import EngineMember, PreparedMember
from tests.logical.codec_kinds import AsyncOnlyCodec


def source(**options):
    return PreparedMember.of("m", zarr.create_array(MemoryStore(), shape=(10, 6), chunks=(4, 3), **options))


def test_plain_arrays_have_no_obstacle():
    found = source(dtype="float32")
    assert isinstance(found, EngineMember)
    assert (found.grid, found.object_grid, found.chunk_shape) == ((3, 2), (3, 2), (4, 3))
    assert found.keys(np.array([0, 5])) == ["c/0/0", "c/2/1"]
    assert found.index(5) == (2, 1)


def test_shards_have_two_grids():
    found = PreparedMember.of(
        "m", zarr.create_array({}, shape=(10, 6), chunks=(2, 3), shards=(4, 6), dtype="u1")
    )
    assert (found.grid, found.object_grid) == ((6, 2), (3, 1))
    assert found.object_count == 3


def test_a_resized_array_is_looked_at_again():
    found = source(dtype="u1")
    assert found.is_current
    found.array.resize((20, 6))
    assert not found.is_current


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": str},
        {"dtype": str, "zarr_format": 2},
        {"dtype": "u1", "zarr_format": 2},
        {"dtype": "u1", "serializer": BytesCodec(), "compressors": [AsyncOnlyCodec()]},
    ],
)
def test_what_the_engine_reads_and_zarr_writes(options):
    found = source(**options)
    assert isinstance(found, EngineMember)
    assert not found.is_written_by_engine


def test_nullable_members_are_read_by_the_engine_and_written_by_zarr():
    array = intarsia.nullable.create_array({}, shape=(4,), chunks=(2,), dtype="int32")
    found = PreparedMember.of("m", array.zarr_array)
    assert isinstance(found, EngineMember)
    assert not found.is_written_by_engine


def test_more_chunks_than_can_be_numbered_are_left_to_zarr():
    array = zarr.create_array({}, shape=(1 << 40, 1 << 40), chunks=(1, 1), dtype="u1")
    assert PreparedMember.of("m", array).obstacle == "more chunks than can be numbered"


def test_chunks_of_different_shapes_are_left_to_zarr():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array({}, shape=(10,), chunks=[[3, 7]], dtype="i4")
        array[:] = np.arange(10)
        found = PreparedMember.of("m", array)
    assert found.obstacle == "chunks of different shapes"
    assert found.stored_object_shape is None
