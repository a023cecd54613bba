"""Decoding into memory gives what zarr's own codec gives, and nothing else ever passes for a chunk."""

import contextlib
import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Blosc, Zstd
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

import intarsia.array.unpack as unpack_module
from intarsia.array.unpack import unpacker

CODECS = {"zstd": ZstdCodec(), "blosc": BloscCodec(typesize=4, shuffle="shuffle"), "gzip": GzipCodec()}
SIZES = [1, 255, 256, 257, 65791, 65792, 65793, 100_000]


def encoded(name, data):
    if name == "zstd":
        return Zstd(3).encode(data)
    if name == "blosc":
        return Blosc("lz4", 5, Blosc.SHUFFLE).encode(data)
    return gzip.compress(data, 5)


def unpacked(name, data, nbytes):
    memory = np.full(nbytes, 0xAB, dtype=np.uint8)
    found = unpacker(CODECS[name], nbytes)(data, memory)
    return bytes(memoryview(found))


@pytest.fixture(params=["isal", "zlib"])
def either_inflate(request, monkeypatch):
    """With the accelerator and without it."""
    if request.param == "zlib":
        monkeypatch.setattr(unpack_module, "decompressobj", zlib.decompressobj)
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
    assert unpacker(Crc32cCodec(), 10) is None

    class Ours(ZstdCodec):
        pass

    assert unpacker(Ours(), 10) is None
    assert unpacker(ZstdCodec(), 0) is None
