"""The optional codec: its bytes, its configuration, and damaged chunks."""

import json
import struct
import tracemalloc

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer.cpu import Buffer
from zarr.registry import get_codec_class

from intarsia import nullable
from intarsia.codecs import ConditionalCodec, PackBitsCodec
from intarsia.errors import ChunkDecodeError, CodecConfigurationError
from intarsia.nullable import NULL, NullableCodec, NullableValues, Some, optional_dtype

BYTES = [{"name": "bytes"}]
DATA = [1, None, 3, None, None, 6]


def stored(array):
    return array.zarr_array.store_path.store._store_dict["c/0"].to_bytes()


def store(array, raw):
    array.zarr_array.store_path.store._store_dict["c/0"] = Buffer.from_bytes(raw)


def created(data=DATA, **options):
    return nullable.create_array({}, data=data, **({"compressors": None} | options))


def framed(mask, data, mask_length=None, data_length=None):
    lengths = (
        len(mask) if mask_length is None else mask_length,
        len(data) if data_length is None else data_length,
    )
    return struct.pack("<QQ", *lengths) + mask + data


# -- the bytes


def test_a_chunk_is_two_lengths_the_mask_and_the_present_values(pipeline):
    array = created(np.ma.masked_equal(np.array([1, 9, 3, 9, 9, 6], dtype="i2"), 9))
    values = np.array([1, 3, 6], dtype="<i2").tobytes()
    assert stored(array) == framed(bytes([0b100101]), values)


def test_big_endian_and_mask_as_bytes(pipeline):
    array = created(
        np.ma.masked_equal(np.array([1, 9], dtype="i4"), 9), mask_codecs=BYTES,
        data_codecs=[{"name": "bytes", "configuration": {"endian": "big"}}],
    )  # fmt: skip
    assert stored(array) == framed(b"\1\0", b"\0\0\0\1")


def test_an_all_null_chunk_skips_the_data_codecs(pipeline):
    array = created(
        np.ma.masked_all(6, dtype="i2"), config={"write_empty_chunks": True},
        data_codecs=["gzip", "crc32c"],
    )  # fmt: skip
    assert stored(array) == framed(b"\0", b"")
    assert array[:].tolist() == [None] * 6


def test_values_in_any_memory_order_are_stored_in_that_of_the_chunk(pipeline):
    values = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    data = np.ma.MaskedArray(values, mask=values % 5 == 1)
    for layout in (data, data[::1], np.ma.MaskedArray(np.arange(12.0).reshape(3, 4), mask=data.mask)):
        array = nullable.create_array({}, data=layout, compressors=None)
        raw = array.zarr_array.store_path.store._store_dict["c/0/0"].to_bytes()
        assert raw == framed(
            np.packbits(~data.mask, bitorder="little").tobytes(), data.compressed().tobytes()
        )
        for order in "CF":
            z = array.zarr_array.with_config({"order": order})
            assert z[...].equals(NullableValues.of(data))
            assert z[...].flags.f_contiguous == (order == "F")


def test_values_at_odd_addresses_are_read(pipeline):
    for count in range(1, 40):
        array = created(np.ma.MaskedArray(np.arange(float(count)), mask=np.arange(count) % 3 == 0))
        assert array[:].compressed().tolist() == [x for x in range(count) if x % 3]
    sharded = nullable.create_array({}, shape=100, dtype="float64", chunks=5, shards=50, compressors=None)
    sharded[:] = np.ma.masked_less(np.arange(100.0), 3)
    assert sharded[:].compressed().tolist() == list(range(3, 100))


# -- the configuration


def test_the_name_optional_serves_both_codecs():
    nested = {"name": "optional", "configuration": {"mask_codecs": BYTES, "data_codecs": BYTES}}
    conditional = {"name": "optional", "configuration": {"codecs": [{"name": "crc32c"}]}}
    assert isinstance(get_codec_class("optional").from_dict(nested), NullableCodec)
    assert isinstance(get_codec_class("optional").from_dict(conditional), ConditionalCodec)
    both = {"name": "optional", "configuration": {"codecs": [], "mask_codecs": BYTES, "data_codecs": BYTES}}
    with pytest.raises(CodecConfigurationError, match="unknown field `codecs`"):
        get_codec_class("optional").from_dict(both)


