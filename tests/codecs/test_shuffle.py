"""`shuffle` against numcodecs."""

import pickle

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

from intarsia.codecs import ShuffleCodec
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError

LITTLE = BytesCodec(endian="little")


@given(elements=st.integers(0, 50), size=st.sampled_from([1, 2, 3, 4, 8, 16]), seed=st.integers(0, 2**32 - 1))
def test_the_stored_bytes_equal_those_of_numcodecs(elements, size, seed):
    data = np.random.default_rng(seed).integers(0, 256, elements * size + size, dtype="u1")
    store = zarr.storage.MemoryStore()
    z = zarr.create(
        store=store, shape=data.size, dtype="u1", codecs=[LITTLE, ShuffleCodec(element_size=size)]
    )
    with zarr.config.set({"array.write_empty_chunks": True}):
        z = zarr.open_array(store)
        z[:] = data
    stored = store._store_dict["c/0"].to_bytes()
    assert stored == numcodecs.Shuffle(size).encode(data).tobytes()
    np.testing.assert_array_equal(z[:], data)


@pytest.mark.parametrize("sharded", [False, True])
def test_round_trip_through_a_compressor(sharded, tmp_path, pipeline):
    codecs = [LITTLE, ShuffleCodec(element_size=4), ZstdCodec()]
    if sharded:
        codecs = [ShardingCodec(chunk_shape=(8,), codecs=codecs)]
    z = zarr.create(store=tmp_path / "a", shape=37, chunks=16, dtype="f4", codecs=codecs)
    data = np.random.default_rng(0).normal(size=37).astype("f4")
    z[:] = data
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a")[:], data)


@pytest.mark.parametrize("size", [0, -1, 1.5, "4", None, True])
def test_a_bad_element_size_is_refused(size):
    with pytest.raises(CodecConfigurationError, match="element_size"):
        ShuffleCodec(element_size=size)


def test_a_length_that_is_no_multiple_is_an_error_both_ways(tmp_path, pipeline):
    z = zarr.create(
        store=tmp_path / "a", shape=5, dtype="u1", codecs=[LITTLE, ShuffleCodec(element_size=4)], fill_value=0
    )
    with pytest.raises(ChunkEncodeError, match=r"5 bytes.* are not a multiple of element_size 4"):
        z[:] = 1
    (tmp_path / "a/c").mkdir()
    (tmp_path / "a/c/0").write_bytes(b"12345")
    with pytest.raises(ChunkDecodeError, match=r"5 bytes.* are not a multiple of element_size 4"):
        z[:]


def test_pickle_and_json():
    codec = ShuffleCodec(element_size=4)
    assert pickle.loads(pickle.dumps(codec)) == codec == ShuffleCodec.from_dict(codec.to_dict())
