"""Decompressing gives what zarr's own codec gives, and nothing else: no foreign memory, and no bombs."""

import contextlib
import functools
import gzip
import json
import lzma
import struct
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Blosc, Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

import intarsia
import intarsia.codecs.compressors as unpack_module
from intarsia import nullable
from intarsia.codecs.base import parse_codec
from intarsia.codecs.codec_path import stored_spec
from intarsia.codecs.compressors import decode, decoded_bounds, exact_decompressor

CODECS = {"zstd": ZstdCodec(), "blosc": BloscCodec(typesize=4, shuffle="shuffle"), "gzip": GzipCodec()}
SIZES = [1, 255, 256, 257, 65791, 65792, 65793, 100_000]


@functools.cache
def bomb():
    """64 MiB of nothing."""
    return gzip.compress(bytes(64 << 20))


@functools.cache
def bomb_in_a_bomb():
    return Zstd(3).encode(Zstd(3).encode(bytes(1 << 30)))


def encoded(name, data):
    if name == "zstd":
        return Zstd(3).encode(data)
    if name == "blosc":
        return Blosc("lz4", 5, Blosc.SHUFFLE).encode(data)
    return gzip.compress(data, 5)


def unpacked(name, data, nbytes):
    memory = np.full(nbytes, 0xAB, dtype=np.uint8)
    found = exact_decompressor(CODECS[name], nbytes)(data, memory)
    return bytes(memoryview(found))


@pytest.fixture(params=["deflate", "zlib"])
def either_inflate(request, monkeypatch):
    """With libdeflate and without it."""
    if request.param == "zlib":
        monkeypatch.setattr(unpack_module, "deflate", None)
    return request.param


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("name", sorted(CODECS))
def test_sizes_around_the_limits_of_every_header(name, nbytes):
    data = np.random.default_rng(nbytes).integers(0, 9, nbytes, dtype=np.uint8).tobytes()
    for raw in (
        encoded(name, data),
        memoryview(encoded(name, data)),
        np.frombuffer(encoded(name, data), "u1"),
    ):
        assert unpacked(name, raw, nbytes) == data


@pytest.mark.parametrize("name", sorted(CODECS))
def test_another_size_than_the_chunks_is_an_error(name):
    data = bytes(range(200)) * 3
    for nbytes in (599, 601, 1200, 1):
        with pytest.raises((ValueError, RuntimeError)):
            unpacked(name, encoded(name, data), nbytes)


@given(st.sampled_from(sorted(CODECS)), st.data())
def test_damage_gives_an_error_or_the_right_length(name, data):
    values = bytes(range(250)) * 4
    raw = bytearray(encoded(name, values))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    found = None
    with contextlib.suppress(Exception):
        found = unpacked(name, bytes(raw[:cut]), 1000)
    assert found is None or len(found) == 1000


def test_several_frames_and_members_are_one_chunk(either_inflate):
    data = bytes(range(256)) * 2
    for name in ("zstd", "gzip"):
        halves = encoded(name, data[:200]) + encoded(name, data[200:])
        assert unpacked(name, halves, 512) == data
        with pytest.raises((ValueError, RuntimeError)):
            unpacked(name, encoded(name, data) * 2, 512)
    zeros_after = encoded("gzip", data) + bytes(16)  # padding, which gzip allows
    assert unpacked("gzip", zeros_after, 512) == data


def test_gzip_checks_its_checksum(either_inflate):
    raw = bytearray(encoded("gzip", bytes(range(256))))
    raw[-5] ^= 1
    with pytest.raises(Exception, match=r"(?i)crc|check|incorrect"):
        unpacked("gzip", bytes(raw), 256)


def test_a_blosc_chunk_that_is_cut_off_is_not_read_past_its_end():
    raw = encoded("blosc", bytes(range(256)) * 16)
    for length in (0, 3, 15, 16, len(raw) - 1):
        with pytest.raises(ValueError, match="cut off"):
            unpacked("blosc", raw[:length], 4096)


def test_a_zstd_frame_that_does_not_tell_its_size_is_left_to_zarr():
    # A frame of one raw block without a content size, as a streaming compressor writes it.
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + (1 | 0 << 1 | 5 << 3).to_bytes(3, "little") + b"hello"
    assert unpacked("zstd", frame, 5) == b"hello"


def test_only_the_codecs_that_are_known_have_a_short_way():
    assert exact_decompressor(Crc32cCodec(), 10) is None

    class Ours(ZstdCodec):
        pass

    assert exact_decompressor(Ours(), 10) is None
    assert exact_decompressor(ZstdCodec(), 0) is None


