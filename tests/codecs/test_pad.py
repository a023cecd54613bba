"""`pad` and `offset`: the format, the referees, the errors."""

import base64
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import tifffile
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, CastValue, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.codecs.numcodecs import Zlib

from intarsia.codecs import OffsetCodec, PadCodec, n5_header, parse_codecs, tiff_header, with_padding
from intarsia.codecs.context import working_on
from intarsia.errors import (
    ChunkDecodeError,
    ChunkEncodeError,
    ChunkIndexUnknownError,
    CodecConfigurationError,
)

LITTLE = BytesCodec(endian="little")
SEED_TIFF = (
    "SUkqAAgAAAAIAAABAwABAAAAAAEAAAEBAwABAAAAAAEAAAIBAwABAAAAEAAAAAMBAwABAAAAAQAAAAYBAwABAAAAAQAAABEB"
    "BAABAAAAbgAAABYBAwABAAAAAAEAABcBBAABAAAAAAACAAAAAAA="
)
CUSTOM = "TVlfQ1VTVE9NX0hFQURFUg=="
PICTURES = [
    ((256, 256), "uint16"),
    ((7, 300), "uint8"),
    ((64, 33), "int16"),
    ((16, 16), "float32"),
    ((5, 9), ">u4"),
    ((12, 70_000), "int8"),
    ((3, 4), ">f8"),
]


def picture(shape, dtype):
    values = np.random.default_rng(0).integers(0, 100, shape)
    return values.astype(dtype)


def endian_of(dtype):
    return "big" if np.dtype(dtype).byteorder == ">" else "little"


def pad_or_offset(kind, padding, nbytes):
    if kind == "pad":
        return {"name": "pad", "configuration": {"location": "start", "nbytes": nbytes, "padding": padding}}
    return {"name": "offset", "configuration": {"offset": nbytes, "prefix": padding}}


@pytest.mark.parametrize("kind", ["pad", "offset"])
def test_the_seeds_tiff_example_runs_as_written(kind, tmp_path, pipeline):
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, pad_or_offset(kind, SEED_TIFF, 110)]
    z = zarr.create(store=tmp_path / "a", shape=(512, 256), chunks=(256, 256), dtype="uint16", codecs=codecs)
    data = picture((512, 256), "uint16")
    z[:] = data
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a/c/0/0"), data[:256])
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a/c/1/0"), data[256:])
    stored = json.loads((tmp_path / "a/zarr.json").read_text())["codecs"]
    assert stored == codecs
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a")[:], data)


@pytest.mark.parametrize("kind", ["pad", "offset"])
def test_the_seeds_custom_header_example_runs_as_written(kind, tmp_path, pipeline):
    codecs = parse_codecs([{"name": "gzip"}, pad_or_offset(kind, CUSTOM, 16)])
    z = zarr.create(store=tmp_path / "a", shape=100, chunks=50, dtype="int32", codecs=codecs)
    z[:] = np.arange(100)
    assert (tmp_path / "a/c/1").read_bytes()[:18] == b"MY_CUSTOM_HEADER\x1f\x8b"
    np.testing.assert_array_equal(z[:], np.arange(100))


def test_tiff_header_equals_the_seeds_bytes():
    assert tiff_header((256, 256), "uint16") == base64.b64decode(SEED_TIFF)


@pytest.mark.parametrize(("shape", "dtype"), PICTURES)
def test_uncompressed_chunks_are_tiff_files(shape, dtype, tmp_path):
    header = tiff_header(shape, dtype)
    codecs = [
        BytesCodec(endian=endian_of(dtype)),
        PadCodec(location="start", nbytes=len(header), padding=header),
    ]
    z = zarr.create(
        store=tmp_path / "a", shape=(2 * shape[0], shape[1]), chunks=shape, dtype=dtype, codecs=codecs
    )
    data = picture(z.shape, dtype)
    z[:] = data
    for i in range(2):
        chunk = data[i * shape[0] : (i + 1) * shape[0]]
        np.testing.assert_array_equal(tifffile.imread(tmp_path / f"a/c/{i}/0"), chunk)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize("compression", ["deflate", "zstd"])
