"""The `conditional` codec: its format, by a second reader; its bound; its errors."""

import json
import pickle
import zlib
from dataclasses import replace

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs.numcodecs import LZ4, Zlib
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import Float64, UInt8

from intarsia.codecs import ConditionalCodec, PadCodec, ShuffleCodec, with_decision
from intarsia.codecs.base import address_of
from intarsia.codecs.context import working_on
from intarsia.errors import ChunkDecodeError, CodecConfigurationError
from tests.referees import conditional_format

LITTLE = BytesCodec(endian="little")
BOUNDING = ["compress_if_smaller", "never_apply", "smallest", "sampled"]

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")


def spec_of(size, config=None):
    config = config or ArrayConfig.from_dict({})
    return ArraySpec((size,), UInt8(), np.uint8(0), config, default_buffer_prototype())


def encode(codec, data, index=None):
    spec = spec_of(len(data))
    with working_on(index):
        return codec._encode_sync(spec.prototype.buffer.from_bytes(data), spec).to_bytes()


def decode(codec, data, index=None):
    spec = spec_of(len(data))
    with working_on(index):
        return codec._decode_sync(spec.prototype.buffer.from_bytes(data), spec).to_bytes()


def read_by_another(codec, stored):
    return conditional_format.conditional(json.loads(json.dumps(codec.to_dict()))["configuration"], stored)


CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "three bytes": b"abc",
    "constant": bytes(5000),
    "text": b"the same words again and again, " * 200,
    "random": np.random.default_rng(0).bytes(5000),
    "already compressed": zlib.compress(
        np.random.default_rng(1).integers(0, 9, 20_000).astype("u1").tobytes(), 9
    ),
    "smooth floats": np.sin(np.linspace(0, 3, 2000)).astype("f4").tobytes(),
}

NESTED = {
    "nothing": [],
    "zstd": [ZstdCodec(level=5)],
    "shuffle, zstd": [ShuffleCodec(element_size=4), ZstdCodec(level=5)],
    "gzip, crc32c": [GzipCodec(), Crc32cCodec()],
    "blosc": [BloscCodec(typesize=4, shuffle="shuffle")],
    "numcodecs": [LZ4(), Zlib(level=9)],
    "pad": [PadCodec(location="end", nbytes=3, padding=b"end")],
    "itself": [ConditionalCodec(codecs=[ShuffleCodec(element_size=2), ZstdCodec()]), GzipCodec()],
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("decision", [None, "always_apply", *BOUNDING])
def test_round_trip_bound_and_header(content, nested, decision):
    data, codecs = CONTENTS[content], NESTED[nested]
    if decision == "always_apply" and len(data) % 4 and nested in ("shuffle, zstd", "itself"):
        pytest.skip("shuffle cannot be applied to these bytes")
    codec = ConditionalCodec(codecs=codecs, decision=decision)
    stored = encode(codec, data)
    mask, again = read_by_another(codec, stored)
    assert again == data == decode(codec, stored)
    if decision in (None, "never_apply"):
        assert mask == 0
    if decision == "always_apply":
        assert mask == ((1 << len(codecs)) - 1 if data else 0)  # an empty chunk has nothing to compress
    if decision in BOUNDING:
        assert len(stored) <= len(data) + codec.header_bytes


@pytest.mark.parametrize("number", [1, 8, 9, 64])
@pytest.mark.parametrize("spare", [0, 8, 64])
def test_the_bitmask_is_little_endian_and_has_a_bit_for_each_codec(number, spare):
    needed = -(-number // 8) * 8
    codec = ConditionalCodec(
        codecs=[Crc32cCodec()] * number,
        header_bits=needed + spare,
        decision=lambda codec_index: codec_index % 3 == 0,
    )
    stored = encode(codec, b"data")
    mask = sum(1 << i for i in range(0, number, 3))
    assert stored[: (needed + spare) // 8] == mask.to_bytes((needed + spare) // 8, "little")
    assert decode(codec, stored) == b"data"
    assert read_by_another(codec, stored) == (mask, b"data")
    assert ConditionalCodec(codecs=[Crc32cCodec()] * number).header_bits == needed


def test_nothing_nested_means_no_header():
    codec = ConditionalCodec(codecs=[])
    assert codec.header_bits == 0
    assert encode(codec, b"abc") == b"abc" == decode(codec, b"abc")
    spacious = ConditionalCodec(codecs=[], header_bits=16, decision="always_apply")
    assert encode(spacious, b"abc") == b"\0\0abc"


def test_decoding_goes_in_reverse():
    codec = ConditionalCodec(
        codecs=[ShuffleCodec(element_size=2), GzipCodec(), ZstdCodec()], decision="always_apply"
    )
    assert decode(codec, encode(codec, b"abcdefgh" * 100)) == b"abcdefgh" * 100


COMPRESSORS = st.sampled_from(
    [
        ZstdCodec(level=1),
        ZstdCodec(level=3, checksum=True),
        GzipCodec(level=1),
        LZ4(),
        BloscCodec(typesize=1),
        Zlib(),
    ]
)
CHANGERS = st.sampled_from(
    [
        ShuffleCodec(element_size=1),
        ShuffleCodec(element_size=2),
        Crc32cCodec(),
        PadCodec(location="start", nbytes=2),
    ]
)
CHAINS = st.lists(COMPRESSORS | CHANGERS, max_size=10)


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(["u1", "i2", "f4", "f8", "bool", "c8"])))
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["noise", "constant", "few"]))
    if kind == "noise":
        values = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype="u1")
    else:
        values = rng.integers(1, 2 if kind == "constant" else 4, int(np.prod(shape)) * dtype.itemsize).astype(
            "u1"
        )
    if dtype.kind == "b":
        values = values & 1
    if dtype.kind in "fc":  # comparing some kinds of NaN is a warning in NumPy; this bit makes numbers of all
        word = np.uint64 if dtype == "f8" else np.uint32
        values = (values.view(word) & ~word(1 << (62 if dtype == "f8" else 30))).view("u1")
    return values.view(dtype).reshape(shape), chunks