COMPRESSORS = [
    "gzip",
    "zstd",
    {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 5, "shuffle": "noshuffle", "typesize": 1}},
    *(f"numcodecs.{name}" for name in ("gzip", "zstd", "blosc", "zlib", "bz2", "lzma", "lz4")),
]
BUFFER = default_buffer_prototype().buffer
SPEC = stored_spec(zarr.create(store={}, shape=4, dtype="u1"), (4,))


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
class TestEveryCompressor:
    def test_what_there_may_be_is_decoded(self, compressor):
        codec, data = parse_codec(compressor), BUFFER.from_bytes(bytes(range(200)) * 30)
        encoded = codec._encode_sync(data, SPEC)
        for most in (6000, 6001, 10**9, None):
            assert decode(codec, encoded, SPEC, most).to_bytes() == data.to_bytes()
        with pytest.raises(ValueError, match="more than the 5999 bytes"):
            decode(codec, encoded, SPEC, 5999)

    def test_a_bomb_is_refused_before_it_goes_off(self, compressor):
        codec = parse_codec(compressor)
        encoded = codec._encode_sync(BUFFER.from_bytes(bytes(64 << 20)), SPEC)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="more than the 4 bytes"):
                decode(codec, encoded, SPEC, 4)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()

    def test_what_is_cut_off_is_an_error_and_nothing_else(self, compressor):
        codec, data = parse_codec(compressor), BUFFER.from_bytes(np.random.default_rng(0).bytes(2000))
        encoded = codec._encode_sync(data, SPEC)
        for length in (1, 5, 17, 1000, len(encoded) - 1):
            for most in (2000, 5000, None):
                with pytest.raises((ValueError, RuntimeError, EOFError, OSError, zlib.error, lzma.LZMAError)):
                    decode(codec, encoded[:length], SPEC, most)


BOMBS = """
import json, sys
import zarr
from tests.codecs.test_bounded import BUFFER, COMPRESSORS, SPEC, decode, parse_codec

def most_held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

for compressor in COMPRESSORS:
    codec = parse_codec(compressor)
    encoded = codec._encode_sync(BUFFER.from_bytes(bytes(256 << 20)), SPEC)
    open("/proc/self/clear_refs", "w").write("5")  # forgets the peak
    before, refused = most_held(), 0
    for most in (4, 1 << 20):
        try:
            decode(codec, encoded, SPEC, most)
        except ValueError:
            refused += 1
    print(json.dumps([str(compressor), refused, most_held() - before]))
"""


@pytest.mark.torture
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how much memory a process held")
def test_no_bomb_takes_memory_from_the_system():
    """As the system counts, with what libraries in C take."""
    command = [sys.executable, "-W", "ignore", "-c", BOMBS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) == len(COMPRESSORS)
    assert all(refused == 2 for _, refused, _ in found), found
    assert all(kilobytes < 32 << 10 for *_, kilobytes in found), found


def streamed(pieces):
    """A zstd frame of raw blocks that does not tell its size, as a streaming compressor writes it."""
    blocks = [
        (int(i == len(pieces) - 1) | len(piece) << 3).to_bytes(3, "little") + piece
        for i, piece in enumerate(pieces)
    ]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


def test_zstd_frames_that_do_not_tell_their_size_have_a_bound_too():
    def decoded(raw, most):
        return decode(ZstdCodec(), BUFFER.from_bytes(raw), SPEC, most).to_bytes()

    hello = streamed([b"hello", b"hello"])
    skipped = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    for most in (10, 11, 10**6):
        assert decoded(hello, most) == b"hellohello"
    assert decoded(skipped + hello + skipped + encoded("zstd", b"x" * 300), 310) == b"hellohello" + b"x" * 300
    rle = b"\x28\xb5\x2f\xfd\x00\x58" + (0 | 1 << 1 | (100_000 << 3)).to_bytes(3, "little") + b"a"
    bomb = rle + ((0 | 1 << 1 | (100_000 << 3)).to_bytes(3, "little") + b"a") * 1000
    for raw, most in ((hello, 9), (hello + hello, 19), (bomb, 10**6), (encoded("zstd", b"x" * 300) * 2, 599)):
        with pytest.raises(ValueError, match="more than"):
            decoded(raw, most)


def test_each_codec_of_a_chain_has_a_bound():
    codecs = [
        BytesCodec(),
        Crc32cCodec(),
        GzipCodec(),
        intarsia.codecs.PadCodec(location="end", nbytes=8),
        ZstdCodec(),
    ]
    assert decoded_bounds(codecs, SPEC) == [4, 8, 8 + 1 + 65536, 8 + 1 + 65536 + 8]
    strings = stored_spec(zarr.create_array({}, shape=4, dtype=str), (4,))
    assert decoded_bounds([parse_codec("vlen-utf8"), GzipCodec()], strings) == [None]


def stored(kind, compressor):
    """An array with one chunk, where it is stored, and how its bytes are framed."""
    if kind == "optional":
        z = nullable.create_array(
            {}, shape=4, chunks=4, dtype="u1", mask_codecs=["packbits"], data_codecs=["bytes", compressor]
        ).zarr_array
        return z, lambda raw: struct.pack("<QQ", 1, len(raw)) + b"\x0f" + raw
    codec = intarsia.codecs.ConditionalCodec(codecs=[compressor])
    if kind == "nested":
        codec = intarsia.codecs.ConditionalCodec(codecs=[codec])
    z = zarr.create(store={}, shape=4, chunks=4, dtype="u1", codecs=[BytesCodec(), codec])
    return z, lambda raw: (b"\x01\x01" if kind == "nested" else b"\x01") + raw