def test_a_conditional_codec_inside_the_optional_one(pipeline):
    array = created(data_codecs=[ConditionalCodec(codecs=["gzip"], decision="always_apply")])
    assert array[:].tolist() == DATA
    assert stored(array)[17:18] == b"\1"


def test_json_round_trips():
    codec = nullable.create_array({}, shape=2, dtype="int16", depth=2).zarr_array.metadata.codecs[0]
    written = json.loads(json.dumps(codec.to_dict()))
    assert NullableCodec.from_dict(written).to_dict() == written
    assert NullableCodec.from_dict(written | {"name": "zarrs.optional"}).name == "zarrs.optional"


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
def test_without_data_codecs_those_of_the_data_type_are_taken():
    for dtype, name in (("int8", "bytes"), ("string", "vlen-utf8"), ("variable_length_bytes", "vlen-bytes")):
        z = zarr.create_array(
            {}, shape=2, dtype=optional_dtype(dtype, 2), serializer=NullableCodec(), compressors=None
        )
        inner = z.metadata.codecs[0].to_dict()["configuration"]["data_codecs"]
        assert inner[0]["configuration"]["data_codecs"][0]["name"] == name
    assert created(["x", None], data_codecs=["gzip"])[:].tolist() == ["x", None]
    with pytest.raises(CodecConfigurationError, match="until the codec meets its data type"):
        NullableCodec().to_dict()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: NullableCodec(name="maybe"), "it is called"),
        (lambda: NullableCodec(data_codecs=[ShardingCodec(chunk_shape=(2,))]), "sharding around 'optional'"),
        (lambda: NullableCodec(mask_codecs=["gzip", "packbits"]), "are no chain"),
        (lambda: NullableCodec.from_dict({"name": "optional", "configuration": {"mask_codecs": BYTES}}),
         "missing required field `data_codecs`"),
        (lambda: NullableCodec.from_dict({"name": "zarrs.optional", "configuration": {"mask_codecs": [],
                                          "data_codecs": BYTES}}), "mask_codecs"),
        (lambda: zarr.create_array({}, shape=2, dtype="i2", serializer=NullableCodec(), compressors=None),
         r"optional data types, not Int16"),
        (lambda: created(["x"], data_codecs=[PackBitsCodec()]), "not .*String"),
        (lambda: created([1], mask_codecs=[PackBitsCodec(last_bit=1)]), "not within the 1 bits"),
    ],
)  # fmt: skip
def test_bad_configurations_are_refused(make, match):
    with pytest.raises(CodecConfigurationError, match=match):
        make()


def test_nested_codecs_check_the_data_they_will_see():
    with pytest.raises(ValueError, match="order"):
        created([[1, 2]], data_codecs=[TransposeCodec(order=(1, 0)), BytesCodec()])
    fine = created([[1, None]], mask_codecs=[TransposeCodec(order=(1, 0)), PackBitsCodec()])
    assert fine[...].tolist() == [[1, None]]


class OnlyAsynchronous(BytesBytesCodec):
    """Turns every bit over; knows nothing of zarr's synchronous calls."""

    is_fixed_size = True

    def to_dict(self):
        return {"name": "over"}

    def compute_encoded_size(self, input_byte_length, chunk_spec):
        return input_byte_length

    async def _encode_single(self, chunk_data, chunk_spec):
        return chunk_spec.prototype.buffer.from_array_like(~chunk_data.as_numpy_array())

    async def _decode_single(self, chunk_data, chunk_spec):
        return chunk_spec.prototype.buffer.from_array_like(~chunk_data.as_numpy_array())