@given(
    array=arrays(),
    nested=CHAINS,
    spare=st.sampled_from([0, 8, 24]),
    sharded=st.booleans(),
    pipeline=st.sampled_from(["Batched", "Fused"]),
    after=st.sampled_from([[], [Crc32cCodec()]]),
    data=st.data(),
)
def test_any_pipeline_shape_and_type(array, nested, spare, sharded, pipeline, after, data):
    values, chunks = array
    grid = tuple(-(-n // m) for n, m in zip(values.shape, chunks, strict=True))
    plan = np.array(
        data.draw(
            st.lists(
                st.integers(0, (1 << len(nested)) - 1),
                min_size=int(np.prod(grid)),
                max_size=int(np.prod(grid)),
            )
        ),
        dtype="u8",
    ).reshape(grid)
    decision = data.draw(st.sampled_from([*BOUNDING, "plan"]))
    nested = [
        c for c in nested if not isinstance(c, ShuffleCodec) or c.element_size == 1 or decision != "plan"
    ]
    plan &= (1 << len(nested)) - 1
    header_bits = -(-len(nested) // 8) * 8 + spare
    codec = ConditionalCodec(
        codecs=nested, header_bits=header_bits, decision=plan if decision == "plan" else decision
    )
    codecs = [LITTLE, codec, *after]
    if sharded:
        codecs = [ShardingCodec(chunk_shape=chunks, codecs=codecs)]
    store = zarr.storage.MemoryStore()
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{pipeline}Pipeline"}):
        z = zarr.create(
            store=store, shape=values.shape, chunks=tuple(2 * n for n in chunks) if sharded else chunks,
            dtype=values.dtype, codecs=codecs, config={"write_empty_chunks": not sharded},
        )  # fmt: skip
        z[...] = values
        again = zarr.open_array(store=store, mode="r")
        assert again[...].tobytes() == values.tobytes()
    if not sharded:
        raw = int(np.prod(chunks)) * values.dtype.itemsize
        for index in np.ndindex(grid):
            stored = store._store_dict[z.metadata.encode_chunk_key(index)].to_bytes()
            stored = conditional_format.crc32c_decode(stored) if after else stored
            mask, content = read_by_another(z.metadata.codecs[1], stored)
            assert len(content) == raw
            if decision == "plan":
                assert mask == plan[index]
            else:
                assert len(stored) <= raw + header_bits // 8


def test_metadata_that_grew_by_a_codec_leaves_old_chunks_readable(tmp_path, pipeline):
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision="always_apply")
    z = zarr.create(store=tmp_path / "a", shape=200, chunks=100, dtype="u2", codecs=[LITTLE, codec])
    z[:100] = np.arange(100)
    document = json.loads((tmp_path / "a/zarr.json").read_text())
    document["codecs"][1]["configuration"]["codecs"].append({"name": "crc32c"})
    (tmp_path / "a/zarr.json").write_text(json.dumps(document))
    grown = with_decision(zarr.open_array(tmp_path / "a", mode="r+"), "always_apply")
    grown[100:] = np.arange(100, 200)
    np.testing.assert_array_equal(grown[:], np.arange(200))
    assert [(tmp_path / f"a/c/{i}").read_bytes()[0] for i in range(2)] == [0b01, 0b11]


@pytest.mark.parametrize("name", ["conditional", "optional"])
@pytest.mark.parametrize("bits", [None, 8, 16])
def test_zarr_json_holds_what_was_given_and_nothing_of_the_decision(name, bits, tmp_path):
    fields = {"codecs": [{"name": "zstd", "configuration": {"level": 5, "checksum": False}}]}
    if bits is not None:
        fields["header_bits"] = bits
    codec = ConditionalCodec(name=name, configuration=fields, decision="smallest")
    z = zarr.create(store=tmp_path / "a", shape=20, dtype="u1", codecs=[LITTLE, codec])
    z[:] = 3
    stored = json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1]
    assert stored == {"name": name, "configuration": fields}
    again = zarr.open_array(tmp_path / "a", mode="r+")
    again.attrs["note"] = "rewrites zarr.json"
    assert json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1] == stored
    assert again.metadata.codecs[1] == codec
    assert again.metadata.codecs[1].decision is None
    assert (again[:] == 3).all()


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"header_bits": 7}, "multiple of 8 - at `..header_bits`"),
        ({"header_bits": 0}, "0 must be .* at least the number of codecs, which is 9; .* is 16"),
        ({"header_bits": 8}, "8 must be .* at least the number of codecs"),
        ({"header_bits": -8}, "Expected `int` >= 0 - at `..header_bits`"),
        ({"header_bits": "16"}, "Expected `int`.* - at `..header_bits`"),
        ({"header_bits": 16.0}, "Expected `int`.* - at `..header_bits`"),
        ({"header_bits": True}, "Expected `int`.* - at `..header_bits`"),
        ({"codecs": [BytesCodec()]}, r"codecs\[0\] is BytesCodec\(.*only bytes -> bytes"),
        (
            {"codecs": [ZstdCodec(), TransposeCodec(order=(0,))]},
            r"codecs\[1\] is .*Transpose.*only bytes -> bytes",
        ),
        ({"codecs": [7]}, "7 is not a codec"),
        ({"codecs": None}, "codecs is missing"),
        ({"name": "maybe"}, "cannot be called 'maybe'"),
        ({"configuration": {"codecs": []}}, "but not both"),
        ({"codecs": None, "configuration": {}}, "missing required field `codecs`"),
        ({"codecs": None, "configuration": {"codecs": [], "more": 1}}, "unknown field `more`"),
        (
            {"codecs": None, "configuration": {"codecs": [], "header_bits": 7}},
            "multiple of 8 - at `..header_bits`",
        ),
        (
            {"decision": "sometimes"},
            "no decision called 'sometimes'; choose from always_apply, compress_if_smaller",
        ),
        ({"decision": 3.5}, "3.5 is not a decision"),
        ({"decision": [0.5]}, "array of integers, got an array of float64"),
        ({"decision": [-1]}, "negative"),
        ({"trial_encode": True}, "trial_encode belongs to a decision_function"),
        ({"decision": "smallest", "decision_function": lambda: True}, "mean the same: give one"),
    ],
)
def test_a_bad_configuration_is_refused_when_the_codec_is_made(fields, match):
    with pytest.raises(CodecConfigurationError, match=match):
        ConditionalCodec(**{"codecs": [Crc32cCodec()] * 9} | fields)


