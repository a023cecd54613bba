"""What encodes an inner chunk: nested shards, parts of nullable data, codecs that decide at any depth."""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

import intarsia
from intarsia.nullable import NullableCodec, optional_dtype
from intarsia.shards.handle import ShardedArray
from intarsia.shards.inner_codecs import EncodedBound, inner_chunk_bound
from tests.shards import fleet


def bound(codecs, dtype="u2", **more):
    serializer = zarr.codecs.ShardingCodec(chunk_shape=(5, 5), codecs=codecs)
    array = zarr.create_array(
        {},
        shape=(50, 50),
        chunks=(10, 10),
        dtype=dtype,
        serializer=serializer,
        compressors=None,
        filters=None,
    )
    return inner_chunk_bound(array.metadata.codecs[0].codecs, ShardedArray(array).chunk_spec, **more)


@pytest.mark.parametrize(
    ("codecs", "nbytes", "slot"),
    [
        ([BytesCodec()], 50, 56),
        ([BytesCodec(), Crc32cCodec()], 54, 56),
        ([TransposeCodec(order=(1, 0)), BytesCodec()], 50, 56),
        ([BytesCodec(), intarsia.codecs.PadCodec(location="end", nbytes=6)], 56, 56),
        ([BytesCodec(), Crc32cCodec(), intarsia.codecs.OffsetCodec(offset=10)], 64, 64),
        ([intarsia.codecs.PackBitsCodec(last_bit=2)], 10, 16),
    ],
)
def test_fixed_chains_have_the_size_that_they_really_encode_to(tmp_path, codecs, nbytes, slot):
    found = bound(codecs)
    assert found == EncodedBound(nbytes, fixed=True)
    assert found.slot == slot
    array = fleet.make_array(
        tmp_path, shape=(10, 10), chunks=(5, 5), shards=(10, 10), codecs=codecs, dtype="u2"
    )
    intarsia.shards.slotted(array)[0:5, 0:5] = 3
    assert intarsia.shards.slot_stats(array).bytes_used == nbytes


def nested(*codecs, shape=(1, 5)):
    return ShardingCodec(chunk_shape=shape, codecs=codecs)


CONDITIONAL = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()])
INDEX = 16 * 5 + 4


@pytest.mark.parametrize(
    ("codecs", "dtype", "nbytes"),
    [
        ([nested(BytesCodec())], "u2", 50 + INDEX),
        ([nested(BytesCodec(), CONDITIONAL, Crc32cCodec()), CONDITIONAL], "u2", 5 * 15 + INDEX + 1),
        ([nested(nested(BytesCodec(), shape=(1, 1)))], "u2", 5 * (10 + INDEX) + INDEX),
        ([NullableCodec()], optional_dtype("uint16"), 16 + 4 + 50),
        (
            [
                NullableCodec(
                    mask_codecs=[BytesCodec(), Crc32cCodec()], data_codecs=[BytesCodec(), CONDITIONAL]
                )
            ],
            optional_dtype("uint16"),
            16 + 25 + 4 + 50 + 1,
        ),
        ([NullableCodec()], optional_dtype("uint16", depth=2), 16 + 4 + 16 + 4 + 50),
        ([nested(NullableCodec())], optional_dtype("uint16"), 5 * (16 + 1 + 10) + INDEX),
    ],
)
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_chunks_with_parts_have_the_size_of_their_largest_parts(tmp_path, codecs, dtype, nbytes):
    assert bound(codecs, dtype) == EncodedBound(nbytes, fixed=False)
    array = fleet.make_array(
        tmp_path, shape=(10, 10), chunks=(5, 5), shards=(10, 10), codecs=codecs, dtype=dtype
    )
    intarsia.shards.slotted(array)[0:5, 0:5] = 3  # no nulls, nothing left out: the largest
    assert intarsia.shards.slot_stats(array).bytes_used == nbytes