@pytest.mark.parametrize(("shape", "dtype"), PICTURES)
def test_compressed_chunks_are_tiff_files_through_the_function(shape, dtype, compression, tmp_path):
    header = tiff_header(shape, dtype, compression=compression)
    compressor = Zlib(level=6) if compression == "deflate" else ZstdCodec(level=3)
    codecs = [
        BytesCodec(endian=endian_of(dtype)),
        compressor,
        OffsetCodec(offset=len(header), prefix_func=header),
    ]
    z = zarr.create(
        store=tmp_path / "a", shape=(2 * shape[0], shape[1]), chunks=shape, dtype=dtype, codecs=codecs
    )
    data = picture(z.shape, dtype)
    data[: shape[0]] = 1  # compresses to another size than the second chunk
    z[:] = data
    for i in range(2):
        with tifffile.TiffFile(tmp_path / f"a/c/{i}/0") as file:
            assert file.pages[0].databytecounts == ((tmp_path / f"a/c/{i}/0").stat().st_size - len(header),)
            np.testing.assert_array_equal(file.asarray(), data[i * shape[0] : (i + 1) * shape[0]])


N5_COMPRESSIONS = {
    "raw": ({"type": "raw"}, []),
    "gzip": ({"type": "gzip"}, [GzipCodec()]),
    "zstd": ({"type": "zstd", "level": 3}, [ZstdCodec(level=3)]),
}


def n5_spec(path, compression):
    return {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": {
            "dimensions": [128, 96],
            "blockSize": [64, 32],
            "dataType": "uint16",
            "compression": N5_COMPRESSIONS[compression][0],
        },
        "create": True,
        "open": True,
    }


def n5_as_zarr(path, compression, kind="pad"):
    """The seeds' N5 recipe with its errata fixed: column-major through `transpose`, the header given."""
    header = n5_header((64, 32))
    pad = (
        PadCodec(location="start", nbytes=12, padding=header)
        if kind == "pad"
        else OffsetCodec(offset=12, prefix=header)
    )
    codecs = [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        *N5_COMPRESSIONS[compression][1],
        pad,
    ]
    return zarr.create(
        store=path,
        shape=(128, 96),
        chunks=(64, 32),
        dtype="uint16",
        chunk_key_encoding=("v2", "/"),
        codecs=codecs,
        fill_value=0,
    )


@pytest.mark.parametrize("kind", ["pad", "offset"])
@pytest.mark.parametrize("compression", sorted(N5_COMPRESSIONS))
def test_an_n5_dataset_of_tensorstore_is_read_in_place(compression, kind, tmp_path, pipeline):
    data = np.random.default_rng(1).integers(0, 2**16, (128, 96)).astype("uint16")
    n5 = tensorstore.open(n5_spec(tmp_path / "d", compression)).result()
    n5.write(data).result()
    n5_as_zarr(tmp_path / "d", compression, kind)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "d", mode="r")[:], data)


@pytest.mark.parametrize("compression", sorted(N5_COMPRESSIONS))
def test_an_n5_dataset_of_ours_opens_in_tensorstore(compression, tmp_path):
    data = np.random.default_rng(2).integers(0, 2**16, (128, 96)).astype("uint16")
    n5_as_zarr(tmp_path / "d", compression)[:] = data
    n5 = tensorstore.open(n5_spec(tmp_path / "d", compression)).result()
    np.testing.assert_array_equal(n5.read().result(), data)


def test_n5_header_equals_the_seeds_bytes():
    assert base64.b64encode(n5_header((64, 64))).decode() == "AAAAAgAAAEAAAABA"
    with pytest.raises(CodecConfigurationError, match="N5 block"):
        n5_header(())


CHAINS = {
    "prefix and suffix": [LITTLE, PadCodec(location="start", nbytes=2), PadCodec(location="end", nbytes=5)],
    "no bytes at all": [LITTLE, PadCodec(location="end", nbytes=0)],
    "before a compressor": [LITTLE, PadCodec(location="start", nbytes=7, padding=b"seven b"), ZstdCodec()],
    "after a compressor": [LITTLE, GzipCodec(), OffsetCodec(offset=3, prefix=b"abc")],
    "inside a shard": [
        ShardingCodec(chunk_shape=(5,), codecs=[LITTLE, PadCodec(location="end", nbytes=3), ZstdCodec()])
    ],
    "with a checksum": [LITTLE, PadCodec(location="end", nbytes=3), Crc32cCodec()],
}


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_padding_anywhere_in_the_chain_round_trips(chain, tmp_path, pipeline):
    z = zarr.create(store=tmp_path / "a", shape=23, chunks=10, dtype="f8", codecs=CHAINS[chain])
    data = np.random.default_rng(3).normal(size=23)
    z[:] = data
    z[4:6] = data[4:6] = 0.5
    reopened = zarr.open_array(tmp_path / "a")
    np.testing.assert_array_equal(reopened[:], data)
    np.testing.assert_array_equal(reopened[3:17:4], data[3:17:4])
    assert reopened.metadata.codecs == z.metadata.codecs