@pytest.mark.parametrize(
    ("configuration", "match"),
    [
        ({}, "missing required field `codecs`"),
        ({"codecs": "zstd"}, "Expected `array`, got `str` - at `..codecs`"),
        ({"codecs": [{"configuration": {}}]}, "codecs"),
        ({"codecs": [], "header_bits": 4}, "multiple of 8 - at `..header_bits`"),
        ({"codecs": [], "header_bits": "8"}, "Expected `int`.* - at `..header_bits`"),
        (
            {"codecs": [{"name": "crc32c"}], "header_bits": 0},
            "header_bits: 0 must be a multiple of 8 and at least",
        ),
        ({"codecs": [{"name": "bytes"}]}, "'bytes'.* only bytes -> bytes"),
    ],
)
def test_a_bad_zarr_json_is_refused_when_the_array_is_opened(configuration, match, tmp_path):
    z = zarr.create(store=tmp_path / "a", shape=4, dtype="u1", codecs=[LITTLE, ConditionalCodec(codecs=[])])
    z[:] = 1
    document = json.loads((tmp_path / "a/zarr.json").read_text())
    document["codecs"][1]["configuration"] = configuration
    (tmp_path / "a/zarr.json").write_text(json.dumps(document))
    with pytest.raises(CodecConfigurationError, match=match):
        zarr.open_array(tmp_path / "a")