def test_what_has_no_bound_inside_is_named():
    with pytest.raises(intarsia.errors.NoSlotBoundError, match="'zstd'"):
        bound([nested(BytesCodec(), ZstdCodec())])
    with pytest.raises(intarsia.errors.NoSlotBoundError, match="'gzip'"):
        bound(
            [NullableCodec(data_codecs=[BytesCodec(), GzipCodec()])],
            optional_dtype("uint16"),
        )
    with pytest.raises(intarsia.errors.NoSlotBoundError, match="string differ in size"):
        bound([NullableCodec()], optional_dtype("str"))


@pytest.mark.parametrize("decision", [None, "compress_if_smaller", "always_apply", lambda codec: True])
def test_a_conditional_codec_adds_its_header_whatever_decides(decision):
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()], header_bits=16, decision=decision)
    assert bound([BytesCodec(), codec, Crc32cCodec()]) == EncodedBound(56, fixed=False)


@pytest.mark.parametrize("codec", [ZstdCodec(), GzipCodec(), zarr.codecs.BloscCodec()])
def test_a_compressor_is_named_with_what_to_do(codec):
    with pytest.raises(
        intarsia.errors.NoSlotBoundError, match=r"unlimited amount.*\n.*ConditionalCodec.*compress later"
    ):
        bound([BytesCodec(), codec])


def test_what_cannot_be_nested_is_not_told_to_be():
    delta = zarr.codecs.numcodecs.Delta(dtype="<u2")
    with pytest.raises(
        intarsia.errors.NoSlotBoundError, match=r"delta(.|\n)*only bytes -> bytes codecs can be"
    ):
        bound([delta, BytesCodec()])


def test_elements_of_different_sizes_have_no_bound():
    with pytest.raises(intarsia.errors.NoSlotBoundError, match="differ in size"):
        bound([zarr.codecs.VLenUTF8Codec()], dtype="str")


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_codecs_in_nested_shards_are_not_told_a_wrong_index(tmp_path, our_pipeline):
    pad = intarsia.codecs.PadCodec(
        location="start", nbytes=2, padding_func=lambda encoded, chunk_index: bytes(chunk_index)
    )
    nested = ShardingCodec(chunk_shape=(1, 1), codecs=[BytesCodec(), pad])
    array = fleet.make_array(tmp_path, shape=(8, 8), chunks=(2, 2), shards=(4, 4), codecs=(nested,))
    with pytest.raises(intarsia.errors.ChunkIndexUnknownError):
        intarsia.shards.slotted(array)[2:4, 6:8] = 1
    array[4:5, 7:8] = 1  # plain zarr tells it


def test_a_nested_shard_is_byte_for_byte_what_zarr_writes(tmp_path):
    inner = ShardingCodec(chunk_shape=(1, 2), codecs=fleet.CHECKED, index_location="start")
    values = np.arange(64).reshape(8, 8) // 3
    arrays = [
        fleet.make_array(tmp_path / name, shape=(8, 8), chunks=(4, 4), shards=(8, 8), codecs=(inner,))
        for name in "ab"
    ]
    arrays[0][:] = values
    intarsia.shards.slotted(arrays[1])[:] = values
    intarsia.shards.compact(arrays[1])
    assert (tmp_path / "a/c/0/0").read_bytes() == (tmp_path / "b/c/0/0").read_bytes()


def test_damage_in_a_nested_shard_names_the_chunk(tmp_path, our_pipeline):
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()])
    nested = ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec(), codec])
    array = fleet.make_array(tmp_path, shape=16, chunks=4, shards=16, codecs=(nested,), dtype="u1")
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    shard = (tmp_path / "c/0").read_bytes()
    place = shard.index(b"\0\1\1\0\1\1", 1)  # the second inner chunk, and its two chunks
    (tmp_path / "c/0").write_bytes(shard[: place + 3] + b"\7" + shard[place + 4 :])
    with pytest.raises(intarsia.errors.ChunkDecodeError, match=r"inner chunk \(1,\) of the shard"):
        slots[4:8]
    (problem,) = intarsia.verify(array)
    assert "c/0 chunk (1,)" in str(problem)


def always(codec):
    return True


