"""Shards taken apart and put together: zarr is the judge of both."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec
from zarr.storage import MemoryStore

import intarsia
from intarsia.codecs import ConditionalCodec, PadCodec, masks, rewrite
from intarsia.codecs.shard_index import ShardIndex
from intarsia.errors import ChunkDecodeError, CodecConfigurationError

LITTLE = BytesCodec(endian="little")
CHECKED = (LITTLE, Crc32cCodec())


def create(grid, location="end", index_codecs=CHECKED, order="morton"):
    codec = ShardingCodec(
        chunk_shape=(2, 3), codecs=[LITTLE, GzipCodec()], index_codecs=index_codecs, index_location=location,
        subchunk_write_order=order,
    )  # fmt: skip
    shape = (2 * grid[0], 3 * grid[1])
    z = zarr.create(store=MemoryStore(), shape=shape, chunks=shape, dtype="i4", codecs=[codec])
    return z, ShardIndex.of(codec, shape)


@given(
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    location=st.sampled_from(["start", "end"]),
    index_codecs=st.sampled_from([[LITTLE], CHECKED, [BytesCodec(endian="big"), Crc32cCodec()]]),
    order=st.sampled_from(["morton", "lexicographic", "colexicographic"]),
    data=st.data(),
)
def test_what_zarr_wrote_comes_apart_and_what_is_put_together_zarr_reads(
    grid, location, index_codecs, order, data
):
    z, index = create(grid, location, index_codecs, order)
    present = data.draw(st.sets(st.sampled_from(list(np.ndindex(grid))), min_size=1))
    values = np.zeros(z.shape, dtype="i4")
    for i, j in present:
        values[2 * i : 2 * i + 2, 3 * j : 3 * j + 3] = 1 + 7 * i + j
    z[:] = values
    store = z.store_path.store._store_dict
    original = store["c/0/0"].to_bytes()
    chunks = index.split(store["c/0/0"])
    assert set(chunks) == present
    assert index.join(chunks).to_bytes() == original
    store["c/0/0"] = index.join(dict(sorted(chunks.items(), reverse=True)))
    np.testing.assert_array_equal(z[:], values)
    if len(present) > 1:
        del chunks[min(present)]
        i, j = min(present)
        values[2 * i : 2 * i + 2, 3 * j : 3 * j + 3] = 0
        store["c/0/0"] = index.join(chunks)
        np.testing.assert_array_equal(z[:], values)


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_shard_shorter_than_its_index_is_an_error(location):
    z, index = create((2, 2), location)
    z[:] = 1
    shard = z.store_path.store._store_dict["c/0/0"]
    for size in (0, 1, index.nbytes - 1):
        with pytest.raises(
            ChunkDecodeError, match=f"{size} bytes are not an index of \\(2, 2\\) chunks, which needs 68"
        ):
            index.split(shard[:size])


def test_an_index_with_other_codecs_is_left_to_zarr():
    padded = (LITTLE, PadCodec(location="start", nbytes=3, padding=b"idx"), Crc32cCodec())
    codec = ShardingCodec(
        chunk_shape=(2, 3), codecs=[LITTLE, ConditionalCodec(codecs=[])], index_codecs=padded
    )
    z = zarr.create(store=MemoryStore(), shape=(4, 3), chunks=(4, 3), dtype="i4", codecs=[codec])
    z[:] = values = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(intarsia.reader(z.store)[...], values)
    with pytest.raises(CodecConfigurationError, match=r"'pad', 'crc32c'\]; only zarr itself"):
        masks(z)
    with pytest.raises(CodecConfigurationError, match="only zarr itself"):
        rewrite(z, "never_apply")


def test_every_flipped_bit_of_a_checked_index_is_an_error():
    z, index = create((2, 1))
    z[:] = 1
    shard = bytearray(z.store_path.store._store_dict["c/0/0"].to_bytes())
    buffer = type(z.store_path.store._store_dict["c/0/0"])
    for position in range(len(shard) - index.nbytes, len(shard)):
        damaged = bytearray(shard)
        damaged[position] ^= 0x10
        with pytest.raises(ChunkDecodeError, match="index is damaged"):
            index.split(buffer.from_bytes(bytes(damaged)))


def test_an_unchecked_index_that_points_beyond_the_shard_is_an_error():
    z, index = create((2, 1), index_codecs=[LITTLE])
    z[:] = 1
    stored = z.store_path.store._store_dict["c/0/0"]
    shard = bytearray(stored.to_bytes())
    for start in (-16, -8):
        damaged = bytearray(shard)
        damaged[start : start + 8 or None] = (10**12).to_bytes(8, "little")
        with pytest.raises(ChunkDecodeError, match=r"puts inner chunk \(1, 0\) at bytes"):
            index.split(type(stored).from_bytes(bytes(damaged)))