@given(
    data=st.binary(max_size=200), padding=st.binary(max_size=40), location=st.sampled_from(["start", "end"])
)
def test_the_stored_bytes_are_padding_and_data(data, padding, location):
    codec = PadCodec(location=location, nbytes=len(padding), padding=padding)
    spec = array_spec(len(data))
    encoded = codec._encode_sync(spec.prototype.buffer.from_bytes(data), spec)
    assert encoded.to_bytes() == (padding + data if location == "start" else data + padding)
    assert codec._decode_sync(encoded, spec).to_bytes() == data
    assert codec.compute_encoded_size(len(data), spec) == len(encoded)


def array_spec(size):
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.buffer import default_buffer_prototype
    from zarr.dtype import UInt8

    config = ArrayConfig.from_dict({})
    return ArraySpec((size,), UInt8(), np.uint8(0), config, default_buffer_prototype())


def test_decoding_is_a_view():
    spec = array_spec(100)
    encoded = spec.prototype.buffer.from_bytes(bytes(110))
    for codec in (PadCodec(location="start", nbytes=10), PadCodec(location="end", nbytes=10)):
        decoded = codec._decode_sync(encoded, spec)
        assert np.shares_memory(decoded.as_numpy_array(), encoded.as_numpy_array())


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"location": "start", "nbytes": -1}, "Expected `int` >= 0 - at `..nbytes`"),
        ({"location": "start", "nbytes": 1.5}, "Expected `int`.* - at `..nbytes`"),
        ({"location": "start", "nbytes": True}, "Expected `int`.* - at `..nbytes`"),
        ({"location": "middle", "nbytes": 1}, "Invalid enum value 'middle' - at `..location`"),
        ({"location": "start", "nbytes": 3, "padding": "%%%"}, "padding: '%%%': Invalid base64"),
        ({"location": "start", "nbytes": 3, "padding": "YWJjZA=="}, "padding holds 4 bytes, but nbytes is 3"),
        ({"location": "start", "nbytes": 3, "padding": 3}, "Expected `bytes`, got `int`"),
        ({"location": "start", "nbytes": 3, "padding_func": b"abc"}, "expected a function"),
    ],
)
def test_a_bad_configuration_is_refused_when_the_codec_is_made(fields, match):
    with pytest.raises(CodecConfigurationError, match=match):
        PadCodec(**fields)


@pytest.mark.parametrize(
    ("configuration", "match"),
    [
        ({"location": "start"}, "missing required field `nbytes`"),
        ({"location": "start", "nbytes": 1, "more": 2}, "unknown field `more`"),
        ({"location": "start", "nbytes": "1"}, "Expected `int`.* - at `..nbytes`"),
        ({"location": "up", "nbytes": -1}, "Invalid enum value 'up' - at `..location`"),
    ],
)
def test_a_bad_zarr_json_is_refused_when_the_array_is_opened(configuration, match, tmp_path):
    z = zarr.create(
        store=tmp_path / "a", shape=4, dtype="u1", codecs=[LITTLE, PadCodec(location="end", nbytes=1)]
    )
    z[:] = 1
    document = json.loads((tmp_path / "a/zarr.json").read_text())
    document["codecs"][1]["configuration"] = configuration
    (tmp_path / "a/zarr.json").write_text(json.dumps(document))
    with pytest.raises(CodecConfigurationError, match=match):
        zarr.open_array(tmp_path / "a")


def stored_files(path: Path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("func", "match"),
    [
        (lambda encoded: b"too long", "needs 3 bytes of padding.*, but got 8 bytes"),
        (lambda encoded: "abc", "needs 3 bytes of padding.*, but got str"),
        (lambda encoded: None, "needs 3 bytes of padding.*, but got NoneType"),
    ],
)
@pytest.mark.parametrize("codec", [PadCodec, OffsetCodec])
def test_a_function_that_returns_the_wrong_thing_writes_nothing(func, match, codec, tmp_path, pipeline):
    pad = (
        PadCodec(location="end", nbytes=3, padding_func=func)
        if codec is PadCodec
        else OffsetCodec(offset=3, prefix_func=func)
    )
    z = zarr.create(store=tmp_path / "a", shape=4, dtype="u1", codecs=[LITTLE, pad])
    before = stored_files(tmp_path)
    with pytest.raises(ChunkEncodeError, match=match):
        z[:] = [1, 2, 3, 4]
    assert stored_files(tmp_path) == before