@pytest.mark.parametrize("part", ["mask_codecs", "data_codecs"])
@pytest.mark.parametrize("depth", [1, 2])
def test_codecs_that_need_an_event_loop(part, depth, pipeline):
    codecs = [PackBitsCodec() if part == "mask_codecs" else BytesCodec(), OnlyAsynchronous()]
    array = nullable.create_array({}, shape=6, dtype="int32", depth=depth, compressors=None, **{part: codecs})
    array[:] = DATA
    assert array.read_nullable().tolist() == DATA
    array[:] = [None] * 6
    assert array.read_nullable().tolist() == [None] * 6
    array[:] = DATA
    store(array, stored(array)[:-1])
    with pytest.raises(ChunkDecodeError):
        array[:]


# -- damage

HUGE = 2**62


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "0 bytes.*header alone needs 16"),
        (bytes(15), "15 bytes.*header alone needs 16"),
        (
            framed(b"\x25", bytes(6), mask_length=HUGE),
            f"says {HUGE} bytes of mask and 6 of data, but 7 follow",
        ),
        (framed(b"\x25", bytes(6), data_length=HUGE), "but 7 follow"),
        (framed(b"\x25", bytes(6), mask_length=2**64 - 1, data_length=8), "but 7 follow"),
        (framed(b"\x25", bytes(6), data_length=5), "but 7 follow"),
        (framed(b"\x25\0", bytes(6)), "2 bytes.*need 1"),
        (framed(b"", bytes(6)), "0 bytes"),
        (framed(b"\x25", bytes(4)), "data part: .*'bytes' cannot decode .* size 2 into shape"),
        (framed(b"\x25", bytes(8)), "data part: .*'bytes' cannot decode .* size 4 into shape"),
        (framed(b"\x25", bytes(5)), "data part: .*'bytes' cannot decode"),
        (framed(b"\x27", bytes(6)), "data part: .*'bytes' cannot decode .* size 3 into shape"),
        (framed(b"\x00", bytes(6)), "nothing is present, but there are 6 bytes"),
        (framed(b"\xa5", bytes(6)), "padding bits.* are not zero"),
    ],
)
def test_damaged_frames_are_refused(raw, match, pipeline):
    array = created(np.ma.masked_equal(np.array([1, 9, 3, 9, 9, 6], dtype="i2"), 9))
    store(array, raw)
    with pytest.raises(ChunkDecodeError, match=match):
        array[:]


def test_a_mask_that_is_neither_true_nor_false():
    array = created(np.ma.masked_equal(np.array([1, 9], dtype="i1"), 9), mask_codecs=BYTES)
    store(array, framed(b"\x02\0", b"\1"))
    with pytest.raises(ChunkDecodeError, match="neither true nor false"):
        array[:]


@pytest.mark.parametrize("codec", [GzipCodec(), ZstdCodec()])
def test_a_failing_compressor_is_named(codec, pipeline):
    array = created(data_codecs=[codec])
    raw = stored(array)
    store(array, framed(raw[16:17], b"not compressed"))
    name = codec.to_dict()["name"]
    with pytest.raises(ChunkDecodeError, match=f"data part: codec '{name}' cannot decode"):
        array[:]


def test_counts_of_strings_are_not_believed(pipeline):
    array = created(["a", None, "b"])
    mask, data = stored(array)[16:17], stored(array)[17:]
    for count in (0, 1, 3, 2**32 - 1):
        store(array, framed(mask, struct.pack("<I", count) + data[4:]))
        with pytest.raises(ChunkDecodeError, match=f"says it has {count} elements, but 2 are expected"):
            array[:]
    store(array, framed(mask, b"\2"))
    with pytest.raises(ChunkDecodeError, match="truncated header"):
        array[:]