@pytest.mark.parametrize(
    ("stored", "match"),
    [
        (b"", r"0 bytes of chunk \(1,\) are fewer than the 1 bytes of the header"),
        (b"\x04abc", r"header of chunk \(1,\) says 0b100, but there are only 2 nested codecs"),
        (b"\x80", "says 0b10000000"),
        (b"\x02garbage", r"nested codec 'zstd' cannot decode the data of chunk \(1,\)"),
        (b"\x01abc", r"codec 'shuffle': 3 bytes of chunk \(1,\)"),
        (b"\x03garbage", "nested codec 'zstd'"),
        (b"\x02", r"nested codec 'zstd' cannot decode the data"),
    ],
)
def test_damage_is_an_error_that_names_codec_and_chunk(stored, match, tmp_path, our_pipeline):
    codec = ConditionalCodec(codecs=[ShuffleCodec(element_size=2), ZstdCodec()])
    z = zarr.create(store=tmp_path / "a", shape=8, chunks=4, dtype="u1", codecs=[LITTLE, codec])
    z[:] = 1
    (tmp_path / "a/c/1").write_bytes(stored)
    with pytest.raises(ChunkDecodeError, match=match):
        z[:]
    assert (z[:4] == 1).all()


def test_a_truncated_long_header_is_an_error():
    codec = ConditionalCodec(codecs=[Crc32cCodec()], header_bits=64)
    with pytest.raises(ChunkDecodeError, match="7 bytes are fewer than the 8 bytes of the header"):
        decode(codec, bytes(7))


def test_the_encoded_size_is_not_known_beforehand():
    with pytest.raises(NotImplementedError):
        ConditionalCodec(codecs=[ZstdCodec()]).compute_encoded_size(100, spec_of(100))


def test_nested_codecs_learn_about_the_array():
    codec = ConditionalCodec(codecs=[BloscCodec(typesize=None, shuffle=None)], decision="always_apply")
    z = zarr.create(store={}, shape=20, dtype="f8", codecs=[LITTLE, codec])
    evolved = z.metadata.codecs[1]
    assert evolved.codecs[0].typesize == 8
    assert evolved.decision == codec.decision
    z[:] = np.arange(20)
    np.testing.assert_array_equal(z[:], np.arange(20))


def test_nested_codecs_are_validated():
    class Refusing(Crc32cCodec):
        def validate(self, **_):
            raise ValueError("not for this array")

    with pytest.raises(ValueError, match="not for this array"):
        zarr.create(store={}, shape=4, dtype="u1", codecs=[LITTLE, ConditionalCodec(codecs=[Refusing()])])


class OnlyAsynchronous(BytesBytesCodec):
    """A codec as others may write it: nothing but coroutines."""

    @classmethod
    def from_dict(cls, data):
        return cls()

    def to_dict(self):
        return {"name": "tests.backwards"}

    def compute_encoded_size(self, input_byte_length, chunk_spec):
        return input_byte_length

    async def _encode_single(self, chunk_data, chunk_spec):
        return chunk_spec.prototype.buffer.from_bytes(chunk_data.to_bytes()[::-1])

    async def _decode_single(self, chunk_data, chunk_spec):
        return chunk_spec.prototype.buffer.from_bytes(chunk_data.to_bytes()[::-1])


@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_nested_codecs_may_be_asynchronous(sharded, our_pipeline):
    zarr.registry.register_codec("tests.backwards", OnlyAsynchronous)
    chain = [
        LITTLE,
        ConditionalCodec(codecs=[OnlyAsynchronous()], decision=lambda chunk_index: chunk_index[0] % 2),
    ]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(4,), codecs=chain)]
    store = zarr.storage.MemoryStore()
    z = zarr.create(store=store, shape=16, chunks=8 if sharded else 4, dtype="u1", codecs=chain)
    z[:] = np.arange(1, 17)
    np.testing.assert_array_equal(z[:], np.arange(1, 17))
    if not sharded:
        assert store._store_dict["c/1"].to_bytes() == b"\x01\x08\x07\x06\x05"