def test_a_function_sees_the_encoded_chunk_and_stays_out_of_the_metadata(tmp_path, pipeline):
    pad = PadCodec(location="end", nbytes=1, padding_func=lambda encoded: bytes([sum(encoded) % 256]))
    z = zarr.create(store=tmp_path / "a", shape=4, chunks=2, dtype="u1", codecs=[LITTLE, pad])
    z[:] = [1, 2, 3, 4]
    assert (tmp_path / "a/c/0").read_bytes() == bytes([1, 2, 3])
    assert (tmp_path / "a/c/1").read_bytes() == bytes([3, 4, 7])
    assert b"func" not in (tmp_path / "a/zarr.json").read_bytes()


@pytest.mark.parametrize("sharded", [False, True])
def test_a_function_gets_bytes(sharded, pipeline):
    def header(compressed_chunk: bytes) -> bytes:
        assert type(compressed_chunk) is bytes
        (first,) = struct.unpack_from("<H", compressed_chunk)
        assert compressed_chunk.startswith(b"\x07")
        return compressed_chunk[:2] + b"%d%03d" % (len(compressed_chunk), first % 1000)

    chain = [LITTLE, PadCodec(nbytes=6, padding_func=header, verify_header=True)]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(4,), codecs=chain)]
    z = zarr.create(store={}, shape=8, chunks=4, dtype="u1", codecs=chain)
    z[:] = 7
    assert z[:].tolist() == [7] * 8
    assert z.store_path.store._store_dict["c/0"].to_bytes().startswith(b"\x07\x074799")


def test_a_function_may_ask_for_the_chunk_index():
    spec = array_spec(2)
    codec = PadCodec(location="start", nbytes=1, padding_func=lambda encoded, chunk_index: bytes(chunk_index))
    data = spec.prototype.buffer.from_bytes(b"ab")
    with working_on((7,)):
        assert codec._encode_sync(data, spec).to_bytes() == b"\x07ab"
    with pytest.raises(ChunkIndexUnknownError, match="codec_pipeline"):
        codec._encode_sync(data, spec)


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_chunk_shorter_than_its_padding_is_an_error(location, tmp_path, pipeline):
    codecs = [LITTLE, PadCodec(location=location, nbytes=10)]
    z = zarr.create(store=tmp_path / "a", shape=4, dtype="u1", codecs=codecs)
    z[:] = 1
    (tmp_path / "a/c/0").write_bytes(b"short")
    with pytest.raises(ChunkDecodeError, match=r"5 bytes.* are fewer than the 10 bytes"):
        z[:]


def test_codecs_pickle_and_compare():
    header = tiff_header((4, 4), "u1", compression="zstd")
    codec = PadCodec(location="start", nbytes=len(header), padding=header, padding_func=header)
    copy = pickle.loads(pickle.dumps(codec))
    assert copy == codec
    assert hash(copy) == hash(codec)
    assert copy.padding_func(b"1234") == header(b"1234")
    assert PadCodec.from_dict(codec.to_dict()) == codec
    offset = OffsetCodec(offset=2, prefix=b"ab")
    assert pickle.loads(pickle.dumps(offset)) == OffsetCodec.from_dict(offset.to_dict()) == offset


def length(encoded):
    return b"LEN%05d" % len(encoded)


def padded(store, codec, **fields):
    return zarr.create(store=store, shape=4, dtype="u1", codecs=[LITTLE, codec], **fields)


@pytest.mark.parametrize(
    "codec",
    [
        PadCodec(location="start", nbytes=8, padding_func=length),
        OffsetCodec(offset=8, prefix_func=length),
    ],
    ids=["pad", "offset"],
)
def test_an_array_that_is_opened_without_its_function_can_be_read_but_not_written(codec, tmp_path, pipeline):
    padded(tmp_path / "a", codec)[:] = 7
    again = zarr.open_array(tmp_path / "a")
    assert again[:].tolist() == [7] * 4
    with pytest.raises(ChunkEncodeError, match=r"it is not known which 8 bytes(.|\n)*with_padding\(array"):
        again[:] = 8
    assert again[:].tolist() == [7] * 4
    with_padding(again, length)[:] = 9
    assert (tmp_path / "a/c/0").read_bytes() == b"LEN00004" + b"\x09" * 4
    with_padding(again, b"12345678")[:] = 10
    assert (tmp_path / "a/c/0").read_bytes() == b"12345678" + b"\x0a" * 4