@pytest.mark.parametrize(
    "raw",
    [
        framed(b"\x25", bytes(6), data_length=HUGE),
        framed(b"\xff" * 8, bytes(6)),
        framed(b"\x3f", struct.pack("<I", 2**32 - 1)),
    ],
)
def test_nothing_large_is_allocated_for_a_damaged_chunk(raw):
    array = created(["a"] * 6)
    store(array, raw)
    tracemalloc.start()
    try:
        with pytest.raises(ChunkDecodeError):
            array[:]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(
    cut=st.integers(0, 200), flips=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 255)), max_size=3)
)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "string"])
def test_damage_is_refused_or_gives_other_data_of_the_same_shape(dtype, depth, cut, flips):
    data = [None, 1.5, 2.5, None] if dtype == "float64" else [None, "a", "bc", None]
    array = nullable.create_array({}, shape=4, dtype=dtype, depth=depth, compressors=None)
    array[:] = data
    raw = bytearray(stored(array)[: cut or None])
    for at, flip in flips:
        raw[at % len(raw)] ^= flip
    store(array, bytes(raw))
    try:
        read = array.read_nullable()
    except ChunkDecodeError:
        return
    assert read.shape == (4,)
    assert read.missing.max(initial=0) <= depth


def test_errors_name_the_chunk(tmp_path):
    array = nullable.create_array(tmp_path, shape=(4, 4), chunks=(2, 2), dtype="int8", compressors=None)
    array[...] = np.arange(16).reshape(4, 4)
    (tmp_path / "c/1/0").write_bytes(b"short")
    for path in ("BatchedPipeline", "FusedPipeline"):
        with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{path}"}):
            opened = nullable.open_array(tmp_path)
            with pytest.raises(ChunkDecodeError, match=r"5 bytes of chunk \(1, 0\)"):
                opened[...]


def test_fill_values_at_every_level():
    for fill in (NULL, Some(NULL), Some(Some(7))):
        z = zarr.create_array(
            {}, shape=4, chunks=2, dtype=optional_dtype("int8", 2), serializer=NullableCodec(),
            compressors=None, fill_value=fill,
        )  # fmt: skip
        assert z.fill_value == fill
        z[0] = fill
        assert z.nchunks_initialized == 0
        z[0] = Some(NULL) if fill is NULL else NULL
        assert z.nchunks_initialized == 1
        assert z[1].item() == (7 if fill == Some(Some(7)) else fill)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.parametrize(
    "name",
    ["blosc", "gzip", "zstd", "crc32c", "conditional", "numcodecs.lz4", "numcodecs.bz2", "numcodecs.zlib",
     "numcodecs.lzma", "numcodecs.zstd", "numcodecs.fletcher32"],
)  # fmt: skip
def test_compressors_within_and_around(name, where, pipeline):
    codec = {"name": name, "configuration": {"codecs": ["gzip"]} if name == "conditional" else {}}
    if where == "inside":
        codecs = {"mask_codecs": ["packbits", codec], "data_codecs": [codec]}
        array = nullable.create_array({}, shape=200, chunks=64, dtype="float32", **codecs)
    else:
        z = zarr.create_array(
            {}, shape=200, chunks=64, dtype=optional_dtype("float32"), serializer=NullableCodec(),
            compressors=[get_codec_class(name).from_dict(codec)],
        )  # fmt: skip
        array = nullable.NullableArray(z)
    data = np.ma.masked_equal(np.arange(200, dtype="f4") % 7, 3)
    array[:] = data
    assert array.read_nullable().equals(NullableValues.of(data))
    array[10:150:3] = None
    data[10:150:3] = np.ma.masked
    assert array.read_nullable().equals(NullableValues.of(data))


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_filters_of_numcodecs_see_present_values_only(pipeline):
    delta = {"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    data = [5, None, 7, None, 11]
    inside = nullable.create_array({}, shape=5, dtype="int32", data_codecs=[delta, little], compressors=None)
    inside[:] = data
    assert inside[:].tolist() == data
    assert stored(inside)[17:] == np.array([5, 2, 4], dtype="<i4").tobytes()
    outside = nullable.create_array({}, shape=5, dtype="int32", filters=[delta], compressors=None)
    outside[:] = data
    assert outside[:].tolist() == data
    assert stored(outside) == stored(inside)