@pytest.mark.parametrize("header_bits", [8, 64])
def test_raw_chunks_are_aligned_for_codecs_that_care(header_bits):
    """`cast_value`, for one, panics on numbers at odd addresses."""
    codec = ConditionalCodec(codecs=[ZstdCodec()], header_bits=header_bits)
    spec = replace(spec_of(10), dtype=Float64())
    stored = np.empty(80 + header_bits // 8, dtype="u1")
    stored[: header_bits // 8] = 0
    decoded = codec._decode_sync(spec.prototype.buffer.from_array_like(stored), spec).as_numpy_array()
    assert decoded.view("f8").flags.aligned
    assert np.shares_memory(decoded, stored) == (header_bits == 64)  # no copy where none is needed


@pytest.mark.parametrize("codec", [ConditionalCodec(codecs=["zstd"]), PadCodec(nbytes=3)])
def test_numbers_at_odd_addresses_are_not_copied_where_nobody_works_on_them(codec, pipeline):
    z = zarr.create(store={}, shape=10, dtype="f8", codecs=[BytesCodec(), codec])
    z[:] = data = np.arange(10.0)
    ours = z._async_array.codec_pipeline.bytes_bytes_codecs[0]
    spec = replace(spec_of(10), dtype=Float64())
    stored = codec._encode_sync(spec.prototype.buffer.from_bytes(data.tobytes()), spec).as_numpy_array()
    odd = np.empty(stored.size + 8, dtype="u1")
    odd = odd[-address_of(odd) % 8 :][: stored.size]
    odd[:] = stored
    decoded = ours._decode_sync(spec.prototype.buffer.from_array_like(odd), spec).as_numpy_array()
    assert np.shares_memory(decoded, odd) == (not pipeline.startswith("zarr"))
    np.testing.assert_array_equal(decoded.view("f8"), data)
    np.testing.assert_array_equal(z[2:7], data[2:7])
    assert ours == codec


def test_a_raw_chunk_behind_an_odd_header_passes_through_cast_value(pipeline):
    cast = {"name": "cast_value", "configuration": {"data_type": "int32", "rounding": "nearest-even"}}
    codec = ConditionalCodec(codecs=[ZstdCodec()])
    z = zarr.create(store={}, shape=100, chunks=50, dtype="float64", codecs=[cast, LITTLE, codec])
    z[:] = np.arange(100)
    np.testing.assert_array_equal(z[:], np.arange(100))


def test_pickling_keeps_the_decision():
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision="smallest")
    copy = pickle.loads(pickle.dumps(codec))
    assert copy == codec
    assert hash(copy) == hash(codec)
    assert copy.decision == codec.decision
    assert copy.with_decision(None).decision is None


def test_inside_a_conditional_codec_another_one_decides_by_the_same_name():
    inner = ConditionalCodec(codecs=[ZstdCodec()])
    outer = ConditionalCodec(codecs=[inner], decision="compress_if_smaller")
    stored = encode(outer, bytes(1000))
    assert stored[:2] == b"\x01\x01"
    assert len(stored) < 30


def test_inside_a_conditional_codec_a_decision_of_its_own_comes_first():
    inner = ConditionalCodec(codecs=[Crc32cCodec()], decision="always_apply")
    outer = ConditionalCodec(codecs=[inner], decision=lambda codec: codec.name == "conditional")
    assert encode(outer, b"abcd")[:2] == b"\x01\x01"
    undecided = ConditionalCodec(codecs=[Crc32cCodec()])
    assert encode(ConditionalCodec(codecs=[undecided], decision=lambda: True), b"abcd") == b"\x01\x00abcd"


@pytest.mark.parametrize("sharded", [False, True])
def test_a_nested_codec_that_fails_while_writing_is_named_with_the_chunk(sharded, our_pipeline, monkeypatch):
    encode_gzip = GzipCodec._encode_sync

    def fail_on_threes(self, data, spec):
        if data.to_bytes() == b"\x03":
            raise RuntimeError("no threes")
        return encode_gzip(self, data, spec)

    monkeypatch.setattr(GzipCodec, "_encode_sync", fail_on_threes)
    chain = [BytesCodec(), ConditionalCodec(codecs=[GzipCodec()], decision="always_apply")]
    codecs = [ShardingCodec(chunk_shape=(1,), codecs=chain)] if sharded else chain
    z = zarr.create(store={}, shape=6, chunks=3 if sharded else 1, dtype="u1", codecs=codecs)
    with pytest.raises(RuntimeError, match="no threes") as caught:
        z[:] = np.arange(6)
    assert any("nested codec 'gzip' of chunk (3,)" in note for note in caught.value.__notes__)