def test_zeros_are_stored_where_neither_bytes_nor_a_function_were_given(tmp_path):
    padded(tmp_path / "a", PadCodec(location="end", nbytes=3))
    (_, pad) = json.loads((tmp_path / "a/zarr.json").read_text())["codecs"]
    assert pad["configuration"]["padding"] == "AAAA"
    zarr.open_array(tmp_path / "a")[:] = 7
    assert (tmp_path / "a/c/0").read_bytes() == b"\x07" * 4 + b"\0" * 3


@pytest.mark.parametrize(
    "codec",
    [
        {"name": "pad", "configuration": {"location": "start", "nbytes": 3}},
        {"name": "offset", "configuration": {"offset": 3}},
    ],
    ids=["pad", "offset"],
)
def test_zeros_are_written_where_zarr_json_has_no_padding(codec, tmp_path, pipeline):
    padded(tmp_path / "a", codec)[:2] = 6
    assert json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1] == codec
    zarr.open_array(tmp_path / "a")[:2] = 7
    assert (tmp_path / "a/c/0").read_bytes() == b"\0\0\0\7\7\0\0"


@pytest.mark.parametrize(
    ("codec", "field"),
    [
        (PadCodec(location="start", nbytes=8, padding_func=length), "padding"),
        (OffsetCodec(offset=8, prefix_func=length), "prefix"),
    ],
    ids=["pad", "offset"],
)
def test_zarr_json_says_null_where_a_function_computes_the_padding(codec, field, tmp_path):
    padded(tmp_path / "a", codec)
    (_, stored) = json.loads((tmp_path / "a/zarr.json").read_text())["codecs"]
    assert stored["configuration"][field] is None
    assert zarr.open_array(tmp_path / "a").metadata.to_dict()["codecs"][1] == stored


def test_no_bytes_need_no_telling(tmp_path):
    codec = {"name": "pad", "configuration": {"location": "end", "nbytes": 0}}
    z = padded(tmp_path / "a", codec)
    z[:] = 7
    assert (tmp_path / "a/c/0").read_bytes() == b"\x07" * 4
    padded(tmp_path / "b", PadCodec(nbytes=0, padding_func=lambda encoded: b""))
    zarr.open_array(tmp_path / "b")[:] = 7


def test_what_a_function_returns_is_measured_in_bytes(pipeline):
    three = memoryview(np.zeros(3, "u4"))
    z = padded({}, PadCodec(location="start", nbytes=3, padding_func=lambda encoded: three))
    with pytest.raises(ChunkEncodeError, match=r"needs 3 bytes of padding.*, but got 12 bytes"):
        z[:] = 1
    z = padded({}, PadCodec(location="start", nbytes=12, padding_func=lambda encoded: three))
    z[:] = 1
    assert len(z.store_path.store._store_dict["c/0"]) == 16


@pytest.mark.parametrize("sharded", [False, True])
def test_a_function_may_read_and_write_other_arrays(sharded, our_pipeline):
    other = zarr.create(store={}, shape=1, dtype="u1")

    def count(encoded):
        other[:] = other[0] + 1
        return bytes(other[:])

    chain = [LITTLE, PadCodec(location="end", nbytes=1, padding_func=count)]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(1,), codecs=chain)]
    with zarr.config.set({"async.concurrency": 2}):
        z = zarr.create(store={}, shape=64, chunks=1, dtype="u1", codecs=chain)
        z[:] = 7
    assert z[:].tolist() == [7] * 64


@pytest.mark.parametrize("pipeline", ["Batched", "Fused"])
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("location", ["start", "end"])
def test_values_beside_padding_of_odd_length_are_aligned_for_the_codecs_before(pipeline, sharded, location):
    """`cast_value` panics on numbers at odd addresses; in shards, padding shifts the next chunk."""
    pytest.importorskip("cast_value_rs")
    codecs = [CastValue(data_type="int16"), BytesCodec(), PadCodec(location=location, nbytes=5)]
    if sharded:
        codecs = [ShardingCodec(chunk_shape=(4,), codecs=codecs)]
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{pipeline}Pipeline"}):
        z = zarr.create(store={}, shape=16, chunks=8, dtype="f8", codecs=codecs)
        z[:] = np.arange(16)
        assert z[:].tolist() == list(range(16))
        z[3:9] = 7
        assert z[2:10].tolist() == [2, 7, 7, 7, 7, 7, 7, 9]
