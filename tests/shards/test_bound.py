"""How large an encoded chunk can get."""

import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

import intarsia
from intarsia.nullable import NullableCodec, optional_dtype
from intarsia.shards.array import ShardedArray
from intarsia.shards.bound import EncodedBound, encoded_bound
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
    return encoded_bound(array.metadata.codecs[0].codecs, ShardedArray(array).chunk_spec, **more)


@pytest.mark.parametrize(
    ("codecs", "nbytes", "slot", "checksum"),
    [
        ([BytesCodec()], 50, 56, False),
        ([BytesCodec(), Crc32cCodec()], 54, 56, True),
        ([TransposeCodec(order=(1, 0)), BytesCodec()], 50, 56, False),
        ([BytesCodec(), intarsia.PadCodec(location="end", nbytes=6)], 56, 56, False),
        ([BytesCodec(), Crc32cCodec(), intarsia.OffsetCodec(offset=10)], 64, 64, True),
        ([intarsia.PackBitsCodec(last_bit=2)], 10, 16, False),
    ],
)
def test_fixed_chains_have_the_size_that_they_really_encode_to(tmp_path, codecs, nbytes, slot, checksum):
    found = bound(codecs)
    assert found == EncodedBound(nbytes, fixed=True, checksum=checksum)
    assert found.slot == slot
    array = fleet.make_array(
        tmp_path, shape=(10, 10), chunks=(5, 5), shards=(10, 10), codecs=codecs, dtype="u2"
    )
    intarsia.slotted(array)[0:5, 0:5] = 3
    assert intarsia.slot_stats(array).bytes_used == nbytes


def nested(*codecs, shape=(1, 5)):
    return ShardingCodec(chunk_shape=shape, codecs=codecs)


CONDITIONAL = intarsia.ConditionalCodec(codecs=[ZstdCodec()])
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
    assert bound(codecs, dtype) == EncodedBound(nbytes, fixed=False, checksum=False)
    array = fleet.make_array(
        tmp_path, shape=(10, 10), chunks=(5, 5), shards=(10, 10), codecs=codecs, dtype=dtype
    )
    intarsia.slotted(array)[0:5, 0:5] = 3  # no nulls, nothing left out: the largest
    assert intarsia.slot_stats(array).bytes_used == nbytes


def test_only_a_checksum_over_all_parts_shows_that_some_are_old():
    assert not bound([nested(BytesCodec(), Crc32cCodec())]).checksum
    assert bound([nested(BytesCodec()), Crc32cCodec()]).checksum


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
    codec = intarsia.ConditionalCodec(codecs=[ZstdCodec()], header_bits=16, decision=decision)
    assert bound([BytesCodec(), codec, Crc32cCodec()]) == EncodedBound(56, fixed=False, checksum=True)


@pytest.mark.parametrize("codec", [ZstdCodec(), GzipCodec(), zarr.codecs.BloscCodec()])
def test_a_compressor_is_named_with_what_to_do(codec):
    with pytest.raises(
        intarsia.errors.NoSlotBoundError, match=r"nothing limits.*\n.*ConditionalCodec.*compress later"
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
