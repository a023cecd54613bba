"""zstd, gzip and zlib by packages of their own give what others make of them, and refuse what they refuse."""

import contextlib
import gzip
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc, zstd
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.codecs import numcodecs as zarr_numcodecs

import intarsia
from intarsia.codecs import compressors
from intarsia.codecs.compressors import (
    LARGEST_COPIED,
    compressors_in_use,
    decompress_zstd_frames,
    decompress_zstd_together,
    exact_decompressor,
)

DAMAGE = (RuntimeError, ValueError, zstandard.ZstdError)
KINDS = st.sampled_from([bytes, bytearray, memoryview, lambda data: np.frombuffer(data, "u1")])
SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"notes"


def unpacked(data, nbytes):
    memory = np.empty(nbytes, dtype="u1")
    return bytes(memoryview(exact_decompressor(ZstdCodec(), nbytes)(data, memory)))


def streamed(content):
    """A frame that does not say how long its content is, as streaming compressors write it."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(content)


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 5), KINDS)
def test_frames_come_out_as_they_went_in(content, level, kind):
    assert unpacked(kind(zstd.compress(content, level)), len(content)) == content
    assert decompress_zstd_frames(kind(zstd.compress(content, level)), 3000) == content


@pytest.mark.parametrize("nbytes", [LARGEST_COPIED, LARGEST_COPIED + 1, 3 * LARGEST_COPIED])
def test_a_chunk_of_several_blocks(nbytes):
    content = np.random.default_rng(0).integers(0, 9, nbytes, dtype="u1").tobytes()
    for frame in (
        zstd.compress(content),
        streamed(content),
        zstd.compress(content[:5]) + streamed(content[5:]),
    ):
        assert unpacked(frame, nbytes) == content
        for bad in (frame + b"x", frame[:-1], frame * 2):
            with pytest.raises(DAMAGE):
                unpacked(bad, nbytes)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_what_is_damaged_or_of_another_size_is_refused_and_the_next_frame_is_read(content, data):
    frame = zstd.compress(content)
    cut = data.draw(st.integers(0, len(frame) - 1))
    for bad in (
        frame[:cut],
        frame + b"x",
        frame * 2,
        zstd.compress(content + b"x"),
        zstd.compress(content[1:]),
    ):
        with pytest.raises(DAMAGE):
            unpacked(bad, len(content))
    assert unpacked(frame, len(content)) == content


def test_no_bytes_are_not_an_empty_frame():
    assert decompress_zstd_frames(zstd.compress(b""), 100) == b""
    assert decompress_zstd_frames(zstd.compress(b""), 0) == b""
    with pytest.raises(ValueError, match="no bytes"):
        decompress_zstd_frames(b"", 100)


@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 3)), min_size=1, max_size=5), st.data())
def test_frames_of_every_kind_follow_one_another(contents, data):
    makers = [
        zstd.compress,
        streamed,
        lambda c: zstd.compress(c, 1, True),
        lambda c: SKIPPABLE + zstd.compress(c),
    ]
    frames = b"".join(makers[kind](content) for content, kind in contents) + SKIPPABLE
    whole = b"".join(content for content, _ in contents)
    assert decompress_zstd_frames(frames, len(whole)) == whole
    if whole:
        with pytest.raises(ValueError, match=r"more than|damaged"):
            decompress_zstd_frames(frames, len(whole) - 1)
    cut = data.draw(st.integers(1, len(frames) - 1))
    try:
        found = decompress_zstd_frames(frames[:cut], len(whole))
    except ValueError:
        return
    assert whole.startswith(found)  # cut between two frames, or in what is no content


def test_headers_that_differ_from_chunk_to_chunk():
    """Of an array that several programs wrote: some frames do not say how long their content is."""
    content = bytes(range(250)) * 4
    two = zstd.compress(content[:600]) + zstd.compress(content[600:])
    for data in (zstd.compress(content, 1), two, zstd.compress(content, 1, True), streamed(content)):
        assert unpacked(data, 1000) == unpacked(memoryview(data), 1000) == content
    for bad in (zstd.compress(content + b"x"), streamed(content + b"x"), streamed(content)[:-2]):
        with pytest.raises(DAMAGE):
            unpacked(bad, 1000)


def test_every_thread_has_a_decompressor_of_its_own():
    frames = {i: zstd.compress(bytes([i]) * 5000 + np.random.default_rng(i).bytes(5000)) for i in range(64)}

    def is_right(i):
        return unpacked(frames[i], 10_000) == bytes([i]) * 5000 + np.random.default_rng(i).bytes(5000)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, frames))


# Many frames in one call

needs_batches = pytest.mark.skipif(
    not compressors.HAS_BATCHES, reason="this build of python-zstandard decompresses one frame at a time"
)


def contents_of(count, nbytes):
    return [np.random.default_rng(i).integers(0, 1 + i % 9, nbytes, "u1").tobytes() for i in range(count)]


@needs_batches
@pytest.mark.parametrize("checksum", [False, True])
@given(st.integers(1, 70), st.integers(1, 3000), st.sampled_from([1, 3, 12]), KINDS)
def test_frames_decompressed_together_come_out_in_order(checksum, count, nbytes, level, kind):
    contents = contents_of(count, nbytes)
    frames = [kind(zstd.compress(content, level, checksum)) for content in contents]
    assert [bytes(found) for found in decompress_zstd_together(frames, nbytes)] == contents


@needs_batches
@given(st.integers(0, 39), st.data())
def test_what_is_not_one_frame_of_the_size_is_never_decompressed_together(which, data):
    """Bytes after a frame would be passed over, and a frame of unknown size has no limit of memory."""
    contents = contents_of(40, 700)
    frames = [zstd.compress(content, 1) for content in contents]
    good, content = frames[which], contents[which]
    doubtful = [
        good + b"x", good * 2, good + SKIPPABLE, SKIPPABLE + good, streamed(content), b"", good[:4],
        good[:-1], zstd.compress(content + b"x", 1), zstd.compress(content[1:], 1),
        zstd.compress(content, 1, True), zstd.compress(content[:9]) + zstd.compress(content[9:]),
        gzip.compress(content),
    ]  # fmt: skip
    frames[which] = data.draw(st.sampled_from(doubtful))
    assert decompress_zstd_together(frames, 700) is None


@needs_batches
@given(st.integers(0, 39), st.data())
def test_damage_among_many_is_an_error_or_of_the_right_length(which, data):
    frames = [zstd.compress(content, 1) for content in contents_of(40, 700)]
    raw = bytearray(frames[which])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    frames[which] = bytes(raw)
    try:
        found = decompress_zstd_together(frames, 700)
    except zstandard.ZstdError:
        return
    assert found is None or [len(content) for content in found] == [700] * 40


def test_without_batches_frames_are_left_to_be_decompressed_one_by_one(monkeypatch):
    frames = [zstd.compress(content) for content in contents_of(40, 700)]
    monkeypatch.setattr(compressors, "HAS_BATCHES", False)
    assert decompress_zstd_together(frames, 700) is None


# gzip and zlib

needs_deflate = pytest.mark.skipif(compressors.deflate is None, reason="the package deflate is not installed")


@pytest.fixture(params=["deflate", "zlib"])
def either_inflate(request, monkeypatch):
    """With libdeflate, and without it."""
    if request.param == "zlib":
        monkeypatch.setattr(compressors, "deflate", None)
    elif compressors.deflate is None:
        pytest.skip("the package deflate is not installed")


def inflated(data, most):
    return bytes(compressors._gzip(None, data, most))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, "u1")])
def test_members_of_gzip_are_one_content_and_no_more_than_is_allowed(either_inflate, kind):
    content = bytes(range(250)) * 4
    member, halves = gzip.compress(content), gzip.compress(content[:1]) + gzip.compress(content[1:])
    for whole in (member, halves, member + bytes(7)):
        for most in (1000, 1001, 5000):
            assert inflated(kind(whole), most) == content
    assert inflated(kind(member * 2), 2000) == content * 2
    for bad in (member * 2, gzip.compress(content + b"x"), gzip.compress(bytes(10**7)), halves + member):
        with pytest.raises(ValueError, match="more than"):
            inflated(kind(bad), 1000)


@given(st.binary(min_size=2, max_size=300), st.data())
def test_damaged_gzip_is_refused(content, data):
    member = gzip.compress(content)
    cut = data.draw(st.integers(1, len(member) - 1))
    flipped = bytearray(member)
    flipped[-8] ^= 1  # of the checksum
    for bad in (member[:cut], bytes(flipped), member + b"x", member + member[:cut]):
        with pytest.raises((OSError, EOFError, ValueError, zlib.error)):
            inflated(bad, len(content))


def test_zlib_data_is_bounded_and_complete(either_inflate):
    def unzipped(data, most):
        return bytes(compressors._DECOMPRESSORS[zarr_numcodecs.Zlib](None, data, most))

    content = bytes(range(250)) * 4
    assert unzipped(zlib.compress(content), 1000) == unzipped(zlib.compress(content), 5000) == content
    for bad in (
        zlib.compress(content)[:-1],
        zlib.compress(content + b"x"),
        zlib.compress(bytes(10**7)),
        b"no",
    ):
        with pytest.raises((ValueError, zlib.error)):
            unzipped(bad, 1000)


def test_no_content_is_inflated_to_nothing(either_inflate):
    assert inflated(gzip.compress(b""), 0) == inflated(gzip.compress(b""), 10) == b""
    with pytest.raises(ValueError, match="more than"):
        inflated(gzip.compress(b"x"), 0)


@needs_deflate
@pytest.mark.parametrize("shards", [None, (20, 20)])
@pytest.mark.parametrize("level", [0, 5, 9])
def test_the_engine_writes_gzip_by_it_and_zarr_without_it_reads_the_same(
    shards, level, monkeypatch, tmp_path
):
    values = np.arange(400, dtype="f8").reshape(20, 20)

    def written(name):
        array = intarsia.create(tmp_path / name, shape=(20, 20), chunks=shards or (7, 9), dtype="f8")
        inner = [BytesCodec(), GzipCodec(level=level)]
        codecs = [ShardingCodec(chunk_shape=(5, 10), codecs=inner)] if shards else inner
        array.add_region([(0, 20), (0, 20)], codecs=codecs)
        array[...] = values
        return zarr.open_array(tmp_path / name / array.regions[0].name, mode="r")[...]

    by_it = written("by-it")
    monkeypatch.setattr(compressors, "deflate", None)
    np.testing.assert_array_equal(by_it, written("by-zarr"))
    np.testing.assert_array_equal(by_it, values)


def test_it_is_said_which_compressors_are_in_use(monkeypatch):
    assert set(compressors_in_use()) == {"zstd", "gzip", "blosc"}
    monkeypatch.setattr(compressors, "HAS_BATCHES", False)
    monkeypatch.setattr(compressors, "deflate", None)
    monkeypatch.setattr(compressors, "blosc_elements", None)
    slow = compressors_in_use()
    assert "no batches" in slow["zstd"]
    assert slow["gzip"].startswith("zlib")
    assert "whole chunks" in slow["blosc"]


def test_a_library_without_the_function_gives_no_parts_of_blosc_chunks():
    assert compressors._blosc_getter("no such library") is None
    assert compressors._blosc_getter(zstd.__file__) is None  # a library, but another one
    if compressors.blosc_elements is not None:
        part = np.empty(8, dtype="u1")
        with pytest.raises(RuntimeError, match="blosc"):
            compressors.blosc_elements(blosc.compress(bytes(1 << 20), b"lz4", 5), 1 << 30, 8, part)


def test_large_blosc_chunks_are_decompressed_into_memory():
    assert blosc.use_threads is False  # by zarr: blosc's threads would compete with those that read
    nbytes = 3 * LARGEST_COPIED
    content = np.random.default_rng(0).integers(0, 9, nbytes, dtype="u1")
    packed = blosc.compress(content, b"lz4", 5, blosc.SHUFFLE, 0, typesize=4)
    unpack, memory = exact_decompressor(BloscCodec(), nbytes), np.zeros(nbytes, dtype="u1")
    np.testing.assert_array_equal(np.frombuffer(unpack(packed, memory), dtype="u1"), content)
    np.testing.assert_array_equal(memory, content)
    with pytest.raises(ValueError, match="cut off"):
        unpack(packed[:-1], memory)
    for seed in range(300):
        damaged = bytearray(packed)
        places = np.random.default_rng(seed).integers(16, len(packed), 5)
        for place in places.tolist():
            damaged[place] ^= 1 + seed % 255
        with contextlib.suppress(RuntimeError):
            assert len(unpack(bytes(damaged), memory)) == nbytes