@pytest.mark.parametrize("pipeline", ["Batched", "Fused"])
@pytest.mark.parametrize("kind", ["conditional", "nested", "optional"])
def test_arrays_say_which_codec_met_damage_in_which_chunk(kind, pipeline):
    blosc = BloscCodec(cname="lz4", typesize=1, shuffle="noshuffle")
    cut = blosc._encode_sync(BUFFER.from_bytes(np.random.default_rng(0).bytes(1000)), SPEC).to_bytes()[:40]
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{pipeline}Pipeline"}):
        for compressor, raw, said in ((blosc, cut, "cut off"), (GzipCodec(), bomb(), "more than")):
            z, framed = stored(kind, compressor)
            z.store._store_dict["c/0"] = BUFFER.from_bytes(framed(raw))
            name = compressor.to_dict()["name"]
            tracemalloc.start()
            try:
                with pytest.raises(
                    intarsia.errors.ChunkDecodeError, match=rf"(?s)(?=.*{name})(?=.*\(0,\)).*{said}"
                ):
                    z[:]
                assert tracemalloc.get_traced_memory()[1] < 48 << 20
            finally:
                tracemalloc.stop()


def test_the_engine_decodes_no_bomb():
    for codecs in (
        ["gzip"],
        ["crc32c", "gzip"],
        ["gzip", "zstd"],
        [intarsia.codecs.ConditionalCodec(codecs=["gzip"])],
    ):
        array = intarsia.create({}, "a", shape=(4,), chunks=(4,), dtype="u1")
        array.append([1, 2, 3, 4], codecs=codecs)
        raw = {"gzip": bomb(), "zstd": Zstd(3).encode(bomb())}.get(codecs[-1], b"\x01" + bomb())
        store = array.group.store._store_dict
        (key,) = (key for key in store if key.endswith("/c/0"))
        store[key] = BUFFER.from_bytes(raw)
        tracemalloc.start()
        try:
            with pytest.raises(intarsia.errors.ReadError, match="more than"):
                array[:]
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()


TEXTS = np.array(["one", "two"] * 4, dtype=np.dtypes.StringDType())


def of_texts(kind, compressor):
    """An array of texts with one chunk: what reads it, where the chunk is, and how its bytes are framed."""
    if kind == "optional":
        found = nullable.create_array(
            {},
            shape=8,
            chunks=8,
            dtype="string",
            mask_codecs=["packbits"],
            data_codecs=["vlen-utf8", *compressor],
        )
        (key, store), frame = ("c/0", found.zarr_array.store), struct.pack("<QQ", 1, 0)
        return found, store, key, lambda raw: frame[:8] + struct.pack("<Q", len(raw)) + b"\xff" + raw
    found = intarsia.create({}, "a", shape=(0,), chunks=(8,), dtype="string", fill_value="")
    codecs = [intarsia.codecs.ConditionalCodec(codecs=compressor)] if kind == "conditional" else compressor
    found.append(TEXTS, codecs=["vlen-utf8", *codecs])
    store, mask = found.group.store, bytes([(1 << len(compressor)) - 1])
    (key,) = (key for key in store._store_dict if key.endswith("/c/0"))
    return found, store, key, lambda raw: mask + raw if kind == "conditional" else raw


@pytest.mark.parametrize("kind", ["bare", "conditional", "optional"])
class TestTexts:
    """Elements of any length: nobody knows how many bytes there may be, and yet there is an end to it."""

    def refused(self, kind, compressor, raw, said):
        found, store, key, framed = of_texts(kind, compressor)
        store._store_dict[key] = BUFFER.from_bytes(framed(raw))
        tracemalloc.start()
        try:
            with pytest.raises((intarsia.errors.ReadError, intarsia.errors.ChunkDecodeError), match=said):
                found[:]
            assert tracemalloc.get_traced_memory()[1] < 96 << 20
        finally:
            tracemalloc.stop()

    def test_compressors_make_no_bombs_of_them(self, kind):
        self.refused(kind, [GzipCodec()], bomb(), "more than")
        self.refused(kind, [ZstdCodec()], Zstd(3).encode(bytes(64 << 20)), "more than")
        claims = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 10**11) + bytes(20)
        self.refused(kind, [ZstdCodec()], claims, "more than")

    def test_a_bomb_in_a_bomb_is_measured_by_what_is_stored(self, kind):
        self.refused(kind, [ZstdCodec(), ZstdCodec()], bomb_in_a_bomb(), "more than")

    def test_their_number_is_not_believed(self, kind):
        many = struct.pack("<I", (1 << 32) - 1) + bytes(60)
        self.refused(kind, [GzipCodec()], gzip.compress(many), "4294967295 elements, but 8 are expected")


def test_long_texts_that_are_not_alike_are_read_back():
    texts = np.array(["x" * (1 << 20)] * 3 + ["y" * (17 << 20)], dtype=np.dtypes.StringDType())
    array = intarsia.create({}, "a", shape=(0,), chunks=(4,), dtype="string", fill_value="")
    array.append(texts, codecs=["vlen-utf8", "gzip"])
    assert (array[:] == texts).all()