NOISE = np.random.default_rng(0).integers(0, 256, 4000, dtype="u1")


def deciding(decision=always, depth=1):
    """A `conditional` codec, in others of its kind."""
    codec = ZstdCodec(level=1)
    for _ in range(depth):
        codec = intarsia.codecs.ConditionalCodec(codecs=[codec], decision=decision)
    return codec


DECIDING = {
    "nested shards": (ShardingCodec(chunk_shape=(500,), codecs=[BytesCodec(), deciding()]),),
    "conditional in conditional": (BytesCodec(), deciding(depth=3)),
    "two in a row": (BytesCodec(), deciding(), deciding()),
    "conditional in conditional in nested shards": (
        ShardingCodec(chunk_shape=(250,), codecs=[BytesCodec(), deciding(depth=2)]),
        deciding(),
    ),
}


@pytest.mark.parametrize("codecs", DECIDING.values(), ids=DECIDING)
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_what_decisions_make_too_large_at_any_depth_is_stored_raw(tmp_path, codecs):
    array = fleet.make_array(tmp_path, shape=4000, chunks=1000, shards=4000, codecs=codecs, dtype="u1")
    slots = intarsia.shards.slotted(array)
    values = NOISE.copy()
    values[1000:2000] = 7
    slots[:] = values
    slots[3900:] = 1
    values[3900:] = 1
    assert np.array_equal(array[:], values)
    largest = slots.metadata.codecs[0].slot_settings(slots_spec(slots)).bound.nbytes
    stats = intarsia.shards.slot_stats(array)
    assert stats.slotted == 1
    assert 2900 < stats.bytes_used < 3 * largest + 300  # one of four was compressed
    assert intarsia.verify(array) == ()


def slots_spec(array):
    return intarsia.shards.handle.ShardedArray(array).shard_spec


def nullable_array(path, decision=None, **more):
    codec = intarsia.nullable.NullableCodec(
        mask_codecs=[intarsia.codecs.PackBitsCodec(), deciding(decision)],
        data_codecs=[BytesCodec(), deciding(decision)],
    )
    return fleet.make_array(
        path, shape=4000, chunks=1000, shards=4000, codecs=(codec,), dtype=optional_dtype("uint8"), **more
    )


def test_nullable_chunks_have_slots_for_any_number_of_nulls(tmp_path, our_pipeline):
    array = nullable_array(tmp_path, always, fill_value=0)  # so that chunks of nulls are stored
    slots = intarsia.shards.slotted(array)
    expected = np.ma.masked_array(NOISE.copy(), mask=np.zeros(4000, dtype=bool))
    expected[0:1000] = np.ma.masked
    expected[1000:2000:2] = np.ma.masked
    slots[:] = expected
    slots[2500:3500:3] = np.ma.masked_array(np.ones(334, dtype="u1"), mask=np.arange(334) % 2 == 0)
    expected[2500:3500:3] = np.ma.masked_array(np.ones(334, dtype="u1"), mask=np.arange(334) % 2 == 0)
    for reader in (slots, array, zarr.open_array(tmp_path)):
        found = reader[:].masked()
        assert np.array_equal(found.mask, expected.mask)
        assert np.array_equal(found.compressed(), expected.compressed())
    assert intarsia.shards.slot_stats(array).slots_used == 4
    assert intarsia.verify(array) == ()


def test_compaction_decides_anew_in_both_parts_of_nullable_data(tmp_path):
    array = nullable_array(tmp_path)
    slots = intarsia.shards.slotted(array)
    slots[:] = np.ma.masked_array(np.full(4000, 7, dtype="u1"), mask=np.arange(4000) < 2000)
    before = intarsia.shards.slot_stats(array).bytes_used
    intarsia.shards.compact(slots, decision="compress_if_smaller")
    assert intarsia.shards.slot_stats(array).bytes_used < before / 10
    found = array[:].masked()
    assert found.mask.sum() == 2000
    assert (found.compressed() == 7).all()
    slots[0:5] = 3  # and it gets slots again
    assert (array[0:5].masked() == 3).all()
